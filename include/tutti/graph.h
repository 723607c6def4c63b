/* The graph: values, inputs, constants, variables, scopes, gradients; printing, files, summaries.
 *
 * A program builds a graph by calling functions that take values and return values. Every value has a static type.
 * The graph keeps its first error: the call that failed returns an invalid value, later calls that use an invalid
 * value return another one, and tu_graph_status() and tu_compile() report the first message. Programs therefore need
 * no check after every call, and no mistake aborts the process.
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
 * A graph has no lock: one thread builds it. Several threads may read a graph that no thread changes.
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

/* A handle to one output of one node, valid as long as its graph. Frozen: it gets no more fields. */
typedef struct tu_value {
    tu_graph *graph;
    uint32_t node; /* TU_NO_NODE if the value is invalid */
    uint32_t output;
} tu_value;

/* Options are structures that begin with struct_size. Macros fill them with designated initialisers: tu_dense(x,
 * .units = 10). A field that is left out is zero, and zero always means the default. TU_ZERO sets a number to zero if
 * its default is another one: tu_batch_norm(x, .momentum = TU_ZERO). Other negative numbers are errors, unless a
 * field's comment says what they mean. A newer library determines by struct_size which fields an older program has.
 * In C++ designated initialisers need C++20, and fields must be in the order of their declaration. */
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

/* Structures that the library fills begin with struct_size too. The caller sets it with TU_SIZED, and the library
 * fills at most that many bytes: a newer library fills only the fields that an older program has, and an older
 * library sets fields that it does not have to zero. A call fails with TU_INVALID if struct_size is not set.
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

/* Returns TU_OK, or the status of the first error made while building, with its message in tu_message(). */
TU_API tu_status tu_graph_status(const tu_graph *graph);

/* Sets whether layers that are built from now on behave as in training (dropout drops, batch normalisation uses the
 * batch's statistics, augmentation is random) or as in inference. Graphs start in training mode. */
TU_API void tu_set_training(tu_graph *graph, bool training);
TU_API bool tu_training(const tu_graph *graph);

/* ---- Values ------------------------------------------------------------------------------------------------- */

/* True if the value is valid. */
TU_API bool tu_ok(tu_value value);
/* Returns the type; f32 of rank -1 for an invalid value. */
TU_API tu_type tu_value_type(tu_value value);
TU_API tu_shape tu_value_shape(tu_value value);
TU_API tu_dtype tu_value_dtype(tu_value value);
/* Returns the scoped name of the node that computes the value. */
TU_API const char *tu_value_name(tu_value value);
/* Returns output `index` of the node that computes `value`. tu_top_k, for example, has two outputs. */
TU_API tu_value tu_output_of(tu_value value, uint32_t index);
/* Returns output 0 of the node with this scoped name. An unknown name is an error of the graph. */
TU_API tu_value tu_find(tu_graph *graph, const char *name);

/* Renames the node that computes the value, within the current scope. Returns the value. */
TU_API tu_value tu_name(tu_value value, const char *name);

/* ---- Scopes: names of all nodes made inside start with the scope's path --------------------------------------
 * The scope closes when the block is left, by its end, return, break or goto. (C compilers other than gcc and clang: by
 * its end only.) break and continue leave the block only, not a loop around it. Free the graph after the block.
 *
 *     tu_scope(g, "encoder") tu_scope(g, "layer1") h = tu_dense(x, .units = 64);   // encoder/layer1/dense/…
 */
TU_API int tu_scope_begin(tu_graph *graph, const char *name);
TU_API int tu_scope_end(tu_graph *graph);
#define tu_scope(graph, name) TU_BLOCK_(__COUNTER__, graph, tu_scope_begin(graph, name), tu_scope_end)

/* Implements tu_scope, tu_recompute and tu_with_device: a loop that runs once and whose variable closes the block. */
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
    int open; /* 0 ends the loop */
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
#define TU_BLOCK_NAMED_(block, owner, begin, close)                                                          \
    for (tu_block_ block TU_BLOCK_CLOSES_ = {owner, begin, close}; block.open;                               \
         block.open = close(block.graph))
#define TU_BLOCK_NUMBERED_(counter, owner, begin, close)                                                     \
    TU_BLOCK_NAMED_(tu_block_##counter, owner, begin, close)
#define TU_BLOCK_(counter, owner, begin, close) TU_BLOCK_NUMBERED_(counter, owner, begin, close)

/* Values computed inside are not stored for the backward pass: tu_gradients adds operations that compute them again.
 *
 *     tu_recompute(g) { h = block(h); }
 */
TU_API int tu_recompute_begin(tu_graph *graph);
TU_API int tu_recompute_end(tu_graph *graph);
#define tu_recompute(graph) TU_BLOCK_(__COUNTER__, graph, tu_recompute_begin(graph), tu_recompute_end)

/* Nodes made inside, and their gradients, are computed on this device ("cpu:0", "cpu:0.1"). NULL leaves the choice to
 * the engine again. The device must be one of the program's when the graph is compiled.
 *
 *     tu_with_device(g, "cpu:0.1") { h = block(h); }
 */
TU_API int tu_device_begin(tu_graph *graph, const char *device);
TU_API int tu_device_end(tu_graph *graph);
#define tu_with_device(graph, device)                                                                        \
    TU_BLOCK_(__COUNTER__, graph, tu_device_begin(graph, device), tu_device_end)
/* Returns the device that was set for the value's node; NULL if none was. */
TU_API const char *tu_value_device(tu_value value);

/* Places the nodes of both values, gradients made of them later, and all nodes colocated with either, on one device:
 * the one set for any of these nodes, else one that supports them all. Returns `value`. */
TU_API tu_value tu_colocate(tu_value value, tu_value with);

/* Adds a control dependency: the node of `value` is computed after the node of `dependency`, on any devices, without
 * reading its value. `dependency` is computed even if nothing reads it. It must have been made before `value`, so
 * that no two nodes wait for each other. Returns `value`.
 *
 *     tu_value first = tu_exp(x), second = tu_after(tu_exp(y), first);
 */
TU_API tu_value tu_after(tu_value value, tu_value dependency);

/* ---- Leaves ------------------------------------------------------------------------------------------------- */

/* Make inputs, which every run feeds. Axis 0 of a batch input counts samples; replicas get shards along it. */
TU_API tu_value tu_input(tu_graph *graph, const char *name, tu_dtype dtype, tu_shape shape);
TU_API tu_value tu_batch_input(tu_graph *graph, const char *name, tu_dtype dtype, tu_shape shape);

/* Returns the ordinals of the samples in the batch, i64[samples]: the input "sample_ordinal", made on first use.
 * Random numbers per sample are keyed by it. If a run does not feed it, the state counts the samples. */
TU_API tu_value tu_sample_ordinals(tu_graph *graph, int64_t samples);

/* Returns the training step, an i64 scalar: the variable "step", made on first use. Other random numbers are keyed
 * by it. */
TU_API tu_value tu_step(tu_graph *graph);

/* Make constants: from dense data of the given type, which is copied, or filled with one number. */
TU_API tu_value tu_constant(tu_graph *graph, tu_dtype dtype, tu_shape shape, const void *data);
TU_API tu_value tu_fill(tu_graph *graph, tu_dtype dtype, tu_shape shape, double number);
/* Makes a scalar of the element type of `like`: tu_mul(x, tu_number(x, 0.5)). */
TU_API tu_value tu_number(tu_value like, double number);

typedef enum tu_init_kind {
    TU_INIT_DEFAULT, /* zeros */
    TU_INIT_ZEROS,
    TU_INIT_CONSTANT,         /* a for every element */
    TU_INIT_UNIFORM,          /* uniform in [a, b) */
    TU_INIT_NORMAL,           /* mean a, standard deviation b */
    TU_INIT_TRUNCATED_NORMAL, /* normal; values beyond two standard deviations are rejected */
    TU_INIT_XAVIER_UNIFORM,   /* Glorot & Bengio 2010: variance 2 / (fan in + fan out) */
    TU_INIT_XAVIER_NORMAL,
    TU_INIT_HE_UNIFORM, /* He et al. 2015: variance 2 / fan in */
    TU_INIT_HE_NORMAL,
} tu_init_kind;

/* Frozen: it gets no more fields. */
typedef struct tu_init {
    tu_init_kind kind;
    double a, b;
    int64_t fan_in, fan_out; /* for Xavier and He; 0: from the shape, whose first axis counts outputs */
} tu_init;

typedef struct tu_variable_options {
    size_t struct_size;
    tu_init init;
    bool frozen; /* not trained: running statistics, counters, frozen layers */
} tu_variable_options;

/* Makes a variable, whose value outlives a run: tu_variable(g, "w", TU_F32, TU_SHAPE(10, 784), .init =
 * {TU_INIT_HE_NORMAL}). Nodes that read it get its value at the start of the run. */
TU_API tu_value tu_variable_with(tu_graph *graph, const char *name, tu_dtype dtype, tu_shape shape,
                                 const tu_variable_options *options);
#define tu_variable(graph, name, dtype, shape, ...)                                                          \
    tu_variable_with(graph, name, dtype, shape, TU_OPTIONS(tu_variable_options, __VA_ARGS__))

/* Writes up to `capacity` trainable variables into `values`, in the order they were made. Returns how many there
 * are. */
TU_API size_t tu_trainable(tu_graph *graph, size_t capacity, tu_value *values);

/* Sets a variable to `value` at the end of the run. A graph assigns each variable at most once. */
TU_API tu_value tu_assign(tu_value variable, tu_value value);

/* Names a result of the graph; graph files keep the name: tu_output(loss, "loss"). Returns the value. */
TU_API tu_value tu_output(tu_value value, const char *name);
/* Returns the result with this name. An unknown name is an error of the graph. */
TU_API tu_value tu_find_output(tu_graph *graph, const char *name);
/* Writes up to `capacity` named results into `values`, in the order they were named. Returns how many there are. */
TU_API size_t tu_outputs(tu_graph *graph, size_t capacity, tu_value *values);

/* Copies the value to the device of the enclosing tu_with_device. The engine adds the copies that a program needs;
 * use this to copy a value earlier than it is read. */
TU_API tu_value tu_copy(tu_value value);

/* ---- Differentiation ---------------------------------------------------------------------------------------- */

/* Computes d(scalar)/d(wrt[i]) for each i, as a value of the type of wrt[i]: zeros if the scalar does not depend on
 * it. Gradients are ordinary operations and can be differentiated again. */
TU_API tu_status tu_gradients(tu_value scalar, size_t count, const tu_value *wrt, tu_value *gradients);

/* Returns the value, but no gradient flows back through it. */
TU_API tu_value tu_stop_gradient(tu_value value);

/* ---- Inspecting graphs -------------------------------------------------------------------------------------- */

/* Checks every invariant of the graph. The message of a failure names the node and the error. */
TU_API tu_status tu_graph_verify(const tu_graph *graph);

typedef enum tu_graph_format { TU_GRAPH_TEXT, TU_GRAPH_DOT, TU_GRAPH_JSON } tu_graph_format;
/* Prints one line per node (text), a Graphviz graph (DOT), or all details (JSON). */
TU_API tu_status tu_graph_print(const tu_graph *graph, tu_graph_format format, FILE *out);

/* Prints a table of layers with output shapes, parameters, floating-point operations and bytes, and the totals. */
TU_API tu_status tu_graph_summary(const tu_graph *graph, FILE *out);

typedef struct tu_graph_totals {
    size_t struct_size;
    int64_t nodes, variables, parameters; /* parameters: elements of the trainable variables */
    int64_t variable_bytes, activation_bytes;
    int64_t flops; /* floating-point operations of one run of the whole graph */
} tu_graph_totals;
/* Computes the totals of the graph. */
TU_API tu_status tu_graph_total(const tu_graph *graph, tu_graph_totals *totals);

/* ---- Graph files -------------------------------------------------------------------------------------------- */

TU_API tu_status tu_graph_save(const tu_graph *graph, const char *path);
TU_API tu_status tu_graph_load(const char *path, tu_graph **graph);
/* The same in memory. Free `*bytes` with tu_bytes_free. */
TU_API tu_status tu_graph_write(const tu_graph *graph, void **bytes, size_t *size);
TU_API tu_status tu_graph_read(const void *bytes, size_t size, tu_graph **graph);
TU_API void tu_bytes_free(void *bytes);

/* Computes the SHA-256, in hexadecimal, of what the graph computes. It does not depend on the order in which nodes
 * were made, nor on names of nodes that are not inputs, variables or results. */
#define TU_DIGEST_TEXT 65
TU_API tu_status tu_graph_digest(const tu_graph *graph, char digest[TU_DIGEST_TEXT]);

#ifdef __cplusplus
}
#endif
#endif
