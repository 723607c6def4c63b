/* Compares the first and second derivatives of every case with central differences.
 *
 *     test_gradients                  checks all cases
 *     test_gradients CASE             checks one case
 *     test_gradients INDEX COUNT      checks every COUNT-th case, from case INDEX: for several processes in parallel
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/check_gradients.h"
#include "ops/driver.h"

static bool check_instance(case_run *c, double *max_error) {
    tu_value inputs[CASE_MAX_INPUTS];
    double *data[CASE_MAX_INPUTS];
    bool differentiable[CASE_MAX_INPUTS];
    for (int i = 0; i < c->input_count; i++) {
        inputs[i] = c->inputs[i].value;
        data[i] = c->inputs[i].data;
        differentiable[i] = c->inputs[i].differentiable;
    }
    gradient_check check = {.graph = c->graph,
                            .input_count = (size_t)c->input_count,
                            .inputs = inputs,
                            .data = data,
                            .differentiable = differentiable,
                            .output_count = (size_t)c->output_count,
                            .outputs = c->outputs,
                            .order = c->entry->flags & CASE_NO_SECOND ? 1 : 2,
                            .seed = (uint64_t)c->instance};
    bool ok = gradients_agree(&check);
    if (check.max_error > *max_error) *max_error = check.max_error;
    if (!ok) printf("FAIL %s, instance %d: %s\n", c->entry->name, c->instance, check.message);
    return ok;
}

static bool check_case(const op_case *entry) {
    case_run *c = case_begin(entry, TU_F64, 1);
    bool ok = true;
    double max_error = 0;
    while (ok && case_next_instance(c)) {
        if (tu_graph_status(c->graph) != TU_OK) {
            printf("FAIL %s, instance %d: %s\n", entry->name, c->instance, tu_message());
            ok = false;
        } else {
            ok = check_instance(c, &max_error);
        }
    }
    if (ok && case_missing_pair(c)) {
        printf("FAIL %s: after %d instances the pair %s has not occurred\n", entry->name, c->instance,
               case_missing_pair(c));
        ok = false;
    }
    if (ok)
        printf("ok   %-28s %3d instances, order %d, worst relative error %.1e\n", entry->name, c->instance,
               entry->flags & CASE_NO_SECOND ? 1 : 2, max_error);
    fflush(stdout);
    case_end(c);
    return ok;
}

int main(int argc, char **argv) {
    const char *only = argc == 2 ? argv[1] : NULL;
    int shard = argc > 2 ? atoi(argv[1]) : 0, shards = argc > 2 ? atoi(argv[2]) : 1;
    int index = 0, checked = 0, failed = 0;
    for (const op_case *e = case_first(); e; e = e->next) {
        if (e->flags & CASE_NO_GRADIENT || (only && strcmp(only, e->name) != 0)) continue;
        if (!only && index++ % shards != shard) continue;
        checked++;
        failed += !check_case(e);
    }
    printf("%d passed, %d failed\n", checked - failed, failed);
    return failed || !checked;
}
