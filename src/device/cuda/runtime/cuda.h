/* Internal header of the CUDA device: what its files share, and how an operation gets its kernel.
 *
 * As on the CPU, a partition of a graph becomes kernels by device/kit/select.h: ops/lowering.def names a lowering rule
 * for each operation that is not pointwise, and pointwise operations become fused clusters (ops/pointwise.c). A
 * kernel's `run` does not compute: it enqueues work into the stream of its queue, cuda_stream(k). An executable calls
 * every `run` once while the stream is captured and then replays the captured CUDA graph (executable.c). So `run` must
 * do the same at every call. It must not wait, allocate or read results, and its lowering rule must prepare everything
 * it needs. Executables on other queues share the kernel's data and may call `run` at the same time, so `run` must not
 * change the data.
 *
 * Handwritten kernels are CUDA C++ templates in kernels/, one file per family of operations. A lowering rule requests
 * the template instances it will launch. compile.c compiles each requested instance once with NVRTC and caches it on
 * disk. A kernel has one argument: a structure shared by its .cu file and its lowering rule (kernels/NAME_args.h).
 *
 *     static tu_status run_one_hot(const tu__kernel *k) {
 *         one_hot_data *d = k->data;
 *         one_hot_args a = d->args;                                       // all but the addresses
 *         a.x = k->in[0], a.y = k->out[0];
 *         return cuda_launch(k, d->function, cuda_grid_for(k, a.count), &a);
 *     }
 *     tu_status cuda_lower_one_hot(tu__selection *s, const tu__node *node) {
 *         tu__kernel *k = tu__kernel_new(s, node, "one_hot", run_one_hot);
 *         one_hot_data *d = k ? tu__kernel_data(k, sizeof *d) : NULL;
 *         if (!d) return TU_NO_MEMORY;
 *         d->args = …;
 *         d->function = cuda_request(s, "index", "one_hot<%s, %s>", cuda_type(x.dtype), cuda_type(y.dtype));
 *         if (!d->function) return TU_NO_MEMORY;
 *         TU_TRY(tu__kernel_read(k, node->inputs[0]));
 *         return tu__kernel_write(k, (tu__edge){node->id, 0}, -1);
 *     }
 *
 * Results must be bitwise reproducible: kernels use no atomic additions of floats, and the order of a sum depends
 * only on shapes and on the GPU model.
 */
#ifndef TU__DEVICE_CUDA_RUNTIME_CUDA_H
#define TU__DEVICE_CUDA_RUNTIME_CUDA_H

#include <pthread.h>

#include "device/cuda/runtime/driver.h"
#include "device/cuda/runtime/memory.h"
#include "device/kit/select.h"

typedef struct cuda_device cuda_device;

enum { CUDA_MAX_BRANCHES = 8 };

/* A stream with numbered events: queue.c. Several threads may copy, record and wait; one launches executables, and only
 * it uses `active`, `capturing` and the side streams. */
typedef struct tu_queue {
    cuda_device *device;
    CUstream stream;
    CUstream active;          /* that kernels enqueue into: `stream`, or a side stream for one kernel */
    bool capturing;           /* true while the stream is being captured */
    bool forked;              /* while kernels are enqueued on several streams */
    CUstream side_streams[4]; /* [1] and up: more streams of a captured step: capture_streams.c */
    CUevent join_events[4];   /* fork the side streams from `stream` and join them to it */
    CUstream branch_streams[CUDA_MAX_BRANCHES]; /* [1] and up: of the networks of a stack: branches.c */
    CUevent branch_events[CUDA_MAX_BRANCHES];   /* fork the branches, [0], and join them */
    uint32_t event_count;
    CUevent *events;                    /* NULL until first recorded */
    struct cuda_connection *connection; /* that its work uses; NULL: it waits for no other process */
} cuda_queue;

/* One copy direction, host to device or device to host: copies.c. */
typedef struct cuda_lane {
    CUstream stream;
    CUevent done[2];
    unsigned char *pinned; /* two staging buffers; NULL until the first large copy */
    pthread_mutex_t lock;  /* guards the staging buffers */
} cuda_lane;

enum { CUDA_MAX_GPUS = 64 }; /* per machine: bits of `peer_access_mask` */

struct cuda_device {
    int index, logical_index, logical_count;
    int assumed_logical_count; /* kernels are chosen for a GPU split into so many logical devices; 1: not split */
    char name[24];             /* "gpu:0", "gpu:0.1": for messages */
    char model[128];           /* "NVIDIA H200" */
    char arithmetic[256];      /* of tu_device_info */
    CUdevice handle;
    CUcontext context;
    cuda_queue own_queue; /* for trial runs while a plan is made */
    cuda_lane in, out;    /* copies without a queue, which overlap with kernels */
    int streams;          /* streams a captured step may use: 1, or 0 to choose automatically */
    int capability;       /* 90: compute capability 9.0 */
    int multiprocessors;
    int shared_bytes;    /* maximum shared memory per block */
    cuda_memory *memory; /* one per GPU, shared by its logical devices */
    uint64_t memory_bytes;
    uint64_t overhead_bytes;            /* memory of the context and libraries when last measured */
    bool tune;                          /* time candidates instead of trusting heuristics */
    bool nondeterministic;              /* also use kernels whose results vary bitwise */
    struct cuda_modules *modules;       /* compiled kernels, shared by all plans: compile.c */
    cublasLtHandle_t blas;              /* created with the device */
    cudnnHandle_t dnn;                  /* NULL until cuda_dnn() */
    cusolverDnHandle_t solver;          /* NULL until cuda_solver() */
    CUstream dnn_stream, solver_stream; /* that `dnn` and `solver` enqueue into */
    uint64_t peer_access_mask;          /* bit i: kernels may access the memory of GPU i: peer_access.c */
    pthread_mutex_t lock;               /* guards dnn, solver, peer_access_mask and modules */
    pthread_mutex_t library_lock;       /* held while a library enqueues with what queues share */
    pthread_mutex_t build_lock;         /* held while a plan is compiled */
    /* Kernels of collectives, by element type and by number of inputs: combine.c. */
    CUfunction combine[TU_DTYPE_COUNT][10];
};

/* The functions of the device interface with the same names: cuda.c. */
tu_status cuda_describe(tu_device_instance *device, int index, tu_device_info *info);
tu_status cuda_open(const tu_open_options *options, tu_device_instance **device);
void cuda_close(tu_device_instance *device);
/* Returns the CUDA device inside the engine's device object. */
cuda_device *cuda_device_of(tu_device_instance *device);

/* Returns the device of a kernel or a selection, which store it as a pointer to const. */
static inline cuda_device *cuda_mutable(const void *device) {
    union {
        const void *constant;
        cuda_device *mutable_device;
    } cast = {device};
    return cast.mutable_device;
}
#define cuda_of(holder) cuda_mutable((holder)->device)

/* Convert between pointers and the driver's integer addresses. */
static inline CUdeviceptr cuda_address(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}
static inline void *cuda_pointer(CUdeviceptr address) {
    union {
        CUdeviceptr address;
        void *pointer;
    } cast = {address};
    return cast.pointer;
}

/* Makes the device's context current on the calling thread. Every function of the device interface calls it first. Fails if the
 * device was abandoned. */
tu_status cuda_make_current(const cuda_device *device);
/* Measures the memory that is not available to plans: the context, libraries and other processes on the GPU. */
tu_status cuda_measure_overhead(cuda_device *device);

/* Returns the stream that a kernel enqueues into. At lowering time a kernel has no queue: then it is the device's. */
static inline CUstream cuda_stream(const tu__kernel *k) {
    const cuda_queue *queue = k->queue;
    return queue ? queue->active : cuda_of(k)->own_queue.stream;
}

/* ---- Handles of libraries: library_handles.c ---- */

/* Creates the handle of cuBLASLt. */
tu_status cuda_open_blas(cuda_device *device);
/* Return handles, created on first use. NULL (message set) if the library is missing. */
cudnnHandle_t cuda_dnn(cuda_device *device);
cusolverDnHandle_t cuda_solver(cuda_device *device);
/* Lock the device's handle and let it enqueue into `stream`, until cuda_library_unlock(). After a failure the handle
 * is not locked. */
tu_status cuda_dnn_lock(cuda_device *device, CUstream stream);
tu_status cuda_solver_lock(cuda_device *device, CUstream stream);
void cuda_library_unlock(cuda_device *device);
/* Destroys all handles. */
void cuda_libraries_close(cuda_device *device);
/* Lets no handle keep a stream that is about to be destroyed. */
void cuda_libraries_forget(cuda_device *device, CUstream stream);

/* ---- Queues: queue.c, timeout.c ---- */

/* Opens a queue in memory of the caller. After a failure, close it too. */
tu_status cuda_queue_open(cuda_queue *queue, cuda_device *device, uint32_t event_count);
/* Waits for the queue's work and frees its streams and events. The device's context must be current. */
void cuda_queue_close(cuda_queue *queue);
/* Functions of the device interface. */
tu_status cuda_queue_new(cuda_device *device, uint32_t event_count, cuda_queue **queue);
void cuda_queue_free(cuda_queue *queue);
tu_status cuda_record(cuda_queue *queue, uint32_t event);
tu_status cuda_wait(cuda_queue *queue, cuda_queue *other, uint32_t event);
tu_status cuda_synchronize(cuda_queue *queue, uint32_t event, double timeout, bool *done);

/* Finds an event of a queue; NULL if it was never recorded. */
tu_status cuda_find_event(const cuda_queue *queue, uint32_t event, CUevent *found);

/* Marks the device's GPU as abandoned: no driver call is made for it from then on. Functions that free resources must
 * check cuda_is_abandoned() themselves. */
void cuda_abandon(const cuda_device *device);
bool cuda_is_abandoned(const cuda_device *device);
tu_status cuda_check_not_abandoned(const cuda_device *device);
/* Sleeps between two polls: at most a thousandth of the `waited` seconds so far, at least a microsecond. */
void cuda_pause(double waited);

/* ---- Copies and pinned memory: copies.c, pinned_memory.c ---- */

tu_status cuda_lane_open(cuda_lane *lane);
void cuda_lane_close(cuda_lane *lane);
/* `copy` of the device interface. */
tu_status cuda_copy_memory(cuda_device *device, const cuda_queue *queue, tu_memory to, tu_memory from,
                           size_t bytes);
/* Allocates pinned host memory. Returns TU_UNSUPPORTED, with the reason, if the driver cannot pin it. */
tu_status cuda_pinned_allocate(const cuda_device *device, size_t bytes, void **address);
/* Frees pinned memory. Returns false if the address is none of cuda_pinned_allocate(). */
bool cuda_pinned_free(const cuda_device *device, void *address);
bool cuda_is_pinned(const void *host, size_t bytes);

/* Allocates staging memory: pinned by the driver, for the current context. */
tu_status cuda_staging_allocate(size_t bytes, void **address);
/* Frees staging memory. NULL is ignored. */
void cuda_staging_free(void *address);

/* ---- Peer access: peer_access.c ---- */

/* Lets the device's kernels read and write the memory of another GPU. Fails with TU_UNSUPPORTED, with the reason, if
 * the hardware or driver does not allow it. */
tu_status cuda_enable_peer_access(cuda_device *device, const cuda_device *other);
/* True if each device can access the other's memory. Logical devices of one GPU always can. */
bool cuda_have_peer_access(cuda_device *device, cuda_device *other);

/* ---- Handwritten and generated kernels ---- */

typedef struct cuda_function cuda_function; /* the handle is set when the plan is built */

/* Requests a template instance of the file kernels/`unit`.cu, for example "max_pool<bf16, 3>" of unit "pool". The
 * same instance may be requested many times. Returns NULL (message set) if memory runs out. */
cuda_function *cuda_request(tu__selection *s, const char *unit, const char *format, ...) TU_PRINTF(3, 4);
/* Requests a function of a source generated for this plan, such as a fused pointwise kernel. The source is copied.
 * Two requests with the same text return the same function. */
cuda_function *cuda_request_source(tu__selection *s, const char *source, const char *expression);

/* Returns the CUDA C name of an element type: f32, f64, bf16, f16, i32, i64, u8, truth, i8 (kernels/prelude.cuh). */
const char *cuda_type(tu_dtype dtype);
/* True if kernels compute with this type in f64 (f64, i32, i64), false if in f32. */
bool cuda_is_wide(tu_dtype dtype);

typedef struct cuda_grid {
    unsigned blocks[3], threads; /* threads per block, along x; 0 blocks along y or z count as 1 */
    unsigned shared;             /* bytes of dynamic shared memory */
} cuda_grid;

/* Returns a grid for kernels that loop over `count` elements with a grid stride: blocks of 256 threads, at most as
 * many as the GPU can keep resident. */
cuda_grid cuda_grid_for(const tu__kernel *k, int64_t count);

/* Enqueues a kernel. `arguments` is its only parameter and is copied. A grid with 0 blocks along x launches
 * nothing. */
tu_status cuda_launch(const tu__kernel *k, const cuda_function *function, cuda_grid grid,
                      const void *arguments);
/* The same for a kernel that may start before the one before it in its stream has ended, since it waits by itself
 * (kernels/early.cuh). Needs compute capability 9.0. */
tu_status cuda_launch_early(const tu__kernel *k, const cuda_function *function, cuda_grid grid,
                            const void *arguments);
/* Enqueue a copy, or a fill with zero bytes, in device memory. */
tu_status cuda_copy(const tu__kernel *k, void *to, const void *from, size_t bytes);
tu_status cuda_clear(const tu__kernel *k, void *to, size_t bytes);

/* Disables capture for a plan with library calls that cannot be captured. Its kernels are then enqueued one by
 * one. */
void cuda_forbid_capture(tu__selection *s);
/* True if the program was compiled with a precision that allows tf32 for matrix products of f32. */
bool cuda_allows_tf32(const tu__selection *s);

/* A divisor known when the kernel is created: kernels divide unsigned numbers by multiplication and shift.
 * kernels/prelude.cuh has the same structure. */
typedef struct fast_divmod {
    uint32_t value, multiplier, shift; /* value: the divisor */
} fast_divmod;
fast_divmod cuda_fast_divmod(uint32_t divisor);

/* ---- Plans and executables: plan.c, executable.c, kernel_times.c, submit.c ---- */

void cuda_plan_free(const cuda_device *device, tu_plan *plan);
/* Functions of the device interface. `queue` may be NULL: the device's own. */
tu_status cuda_build(cuda_device *device, cuda_queue *queue, tu_plan *plan, const tu_binding *binding,
                     tu_executable **executable);
tu_status cuda_build_collective(cuda_device *device, cuda_queue *queue, const tu_collective *collective,
                                tu_executable **executable);
tu_status cuda_build_list(const tu_list_binding *binding, tu_executable **executable);
void cuda_executable_free(const cuda_device *device, tu_executable *executable);
tu_status cuda_launch_executable(cuda_device *device, tu_executable *executable, uint32_t first,
                                 uint32_t count);
tu_status cuda_submit_list(tu_executable *executable, const tu_submission *submission);
tu_status cuda_times_of(const cuda_device *device, tu_executable *executable, uint32_t position,
                        double *start, double *seconds);

/* ---- Compiling: compile.c ---- */

struct cuda_function {
    const char *unit;       /* kernel file; NULL if the function comes from `source` */
    const char *source;     /* generated source; NULL if the function comes from a kernel file */
    const char *expression; /* "max_pool<bf16, 3>", or the function's name in `source` */
    CUfunction handle;      /* NULL until compiled */
    cuda_function *next;
};

/* Compiles the functions that are not compiled yet, in parallel, and sets all handles. */
tu_status cuda_compile(cuda_device *device, cuda_function *functions);
void cuda_modules_free(cuda_device *device);

/* kernel_sources.c: returns the text of a kernel file ("pool.cu", "prelude.cuh"); NULL if there is no such file. */
const char *cuda_kernel_source(const char *file);

#endif
