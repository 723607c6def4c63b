/* Running graphs: states hold variables, programs compute.
 *
 * A state owns what outlives a run: variables under their scoped names, the seed, the ordinal of the next sample.
 * A program is compiled from a graph for a set of results. Programs and states are apart: the training step, the
 * evaluation of a smaller batch and a user's own probe are three programs over one state.
 *
 *     tu_program *step;
 *     tu_state *state;
 *     tu_compile(g, &step, .fetch = &loss, .fetch_count = 1, .updates = true);
 *     tu_state_new(g, &state, .seed = 1);
 *     float value;
 *     tu_run(step, state, 2, (tu_feed[]){{x, images}, {y, labels}}, (void *[]){&value});
 *
 * Threads. Calls may come from any thread; tu_message() speaks of the calling thread's own latest failure, wherever
 * in a run it arose.
 * - Several threads may compile at once, also from one graph, as long as nobody adds to that graph.
 * - tu_run and tu_run_many may be called from several threads at once, with one program or many. A device serves one
 *   call at a time: calls that have a device in common (same name, threads, tuning and order) wait for each other, others
 *   run beside each other.
 * - A state has no lock of its own. Runs over one state may be made at once only where each waits for every other by the
 *   rule above. All other calls with a state, reading ones too, must not be made while a run over it is under way.
 * - A program may be asked what it needs and does, or freed, while no run of it is under way.
 */
#ifndef TUTTI_RUN_H
#define TUTTI_RUN_H

#include <tutti/device.h>
#include <tutti/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_state tu_state;
typedef struct tu_program tu_program;

/* ---- State -------------------------------------------------------------------------------------------------- */

typedef struct tu_state_options {
    size_t struct_size;
    uint64_t seed;
} tu_state_options;
/* A state with all variables of the graph, set by their initialisers: the same seed gives the same bits. */
TU_API tu_status tu_state_new_with(const tu_graph *graph, tu_state **state, const tu_state_options *options);
#define tu_state_new(graph, state, ...)                                                                      \
    tu_state_new_with(graph, state, TU_OPTIONS(tu_state_options, __VA_ARGS__))
TU_API void tu_state_free(tu_state *state);

/* Adds the variables of another graph that the state does not have yet; those it has must agree in type. */
TU_API tu_status tu_state_extend(tu_state *state, const tu_graph *graph);

TU_API size_t tu_state_count(const tu_state *state);
/* Name and type of variable `index`, in the order made. */
TU_API tu_status tu_state_variable(const tu_state *state, size_t index, const char **name, tu_type *type);
/* Copies a variable out or in; `bytes` must be its size. */
TU_API tu_status tu_state_get(const tu_state *state, const char *name, void *data, size_t bytes);
TU_API tu_status tu_state_set(tu_state *state, const char *name, const void *data, size_t bytes);

/* The ordinal of the next sample: what the input "sample_ordinal" counts from when it is not fed. A run of a
 * program with updates moves it on by the number of samples. */
TU_API int64_t tu_state_sample(const tu_state *state);
TU_API void tu_state_set_sample(tu_state *state, int64_t ordinal);

/* SHA-256, in hexadecimal, of the names, element types and values of all variables, in the order made. */
TU_API tu_status tu_state_digest(const tu_state *state, char digest[TU_DIGEST_TEXT]);

/* ---- State files --------------------------------------------------------------------------------------------
 *
 * The variables of a state under their names, in a safetensors file, which PyTorch, NumPy and others read and write too.
 *
 *     tu_state_save(state, "net.safetensors");
 *     tu_state_load(state, "net.safetensors");
 *
 *     tu_load_report *report;                       // from a net with another last layer: load what matches
 *     tu_state_load(state, "other.safetensors", .partial = true, .report = &report);
 *     puts(tu_load_report_text(report));
 *     tu_load_report_free(report);
 */
typedef struct tu_state_save_options {
    size_t struct_size;
    /* Patterns of names, "conv*,*bias": a star stands for any characters. Only variables that fit `only` (NULL: all) and do
     * not fit `except` are saved. */
    const char *only, *except;
} tu_state_save_options;
/* Saves also the seed and the ordinal of the next sample. An existing file is replaced by the whole new one, or left as it
 * is. */
TU_API tu_status tu_state_save_with(const tu_state *state, const char *path,
                                    const tu_state_save_options *options);
#define tu_state_save(state, path, ...)                                                                      \
    tu_state_save_with(state, path, TU_OPTIONS(tu_state_save_options, __VA_ARGS__))

typedef enum tu_load_outcome {
    TU_LOAD_MATCHED,    /* loaded, unless the whole file was refused */
    TU_LOAD_MISSING,    /* the state has the variable, the file has not: it stays as it was */
    TU_LOAD_EXTRA,      /* the file has the tensor, the state has not: it is left out */
    TU_LOAD_MISMATCHED, /* both have it, of another type or shape: it stays as it was */
} tu_load_outcome;
typedef struct tu_load_report tu_load_report;

typedef struct tu_state_load_options {
    size_t struct_size;
    bool partial;              /* load what matches; else missing and mismatched variables are refused */
    bool convert;              /* between f32, f64, bf16 and f16, rounded; else another type is a mismatch */
    const char *only, *except; /* as in saving: other variables stay as they were, and are not reported */
    tu_load_report *
        *report; /* where to put the report, also of a file that is refused because it does not fit; freed
                              * by the caller. NULL: none. It is NULL where the file could not be read. */
} tu_state_load_options;
/* Sets variables to the tensors of their names. Everything is compared first: a file that is refused changes nothing. TU_INVALID,
 * with names and types in the message, where it does not fit, or nothing in it does; TU_CORRUPT for a damaged file. A file
 * may hold more than the state has, so a program for inference loads what a training saved. Files from other programs and
 * checkpoints of training runs can be loaded too. The seed and the ordinal of the next sample are loaded where the file
 * has them and neither .partial, .only nor .except is given. */
TU_API tu_status tu_state_load_with(tu_state *state, const char *path, const tu_state_load_options *options);
#define tu_state_load(state, path, ...)                                                                      \
    tu_state_load_with(state, path, TU_OPTIONS(tu_state_load_options, __VA_ARGS__))

TU_API size_t tu_load_report_count(const tu_load_report *report, tu_load_outcome outcome);
/* Name and types of entry `index` of an outcome; each may be NULL. Where state or file has no such variable, or it is of a
 * type that Tutti does not have, its type has rank -1. Names live as long as the report. */
TU_API tu_status tu_load_report_entry(const tu_load_report *report, tu_load_outcome outcome, size_t index,
                                      const char **name, tu_type *in_state, tu_type *in_file);
/* One line: how many match, and the first names of each other outcome. Lives as long as the report. */
TU_API const char *tu_load_report_text(tu_load_report *report);
TU_API void tu_load_report_free(tu_load_report *report);

/* ---- Programs ----------------------------------------------------------------------------------------------- */

/* A user's function over the nodes of a graph, as the passes have simplified it: the name of a device, or NULL to leave the
 * node to others. tu_node_operation and its like, of device.h, tell what the node is. */
typedef const char *(*tu_place_by)(const tu_graph *graph, uint32_t node, void *context);

/* The devices of a program are a list of names with commas: "cpu:0"; "cpu:0/2", a processor as two devices with half of
 * its cores each; "ref". "all" means the GPUs if there are any, else the CPU; to GPUs meant so, a CPU is added when there is
 * something that they do not take.
 *
 * Which operation goes where: the first of `place`, `place_by` and tu_with_device that speaks of it counts. The rest goes to
 * a GPU if one is listed, else to the first device; of several such devices, to the one that holds most bytes of its inputs.
 * An operation that its device does not take goes to the nearest one that does. tu_program_placement tells what was decided,
 * and why. */
typedef struct tu_compile_options {
    size_t struct_size;
    const char *devices;   /* NULL: "all" */
    int threads;           /* of each CPU device; 0: all its cores */
    uint64_t memory_limit; /* bytes on each device; 0: what it has. What does not fit is refused here */
    /* Seconds a step of several devices or of a GPU may take before it fails and says what is late; 0: 600. A processor
     * alone has no timeout. */
    double timeout;
    const tu_value *fetch; /* the results of a run, in this order */
    size_t
        fetch_count; /* how many there are: a list without its count is refused, and a count without a list */
    bool updates;    /* also run every assignment of the graph; see no_updates */
    /* Of products and activations: "bf16" or "f16"; "tf32": as built, but devices that have it may round the operands of
     * products to 10 bits of fraction; NULL, "f32": as built. */
    const char *precision;
    bool plan_only; /* to look at, also when it does not fit: such a program cannot be run */
    /* For devices whose kernels are a library's to choose: to time candidates once and keep the best, where heuristics
     * would choose; and also to take kernels whose results differ in the last bits from run to run. */
    bool tune_kernels, any_order;
    /* Of a GPU: how many kernels may run beside each other; 0: as pays, 1: one after another. The bits are the same. */
    int streams;
    const char
        *place; /* patterns of names with devices, "conv*=gpu:1,local*=cpu:0": the first that fits counts, for
                          gradients of what it names too */
    tu_place_by place_by;
    void *place_context;   /* of place_by */
    bool strict_placement; /* an operation that its device does not take is an error */
    /* How several devices share one batch. NULL, "single": placement decides. "mirrored": a replica of the network on each
     * device, each with the variables and a part of every batched input; gradients are summed between them and every
     * replica makes the same update. "central": the variables are on one device (`central`), which sends them to the
     * replicas, sums the gradients they send back and updates once. Feeds, fetches and the state are the same for all. */
    const char *strategy;
    const char *central; /* NULL: the first CPU of the list, or one opened for it */
    /* Cuts the batch into so many parts whatever the number of devices, which must divide it: each part is computed by itself
     * (batch-norm too), on one thread of a processor, and sums are added up in one order, so the bits do not depend on the
     * number of devices. 0: off. */
    int invariant;
    /* Gradients travel between devices as bf16. */
    bool bf16_gradients;
    uint64_t gpu_memory_limit; /* bytes on each GPU; of this and memory_limit, the smaller counts there */
    /* Bytes that every GPU of the list gives at once, and keeps for this process until the last program and state on it are
     * freed: what programs need comes out of these first. Logical parts of a card share them. 0: memory is taken as programs
     * first run. */
    uint64_t gpu_memory_reserve;
    /* Leave the variables as they are, though the graph assigns some: a probe of a training graph. A graph that assigns
     * trainable variables, as an optimizer does, is refused when neither `updates` nor this is given and none of these
     * assignments is fetched: such a program would train nothing. Assignments of frozen variables alone, as those of
     * batch normalisation's running statistics, need neither. */
    bool no_updates;
} tu_compile_options;
/* Fails with the graph's first mistake, if one was made. The graph must outlive the program and grow no more. A program
 * that does not fit its devices is refused with TU_NO_MEMORY: tu_program_peak of one made with plan_only tells why. */
TU_API tu_status tu_compile_with(tu_graph *graph, tu_program **program, const tu_compile_options *options);
#define tu_compile(graph, program, ...)                                                                      \
    tu_compile_with(graph, program, TU_OPTIONS(tu_compile_options, __VA_ARGS__))
TU_API void tu_program_free(tu_program *program);

typedef struct tu_feed {
    tu_value input;
    const void *data; /* dense, row-major, of the input's type */
} tu_feed;

/* One run: reads feeds and variables, writes fetches[i] (dense, of fetch i's type; NULL to drop it), then applies
 * the assignments. A run that fails changes nothing. Every input is fed once. A program without variables needs no state:
 * with NULL it runs as over a new one, of seed 0. */
TU_API tu_status tu_run(tu_program *program, tu_state *state, size_t feed_count, const tu_feed *feeds,
                        void *const *fetches);

/* ---- Many steps in one call --------------------------------------------------------------------------------- */

/* Rows that inputs are fed from: the images of a set, mapped from a file. A device that takes many steps at once keeps a
 * copy in its own memory, made when it first reads from it, and picks the rows of every batch there. */
typedef struct tu_table tu_table;
/* `rows` rows of `row_bytes`, one after another. `data` stays the caller's and must outlive the table. */
TU_API tu_status tu_table_new(const void *data, size_t row_bytes, int64_t rows, tu_table **table);
/* Gives back what devices keep of it. No run that reads it may be under way. */
TU_API void tu_table_free(tu_table *table);

/* What an input gets in each of `steps` steps: batches one after another in `data`, or rows of a table, by their numbers:
 * steps x rows of a batch. With `same`, one batch (or the rows of one) serves all steps. */
typedef struct tu_feed_many {
    tu_value input;
    const void *data;
    tu_table *table;
    const int64_t *rows;
    bool same;
} tu_feed_many;

/* As `steps` runs one after another, with the same results and the same state after them. Writes into fetches[i] all its
 * results, one after another (NULL to drop them). A device that can (tu_program_many) takes the steps without the host in
 * between, several of one kind take them together. When a step fails, those before it have taken effect, and the message says how many these are.
 *
 *     tu_table *set;
 *     int64_t order[100 * 128]; // which images, in every step
 *     float losses[100];
 *     tu_table_new(images, 32 * 32 * 3, 50000, &set);
 *     tu_run_many(program, state, 100, 2,
 *                 (tu_feed_many[]){{.input = x, .table = set, .rows = order}, {.input = y, .data = labels}},
 *                 (void *[]){losses});
 */
TU_API tu_status tu_run_many(tu_program *program, tu_state *state, size_t steps, size_t feed_count,
                             const tu_feed_many *feeds, void *const *fetches);

typedef struct tu_many_report {
    bool at_once;         /* the devices take many steps in one call; else the engine makes a run of each */
    uint64_t table_bytes; /* of tables in the device's memory that the latest call read from */
    uint64_t gathered_bytes; /* of rows that the latest call put together on the host instead */
    const char *notice; /* NULL, or why steps or rows go through the host; lives until the next tu_run_many */
    bool straight;      /* rows go from their table straight into the inputs, by the device's own threads */
} tu_many_report;
/* How tu_run_many does its work with this program. */
TU_API tu_status tu_program_many(const tu_program *program, tu_many_report *report);

/* ---- What a program needs and does ------------------------------------------------------------------------- */

typedef struct tu_memory_report {
    const char *device;
    uint64_t
        scratch_bytes; /* activations, gradients, workspaces: the planned peak, shared between programs */
    uint64_t constant_bytes;
    uint64_t variable_bytes; /* of the variables that live there */
    uint64_t overhead_bytes; /* taken by the device's context and libraries, as far as it can tell */
    uint64_t need_bytes;     /* the four above together: what the program needs there */
    uint64_t table_bytes;    /* of tables that lie there now: tu_run_many */
    uint64_t taken_bytes; /* what was really allocated for scratch and constants, once the program has run */
    uint64_t
        limit_bytes; /* what it may take: the limit it was compiled with, or the device's memory; 0: unknown */
} tu_memory_report;
/* Memory of the program on its device number `index`; TU_NOT_FOUND past the last. */
TU_API tu_status tu_program_memory(const tu_program *program, size_t index, tu_memory_report *report);

typedef enum tu_memory_kind {
    TU_MEMORY_TENSOR,    /* an input, an activation, a gradient */
    TU_MEMORY_WORKSPACE, /* of a kernel, or where a value waits that is exchanged between variables */
    TU_MEMORY_VARIABLE,
    TU_MEMORY_CONSTANT,
    TU_MEMORY_OVERHEAD, /* the device's context and libraries */
    TU_MEMORY_GAP,      /* between tensors whose lifetimes do not fit into each other */
} tu_memory_kind;

typedef struct tu_memory_item {
    tu_memory_kind kind;
    const char *
        name; /* of the node that makes it; of the kernel, for its workspace; "" for gaps; what it is, for overhead */
    tu_type type;   /* of a tensor, variable or constant */
    uint64_t bytes; /* that it takes, alignment included */
} tu_memory_item;
/* What lies in the memory of the program's device number `index` when most does, heaviest first: writes up to
 * `capacity` items, returns how many there are. Their bytes add up to scratch, constants, variables and overhead of
 * tu_program_memory. */
TU_API size_t tu_program_peak(const tu_program *program, size_t index, size_t capacity,
                              tu_memory_item *items);

typedef struct tu_device_report {
    const char *device; /* "cpu:0.1" */
    int threads;        /* of its parallel loops; 0: not known, or does not apply */
    const char *
        notice; /* NULL, or a line for the user: what makes this device slower than it looks, or why it is the CPU
                         * where there is an NVIDIA card; until the next call in this thread */
    const char *word; /* what a list of devices says to mean it alone: "cpu:0.1/2" */
} tu_device_report;
/* The program's device number `index`, in the order of the list it was compiled for; TU_NOT_FOUND past the last. */
TU_API tu_status tu_program_device(const tu_program *program, size_t index, tu_device_report *report);

typedef struct tu_placement {
    const char *node, *operation; /* name and operation; "copy" brings a value from another device */
    tu_type type;                 /* of its first output */
    const char *device;
    const char *reason;  /* why it is there */
    const char *refused; /* NULL, or the devices that would not have it, each with its reason */
    bool moved;          /* it is not where it was told to be, or on a device that was added for it */
    uint64_t bytes_in;   /* that it reads of values copied from other devices; of a copy: what it brings */
    uint64_t bytes_out;  /* of its values that are copied to other devices, once for each */
    const char *from;    /* of a copy: the device it comes from; else NULL */
    const char *way;     /* of a copy between two cards: "peer to peer", or "through the host"; else NULL */
} tu_placement;
/* Where operation number `index` of the program is computed, in the order of the graph; TU_NOT_FOUND past the last. */
TU_API tu_status tu_program_placement(const tu_program *program, size_t index, tu_placement *placement);

typedef struct tu_placement_totals {
    size_t operations, copies, moved;
    uint64_t copied_bytes; /* between devices, in one run */
    /* NULL, or a line for the user: what was moved, and why; or which pattern fits nothing. Lives as long as the program. */
    const char *notice;
} tu_placement_totals;
TU_API tu_status tu_program_placed(const tu_program *program, tu_placement_totals *totals);

/* Holds the program to a placement that was written down. Where there is no file `path`, or with `update`, it is written:
 * JSON, an operation a line. Else TU_INVALID tells of a placement that has drifted, and `*diff` (NULL: none; freed with
 * tu_bytes_free) of every difference, a line each: "  - conv1/conv2d gpu:0", "  + conv1/conv2d cpu:0". `diff` may be NULL. */
TU_API tu_status tu_program_lock(const tu_program *program, const char *path, bool update, char **diff);

/* Kernels in the order they run, one line each: device, name, operations covered, bytes. */
TU_API tu_status tu_program_print(const tu_program *program, FILE *out);

typedef struct tu_kernel_report {
    const char *device, *kernel;
    const char *node; /* the name of the first operation it covers */
    uint32_t node_count;
    int64_t flops; /* of those operations */
    int64_t bytes; /* read and written, each buffer once */
    uint64_t workspace_bytes;
    double seconds; /* in the latest run; 0: not run yet, or the device does not say */
} tu_kernel_report;
/* Kernel number `index` of the program, device after device, in the order they run; TU_NOT_FOUND past the last. */
TU_API tu_status tu_program_kernel(const tu_program *program, size_t index, tu_kernel_report *report);

typedef struct tu_copy_report {
    const char *value; /* the name of the node that makes it */
    const char *from, *to;
    uint64_t bytes;
} tu_copy_report;
/* Copy number `index` of those between devices that every run makes; TU_NOT_FOUND past the last. */
TU_API tu_status tu_program_copy(const tu_program *program, size_t index, tu_copy_report *report);

/* What devices sum up together in every run, each bringing a share: collectives in the order in which they are held. */
typedef struct tu_collective_report {
    int64_t number;
    uint32_t ranks;    /* devices that meet */
    uint32_t values;   /* that each brings */
    const char *value; /* the first of them */
    uint64_t bytes;    /* of all that one device brings */
    bool through_host; /* the devices do not reach each other's memory */
    bool peer_to_peer; /* they do, and are not parts of one */
} tu_collective_report;
/* Collective `index`; TU_NOT_FOUND past the last. */
TU_API tu_status tu_program_collective(const tu_program *program, size_t index, tu_collective_report *report);

/* ---- When everything happens ---------------------------------------------------------------------------------- */

/* From now on notes when each kernel, copy and wait of the program's runs begins and ends, and forgets what was noted
 * before. Steps of tu_run_many are taken one at a time meanwhile. A program that is not traced pays nothing. A run whose
 * times a device cannot tell any more fails, though its step is taken.
 *
 *     tu_program_trace_begin(program);
 *     for (int i = 0; i < 10; i++) tu_run(program, state, 0, NULL, NULL);
 *     tu_program_trace_end(program);
 *     tu_trace_save(1, &program, "trace.json"); // for ui.perfetto.dev
 *     tu_trace_summary(program, stdout);
 */
TU_API tu_status tu_program_trace_begin(tu_program *program);
/* What was noted stays, to be looked at. */
TU_API void tu_program_trace_end(tu_program *program);

/* Ends the tracing of programs and writes what was noted of them as JSON in the trace event format of Chrome and Perfetto:
 * a row for the runs, and for every device one for its kernels and one for what is copied to it. */
TU_API tu_status tu_trace_write(size_t count, tu_program *const *programs, FILE *out);

/* The same into a file, as a whole or not at all. */
TU_API tu_status tu_trace_save(size_t count, tu_program *const *programs, const char *path);

typedef struct tu_trace_report { /* seconds, of all traced runs together */
    const char *device;
    double runs;            /* from the first feed to the last update */
    double computing;       /* in kernels */
    double copying;         /* in copies from other devices */
    double overlapped;      /* of these and of `collective`, while a kernel ran here */
    double lost_to_copies;  /* waiting for a copy under way */
    double waiting;         /* waiting for others to compute */
    uint64_t arrived_bytes; /* copied here from other devices */
    double collective;      /* adding up its share of what devices sum up together */
    double gathering;       /* waiting for the others there */
    uint64_t met_bytes;     /* brought to be summed up */
    double feeding;         /* in filling its inputs */
} tu_trace_report;
/* Device number `index` of a traced program; TU_NOT_FOUND past the last. */
TU_API tu_status tu_trace_device(tu_program *program, size_t index, tu_trace_report *report);
/* Ends the tracing and prints for every device how much of the time it computed and what it waited for, the bytes copied
 * between each two, and the critical path: the kernels and copies that the end of a run hung on, heaviest first. */
TU_API tu_status tu_trace_summary(tu_program *program, FILE *out);

typedef struct tu_graph_after_options {
    size_t struct_size;
    const char
        *pass; /* the last one: "simplify", "replicate", "precision", "place" or "partition"; NULL: all */
    const char *devices;   /* as for tu_compile */
    const char *precision; /* "f32" or "tf32" (as built), "bf16" or "f16"; NULL: as built */
    const char *place;     /* as for tu_compile */
    bool strict_placement;
    const char *strategy, *central; /* as for tu_compile */
    int invariant;
    bool bf16_gradients;
} tu_graph_after_options;
/* What the passes make of a graph whose named results and assignments are wanted: a graph of its own, to look at. */
TU_API tu_status tu_graph_after_with(tu_graph *graph, tu_graph **result,
                                     const tu_graph_after_options *options);
#define tu_graph_after(graph, result, ...)                                                                   \
    tu_graph_after_with(graph, result, TU_OPTIONS(tu_graph_after_options, __VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif
