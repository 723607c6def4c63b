/* Every kernel compiles with the real NVRTC, for the card that FAKE_CUDA_CAPABILITY names: the driver is a stand-in that
 * launches nothing, so no GPU is needed and no result is looked at.
 *
 * test_cuda_compiles DRAWS */
#include <stdio.h>
#include <stdlib.h>

#include "ops/run_case.h"

static bool compile_draw(case_run *c) {
    double *results[CASE_MAX_OUTPUTS] = {0};
    bool good = case_evaluate(c, "gpu", 1, results);
    for (int i = 0; i < c->output_count; i++) free(results[i]);
    return good;
}

static bool compile_case(const op_case *entry, tu_dtype dtype, int draws) {
    case_run *c = case_begin(entry, dtype, 21);
    bool good = true;
    for (int draw = 0; draw < draws && good; draw++) {
        case_draw(c);
        if (dtype == TU_F32 && !(entry->flags & CASE_NO_GRADIENT)) case_add_gradients(c);
        good = tu_graph_status(c->graph) == TU_OK && compile_draw(c);
    }
    case_end(c);
    return good;
}

int main(int argc, char **argv) {
    static const tu_dtype types[] = {TU_F32, TU_F64, TU_BF16, TU_F16};
    int compiled = 0, failed = 0, draws = argc > 1 ? atoi(argv[1]) : 2;
    for (const op_case *e = case_first(); e; e = e->next)
        for (int i = 0; i < 4 && !(e->flags & CASE_ON_HOST); i++) {
            if (types[i] != TU_F32 && types[i] != TU_F64 && e->flags & CASE_NO_HALF) continue;
            if (compile_case(e, types[i], draws))
                compiled++;
            else
                failed++;
        }
    printf("%d compiled, %d failed\n", compiled, failed);
    return failed || !compiled;
}
