/* Devices: what executes programs, and how other hardware plugs in.
 *
 * A device kind is a table of functions, tu_device_api. The engine owns graphs, placement, order and memory; a
 * device is given its part of a program, answers with the kernels it would run and the buffers they need (select),
 * is told where those buffers lie (build), and runs kernels in the order it was told (launch).
 *
 *     part of a graph --select--> tu_plan: buffers and kernels
 *                                    |   the engine orders kernels and gives every buffer an address
 *     tu_binding  -------build-----> the device binds its kernels to addresses, once
 *                       launch, launch, launch …
 *
 * A plug-in is a shared library that exports   const tu_device_api *tu_device_plugin(void);
 * Put its path into TUTTI_DEVICES (several, separated by ':'), or load it with tu_device_load(). libtutti_cuda.so is
 * loaded when it lies beside libtutti.so, or in the folder tutti/ there, unless TUTTI_CUDA is "off".
 *
 * Slots marked optional may be NULL. The interface grows by adding slots at the end: `struct_size` says how many
 * a device knows; TU_DEVICE_ABI changes only when an older device could not work at all.
 */
#ifndef TUTTI_DEVICE_H
#define TUTTI_DEVICE_H

#include <tutti/node.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TU_DEVICE_ABI 1

/* ---- For programs: which devices are there ------------------------------------------------------------------- */

typedef struct tu_device_info {
    size_t struct_size;
    const char *name;        /* "cpu:0" */
    const char *kind;        /* "cpu" */
    const char *description; /* for people: model, instruction sets, library versions */
    uint64_t memory_bytes;   /* 0: unknown */
    int cores;               /* 0: does not apply */
    const char *unusable;    /* NULL, or why it cannot be used and what to do */
} tu_device_info;
/* Describes device `index`; TU_NOT_FOUND past the last. The strings live until the next call in this thread. */
TU_API size_t tu_device_count(void);
TU_API tu_status tu_device(size_t index, tu_device_info *info);

/* Loads a plug-in; its devices are known from then on. Refuses one of another TU_DEVICE_ABI, by name. */
TU_API tu_status tu_device_load(const char *path);

/* ---- For devices: what one is given and answers ---------------------------------------------------------------- */

/* One device's part of a program. `nodes` are to be computed, in this order or any that respects the edges. An
 * edge from a node that is not among them is a leaf: a dense tensor that the engine provides. Inputs, constants,
 * variables, assignments, copies and all_reduce are the engine's affair and never among `nodes`. */
typedef struct tu_partition {
    size_t struct_size;
    const tu_graph *graph;
    uint32_t node_count;
    const uint32_t *nodes;
    uint32_t export_count;
    const tu_edge *exports; /* values that somebody outside reads: they must end up dense, in a buffer */
    /* Per node of the graph: how often a value changed devices, or was waited for (tu_after), on its way to it, at most;
     * pointwise nodes that only later pointwise ones read have the level of those. Kernels run in the order of their
     * highest level. A kernel with several results must not mix levels: the lower result might be what another
     * device waits for before it can send what the higher one needs. */
    const uint32_t *levels;
    /* Products of f32 may round their operands to tf32 (10 bits of fraction). A device without it computes in f32. */
    bool tf32;
} tu_partition;

/* ---- What select answers ---- */

typedef struct tu_buffer {
    size_t bytes;
    tu_edge value; /* the value it holds; node TU_NO_NODE: the device's own */
    bool dense;    /* canonical layout. Leaves and exports are; blocked layouts stay inside a part */
} tu_buffer;

typedef struct tu_kernel {
    const char *name;    /* for traces and tables: "conv2d+bias+relu" */
    uint32_t node_count; /* the nodes it computes; see tu_plan */
    const uint32_t *nodes;
    uint32_t read_count, write_count;
    const uint32_t *reads; /* buffers */
    const uint32_t *writes;
    const int32_t
        *in_place;    /* optional; per write: the place in `reads` whose memory it may take over, or -1 */
    size_t workspace; /* bytes for the time of the kernel */
    int64_t flops, bytes_moved; /* for tables; 0: unknown */
} tu_kernel;

/* Plans are checked, and one that cannot be is refused. Every node of the part is computed by a kernel, or by several (a
 * view, broadcast or fill that kernels look through, perhaps by none); every buffer is written by one kernel at most, and
 * is read only if one writes it or it holds a leaf; a dense buffer has its value's size and is the only one of that
 * value; every export has one. */
typedef struct tu_plan {
    size_t struct_size;
    uint32_t buffer_count, kernel_count;
    const tu_buffer *buffers;
    const tu_kernel *kernels;
} tu_plan;

/* Where things lie: given to build once, valid until the plan is freed. */
typedef struct tu_binding {
    size_t struct_size;
    const uint32_t *order;   /* kernel_count numbers: launch counts kernels in this order */
    void *const *buffers;    /* buffer_count addresses in the device's memory, 64-byte aligned */
    void *const *workspaces; /* kernel_count addresses; NULL where none was asked for */
    const uint64_t *seed;    /* host memory, read at launch */
} tu_binding;

typedef struct tu_device_instance tu_device_instance; /* the device's own */

/* ---- Many steps at once ---- */

/* What an input gets before each step: `bytes` from the host, or rows of a table that lies in the device's memory. */
typedef struct tu_repeat_feed {
    void *to; /* the input's buffer */
    size_t bytes;
    const void *host;  /* `bytes` for every step, or one batch for all steps; NULL: rows of `table` */
    bool same;         /* one for all steps */
    const void *table; /* rows of row_bytes, in the device's memory */
    const int64_t
        *rows; /* in host memory: bytes / row_bytes row numbers for every step, each within the table */
    size_t row_bytes;
    size_t stride; /* from a step's to the next one's: bytes of `host`, or numbers of `rows` */
} tu_repeat_feed;

typedef struct tu_repeat_fetch {
    const void *from; /* a buffer */
    size_t bytes;
    void *host; /* steps x bytes */
} tu_repeat_fetch;

typedef struct tu_repetition {
    size_t struct_size;
    uint32_t feed_count, fetch_count;
    const tu_repeat_feed *feeds;
    const tu_repeat_fetch *fetches;
} tu_repetition;

/* ---- Adding up between devices ---- */

/* One value of which each of several devices, the ranks, has a share: `in` and `out` are lists of an address for each rank;
 * both may be the same address. */
typedef struct tu_combine_segment {
    const void *const *in;
    void *const *out;
    size_t count; /* elements */
} tu_combine_segment;

/* Every `out` gets the sum of all `in`, added pairwise in the order of ranks: ((0 + 1) + (2 + 3)) + …. Half-precision
 * types are added in f32 and rounded once. The elements of all segments, one after another, are dealt out to the ranks:
 * `rank` does its part. */
typedef struct tu_combination {
    size_t struct_size;
    tu_dtype dtype; /* of all segments: f64, f32, bf16 or f16 */
    uint32_t ranks, rank;
    uint32_t segment_count;
    const tu_combine_segment *segments;
} tu_combination;

/* ---- Many steps of several devices ---- */

/* One device's part of a program whose steps several devices take together. */
typedef struct tu_joint_part {
    tu_device_instance *device;
    tu_plan *plan;
    tu_repetition what; /* what this part is fed before each step, and what is kept of it */
} tu_joint_part;

/* A step of all parts is a list of moves. Those of one part are taken one after another; parts, and copies between them, go
 * beside each other as far as WAIT lets them. */
typedef enum tu_joint_kind {
    TU_JOINT_LAUNCH, /* kernels first … first+count-1 of the part's order */
    TU_JOINT_COPY, /* `bytes` into the part's memory: behind the moves of part `other`, whose they are, before this one */
    TU_JOINT_COLLECTIVE, /* combinations, all ranks' parts of them: behind the moves of all their parts before this one */
    TU_JOINT_WAIT, /* moves of the part behind this one come after move `after`: a COPY from or to it, or a MEET */
    TU_JOINT_KEEP, /* once a part: its fetches are as they are to be kept. Only copies of the part's own follow */
} tu_joint_kind;

typedef struct tu_joint_move {
    tu_joint_kind kind;
    uint32_t part;
    uint32_t first, count; /* LAUNCH */
    uint32_t other;        /* COPY: the part that it comes from; the same part: one more of its moves */
    const void *from;
    void *to;
    size_t bytes;
    uint32_t after;             /* WAIT: the number of a move before it */
    uint32_t combination_count; /* MEET; `combine` says what each is */
    const tu_combination *combinations;
    const uint32_t *ranks; /* the part that each rank is; the first is `part` */
} tu_joint_move;

/* ---- The interface ------------------------------------------------------------------------------------------- */

typedef struct tu_open_options {
    size_t struct_size;
    int index;             /* which device of the kind: 0 in "cpu:0" */
    int part, parts;       /* logical devices: part 1 of 2 in "cpu:0.1" of "cpu:0/2"; parts 1: the whole */
    int threads;           /* 0: all the cores of the part */
    uint64_t memory_limit; /* bytes; 0: none */
    bool tune;             /* time candidate kernels and keep the best, instead of trusting heuristics */
    bool any_order;        /* also take kernels whose results differ in the last bits from run to run */
    int streams; /* for kernels beside each other, of devices that have them: 0 as many as pay, 1 none */
    bool
        alike; /* a part takes the kernels that the whole device would: bits do not hang on how many parts there are */
} tu_open_options;

typedef struct tu_device_api {
    uint32_t abi;       /* TU_DEVICE_ABI */
    size_t struct_size; /* sizeof(tu_device_api) */
    const char *kind;   /* "cpu": names are kind:index */
    bool
        host_memory; /* its addresses are the host's: variables are shared with other such devices in place */

    /* device */
    tu_status (*describe)(int index, tu_device_info *info); /* TU_NOT_FOUND past the last */
    tu_status (*open)(const tu_open_options *options, tu_device_instance **device);
    void (*close)(tu_device_instance *device);
    /* optional: called on the host thread that will launch, before it does. A device that shares a program with others,
     * or is a logical one (parts > 1), has a thread of the engine's own, and this is called once there: the place to pin
     * cores. Any other launches from the thread that called tu_run, and this is called in every run: that thread is the
     * user's and must be left as it was found, here and by launch. */
    tu_status (*attach)(tu_device_instance *device);

    /* memory: addresses the device computes on; 64-byte aligned. Moves are done when they return; they come from any
     * thread, one of them perhaps while another launches. */
    tu_status (*allocate)(tu_device_instance *device, size_t bytes, void **address);
    void (*release)(tu_device_instance *device, void *address);
    tu_status (*upload)(tu_device_instance *device, void *to, const void *host, size_t bytes);
    tu_status (*download)(tu_device_instance *device, void *host, const void *from, size_t bytes);
    /* optional: from another device's memory, of any kind; TU_UNSUPPORTED sends the copy through the host */
    tu_status (*copy)(tu_device_instance *device, void *to, tu_device_instance *other,
                      const struct tu_device_api *other_api, const void *from, size_t bytes);

    /* compiling */
    tu_status (*select)(tu_device_instance *device, const tu_partition *part, tu_plan **plan);
    tu_status (*build)(tu_device_instance *device, tu_plan *plan, const tu_binding *binding);
    void (*plan_free)(tu_device_instance *device, tu_plan *plan);

    /* running: kernels order[first … first+count-1], one after another. A device whose launch returns before they are
     * done must have synchronize, which returns when they are, and with the first failure of any of them. The engine
     * synchronizes on the launching thread (or waits for an event) before it lets another device fetch a value, before
     * variables change, and at the end of every run: nothing is downloaded, copied or uploaded over while a kernel that uses
     * it is under way, so a device need not order its moves behind its launches. */
    tu_status (*launch)(tu_device_instance *device, tu_plan *plan, uint32_t first, uint32_t count);
    tu_status (*synchronize)(tu_device_instance *device); /* optional: launch returns when all is done */

    /* events, optional all together with event_synchronize: for devices whose launch returns early. Recorded behind what
     * was launched so far; event_wait holds back what is launched afterwards. With them a value is fetched when its own
     * kernel is done, while later ones run; without, the engine synchronizes before a value leaves. */
    tu_status (*event_new)(tu_device_instance *device, void **event);
    void (*event_free)(tu_device_instance *device, void *event);
    tu_status (*event_record)(tu_device_instance *device, void *event);
    tu_status (*event_wait)(tu_device_instance *device, void *event);

    /* optional: seconds that kernel `place` of the order took in the latest launch */
    tu_status (*trace)(tu_device_instance *device, tu_plan *plan, uint32_t place, double *start,
                       double *seconds);

    /* optional: an opened device as it is, for tables: the threads of its loops (0: does not apply), and a line that its
     * user should know (NULL: nothing). The line lives as long as the device and is the same for all parts of one. */
    tu_status (*inspect)(tu_device_instance *device, int *threads, const char **notice);

    /* optional: all kernels of the order, `steps` times, without the engine in between: before each step its inputs are
     * filled, after each its results are kept. Returns when all is done, with the first failure. */
    tu_status (*repeat)(tu_device_instance *device, tu_plan *plan, uint32_t steps, const tu_repetition *what);
    /* optional: bytes that the device's context and libraries take beside what is planned, as far as it can tell */
    uint64_t (*overhead)(tu_device_instance *device);
    /* optional: whether the device can compute a node of a graph: TU_OK, or TU_UNSUPPORTED with the reason as message ("it
     * has no kernel for …"). Without it a device takes every operation, but a custom one, whose functions work on host
     * memory, only where its memory is the host's. What it does not take is placed elsewhere and never among the nodes that
     * select is given. */
    tu_status (*supports)(tu_device_instance *device, const tu_graph *graph, uint32_t node);
    /* optional, with the other events: returns when all that was launched before the event was recorded is done, with the
     * first failure. Called from other threads than the one that launches. */
    tu_status (*event_synchronize)(tu_device_instance *device, void *event);
    /* optional, for devices whose memory is not the host's: does this rank's part of a combination, behind what was launched
     * so far. All addresses are of devices of this kind and index, parts of one card, or of devices that `reach` each other.
     * What they hold is ready, and no rank goes on before all have synchronized. */
    tu_status (*combine)(tu_device_instance *device, const tu_combination *what);
    /* optional: `steps` steps of several parts of one kind of device, as repeat does of one. What a step brings to a part or
     * takes from it is not overwritten by the next before it was read. Called on the first part's launching thread; other
     * parts and moves belong to the first plan until that is built anew. TU_UNSUPPORTED: these devices cannot be joined, with
     * the reason; steps of 0 ask for that alone. */
    tu_status (*repeat_joint)(uint32_t part_count, const tu_joint_part *parts, uint32_t move_count,
                              const tu_joint_move *moves, uint32_t steps);
    /* optional, both together: memory of a host device that shares programs with this one. Between the two calls it stays
     * where it is, so that moves can go straight from it and to it, whichever device of this kind makes them. */
    tu_status (*pin)(tu_device_instance *device, void *host, size_t bytes);
    void (*unpin)(tu_device_instance *device, void *host);
    /* optional, with the events: begins an upload and records `event` behind it, without waiting for either; event_wait then
     * holds back what reads the bytes. The host's memory stays as it is until the event has happened. What a device cannot move
     * from where it lies, because it is not pinned, it may move before it returns. Called from the launching thread or
     * another, for different moves of one run from both. */
    tu_status (*upload_begin)(tu_device_instance *device, void *to, const void *host, size_t bytes,
                              void *event);
    /* optional, likewise: begins a download behind what event `after` was recorded behind, and records `event` behind it */
    tu_status (*download_begin)(tu_device_instance *device, void *host, const void *from, size_t bytes,
                                void *after, void *event);
    /* optional, with combine: lets kernels of this device read and write the memory of another of its kind, what it has and
     * what it will have, as long as both are open. TU_UNSUPPORTED, with the reason: they cannot. Asked before a program over
     * both is built, for each pair and both ways, and again for every program. */
    tu_status (*enable_peer_access)(tu_device_instance *device, tu_device_instance *other);
    /* optional, for devices whose memory other processes take from too: takes `bytes` at once, for what is allocated from
     * then on, and keeps them while the device is open. All parts of a device have one reserve: as much as any of them asked
     * for. */
    tu_status (*reserve)(tu_device_instance *device, uint64_t bytes);
    /* optional: what a step may take from now on; 0: any time. When none of those taken at once has ended for so many seconds,
     * repeat and repeat_joint return TU_DEVICE, with a message that says how far they came; synchronize returns it when what
     * was launched has not ended. The devices count as given up then. Where several take part in a run the engine keeps the
     * time itself. */
    void (*allow)(tu_device_instance *device, double seconds);
    /* optional: a call of the device has not come back in time, and is not waited for any longer. From now on nothing that
     * could wait for the device does: what frees returns at once and leaves everything where it is, other calls fail. */
    void (*give_up)(tu_device_instance *device);
    /* optional, with the events: whether an event has happened, without waiting for it, or the failure of what came before it.
     * With it and download_begin, who needs a value that leaves for the host watches for its end itself. Called from
     * other devices' threads, while this one's launch and move. */
    tu_status (*event_query)(tu_device_instance *device, void *event, bool *happened);
} tu_device_api;

#ifdef __cplusplus
}
#endif
#endif
