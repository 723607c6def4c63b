/* A step of several parts: their kernels, and what goes between them, on streams that wait for each other. */
#ifndef TU__DEVICE_CUDA_RUNTIME_JOINT_H
#define TU__DEVICE_CUDA_RUNTIME_JOINT_H

#include "device/cuda/runtime/ring.h"

typedef struct cuda_member { /* a part */
    cuda_device *device;
    tu__kernel_plan *plan;
    cuda_ring *ring; /* NULL: it is fed nothing, and nothing of it is fetched */
    CUevent so_far;  /* behind what the part was given before; used at once, so one serves all */
    CUevent free;    /* what comes to it may be overwritten: its readers of the step before are done */
    CUstream sums;   /* what it adds up of collectives; NULL: nothing */
    CUevent added;   /* behind that; used at once */
    bool receives, was_timed;
} cuda_member;

/* From one part to another copies go one behind the other, in the order in which the sender made them. */
typedef struct cuda_route {
    uint32_t from, to;
    CUstream stream; /* of the receiver's card */
    uint32_t last;   /* move */
    bool begun;      /* in the step being enqueued */
} cuda_route;

enum { CUDA_NO_ROUTE = UINT32_MAX };

typedef struct cuda_move {
    tu_joint_move what;
    uint32_t route; /* COPY; CUDA_NO_ROUTE: within a part */
    CUevent done;   /* COPY, MEET */
} cuda_move;

typedef struct cuda_joint {
    uint32_t member_count, move_count, route_count;
    cuda_member *members;
    cuda_move *moves;
    cuda_route *routes;
    bool staged; /* something goes between cards that do not reach each other: through the host */
} cuda_joint;

/* What a failure left is freed as the whole would be. */
tu_status cuda_joint_begin(cuda_joint *joint, uint32_t part_count, const tu_joint_part *parts,
                           uint32_t move_count, const tu_joint_move *moves);
void cuda_joint_end(cuda_joint *joint);

/* Enqueues steps of all parts; they begin behind what the first part's stream was given, which comes behind them. */
tu_status cuda_joint_enqueue(cuda_joint *joint, uint32_t steps);

#endif
