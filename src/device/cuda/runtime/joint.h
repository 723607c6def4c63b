/* A step of several partitions: their kernels, copies and collectives, on streams that wait for each other. */
#ifndef TU__DEVICE_CUDA_RUNTIME_JOINT_H
#define TU__DEVICE_CUDA_RUNTIME_JOINT_H

#include "device/cuda/runtime/ring.h"

typedef struct cuda_member { /* a partition */
    cuda_device *device;
    tu__kernel_plan *plan;
    cuda_ring *ring;     /* NULL: it has no inputs and no results to fetch */
    CUevent posted;      /* recorded after the work enqueued so far; waited for immediately, then reused */
    CUevent reusable;    /* the previous step has read all received values: they may be overwritten */
    CUstream sum_stream; /* stream for its sums of collectives; NULL: none */
    CUevent sum_done;    /* recorded after the sums; waited for immediately */
    bool receives;       /* a copy from another partition ends here */
    bool was_timed;      /* `timed` of the plan before the call, to be restored */
} cuda_member;

/* Copies from one partition to another run one after the other, in the order in which the sender produced them. */
typedef struct cuda_route {
    uint32_t from, to;
    CUstream stream; /* on the receiver's GPU */
    uint32_t last;   /* index of the last copy on this route */
    bool started;    /* a copy was enqueued in the current step */
} cuda_route;

enum { CUDA_NO_ROUTE = UINT32_MAX };

typedef struct cuda_joint_op { /* one operation of a step: launch, copy, collective, wait or keep */
    tu_joint_move spec;
    uint32_t route; /* COPY: index of its route; CUDA_NO_ROUTE: within one partition */
    CUevent done;   /* COPY, COLLECTIVE: recorded after it */
} cuda_joint_op;

typedef struct cuda_joint {
    uint32_t member_count, op_count, route_count;
    cuda_member *members;
    cuda_joint_op *ops;
    cuda_route *routes;
    bool copies_via_host; /* a copy goes between GPUs without peer access, through the host */
} cuda_joint;

/* Prepares streams and events. After a failure, free the joint with cuda_joint_free() too. */
tu_status cuda_joint_new(cuda_joint *joint, uint32_t part_count, const tu_joint_part *parts,
                         uint32_t op_count, const tu_joint_move *ops);
void cuda_joint_free(cuda_joint *joint);

/* Enqueues steps of all partitions. They start after the work already in the first partition's stream; work that is
 * enqueued there later waits for them. */
tu_status cuda_joint_enqueue(cuda_joint *joint, uint32_t steps);

#endif
