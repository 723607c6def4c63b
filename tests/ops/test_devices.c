/* Compares every case on a device with the reference device: every float type, 50 random instances each by default.
 *
 * test_devices DEVICES THREADS [CASE,CASE…|all [INSTANCES]]      test_devices cpu 2 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "ops/run_case.h"

enum { INSTANCES = 50 };

typedef struct settings {
    const char *devices;
    int threads, instances;
} settings;

/* Returns the tolerance in machine epsilons. Devices sum in another order, and their functions have errors of a few
 * epsilons. In 16-bit types the reference rounds from f64 once, devices from f32. */
static double tolerance_of(const op_case *entry) {
    return entry->flags & CASE_LOOSE ? 2000 : 64;
}

static bool check_instance(case_run *c, const settings *s) {
    double *expected[CASE_MAX_OUTPUTS] = {0}, *got[CASE_MAX_OUTPUTS] = {0};
    bool ok = case_evaluate(c, "ref", 1, expected) && case_evaluate(c, s->devices, s->threads, got);
    for (int i = 0; i < c->output_count; i++) {
        ok = ok && results_agree(c, i, expected[i], got[i], tolerance_of(c->entry));
        free(expected[i]);
        free(got[i]);
    }
    return ok;
}

/* Adds the gradients of the case's float outputs to its results. */
static void add_gradients(case_run *c) {
    tu_value wrt[CASE_MAX_INPUTS], gradients[CASE_MAX_INPUTS], total = {0};
    size_t count = 0;
    for (int i = 0; i < c->input_count; i++)
        if (c->inputs[i].differentiable) wrt[count++] = c->inputs[i].value;
    for (int i = 0; i < c->output_count; i++) {
        if (tu_value_dtype(c->outputs[i]) != c->dtype) continue;
        tu_value term = tu_sum(tu_square(c->outputs[i]));
        total = total.graph ? tu_add(total, term) : term;
    }
    if (!total.graph || tu_gradients(total, count, wrt, gradients) != TU_OK) return;
    for (size_t i = 0; i < count && c->output_count < CASE_MAX_OUTPUTS; i++) case_output(c, gradients[i]);
}

static bool check_type(const op_case *entry, tu_dtype dtype, const settings *s) {
    case_run *c = case_begin(entry, dtype, 21);
    bool ok = true, is_16_bit = dtype == TU_BF16 || dtype == TU_F16;
    for (int instance = 0; instance < s->instances && ok; instance++) {
        if (c->instance >= CASE_INSTANCES)
            c->instance = 1; /* continue after the options are covered, for more shapes */
        case_next_instance(c);
        for (int i = 0; i < c->input_count; i++) {
            tu_type type = tu_value_type(c->inputs[i].value);
            tu__round_array(type.dtype, c->inputs[i].data, tu_shape_elements(type.shape));
        }
        if (!is_16_bit && !(entry->flags & CASE_NO_GRADIENT)) add_gradients(c);
        ok = tu_graph_status(c->graph) == TU_OK && check_instance(c, s);
    }
    case_end(c);
    return ok;
}

/* Custom operations run on CPUs only. */
static bool is_supported(const op_case *entry, const settings *s) {
    return !(entry->flags & CASE_CPU_ONLY) || strncmp(s->devices, "gpu", 3) != 0;
}

/* True if a comma-separated list contains the name. */
static bool is_listed(const char *list, const char *name) {
    for (size_t length = strlen(name); list; list = strchr(list, ',')) {
        list += *list == ',';
        if (strncmp(list, name, length) == 0 && (list[length] == ',' || !list[length])) return true;
    }
    return false;
}

int main(int argc, char **argv) {
    static const tu_dtype types[] = {TU_F32, TU_F64, TU_BF16, TU_F16};
    if (argc < 3) return 2;
    const settings s = {argv[1], atoi(argv[2]), argc > 4 ? atoi(argv[4]) : INSTANCES};
    const char *only = argc > 3 && strcmp(argv[3], "all") != 0 ? argv[3] : NULL;
    int passed = 0, failed = 0;
    for (const op_case *e = case_first(); e; e = e->next) {
        if ((only && !is_listed(only, e->name)) || !is_supported(e, &s)) continue;
        for (int i = 0; i < 4; i++) {
            if (types[i] != TU_F32 && types[i] != TU_F64 && e->flags & CASE_NO_16_BIT) continue;
            if (check_type(e, types[i], &s))
                passed++;
            else
                failed++;
        }
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
