/* What an operation is: a row of ops.def, made of a shape rule, a gradient and a meaning.
 *
 *   shape     the types of the outputs, from the types of the inputs and the attributes; refuses what is wrong
 *   gradient  given gradients of the outputs, adds operations that compute gradients of the inputs
 *   meaning   the outputs from the inputs, in f64: the definition that every fast kernel is tested against
 *   expand    the same outputs built from simpler operations: serves as the gradient of gradient operations, and
 *             as a way to run on a device without the kernel
 *   flops     floating-point operations of one evaluation; NULL: one for each output element
 *
 * All four of a family stand in one file under ops/. Devices add fast kernels in their own folders.
 */
#ifndef TU__GRAPH_OP_H
#define TU__GRAPH_OP_H

#include <tutti/graph.h>

typedef struct tu__node tu__node;
typedef struct tu__op tu__op;

/* ---- Attributes: each operation has a plain structure, made of 8-byte cells, and a description of its fields by
 * which graphs are printed, compared, hashed and stored. Both come from the ATTRS column of ops.def. ---- */

typedef enum tu__attr_kind {
    TU__ATTR_I64,
    TU__ATTR_F64,
    TU__ATTR_BOOL,
    TU__ATTR_DTYPE,
    TU__ATTR_SHAPE,
    TU__ATTR_AXES
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
    uint32_t count; /* elements: stride[2] has 2. Fields follow each other without gaps: no offsets */
} tu__attr;

/* ---- The rules' contexts ---- */

typedef struct tu__rule {
    const tu__op *op;
    const char *name; /* the node's scoped name, for messages */
    const void *attrs;
    uint32_t input_count, output_count;
    const tu_type *in;
    tu_type *out;
    const struct tu_custom_op *custom;
} tu__rule;

/* "conv2d 'conv1/conv2d' of f32[8,24,24,3] and f32[64,5,5,4]: <format>": the one form of a builder's mistake. */
tu_status tu__refuse(const tu__rule *rule, const char *format, ...) TU_PRINTF(2, 3);

typedef struct tu__vjp { /* vector-Jacobian product: one node's step of back-propagation */
    tu_graph *graph;
    const tu__node *node;
    struct tu__backprop *pass;
} tu__vjp;

/* The node's forward values, computed again where they are marked so. */
tu_value tu__vjp_input(tu__vjp *vjp, uint32_t index);
tu_value tu__vjp_output(tu__vjp *vjp, uint32_t index);
/* The gradient of an output; zeros of its type when nothing depends on it. */
tu_value tu__vjp_gradient(tu__vjp *vjp, uint32_t output);
bool tu__vjp_has_gradient(const tu__vjp *vjp, uint32_t output);
/* Whether anybody asked for the gradient of this input: work for others can be left out. */
bool tu__vjp_wanted(const tu__vjp *vjp, uint32_t input);
/* Adds to the gradient of an input. An input that was broadcast gets the sum over what it was repeated over. */
void tu__vjp_give(tu__vjp *vjp, uint32_t input, tu_value gradient);

typedef struct tu__tensor { /* values in the reference kernel: dense, row-major, each rounded to its dtype */
    tu_type type;
    double *data;
} tu__tensor;

typedef struct tu__reference_call {
    const tu__node *node;
    const void *attrs;
    const tu__tensor *in;
    tu__tensor *out; /* data allocated, not initialised; the caller rounds to the dtype afterwards */
    uint64_t seed;   /* of the state: the key of random draws */
} tu__reference_call;

/* ---- The table ---- */

typedef enum tu__opcode {
#define OP(id, ...) TU__OP_##id,
#define POINTWISE(id, ...) TU__OP_##id,
#include "graph/ops.def"
    TU__OP_COUNT
} tu__opcode;

enum {                    /* traits */
       TU__POINTWISE = 1, /* one scalar expression; inputs broadcast */
       TU__RANDOM = 2,    /* never merged with another */
       TU__LEAF = 4,      /* made outside the run: input, constant, variable */
       TU__EFFECT = 8,    /* changes state: never dead */
       TU__VIEW = 16,     /* the same elements in the same order */
       TU__COMMUTES = 32, /* the order of its two inputs does not matter */
};

#define TU__ANY_INPUTS UINT32_MAX /* a variable number of inputs, at least one */

typedef enum tu__gradient_kind {
    TU__GRADIENT_RULE,   /* a function */
    TU__GRADIENT_ZERO,   /* piecewise constant: nothing flows back */
    TU__GRADIENT_EXPAND, /* through the expansion */
    TU__GRADIENT_NONE,   /* not offered: asking for it is an error */
} tu__gradient_kind;

struct tu__op {
    const char *name;
    tu__opcode code;
    uint32_t inputs, outputs; /* outputs 0: the shape rule says how many (custom operations) */
    uint32_t traits;
    tu__gradient_kind gradient_kind;
    const tu__attr *attrs;
    uint32_t attr_count, attr_bytes;
    const char *expression; /* pointwise: the scalar expression in x, y, z and attributes a, b */
    tu_status (*shape)(tu__rule *rule);
    void (*gradient)(tu__vjp *vjp);
    tu_status (*reference)(const tu__reference_call *m);
    void (*expand)(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out);
    int64_t (*flops)(const tu__node *node, const tu_type *in);
};

/* Cells of 8 bytes that a field takes. */
uint32_t tu__attr_cells(const tu__attr *attr);

const tu__op *tu__op_get(tu__opcode code);
/* NULL when there is no such operation. */
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
