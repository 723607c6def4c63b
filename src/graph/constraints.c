/* Control dependencies (tu_after) and colocation groups (tu_colocate).
 *
 * A control dependency orders a node after an earlier one whose value it does not read. The nodes of a colocation
 * group are placed on the same device. Both affect only when and where nodes are computed, so they may be added to
 * existing nodes; everything else about a node is fixed when it is created.
 *
 * Control dependencies lead only to earlier nodes, like edges. So they cannot form a cycle, and the creation order
 * remains a schedule. A group is an integer that passes copy with the nodes; removing a node does not affect the
 * other nodes of its group. */
#include <inttypes.h>
#include <string.h>

#include "graph/graph.h"

bool tu__node_is_computed(const tu__node *node) {
    return !(node->op->traits & (TU__LEAF | TU__EFFECT)) && node->op->code != TU__OP_FILL;
}

/* Makes room for one more control dependency. Capacities are powers of two; outgrown arrays stay in the arena. */
static tu_status reserve_dependency(tu_graph *graph, tu__node *node) {
    uint32_t count = node->after_count;
    if (count & (count - 1)) return TU_OK;
    uint32_t *grown = tu__arena_alloc(&graph->arena, (count ? 2 * (size_t)count : 1) * sizeof *grown);
    if (!grown) return TU_NO_MEMORY;
    if (count) memcpy(grown, node->after, count * sizeof *grown);
    node->after = grown;
    return TU_OK;
}

tu_status tu__node_add_dependency(tu_graph *graph, uint32_t node, uint32_t dependency) {
    tu__node *n = graph->nodes[node];
    uint32_t position = n->after_count;
    while (position && n->after[position - 1] > dependency) position--;
    if (position && n->after[position - 1] == dependency) return TU_OK;
    if (n->after_count == TU__MAX_CONTROL_DEPS)
        return tu_fail(TU_UNSUPPORTED, "%s '%s' already has %d control dependencies, which is the maximum",
                       n->op->name, n->name, TU__MAX_CONTROL_DEPS);
    TU_TRY(reserve_dependency(graph, n));
    memmove(n->after + position + 1, n->after + position, (n->after_count - position) * sizeof *n->after);
    n->after[position] = dependency;
    n->after_count++;
    return TU_OK;
}

/* Checks that both values belong to one graph. Sets `*is_invalid` and returns TU_OK if one is an invalid value: its
 * error was reported before. `what` is the operation's name. */
static tu_status check_pair(tu_value value, tu_value other, const char *what, bool *is_invalid) {
    if (!value.graph || !other.graph)
        return tu_fail(TU_INVALID, "%s: an argument is an uninitialised tu_value", what);
    if (value.graph != other.graph)
        return tu_fail(TU_INVALID, "%s: '%s' and '%s' belong to different graphs", what, tu_value_name(value),
                       tu_value_name(other));
    *is_invalid = !tu_ok(value) || !tu_ok(other);
    return TU_OK;
}

static tu_status check_dependency(const tu__node *node, const tu__node *dependency) {
    if (!(tu__node_is_computed(node) || node->op->code == TU__OP_ASSIGN))
        return tu_fail(
            TU_INVALID,
            "after: %s '%s' cannot be computed after '%s': inputs, constants, variables and fills are "
            "available before the run starts",
            node->op->name, node->name, dependency->name);
    if (dependency->op->code == TU__OP_ASSIGN)
        return tu_fail(
            TU_INVALID,
            "%s '%s' cannot be computed after assignment '%s', which takes effect at the end of the run: "
            "expected a computed value",
            node->op->name, node->name, dependency->name);
    if (dependency->id >= node->id)
        return tu_fail(
            TU_INVALID,
            "%s '%s' cannot be computed after %s '%s', which was created later: expected a value created "
            "before it",
            node->op->name, node->name, dependency->op->name, dependency->name);
    return TU_OK;
}

tu_value tu_after(tu_value value, tu_value dependency) {
    bool is_invalid = false;
    tu_status status = check_pair(value, dependency, "after", &is_invalid);
    if (status == TU_OK && is_invalid) return tu__invalid(value.graph);
    if (status == TU_OK) status = check_dependency(tu__node_of(value), tu__node_of(dependency));
    /* A dependency that is available from the start needs no ordering. */
    if (status == TU_OK && tu__node_is_computed(tu__node_of(dependency)))
        status = tu__node_add_dependency(value.graph, value.node, dependency.node);
    return status == TU_OK ? value : tu__graph_fail(value.graph, status, "%s", tu_message());
}

/* Moves all nodes of the group `from` to the group `into`. */
static void merge_groups(tu_graph *graph, uint32_t from, uint32_t into) {
    for (uint32_t i = 0; from && from != into && i < graph->node_count; i++)
        if (graph->nodes[i]->group == from) graph->nodes[i]->group = into;
}

tu_value tu_colocate(tu_value value, tu_value other) {
    bool is_invalid = false;
    tu_status status = check_pair(value, other, "colocate", &is_invalid);
    if (status != TU_OK) return tu__graph_fail(value.graph, status, "%s", tu_message());
    if (is_invalid) return tu__invalid(value.graph);
    tu_graph *graph = value.graph;
    tu__node *a = graph->nodes[value.node], *b = graph->nodes[other.node];
    for (int i = 0; i < 2; i++) {
        const tu__node *node = i ? b : a;
        if (node->op->code == TU__OP_ASSIGN)
            return tu__graph_fail(
                graph, TU_INVALID,
                "assignment '%s' is always on its variable's device: colocate the variable instead",
                node->name);
    }
    if (!a->group && !b->group && graph->group_count == TU__MAX_GROUPS)
        return tu__graph_fail(graph, TU_UNSUPPORTED,
                              "the graph has %d groups of colocated values, which is the maximum",
                              TU__MAX_GROUPS);
    if (!b->group) b->group = a->group ? a->group : ++graph->group_count;
    merge_groups(graph, a->group, b->group);
    a->group = b->group;
    return value;
}
