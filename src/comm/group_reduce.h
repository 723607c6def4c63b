/* Sums over the processes of a group. */
#ifndef TU__COMM_GROUP_REDUCE_H
#define TU__COMM_GROUP_REDUCE_H

#include <tutti/device.h>

#include "comm/lines.h"
#include "comm/process_group.h"

/* A sum over the local ranks of all processes. */
typedef struct tu__group_sum {
    const tu_combination *what; /* the values of all local ranks, not divided into slices */
    /* Adds the local ranks' values in a range, into `sum`. */
    tu_status (*load)(void *context, const tu_combination *what, const tu__segment_range *range, void *sum);
    /* Writes a range of the result to all local ranks. */
    tu_status (*store)(void *context, const tu_combination *what, const tu__segment_range *range,
                       const void *sum);
    void *context;
} tu__group_sum;

/* On the communication thread. All processes must call it with the same types and counts. */
tu_status tu__group_all_reduce(tu_process_group *group, const tu__group_sum *sum);

#endif
