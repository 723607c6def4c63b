/* The algebraic identities of the pass `simplify`, one function per operation. Each may replace the node by an
 * existing value, or change its operation and inputs to an equivalent that reads earlier values. simplify.c lists
 * which bits of results may change. */
#include <math.h>
#include <string.h>

#include "base/number.h"
#include "graph/walk.h"
#include "pass/simplify.h"

static tu_type result_type(const tu__candidate *c) {
    return c->origin->outputs[0];
}

static bool same_type(tu_type a, tu_type b) {
    return a.dtype == b.dtype && tu_shape_equal(a.shape, b.shape);
}

/* Replaces the node by its input `i`, if that has the node's type. */
static tu__outcome replace_by_input(tu__candidate *c, uint32_t i) {
    if (!same_type(tu_value_type(c->inputs[i]), result_type(c))) return TU__KEPT;
    c->replacement = c->inputs[i];
    return TU__REPLACED;
}

/* Returns the node that computes an input if it is this operation, else NULL. */
static const tu__node *source_with_op(const tu__candidate *c, uint32_t input, tu__opcode op) {
    const tu__node *node = tu__candidate_source(c, input);
    return node->op->code == op ? node : NULL;
}

/* Replaces input `i` by the (only) input of the node that computes it. */
static void skip_source(tu__candidate *c, uint32_t i) {
    c->inputs[i] = tu__input_of(c->r->to, tu__candidate_source(c, i), 0);
}

/* ---- Arithmetic ---- */

static bool is_fill_of(const tu__candidate *c, uint32_t input, double number) {
    double fill_number;
    return tu__is_fill(c->inputs[input], &fill_number) && fill_number == number;
}

static tu__outcome simplify_add(tu__candidate *c) {
    tu__outcome outcome = is_fill_of(c, 1, 0) ? replace_by_input(c, 0) : TU__KEPT;
    return outcome == TU__KEPT && is_fill_of(c, 0, 0) ? replace_by_input(c, 1) : outcome;
}

static bool same_value(tu_value a, tu_value b) {
    return a.node == b.node && a.output == b.output;
}

/* True if `factor` is softmax(logits) and `other` is the sum of `target`, both along the last axis. */
static bool is_softmax_times_sum(tu_graph *g, tu_value factor, tu_value other, tu_value target) {
    const tu__node *softmax = g->nodes[factor.node], *sum = g->nodes[other.node];
    int64_t last = tu_value_shape(target).rank - 1;
    return softmax->op->code == TU__OP_SOFTMAX && tu__attrs(softmax, softmax)->axis == last &&
           sum->op->code == TU__OP_SUM && tu__attrs(sum, sum)->axes == (int64_t)1 << last &&
           same_value(tu__input_of(g, sum, 0), target);
}

/* softmax(x) * sum(t) - t with t = one_hot(labels) -> cross_entropy_grad(x, labels): the gradient of a cross-entropy
 * in graph files written before cross_entropy_grad was an operation. Devices fuse it with the loss. */
static tu__outcome recognise_cross_entropy_grad(tu__candidate *c) {
    tu_graph *g = c->r->to;
    const tu__node *mul = source_with_op(c, 0, TU__OP_MUL), *one_hot = source_with_op(c, 1, TU__OP_ONE_HOT);
    if (!mul || !one_hot) return TU__KEPT;
    tu_value labels = tu__input_of(g, one_hot, 0);
    bool are_classes = tu_value_dtype(labels) == TU_I32 || tu_value_dtype(labels) == TU_I64;
    for (uint32_t i = 0; i < 2 && are_classes; i++) {
        tu_value factor = tu__input_of(g, mul, i);
        if (!is_softmax_times_sum(g, factor, tu__input_of(g, mul, 1 - i), c->inputs[1]) ||
            !same_type(tu_value_type(factor), tu_value_type(c->inputs[1])))
            continue;
        c->op = TU__OP_CROSS_ENTROPY_GRAD;
        c->inputs[0] = tu__input_of(g, g->nodes[factor.node], 0);
        c->inputs[1] = labels;
        return TU__CHANGED;
    }
    return TU__KEPT;
}

static tu__outcome simplify_sub(tu__candidate *c) {
    return is_fill_of(c, 1, 0) ? replace_by_input(c, 0) : recognise_cross_entropy_grad(c);
}

/* True for +-2^k that is not near the limits of the type's range: multiplying by it only changes the exponent. */
static bool is_power_of_two(tu_dtype dtype, double x) {
    int exponent;
    if (!tu_dtype_is_float(dtype) || !isfinite(x) || fabs(frexp(x, &exponent)) != 0.5) return false;
    double inverse = 1 / x;
    return tu__round_to(dtype, x) == x && isfinite(inverse) && tu__round_to(dtype, inverse) == inverse;
}

/* Combines x * a * b into one factor if a and b are powers of two, both >= 1 or both < 1. If one grows and the other
 * shrinks, the intermediate product could overflow or underflow. */
static tu__outcome combine_factors(tu__candidate *c) {
    for (uint32_t i = 0; i < 2; i++) {
        double outer, inner;
        tu_type factor = tu_value_type(c->inputs[i]);
        const tu__node *product = source_with_op(c, 1 - i, TU__OP_MUL);
        if (!product || !tu__is_fill(c->inputs[i], &outer) || !is_power_of_two(factor.dtype, outer)) continue;
        for (uint32_t k = 0; k < 2; k++) {
            if (!tu__is_fill(tu__input_of(c->r->to, product, k), &inner)) continue;
            if (!is_power_of_two(factor.dtype, inner) || (fabs(outer) >= 1) != (fabs(inner) >= 1)) continue;
            tu_value other_operand = tu__input_of(c->r->to, product, 1 - k);
            if (!is_power_of_two(factor.dtype, outer * inner) || factor.shape.rank != 0) continue;
            if (!same_type(tu_value_type(other_operand), result_type(c))) continue;
            c->inputs[0] = other_operand;
            c->inputs[1] = tu__simplify_fill(c, factor, outer * inner);
            return TU__CHANGED;
        }
    }
    return TU__KEPT;
}

static tu__outcome simplify_mul(tu__candidate *c) {
    tu__outcome outcome = is_fill_of(c, 1, 1) ? replace_by_input(c, 0) : TU__KEPT;
    if (outcome == TU__KEPT && is_fill_of(c, 0, 1)) outcome = replace_by_input(c, 1);
    return outcome == TU__KEPT ? combine_factors(c) : outcome;
}

/* Replaces division by a power of two by multiplication, which is bit-identical. */
static tu__outcome simplify_div(tu__candidate *c) {
    double divisor;
    if (!tu__is_fill(c->inputs[1], &divisor)) return TU__KEPT;
    if (divisor == 1) return replace_by_input(c, 0);
    tu_type type = tu_value_type(c->inputs[1]);
    if (!is_power_of_two(type.dtype, divisor)) return TU__KEPT;
    c->inputs[1] = tu__simplify_fill(c, type, 1 / divisor);
    c->op = TU__OP_MUL;
    return TU__CHANGED;
}

/* Only floats: integer negation saturates, so -(-x) may differ from x. */
static tu__outcome simplify_neg(tu__candidate *c) {
    const tu__node *inner = source_with_op(c, 0, TU__OP_NEG);
    if (!inner || !tu_dtype_is_float(result_type(c).dtype)) return TU__KEPT;
    c->replacement = tu__input_of(c->r->to, inner, 0);
    return TU__REPLACED;
}

/* ---- Types ---- */

/* True if every value of `narrow` is exactly representable in `wide`. */
static bool represents_all_of(tu_dtype wide, tu_dtype narrow) {
    if (wide == narrow || narrow == TU_BOOL) return true;
    switch (narrow) {
    case TU_F32: return wide == TU_F64;
    case TU_BF16:
    case TU_F16: return wide == TU_F32 || wide == TU_F64;
    case TU_I32: return wide == TU_F64 || wide == TU_I64;
    case TU_U8: return wide != TU_BOOL && wide != TU_I8; /* 0 to 255 need 8 bits, which bf16 has */
    case TU_I8: return wide != TU_BOOL && wide != TU_U8;
    default: return false;
    }
}

static tu__outcome simplify_cast(tu__candidate *c) {
    if (tu_value_dtype(c->inputs[0]) == result_type(c).dtype) return replace_by_input(c, 0);
    const tu__node *inner = source_with_op(c, 0, TU__OP_CAST);
    if (!inner) return TU__KEPT;
    tu_value source = tu__input_of(c->r->to, inner, 0);
    if (!represents_all_of(inner->outputs[0].dtype, tu_value_dtype(source))) return TU__KEPT;
    c->inputs[0] = source;
    return TU__CHANGED;
}

/* ---- Shapes ---- */

/* Drops operations that do nothing, or do nothing if the shape stays the same. */
static tu__outcome drop_if_same_type(tu__candidate *c) {
    return replace_by_input(c, 0);
}

static tu__outcome simplify_reshape(tu__candidate *c) {
    tu__outcome outcome = replace_by_input(c, 0);
    if (outcome != TU__KEPT || !source_with_op(c, 0, TU__OP_RESHAPE)) return outcome;
    skip_source(c, 0);
    return TU__CHANGED;
}

static tu__outcome simplify_broadcast(tu__candidate *c) {
    tu__outcome outcome = replace_by_input(c, 0);
    if (outcome != TU__KEPT || !source_with_op(c, 0, TU__OP_BROADCAST)) return outcome;
    skip_source(c, 0);
    return TU__CHANGED;
}

static bool is_identity(const int64_t *permutation, int64_t rank) {
    for (int64_t i = 0; i < rank; i++)
        if (permutation[i] != i) return false;
    return true;
}

static tu__outcome simplify_transpose(tu__candidate *c) {
    const struct tu__transpose_attrs *outer = c->attrs;
    int64_t rank = result_type(c).shape.rank;
    if (is_identity(outer->permutation, rank)) return replace_by_input(c, 0);
    const tu__node *inner = source_with_op(c, 0, TU__OP_TRANSPOSE);
    if (!inner) return TU__KEPT;
    struct tu__transpose_attrs both = {{0}};
    for (int64_t i = 0; i < rank; i++)
        both.permutation[i] = tu__attrs(inner, transpose)->permutation[outer->permutation[i]];
    c->new_attrs.transpose = both;
    c->attrs = &c->new_attrs;
    skip_source(c, 0);
    return TU__CHANGED;
}

/* A flip along axes of size 1 does nothing. */
static tu__outcome simplify_flip(tu__candidate *c) {
    int64_t axes = ((const struct tu__flip_attrs *)c->attrs)->axes;
    tu_shape shape = result_type(c).shape;
    for (int64_t i = 0; i < shape.rank; i++)
        if ((axes >> i & 1) && shape.dim[i] > 1) return TU__KEPT;
    return replace_by_input(c, 0);
}

static tu__outcome simplify_concat(tu__candidate *c) {
    return c->input_count == 1 ? replace_by_input(c, 0) : TU__KEPT;
}

/* ---- Select ---- */

/* select(relu(u) > 0, y, 0) -> relu_grad(relu(u), y): the gradient of a relu in graph files written before relu_grad
 * was an operation. Devices fuse relu_grad. */
static tu__outcome recognise_relu_grad(tu__candidate *c) {
    const tu__node *greater = source_with_op(c, 0, TU__OP_GREATER);
    double otherwise, limit;
    if (!greater || !tu__is_fill(c->inputs[2], &otherwise) || otherwise != 0 || signbit(otherwise))
        return TU__KEPT;
    tu_value x = tu__input_of(c->r->to, greater, 0);
    tu_shape shape = tu_value_shape(x);
    bool is_relu = c->r->to->nodes[x.node]->op->code == TU__OP_RELU &&
                   tu__is_fill(tu__input_of(c->r->to, greater, 1), &limit) && limit == 0;
    if (!is_relu || result_type(c).dtype == TU_BOOL ||
        !tu__broadcast_shapes(shape, tu_value_shape(c->inputs[1]), &shape) ||
        !tu_shape_equal(shape, result_type(c).shape))
        return TU__KEPT;
    c->op = TU__OP_RELU_GRAD;
    c->inputs[0] = x;
    c->input_count = 2;
    return TU__CHANGED;
}

static tu__outcome simplify_select(tu__candidate *c) {
    double condition;
    uint32_t chosen = 1;
    if (tu__is_fill(c->inputs[0], &condition))
        chosen = condition != 0 ? 1 : 2;
    else if (!same_value(c->inputs[1], c->inputs[2]))
        return recognise_relu_grad(c);
    if (replace_by_input(c, chosen) == TU__REPLACED) return TU__REPLACED;
    c->inputs[0] = c->inputs[chosen];
    c->input_count = 1;
    c->op = TU__OP_BROADCAST;
    c->new_attrs.broadcast = (struct tu__broadcast_attrs){.shape = result_type(c).shape};
    c->attrs = &c->new_attrs;
    return TU__CHANGED;
}

/* ---- All pointwise operations: they broadcast their inputs, so an explicit broadcast before them is dropped ---- */

/* True if the result keeps its shape when input `i` has `shape`. */
static bool keeps_result_shape(const tu__candidate *c, uint32_t i, tu_shape shape) {
    tu_shape result = shape;
    for (uint32_t k = 0; k < c->input_count; k++)
        if (k != i && !tu__broadcast_shapes(result, tu_value_shape(c->inputs[k]), &result)) return false;
    return tu_shape_equal(result, result_type(c).shape);
}

static tu__outcome shrink_input(tu__candidate *c, uint32_t i) {
    double number;
    tu_type type = tu_value_type(c->inputs[i]);
    if (source_with_op(c, i, TU__OP_BROADCAST)) {
        tu_value source = tu__input_of(c->r->to, tu__candidate_source(c, i), 0);
        if (!keeps_result_shape(c, i, tu_value_shape(source))) return TU__KEPT;
        c->inputs[i] = source;
        return TU__CHANGED;
    }
    if (type.shape.rank == 0 || !tu__is_fill(c->inputs[i], &number)) return TU__KEPT;
    type.shape = TU_SCALAR;
    if (!keeps_result_shape(c, i, type.shape)) return TU__KEPT;
    c->inputs[i] = tu__simplify_fill(c, type, number);
    return TU__CHANGED;
}

static tu__outcome shrink_inputs(tu__candidate *c) {
    tu__outcome outcome = TU__KEPT;
    for (uint32_t i = 0; i < c->input_count; i++)
        if (shrink_input(c, i) == TU__CHANGED) outcome = TU__CHANGED;
    return outcome;
}

/* ---- The table ---- */

static const struct {
    tu__opcode op;
    tu__outcome (*apply)(tu__candidate *c);
} identities[] = {
    {TU__OP_ADD, simplify_add},
    {TU__OP_SUB, simplify_sub},
    {TU__OP_MUL, simplify_mul},
    {TU__OP_DIV, simplify_div},
    {TU__OP_NEG, simplify_neg},
    {TU__OP_CAST, simplify_cast},
    {TU__OP_RESHAPE, simplify_reshape},
    {TU__OP_BROADCAST, simplify_broadcast},
    {TU__OP_TRANSPOSE, simplify_transpose},
    {TU__OP_SLICE, drop_if_same_type},
    {TU__OP_PAD, drop_if_same_type},
    {TU__OP_FLIP, simplify_flip},
    {TU__OP_CONCAT, simplify_concat},
    {TU__OP_SELECT, simplify_select},
    {TU__OP_STOP_GRADIENT, drop_if_same_type}, /* gradients have been built already */
    {TU__OP_COPY, drop_if_same_type},          /* the pass `partition` inserts the copies that are needed */
};

tu__outcome tu__simplify_by_algebra(tu__candidate *c) {
    for (size_t i = 0; i < sizeof identities / sizeof *identities; i++) {
        if (identities[i].op != c->op) continue;
        tu__outcome outcome = identities[i].apply(c);
        if (outcome != TU__KEPT) return outcome;
        break;
    }
    return tu__op_get(c->op)->traits & TU__POINTWISE ? shrink_inputs(c) : TU__KEPT;
}
