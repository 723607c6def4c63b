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
    double deadline; /* tu__now() at which the sum has failed */
} tu__group_sum;

/* True if only shared memory is needed, so that any thread can call the functions below. Otherwise only the
 * communication thread can. */
bool tu__group_adds_in_memory(const tu_process_group *group);

/* All processes must call it with the same types and counts. */
tu_status tu__group_all_reduce(tu_process_group *group, const tu__group_sum *sum);

/* Computes part `part` of `parts` of a sum, with the threads of the caller's parallel loops. The parts of a process
 * may be computed by several threads at once; each waits for the same elements of the other processes, which may have
 * another number of parts. Adds the seconds that the caller has waited for other processes to `*waited`. */
tu_status tu__group_all_reduce_part(tu_process_group *group, const tu__group_sum *sum, uint32_t part,
                                    uint32_t parts, double *waited);

#endif
