/* A plan of the CUDA device beyond what device/select.h keeps: what it asked to have compiled, and what is replayed. */
#ifndef TU__DEVICE_CUDA_RUNTIME_PLAN_H
#define TU__DEVICE_CUDA_RUNTIME_PLAN_H

#include "device/cuda/runtime/cuda.h"
#include "device/cuda/runtime/streams.h"

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
    struct cuda_times *times; /* once somebody asked for them: times.c */
    bool timed;
    bool spread;        /* captured kernels go to several streams: spread.c */
    cuda_place *places; /* per place in the order */
    CUevent *made;      /* per place: recorded behind a kernel that another stream waits for */
    const cuda_function *ring_in, *ring_out;
    struct cuda_repetition *repetition; /* of steps whose first part this plan is: repeat.c */
} cuda_runtime;

/* The plan's; made when first asked for, NULL when memory runs out. */
cuda_runtime *cuda_runtime_of(tu__kernel_plan *plan);

/* Enqueues kernels one by one; within a capture this is what is captured. */
tu_status cuda_enqueue(cuda_device *device, tu__kernel_plan *plan, uint32_t first, uint32_t count);
/* Captures what `enqueue` puts into the stream, as a graph ready for launching. */
tu_status cuda_capture(cuda_device *device, tu_status (*enqueue)(cuda_device *device, void *context),
                       void *context, CUgraphExec *exec);

/* times.c: when kernels began and ended. Marks stand before a kernel and behind the last of a launch. */
tu_status cuda_times_begin(cuda_device *device, tu__kernel_plan *plan);
tu_status cuda_times_align(cuda_device *device, cuda_runtime *runtime);
tu_status cuda_mark_begin(const cuda_device *device, const cuda_runtime *runtime, uint32_t place);
tu_status cuda_mark_end(const cuda_device *device, const cuda_runtime *runtime, uint32_t place);
void cuda_times_free(cuda_runtime *runtime);

/* spread.c: kernels of a captured step on several streams, where that pays. Found anew when addresses change. */
tu_status cuda_spread_plan(cuda_device *device, tu__kernel_plan *plan);
void cuda_spread_free(tu__kernel_plan *plan);
/* Enqueues kernels on the streams they were given, while the device's own is captured. */
tu_status cuda_enqueue_spread(cuda_device *device, tu__kernel_plan *plan, uint32_t first, uint32_t count);
/* plan.c: one kernel, into the device's stream as it is. */
tu_status cuda_enqueue_one(const tu__kernel_plan *plan, uint32_t place);

/* repeat.c: what repeating keeps with a plan, freed with it, and when its addresses change. */
void cuda_repetition_free(cuda_runtime *runtime);

#endif
