/* Prototypes of the functions of all operations, generated from ops.def. The files under ops/ include it, so that the
 * compiler reports misspelt function names. */
#ifndef TU__GRAPH_RULES_H
#define TU__GRAPH_RULES_H

#include "graph/op.h"

#define DECLARE_GRADIENT_RULE(name) void tu__##name##_gradient(tu__vjp *vjp);
#define DECLARE_GRADIENT_ZERO(name)
#define DECLARE_GRADIENT_EXPAND(name)
#define DECLARE_GRADIENT_NONE(name)
#define DECLARE_EXPAND_OWN(name)                                                                             \
    void tu__##name##_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out);
#define DECLARE_EXPAND_NONE(name)
#define DECLARE_FLOPS_OWN(name) int64_t tu__##name##_flops(const tu__node *node, const tu_type *in);
#define DECLARE_FLOPS_NONE(name)

#define OP(id, name, inputs, outputs, traits, attrs, gradient, expand, flops)                                \
    tu_status tu__##name##_shape(tu__rule *rule);                                                            \
    tu_status tu__##name##_reference(const tu__reference_call *call);                                        \
    DECLARE_GRADIENT_##gradient(name) DECLARE_EXPAND_##expand(name) DECLARE_FLOPS_##flops(name)
#define POINTWISE(id, name, inputs, types, result, traits, attrs, gradient, expression)                      \
    tu_status tu__##name##_shape(tu__rule *rule);                                                            \
    tu_status tu__##name##_reference(const tu__reference_call *call);                                        \
    DECLARE_GRADIENT_##gradient(name)
#include "graph/ops.def"

#endif
