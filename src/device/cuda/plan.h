/* A plan of the CUDA device beyond what device/select.h keeps: what it asked to have compiled, and what is replayed. */
#ifndef TU__DEVICE_CUDA_PLAN_H
#define TU__DEVICE_CUDA_PLAN_H

#include "device/cuda/cuda.h"

/* Kernels first … first + count - 1 of the order as one CUDA graph. */
typedef struct cuda_segment {
    uint32_t first, count;
    bool warm;  /* its kernels ran once, one by one: libraries have loaded what they need */
    bool timed; /* with events between the kernels */
    uint64_t seed;
    CUgraphExec exec; /* NULL: not captured yet */
    struct cuda_segment *next;
} cuda_segment;

typedef struct cuda_runtime {
    cuda_function *functions;
    bool compiled;
    bool capture_forbidden;
    cuda_segment *segments;
    CUevent *events; /* kernel_count + 1, once somebody asked for times */
    bool timed, capturing;
    uint32_t timed_first, timed_count; /* what the events stand around */
    struct cuda_ring *ring;            /* repeat.c */
    const cuda_function *ring_in, *ring_out;
    bool repeat_warm; /* a step of a repetition ran one by one */
} cuda_runtime;

/* The plan's; made when first asked for, NULL when memory runs out. */
cuda_runtime *cuda_runtime_of(tu__kernel_plan *plan);

/* Enqueues kernels one by one; within a capture this is what is captured. */
tu_status cuda_enqueue(cuda_device *device, tu__kernel_plan *plan, uint32_t first, uint32_t count);
/* Captures what `enqueue` puts into the stream, as a graph ready for launching. */
tu_status cuda_capture(cuda_device *device, tu_status (*enqueue)(cuda_device *device, void *context),
                       void *context, CUgraphExec *exec);

/* repeat.c: the rings of a plan, freed with it, and when its addresses change. */
void cuda_ring_free(cuda_runtime *runtime);

#endif
