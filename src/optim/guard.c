/* Guarded assignments. Assignments that exist before the guard, such as updates of running statistics, are cancelled
 * (tu__cancel_assign) and added again with the guard: a node's inputs cannot be changed to a later node. */
#include "optim/guard.h"

#include <tutti/ops.h>

#include "base/pattern.h"
#include "graph/graph.h"

tu_value tu__guarded_assign(const tu__guard *guard, tu_value variable, tu_value next) {
    if (tu_ok(guard->apply_step)) next = tu_select(guard->apply_step, next, variable);
    tu_assign(variable, next);
    return next;
}

void tu__guard_assignments(const tu__guard *guard, tu_graph *graph, const char *freeze) {
    uint32_t old_count = graph->node_count;
    for (uint32_t i = 0; i < old_count; i++) {
        const tu__node *node = graph->nodes[i];
        if (node->op->code != TU__OP_ASSIGN) continue;
        tu_value variable = tu__input_of(graph, node, 0), next = tu__input_of(graph, node, 1);
        bool frozen = tu__pattern_matches(freeze, tu_value_name(variable));
        if (!frozen && !tu_ok(guard->apply_step)) continue;
        tu__cancel_assign(graph, i);
        if (frozen) continue;
        tu_with_device(graph, tu_value_device(variable)) tu__guarded_assign(guard, variable, next);
    }
}
