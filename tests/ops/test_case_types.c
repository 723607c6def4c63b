/* Runs every case in every float type on the reference device and compares the results with those in f64, up to the
 * precision of the type. */
#include <stdio.h>
#include <stdlib.h>

#include "base/number.h"
#include "ops/run_case.h"

/* The tolerance is wide, because the errors of a case's operations add up. Integer results are not compared: a
 * rounded input may change the result of a comparison or an index. */
static bool close_enough(case_run *c, int output, const double *exact, const double *got) {
    if (!tu_dtype_is_float(tu_value_dtype(c->outputs[output]))) return true;
    return results_agree(c, output, exact, got, c->entry->flags & CASE_LOOSE ? 2000 : 60);
}

/* Runs the same draws in f64 and in `dtype`: both use the same seed, and so the same shapes and elements. */
static bool check_type(const op_case *entry, tu_dtype dtype) {
    case_run *wide = case_begin(entry, TU_F64, 5), *narrow = case_begin(entry, dtype, 5);
    bool good = true;
    for (int draw = 0; draw < CASE_DRAWS && good; draw++) {
        case_draw(wide);
        case_draw(narrow);
        double *exact[CASE_MAX_OUTPUTS] = {0}, *got[CASE_MAX_OUTPUTS] = {0};
        for (int i = 0; i < narrow->input_count; i++) { /* round the f64 inputs to the narrow type */
            tu_type type = tu_value_type(narrow->inputs[i].value);
            tu__round_array(type.dtype, wide->inputs[i].data, tu_shape_elements(type.shape));
        }
        good = case_evaluate(wide, "ref", 1, exact) && case_evaluate(narrow, "ref", 1, got);
        for (int i = 0; i < narrow->output_count; i++) {
            good = good && close_enough(narrow, i, exact[i], got[i]);
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
