/* Devices execute programs. This header lists them and defines the interface of plug-ins for other hardware.
 *
 * A device kind is a table of functions, tu_device_api. The engine handles graphs, placement, order and memory. A
 * device gets its partition of a program, returns the kernels to run and the buffers they need (select), gets the
 * addresses of these buffers (build), and runs kernels in the engine's order (launch).
 *
 *     partition of a graph --select--> tu_plan: buffers and kernels
 *                                         |   the engine orders kernels and gives every buffer an address
 *     tu_binding  ------------build-----> the device binds its kernels to addresses, once
 *                            launch, launch, launch …
 *
 * A plug-in is a shared library that exports   const tu_device_api *tu_device_plugin(void); Put its path into
 * TUTTI_DEVICES (several, separated by ':'), or load it with tu_device_load(). The engine loads libtutti_cuda.so if
 * it is in the folder of libtutti.so, or in the folder tutti/ there, unless TUTTI_CUDA is "off".
 *
 * Functions marked optional may be NULL. The interface grows by new functions at the end; by `struct_size` the engine
 * determines which functions a device has. TU_DEVICE_ABI changes only if older devices cannot work any more.
 */
#ifndef TUTTI_DEVICE_H
#define TUTTI_DEVICE_H

#include <tutti/node.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TU_DEVICE_ABI 3

/* ---- For programs: list of devices -------------------------------------------------------------------------- */

typedef struct tu_device_info {
    size_t struct_size;
    const char *name;        /* "cpu:0" */
    const char *kind;        /* "cpu" */
    const char *description; /* model, instruction sets, library versions, human-readable */
    uint64_t memory_bytes;   /* 0: unknown */
    int cores;               /* 0: it has none */
    const char *unusable;    /* NULL, or why it cannot be used and what to do */
} tu_device_info;
/* Returns the number of devices of all kinds. */
TU_API size_t tu_device_count(void);
/* Describes device `index`. Fails with TU_NOT_FOUND from the count on. The strings live until the next call in this
 * thread. */
TU_API tu_status tu_device(size_t index, tu_device_info *info);

/* Loads a plug-in and adds its devices. Fails if its TU_DEVICE_ABI is another one. */
TU_API tu_status tu_device_load(const char *path);

/* ---- For devices: arguments and results ------------------------------------------------------------------------ */

/* One device's partition of a program: the nodes that it computes, in this order or another that respects the edges.
 * An edge from any other node is a leaf: a dense tensor that the engine provides. The engine handles inputs,
 * constants, variables, assignments, copies and all_reduce; they are never among `nodes`. */
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
} tu_partition;

/* ---- The result of select ---- */

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
} tu_plan;

/* Addresses for build, valid until the plan is freed. */
typedef struct tu_binding {
    size_t struct_size;
    const uint32_t *order;   /* kernel_count kernel indices; launch runs a range of this list */
    void *const *buffers;    /* buffer_count addresses in the device's memory, 64-byte aligned */
    void *const *workspaces; /* kernel_count addresses; NULL if the kernel needs none */
    const uint64_t *seed;    /* host memory, read at launch */
} tu_binding;

typedef struct tu_device_instance tu_device_instance; /* defined by the device */

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
 * (tu_submit_part.buffers has all). */
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

/* One value of a collective. `in` and `out` have one address per rank; both may be the same address. */
typedef struct tu_combine_segment {
    const void *const *in;
    void *const *out;
    size_t count; /* elements */
} tu_combine_segment;

/* An all-reduce: every `out` becomes the sum of all `in`, added pairwise in the order of ranks: ((0 + 1) + (2 + 3)) +
 * …. bf16 and f16 are added in f32 and rounded once. The elements of all segments are divided between the ranks;
 * `rank` computes its slice. */
typedef struct tu_combination {
    size_t struct_size;
    tu_dtype dtype; /* of all segments: f64, f32, bf16 or f16 */
    uint32_t ranks, rank;
    uint32_t segment_count;
    const tu_combine_segment *segments;
} tu_combination;

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

/* A partition. Idle partitions, which have no queue, have no device. */
typedef struct tu_submit_part {
    tu_device_instance *device;
    tu_plan *plan;
    void *const *buffers; /* addresses, by buffer */
} tu_submit_part;

/* A collective whose ranks are partitions of the list. */
typedef struct tu_submit_collective {
    const uint32_t *partitions; /* of each rank */
    uint32_t combination_count;
    const tu_combination *combinations; /* `rank` is not set */
} tu_submit_collective;

typedef struct tu_submission {
    size_t struct_size;
    const tu_command_list *list;
    const tu_submit_part *parts;             /* per partition */
    const tu_submit_collective *collectives; /* per collective */
    const tu_submit_feed *feeds;             /* per input */
    void *const *fetches;                    /* per result: steps x bytes in host memory; NULL: not needed */
    uint32_t steps;
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
    int streams;
    /* kernels that may run in parallel; 0: chosen automatically; 1: one */ /* Use the whole device's kernels, so that the bits do not depend on the number of logical devices. */
    bool whole_device_kernels;
} tu_open_options;

typedef struct tu_device_api {
    uint32_t abi;       /* TU_DEVICE_ABI */
    size_t struct_size; /* sizeof(tu_device_api) */
    const char *kind;   /* "cpu": names are kind:index */
    bool host_memory;   /* its addresses are host addresses: such devices share variables without copies */

    /* device */
    /* Fills all fields of info that it has, struct_size excepted. Returns TU_NOT_FOUND if there is no such device. */
    tu_status (*describe)(int index, tu_device_info *info);
    tu_status (*open)(const tu_open_options *options, tu_device_instance **device);
    void (*close)(tu_device_instance *device);
    /* optional: called on the thread that will launch, before it does. If a program has several devices, or the
     * device is a logical one (logical_count > 1), that is a thread of the engine, and this is called once: pin cores
     * here. Else it is the thread that called tu_run, and this is called in every run: neither it nor launch may
     * change that thread. */
    tu_status (*attach)(tu_device_instance *device);

    /* memory: addresses that the device computes on, 64-byte aligned. Copies are complete when these return. Any
     * thread may call them, also while another launches. */
    tu_status (*allocate)(tu_device_instance *device, size_t bytes, void **address);
    void (*release)(tu_device_instance *device, void *address);
    tu_status (*upload)(tu_device_instance *device, void *to, const void *host, size_t bytes);
    tu_status (*download)(tu_device_instance *device, void *host, const void *from, size_t bytes);
    /* optional: copies from another device of any kind. TU_UNSUPPORTED: the engine copies through the host */
    tu_status (*copy)(tu_device_instance *device, void *to, tu_device_instance *other,
                      const struct tu_device_api *other_api, const void *from, size_t bytes);

    /* compiling */
    tu_status (*select)(tu_device_instance *device, const tu_partition *partition, tu_plan **plan);
    tu_status (*build)(tu_device_instance *device, tu_plan *plan, const tu_binding *binding);
    void (*plan_free)(tu_device_instance *device, tu_plan *plan);

    /* running: runs kernels order[first … first+count-1], one after another. If launch returns before they are done,
     * the device must have synchronize, which returns when they are, with the first failure. The engine synchronizes
     * on the launching thread (or waits for an event) before another device reads a value, before variables change,
     * and at the end of every run. It never copies memory that a running kernel uses, so a device need not order
     * copies after launches. */
    tu_status (*launch)(tu_device_instance *device, tu_plan *plan, uint32_t first, uint32_t count);
    tu_status (*synchronize)(
        tu_device_instance *device); /* optional if launch returns when all kernels are done */

    /* events, all optional together with event_synchronize, for devices whose launch returns early. event_record
     * comes after everything launched so far; event_wait delays later launches. With events another device can read a
     * value as soon as its kernel is done; without, the engine synchronizes first. */
    tu_status (*event_new)(tu_device_instance *device, void **event);
    void (*event_free)(tu_device_instance *device, void *event);
    tu_status (*event_record)(tu_device_instance *device, void *event);
    tu_status (*event_wait)(tu_device_instance *device, void *event);

    /* optional: returns the start time and the duration, in seconds, of kernel order[position] in the latest launch */
    tu_status (*trace)(tu_device_instance *device, tu_plan *plan, uint32_t position, double *start,
                       double *seconds);

    /* optional: reports the threads of an opened device's loops (0: it has none), and a line for the user (NULL:
     * none). The line lives as long as the device and is the same for all its logical devices. */
    tu_status (*inspect)(tu_device_instance *device, int *threads, const char **notice);

    /* optional: returns the bytes of the device's context and libraries, which no plan contains */
    uint64_t (*overhead)(tu_device_instance *device);
    /* optional: returns TU_OK if the device supports a node, or TU_UNSUPPORTED with the reason as message ("it has no
     * kernel for …"). Without this function a device supports every operation, but custom operations, which use host
     * memory, only if its memory is the host's. select never gets nodes that the device does not support. */
    tu_status (*supports)(tu_device_instance *device, const tu_graph *graph, uint32_t node);
    /* optional, with the other events: returns when everything launched before the event was recorded is done, with
     * the first failure. Called from threads other than the launching one. */
    tu_status (*event_synchronize)(tu_device_instance *device, void *event);
    /* optional, for devices whose memory is not the host's: computes this rank's slice of an all-reduce, after
     * everything launched so far. All addresses belong to logical devices of one GPU, or to devices with peer access.
     * Their values are complete, and no rank continues before all have synchronized. */
    tu_status (*combine)(tu_device_instance *device, const tu_combination *what);
    /* optional: executes a list for many steps, all of whose partitions are on devices of this kind. A step may start
     * before the previous one has ended, as far as WAITs allow. Returns when all is done, with the first failure.
     * What it keeps between calls belongs to the plan of the first partition with a queue, until that is built again;
     * then buffers and collectives have other addresses. Called on the launching thread of that partition. Returns
     * TU_UNSUPPORTED with the reason if it cannot execute the list; with `steps` 0 it only checks that (nothing has
     * an address then). */
    tu_status (*submit)(const tu_submission *submission);
    /* optional, both together: pin memory of a CPU device that is in the same program, so that devices of this kind
     * can copy from it and to it directly. The memory stays valid between the two calls. */
    tu_status (*pin)(tu_device_instance *device, void *host, size_t bytes);
    void (*unpin)(tu_device_instance *device, void *host);
    /* optional, with the events: starts an upload and records `event` after it, without waiting. event_wait delays
     * what reads the bytes. The host memory does not change until the event has happened. If the memory is not
     * pinned, the device may copy it before it returns. Called from the launching thread and others, also for copies
     * of one run. */
    tu_status (*upload_begin)(tu_device_instance *device, void *to, const void *host, size_t bytes,
                              void *event);
    /* optional, with the events: starts a download after event `after`, and records `event` after the download */
    tu_status (*download_begin)(tu_device_instance *device, void *host, const void *from, size_t bytes,
                                void *after, void *event);
    /* optional, with combine: lets kernels of this device read and write all memory of another device of its kind
     * while both are open. Returns TU_UNSUPPORTED with the reason if that is impossible. Called for each pair in both
     * directions before every program over both is built. */
    tu_status (*enable_peer_access)(tu_device_instance *device, tu_device_instance *other);
    /* optional, for devices whose memory other processes use too: allocates `bytes` at once, for later allocations,
     * and keeps them while the device is open. Logical devices of one device share a reserve, the largest that any
     * requested. */
    tu_status (*reserve)(tu_device_instance *device, uint64_t bytes);
    /* optional: sets the timeout of a step; 0: none. submit returns TU_DEVICE if no step ends for
     * that many seconds, with a message that says how many were done; synchronize returns it if launched kernels do
     * not end. The devices are then considered lost. In a run of several devices the engine checks the timeout. */
    void (*set_timeout)(tu_device_instance *device, double seconds);
    /* optional: a call of the device timed out, and the engine waits no longer. From now on no function may wait for
     * the device: functions that free return at once and free nothing, others fail. */
    void (*abandon)(tu_device_instance *device);
    /* optional, with the events: reports whether an event has happened, without waiting, or the failure of what came
     * before it. With this and download_begin, the reader of a value polls for the end of a download. Called from
     * threads of other devices while this one launches and copies. */
    tu_status (*event_query)(tu_device_instance *device, void *event, bool *happened);
} tu_device_api;

#ifdef __cplusplus
}
#endif
#endif
