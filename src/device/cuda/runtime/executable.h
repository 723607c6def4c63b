/* Executables: the kernels of a plan, a collective, or a command list, bound to addresses and to queues. */
#ifndef TU__DEVICE_CUDA_RUNTIME_EXECUTABLE_H
#define TU__DEVICE_CUDA_RUNTIME_EXECUTABLE_H

#include "device/cuda/runtime/plan.h"
#include "device/cuda/runtime/process_collective.h"
#include "device/cuda/runtime/streams.h"

/* ---- Kernels: executable.c ---- */

/* The kernels first … first + count - 1 of the launch order, captured as one CUDA graph. */
typedef struct cuda_segment {
    uint32_t first, count;
    bool warm;  /* its kernels ran once, one by one: libraries have loaded their modules */
    bool timed; /* captured with events between the kernels */
    uint64_t seed;
    CUgraphExec exec; /* NULL: not captured yet */
    struct cuda_segment *next;
} cuda_segment;

typedef struct cuda_kernels {
    cuda_device *device;
    cuda_queue *queue;
    tu__bound_kernels bound;
    const cuda_runtime *runtime; /* of the plan */
    tu__arena arena;             /* of the tables below */
    cuda_segment *segments;
    struct cuda_times *times; /* NULL until times are requested: kernel_times.c */
    bool timed;
    bool uses_streams;                   /* captured kernels use several streams: capture_streams.c */
    cuda_stream_assignment *assignments; /* per position in the launch order */
    CUevent *kernel_done; /* per position: recorded after a kernel that another stream waits for */
} cuda_kernels;

/* Enqueues kernels one by one. During a capture these calls are captured. */
tu_status cuda_enqueue(cuda_kernels *kernels, uint32_t first, uint32_t count);
/* Enqueues one kernel into the active stream of the queue. */
tu_status cuda_enqueue_one(const cuda_kernels *kernels, uint32_t position);
/* Captures the work that `enqueue` puts into the queue's stream, as an executable graph. If the capture
 * is invalidated, calls `enqueue` again. */
tu_status cuda_capture(cuda_queue *queue, tu_status (*enqueue)(void *context), void *context,
                       CUgraphExec *exec);

/* kernel_times.c: start and end times of kernels. Events are recorded before each kernel and after the last of a
 * launch. */
tu_status cuda_times_align(cuda_kernels *kernels);
tu_status cuda_mark_begin(const cuda_kernels *kernels, uint32_t position);
tu_status cuda_mark_end(const cuda_kernels *kernels, uint32_t position);
void cuda_times_free(cuda_kernels *kernels);

/* capture_streams.c: assigns the kernels of a captured step to several streams if that is faster. */
tu_status cuda_assign_kernel_streams(cuda_kernels *kernels);
void cuda_free_stream_events(cuda_kernels *kernels);
/* Enqueues kernels on their assigned streams while the queue's stream is captured. */
tu_status cuda_enqueue_on_streams(cuda_kernels *kernels, uint32_t first, uint32_t count);

/* ---- All kinds ---- */

typedef struct cuda_collective { /* collective.c; one of the three below */
    cuda_device *device;
    cuda_queue *queue;
    tu__arena arena; /* of copies of what the engine passed */
    uint32_t count;  /* the part of one rank in a collective of this process */
    tu_combination *combinations;
    cuda_process_collective over_processes;
    cuda_connection *connection; /* to other processes */
} cuda_collective;

struct cuda_submit; /* submit.c */

typedef enum cuda_executable_kind { CUDA_KERNELS, CUDA_COLLECTIVE, CUDA_LIST } cuda_executable_kind;

struct tu_executable {
    cuda_executable_kind kind;
    union {
        cuda_kernels kernels;
        cuda_collective collective;
        struct cuda_submit *list;
    };
};

/* Allocates an executable whose other fields are 0. NULL (message set) if memory runs out. */
tu_executable *cuda_executable_new(cuda_executable_kind kind);

/* collective.c */
tu_status cuda_collective_launch(const cuda_collective *collective);
void cuda_collective_free(cuda_collective *collective);

/* submit.c: frees a list, unless one of its GPUs was abandoned. */
void cuda_submit_free(struct cuda_submit *list);

#endif
