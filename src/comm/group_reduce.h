/* Collectives over the processes of a group. */
#ifndef TU__COMM_GROUP_REDUCE_H
#define TU__COMM_GROUP_REDUCE_H

#include <tutti/device.h>

#include "comm/communicator.h"
#include "comm/lines.h"
#include "comm/process_group.h"

/* A collective, and how to access the values of the local ranks. */
typedef struct tu__group_work {
    const tu__communicator *communicator; /* connected; it spans processes */
    /* Returns the process of a rank. */
    uint32_t (*process_of)(void *context, uint32_t rank);
    /* Adds the inputs of a combination of a part of the work (communicator.h), in a range, into `sum`. Not called
     * without inputs: this process then contributes nothing. */
    tu_status (*load)(void *context, uint32_t part, const tu_combination *what,
                      const tu__segment_range *range, void *sum);
    /* Writes a range of the result to the outputs. Not called without outputs. */
    tu_status (*store)(void *context, uint32_t part, const tu_combination *what,
                       const tu__segment_range *range, const void *sum);
    void *context;
} tu__group_work;

/* On the communication thread. All processes must call it with the same kind, root, types and number of ranks. */
tu_status tu__group_perform(tu_process_group *group, const tu__group_work *work);

#endif
