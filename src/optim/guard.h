/* The guard: a step whose loss or gradients are not finite changes nothing.
 *
 * Whether a step counts is one truth in the graph; every assignment becomes select(that truth, the new value, the old
 * one), the ones that layers made before (running statistics) included. So a bad step leaves the state bit for bit as
 * it was, without the host looking in between. */
#ifndef TU__OPTIM_GUARD_H
#define TU__OPTIM_GUARD_H

#include <tutti/graph.h>

typedef struct tu__guard {
    tu_value finite; /* a bool scalar; invalid: every step counts */
} tu__guard;

/* The assignment of `next`, where the step counts. Returns what the variable will hold: computing on from that, and
 * not from `next`, lets a device keep both in one kernel. */
tu_value tu__guarded_assign(const tu__guard *guard, tu_value variable, tu_value next);

/* Puts the guard before the assignments the graph has already; those to variables that fit the pattern `freeze`
 * (NULL: none) are dropped. */
void tu__guard_assignments(const tu__guard *guard, tu_graph *graph, const char *freeze);

#endif
