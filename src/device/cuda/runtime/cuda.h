/* The CUDA device from inside: what its files share, and how an operation gets its kernel.
 *
 * Its part of a graph becomes kernels by device/select.h, as on the CPU: a lowering rule in lowering.def for each operation that
 * is not pointwise, clusters for those that are (pointwise.c). `run` of a kernel does not compute: it enqueues work
 * into the device's stream. The plan calls every `run` once while the stream is captured; from then on the whole is
 * replayed as one CUDA graph (plan.c). So `run` must do the same each time it is called, must not wait, allocate or
 * look at results, and everything it needs it prepares when it is made.
 *
 * Kernels of ours are CUDA C under kernels/, a translation unit a family, made of templates. A lowering rule asks for the
 * instances it will launch; compile.c compiles each unit once for all that a plan asks of it, with NVRTC, and keeps the
 * result on disk. A kernel takes one argument: a structure that its unit and its lowering rule share (kernels/NAME_args.h).
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
 * Results must be the same bits every time: no atomic additions of floats; sums are made in an order that depends on
 * shapes and the card alone. */
#ifndef TU__DEVICE_CUDA_RUNTIME_CUDA_H
#define TU__DEVICE_CUDA_RUNTIME_CUDA_H

#include <pthread.h>

#include "device/cuda/runtime/driver.h"
#include "device/cuda/runtime/memory.h"
#include "device/select.h"

/* What goes one way, into the card or out of it: moves.c. */
typedef struct cuda_lane {
    CUstream stream;
    CUevent done[2];
    unsigned char *pinned; /* two pieces; NULL until something large goes */
    pthread_mutex_t lock;  /* of the pieces */
} cuda_lane;

enum { CUDA_MAX_CARDS = 64 }; /* of a machine: bits of `reached` */

typedef struct cuda_device {
    int index, part, parts;
    int share; /* as one of how many its kernels are chosen: parts, or 1 where they are to be the whole card's */
    char name[24]; /* "gpu:0", "gpu:0.1": for messages */
    CUdevice handle;
    CUcontext context;
    CUstream stream;   /* kernels */
    cuda_lane in, out; /* what comes and goes while they run */
    int streams;       /* that a captured step may use: 1, or 0: as pays */
    CUstream side[4];  /* the others of a captured step, from number 1 on; made when first needed: spread.c */
    CUevent joined[4]; /* where they leave the first and come back to it */
    bool capturing;    /* what is enqueued now becomes a graph */
    int capability;    /* 90: compute capability 9.0 */
    int multiprocessors;
    int shared_bytes;    /* shared memory a block may ask for */
    cuda_memory *memory; /* the card's: its parts share it */
    uint64_t memory_bytes;
    double allowed;               /* seconds for a step; 0: any time */
    uint64_t overhead_bytes;      /* taken by context and libraries, as far as it was seen */
    bool tune;                    /* time candidates instead of trusting heuristics */
    bool nondeterministic;        /* also take kernels whose bits vary */
    struct cuda_modules *modules; /* compiled units that plans share: compile.c */
    cublasLtHandle_t blas;        /* opened with the device */
    cudnnHandle_t dnn;            /* NULL until cuda_dnn() */
    cusolverDnHandle_t solver;    /* NULL until cuda_solver() */
    uint64_t reached;             /* bit i: its kernels may use the memory of card i: peers.c */
    pthread_mutex_t lock;         /* of the three above and `modules` */
    CUfunction combine[4][9];     /* per element type and number of ranks, once they were needed: combine.c */
} cuda_device;

/* What the engine holds of it. */
cuda_device *cuda_inside(tu_device_instance *device);

/* The device of a kernel or a selection, which hold it as the constant that it is to everybody else. */
static inline cuda_device *cuda_mutable(const void *device) {
    union {
        const void *constant;
        cuda_device *own;
    } it = {device};
    return it.own;
}
#define cuda_of(holder) cuda_mutable((holder)->device)

/* To the driver an address is a number. */
static inline CUdeviceptr cuda_address(const void *pointer) {
    return (CUdeviceptr)(uintptr_t)pointer;
}
static inline void *cuda_pointer(CUdeviceptr address) {
    union {
        CUdeviceptr number;
        void *pointer;
    } it = {address};
    return it.pointer;
}

/* Makes the device's context the calling thread's. Every entry of the table begins with it; fails for one that was given up. */
tu_status cuda_enter(const cuda_device *device);
/* Handles made at first use; NULL with the message set when the library is missing. Their stream is the device's. */
cudnnHandle_t cuda_dnn(cuda_device *device);
cusolverDnHandle_t cuda_solver(cuda_device *device);

/* ---- Waiting: waiting.c ---- */

/* Nothing is asked of the device's card any more. Entries that free must look themselves. */
void cuda_give_up(const cuda_device *device);
bool cuda_is_given_up(const cuda_device *device);
tu_status cuda_refuse_given_up(const cuda_device *device);
/* Between two questions whether something has ended: a thousandth of the seconds waited so far at most, but a microsecond
 * while less than a millisecond was waited. */
void cuda_pause(double waited);
/* Waits for what the device's stream was given, for `allowed` seconds at most. */
tu_status cuda_synchronize(const cuda_device *device);

/* ---- Moves and events: moves.c ---- */

tu_status cuda_lane_open(cuda_lane *lane);
void cuda_lane_close(cuda_lane *lane);
/* Done when they return. */
tu_status cuda_upload(cuda_device *device, void *to, const void *host, size_t bytes);
/* Begun when they return: `event` is recorded behind them. A download comes behind `after`. */
tu_status cuda_upload_begin(cuda_device *device, void *to, const void *host, size_t bytes, CUevent event);
tu_status cuda_download_begin(cuda_device *device, void *host, const void *from, size_t bytes, CUevent after,
                              CUevent event);
tu_status cuda_pin(cuda_device *device, void *host, size_t bytes);
void cuda_unpin(cuda_device *device, void *host);
tu_status cuda_download(cuda_device *device, void *host, const void *from, size_t bytes);
tu_status cuda_copy_from(cuda_device *device, void *to, const cuda_device *other, const void *from,
                         size_t bytes);
tu_status cuda_event_new(cuda_device *device, void **event);
void cuda_event_free(cuda_device *device, void *event);
tu_status cuda_event_record(cuda_device *device, void *event);
tu_status cuda_event_wait(cuda_device *device, void *event);
tu_status cuda_event_synchronize(cuda_device *device, void *event);
tu_status cuda_event_query(cuda_device *device, void *event, bool *happened);

/* ---- Other cards: peers.c ---- */

/* Lets the device's kernels read and write the memory of another card. TU_UNSUPPORTED, with the reason: they cannot. */
tu_status cuda_enable_peer_access(cuda_device *device, const cuda_device *other);
/* Whether each of the two uses the other's memory, as parts of one card always do. */
bool cuda_reach_each_other(cuda_device *device, cuda_device *other);

/* ---- Kernels of ours ---- */

typedef struct cuda_function cuda_function; /* its handle is known once the plan is built */

/* Asks for an instance of a template of unit `unit` ("pool" is kernels/pool.cu): "max_pool<bf16, 3>". The same instance
 * may be asked for many times. NULL (message set) when memory runs out. */
cuda_function *cuda_request(tu__selection *s, const char *unit, const char *format, ...) TU_PRINTF(3, 4);
/* As above, from a source made for this plan: what fused pointwise kernels are. `source` is kept; two requests with the
 * same text are the same function. */
cuda_function *cuda_request_source(tu__selection *s, const char *source, const char *expression);

/* The name of an element type in CUDA C: f32, f64, bf16, f16, i32, i64, u8, truth (kernels/prelude.cuh). */
const char *cuda_type(tu_dtype dtype);
/* Whether kernels compute with it in f64 (f64, i32, i64) or in f32. */
bool cuda_is_wide(tu_dtype dtype);

typedef struct cuda_grid {
    unsigned blocks[3], threads; /* threads of a block, along x; blocks of 0 count as 1 */
    unsigned shared;             /* bytes of dynamic shared memory */
} cuda_grid;

/* For kernels that loop over `count` elements with a stride of the whole grid: blocks of 256 threads, as many as keep the
 * card busy. */
cuda_grid cuda_grid_for(const tu__kernel *k, int64_t count);

/* Enqueues it. `arguments` is the kernel's one parameter, copied. A grid without blocks launches nothing. */
tu_status cuda_launch(const tu__kernel *k, const cuda_function *function, cuda_grid grid,
                      const void *arguments);
/* Enqueues a copy, or bytes set to zero, in the device's memory. */
tu_status cuda_copy(const tu__kernel *k, void *to, const void *from, size_t bytes);
tu_status cuda_clear(const tu__kernel *k, void *to, size_t bytes);

/* Keeps the plan from being captured: for kernels whose library calls cannot be. It is then enqueued piece by piece. */
void cuda_forbid_capture(tu__selection *s);
/* Whether products of f32 may be computed in tf32: the precision the program was compiled for. */
bool cuda_allows_tf32(const tu__selection *s);

/* A number without a sign divided by one that is known when the kernel is made: kernels multiply and shift instead.
 * Shared with kernels/prelude.cuh, which has the same structure. */
typedef struct divider {
    uint32_t divisor, multiplier, shift;
} divider;
divider cuda_divider(uint32_t divisor);

/* ---- Makers ---- */

#define LOWERING_RULE(op, rule) tu_status rule(tu__selection *s, const tu__node *node);
#include "device/cuda/ops/lowering.def"
/* move.c: copies a dense value into the buffer of an export. */
tu_status cuda_lower_copy(tu__selection *s, tu__edge from, tu__edge to);

/* pointwise.c: clusters. */
typedef struct cuda_piece cuda_piece;
struct tu__cluster;
tu_status cuda_run_pointwise(const tu__kernel *k);
tu_status cuda_make_piece(tu__kernel *k, struct tu__cluster *c, void *piece);
tu_status cuda_finish_pieces(tu__kernel *k, uint32_t count, void *pieces);
tu__sum_kind cuda_sum_kind_of(const struct tu__cluster *c, tu_dtype dtype, tu__sum_form form, bool *cut);

/* ---- Plans: plan.c. What the table's entries do with a plan ---- */

tu_status cuda_select(cuda_device *device, const tu_partition *part, tu_plan **plan);
/* Whether select makes a kernel of it; TU_UNSUPPORTED with the reason. */
tu_status cuda_supports(const tu__node *node);
tu_status cuda_build(cuda_device *device, tu_plan *plan, const tu_binding *binding);
void cuda_plan_free(cuda_device *device, tu_plan *plan);
tu_status cuda_launch_plan(cuda_device *device, tu_plan *plan, uint32_t first, uint32_t count);
tu_status cuda_repeat_plan(tu_device_instance *device, tu_plan *plan, uint32_t steps,
                           const tu_repetition *what);
tu_status cuda_repeat_joint(uint32_t part_count, const tu_joint_part *parts, uint32_t move_count,
                            const tu_joint_move *moves, uint32_t steps);
tu_status cuda_trace(cuda_device *device, tu_plan *plan, uint32_t place, double *start, double *seconds);

/* ---- Compiling: compile.c ---- */

struct cuda_function {
    const char *unit;       /* NULL: of `source` */
    const char *source;     /* NULL: of a unit */
    const char *expression; /* "max_pool<bf16, 3>", or the function's own name in a source */
    CUfunction handle;      /* NULL until compiled */
    cuda_function *next;
};

/* Compiles what is not compiled yet, in parallel, and finds every handle. */
tu_status cuda_compile(cuda_device *device, cuda_function *functions);
void cuda_modules_free(cuda_device *device);

/* units.c: the text of a unit or header by its file name ("pool.cu", "prelude.cuh"); NULL when there is none. */
const char *cuda_unit_text(const char *file);

#endif
