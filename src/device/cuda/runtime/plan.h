/* The CUDA-specific part of a kernel plan: requested functions, captured graphs, timing events. */
#ifndef TU__DEVICE_CUDA_RUNTIME_PLAN_H
#define TU__DEVICE_CUDA_RUNTIME_PLAN_H

#include "device/cuda/runtime/cuda.h"
#include "device/cuda/runtime/streams.h"

/* The kernels first … first + count - 1 of the launch order, captured as one CUDA graph. */
typedef struct cuda_segment {
    uint32_t first, count;
    bool warm;  /* its kernels ran once, one by one: libraries have loaded their modules */
    bool timed; /* captured with events between the kernels */
    uint64_t seed;
    CUgraphExec exec; /* NULL: not captured yet */
    struct cuda_segment *next;
} cuda_segment;

typedef struct cuda_runtime {
    cuda_function *functions;
    bool compiled;
    bool capture_forbidden;
    cuda_segment *segments;
    struct cuda_times *times; /* NULL until a trace is requested: kernel_times.c */
    bool timed;
    bool uses_streams;                   /* captured kernels use several streams: capture_streams.c */
    cuda_stream_assignment *assignments; /* per position in the launch order */
    CUevent *kernel_done; /* per position: recorded after a kernel that another stream waits for */
    const cuda_function *ring_in, *ring_out;
    struct cuda_submit *submit; /* of command lists whose first queue is this plan's: submit.c */
} cuda_runtime;

/* Returns the plan's cuda_runtime, created on first use; NULL if memory runs out. */
cuda_runtime *cuda_runtime_of(tu__kernel_plan *plan);

/* Enqueues kernels one by one. During a capture these calls are captured. */
tu_status cuda_enqueue(cuda_device *device, tu__kernel_plan *plan, uint32_t first, uint32_t count);
/* Captures the work that `enqueue` puts into the stream, as an executable graph. */
tu_status cuda_capture(cuda_device *device, tu_status (*enqueue)(cuda_device *device, void *context),
                       void *context, CUgraphExec *exec);

/* kernel_times.c: start and end times of kernels. Events are recorded before each kernel and after the last of a
 * launch. */
tu_status cuda_times_begin(cuda_device *device, tu__kernel_plan *plan);
tu_status cuda_times_align(cuda_device *device, cuda_runtime *runtime);
tu_status cuda_mark_begin(const cuda_device *device, const cuda_runtime *runtime, uint32_t position);
tu_status cuda_mark_end(const cuda_device *device, const cuda_runtime *runtime, uint32_t position);
void cuda_times_free(cuda_runtime *runtime);

/* capture_streams.c: assigns the kernels of a captured step to several streams if that is faster. Repeated when
 * addresses change. */
tu_status cuda_assign_plan_streams(cuda_device *device, tu__kernel_plan *plan);
void cuda_free_stream_events(tu__kernel_plan *plan);
/* Enqueues kernels on their assigned streams while the device's main stream is captured. */
tu_status cuda_enqueue_on_streams(cuda_device *device, tu__kernel_plan *plan, uint32_t first, uint32_t count);
/* plan.c: enqueues one kernel into the device's current stream. */
tu_status cuda_enqueue_one(const tu__kernel_plan *plan, uint32_t position);

/* submit.c: frees what submitted steps keep in a plan. Called when the plan is freed and when its addresses change. */
void cuda_submit_free(cuda_runtime *runtime);

/* Requests the kernels that multi-step calls need; any plan may be used in one. */
tu_status cuda_request_rings(tu__kernel_plan *plan);

#endif
