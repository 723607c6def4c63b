/* A step of several partitions: their kernels, copies and collectives, on streams that wait for each other. */
#ifndef TU__DEVICE_CUDA_RUNTIME_JOINT_H
#define TU__DEVICE_CUDA_RUNTIME_JOINT_H

#include "device/cuda/runtime/ring.h"

typedef struct cuda_member { /* a partition */
    cuda_device *device;
    tu__kernel_plan *plan;
    cuda_ring *ring; /* NULL: it has no inputs and no results to fetch */
    CUevent so_far;  /* recorded after the work enqueued so far; waited for immediately, so one event can be reused */
    CUevent free;    /* its readers of the previous step are done: received values may be overwritten */
    CUstream sums;   /* stream for its sums of collectives; NULL: none */
    CUevent added;   /* recorded after the sums; waited for immediately */
    bool receives, was_timed;
} cuda_member;

/* Copies from one partition to another run one after the other, in the order in which the sender produced them. */
typedef struct cuda_route {
    uint32_t from, to;
    CUstream stream; /* on the receiver's GPU */
    uint32_t last;   /* index of its last copy operation */
    bool begun;      /* a copy was enqueued in the current step */
} cuda_route;

enum { CUDA_NO_ROUTE = UINT32_MAX };

typedef struct cuda_move { /* one operation of a step: launch, copy, collective, wait or keep */
    tu_joint_move what;
    uint32_t route; /* COPY; CUDA_NO_ROUTE: within one partition */
    CUevent done;   /* COPY, COLLECTIVE */
} cuda_move;

typedef struct cuda_joint {
    uint32_t member_count, move_count, route_count;
    cuda_member *members;
    cuda_move *moves;
    cuda_route *routes;
    bool staged; /* a copy goes between GPUs without peer access, through the host */
} cuda_joint;

/* Prepares streams and events. After a failure, free the joint with cuda_joint_end() too. */
tu_status cuda_joint_begin(cuda_joint *joint, uint32_t part_count, const tu_joint_part *parts,
                           uint32_t move_count, const tu_joint_move *moves);
void cuda_joint_end(cuda_joint *joint);

/* Enqueues steps of all partitions. They start after the work already in the first partition's stream; work that is
 * enqueued there later waits for them. */
tu_status cuda_joint_enqueue(cuda_joint *joint, uint32_t steps);

#endif
