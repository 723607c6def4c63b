/* Collectives over the processes of a group. */
#ifndef TU__COMM_GROUP_REDUCE_H
#define TU__COMM_GROUP_REDUCE_H

#include <tutti/device.h>

#include "comm/lines.h"
#include "comm/process_group.h"
#include "graph/collective.h"

/* What a process contributes to a collective and gets of it. A reduce-scatter is a reduce of the rows of every rank, an
 * all-gather a broadcast of them (communicator.h: parts). */
typedef struct tu__group_work {
    tu__collective_kind kind;   /* all-reduce, reduce or broadcast */
    uint32_t root;              /* of the last two: the process that gets the sum, or has the values */
    const tu_combination *what; /* the values of all local ranks, not divided into slices */
    /* Adds the local ranks' values in a range, into `sum`; the root of a broadcast has one. Not called if there are
     * none (`what->in_count` is 0): then the process contributes zeros. */
    tu_status (*load)(void *context, const tu_combination *what, const tu__segment_range *range, void *sum);
    /* Writes a range of the result to all local ranks that get it. Not called if `what->out_count` is 0. */
    tu_status (*store)(void *context, const tu_combination *what, const tu__segment_range *range,
                       const void *sum);
    void *context;
} tu__group_work;

/* On the communication thread. All processes must call it with the same kind, root, types and counts. */
tu_status tu__group_perform(tu_process_group *group, const tu__group_work *work);

#endif
