/* Reading the nodes of a graph: for devices, placement functions and tools.
 *
 * A node is identified by its index: nodes are counted from 0 in the order they were made, and a node's inputs have
 * lower indices. Every index passed to these functions must be less than tu_node_count. Names, texts and data that they
 * return are valid as long as the graph. A device gets node indices (tu_partition in device.h) and reads each node with
 * these functions:
 *
 *     tu_edge inputs[2];
 *     int64_t stride[2];
 *     bool is_convolution = strcmp(tu_node_operation(graph, node), "conv2d") == 0;
 *     if (is_convolution && tu_node_inputs(graph, node, 2, inputs) == 2 &&
 *         tu_node_attribute(graph, node, "stride", 2, stride) == TU_OK)
 *         …
 */
#ifndef TUTTI_NODE_H
#define TUTTI_NODE_H

#include <tutti/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Output `output` of node `node`. Frozen: it gets no more fields. */
typedef struct tu_edge {
    uint32_t node, output;
} tu_edge;

struct tu_custom_op;

/* Returns the number of nodes. */
TU_API uint32_t tu_node_count(const tu_graph *graph);
/* Returns the name of the operation, such as "conv2d", or of the node. */
TU_API const char *tu_node_operation(const tu_graph *graph, uint32_t node);
TU_API const char *tu_node_name(const tu_graph *graph, uint32_t node);
/* Writes up to `capacity` inputs. Returns how many the node has. */
TU_API uint32_t tu_node_inputs(const tu_graph *graph, uint32_t node, uint32_t capacity, tu_edge *inputs);
TU_API uint32_t tu_node_outputs(const tu_graph *graph, uint32_t node);
/* Returns the type of a value. */
TU_API tu_type tu_edge_type(const tu_graph *graph, tu_edge edge);

/* ---- Attributes: the parameters of an operation, such as stride and pad of conv2d. docs/operations.md lists them. An
 * attribute that was not given is zero.
 *
 *     for (uint32_t i = 0; i < tu_node_attribute_count(graph, node); i++) {
 *         tu_attribute attribute = TU_SIZED(tu_attribute);
 *         if (tu_node_attribute_at(graph, node, i, &attribute) != TU_OK) break;
 *         if (attribute.kind == TU_ATTRIBUTE_F64) printf("%s = %g\n", attribute.name, attribute.reals[0]);
 *         if (attribute.choice) printf("%s = %s\n", attribute.name, attribute.choice);
 *     }
 * ---- */

typedef enum tu_attribute_kind {
    TU_ATTRIBUTE_I64,
    TU_ATTRIBUTE_F64,
    TU_ATTRIBUTE_BOOL,  /* an integer: 0 or 1 */
    TU_ATTRIBUTE_DTYPE, /* an integer: a tu_dtype */
    TU_ATTRIBUTE_SHAPE,
    TU_ATTRIBUTE_AXES, /* an integer: a bit mask in which bit i is axis i */
} tu_attribute_kind;

typedef struct tu_attribute {
    size_t struct_size;
    const char *name;
    tu_attribute_kind kind;
    uint32_t count; /* number of elements: 2 for the stride of conv2d */
    /* The `count` elements. Only the pointer of the attribute's kind is set; the others are NULL. */
    const int64_t *integers; /* I64, BOOL, DTYPE, AXES */
    const double *reals;     /* F64 */
    const tu_shape *shapes;  /* SHAPE */
    /* The name of an integer that is a choice, such as "nearest" for the method of resize; NULL: a plain number. */
    const char *choice;
} tu_attribute;

TU_API uint32_t tu_node_attribute_count(const tu_graph *graph, uint32_t node);
/* Fills `attribute` with the attribute of this index or name. Fails with TU_NOT_FOUND if there is none. */
TU_API tu_status tu_node_attribute_at(const tu_graph *graph, uint32_t node, uint32_t index,
                                      tu_attribute *attribute);
TU_API tu_status tu_node_find_attribute(const tu_graph *graph, uint32_t node, const char *name,
                                        tu_attribute *attribute);
/* Copies up to `count` words of 8 bytes of an attribute to `cells`. A word is an int64_t or a double. A shape is 9
 * words: its rank and 8 dimensions. */
TU_API tu_status tu_node_attribute(const tu_graph *graph, uint32_t node, const char *name, size_t count,
                                   void *cells);

/* ---- Operations ---- */

/* Properties of an operation, as bits. */
typedef enum tu_trait {
    TU_TRAIT_POINTWISE = 1, /* a scalar expression per element (tu_node_expression); inputs broadcast */
    TU_TRAIT_RANDOM = 2,    /* depends on the seed and the attribute "key" */
    TU_TRAIT_LEAF = 4,      /* an input, constant or variable: the engine provides it before a run */
    TU_TRAIT_EFFECT = 8,    /* an assignment */
    TU_TRAIT_VIEW = 16,     /* the output has the input's elements in the same order: it needs no kernel */
    TU_TRAIT_COMMUTES = 32, /* the two inputs may be exchanged */
    TU_TRAIT_CHEAP =
        64, /* pointwise, and faster to compute again than to store and read: an addition, a comparison */
    TU_TRAIT_COLLECTIVE = 128, /* executed by the engine together with other devices: an all-reduce */
} tu_trait;

/* Returns the traits of a node's operation: tu_trait bits. */
TU_API uint32_t tu_node_traits(const tu_graph *graph, uint32_t node);

/* Returns the scalar expression of a pointwise operation as C, such as "x < a ? a : x > b ? b : x" for clip; NULL for
 * other operations. A device generates its kernel from it:
 *
 *   x, y, z   elements of inputs 0, 1 and 2, which broadcast to the output's shape
 *   a, b      the first two attributes, if they are of kind TU_ATTRIBUTE_F64
 *   K(n)      the constant n, in the type of the computation
 *   pow exp expm1 log log1p sqrt sin cos tan erf tanh floor ceil rint
 *             the functions of <math.h>, in the type of the computation
 *
 * All operands have the type of the computation: f64 if the type of an input or of the output is f64, i32 or i64;
 * f32 otherwise. An element of type bool is 0 or 1. The result is converted to the type of the output: a float type
 * rounds to nearest, ties to even; an integer type truncates and saturates, and NaN becomes 0; bool is 1 unless the
 * result equals 0.
 * An expression contains no other names. */
TU_API const char *tu_node_expression(const tu_graph *graph, uint32_t node);

/* Returns the elements of a constant: dense, row-major, of the type of output 0. Sets `*bytes`, if `bytes` is not NULL,
 * to their size. Returns NULL and sets 0 for other nodes. A fill has no data: each of its elements is its attribute
 * "number", converted to its type. */
TU_API const void *tu_node_constant(const tu_graph *graph, uint32_t node, size_t *bytes);

/* Returns the registered operation (custom.h) of a "custom" node, whose run function a device calls on dense tensors in
 * host memory; NULL for other nodes. */
TU_API const struct tu_custom_op *tu_node_custom(const tu_graph *graph, uint32_t node);

/* Computes one node with its reference kernel, on dense host tensors. A new device can support every operation this
 * way. */
TU_API tu_status tu_node_evaluate(const tu_graph *graph, uint32_t node, uint64_t seed, const void *const *in,
                                  void *const *out);

#ifdef __cplusplus
}
#endif
#endif
