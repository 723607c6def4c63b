/* Runs one random instance of a case on a device. */
#include "ops/run_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { GUARD = 64, PATTERN = 0xa5 };

double machine_epsilon(tu_dtype dtype) {
    switch (dtype) {
    case TU_F32: return 0x1p-23;
    case TU_BF16: return 0x1p-7;
    case TU_F16: return 0x1p-10;
    default: return 0x1p-52;
    }
}

static void feed_inputs(const case_run *c, tu_feed *feeds, unsigned char **typed) {
    for (int i = 0; i < c->input_count; i++) {
        tu_type type = tu_value_type(c->inputs[i].value);
        typed[i] = malloc(tu_type_bytes(type));
        tu__store_array(type.dtype, c->inputs[i].data, tu_shape_elements(type.shape), typed[i]);
        feeds[i] = (tu_feed){c->inputs[i].value, typed[i]};
    }
}

static void guard_outputs(const case_run *c, unsigned char **guarded, void **fetch) {
    for (int i = 0; i < c->output_count; i++) {
        size_t bytes = tu_type_bytes(tu_value_type(c->outputs[i]));
        guarded[i] = malloc(bytes + 2 * GUARD);
        memset(guarded[i], PATTERN, bytes + 2 * GUARD);
        fetch[i] = guarded[i] + GUARD;
    }
}

static bool guards_intact(const case_run *c, int output, const unsigned char *guarded) {
    size_t bytes = tu_type_bytes(tu_value_type(c->outputs[output]));
    for (size_t k = 0; k < GUARD; k++)
        if (guarded[k] != PATTERN || guarded[GUARD + bytes + k] != PATTERN) {
            printf("FAIL %s, instance %d: output %d was written out of bounds\n", c->entry->name, c->instance,
                   output);
            return false;
        }
    return true;
}

bool case_evaluate(case_run *c, const char *devices, int threads, double **results) {
    tu_state *state = NULL;
    tu_program *program = NULL;
    tu_feed feeds[CASE_MAX_INPUTS];
    unsigned char *typed[CASE_MAX_INPUTS] = {0}, *guarded[CASE_MAX_OUTPUTS] = {0};
    void *fetch[CASE_MAX_OUTPUTS];
    feed_inputs(c, feeds, typed);
    guard_outputs(c, guarded, fetch);
    bool ok = tu_state_new(c->graph, &state, .seed = 3) == TU_OK &&
              tu_compile(c->graph, &program, .devices = devices, .threads = threads, .fetch = c->outputs,
                         .fetch_count = (size_t)c->output_count, .no_updates = true) == TU_OK &&
              tu_run(program, state, (size_t)c->input_count, feeds, fetch) == TU_OK;
    if (!ok)
        printf("FAIL %s, instance %d, %s on %s: %s\n", c->entry->name, c->instance, tu_dtype_name(c->dtype),
               devices, tu_message());
    for (int i = 0; i < c->output_count; i++) {
        tu_type type = tu_value_type(c->outputs[i]);
        ok = ok && guards_intact(c, i, guarded[i]);
        results[i] = calloc((size_t)tu_shape_elements(type.shape), sizeof(double));
        tu__load_array(type.dtype, fetch[i], tu_shape_elements(type.shape), results[i]);
        free(guarded[i]);
    }
    for (int i = 0; i < c->input_count; i++) free(typed[i]);
    tu_program_free(program);
    tu_state_free(state);
    return ok;
}

static double largest_magnitude(const double *x, int64_t n) {
    double max = 0;
    for (int64_t i = 0; i < n; i++) max = fmax(max, isfinite(x[i]) ? fabs(x[i]) : 0);
    return max;
}

bool results_agree(const case_run *c, int output, const double *expected, const double *got,
                   double max_epsilons) {
    tu_type type = tu_value_type(c->outputs[output]);
    int64_t n = tu_shape_elements(type.shape);
    bool must_be_equal = !tu_dtype_is_float(type.dtype);
    double bound = must_be_equal
                       ? 0
                       : max_epsilons * machine_epsilon(c->dtype) * fmax(largest_magnitude(expected, n), 1);
    for (int64_t i = 0; i < n; i++) {
        bool same = expected[i] == got[i] || (isnan(expected[i]) && isnan(got[i]));
        if (same || fabs(expected[i] - got[i]) <= bound) continue;
        printf("FAIL %s, instance %d, %s: output %d element %lld is %.9g, expected %.9g\n", c->entry->name,
               c->instance, tu_dtype_name(c->dtype), output, (long long)i, got[i], expected[i]);
        return false;
    }
    return true;
}
