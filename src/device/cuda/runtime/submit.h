/* The executable of a command list: what is kept between two calls of submit, and progress in a call. */
#ifndef TU__DEVICE_CUDA_RUNTIME_SUBMIT_H
#define TU__DEVICE_CUDA_RUNTIME_SUBMIT_H

#include "device/cuda/runtime/list.h"

typedef struct cuda_submit {
    tu_list_binding binding;
    bool is_open; /* the fields below are in use */
    cuda_list list;
    uint32_t steps_per_half; /* of a ring; the same for all rings */
    CUevent done[CUDA_HALVES];
    bool warm;            /* a step was enqueued kernel by kernel */
    bool forbids_capture; /* during this call */
    uint64_t seed;
    uint32_t steps_per_graph;
    CUgraphExec one_step_graph, multi_step_graph;
    cuda_call call;     /* the current one */
    CUevent group_done; /* recorded after the latest complete group of launches */
    uint32_t group_launches;
} cuda_submit;

static inline uint32_t cuda_submit_partitions(const cuda_submit *r) {
    return r->binding.list->partition_count;
}

/* The device and the stream of the first queue, which is captured. */
static inline cuda_device *cuda_submit_device(const cuda_submit *r) {
    return r->list.members[r->list.first].device;
}
static inline CUstream cuda_submit_stream(const cuda_submit *r) {
    return cuda_list_first_queue(&r->list)->stream;
}

/* step_progress.c: waits for an event that follows steps. Abandons the GPUs if no step ends before the timeout. */
tu_status cuda_submit_wait(const cuda_submit *r, CUevent event);
/* step_progress.c: tells the engine how many steps of the call have ended. */
void cuda_submit_report(const cuda_submit *r, uint32_t done);

#endif
