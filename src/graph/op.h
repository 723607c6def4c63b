/* Operations. Each is a row of ops.def with these functions:
 *
 *   shape      infers the output types from the input types and attributes, and rejects invalid ones
 *   gradient   adds operations that compute the inputs' gradients from the outputs' gradients
 *   reference  the reference kernel: computes the outputs in f64. All fast kernels are tested against it
 *   expand     builds the same outputs from simpler operations, for second derivatives and devices without a kernel
 *   flops      number of floating-point operations of one evaluation; NULL: one per output element
 *
 * The functions of a family of operations are in one file under ops/. Devices have their fast kernels in their
 * folders.
 */
#ifndef TU__GRAPH_OP_H
#define TU__GRAPH_OP_H

#include <tutti/graph.h>
#include <tutti/node.h>

typedef struct tu__node tu__node;
typedef struct tu__op tu__op;

/* ---- Attributes: each operation has a structure of 8-byte cells, and a description of its fields that is used to
 * print, compare, hash and store graphs. Both are generated from the attributes column of ops.def. ---- */

/* The same numbers are in graph files. */
typedef enum tu__attr_kind {
    TU__ATTR_I64 = TU_ATTRIBUTE_I64,
    TU__ATTR_F64 = TU_ATTRIBUTE_F64,
    TU__ATTR_BOOL = TU_ATTRIBUTE_BOOL,
    TU__ATTR_DTYPE = TU_ATTRIBUTE_DTYPE,
    TU__ATTR_SHAPE = TU_ATTRIBUTE_SHAPE,
    TU__ATTR_AXES = TU_ATTRIBUTE_AXES
} tu__attr_kind;

/* C type and number of cells of each kind. AXES is a bit mask: bit i set means axis i. */
#define TU__CELL_I64 int64_t
#define TU__CELL_F64 double
#define TU__CELL_BOOL int64_t
#define TU__CELL_DTYPE int64_t
#define TU__CELL_SHAPE tu_shape
#define TU__CELL_AXES int64_t

typedef struct tu__attr {
    const char *name;
    tu__attr_kind kind;
    uint32_t count; /* number of elements, e.g. 2 for stride[2]. Fields have no gaps between them */
} tu__attr;

/* ---- Arguments of the functions ---- */

typedef struct tu__rule { /* arguments of a shape rule: the node whose output types it infers */
    const tu__op *op;
    const char *name; /* the node's scoped name, for messages */
    const void *attrs;
    uint32_t input_count, output_count;
    const tu_type *in;
    tu_type *out;
    const struct tu_custom_op *custom;
} tu__rule;

/* Fails with TU_INVALID and "conv2d node 'conv1/conv2d' (inputs f32[8,24,24,3], f32[64,5,5,4]): <format>". */
tu_status tu__rule_fail(const tu__rule *rule, const char *format, ...) TU_PRINTF(2, 3);
/* Fails because `axis` is not an axis of input 0. */
tu_status tu__rule_fail_axis(const tu__rule *rule, int64_t axis);

typedef struct tu__vjp { /* vector-Jacobian product: the back-propagation through one node */
    tu_graph *graph;
    const tu__node *node;
    struct tu__backprop *pass;
} tu__vjp;

/* Return the node's forward values; copies of them if they are marked for recomputation. */
tu_value tu__vjp_input(tu__vjp *vjp, uint32_t index);
tu_value tu__vjp_output(tu__vjp *vjp, uint32_t index);
/* Returns the gradient of an output; zeros of its type if nothing depends on it. */
tu_value tu__vjp_gradient(tu__vjp *vjp, uint32_t output);
/* True if something that is differentiated depends on the output; otherwise its gradient is zero. */
bool tu__vjp_has_gradient(const tu__vjp *vjp, uint32_t output);
/* True if the gradient of this input is needed. Rules may skip the other inputs. */
bool tu__vjp_needs_gradient(const tu__vjp *vjp, uint32_t input);
/* Adds to the gradient of an input. If the input was broadcast, sums over the broadcast axes. */
void tu__vjp_accumulate(tu__vjp *vjp, uint32_t input, tu_value gradient);

typedef struct
    tu__tensor { /* operand of a reference kernel: dense, row-major, each element rounded to the dtype */
    tu_type type;
    double *data;
} tu__tensor;

typedef struct tu__reference_call {
    const tu__node *node;
    const void *attrs;
    const tu__tensor *in;
    tu__tensor *out; /* data is allocated but not initialised; the caller rounds the results to the dtype */
    uint64_t seed;   /* the state's random seed */
} tu__reference_call;

/* ---- The table ---- */

typedef enum tu__opcode {
#define OP(id, ...) TU__OP_##id,
#define POINTWISE(id, ...) TU__OP_##id,
#include "graph/ops.def"
    TU__OP_COUNT
} tu__opcode;

/* Traits: node.h describes them. */
enum {
    TU__POINTWISE = TU_TRAIT_POINTWISE,
    TU__RANDOM = TU_TRAIT_RANDOM, /* never merged with another */
    TU__LEAF = TU_TRAIT_LEAF,
    TU__EFFECT = TU_TRAIT_EFFECT, /* never eliminated as dead code */
    TU__VIEW = TU_TRAIT_VIEW,
    TU__COMMUTES = TU_TRAIT_COMMUTES,
    TU__CHEAP = TU_TRAIT_CHEAP,
    TU__COLLECTIVE = TU_TRAIT_COLLECTIVE,
};

#define TU__ANY_INPUTS UINT32_MAX /* a variable number of inputs, at least one */

typedef enum tu__gradient_kind {
    TU__GRADIENT_RULE,   /* the operation's gradient function */
    TU__GRADIENT_ZERO,   /* no gradient, e.g. for piecewise constant functions */
    TU__GRADIENT_EXPAND, /* the gradient of the expansion */
    TU__GRADIENT_NONE,   /* not supported: differentiating fails */
} tu__gradient_kind;

struct tu__op {
    const char *name;
    tu__opcode code;
    uint32_t inputs, outputs; /* number of each; outputs 0: the tu_custom_op has the number */
    uint32_t traits;
    tu__gradient_kind gradient_kind;
    const tu__attr *attrs;
    uint32_t attr_count, attr_bytes;
    const char *expression; /* pointwise: the scalar expression in x, y, z and attributes a, b */
    tu_status (*shape)(tu__rule *rule);
    void (*gradient)(tu__vjp *vjp);
    tu_status (*reference)(const tu__reference_call *call);
    void (*expand)(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out);
    int64_t (*flops)(const tu__node *node, const tu_type *in);
};

/* Returns the number of 8-byte cells of a field. */
uint32_t tu__attr_cells(const tu__attr *attr);

const tu__op *tu__op_get(tu__opcode code);
/* Returns NULL if there is no operation of this name. */
const tu__op *tu__op_find(const char *name);

/* Attribute structures: struct tu__conv2d_attrs { int64_t stride[2]; … }; */
#define ATTR(kind, name, count) TU__CELL_##kind name TU__ATTR_ARRAY_##count;
#define TU__ATTR_ARRAY_1
#define TU__ATTR_ARRAY_2 [2]
#define TU__ATTR_ARRAY_4 [4]
#define TU__ATTR_ARRAY_8 [8]
#define OP(id, name, inputs, outputs, traits, attrs, ...)                                                    \
    struct tu__##name##_attrs {                                                                              \
        attrs                                                                                                \
    };
#define POINTWISE(id, name, inputs, types, result, traits, attrs, ...)                                       \
    struct tu__##name##_attrs {                                                                              \
        attrs                                                                                                \
    };
#include "graph/ops.def"
#undef ATTR

#endif
