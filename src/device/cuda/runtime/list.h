/* A step of a command list, enqueued on streams that wait for each other. */
#ifndef TU__DEVICE_CUDA_RUNTIME_LIST_H
#define TU__DEVICE_CUDA_RUNTIME_LIST_H

#include "device/cuda/runtime/ring.h"

typedef struct cuda_member { /* a partition; `device` is NULL if it has no queue */
    cuda_device *device;
    tu__kernel_plan *plan;
    cuda_ring *ring;     /* NULL: it has no inputs and no results to fetch */
    CUevent posted;      /* recorded after the work enqueued so far; waited for immediately, then reused */
    CUstream sum_stream; /* stream for its sums of collectives; NULL: none */
    CUevent sum_done;    /* recorded after the sums; waited for immediately */
    bool was_timed;      /* `timed` of the plan before the call, to be restored */
} cuda_member;

typedef struct cuda_queue {
    CUstream stream; /* of a copy queue, on the receiver's GPU; NULL for a compute queue: the device's */
    bool is_compute;
    bool has_inputs, has_results; /* in the current step, the kernel that copies them is enqueued */
    uint32_t next;                /* the next command of the current step */
} cuda_queue;

typedef struct cuda_collective {
    uint32_t posted; /* number of ranks that have posted in the current step */
    CUevent done;
} cuda_collective;

typedef struct cuda_list {
    const tu_command_list *list;
    const tu_submit_part *parts; /* the engine's arrays, valid as long as the list */
    const tu_submit_collective *collectives;
    uint32_t first;        /* the partition of the first queue: its stream is captured */
    cuda_member *members;  /* per partition */
    cuda_queue *queues;    /* per queue */
    cuda_collective *sums; /* per collective */
    CUevent *events;       /* per event */
    bool copies_via_host;  /* a copy goes between GPUs without peer access, through the host */
} cuda_list;

/* Prepares streams and events. After a failure, free the list with cuda_list_free() too. */
tu_status cuda_list_new(cuda_list *list, const tu_submission *submission);
void cuda_list_free(cuda_list *list);

/* Enqueues steps of all queues. They start after the work already in the first partition's stream; work that is
 * enqueued there later waits for them. */
tu_status cuda_list_enqueue(cuda_list *list, uint32_t steps);

#endif
