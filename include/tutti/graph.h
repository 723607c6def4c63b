/* The graph: values, inputs, constants, variables, scopes, gradients; printing, files, summaries.
 *
 * A graph is built once, by calls that take values and return values. Every value has a static type. The first
 * mistake sticks to the graph: the call that made it returns an invalid value, every later call that uses such a
 * value returns another, and tu_graph_status() or tu_compile() reports that first message. So a network is written
 * without a check at every line, and nothing ever aborts.
 *
 *     tu_graph *g;
 *     if (tu_graph_new(&g) != TU_OK) return 1;
 *     tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(128, 784));
 *     tu_value h;
 *     tu_scope(g, "hidden") h = tu_dense(x, .units = 512, .act = TU_RELU);      // hidden/dense/weights, …
 *     tu_value loss = tu_mean(tu_square(h));
 *     tu_value w = tu_find(g, "hidden/dense/weights"), dw;
 *     tu_gradients(loss, 1, &w, &dw);
 *     …
 *     tu_graph_free(g);
 *
 * A graph is not locked: one thread builds it. A finished graph may be read by many.
 */
#ifndef TUTTI_GRAPH_H
#define TUTTI_GRAPH_H

#include <stdio.h>

#include <tutti/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_graph tu_graph;

#define TU_NO_NODE UINT32_MAX

/* A handle to one output of one node. Copy it freely; it is valid as long as its graph. */
typedef struct tu_value {
    tu_graph *graph;
    uint32_t node; /* TU_NO_NODE in an invalid value */
    uint32_t output;
} tu_value;

/* Options are structures with a leading size, filled by the macros with designated initialisers: a field left out
 * is zero, and zero always means the default. Where zero itself can be wanted, TU_ZERO says it:
 * tu_batch_norm(x, .momentum = TU_ZERO). The size lets a newer library serve an older program. In C++ designated
 * initialisers come with C++20, and fields must be given in the order of their declaration. */
#ifdef __cplusplus
}
template <class T> static inline const T *tu_options_address(const T &options) {
    return &options;
}
extern "C" {
#if __cplusplus >= 202002L
#define TU_OPTIONS(type, ...) tu_options_address(type{.struct_size = sizeof(type) __VA_OPT__(, ) __VA_ARGS__})
#else
#define TU_OPTIONS(type, ...) tu_options_address(type{sizeof(type), __VA_ARGS__})
#endif
#else
#define TU_OPTIONS(type, ...) (&(const type){.struct_size = sizeof(type), __VA_ARGS__})
#endif
#define TU_ZERO (-1)

/* Results are structures with a leading size too: the caller sets struct_size, most simply with TU_SIZED, and the
 * library fills at most so many bytes. A newer library therefore serves a program that was compiled with a shorter
 * structure; an older library leaves the fields that it does not have zero. A call fails with TU_INVALID if
 * struct_size is not set.
 *
 *     tu_graph_totals totals = TU_SIZED(tu_graph_totals);
 *     if (tu_graph_total(g, &totals) == TU_OK) printf("%lld parameters\n", (long long)totals.parameters);
 */
#ifdef __cplusplus
}
template <class T> static inline T tu_sized_() {
    T sized = T();
    sized.struct_size = sizeof(T);
    return sized;
}
extern "C" {
#define TU_SIZED(type) tu_sized_<type>()
#else
#define TU_SIZED(type) ((type){.struct_size = sizeof(type)})
#endif

/* ---- Making graphs ------------------------------------------------------------------------------------------ */

TU_API tu_status tu_graph_new(tu_graph **graph);
TU_API void tu_graph_free(tu_graph *graph);

/* TU_OK, or the status of the first mistake made while building, with its message in tu_message(). */
TU_API tu_status tu_graph_status(const tu_graph *graph);

/* Whether layers behave as in training (dropout drops, batch-norm uses the batch's statistics, augmentation draws)
 * or as in inference. Graphs start in training mode; the mode is read when a layer is built. */
TU_API void tu_set_training(tu_graph *graph, bool training);
TU_API bool tu_training(const tu_graph *graph);

/* ---- Values ------------------------------------------------------------------------------------------------- */

TU_API bool tu_ok(tu_value value);
/* The type; an invalid value has type f32 with rank -1. */
TU_API tu_type tu_value_type(tu_value value);
TU_API tu_shape tu_value_shape(tu_value value);
TU_API tu_dtype tu_value_dtype(tu_value value);
/* The scoped name of the node that makes the value. */
TU_API const char *tu_value_name(tu_value value);
/* Output `index` of the node that makes `value` (top-k has two). */
TU_API tu_value tu_output_of(tu_value value, uint32_t index);
/* Finds a node by its scoped name; its output 0. An unknown name sticks to the graph as an error. */
TU_API tu_value tu_find(tu_graph *graph, const char *name);

/* Renames the node behind a value (within the current scope); returns the value. */
TU_API tu_value tu_name(tu_value value, const char *name);

/* ---- Scopes: names of all nodes made inside start with the scope's path --------------------------------------
 * However the block is left, by its end, return, break or goto, the scope is closed (with gcc, clang and in C++; with
 * other C compilers leave it by its end). break and continue leave only the block, not a loop around it. The graph must outlive
 * the block: free it behind.
 *
 *     tu_scope(g, "encoder") tu_scope(g, "layer1") h = tu_dense(x, .units = 64);   // encoder/layer1/dense/…
 */
TU_API int tu_scope_begin(tu_graph *graph, const char *name);
TU_API int tu_scope_end(tu_graph *graph);
#define tu_scope(graph, name) TU_BLOCK_(__COUNTER__, graph, tu_scope_begin(graph, name), tu_scope_end)

/* How tu_scope and its like are made: a loop that runs once, whose variable closes what was opened. */
#ifdef __cplusplus
}
struct tu_block_ {
    tu_graph *graph;
    int open;
    int (*end)(tu_graph *graph);
    ~tu_block_() {
        if (open) end(graph);
    }
};
extern "C" {
#define TU_BLOCK_CLOSES_
#else
typedef struct tu_block_ {
    tu_graph *graph;
    int open; /* the block runs as long as it is not zero */
    int (*end)(tu_graph *graph);
} tu_block_;
#ifdef __GNUC__
static inline void tu_block_close_(const tu_block_ *block) {
    if (block->open) block->end(block->graph);
}
#define TU_BLOCK_CLOSES_ __attribute__((cleanup(tu_block_close_)))
#else
#define TU_BLOCK_CLOSES_
#endif
#endif
#define TU_BLOCK_NAMED_(block, of, begin, close)                                                             \
    for (tu_block_ block TU_BLOCK_CLOSES_ = {of, begin, close}; block.open; block.open = close(block.graph))
#define TU_BLOCK_NUMBERED_(number, of, begin, close) TU_BLOCK_NAMED_(tu_block_##number, of, begin, close)
#define TU_BLOCK_(number, of, begin, close) TU_BLOCK_NUMBERED_(number, of, begin, close)

/* Nodes made inside are not kept for the backward pass: tu_gradients computes them again where it needs them.
 *
 *     tu_recompute(g) { h = block(h); }
 */
TU_API int tu_recompute_begin(tu_graph *graph);
TU_API int tu_recompute_end(tu_graph *graph);
#define tu_recompute(graph) TU_BLOCK_(__COUNTER__, graph, tu_recompute_begin(graph), tu_recompute_end)

/* Nodes made inside are computed on the device named ("cpu:0", "cpu:0.1"), and so are their gradients; NULL leaves it
 * to the engine again. The name counts when the graph is compiled: it must be one of the program's devices.
 *
 *     tu_with_device(g, "cpu:0.1") { h = block(h); }
 */
TU_API int tu_device_begin(tu_graph *graph, const char *device);
TU_API int tu_device_end(tu_graph *graph);
#define tu_with_device(graph, device)                                                                        \
    TU_BLOCK_(__COUNTER__, graph, tu_device_begin(graph, device), tu_device_end)
/* The device a value's node was told to be computed on; NULL: none yet. */
TU_API const char *tu_value_device(tu_value value);

/* The nodes behind both values, their gradients made from now on, and all that either is colocated with already, are
 * placed on one device: that of whichever was told to be somewhere, else one that takes them all. Returns `value`. */
TU_API tu_value tu_colocate(tu_value value, tu_value with);

/* The node behind `value` is computed after the one behind `dependency`, on whatever devices they are, without reading it;
 * what is waited for is computed also when nobody reads it. Only a value made earlier can be waited for, so that no two
 * wait for each other. Returns `value`.
 *
 *     tu_value first = tu_exp(x), second = tu_after(tu_exp(y), first);
 */
TU_API tu_value tu_after(tu_value value, tu_value dependency);

/* ---- Leaves ------------------------------------------------------------------------------------------------- */

/* A value fed at each run. Axis 0 of a batched input counts samples: it is what replication divides. */
TU_API tu_value tu_input(tu_graph *graph, const char *name, tu_dtype dtype, tu_shape shape);
TU_API tu_value tu_batch_input(tu_graph *graph, const char *name, tu_dtype dtype, tu_shape shape);

/* The ordinals of the samples in the batch, i64[samples]: the input "sample_ordinal", made on first use. Random
 * draws that belong to samples are keyed by it. When a run does not feed it, the state counts on by itself. */
TU_API tu_value tu_sample_ordinals(tu_graph *graph, int64_t samples);

/* The training step, i64 scalar: the variable "step", made on first use. Draws without a sample are keyed by it. */
TU_API tu_value tu_step(tu_graph *graph);

/* Constants: from dense data of the given type (copied), or one number everywhere. */
TU_API tu_value tu_constant(tu_graph *graph, tu_dtype dtype, tu_shape shape, const void *data);
TU_API tu_value tu_fill(tu_graph *graph, tu_dtype dtype, tu_shape shape, double number);
/* A scalar of the same type as `like`: tu_mul(x, tu_number(x, 0.5)). */
TU_API tu_value tu_number(tu_value like, double number);

typedef enum tu_init_kind {
    TU_INIT_DEFAULT, /* zeros */
    TU_INIT_ZEROS,
    TU_INIT_CONSTANT,         /* a everywhere */
    TU_INIT_UNIFORM,          /* in [a, b) */
    TU_INIT_NORMAL,           /* mean a, deviation b */
    TU_INIT_TRUNCATED_NORMAL, /* as normal, drawn again beyond two deviations */
    TU_INIT_XAVIER_UNIFORM,   /* Glorot & Bengio 2010: variance 2 / (fan in + fan out) */
    TU_INIT_XAVIER_NORMAL,
    TU_INIT_HE_UNIFORM, /* He et al. 2015: variance 2 / fan in */
    TU_INIT_HE_NORMAL,
} tu_init_kind;

typedef struct tu_init {
    tu_init_kind kind;
    double a, b;
    int64_t fan_in, fan_out; /* for Xavier and He; 0: from the shape, the first axis being outputs */
} tu_init;

typedef struct tu_variable_options {
    size_t struct_size;
    tu_init init;
    bool frozen; /* not among tu_trainable(): running statistics, counters, frozen layers */
} tu_variable_options;

/* State that outlives a run: tu_variable(g, "w", TU_F32, TU_SHAPE(10, 784), .init = {.kind = TU_INIT_HE_NORMAL}).
 * The value is what the variable held when the run began. */
TU_API tu_value tu_variable_with(tu_graph *graph, const char *name, tu_dtype dtype, tu_shape shape,
                                 const tu_variable_options *options);
#define tu_variable(graph, name, dtype, shape, ...)                                                          \
    tu_variable_with(graph, name, dtype, shape, TU_OPTIONS(tu_variable_options, __VA_ARGS__))

/* All trainable variables in the order made: writes up to `capacity` into `values`, returns how many there are. */
TU_API size_t tu_trainable(tu_graph *graph, size_t capacity, tu_value *values);

/* Gives a variable its next value, from the end of the run on. Each variable is assigned at most once. */
TU_API tu_value tu_assign(tu_value variable, tu_value value);

/* Names a result of the graph, kept in its file: tu_output(loss, "loss"). Returns the value. */
TU_API tu_value tu_output(tu_value value, const char *name);
/* Finds a named result; an unknown name sticks to the graph as an error. */
TU_API tu_value tu_find_output(tu_graph *graph, const char *name);
/* All named results in the order named: writes up to `capacity` into `values`, returns how many there are. */
TU_API size_t tu_outputs(tu_graph *graph, size_t capacity, tu_value *values);

/* The value again, on the device of the tu_with_device around. Copies that are needed are made when a graph is
 * compiled; this one says where a value is wanted early. */
TU_API tu_value tu_copy(tu_value value);

/* ---- Differentiation ---------------------------------------------------------------------------------------- */

/* d(scalar)/d(wrt[i]) for each i, as graph values of the same type as wrt[i]; zeros where nothing depends on it.
 * Gradients are ordinary operations: they can be differentiated again. */
TU_API tu_status tu_gradients(tu_value scalar, size_t count, const tu_value *wrt, tu_value *gradients);

/* The value itself, through which no gradient flows. */
TU_API tu_value tu_stop_gradient(tu_value value);

/* ---- Looking at graphs -------------------------------------------------------------------------------------- */

/* Checks every invariant of the graph; a failure names the node and what is wrong with it. */
TU_API tu_status tu_graph_verify(const tu_graph *graph);

typedef enum tu_graph_format { TU_GRAPH_TEXT, TU_GRAPH_DOT, TU_GRAPH_JSON } tu_graph_format;
/* One node a line (text), a Graphviz picture (DOT), or everything (JSON). */
TU_API tu_status tu_graph_print(const tu_graph *graph, tu_graph_format format, FILE *out);

/* Layers with their output shapes, parameters, floating-point operations and bytes, and the totals. */
TU_API tu_status tu_graph_summary(const tu_graph *graph, FILE *out);

typedef struct tu_graph_totals {
    size_t struct_size;
    int64_t nodes, variables, parameters; /* parameters: elements of the trainable variables */
    int64_t variable_bytes, activation_bytes;
    int64_t flops; /* of one run of the whole graph */
} tu_graph_totals;
TU_API tu_status tu_graph_total(const tu_graph *graph, tu_graph_totals *totals);

/* ---- Graph files -------------------------------------------------------------------------------------------- */

TU_API tu_status tu_graph_save(const tu_graph *graph, const char *path);
TU_API tu_status tu_graph_load(const char *path, tu_graph **graph);
/* The same in memory. `*bytes` is freed with tu_bytes_free. */
TU_API tu_status tu_graph_write(const tu_graph *graph, void **bytes, size_t *size);
TU_API tu_status tu_graph_read(const void *bytes, size_t size, tu_graph **graph);
TU_API void tu_bytes_free(void *bytes);

/* SHA-256, in hexadecimal, of what the graph computes: independent of the order in which nodes were made and of
 * the names of nodes that are not inputs, variables or results. */
#define TU_DIGEST_TEXT 65
TU_API tu_status tu_graph_digest(const tu_graph *graph, char digest[TU_DIGEST_TEXT]);

#ifdef __cplusplus
}
#endif
#endif
