/* Runs every case in every float type on the reference device and compares the results with those in f64, up to the
 * precision of the type. */
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "ops/run_case.h"

/* The tolerance is wide, because the errors of a case's operations add up. Integer results are not compared: a
 * rounded input may change the result of a comparison or an index. */
static bool output_agrees(case_run *c, int output, const double *exact, const double *got) {
    if (!tu_dtype_is_float(tu_value_dtype(c->outputs[output]))) return true;
    return results_agree(c, output, exact, got, c->entry->flags & CASE_LOOSE ? 2000 : 60);
}

/* Runs the same instances in f64 and in `dtype`: both use the same seed, and so the same shapes and elements. */
static bool check_type(const op_case *entry, tu_dtype dtype) {
    case_run *f64_run = case_begin(entry, TU_F64, 5), *typed_run = case_begin(entry, dtype, 5);
    bool ok = true;
    for (int instance = 0; instance < CASE_INSTANCES && ok; instance++) {
        case_next_instance(f64_run);
        case_next_instance(typed_run);
        double *exact[CASE_MAX_OUTPUTS] = {0}, *got[CASE_MAX_OUTPUTS] = {0};
        for (int i = 0; i < typed_run->input_count; i++) { /* round the f64 inputs to the other type */
            tu_type type = tu_value_type(typed_run->inputs[i].value);
            tu__round_array(type.dtype, f64_run->inputs[i].data, tu_shape_elements(type.shape));
        }
        ok = case_evaluate(f64_run, "ref", 1, exact) && case_evaluate(typed_run, "ref", 1, got);
        for (int i = 0; i < typed_run->output_count; i++) {
            ok = ok && output_agrees(typed_run, i, exact[i], got[i]);
            free(exact[i]);
            free(got[i]);
        }
    }
    case_end(f64_run);
    case_end(typed_run);
    return ok;
}

int main(void) {
    static const tu_dtype types[] = {TU_F32, TU_BF16, TU_F16, TU_F64};
    int passed = 0, failed = 0;
    for (const op_case *e = case_first(); e; e = e->next)
        for (int i = 0; i < 4; i++) {
            bool is_16_bit = types[i] == TU_BF16 || types[i] == TU_F16;
            if (is_16_bit && e->flags & CASE_NO_16_BIT) continue;
            if (check_type(e, types[i]))
                passed++;
            else
                failed++;
        }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
