/* Pointwise operations: each is a scalar expression in ops.def, with broadcasting and a gradient.
 *
 * The shape rule, the reference kernel and all devices' kernels are generated from the row of ops.def. This file adds
 * the gradients and the public functions. Gradients use the output instead of the input if possible (relu, tanh,
 * exp), because the output is usually kept in memory anyway. */
#include <math.h>

#include <tutti/ops.h>

#include "base/number.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* ---- Shape rules ---- */

typedef enum { ANY, NUMBER, FLOAT, TRUTH, CHOICE, GATE } accepted; /* the `types` column of ops.def */
typedef enum { RESULT_SAME, RESULT_TRUTH, RESULT_CAST } result;

static bool accepts(accepted types, tu_dtype dtype) {
    switch (types) {
    case NUMBER:
    case GATE: return dtype != TU_BOOL;
    case FLOAT: return tu_dtype_is_float(dtype);
    case TRUTH: return dtype == TU_BOOL;
    default: return true;
    }
}

static const char *accepted_text(accepted types) {
    return types == FLOAT   ? "a floating-point type (convert with tu_cast)"
           : types == TRUTH ? "bool (the type of comparisons)"
                            : "numbers (convert bool with tu_cast)";
}

static tu_status pointwise_shape(tu__rule *rule, accepted types, result kind) {
    uint32_t first = types == CHOICE || types == GATE ? 1 : 0; /* the inputs of the same type */
    if (types == CHOICE && rule->in[0].dtype != TU_BOOL)
        return tu__rule_fail(rule, "the condition is %s, expected bool", tu_dtype_name(rule->in[0].dtype));
    tu_shape shape = rule->in[0].shape;
    for (uint32_t i = 0; i < rule->input_count; i++) {
        tu_type in = rule->in[i];
        if (i >= first && in.dtype != rule->in[first].dtype)
            return tu__rule_fail(rule,
                                 "the element types differ: expected equal types (convert with tu_cast)");
        if (!accepts(types, in.dtype))
            return tu__rule_fail(rule, "the element type is %s, expected %s", tu_dtype_name(in.dtype),
                                 accepted_text(types));
        if (!tu__broadcast_shapes(shape, in.shape, &shape))
            return tu__rule_fail(
                rule, "the shapes do not broadcast: aligned at the last axis, dimensions must be equal or 1");
    }
    if (!tu__shape_valid(shape))
        return tu__rule_fail(rule, "the result %s is too large: expected at most 2^48 elements",
                             tu__shape_string(shape));
    int64_t dtype = kind == RESULT_TRUTH  ? TU_BOOL
                    : kind == RESULT_CAST ? ((const struct tu__cast_attrs *)rule->attrs)->dtype
                                          : rule->in[first].dtype;
    if (dtype < 0 || dtype >= TU_DTYPE_COUNT)
        return tu__rule_fail(rule, "unknown element type %d", (int)dtype);
    rule->out[0] = (tu_type){.dtype = (tu_dtype)dtype, .shape = shape};
    return TU_OK;
}

/* ---- Reference kernels ---- */

typedef double (*scalar)(double x, double y, double z, double a, double b);

/* Returns the first two attributes as a and b if they are numbers, else 0. */
static void get_scalar_attributes(const tu__op *op, const void *attrs, double *a, double *b) {
    const double *cells = attrs;
    bool are_numbers = op->attr_count && op->attrs[0].kind == TU__ATTR_F64;
    *a = are_numbers ? cells[0] : 0;
    *b = are_numbers && op->attr_count > 1 ? cells[1] : 0;
}

static tu_status evaluate(const tu__reference_call *m, scalar f) {
    tu_shape shape = m->out[0].type.shape;
    uint32_t inputs = m->node->input_count;
    int64_t strides[3][TU_MAX_RANK] = {{0}};
    for (uint32_t i = 0; i < inputs; i++) tu__broadcast_strides(m->in[i].type.shape, shape, strides[i]);
    tu__walk w = tu__walk_begin(shape, 3, (const int64_t *[]){strides[0], strides[1], strides[2]});
    const double *x = m->in[0].data, *y = inputs > 1 ? m->in[1].data : x, *z = inputs > 2 ? m->in[2].data : x;
    double a, b, *out = m->out[0].data;
    get_scalar_attributes(m->node->op, m->attrs, &a, &b);
    do *out++ = f(x[w.offset[0]], y[w.offset[1]], z[w.offset[2]], a, b);
    while (tu__walk_next(&w));
    return TU_OK;
}

#define K(number) ((double)(number))
#define POINTWISE(id, name, inputs, types, result_, traits, attrs, gradient, ...)                            \
    static double name##_scalar(double x, double y, double z, double a, double b) {                          \
        (void)x, (void)y, (void)z, (void)a, (void)b;                                                         \
        return __VA_ARGS__;                                                                                  \
    }                                                                                                        \
    tu_status tu__##name##_shape(tu__rule *rule) {                                                           \
        return pointwise_shape(rule, types, RESULT_##result_);                                               \
    }                                                                                                        \
    tu_status tu__##name##_reference(const tu__reference_call *m) {                                          \
        return evaluate(m, name##_scalar);                                                                   \
    }
#define OP(...)
#include "graph/ops.def"

/* ---- Gradients: G is the gradient of the output, X and Y are the inputs, R is the output ---- */

#define G tu__vjp_gradient(v, 0)
#define X tu__vjp_input(v, 0)
#define Y tu__vjp_input(v, 1)
#define R tu__vjp_output(v, 0)
#define ACCUMULATE(input, gradient)                                                                          \
    do {                                                                                                     \
        if (tu__vjp_needs_gradient(v, input)) tu__vjp_accumulate(v, input, gradient);                        \
    } while (0)
#define GRADIENT(name) void tu__##name##_gradient(tu__vjp *v)

static tu_value zero_unless(tu_value condition, tu_value g) {
    return tu_select(condition, g, tu_number(g, 0));
}
static tu_value zero_if(tu_value condition, tu_value g) {
    return tu_select(condition, tu_number(g, 0), g);
}
static tu_value one_minus(tu_value x) {
    return tu_sub(tu_number(x, 1), x);
}

GRADIENT(add) {
    ACCUMULATE(0, G);
    ACCUMULATE(1, G);
}
GRADIENT(sub) {
    ACCUMULATE(0, G);
    ACCUMULATE(1, tu_neg(G));
}
GRADIENT(mul) {
    ACCUMULATE(0, tu_mul(G, Y));
    ACCUMULATE(1, tu_mul(G, X));
}
GRADIENT(div) {
    ACCUMULATE(0, tu_div(G, Y));
    ACCUMULATE(1, tu_neg(tu_div(tu_mul(G, R), Y)));
}
GRADIENT(pow) {
    ACCUMULATE(0, tu_mul(G, tu_mul(Y, tu_pow(X, tu_shift(Y, -1)))));
    /* r log x; zero for x <= 0, where the power is constant in y (0^y) or not real. */
    if (tu__vjp_needs_gradient(v, 1)) {
        tu_value x = X, positive = tu_greater(x, tu_number(x, 0));
        tu_value safe = tu_select(positive, x, tu_number(x, 1));
        tu__vjp_accumulate(v, 1, zero_unless(positive, tu_mul(G, tu_mul(R, tu_log(safe)))));
    }
}
GRADIENT(maximum) { /* if the inputs are equal, the first gets the full gradient */
    tu_value first_wins = tu_greater_equal(X, Y);
    ACCUMULATE(0, zero_unless(first_wins, G));
    ACCUMULATE(1, zero_if(first_wins, G));
}
GRADIENT(minimum) {
    tu_value first_wins = tu_less_equal(X, Y);
    ACCUMULATE(0, zero_unless(first_wins, G));
    ACCUMULATE(1, zero_if(first_wins, G));
}
GRADIENT(select) {
    ACCUMULATE(1, zero_unless(X, G));
    ACCUMULATE(2, zero_if(X, G));
}
GRADIENT(cast) {
    if (tu_dtype_is_float(v->node->outputs[0].dtype)) ACCUMULATE(0, tu_cast(G, tu_value_dtype(X)));
}
GRADIENT(clip) {
    const struct tu__clip_attrs *a = tu__attrs(v->node, clip);
    tu_value x = X, inside = tu_and(tu_greater_equal(x, tu_number(x, a->low)),
                                    tu_less_equal(x, tu_number(x, a->high)));
    ACCUMULATE(0, zero_unless(inside, G));
}
GRADIENT(neg) {
    ACCUMULATE(0, tu_neg(G));
}
GRADIENT(abs) {
    ACCUMULATE(0, tu_mul(G, tu_sign(X)));
}
GRADIENT(square) {
    ACCUMULATE(0, tu_mul(G, tu_scale(X, 2)));
}
GRADIENT(reciprocal) {
    ACCUMULATE(0, tu_neg(tu_mul(G, tu_square(R))));
}
GRADIENT(exp) {
    ACCUMULATE(0, tu_mul(G, R));
}
GRADIENT(expm1) {
    ACCUMULATE(0, tu_mul(G, tu_shift(R, 1)));
}
GRADIENT(log) {
    ACCUMULATE(0, tu_div(G, X));
}
GRADIENT(log1p) {
    ACCUMULATE(0, tu_div(G, tu_shift(X, 1)));
}
GRADIENT(sqrt) {
    ACCUMULATE(0, tu_div(tu_scale(G, 0.5), R));
}
GRADIENT(rsqrt) {
    ACCUMULATE(0, tu_mul(tu_scale(G, -0.5), tu_mul(R, tu_square(R))));
}
GRADIENT(sin) {
    ACCUMULATE(0, tu_mul(G, tu_cos(X)));
}
GRADIENT(cos) {
    ACCUMULATE(0, tu_neg(tu_mul(G, tu_sin(X))));
}
GRADIENT(tan) {
    ACCUMULATE(0, tu_mul(G, tu_shift(tu_square(R), 1)));
}
GRADIENT(erf) { /* 2 / sqrt(pi) exp(-x^2) */
    ACCUMULATE(0, tu_mul(G, tu_scale(tu_exp(tu_neg(tu_square(X))), 1.12837916709551257390)));
}
GRADIENT(tanh) {
    ACCUMULATE(0, tu_mul(G, one_minus(tu_square(R))));
}
GRADIENT(sigmoid) {
    ACCUMULATE(0, tu_mul(G, tu_mul(R, one_minus(R))));
}
GRADIENT(relu) {
    ACCUMULATE(0, tu__apply(RELU_GRAD, NULL, R, G));
}
GRADIENT(relu_grad) { /* piecewise constant in x */
    ACCUMULATE(1, tu__apply(RELU_GRAD, NULL, X, G));
}
GRADIENT(leaky_relu) {
    tu_value x = X;
    ACCUMULATE(0,
               tu_select(tu_less(x, tu_number(x, 0)), tu_scale(G, tu__attrs(v->node, leaky_relu)->slope), G));
}
GRADIENT(elu) { /* below zero: a exp(x) = r + a */
    tu_value x = X;
    tu_value below = tu_mul(G, tu_shift(R, tu__attrs(v->node, elu)->alpha));
    ACCUMULATE(0, tu_select(tu_less(x, tu_number(x, 0)), below, G));
}
GRADIENT(gelu) { /* the standard normal distribution function at x, plus x times its density */
    tu_value x = X;
    tu_value cumulative = tu_scale(tu_shift(tu_erf(tu_scale(x, 0.70710678118654752440)), 1), 0.5);
    tu_value density = tu_scale(tu_exp(tu_scale(tu_square(x), -0.5)), 0.39894228040143267794);
    ACCUMULATE(0, tu_mul(G, tu_add(cumulative, tu_mul(x, density))));
}
GRADIENT(gelu_tanh) { /* with u = c (x + k x^3): (1 + tanh u) / 2 + x / 2 (1 - tanh^2 u) c (1 + 3 k x^2) */
    const double c = 0.79788456080286535588, k = 0.044715;
    tu_value x = X, x2 = tu_square(x);
    tu_value t = tu_tanh(tu_scale(tu_mul(x, tu_shift(tu_scale(x2, k), 1)), c));
    tu_value inner = tu_scale(tu_shift(tu_scale(x2, 3 * k), 1), c);
    tu_value slope = tu_mul(tu_mul(x, one_minus(tu_square(t))), inner);
    ACCUMULATE(0, tu_mul(G, tu_scale(tu_add(tu_shift(t, 1), slope), 0.5)));
}
GRADIENT(silu) { /* s (1 + x (1 - s)) with s = sigmoid(x) */
    tu_value x = X, s = tu_sigmoid(x);
    ACCUMULATE(0, tu_mul(G, tu_mul(s, tu_shift(tu_mul(x, one_minus(s)), 1))));
}
GRADIENT(softplus) {
    ACCUMULATE(0, tu_mul(G, tu_sigmoid(X)));
}

/* ---- Public functions ---- */

#define UNARY(name, ID)                                                                                      \
    tu_value tu_##name(tu_value x) {                                                                         \
        return tu__apply(ID, NULL, x);                                                                       \
    }
#define BINARY(name, ID)                                                                                     \
    tu_value tu_##name(tu_value x, tu_value y) {                                                             \
        return tu__apply(ID, NULL, x, y);                                                                    \
    }
BINARY(add, ADD)
BINARY(sub, SUB)
BINARY(mul, MUL)
BINARY(div, DIV)
BINARY(pow, POW)
BINARY(maximum, MAXIMUM)
BINARY(minimum, MINIMUM)
BINARY(equal, EQUAL)
BINARY(not_equal, NOT_EQUAL)
BINARY(less, LESS)
BINARY(less_equal, LESS_EQUAL)
BINARY(greater, GREATER)
BINARY(greater_equal, GREATER_EQUAL)
BINARY(and, AND)
BINARY(or, OR)
UNARY(not, NOT)
UNARY(neg, NEG)
UNARY(abs, ABS)
UNARY(sign, SIGN)
UNARY(square, SQUARE)
UNARY(reciprocal, RECIPROCAL)
UNARY(exp, EXP)
UNARY(expm1, EXPM1)
UNARY(log, LOG)
UNARY(log1p, LOG1P)
UNARY(sqrt, SQRT)
UNARY(rsqrt, RSQRT)
UNARY(sin, SIN)
UNARY(cos, COS)
UNARY(tan, TAN)
UNARY(erf, ERF)
UNARY(floor, FLOOR)
UNARY(ceil, CEIL)
UNARY(round, ROUND)
UNARY(is_finite, IS_FINITE)
UNARY(tanh, TANH)
UNARY(sigmoid, SIGMOID)
UNARY(relu, RELU)
UNARY(gelu, GELU)
UNARY(gelu_tanh, GELU_TANH)
UNARY(silu, SILU)
UNARY(softplus, SOFTPLUS)

tu_value tu_select(tu_value condition, tu_value y, tu_value z) {
    return tu__apply(SELECT, NULL, condition, y, z);
}

tu_value tu_cast(tu_value x, tu_dtype dtype) {
    if (tu_ok(x) && tu_value_dtype(x) == dtype) return x;
    struct tu__cast_attrs a = {.dtype = dtype};
    return tu__apply(CAST, &a, x);
}

tu_value tu_clip(tu_value x, double low, double high) {
    if (tu_ok(x) && !(low <= high))
        return tu__graph_fail(x.graph, TU_INVALID, "clip of '%s' %s to [%g, %g]: expected low <= high",
                              tu_value_name(x), tu__type_string(tu_value_type(x)), low, high);
    struct tu__clip_attrs a = {.low = low, .high = high};
    return tu__apply(CLIP, &a, x);
}

tu_value tu_leaky_relu(tu_value x, double slope) {
    struct tu__leaky_relu_attrs a = {.slope = slope};
    return tu__apply(LEAKY_RELU, &a, x);
}

tu_value tu_elu(tu_value x, double alpha) {
    struct tu__elu_attrs a = {.alpha = alpha};
    return tu__apply(ELU, &a, x);
}

tu_value tu_activate(tu_value x, tu_activation activation) {
    switch (activation) {
    case TU_LINEAR: return x;
    case TU_RELU: return tu_relu(x);
    case TU_TANH: return tu_tanh(x);
    case TU_SIGMOID: return tu_sigmoid(x);
    case TU_GELU: return tu_gelu(x);
    case TU_GELU_TANH: return tu_gelu_tanh(x);
    case TU_SILU: return tu_silu(x);
    case TU_SOFTPLUS: return tu_softplus(x);
    case TU_ELU: return tu_elu(x, 1);
    case TU_LEAKY_RELU: return tu_leaky_relu(x, 0.01);
    }
    return x.graph ? tu__graph_fail(x.graph, TU_INVALID, "activation of '%s' %s: unknown activation %d",
                                    tu_value_name(x), tu__type_string(tu_value_type(x)), (int)activation)
                   : x;
}

tu_value tu_scale(tu_value x, double factor) {
    return tu_mul(x, tu_number(x, factor));
}

tu_value tu_shift(tu_value x, double term) {
    return tu_add(x, tu_number(x, term));
}

/* True if the number can be compared exactly with elements of the type; always for floats. An i64 must be below 2^63,
 * which the largest i64 rounds to as a double. */
static bool is_representable(tu_dtype dtype, double number) {
    if (tu_dtype_is_float(dtype)) return true;
    return tu__round_to(dtype, number) == number && number < 0x1p63;
}

/* Compares x with a number. Fails if the type cannot represent it: truncated, x < 0.5 would become x < 0 for
 * integers. */
static tu_value compare_with(tu_value x, const char *function, tu__opcode op, double number) {
    if (tu_ok(x) && !is_representable(tu_value_dtype(x), number))
        return tu__graph_fail(
            x.graph, TU_INVALID, "%s of '%s' %s: the number is %g, which %s cannot represent", function,
            tu_value_name(x), tu__type_string(tu_value_type(x)), number, tu_dtype_name(tu_value_dtype(x)));
    return tu__apply_list(op, NULL, 2, (const tu_value[]){x, tu_number(x, number)});
}

#define COMPARISON(name, ID)                                                                                 \
    tu_value tu_##name(tu_value x, double number) {                                                          \
        return compare_with(x, #name, TU__OP_##ID, number);                                                  \
    }
COMPARISON(equal_to, EQUAL)
COMPARISON(not_equal_to, NOT_EQUAL)
COMPARISON(less_than, LESS)
COMPARISON(at_most, LESS_EQUAL)
COMPARISON(greater_than, GREATER)
COMPARISON(at_least, GREATER_EQUAL)
