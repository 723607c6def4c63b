/* The graph from inside: nodes, edges and the calls that make them.
 *
 * Invariants, checked by verify.c:
 *   - nodes are numbered in the order made, and an edge always leads to a lower number: the order is a schedule;
 *   - a node's output types are what its operation's shape rule says of its inputs and attributes;
 *   - node names are unique within the graph;
 *   - nothing is ever removed or changed once made, but for a node's name, its device when passes place it, an
 *     assignment that is taken back, and bonds that are added: what it waits for, what it is placed with (bonds.c).
 */
#ifndef TU__GRAPH_GRAPH_H
#define TU__GRAPH_GRAPH_H

#include <tutti/graph.h>
#include <tutti/node.h>

#include "base/arena.h"
#include "base/shared.h"
#include "graph/op.h"

typedef struct tu_edge tu__edge;

static inline bool tu__same_edge(tu__edge a, tu__edge b) {
    return a.node == b.node && a.output == b.output;
}

enum {
    TU__NODE_RECOMPUTE = 1,  /* made inside tu_recompute: the backward pass computes it again */
    TU__NODE_RECOMPUTED = 2, /* such a second copy; never merged with the first */
};

enum { TU__MAX_WAITS = 4096, TU__MAX_GROUPS = 1 << 20 }; /* of a node, of a graph */

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
    const struct tu_custom_op *custom; /* CUSTOM: the user's functions */
    const char *device;                /* "cpu:0.1"; NULL: wherever the passes put it */
    uint32_t group;                    /* nodes with one number are placed together; 0: none */
    uint32_t after_count;
    uint32_t *after; /* earlier nodes that are computed before it, read or not; rising */
    /* Of a placed node, for people: why it is on its device, and which others would not have it ("gpu:0: …"); NULL: none. */
    const char *why, *refused;
    bool moved; /* it was told to be, or would have been, on a device that does not take it */
    /* Of an input or a variable of one replica (pass/replicate.c): the name of the graph's own that it is a part or a
     * mirror of, and for an input the first row of that which is its own. NULL: it is the graph's own. */
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
    tu__named_value *results;
    uint32_t result_count, result_capacity;
    struct tu__name_table *names; /* scoped name -> node, and the next free suffix */
    char *scope;                  /* current path with a trailing '/', or "" */
    size_t scope_capacity;
    uint32_t recompute_depth;
    const struct tu__device_scope *device_scope; /* the innermost tu_with_device; NULL: none */
    uint32_t lost_device_scopes;                 /* begun when memory had run out */
    uint32_t group_count,
        group_scope; /* groups of nodes; that of new nodes, while a gradient is made; 0: none */
    bool training;
    int batch_scope;  /* a tu_batch_scope: of normalisations that name none */
    tu_status status; /* the first mistake, and its message */
    char *message;
};

/* The node behind a valid value. */
TU__SHARED const tu__node *tu__node_of(tu_value value);
static inline tu_value tu__value(tu_graph *graph, uint32_t node, uint32_t output) {
    return (tu_value){.graph = graph, .node = node, .output = output};
}
static inline tu_value tu__invalid(tu_graph *graph) {
    return tu__value(graph, TU_NO_NODE, 0);
}
/* Value `index` among a node's inputs. */
static inline tu_value tu__input_of(tu_graph *graph, const tu__node *node, uint32_t index) {
    return tu__value(graph, node->inputs[index].node, node->inputs[index].output);
}
/* An attribute structure, typed: tu__attrs(node, conv2d)->groups */
#define tu__attrs(node, op) ((const struct tu__##op##_attrs *)(node)->attrs)

/* Sticks a mistake to the graph (the first one wins) and returns an invalid value. */
TU__SHARED tu_value tu__graph_fail(tu_graph *graph, tu_status status, const char *format, ...)
    TU_PRINTF(3, 4);

/* Makes a node. `attrs` is copied; `name` may be NULL (the operation's name is used); a suffix makes it unique.
 * Returns output 0. All inputs must be of this graph; an invalid input gives an invalid value, silently. */
typedef struct tu__node_request {
    tu__opcode op;
    const char *name; /* within the current scope; NULL: the operation's name */
    bool exact_name;  /* a taken name is an error instead of getting a suffix */
    const void *attrs;
    const tu_value *inputs;
    size_t input_count;
    const void *data; /* CONSTANT */
    const struct tu_custom_op *custom;
    uint32_t flags;
    const char *device; /* NULL: that of the tu_with_device around, if any */
    uint32_t group;     /* 0: that of what it is the gradient of, if any */
    const char *why, *refused;
    bool moved;
    const char *stands_for;
    int64_t first_row;
} tu__node_request;
tu_value tu__make(tu_graph *graph, const tu__node_request *request);

/* Asks the shape rule for the types of a node's outputs, into `out`; those of its inputs come to lie in `in`. */
tu_status tu__node_infer(const tu_graph *graph, const tu__node *node, tu_type *in, tu_type *out);

/* bonds.c: whether something can be computed before the node, or it before something: leaves and fills are no work of a
 * run's own, and an assignment takes effect at its end. */
bool tu__node_is_computed(const tu__node *node);
/* Lets a node wait for an earlier one; a second time changes nothing. */
tu_status tu__node_wait(tu_graph *graph, uint32_t node, uint32_t dependency);

/* Takes an assignment back: from now on its node only passes the value on, and the variable can be assigned again. */
void tu__unassign(tu_graph *graph, uint32_t node);

/* The short form for builders: tu__apply(CONV2D, &attrs, x, w). The graph is the first input's. */
tu_value tu__apply_list(tu__opcode op, const void *attrs, size_t count, const tu_value *inputs);
#define tu__apply(op, attrs, ...)                                                                            \
    tu__apply_list(TU__OP_##op, attrs, sizeof((tu_value[]){__VA_ARGS__}) / sizeof(tu_value),                 \
                   (const tu_value[]){__VA_ARGS__})

/* Takes `path` as the current scope ("" for none); `*previous` (freed by the caller) takes the one before back, which
 * never fails. A failure leaves the scope as it was and `*previous` NULL. */
tu_status tu__scope_replace(tu_graph *graph, const char *path, char **previous);

/* Whether a string can name a device: visible characters, 64 at most. Which devices there are, the graph does not know. */
bool tu__device_name_usable(const char *name);

/* The full, unique path that a node named so would get in the current scope; NULL when memory runs out. */
const char *tu__scoped_name(tu_graph *graph, const char *name);
/* Finds a node by full name; NULL when there is none. */
TU__SHARED const tu__node *tu__find_node(const tu_graph *graph, const char *name);
/* A stable 64-bit hash of a name: the part of a random operation's key that says which operation it is. */
uint64_t tu__name_hash(const char *name);

/* The value of a field of options: the default if 0 was given, 0 if TU_ZERO was. */
static inline double tu__given_or(double given, double standard) {
    return given == 0 ? standard : given == TU_ZERO ? 0 : given;
}

/* Reads an options structure that may come from an older header: fields past its size are zero. */
#define TU__OPTIONS(type, local, given)                                                                      \
    type local = {0};                                                                                        \
    tu__copy_options(&local, sizeof local, given)
TU__SHARED void tu__copy_options(void *local, size_t size, const void *given);

/* Back-propagates: given gradients of `count` values, the gradients of `wrt`, looking only at nodes numbered from
 * `first` on. Invalid where nothing depends. What tu_gradients and gradients by expansion share. */
tu_status tu__backpropagate(tu_graph *graph, uint32_t first, size_t count, const tu_value *values,
                            const tu_value *value_gradients, size_t wrt_count, const tu_value *wrt,
                            tu_value *gradients);

#endif
