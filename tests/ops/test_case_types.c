/* Every case in every float type on the reference device: the rules accept it, and the results are those of f64 up
 * to what the type can hold. Guard bytes around every fetched tensor stay as they were. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "ops/driver.h"

enum { GUARD = 64 };

/* The unit of rounding of a type, as a bound on relative error of one operation. */
static double unit_of(tu_dtype dtype) {
    switch (dtype) {
    case TU_F32: return 0x1p-23;
    case TU_BF16: return 0x1p-7;
    case TU_F16: return 0x1p-10;
    default: return 0x1p-52;
    }
}

/* Runs the draw; results as doubles, one array an output. */
static bool run_draw(case_run *c, double **results) {
    tu_state *state = NULL;
    tu_program *program = NULL;
    tu_feed feeds[CASE_MAX_INPUTS];
    unsigned char *typed[CASE_MAX_INPUTS] = {0}, *guarded[CASE_MAX_OUTPUTS] = {0};
    void *fetch[CASE_MAX_OUTPUTS];
    for (int i = 0; i < c->input_count; i++) {
        tu_type type = tu_value_type(c->inputs[i].value);
        typed[i] = malloc(tu_type_bytes(type));
        tu__store_array(type.dtype, c->inputs[i].data, tu_shape_elements(type.shape), typed[i]);
        feeds[i] = (tu_feed){c->inputs[i].value, typed[i]};
    }
    for (int i = 0; i < c->output_count; i++) {
        size_t bytes = tu_type_bytes(tu_value_type(c->outputs[i]));
        guarded[i] = malloc(bytes + 2 * GUARD);
        memset(guarded[i], 0xa5, bytes + 2 * GUARD);
        fetch[i] = guarded[i] + GUARD;
    }
    bool good = tu_state_new(c->graph, &state, .seed = 3) == TU_OK &&
                tu_compile(c->graph, &program, .fetch = c->outputs, .fetch_count = (size_t)c->output_count) ==
                    TU_OK &&
                tu_run(program, state, (size_t)c->input_count, feeds, fetch) == TU_OK;
    if (!good)
        printf("FAIL %s, draw %d, %s: %s\n", c->entry->name, c->draws, tu_dtype_name(c->dtype), tu_message());
    for (int i = 0; i < c->output_count; i++) {
        tu_type type = tu_value_type(c->outputs[i]);
        size_t bytes = tu_type_bytes(type);
        for (int k = 0; k < GUARD && good; k++)
            if (guarded[i][k] != 0xa5 || guarded[i][GUARD + bytes + (size_t)k] != 0xa5) {
                printf("FAIL %s, draw %d: output %d was written beyond its end\n", c->entry->name, c->draws,
                       i);
                good = false;
            }
        results[i] = calloc((size_t)tu_shape_elements(type.shape), sizeof(double));
        tu__load_array(type.dtype, fetch[i], tu_shape_elements(type.shape), results[i]);
        free(guarded[i]);
    }
    for (int i = 0; i < c->input_count; i++) free(typed[i]);
    tu_program_free(program);
    tu_state_free(state);
    return good;
}

static double largest(const double *x, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, isfinite(x[i]) ? fabs(x[i]) : 0);
    return most;
}

/* Errors of a composite of many operations add up: a generous number of units, relative to the largest element. */
static bool close_enough(case_run *c, tu_dtype type, int output, const double *exact, const double *got) {
    if (!tu_dtype_is_float(type)) return true; /* a rounded input may tip a comparison or an index */
    int64_t n = tu_shape_elements(tu_value_shape(c->outputs[output]));
    double units = c->entry->flags & CASE_LOOSE ? 2000 : 60;
    double bound = units * unit_of(c->dtype) * fmax(largest(exact, n), 1);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(exact[i]) || fabs(exact[i] - got[i]) <= bound) continue;
        printf("FAIL %s, draw %d, %s: output %d element %lld is %.9g, in f64 %.9g\n", c->entry->name,
               c->draws, tu_dtype_name(c->dtype), output, (long long)i, got[i], exact[i]);
        return false;
    }
    return true;
}

/* The same draw in f64 and in `dtype`: both runs draw shapes and numbers from the same seed. */
static bool check_type(const op_case *entry, tu_dtype dtype) {
    case_run *wide = case_begin(entry, TU_F64, 5), *narrow = case_begin(entry, dtype, 5);
    bool good = true;
    for (int draw = 0; draw < CASE_DRAWS && good; draw++) {
        case_draw(wide);
        case_draw(narrow);
        double *exact[CASE_MAX_OUTPUTS] = {0}, *got[CASE_MAX_OUTPUTS] = {0};
        for (int i = 0; i < narrow->input_count; i++) { /* f64 computes with what the narrow type can hold */
            tu_type type = tu_value_type(narrow->inputs[i].value);
            tu__round_array(type.dtype, wide->inputs[i].data, tu_shape_elements(type.shape));
        }
        good = run_draw(wide, exact) && run_draw(narrow, got);
        for (int i = 0; i < narrow->output_count; i++) {
            good = good && close_enough(narrow, tu_value_dtype(narrow->outputs[i]), i, exact[i], got[i]);
            free(exact[i]);
            free(got[i]);
        }
    }
    case_end(wide);
    case_end(narrow);
    return good;
}

int main(void) {
    static const tu_dtype types[] = {TU_F32, TU_BF16, TU_F16, TU_F64};
    int passed = 0, failed = 0;
    for (const op_case *e = case_first(); e; e = e->next)
        for (int i = 0; i < 4; i++) {
            bool half = types[i] == TU_BF16 || types[i] == TU_F16;
            if (half && e->flags & CASE_NO_HALF) continue;
            if (check_type(e, types[i]))
                passed++;
            else
                failed++;
        }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
