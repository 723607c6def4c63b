/* Shared by the two files of the pass `place`: place.c assigns devices to single nodes, place_groups.c to groups of
 * colocated nodes. */
#ifndef TU__PASS_PLACE_H
#define TU__PASS_PLACE_H

#include "pass/pass.h"

#define TU__UNPLACED UINT32_MAX

enum { TU__MAX_PLACED_DEVICES = 64 }; /* devices of a unit, not counting an added host device */

typedef struct tu__placer {
    tu__unit *unit;
    const tu__placement_options *options;
    /* In the graph's arena, since the graph may outlive the unit's list. */
    const char *device_names[TU__MAX_PLACED_DEVICES + 1];
    bool unsupported[TU__MAX_PLACED_DEVICES + 1]; /* per device: it does not support the node being placed */
    uint32_t preferred; /* nodes without a pinned device go to devices of this kind */
    bool added_host;    /* a host device was added to the unit */
    bool failed;        /* out of memory while formatting a reason */
    /* per node */
    uint32_t *device_of; /* index of its device, or TU__UNPLACED */
    bool *pinned;        /* the user or the strategy chose the device */
    uint32_t *reader;    /* scratch of place_followers and move_small_nodes_to_host */
    uint32_t *next_member;
    /* per group */
    uint32_t *first_member;
} tu__placer;

/* Formats a reason into the graph's memory. */
const char *tu__placer_reason(tu__placer *p, const char *format, ...) TU_PRINTF(2, 3);
/* Assigns a device to a node; the graph keeps `why`. */
tu_status tu__placer_assign(tu__placer *p, tu__node *node, uint32_t device, const char *why);
/* Returns TU_OK if the device supports the node and all nodes colocated with it, else TU_UNSUPPORTED. */
tu_status tu__placer_supports(const tu__placer *p, uint32_t device, const tu__node *node);

/* ---- place_groups.c ---- */

/* Links the members of every group, and pins all members to the device that one of them is pinned to. */
tu_status tu__placer_pin_groups(tu__placer *p);
/* Returns the first member of a node's group. */
uint32_t tu__placer_first_member(const tu__placer *p, const tu__node *node);
/* Assigns the node's device to all members of its group. */
tu_status tu__placer_place_group(tu__placer *p, const tu__node *node);

#endif
