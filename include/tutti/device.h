/* Devices execute programs. This header lists them and defines the interface of plug-ins for other hardware.
 *
 * A device kind is a table of functions, tu_device_api. The engine handles graphs, placement, order and memory. A
 * device gets its partition of a program, returns the kernels to run and the buffers they need (lower), gets the
 * addresses of these buffers (build), and runs kernels in the engine's order (launch).
 *
 *     partition of a graph --lower--> tu_plan: buffers and kernels
 *                                        |   the engine orders kernels and gives every buffer an address
 *     tu_binding  -----------build-----> tu_executable: the kernels bound to addresses and to a queue
 *                           launch, launch, launch …
 *
 * A plan may be built several times: threads that run one program at once have an executable each.
 *
 * A plug-in is a shared library that exports   const tu_device_api *tu_device_plugin(void); Put its path into
 * TUTTI_DEVICES (several, separated by ':'), or load it with tu_device_load(). The engine loads libtutti_cuda.so if
 * it is in the folder of libtutti.so, or in the folder tutti/ there, unless TUTTI_CUDA is "off".
 *
 * The first eleven functions are mandatory. Each other group is complete or NULL. The interface grows by new groups at
 * the end; by `struct_size` the engine determines which functions a device has. TU_DEVICE_ABI changes only if older
 * devices cannot work any more.
 */
#ifndef TUTTI_DEVICE_H
#define TUTTI_DEVICE_H

#include <tutti/node.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TU_DEVICE_ABI 4
/* The abi of a plug-in that was built with the kit (code for devices that fuse operations, device/kit/kit.h) of another
 * version than this library; its `kind` is that version. The engine refuses it. */
#define TU_DEVICE_OTHER_KIT 0

/* ---- For programs: list of devices -------------------------------------------------------------------------- */

typedef struct tu_device_info {
    size_t struct_size;
    const char *name;        /* "cpu:0" */
    const char *kind;        /* "cpu" */
    const char *description; /* model, instruction sets, library versions, human-readable */
    uint64_t memory_bytes;   /* 0: unknown */
    int cores;               /* 0: it has none */
    const char *unusable;    /* NULL, or why it cannot be used and what to do */
    bool accelerator;        /* "all" prefers its kind to the CPU (set by the engine) */
    /* Only of an open device; tu_device leaves them 0. */
    int threads;    /* of its loops; 0: it has none */
    int first_core; /* of a logical device: index of the first of its `cores` among those of the process */
    uint64_t overhead_bytes; /* of its context and libraries, which no plan contains */
    const char *notice; /* a line for the user, the same for all logical devices of a device; NULL: none */
    /* What the bits of results depend on: instruction set, GPU model, library versions. Devices with equal texts compute the
     * same element-wise operations with the same bits. NULL: the description. */
    const char *arithmetic;
    /* Its collectives over processes may have routes (tu_collective). Otherwise the engine asks for sums of all only. */
    bool has_routes;
} tu_device_info;
/* Returns the number of devices of all kinds. */
TU_API size_t tu_device_count(void);
/* Describes device `index`. Fails with TU_NOT_FOUND from the count on. The strings live until the next call in this
 * thread. */
TU_API tu_status tu_device(size_t index, tu_device_info *info);

/* Loads a plug-in and adds its devices. Fails if its TU_DEVICE_ABI is another one. */
TU_API tu_status tu_device_load(const char *path);

/* ---- For devices: arguments and results ------------------------------------------------------------------------ */

/* The sum of the squares of many tensors, such as the global norm of all gradients, as nodes of a partition. A device
 * may compute all of them in one kernel, since only nodes of the list read their values, except that of `total`. */
typedef struct tu_squared_norm {
    uint32_t total;        /* the node whose value is the sum, an f64 scalar */
    uint32_t tensor_count; /* at least 2 */
    const tu_edge
        *tensors; /* the values that are squared, in the order of the additions, the last one first */
    uint32_t node_count;
    const uint32_t *nodes; /* the squares, sums, casts and additions, including `total` */
} tu_squared_norm;

/* One device's partition of a program: the nodes that it computes, in this order or another that respects the edges.
 * An edge from any other node is a leaf: a dense tensor that the engine provides. The engine handles inputs,
 * constants, variables, assignments, copies and collectives; they are never among `nodes`. */
typedef struct tu_partition {
    size_t struct_size;
    const tu_graph *graph;
    uint32_t node_count;
    const uint32_t *nodes;
    uint32_t export_count;
    const tu_edge *exports; /* values read outside the partition: each must be dense, in a buffer */
    /* The level of every node of the graph: the maximum number of copies between devices and control dependencies
     * (tu_after) on a path to it. Pointwise nodes read only by later pointwise nodes have the level of these. Kernels
     * run in the order of their highest level. A kernel must not have results of different levels: another device
     * might wait for the lower one before it can send an input of the higher one. */
    const uint32_t *levels;
    /* Matrix products and convolutions in f32 may round operands to tf32 (10 mantissa bits). Devices without tf32
     * compute in f32. */
    bool tf32;
    uint32_t norm_count;
    const tu_squared_norm *norms; /* the squared norms among the nodes; a node is in at most one */
} tu_partition;

/* ---- The result of lower ---- */

typedef struct tu_buffer {
    size_t bytes;
    tu_edge value; /* the value in it; node TU_NO_NODE: for internal use of the device */
    bool dense;    /* row-major layout, as leaves and exports have; others are internal to the partition */
} tu_buffer;

typedef struct tu_kernel {
    const char *name;    /* for reports: "conv2d+bias+relu" */
    uint32_t node_count; /* number of nodes it computes; see tu_plan */
    const uint32_t *nodes;
    uint32_t read_count, write_count;
    const uint32_t *reads; /* buffers */
    const uint32_t *writes;
    const int32_t *in_place;    /* optional; per write: index in `reads` whose memory it may reuse, or -1 */
    size_t workspace;           /* bytes needed while the kernel runs */
    int64_t flops, bytes_moved; /* for reports; 0: unknown */
} tu_kernel;

/* The engine checks plans and rejects wrong ones. One or more kernels compute every node of the partition; views,
 * broadcasts and fills that other kernels include may have none. At most one kernel writes a buffer. A kernel reads a
 * buffer only if another one writes it or it contains a leaf. A value has at most one dense buffer, of the value's
 * size, and every export has one. */
typedef struct tu_plan {
    size_t struct_size;
    uint32_t buffer_count, kernel_count;
    const tu_buffer *buffers;
    const tu_kernel *kernels;
    size_t
        resident_bytes; /* that the plan keeps for its kernels, such as packed weights; plans may share them */
} tu_plan;

/* Addresses for build, valid until the executable is freed. */
typedef struct tu_binding {
    size_t struct_size;
    const uint32_t *order;   /* kernel_count kernel indices; launch runs a range of this list */
    void *const *buffers;    /* buffer_count addresses in the device's memory, 64-byte aligned */
    void *const *workspaces; /* kernel_count addresses; NULL if the kernel needs none */
    const uint64_t *seed;    /* host memory, read at launch */
} tu_binding;

/* Defined by the device. */
typedef struct tu_device_instance tu_device_instance;
typedef struct tu_queue tu_queue; /* work that runs in order, like a CUDA stream */
typedef struct tu_executable
    tu_executable; /* kernels, a collective or a list, bound to addresses and a queue */

/* An address, in the memory of a device or of the host (`device` is NULL). */
typedef struct tu_memory {
    tu_device_instance *device;
    void *address;
} tu_memory;

enum { TU_ALL_EVENTS = UINT32_MAX }; /* for synchronize: everything enqueued so far */

/* ---- Command lists ---- */

/* A step of a program is a list of queues of commands. The commands of a queue run one after another. Queues run in
 * parallel, except where a WAIT orders them. A list contains no addresses and never changes. */
typedef enum tu_command_kind {
    TU_COMMAND_FEED,          /* fill the buffer of input `index` with the data of this step */
    TU_COMMAND_LAUNCH,        /* run kernels first … first+count-1 of the partition's order */
    TU_COMMAND_COPY,          /* copy `bytes` from a buffer to another */
    TU_COMMAND_POST,          /* the rank's values of collective `index` are computed */
    TU_COMMAND_AWAIT,         /* continue when all ranks have the results of collective `index` */
    TU_COMMAND_SIGNAL,        /* signal event `index`; every event is signalled once per step */
    TU_COMMAND_WAIT,          /* continue when event `index` was signalled in this step */
    TU_COMMAND_WAIT_PREVIOUS, /* continue when event `index` was signalled in the previous step, if there is one */
    TU_COMMAND_COMMIT,        /* once per compute queue: only later commands write variables */
    TU_COMMAND_FETCH,         /* keep the buffer of result `index` for the caller */
} tu_command_kind;

/* A buffer of a partition: one of its plan, or, with an index of the plan's buffer_count and up, one of the engine
 * (tu_list_part.buffers has all). */
typedef struct tu_place {
    uint32_t partition, buffer;
} tu_place;

typedef struct tu_command {
    tu_command_kind kind;
    uint32_t index;
    uint32_t first, count;
    tu_place from, to;
    size_t bytes;
} tu_command;

/* The compute queue of a partition (`source` is the partition itself), or the copies that it receives from partition
 * `source`. */
typedef struct tu_command_queue {
    uint32_t partition, source;
    uint32_t count;
    const tu_command *commands;
} tu_command_queue;

/* An input or a result of a step. */
typedef struct tu_slot {
    tu_place place;
    size_t bytes;
} tu_slot;

typedef struct tu_command_list {
    size_t struct_size;
    uint32_t partition_count, queue_count, event_count, collective_count, feed_count, fetch_count;
    const tu_command_queue *queues;
    const tu_slot *feeds, *fetches;
    /* All commands in an order in which none waits for a later one: each entry is a queue, and stands for the next
     * command of that queue. Queues take turns as far as possible. */
    uint32_t command_count;
    const uint32_t *order;
} tu_command_list;

/* ---- Collectives ---- */

/* Consecutive elements of one value: `in_count` and `out_count` addresses of the first element, in the memory of any
 * rank, each aligned to an element. An address may be both an input and an output. */
typedef struct tu_combine_segment {
    const void *const *in;
    void *const *out;
    size_t count; /* elements */
} tu_combine_segment;

/* The work of one rank in a collective: every `out` becomes the sum of all `in`, added pairwise in their order: ((0 +
 * 1) + (2 + 3)) + …. bf16 and f16 are added in f32 and rounded once. One input is copied. The combinations of all ranks
 * together are an all-reduce, a reduce-scatter, an all-gather, a broadcast or a reduce; no rank writes what another one
 * reads or writes. */
typedef struct tu_combination {
    size_t struct_size;
    tu_dtype dtype; /* of all segments: f64, f32, bf16 or f16; with one input any type */
    uint32_t in_count, out_count;
    uint32_t segment_count; /* may be 0 */
    const tu_combine_segment *segments;
} tu_combination;

/* The processes that run a program together: how the devices of this process reach those of the others. All processes
 * make the same calls that involve others, in the same order. */
typedef struct tu_processes {
    size_t struct_size;
    uint32_t rank, size;
    /* Sums of bf16 and f16 are rounded after adding the values of so many consecutive processes (those of a host), and
     * again after adding these sums. Divides `size`; a power of two if it is not `size`. */
    uint32_t node_size;
    double timeout; /* maximum seconds to wait for other processes while connecting to them */
    /* Gives every process the `bytes` at `mine` of all processes, in the order of ranks. */
    tu_status (*gather)(void *context, const void *mine, size_t bytes, void *all);
    /* Fails once a process is lost: nothing may wait for the others any more. Any thread may call it. */
    tu_status (*check)(void *context);
    void *context; /* the same for all programs of these processes */
    /* Says that values of other processes have arrived since the last call: whoever waits for more starts the deadline
     * again. Any thread may call it. */
    void (*progress)(void *context);
} tu_processes;

/* Between which processes the values of a combination go: ranks of tu_processes, or all of them at one end or both. */
typedef struct tu_route {
    uint32_t from; /* whose inputs: those of all are added, those of one process are copied */
    uint32_t to;   /* whose outputs get the result */
} tu_route;
enum { TU_ALL_PROCESSES = UINT32_MAX }; /* as an end of a route */

/* The part of one rank in a collective. */
typedef struct tu_collective {
    size_t struct_size;
    uint32_t count; /* of combinations */
    const tu_combination *combinations;
    /* NULL: the ranks are those of this process. Otherwise the combinations are sums of all its ranks, which continue
     * over the processes: every `out` becomes the sum over all ranks of all processes, those of a process added first.
     * All processes have the same number of combinations, with the same element types and counts. */
    const tu_processes *processes;
    /* Per combination over processes; NULL: from all to all. Only the processes that values come from have inputs, and
     * only those that they go to have outputs. Used if the device has_routes. */
    const tu_route *routes;
} tu_collective;

/* ---- Many steps at once ---- */

/* The data of an input: `bytes` per step from the host, or rows of a table in the device's memory. */
typedef struct tu_submit_feed {
    const void *host;    /* one batch per step, or one for all steps; NULL: rows of `table` */
    bool same;           /* one batch for all steps */
    const void *table;   /* rows of row_bytes, in the device's memory */
    const int64_t *rows; /* in host memory: row indices, for each step those of its batch */
    size_t row_bytes;
    size_t stride; /* distance between steps: in bytes of `host`, or in entries of `rows` */
} tu_submit_feed;

/* A partition. Those without a queue in the list have no device. */
typedef struct tu_list_part {
    tu_device_instance *device;
    tu_executable *executable; /* its kernels */
    void *const *buffers;      /* addresses, by buffer */
} tu_list_part;

/* A collective whose ranks are partitions of the list. */
typedef struct tu_list_collective {
    uint32_t ranks;
    const uint32_t *partitions;         /* of each rank */
    uint32_t combination_count;         /* of each rank; over processes: of all */
    const tu_combination *combinations; /* of rank 0, then of rank 1, …; in the same order for every rank */
    const tu_processes
        *processes; /* not NULL: rank 0's combinations are all, and continue over the processes */
} tu_list_collective;

/* A list with the addresses for its buffers, valid until its executable is freed. */
typedef struct tu_list_binding {
    size_t struct_size;
    const tu_command_list *list;
    const tu_list_part *parts;             /* per partition */
    const tu_list_collective *collectives; /* per collective */
    const tu_route *const
        *routes; /* per collective: `routes` of tu_collective; NULL: all are from all to all */
} tu_list_binding;

typedef struct tu_submission {
    size_t struct_size;
    const tu_submit_feed *feeds; /* per input of the list */
    void *const *fetches;        /* per result: steps x bytes in host memory; NULL: not needed */
    uint32_t steps;
    double timeout; /* maximum seconds between the ends of two steps; 0: none */
    /* Progress: the device stores the number of steps known to have ended, which other threads may read. May be NULL. */
    uint32_t *steps_done;
} tu_submission;

/* ---- The interface ------------------------------------------------------------------------------------------- */

typedef struct tu_open_options {
    size_t struct_size;
    int index;                        /* index of the device: 0 in "cpu:0" */
    int logical_index, logical_count; /* 1 and 2 for "cpu:0.1" of "cpu:0/2"; count 1: the whole device */
    int threads;                      /* 0: one per core of the logical device */
    uint64_t memory_limit;            /* bytes; 0: none */
    bool tune;             /* time candidate kernels and keep the fastest, instead of using heuristics */
    bool nondeterministic; /* also use kernels whose results differ in the last bits from run to run */
    int streams;           /* kernels that may run in parallel; 0: chosen automatically; 1: one */
    /* Use the whole device's kernels, so that the bits do not depend on the number of logical devices. */
    bool whole_device_kernels;
} tu_open_options;

typedef struct tu_device_api {
    uint32_t abi;       /* TU_DEVICE_ABI */
    size_t struct_size; /* sizeof(tu_device_api) */
    const char *kind;   /* "cpu": names are kind:index */
    bool host_memory;   /* its addresses are host addresses: such devices share variables without copies */
    bool accelerator;   /* "all" prefers it to the CPU, and limits of accelerator memory apply to it */
    bool parallel;      /* it may run kernels in parallel, if their memory does not overlap */

    /* ---- mandatory: devices ---- */
    /* Fills all fields of `info` that it has, struct_size excepted: those of an open device, or, if `device` is NULL,
     * of device `index`. Returns TU_NOT_FOUND if there is no such device. */
    tu_status (*describe)(tu_device_instance *device, int index, tu_device_info *info);
    tu_status (*open)(const tu_open_options *options, tu_device_instance **device);
    void (*close)(tu_device_instance *device);

    /* ---- mandatory: memory. Any thread may call these, also while another launches. ---- */
    /* Allocates memory that the device computes on; or, with `on_host`, host memory that it copies fastest (pinned),
     * which the engine uses for what it copies in every step. TU_UNSUPPORTED: other host memory is as good. Addresses
     * are 64-byte aligned. */
    tu_status (*allocate)(tu_device_instance *device, bool on_host, size_t bytes, void **address);
    void (*release)(tu_device_instance *device, void *address);
    /* Copies between this device and the host, within this device, or, with the group of peers, from another device of
     * this kind. Without a queue, the copy is complete when this returns; the engine never copies memory that a
     * running kernel uses. With a queue, it comes after everything enqueued there, and the host memory does not change
     * until it is done; if that memory is not pinned, the function may wait for the copy. */
    tu_status (*copy)(tu_device_instance *device, tu_queue *queue, tu_memory to, tu_memory from,
                      size_t bytes);

    /* ---- mandatory: programs ---- */
    tu_status (*lower)(tu_device_instance *device, const tu_partition *partition, tu_plan **plan);
    void (*plan_free)(tu_device_instance *device, tu_plan *plan); /* after its executables */
    /* Binds the kernels of a plan. `queue` is NULL for a device without queues. */
    tu_status (*build)(tu_device_instance *device, tu_queue *queue, tu_plan *plan, const tu_binding *binding,
                       tu_executable **executable);
    void (*executable_free)(tu_device_instance *device, tu_executable *executable);
    /* Runs kernels order[first … first+count-1], one after another; an executable of build_collective has one kernel.
     * A device without queues returns when they are done, one with queues may return before. */
    tu_status (*launch)(tu_device_instance *device, tu_executable *executable, uint32_t first,
                        uint32_t count);

    /* ---- optional, each alone ---- */
    /* Returns TU_OK if the device supports a node, or TU_UNSUPPORTED with the reason as message ("it has no kernel for
     * …"). Without this function a device supports every operation, but custom operations, which use host memory, only
     * if its memory is the host's. lower never gets nodes that the device does not support. */
    tu_status (*supports)(tu_device_instance *device, const tu_graph *graph, uint32_t node);
    /* Returns the start time (CLOCK_MONOTONIC) and the duration, in seconds, of kernel order[position] in the latest
     * launch. The first call makes later launches measure. */
    tu_status (*times)(tu_device_instance *device, tu_executable *executable, uint32_t position,
                       double *start, double *seconds);
    /* For devices whose memory other processes use too: allocates `bytes` at once, for later allocations, and keeps
     * them while the device is open. Logical devices of one device share a reserve, the largest that any requested. */
    tu_status (*reserve)(tu_device_instance *device, uint64_t bytes);
    /* A call of the device timed out, and the engine waits no longer. From now on no function may wait for the device:
     * functions that free return at once and free nothing, others fail. */
    void (*abandon)(tu_device_instance *device);

    /* ---- optional group: queues, for devices whose launch returns early ---- */
    /* Makes a queue with events 0 … event_count-1. Queues of a device run in parallel. One thread launches in a queue;
     * others may copy, record and wait in it at the same time. */
    tu_status (*queue_new)(tu_device_instance *device, uint32_t event_count, tu_queue **queue);
    void (*queue_free)(tu_device_instance *device, tu_queue *queue); /* after its executables */
    /* Records an event after everything enqueued so far, instead of where it was recorded before. */
    tu_status (*record)(tu_queue *queue, uint32_t event);
    /* Delays what is enqueued later until an event of another queue, recorded before this call, has happened. An event
     * that was never recorded has happened. Both queues belong to devices of this kind. */
    tu_status (*wait)(tu_queue *queue, tu_queue *other, uint32_t event);
    /* Waits until an event, or everything enqueued so far (TU_ALL_EVENTS), has happened, for at most `timeout` seconds:
     * 0 does not wait, a negative number means no limit. Sets `*done`. Returns the first failure of what came before.
     * If everything does not end in time, it may also return TU_DEVICE and abandon the device. Any thread may call
     * it. */
    tu_status (*synchronize)(tu_queue *queue, uint32_t event, double timeout, bool *done);

    /* ---- optional group, with queues: peers, for devices whose memory is not the host's ---- */
    /* Lets kernels of this device read and write all memory of another device of its kind while both are open. Returns
     * TU_UNSUPPORTED with the reason if that is impossible. Called for each pair in both directions before every
     * program over both is built. Logical devices of one device always can. */
    tu_status (*peer_access)(tu_device_instance *device, tu_device_instance *other);
    /* Builds the part of one rank in a collective. All addresses belong to devices with peer access. When it is
     * launched, all ranks have computed their values, and no rank continues before all are done. `collective` is valid
     * only during the call, what its combinations and `processes` point to until the executable is freed.
     * With `processes` and without combinations, it connects the device to one of each other process, until the
     * executable is freed; `queue` is NULL. Returns TU_UNSUPPORTED, in all processes, with the reason, if one of
     * them cannot. Later collectives of these processes are built on the device that is connected. */
    tu_status (*build_collective)(tu_device_instance *device, tu_queue *queue,
                                  const tu_collective *collective, tu_executable **executable);

    /* ---- optional group, with queues: command lists as a whole ---- */
    /* Prepares a list for many steps. All its partitions are on devices of this kind. Returns TU_UNSUPPORTED with the
     * reason if it cannot execute the list; without `executable` it only checks that, before anything has an address
     * or an executable. `device` is that of the first queue, on whose thread lists are submitted. */
    tu_status (*build_list)(tu_device_instance *device, const tu_list_binding *binding,
                            tu_executable **executable);
    /* Executes a list for many steps. A step may start before the previous one has ended, as far as WAITs allow.
     * Returns when all is done, with the first failure; TU_DEVICE after a timeout, with a message that says how many
     * steps were done. The devices are then considered lost. */
    tu_status (*submit)(tu_device_instance *device, tu_executable *executable,
                        const tu_submission *submission);
} tu_device_api;

#ifdef __cplusplus
}
#endif
#endif
