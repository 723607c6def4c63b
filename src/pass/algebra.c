/* Identities that simplify knows, one function an operation. Each may replace the node by a value that is
 * there, or change its operation and inputs for something nearer to the sources; simplify.c says which bits
 * may change. */
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

/* The node is its input `i`, where that has the right type. */
static tu__outcome be_input(tu__candidate *c, uint32_t i) {
    if (!same_type(tu_value_type(c->inputs[i]), result_type(c))) return TU__KEPT;
    c->replacement = c->inputs[i];
    return TU__REPLACED;
}

/* The node behind an input, if it is this operation; NULL otherwise. */
static const tu__node *source_is(const tu__candidate *c, uint32_t input, tu__opcode op) {
    const tu__node *node = tu__candidate_source(c, input);
    return node->op->code == op ? node : NULL;
}

/* Reads past the node behind input `i`, which has one input. */
static void skip_source(tu__candidate *c, uint32_t i) {
    c->inputs[i] = tu__input_of(c->r->to, tu__candidate_source(c, i), 0);
}

/* ---- Arithmetic ---- */

static bool is_number(const tu__candidate *c, uint32_t input, double number) {
    double held;
    return tu__is_fill(c->inputs[input], &held) && held == number;
}

static tu__outcome add(tu__candidate *c) {
    tu__outcome outcome = is_number(c, 1, 0) ? be_input(c, 0) : TU__KEPT;
    return outcome == TU__KEPT && is_number(c, 0, 0) ? be_input(c, 1) : outcome;
}

static tu__outcome sub(tu__candidate *c) {
    return is_number(c, 1, 0) ? be_input(c, 0) : TU__KEPT;
}

/* +-2^k, away from the ends of the type's range: multiplying by it only moves the exponent. */
static bool is_power_of_two(tu_dtype dtype, double x) {
    int exponent;
    if (!tu_dtype_is_float(dtype) || !isfinite(x) || fabs(frexp(x, &exponent)) != 0.5) return false;
    double inverse = 1 / x;
    return tu__round_to(dtype, x) == x && isfinite(inverse) && tu__round_to(dtype, inverse) == inverse;
}

/* x * a * b with a and b powers of two that both grow or both shrink: one factor. Were one to grow and the
 * other to shrink, the product in between could leave the range. */
static tu__outcome combine_factors(tu__candidate *c) {
    for (uint32_t i = 0; i < 2; i++) {
        double outer, inner;
        tu_type factor = tu_value_type(c->inputs[i]);
        const tu__node *product = source_is(c, 1 - i, TU__OP_MUL);
        if (!product || !tu__is_fill(c->inputs[i], &outer) || !is_power_of_two(factor.dtype, outer)) continue;
        for (uint32_t k = 0; k < 2; k++) {
            if (!tu__is_fill(tu__input_of(c->r->to, product, k), &inner)) continue;
            if (!is_power_of_two(factor.dtype, inner) || (fabs(outer) >= 1) != (fabs(inner) >= 1)) continue;
            tu_value rest = tu__input_of(c->r->to, product, 1 - k);
            if (!is_power_of_two(factor.dtype, outer * inner) || factor.shape.rank != 0) continue;
            if (!same_type(tu_value_type(rest), result_type(c))) continue;
            c->inputs[0] = rest;
            c->inputs[1] = tu__simplify_fill(c, factor, outer * inner);
            return TU__CHANGED;
        }
    }
    return TU__KEPT;
}

static tu__outcome mul(tu__candidate *c) {
    tu__outcome outcome = is_number(c, 1, 1) ? be_input(c, 0) : TU__KEPT;
    if (outcome == TU__KEPT && is_number(c, 0, 1)) outcome = be_input(c, 1);
    return outcome == TU__KEPT ? combine_factors(c) : outcome;
}

/* A division by a power of two is a multiplication, to the last bit. */
static tu__outcome divide(tu__candidate *c) {
    double divisor;
    if (!tu__is_fill(c->inputs[1], &divisor)) return TU__KEPT;
    if (divisor == 1) return be_input(c, 0);
    tu_type type = tu_value_type(c->inputs[1]);
    if (!is_power_of_two(type.dtype, divisor)) return TU__KEPT;
    c->inputs[1] = tu__simplify_fill(c, type, 1 / divisor);
    c->op = TU__OP_MUL;
    return TU__CHANGED;
}

/* Whole numbers saturate: the negative of a negative need not be what it was. */
static tu__outcome negate(tu__candidate *c) {
    const tu__node *inner = source_is(c, 0, TU__OP_NEG);
    if (!inner || !tu_dtype_is_float(result_type(c).dtype)) return TU__KEPT;
    c->replacement = tu__input_of(c->r->to, inner, 0);
    return TU__REPLACED;
}

/* ---- Types ---- */

/* Every value of one type is a value of the other. */
static bool holds_all_of(tu_dtype wide, tu_dtype narrow) {
    if (wide == narrow || narrow == TU_BOOL) return true;
    switch (narrow) {
    case TU_F32: return wide == TU_F64;
    case TU_BF16:
    case TU_F16: return wide == TU_F32 || wide == TU_F64;
    case TU_I32: return wide == TU_F64 || wide == TU_I64;
    case TU_U8: return wide != TU_BOOL; /* 0 to 255 have 8 bits: bf16 holds as many */
    default: return false;
    }
}

static tu__outcome cast(tu__candidate *c) {
    if (tu_value_dtype(c->inputs[0]) == result_type(c).dtype) return be_input(c, 0);
    const tu__node *inner = source_is(c, 0, TU__OP_CAST);
    if (!inner) return TU__KEPT;
    tu_value source = tu__input_of(c->r->to, inner, 0);
    if (!holds_all_of(inner->outputs[0].dtype, tu_value_dtype(source))) return TU__KEPT;
    c->inputs[0] = source;
    return TU__CHANGED;
}

/* ---- Shapes ---- */

/* Operations that do nothing at all, or nothing where they leave the shape as it is. */
static tu__outcome nothing(tu__candidate *c) {
    return be_input(c, 0);
}

static tu__outcome reshape(tu__candidate *c) {
    tu__outcome outcome = be_input(c, 0);
    if (outcome != TU__KEPT || !source_is(c, 0, TU__OP_RESHAPE)) return outcome;
    skip_source(c, 0);
    return TU__CHANGED;
}

static tu__outcome broadcast(tu__candidate *c) {
    tu__outcome outcome = be_input(c, 0);
    if (outcome != TU__KEPT || !source_is(c, 0, TU__OP_BROADCAST)) return outcome;
    skip_source(c, 0);
    return TU__CHANGED;
}

static bool is_identity(const int64_t *permutation, int64_t rank) {
    for (int64_t i = 0; i < rank; i++)
        if (permutation[i] != i) return false;
    return true;
}

static tu__outcome transpose(tu__candidate *c) {
    const struct tu__transpose_attrs *outer = c->attrs;
    int64_t rank = result_type(c).shape.rank;
    if (is_identity(outer->permutation, rank)) return be_input(c, 0);
    const tu__node *inner = source_is(c, 0, TU__OP_TRANSPOSE);
    if (!inner) return TU__KEPT;
    struct tu__transpose_attrs both = {{0}};
    for (int64_t i = 0; i < rank; i++)
        both.permutation[i] = tu__attrs(inner, transpose)->permutation[outer->permutation[i]];
    c->own.transpose = both;
    c->attrs = &c->own;
    skip_source(c, 0);
    return TU__CHANGED;
}

/* Along an axis of size 1 there is nothing to turn around. */
static tu__outcome flip(tu__candidate *c) {
    int64_t axes = ((const struct tu__flip_attrs *)c->attrs)->axes;
    tu_shape shape = result_type(c).shape;
    for (int64_t i = 0; i < shape.rank; i++)
        if ((axes >> i & 1) && shape.dim[i] > 1) return TU__KEPT;
    return be_input(c, 0);
}

static tu__outcome concat(tu__candidate *c) {
    return c->input_count == 1 ? be_input(c, 0) : TU__KEPT;
}

/* ---- Choices ---- */

static tu__outcome choose(tu__candidate *c) {
    double condition;
    uint32_t chosen = 1;
    if (tu__is_fill(c->inputs[0], &condition))
        chosen = condition != 0 ? 1 : 2;
    else if (c->inputs[1].node != c->inputs[2].node || c->inputs[1].output != c->inputs[2].output)
        return TU__KEPT;
    if (be_input(c, chosen) == TU__REPLACED) return TU__REPLACED;
    c->inputs[0] = c->inputs[chosen];
    c->input_count = 1;
    c->op = TU__OP_BROADCAST;
    c->own.broadcast = (struct tu__broadcast_attrs){.shape = result_type(c).shape};
    c->attrs = &c->own;
    return TU__CHANGED;
}

/* ---- All pointwise operations: they repeat small inputs themselves, so nobody has to do it for them ---- */

/* The result keeps its shape when input `i` has this one. */
static bool shape_survives(const tu__candidate *c, uint32_t i, tu_shape shape) {
    tu_shape all = shape;
    for (uint32_t k = 0; k < c->input_count; k++)
        if (k != i && !tu__broadcast_shapes(all, tu_value_shape(c->inputs[k]), &all)) return false;
    return tu_shape_equal(all, result_type(c).shape);
}

static tu__outcome shrink_input(tu__candidate *c, uint32_t i) {
    double number;
    tu_type type = tu_value_type(c->inputs[i]);
    if (source_is(c, i, TU__OP_BROADCAST)) {
        tu_value source = tu__input_of(c->r->to, tu__candidate_source(c, i), 0);
        if (!shape_survives(c, i, tu_value_shape(source))) return TU__KEPT;
        c->inputs[i] = source;
        return TU__CHANGED;
    }
    if (type.shape.rank == 0 || !tu__is_fill(c->inputs[i], &number)) return TU__KEPT;
    type.shape = TU_SCALAR;
    if (!shape_survives(c, i, type.shape)) return TU__KEPT;
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
    {TU__OP_ADD, add},
    {TU__OP_SUB, sub},
    {TU__OP_MUL, mul},
    {TU__OP_DIV, divide},
    {TU__OP_NEG, negate},
    {TU__OP_CAST, cast},
    {TU__OP_RESHAPE, reshape},
    {TU__OP_BROADCAST, broadcast},
    {TU__OP_TRANSPOSE, transpose},
    {TU__OP_SLICE, nothing},
    {TU__OP_PAD, nothing},
    {TU__OP_FLIP, flip},
    {TU__OP_CONCAT, concat},
    {TU__OP_SELECT, choose},
    {TU__OP_STOP_GRADIENT, nothing}, /* gradients have been taken */
    {TU__OP_COPY, nothing},          /* partition makes those that are needed */
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
