/* What the two files of the pass `place` share: place.c finds devices for nodes, place_groups.c for those that belong
 * together. */
#ifndef TU__PASS_PLACE_H
#define TU__PASS_PLACE_H

#include "pass/pass.h"

#define TU__NOWHERE UINT32_MAX

enum { TU__MAX_PLACES = 64 }; /* devices of a unit, without one that is added */

typedef struct tu__placer {
    tu__unit *unit;
    const tu__placing *how;
    const char
        *own[TU__MAX_PLACES + 1]; /* names of the devices, as the graph keeps them: it may outlive the list */
    bool refused[TU__MAX_PLACES + 1]; /* per device: it would not have the node in question */
    uint32_t preferred;               /* what the engine may choose freely goes to this kind of device */
    bool helped;                      /* a device on the host was added */
    bool failed;                      /* memory ran out for a reason */
    /* per node */
    uint32_t *at; /* the device's number, or TU__NOWHERE */
    bool *told;
    uint32_t *reader; /* the only device that reads it */
    uint32_t *next_member;
    /* per group */
    uint32_t *first_member;
} tu__placer;

/* A reason in the graph's memory. */
const char *tu__placer_reason(tu__placer *p, const char *format, ...) TU_PRINTF(2, 3);
/* Places a node, for a reason that the graph keeps. */
tu_status tu__placer_put(tu__placer *p, tu__node *node, uint32_t device, const char *why);
/* Whether the device takes the node, and all that are colocated with it. */
tu_status tu__placer_supports(const tu__placer *p, uint32_t device, const tu__node *node);

/* place_groups.c. Links the members of every group; what one was told, all are told. */
tu_status tu__placer_group(tu__placer *p);
/* The first member of a node's group. */
uint32_t tu__placer_first(const tu__placer *p, const tu__node *node);
/* Brings all members of a node's group to where it was placed. */
tu_status tu__placer_gather(tu__placer *p, const tu__node *node);

#endif
