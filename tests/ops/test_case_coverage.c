/* The case list is complete: every operation of the table is in a case, and every operation that offers a gradient
 * is in a case whose gradient is checked; those that offer a second one, in a case where that is checked too. */
#include <stdio.h>
#include <stdlib.h>

#include "graph/graph.h"
#include "ops/driver.h"

static bool forward[TU__OP_COUNT], first[TU__OP_COUNT], second[TU__OP_COUNT];

static void note(const tu_graph *g, uint32_t end, bool *seen) {
    for (uint32_t i = 0; i < end; i++) seen[g->nodes[i]->op->code] = true;
}

static tu_value total(size_t count, const tu_value *values) {
    tu_value sum = {0};
    for (size_t i = 0; i < count; i++)
        if (tu_value_dtype(values[i]) == TU_F64)
            sum = sum.graph ? tu_add(sum, tu_sum(values[i])) : tu_sum(values[i]);
    return sum;
}

/* Nodes there before tu_gradients are differentiated once; those there before the second call, by it. */
static void note_gradients(case_run *c) {
    tu_value wrt[CASE_MAX_INPUTS], g1[CASE_MAX_INPUTS], g2[CASE_MAX_INPUTS];
    size_t n = 0;
    for (int i = 0; i < c->input_count; i++)
        if (c->inputs[i].differentiable) wrt[n++] = c->inputs[i].value;
    note(c->graph, c->graph->node_count, first);
    if (tu_gradients(total((size_t)c->output_count, c->outputs), n, wrt, g1) != TU_OK) return;
    if (c->entry->flags & CASE_NO_SECOND) return;
    note(c->graph, c->graph->node_count, second);
    tu_gradients(total(n, g1), n, wrt, g2);
}

static int report(const char *what, const bool *seen, bool only_differentiable) {
    int missing = 0;
    for (int i = 0; i < TU__OP_COUNT; i++) {
        const tu__op *op = tu__op_get((tu__opcode)i);
        bool matters = !only_differentiable || op->gradient_kind == TU__GRADIENT_RULE ||
                       op->gradient_kind == TU__GRADIENT_EXPAND;
        if (!matters || seen[i]) continue;
        printf("FAIL operation %s: %s\n", op->name, what);
        missing++;
    }
    return missing;
}

int main(void) {
    int count = 0, broken = 0;
    for (const op_case *e = case_first(); e; e = e->next, count++) {
        case_run *c = case_begin(e, TU_F64, 1);
        while (case_draw(c)) {
            note(c->graph, c->graph->node_count, forward);
            if (!(e->flags & CASE_NO_GRADIENT)) note_gradients(c);
            note(c->graph, c->graph->node_count, forward);
            if (tu_graph_status(c->graph) == TU_OK) continue;
            printf("FAIL %s: %s\n", e->name, tu_message());
            broken++;
            break;
        }
        case_end(c);
    }
    broken += report("it is in no case", forward, false);
    for (int i = 0; i < TU__OP_COUNT; i++)
        first[i] = first[i] || second[i]; /* gradient operations: by the second */
    broken += report("no case checks its gradient", first, true);
    broken += report("no case checks the gradient of its gradient", second, true);
    printf("%d cases over %d operations\n%d passed, %d failed\n", count, TU__OP_COUNT, count, broken);
    return broken != 0;
}
