/* Running graphs: states contain variables, programs compute.
 *
 * A state contains everything that outlives a run: variables by their scoped names, the seed, the ordinal of the next
 * sample. A program is compiled from a graph for some of its results. Several programs may use one state, for example
 * a training step, an evaluation with another batch size and a program that fetches an activation.
 *
 *     tu_program *step;
 *     tu_state *state;
 *     tu_compile(g, &step, .fetch = &loss, .fetch_count = 1, .updates = true);
 *     tu_state_new(g, &state, .seed = 1);
 *     float value;
 *     tu_run(step, state, 2, (tu_feed[]){{x, images}, {y, labels}}, (void *[]){&value});
 *
 * Threads. Any thread may call these functions. tu_message() returns the calling thread's latest failure, also if it
 * happened in a thread of the engine.
 * - Several threads may compile at once, even from one graph, if no thread adds to that graph.
 * - Several threads may call tu_run and tu_run_many at once, with one program or several. Calls with a device in
 *   common (same name, threads, tuning and order) wait for each other, others run in parallel. Threads that want to
 *   run on one device at once use a session each (tu_session).
 * - A state locks itself: runs that do not update it share it, runs that do and functions that change it are exclusive.
 * - Inspect or free a program only while it does not run.
 */
#ifndef TUTTI_RUN_H
#define TUTTI_RUN_H

#include <tutti/device.h>
#include <tutti/graph.h>
#include <tutti/process_group.h>

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
/* Makes a state with all variables of the graph and initialises them. The same seed gives the same bits. */
TU_API tu_status tu_state_new_with(const tu_graph *graph, tu_state **state, const tu_state_options *options);
#define tu_state_new(graph, state, ...)                                                                      \
    tu_state_new_with(graph, state, TU_OPTIONS(tu_state_options, __VA_ARGS__))
TU_API void tu_state_free(tu_state *state);

/* Adds the variables of another graph that the state does not have. Those that it has must have the same types. */
TU_API tu_status tu_state_extend(tu_state *state, const tu_graph *graph);

/* Returns the number of variables. */
TU_API size_t tu_state_variable_count(const tu_state *state);
/* Gets the name and type of variable `index`, in the order they were made. */
TU_API tu_status tu_state_variable(const tu_state *state, size_t index, const char **name, tu_type *type);
/* Copy a variable out of the state or into it. `bytes` must be its size. */
TU_API tu_status tu_state_get(const tu_state *state, const char *name, void *data, size_t bytes);
TU_API tu_status tu_state_set(tu_state *state, const char *name, const void *data, size_t bytes);

/* Get and set the ordinal of the next sample. The input "sample_ordinal" counts from it if it is not fed. A run of a
 * program with updates increases it by the number of samples. */
TU_API int64_t tu_state_sample(const tu_state *state);
TU_API void tu_state_set_sample(tu_state *state, int64_t ordinal);

/* SHA-256, in hexadecimal, of the names, element types and values of all variables, in the order made. */
TU_API tu_status tu_state_digest(const tu_state *state, char digest[TU_DIGEST_TEXT]);

/* ---- State files --------------------------------------------------------------------------------------------
 *
 * The variables of a state by name, in a safetensors file, a format that PyTorch, NumPy and others support.
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
    /* Patterns of names, such as "conv*,*bias"; a star matches any characters. Saves only variables that match `only`
     * (NULL: all) and do not match `except`. */
    const char *only, *except;
} tu_state_save_options;
/* Saves variables, the seed and the ordinal of the next sample. Replaces an existing file in one step: a failure
 * leaves it as it was. */
TU_API tu_status tu_state_save_with(const tu_state *state, const char *path,
                                    const tu_state_save_options *options);
#define tu_state_save(state, path, ...)                                                                      \
    tu_state_save_with(state, path, TU_OPTIONS(tu_state_save_options, __VA_ARGS__))

typedef enum tu_load_outcome {
    TU_LOAD_MATCHED,    /* loaded, unless the whole file was rejected */
    TU_LOAD_MISSING,    /* only the state has it: it stays as it was */
    TU_LOAD_EXTRA,      /* only the file has it: it is ignored */
    TU_LOAD_MISMATCHED, /* both have it, with different types or shapes: it stays as it was */
} tu_load_outcome;
typedef struct tu_load_report tu_load_report;

typedef struct tu_state_load_options {
    size_t struct_size;
    bool partial;              /* load what matches; else missing and mismatched variables are errors */
    bool convert;              /* round between f32, f64, bf16 and f16; else another type is a mismatch */
    const char *only, *except; /* as in saving: other variables stay as they were and are not reported */
    /* Where to put a report, which the caller frees. It is set also if the file does not match, and to NULL if the
     * file could not be read. NULL: no report. */
    tu_load_report **report;
} tu_state_load_options;
/* Sets variables to the tensors of the same names. Compares all of them first: a call that fails changes nothing.
 * Fails with TU_INVALID, and names and types in the message, if a variable does not match or none does; with
 * TU_CORRUPT if the file is damaged. The file may contain more tensors than the state has variables, so a program for
 * inference can load what a training run saved. Also loads files of other programs, and checkpoints of training runs.
 * Loads the seed and the ordinal of the next sample if the file has them and neither .partial, .only nor .except is
 * given. */
TU_API tu_status tu_state_load_with(tu_state *state, const char *path, const tu_state_load_options *options);
#define tu_state_load(state, path, ...)                                                                      \
    tu_state_load_with(state, path, TU_OPTIONS(tu_state_load_options, __VA_ARGS__))

/* Returns the number of entries with this outcome. */
TU_API size_t tu_load_report_entry_count(const tu_load_report *report, tu_load_outcome outcome);
/* Gets the name and types of entry `index` of an outcome; each pointer may be NULL. A type has rank -1 if the state
 * or the file has no such variable, or if Tutti does not have its type. Names live as long as the report. */
TU_API tu_status tu_load_report_entry(const tu_load_report *report, tu_load_outcome outcome, size_t index,
                                      const char **name, tu_type *in_state, tu_type *in_file);
/* Returns a line with the number of matches and the first names of every other outcome. It lives as long as the
 * report. */
TU_API const char *tu_load_report_text(tu_load_report *report);
TU_API void tu_load_report_free(tu_load_report *report);

/* ---- Programs ----------------------------------------------------------------------------------------------- */

/* A function that returns the device of a node, or NULL to leave the choice to the other rules. The graph is the
 * simplified one; node.h has the functions that read a node. */
typedef const char *(*tu_place_by)(const tu_graph *graph, uint32_t node, void *context);

/* The devices of a program are a list of device specs with commas: "cpu:0"; "cpu:0/2", which is two logical devices
 * with half of the cores each; "ref". "all" means the GPUs if there are any, else the CPU; with "all" a CPU is added
 * to GPUs if they do not support an operation.
 *
 * Placement: the first of `place`, `place_by` and tu_with_device that names a device for an operation decides. Other
 * operations go to a GPU if the list has one, else to the first device; of several GPUs, to the one that stores
 * most bytes of the inputs. An operation that its device does not support moves to the supporting device that
 * stores most bytes of its inputs. tu_program_placement reports the decisions and their reasons. */
typedef struct tu_compile_options {
    size_t struct_size;
    const char *devices;   /* NULL: "all" */
    int threads;           /* of each CPU device; 0: one per core */
    uint64_t memory_limit; /* bytes on each device; 0: all it has */
    /* Seconds that a step of several devices, or of a GPU, may take before it fails and names what is late; 0: 600. A
     * program on one CPU device has no timeout. */
    double timeout;
    const tu_value *fetch; /* the results of a run, in this order */
    size_t fetch_count;    /* length of `fetch` */
    bool updates;          /* also run every assignment of the graph; see no_updates */
    /* Type of matrix products, convolutions and activations: "bf16" or "f16". "tf32": as built, but devices that
     * support it may round the operands of matrix products and convolutions to 10 mantissa bits. NULL or "f32": as
     * built. */
    const char *precision;
    bool plan_only; /* make a program to inspect, even if it does not fit; it cannot run */
    /* For devices that choose between kernels of a library. tune_kernels: time candidates once and keep the fastest,
     * instead of using heuristics. nondeterministic: also use kernels whose results differ in the last bits from run
     * to run. */
    bool tune_kernels, nondeterministic;
    /* Kernels that a GPU may run in parallel; 0: chosen automatically; 1: one. The results are bit-identical. */
    int streams;
    /* Patterns of names with devices, such as "conv*=gpu:1,local*=cpu:0". The first match decides, also for gradients
     * of the operations that it names. */
    const char *place;
    tu_place_by place_by;
    void *place_context; /* passed to place_by */
    /* Fail if a device does not support an operation placed there, instead of moving it. */
    bool strict_placement;
    /* How several devices share a batch. NULL or "single": placement decides. "mirrored": every device has a replica
     * of the network with all variables and computes one shard of every batch input; gradients are summed between
     * devices, and every replica makes the same update. "central": one device (`central`) has the variables, sends
     * them to the replicas, sums their gradients and updates once. Feeds, fetches and the state are the same for all
     * strategies; but with a `group` and "central", only process 0 uses variables of its state. */
    const char *strategy;
    const char *central; /* of process 0; NULL: the first CPU of the list, or one opened in addition */
    /* Computes every batch as this many shards, on any number of devices that divides it. Each shard is computed
     * separately (also by batch normalisation), by one thread of a CPU, and sums are added in one order, so that the
     * bits do not depend on the number of devices. 0: off. */
    int invariant;
    bool bf16_gradients;       /* send gradients between devices as bf16 */
    uint64_t gpu_memory_limit; /* bytes on each GPU, if less than memory_limit; 0: no limit */
    /* Bytes to allocate on every GPU of the list at once. The process keeps them until the last program and state on
     * it are freed, and programs use them first. Logical devices of a GPU share them. 0: allocate when programs first
     * run. */
    uint64_t gpu_memory_reserve;
    /* Do not run the assignments of the graph. A graph that assigns trainable variables, as an optimizer does, needs
     * `updates` or `no_updates`, unless one of these assignments is fetched: else it fails, since it would train
     * nothing. Assignments of frozen variables only, such as batch normalisation's running statistics, need
     * neither. */
    bool no_updates;
    /* The processes that share every batch, each with its own list of devices; NULL: this process alone. Needs the
     * strategy "mirrored" or "central", also with one device. */
    tu_process_group *group;
} tu_compile_options;
/* Compiles a program. Fails with the graph's first error, if there is one. The graph must outlive the program and
 * must not change. Fails with TU_NO_MEMORY if the program does not fit its devices; then compile it with plan_only
 * and call tu_program_peak to see what needs the memory. */
TU_API tu_status tu_compile_with(tu_graph *graph, tu_program **program, const tu_compile_options *options);
#define tu_compile(graph, program, ...)                                                                      \
    tu_compile_with(graph, program, TU_OPTIONS(tu_compile_options, __VA_ARGS__))
TU_API void tu_program_free(tu_program *program);

/* Frozen: it gets no more fields. */
typedef struct tu_feed {
    tu_value input;
    const void *data; /* dense, row-major, of the input's type */
} tu_feed;

/* Runs the program once: reads feeds and variables, writes results to fetches[i] (dense, of fetch i's type; NULL
 * drops it), then applies the assignments. A run that fails changes nothing. Every input must be fed once. A program
 * without variables may run with a state of NULL; the seed is then 0. */
TU_API tu_status tu_run(tu_program *program, tu_state *state, size_t feed_count, const tu_feed *feeds,
                        void *const *fetches);

/* ---- Many steps in one call --------------------------------------------------------------------------------- */

/* A table of rows that inputs are fed from, such as the images of a data set. A device that runs many steps in one
 * call copies the table to its memory when it first reads it, and gathers the rows of every batch there. */
typedef struct tu_table tu_table;
/* Makes a table of `rows` rows of `row_bytes`, one after another in `data`, which must outlive the table. */
TU_API tu_status tu_table_new(const void *data, size_t row_bytes, int64_t rows, tu_table **table);
/* Frees the table and its copies on devices. No run may read it meanwhile. */
TU_API void tu_table_free(tu_table *table);

/* Feeds an input in every step: with batches one after another in `data`, or with rows of a table, whose indices are
 * in `rows`, one batch after another. With `same_batch` there is one batch for all steps. Frozen: it gets no more
 * fields. */
typedef struct tu_feed_many {
    tu_value input;
    const void *data;
    tu_table *table;
    const int64_t *rows;
    bool same_batch;
} tu_feed_many;

/* Runs the program `steps` times, with the same results and the same state at the end as with tu_run. Writes the
 * results of all steps to fetches[i], one after another (NULL drops them). If the devices can
 * (tu_program_multi_step), they run all steps without the host in between. If a step fails, the steps before it are
 * done, and the message says how many.
 *
 *     tu_table *set;
 *     int64_t order[100 * 128]; // indices of the images of every step
 *     float losses[100];
 *     tu_table_new(images, 32 * 32 * 3, 50000, &set);
 *     tu_run_many(program, state, 100, 2,
 *                 (tu_feed_many[]){{.input = x, .table = set, .rows = order}, {.input = y, .data = labels}},
 *                 (void *[]){losses});
 */
TU_API tu_status tu_run_many(tu_program *program, tu_state *state, size_t steps, size_t feed_count,
                             const tu_feed_many *feeds, void *const *fetches);

typedef struct tu_multi_step_report {
    size_t struct_size;
    bool in_one_call;     /* the devices run many steps in one call; else the engine runs them one by one */
    uint64_t table_bytes; /* of tables in the device's memory that the latest call read */
    uint64_t gathered_bytes; /* of rows that the latest call gathered on the host instead */
    const char *notice; /* NULL, or why the host handles steps or rows; lives until the next tu_run_many */
    bool direct_copies; /* the device's threads copy rows from the table directly to the inputs */
} tu_multi_step_report;
/* Reports how tu_run_many runs this program. */
TU_API tu_status tu_program_multi_step(const tu_program *program, tu_multi_step_report *report);

/* ---- Sessions ---------------------------------------------------------------------------------------------- */

/* A session has its own scratch memory and host threads on every device that its programs use, so its runs need not
 * wait for those of other sessions. Programs in one session share its memory and run one at a time. The programs'
 * kernels and constants, and the state's variables, exist once for all sessions. tu_run uses a default session.
 *
 *     // in each of several threads, with one program (compiled with .threads = 1) and one state
 *     tu_session *session;
 *     float value;
 *     tu_session_new(state, &session);
 *     tu_session_run(session, program, 1, (tu_feed[]){{x, images}}, (void *[]){&value});
 */
typedef struct tu_session tu_session;
/* Makes a session for runs with `state`, which must outlive it. NULL: for programs without variables. */
TU_API tu_status tu_session_new(tu_state *state, tu_session **session);
TU_API void tu_session_free(tu_session *session);

/* Same as tu_run and tu_run_many, in a session. One thread at a time may use a session. */
TU_API tu_status tu_session_run(tu_session *session, tu_program *program, size_t feed_count,
                                const tu_feed *feeds, void *const *fetches);
TU_API tu_status tu_session_run_many(tu_session *session, tu_program *program, size_t steps,
                                     size_t feed_count, const tu_feed_many *feeds, void *const *fetches);

/* Does everything that the first run of a program would do before its first kernel: allocates memory, moves variables
 * to the devices, and compiles kernels. */
TU_API tu_status tu_warm_up(tu_program *program, tu_state *state);
TU_API tu_status tu_session_warm_up(tu_session *session, tu_program *program);

/* ---- Memory, devices, placement and kernels of a program --------------------------------------------------- */

typedef struct tu_memory_report {
    size_t struct_size;
    const char *device;
    uint64_t scratch_bytes; /* activations, gradients, workspaces: the planned peak; programs share it */
    uint64_t constant_bytes;
    uint64_t variable_bytes;  /* of the variables on this device */
    uint64_t overhead_bytes;  /* of the device's context and libraries, if it can report that */
    uint64_t need_bytes;      /* sum of the four above */
    uint64_t table_bytes;     /* of tables on this device now (tu_run_many) */
    uint64_t allocated_bytes; /* allocated for scratch and constants; 0 before the first run */
    uint64_t limit_bytes;     /* the limit given to tu_compile, else the device's memory; 0: unknown */
} tu_memory_report;
/* Returns the number of devices of the program. */
TU_API size_t tu_program_device_count(const tu_program *program);
/* Reports the memory of the program on device `index`. Fails with TU_NOT_FOUND from the count on. */
TU_API tu_status tu_program_memory(const tu_program *program, size_t index, tu_memory_report *report);

typedef enum tu_memory_kind {
    TU_MEMORY_TENSOR,    /* an input, an activation, a gradient */
    TU_MEMORY_WORKSPACE, /* of a kernel, or for values that variables exchange */
    TU_MEMORY_VARIABLE,
    TU_MEMORY_CONSTANT,
    TU_MEMORY_OVERHEAD, /* the device's context and libraries */
    TU_MEMORY_GAP,      /* unused memory between tensors */
} tu_memory_kind;

typedef struct tu_memory_item {
    size_t struct_size;
    tu_memory_kind kind;
    /* Name of the node, or of the kernel for its workspace; a description for overhead; "" for gaps. */
    const char *name;
    tu_type type;   /* of a tensor, variable or constant */
    uint64_t bytes; /* with alignment */
} tu_memory_item;
/* Returns the number of items in the memory of device `index` at the planned peak; 0 if there is no such device. */
TU_API size_t tu_program_peak_count(const tu_program *program, size_t index);
/* Writes the `capacity` largest items, largest first, and how many it wrote to `*count`. The caller sets struct_size
 * of the first item; all items are that many bytes apart. The bytes of all items add up to the need_bytes of
 * tu_program_memory.
 *
 *     tu_memory_item items[10] = {TU_SIZED(tu_memory_item)};
 *     size_t count;
 *     tu_program_peak(program, 0, 10, items, &count);
 */
TU_API tu_status tu_program_peak(const tu_program *program, size_t index, size_t capacity,
                                 tu_memory_item *items, size_t *count);

typedef struct tu_device_report {
    size_t struct_size;
    const char *device; /* "cpu:0.1" */
    int threads;        /* of its parallel loops; 0: unknown, or it has none */
    /* NULL, or a line for the user: why the device is slow, or why the CPU is used although there is an NVIDIA GPU.
     * Lives until the next call in this thread. */
    const char *notice;
    const char *spec; /* device spec of this device only: "cpu:0.1/2" */
} tu_device_report;
/* Reports on device `index` of tu_program_device_count, in the order of the list given to tu_compile. */
TU_API tu_status tu_program_device(const tu_program *program, size_t index, tu_device_report *report);

typedef struct tu_placement {
    size_t struct_size;
    const char *node, *operation; /* name and operation; "copy" copies a value from another device */
    tu_type type;                 /* of its first output */
    const char *device;
    const char *reason;         /* why it is placed there */
    const char *unsupported_on; /* NULL, or the devices that do not support it, with reasons */
    bool moved;                 /* not on the device set for it, or on a device added for it */
    uint64_t bytes_in;          /* bytes it reads from other devices; for a copy: bytes copied */
    uint64_t bytes_out;         /* bytes of its values copied to other devices, once per device */
    const char *from;           /* for a copy: the source device; else NULL */
    const char *copy_path;      /* for a copy between GPUs: "peer to peer" or "through the host"; else NULL */
} tu_placement;
/* Returns the number of operations of the program, including copies. */
TU_API size_t tu_program_placement_count(const tu_program *program);
/* Reports where operation `index` is computed, in the order of the graph. Fails with TU_NOT_FOUND from the count on. */
TU_API tu_status tu_program_placement(const tu_program *program, size_t index, tu_placement *placement);

typedef struct tu_placement_totals {
    size_t struct_size;
    size_t operations, copies, moved;
    uint64_t copied_bytes; /* between devices, in one run */
    /* NULL, or a line for the user: what was moved and why, or a pattern that matches nothing. Lives as long as the
     * program. */
    const char *notice;
} tu_placement_totals;
/* Computes the totals of the placement. */
TU_API tu_status tu_program_placement_totals(const tu_program *program, tu_placement_totals *totals);

/* Compares the placement with the file `path`. Writes the file if it does not exist or `update` is set: JSON, one
 * operation per line. Fails with TU_INVALID if the placement differs; `*diff` is then one line per difference, "  -
 * conv1/conv2d gpu:0" or "  + conv1/conv2d cpu:0", to be freed with tu_bytes_free, else NULL. `diff` may be NULL. */
TU_API tu_status tu_program_check_placement(const tu_program *program, const char *path, bool update,
                                            char **diff);

/* Prints one line per kernel, in the order they run: device, name, number of operations, bytes. */
TU_API tu_status tu_program_print(const tu_program *program, FILE *out);

typedef struct tu_kernel_report {
    size_t struct_size;
    const char *device, *kernel;
    const char *node;    /* name of its first operation */
    uint32_t node_count; /* number of operations it computes */
    int64_t flops;       /* of these operations */
    int64_t bytes;       /* read and written, each buffer once */
    uint64_t workspace_bytes;
    double seconds; /* in the latest run; 0: not run yet, or the device does not report it */
} tu_kernel_report;
/* Returns the number of kernels of the program on all its devices. */
TU_API size_t tu_program_kernel_count(const tu_program *program);
/* Reports on kernel `index`: device after device, in the order they run. Fails with TU_NOT_FOUND from the count on. */
TU_API tu_status tu_program_kernel(const tu_program *program, size_t index, tu_kernel_report *report);

typedef struct tu_copy_report {
    size_t struct_size;
    const char *value; /* name of the node that computes it */
    const char *from, *to;
    uint64_t bytes;
} tu_copy_report;
/* Returns the number of copies between devices in every run. */
TU_API size_t tu_program_copy_count(const tu_program *program);
/* Reports on copy `index`. Fails with TU_NOT_FOUND from the count on. */
TU_API tu_status tu_program_copy(const tu_program *program, size_t index, tu_copy_report *report);

/* A collective over values of several devices. */
typedef struct tu_collective_report {
    size_t struct_size;
    int64_t number;    /* attribute `collective` of its nodes */
    uint32_t ranks;    /* devices that take part */
    uint32_t values;   /* values of each device */
    const char *value; /* name of the first value */
    uint64_t bytes;    /* of all values that one device passes */
    bool through_host; /* the devices have no peer access */
    bool peer_to_peer; /* they have, and are different GPUs */
    /* The operation of its nodes, such as "all_reduce". */
    const char *operation;
    uint32_t processes; /* that take part; 0: this one alone */
} tu_collective_report;
/* Returns the number of collectives in every run. */
TU_API size_t tu_program_collective_count(const tu_program *program);
/* Reports on collective `index`, in the order they run. Fails with TU_NOT_FOUND from the count on. */
TU_API tu_status tu_program_collective(const tu_program *program, size_t index, tu_collective_report *report);

/* ---- Traces -------------------------------------------------------------------------------------------------- */

/* Starts a trace: records when kernels, copies and waits of the program's runs begin and end, and drops an earlier
 * trace. Meanwhile tu_run_many runs steps one by one. A program that is not traced has no overhead. If a device
 * cannot report the times of a run, the run fails, but its step is done.
 *
 *     tu_program_trace_begin(program);
 *     for (int i = 0; i < 10; i++) tu_run(program, state, 0, NULL, NULL);
 *     tu_program_trace_end(program);
 *     tu_trace_save(1, &program, "trace.json"); // for ui.perfetto.dev
 *     tu_trace_summary(program, stdout);
 */
TU_API tu_status tu_program_trace_begin(tu_program *program);
/* Ends the trace, which can then be inspected. */
TU_API void tu_program_trace_end(tu_program *program);

/* Ends the traces of programs and writes them as JSON in the trace event format of Chrome and Perfetto: a row for the
 * runs, and for every device a row for its kernels and one for copies to it. */
TU_API tu_status tu_trace_write(size_t count, tu_program *const *programs, FILE *out);

/* The same into a file. A failure leaves an existing file as it was. */
TU_API tu_status tu_trace_save(size_t count, tu_program *const *programs, const char *path);

/* Times are seconds, summed over all traced runs. */
typedef struct tu_trace_report {
    size_t struct_size;
    const char *device;
    double runs;               /* duration of the runs, from the first feed to the last update */
    double computing;          /* in kernels */
    double copying;            /* in copies from other devices */
    double overlapped;         /* of `copying` and `collective`, during a kernel of this device */
    double lost_to_copies;     /* waiting for a running copy */
    double waiting;            /* waiting for other devices to compute */
    uint64_t received_bytes;   /* copied from other devices */
    double collective;         /* in collectives */
    double collective_waiting; /* waiting for other devices in collectives */
    uint64_t collective_bytes; /* of its values in collectives */
    double feeding;            /* filling its inputs */
} tu_trace_report;
/* Reports on device `index` of a traced program. Fails with TU_NOT_FOUND from tu_program_device_count on. */
TU_API tu_status tu_trace_device(tu_program *program, size_t index, tu_trace_report *report);
/* Ends the trace and prints how long every device computed and what it waited for, the bytes copied between devices,
 * and the critical path: the kernels and copies that determined the length of a run, longest first. */
TU_API tu_status tu_trace_summary(tu_program *program, FILE *out);

typedef struct tu_graph_after_options {
    size_t struct_size;
    /* The last pass: "simplify", "replicate", "precision", "place" or "partition"; NULL: all. */
    const char *pass;
    const char *devices;   /* as for tu_compile */
    const char *precision; /* "f32" or "tf32" (as built), "bf16" or "f16"; NULL: as built */
    const char *place;     /* as for tu_compile */
    bool strict_placement;
    const char *strategy, *central; /* as for tu_compile */
    int invariant;
    bool bf16_gradients;
} tu_graph_after_options;
/* Runs the passes on a graph with all its named results and assignments. Makes a new graph to inspect. */
TU_API tu_status tu_graph_after_with(tu_graph *graph, tu_graph **result,
                                     const tu_graph_after_options *options);
#define tu_graph_after(graph, result, ...)                                                                   \
    tu_graph_after_with(graph, result, TU_OPTIONS(tu_graph_after_options, __VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif
