/* Checks that the case list is complete: every operation of ops.def occurs in a case, and every differentiable
 * operation occurs in a case that checks its gradient and in one that checks its second derivative. */
#include <stdio.h>
#include <stdlib.h>

#include "graph/graph.h"
#include "ops/driver.h"

static bool forward[TU__OP_COUNT], first[TU__OP_COUNT], second[TU__OP_COUNT];

/* Marks the operations of nodes 0 … end-1 as seen. */
static void mark_operations(const tu_graph *g, uint32_t end, bool *seen) {
    for (uint32_t i = 0; i < end; i++) seen[g->nodes[i]->op->code] = true;
}

static tu_value sum_of_all(size_t count, const tu_value *values) {
    tu_value sum = {0};
    for (size_t i = 0; i < count; i++)
        if (tu_value_dtype(values[i]) == TU_F64)
            sum = sum.graph ? tu_add(sum, tu_sum(values[i])) : tu_sum(values[i]);
    return sum;
}

/* Marks the operations that the first and second call of tu_gradients() differentiate. */
static void mark_differentiated(case_run *c) {
    tu_value wrt[CASE_MAX_INPUTS], g1[CASE_MAX_INPUTS], g2[CASE_MAX_INPUTS];
    size_t n = 0;
    for (int i = 0; i < c->input_count; i++)
        if (c->inputs[i].differentiable) wrt[n++] = c->inputs[i].value;
    mark_operations(c->graph, c->graph->node_count, first);
    if (tu_gradients(sum_of_all((size_t)c->output_count, c->outputs), n, wrt, g1) != TU_OK) return;
    if (c->entry->flags & CASE_NO_SECOND) return;
    mark_operations(c->graph, c->graph->node_count, second);
    tu_gradients(sum_of_all(n, g1), n, wrt, g2);
}

/* Prints `what` for every operation that was not seen; returns their number. */
static int report_missing(const char *what, const bool *seen, bool only_differentiable) {
    int missing = 0;
    for (int i = 0; i < TU__OP_COUNT; i++) {
        const tu__op *op = tu__op_get((tu__opcode)i);
        bool is_required = !only_differentiable || op->gradient_kind == TU__GRADIENT_RULE ||
                           op->gradient_kind == TU__GRADIENT_EXPAND;
        if (!is_required || seen[i]) continue;
        printf("FAIL operation %s: %s\n", op->name, what);
        missing++;
    }
    return missing;
}

int main(void) {
    int count = 0, broken = 0;
    for (const op_case *e = case_first(); e; e = e->next, count++) {
        case_run *c = case_begin(e, TU_F64, 1);
        while (case_next_instance(c)) {
            mark_operations(c->graph, c->graph->node_count, forward);
            if (!(e->flags & CASE_NO_GRADIENT)) mark_differentiated(c);
            mark_operations(c->graph, c->graph->node_count, forward);
            if (tu_graph_status(c->graph) == TU_OK) continue;
            printf("FAIL %s: %s\n", e->name, tu_message());
            broken++;
            break;
        }
        case_end(c);
    }
    broken += report_missing("no case contains it", forward, false);
    for (int i = 0; i < TU__OP_COUNT; i++)
        first[i] = first[i] || second[i]; /* gradient operations are differentiated by the second call only */
    broken += report_missing("no case checks its gradient", first, true);
    broken += report_missing("no case checks the gradient of its gradient", second, true);
    printf("%d cases over %d operations\n%d passed, %d failed\n", count, TU__OP_COUNT, count, broken);
    return broken != 0;
}
