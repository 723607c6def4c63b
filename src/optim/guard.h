/* The guard: a step with a non-finite loss or gradient does not change the state.
 *
 * The graph computes one bool per step, and every assignment becomes select(bool, new value, old value), including
 * those that layers added before (running statistics). So a non-finite step leaves the state bit-identical, without a
 * check by the host. */
#ifndef TU__OPTIM_GUARD_H
#define TU__OPTIM_GUARD_H

#include <tutti/graph.h>

typedef struct tu__guard {
    tu_value apply_step; /* bool scalar: the assignments take effect; invalid: they always do */
} tu__guard;

/* Assigns `next` to the variable if the guard allows. Returns the assigned value: if further operations use it
 * instead of `next`, a device can fuse them into the same kernel. */
tu_value tu__guarded_assign(const tu__guard *guard, tu_value variable, tu_value next);

/* Guards the existing assignments of the graph. Cancels those to variables that match the pattern `freeze` (NULL:
 * none). */
void tu__guard_assignments(const tu__guard *guard, tu_graph *graph, const char *freeze);

#endif
