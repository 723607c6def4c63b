/* A step of a command list, enqueued on streams that wait for each other. */
#ifndef TU__DEVICE_CUDA_RUNTIME_LIST_H
#define TU__DEVICE_CUDA_RUNTIME_LIST_H

#include "device/cuda/runtime/ring.h"

typedef struct cuda_member { /* a partition; `device` is NULL if it has no queue */
    cuda_device *device;
    cuda_kernels *kernels;
    cuda_ring *ring; /* NULL: it has no inputs and no results to fetch */
    CUevent posted;  /* recorded after the work enqueued so far; waited for immediately, then reused */
    CUstream collective_stream; /* for its part of collectives; NULL: none */
    CUevent collective_done;    /* recorded after its part of a collective; waited for immediately */
    bool was_timed;             /* `timed` of the kernels before the call, to be restored */
} cuda_member;

typedef struct cuda_list_queue {
    CUstream
        stream; /* of a copy queue, on the receiver's GPU; NULL for a compute queue: that of its kernels */
    bool is_compute;
    bool has_inputs, has_results; /* in the current step, the kernel that copies them is enqueued */
    uint32_t next;                /* the next command of the current step */
} cuda_list_queue;

typedef struct cuda_collective_run {
    uint32_t posted; /* number of ranks that have posted in the current step */
    CUevent done;
    cuda_process_collective over_processes; /* if it is one */
} cuda_collective_run;

typedef struct cuda_list {
    const tu_command_list *list;
    const tu_list_part *parts; /* the engine's arrays, valid as long as the list */
    const tu_list_collective *collectives;
    const tu_route *const *routes; /* NULL: see tu_list_binding */
    uint32_t first;                /* the partition of the first queue: its stream is captured */
    cuda_member *members;          /* per partition */
    cuda_list_queue *queues;       /* per queue */
    cuda_collective_run *runs;     /* per collective */
    CUevent *events;               /* per event */
    cuda_connection *connection;   /* of collectives over processes; NULL: there are none */
    uint32_t next_collective;      /* over processes, in the current step */
    bool copies_via_host;          /* a copy goes between GPUs without peer access, through the host */
} cuda_list;

/* Prepares streams and events. After a failure, free the list with cuda_list_free() too. */
tu_status cuda_list_new(cuda_list *list, const tu_list_binding *binding);
void cuda_list_free(cuda_list *list);

/* Returns the queue of the first partition, whose stream is captured. */
cuda_queue *cuda_list_first_queue(const cuda_list *list);
/* Enqueues steps of all queues. They start after the work already in the first partition's stream; work that is
 * enqueued there later waits for them. */
tu_status cuda_list_enqueue(cuda_list *list, uint32_t steps);

#endif
