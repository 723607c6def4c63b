/* Placement of groups: nodes that tu_colocate joined, and their gradients.
 *
 * A group is placed like one node: on the device that a member is pinned to, else on the device chosen for its first
 * computed member, which must support all members. Fails if two members are pinned to different devices. */
#include <string.h>

#include "pass/place.h"

uint32_t tu__placer_first_member(const tu__placer *p, const tu__node *node) {
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

static tu_status fail_conflicting_pins(const tu__placer *p, const tu__node *a, const tu__node *b) {
    return tu_fail(
        TU_INVALID,
        "'%s' and '%s' are colocated, but the first is on %s (%s) and the second on %s (%s): place both on "
        "one device",
        a->name, b->name, p->unit->devices[p->device_of[a->id]], a->why,
        p->unit->devices[p->device_of[b->id]], b->why);
}

static tu_status place_with_leader(tu__placer *p, tu__node *node, const tu__node *leader) {
    return tu__placer_assign(p, node, p->device_of[leader->id],
                             tu__placer_reason(p, "colocated with '%s'", leader->name));
}

static tu_status pin_group(tu__placer *p, uint32_t first) {
    tu_graph *g = p->unit->graph;
    const tu__node *leader = NULL;
    for (uint32_t id = first; id != TU_NO_NODE; id = p->next_member[id]) {
        if (!p->pinned[id]) continue;
        if (leader && p->device_of[leader->id] != p->device_of[id])
            return fail_conflicting_pins(p, leader, g->nodes[id]);
        if (!leader) leader = g->nodes[id];
    }
    for (uint32_t id = leader ? first : TU_NO_NODE; id != TU_NO_NODE; id = p->next_member[id]) {
        if (p->pinned[id]) continue;
        TU_TRY(place_with_leader(p, g->nodes[id], leader));
        p->pinned[id] = true;
    }
    return TU_OK;
}

tu_status tu__placer_pin_groups(tu__placer *p) {
    link_members(p);
    for (uint32_t group = 1; group <= p->unit->graph->group_count; group++)
        TU_TRY(pin_group(p, p->first_member[group]));
    return TU_OK;
}

tu_status tu__placer_place_group(tu__placer *p, const tu__node *node) {
    if (p->device_of[node->id] == TU__UNPLACED) return TU_OK;
    for (uint32_t id = tu__placer_first_member(p, node); id != TU_NO_NODE; id = p->next_member[id])
        if (p->device_of[id] != p->device_of[node->id])
            TU_TRY(place_with_leader(p, p->unit->graph->nodes[id], node));
    return TU_OK;
}
