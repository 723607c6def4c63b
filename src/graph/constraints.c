/* Bonds: what holds nodes together beside their edges.
 *
 * A node may have to wait for an earlier one whose value it does not read, and nodes may have to be placed together.
 * Neither changes what is computed, only when and where; so bonds are added to nodes that are there already, while all
 * else about a node is fixed when it is made.
 *
 * A node waits for earlier nodes alone. As edges lead to earlier nodes too, no circle can be closed, and the order in
 * which nodes were made stays a schedule. A group is a number that nodes carry through all passes: who is dropped on
 * the way takes nothing with it. */
#include <inttypes.h>
#include <string.h>

#include "graph/graph.h"

bool tu__node_is_computed(const tu__node *node) {
    return !(node->op->traits & (TU__LEAF | TU__EFFECT)) && node->op->code != TU__OP_FILL;
}

/* A list has room for a power of two, so that what it leaves behind in the arena is no more than itself. */
static tu_status grow_list(tu_graph *graph, tu__node *node) {
    uint32_t count = node->after_count;
    if (count & (count - 1)) return TU_OK;
    uint32_t *grown = tu__arena_alloc(&graph->arena, (count ? 2 * (size_t)count : 1) * sizeof *grown);
    if (!grown) return TU_NO_MEMORY;
    if (count) memcpy(grown, node->after, count * sizeof *grown);
    node->after = grown;
    return TU_OK;
}

tu_status tu__node_wait(tu_graph *graph, uint32_t node, uint32_t dependency) {
    tu__node *n = graph->nodes[node];
    uint32_t at = n->after_count;
    while (at && n->after[at - 1] > dependency) at--;
    if (at && n->after[at - 1] == dependency) return TU_OK;
    if (n->after_count == TU__MAX_WAITS)
        return tu_fail(TU_UNSUPPORTED, "%s '%s' waits for %d others already: expected no more", n->op->name,
                       n->name, TU__MAX_WAITS);
    TU_TRY(grow_list(graph, n));
    memmove(n->after + at + 1, n->after + at, (n->after_count - at) * sizeof *n->after);
    n->after[at] = dependency;
    n->after_count++;
    return TU_OK;
}

/* Both values are of one graph and there; TU_OK with `*broken` set: an earlier mistake, stay silent. */
static tu_status check_pair(tu_value value, tu_value other, const char *what, bool *broken) {
    if (!value.graph || !other.graph) return tu_fail(TU_INVALID, "%s: a value was never set", what);
    if (value.graph != other.graph)
        return tu_fail(TU_INVALID, "%s: '%s' and '%s' are of different graphs", what, tu_value_name(value),
                       tu_value_name(other));
    *broken = !tu_ok(value) || !tu_ok(other);
    return TU_OK;
}

static tu_status check_waiting(const tu__node *node, const tu__node *dependency) {
    if (!(tu__node_is_computed(node) || node->op->code == TU__OP_ASSIGN))
        return tu_fail(TU_INVALID, "%s '%s' cannot wait for '%s': it is there before a run computes anything",
                       node->op->name, node->name, dependency->name);
    if (dependency->op->code == TU__OP_ASSIGN)
        return tu_fail(
            TU_INVALID,
            "%s '%s' cannot wait for '%s': an assignment takes effect at the end of a run, after all "
            "that is computed; expected a computed value",
            node->op->name, node->name, dependency->name);
    if (dependency->id >= node->id)
        return tu_fail(
            TU_INVALID,
            "%s '%s' cannot wait for %s '%s', which was made after it: the two might wait for each "
            "other; expected a value made before",
            node->op->name, node->name, dependency->op->name, dependency->name);
    return TU_OK;
}

tu_value tu_after(tu_value value, tu_value dependency) {
    bool broken = false;
    tu_status status = check_pair(value, dependency, "after", &broken);
    if (status == TU_OK && broken) return tu__invalid(value.graph);
    if (status == TU_OK) status = check_waiting(tu__node_of(value), tu__node_of(dependency));
    /* What is there from the start needs no waiting for. */
    if (status == TU_OK && tu__node_is_computed(tu__node_of(dependency)))
        status = tu__node_wait(value.graph, value.node, dependency.node);
    return status == TU_OK ? value : tu__graph_fail(value.graph, status, "%s", tu_message());
}

/* Everybody of one group joins another. */
static void join_groups(tu_graph *graph, uint32_t from, uint32_t into) {
    for (uint32_t i = 0; from && from != into && i < graph->node_count; i++)
        if (graph->nodes[i]->group == from) graph->nodes[i]->group = into;
}

tu_value tu_colocate(tu_value value, tu_value with) {
    bool broken = false;
    tu_status status = check_pair(value, with, "colocate", &broken);
    if (status != TU_OK) return tu__graph_fail(value.graph, status, "%s", tu_message());
    if (broken) return tu__invalid(value.graph);
    tu_graph *graph = value.graph;
    tu__node *a = graph->nodes[value.node], *b = graph->nodes[with.node];
    for (int i = 0; i < 2; i++) {
        const tu__node *node = i ? b : a;
        if (node->op->code == TU__OP_ASSIGN)
            return tu__graph_fail(graph, TU_INVALID,
                                  "assignment '%s' is where its variable is: colocate that instead",
                                  node->name);
    }
    if (!a->group && !b->group && graph->group_count == TU__MAX_GROUPS)
        return tu__graph_fail(graph, TU_UNSUPPORTED, "a graph holds at most %d groups of colocated values",
                              TU__MAX_GROUPS);
    if (!b->group) b->group = a->group ? a->group : ++graph->group_count;
    join_groups(graph, a->group, b->group);
    a->group = b->group;
    return value;
}
