/* Collectives over the processes of a group. */
#ifndef TU__COMM_GROUP_REDUCE_H
#define TU__COMM_GROUP_REDUCE_H

#include <tutti/device.h>

#include "comm/lines.h"
#include "comm/process_group.h"
#include "graph/collective.h"

/* The values of one element type in an all-reduce, reduce or broadcast over the local ranks of all processes. A
 * reduce-scatter is a reduce of the rows of every rank, an all-gather a broadcast of them (communicator.h: portions). */
typedef struct tu__group_work {
    tu__collective_kind kind;   /* TU__ALL_REDUCE, TU__REDUCE or TU__BROADCAST */
    uint32_t root;              /* of the last two: the process that gets the sum, or has the values */
    const tu_combination *what; /* the values of all local ranks, not divided into slices */
    /* Adds the inputs of the local ranks in a range, into `sum`; the root of a broadcast has one. */
    tu_status (*load)(void *context, const tu_combination *what, const tu__segment_range *range, void *sum);
    /* Writes a range of the result to the outputs of all local ranks. Not called if there are none. */
    tu_status (*store)(void *context, const tu_combination *what, const tu__segment_range *range,
                       const void *sum);
    void *context;
} tu__group_work;

/* True if only shared memory is needed, so that any thread can call the functions below. Otherwise only the
 * communication thread can. */
bool tu__group_adds_in_memory(const tu_process_group *group);

/* All processes must call it with the same kind, root, types and counts. */
tu_status tu__group_perform(tu_process_group *group, const tu__group_work *work);

/* Performs part `part` of `parts` of a collective, with the threads of the caller's parallel loops. The parts of a
 * process may be performed by several threads at once; each waits for the same elements of the other processes, which
 * may have another number of parts. Adds the seconds that the caller has waited for other processes to `*waited`. */
tu_status tu__group_perform_part(tu_process_group *group, const tu__group_work *work, uint32_t part,
                                 uint32_t parts, double *waited);

#endif
