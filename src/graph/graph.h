/* Internal representation of a graph: nodes, edges and the functions that create them.
 *
 * Invariants, checked by verify.c:
 *   - node ids count in creation order, and the inputs of a node have lower ids: the order is a schedule;
 *   - a node's output types are those that its operation's shape rule infers from its inputs and attributes;
 *   - node names are unique within the graph;
 *   - nodes are never removed or changed, with these exceptions: a node may be renamed, placed on a device by passes,
 *     get control dependencies or a colocation group (constraints.c), and an assignment may be cancelled.
 */
#ifndef TU__GRAPH_GRAPH_H
#define TU__GRAPH_GRAPH_H

#include <tutti/graph.h>
#include <tutti/node.h>

#include "base/arena.h"
#include "base/shared.h"
#include "graph/op.h"
#include "graph/shared_data.h"

typedef struct tu_edge tu__edge;

static inline bool tu__same_edge(tu__edge a, tu__edge b) {
    return a.node == b.node && a.output == b.output;
}

enum {
    TU__NODE_RECOMPUTE = 1,  /* created inside tu_recompute: the backward pass computes it again */
    TU__NODE_RECOMPUTED = 2, /* the copy that the backward pass computes; never merged with the original */
};

enum { TU__MAX_CONTROL_DEPS = 4096 }; /* control dependencies per node */
enum { TU__MAX_GROUPS = 1 << 20 };    /* colocation groups per graph */

struct tu__node {
    const tu__op *op;
    const char *name; /* scoped, unique */
    uint32_t id;
    uint32_t flags;
    uint32_t input_count, output_count;
    const tu__edge *inputs;
    const tu_type *outputs;
    const void *attrs;                 /* struct tu__<op>_attrs; see ops.def */
    const void *data;                  /* CONSTANT: dense elements of outputs[0] */
    tu__shared_data *shared;           /* CONSTANT: what `data` belongs to; NULL: the graph's arena */
    const struct tu_custom_op *custom; /* CUSTOM: the user's functions */
    const char *device;                /* "cpu:0.1"; NULL: the passes choose one */
    uint32_t group;                    /* colocation group: nodes of one group are placed together; 0: none */
    uint32_t after_count;
    uint32_t *after; /* control dependencies: earlier nodes that are computed before this one; ascending */
    /* For reports: why the node is on its device, and why other devices do not support it ("gpu:0: …"); NULL: no
     * text. */
    const char *why, *unsupported_on;
    bool is_assigned; /* VARIABLE: an ASSIGN assigns it */
    bool moved;       /* the preferred device does not support the node, so it was placed on another */
    /* For an input or variable of one replica (pass/replicate.c): the name of the original graph's input or variable
     * of which it is a shard or copy, and the first row of an input's shard. NULL: it is the original. */
    const char *stands_for;
    int64_t first_row;
};

typedef struct tu__named_value {
    const char *name;
    tu__edge value;
} tu__named_value;

struct tu_graph {
    tu__arena arena;
    tu__node **nodes;
    uint32_t node_count, node_capacity;
    struct tu__kept_data *kept_data; /* references to shared data */
    tu__named_value *results;        /* graph outputs: values that tu_output has named */
    uint32_t result_count, result_capacity;
    struct tu__name_table *names; /* scoped name -> node and next free suffix */
    char *scope;                  /* current scope with a trailing '/', or "" */
    size_t scope_capacity;
    uint32_t recompute_depth;
    const struct tu__device_scope *device_scope; /* the innermost tu_with_device; NULL: none */
    uint32_t failed_device_scopes; /* calls of tu_device_begin that ran out of memory and have not ended */
    uint32_t group_count;          /* colocation groups */
    uint32_t group_scope;          /* group of new nodes while a gradient is built; 0: none */
    bool training;
    /* The graph of a model (infer/freeze.c): its constants are weights. They are folded whatever their size, and devices
     * choose kernels whose bits depend neither on the number of samples nor on that of threads. Copies keep it. */
    bool is_frozen;
    /* A sum is divided among at most so many threads, although the device may have more: replicas with fewer threads must
     * compute the same bits (decision 42). 0: no limit. Copies keep it. */
    int sum_threads;
    /* The graph of a stack (pass/stack.c): values that differ between its networks have a first axis of this size.
     * Devices recognise sums and losses of each network by it. 0: no stack. Copies keep it. */
    int64_t members;
    int batch_scope;  /* tu_batch_scope of normalisations that specify none */
    tu_status status; /* the first error, and its message */
    char *message;
};

/* Returns the node of a valid value. */
TU__SHARED const tu__node *tu__node_of(tu_value value);
static inline tu_value tu__value(tu_graph *graph, uint32_t node, uint32_t output) {
    return (tu_value){.graph = graph, .node = node, .output = output};
}
static inline tu_value tu__invalid(tu_graph *graph) {
    return tu__value(graph, TU_NO_NODE, 0);
}
/* Returns input `index` of a node as a value. */
static inline tu_value tu__input_of(tu_graph *graph, const tu__node *node, uint32_t index) {
    return tu__value(graph, node->inputs[index].node, node->inputs[index].output);
}
/* A node's attributes as its operation's structure: tu__attrs(node, conv2d)->groups */
#define tu__attrs(node, op) ((const struct tu__##op##_attrs *)(node)->attrs)

/* Records an error in the graph, which keeps the first one, and returns an invalid value. */
TU__SHARED tu_value tu__graph_fail(tu_graph *graph, tu_status status, const char *format, ...)
    TU_PRINTF(3, 4);
/* Records that `axis` is not an axis of `x`, an operand of `operation`. */
tu_value tu__graph_fail_axis(const char *operation, tu_value x, int64_t axis);

/* Adds a node and returns its output 0. `attrs` is copied. If the name is taken, a suffix makes it unique. All inputs
 * must belong to this graph; if one is invalid, returns an invalid value without a new error. */
typedef struct tu__node_request {
    tu__opcode op;
    const char *name; /* within the current scope; NULL: the operation's name */
    bool exact_name;  /* fail if the name is taken instead of adding a suffix */
    const void *attrs;
    const tu_value *inputs;
    size_t input_count;
    const void *data;        /* CONSTANT: copied, unless it belongs to `shared` */
    tu__shared_data *shared; /* the graph adds a reference of its own */
    const struct tu_custom_op *custom;
    uint32_t flags;
    const char *device; /* NULL: the device of the enclosing tu_with_device, if any */
    uint32_t group;     /* 0: the graph's group_scope */
    const char *why, *unsupported_on;
    bool moved;
    const char *stands_for;
    int64_t first_row;
} tu__node_request;
tu_value tu__make(tu_graph *graph, const tu__node_request *request);

/* Sets `in` to the types of a node's inputs and `out` to the output types that its shape rule infers. */
tu_status tu__node_infer(const tu_graph *graph, const tu__node *node, tu_type *in, tu_type *out);

/* constraints.c: true if a run computes the node at a definite time, so that control dependencies on it make sense.
 * False for leaves and fills, which are available from the start, and for assignments, which take effect at the
 * end. */
bool tu__node_is_computed(const tu__node *node);
/* Adds a control dependency on an earlier node; does nothing if it exists. */
tu_status tu__node_add_dependency(tu_graph *graph, uint32_t node, uint32_t dependency);

/* Turns an assignment into a node that only returns its value, so that the variable can be assigned again. */
void tu__cancel_assign(tu_graph *graph, uint32_t node);

/* Short form of tu__make for the functions that build nodes: tu__apply(CONV2D, &attrs, x, w). Uses the first input's
 * graph. */
tu_value tu__apply_list(tu__opcode op, const void *attrs, size_t count, const tu_value *inputs);
#define tu__apply(op, attrs, ...)                                                                            \
    tu__apply_list(TU__OP_##op, attrs, sizeof((tu_value[]){__VA_ARGS__}) / sizeof(tu_value),                 \
                   (const tu_value[]){__VA_ARGS__})

/* Sets the current scope to `path` ("" for none). `*previous`, if not NULL, receives the old scope, which the caller
 * frees; restoring it never fails. On failure the scope is unchanged and `*previous` is NULL. */
TU__SHARED tu_status tu__scope_replace(tu_graph *graph, const char *path, char **previous);

/* True if `name` is a syntactically valid device name: 1 to 64 visible characters without commas. Does not check that
 * the device exists. */
bool tu__device_name_is_valid(const char *name);

/* Returns the unique scoped name that a node called `name` would get in the current scope; NULL if memory runs
 * out. */
const char *tu__scoped_name(tu_graph *graph, const char *name);
/* Finds a node by its scoped name; NULL if there is none. */
TU__SHARED const tu__node *tu__find_node(const tu_graph *graph, const char *name);
/* Returns a 64-bit hash of a name, equal on all machines and versions: the key of a random operation. */
uint64_t tu__name_hash(const char *name);

/* Returns the value of an option: the default if it is 0, and 0 if it is TU_ZERO. */
static inline double tu__given_or(double given, double default_value) {
    return given == 0 ? default_value : given == TU_ZERO ? 0 : given;
}

/* Copies an options structure into a local variable. Fields beyond its struct_size, which headers of an older version
 * do not have, become zero. */
#define TU__OPTIONS(type, local, given)                                                                      \
    type local = {0};                                                                                        \
    tu__copy_options(&local, sizeof local, given)
TU__SHARED void tu__copy_options(void *local, size_t size, const void *given);

/* Back-propagates the gradients of `count` values to `wrt`, only through nodes with ids from `first` on. Gradients of
 * values on which nothing depends are invalid values. Used by tu_gradients and for gradients through expansions. */
tu_status tu__backpropagate(tu_graph *graph, uint32_t first, size_t count, const tu_value *values,
                            const tu_value *value_gradients, size_t wrt_count, const tu_value *wrt,
                            tu_value *gradients);

#endif
