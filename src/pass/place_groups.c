/* Groups of the pass `place`: nodes that tu_colocate put together, and their gradients.
 *
 * A group is placed as if it were one node: where any of it was told to be, else where the first of it that is computed
 * finds a device that takes them all. Two members that were told different devices cannot both have their way: that is
 * refused. */
#include <string.h>

#include "pass/place.h"

uint32_t tu__placer_first(const tu__placer *p, const tu__node *node) {
    return p->first_member[node->group];
}

static void link_members(tu__placer *p) {
    const tu_graph *g = p->unit->graph;
    for (uint32_t i = 0; i <= g->group_count; i++) p->first_member[i] = TU_NO_NODE;
    for (uint32_t id = g->node_count; id-- > 0;) {
        uint32_t group = g->nodes[id]->group;
        p->next_member[id] = p->first_member[group];
        p->first_member[group] = id;
    }
}

static tu_status refuse_pair(const tu__placer *p, const tu__node *a, const tu__node *b) {
    return tu_fail(
        TU_INVALID,
        "'%s' and '%s' are colocated, but the first is for %s (%s) and the second for %s (%s): expected one "
        "device for both",
        a->name, b->name, p->unit->devices[p->at[a->id]], a->why, p->unit->devices[p->at[b->id]], b->why);
}

static tu_status put_with(tu__placer *p, tu__node *node, const tu__node *leader) {
    return tu__placer_put(p, node, p->at[leader->id],
                          tu__placer_reason(p, "colocated with '%s'", leader->name));
}

static tu_status agree(tu__placer *p, uint32_t first) {
    tu_graph *g = p->unit->graph;
    const tu__node *leader = NULL;
    for (uint32_t id = first; id != TU_NO_NODE; id = p->next_member[id]) {
        if (!p->told[id]) continue;
        if (leader && p->at[leader->id] != p->at[id]) return refuse_pair(p, leader, g->nodes[id]);
        if (!leader) leader = g->nodes[id];
    }
    for (uint32_t id = leader ? first : TU_NO_NODE; id != TU_NO_NODE; id = p->next_member[id]) {
        if (p->told[id]) continue;
        TU_TRY(put_with(p, g->nodes[id], leader));
        p->told[id] = true;
    }
    return TU_OK;
}

tu_status tu__placer_group(tu__placer *p) {
    link_members(p);
    for (uint32_t group = 1; group <= p->unit->graph->group_count; group++)
        TU_TRY(agree(p, p->first_member[group]));
    return TU_OK;
}

tu_status tu__placer_gather(tu__placer *p, const tu__node *node) {
    if (p->at[node->id] == TU__NOWHERE) return TU_OK;
    for (uint32_t id = tu__placer_first(p, node); id != TU_NO_NODE; id = p->next_member[id])
        if (p->at[id] != p->at[node->id]) TU_TRY(put_with(p, p->unit->graph->nodes[id], node));
    return TU_OK;
}
