/* Cases of the pointwise operations: inputs from the range where the operation is smooth, all kinds of
 * broadcasting. */
#include "graph/graph.h"
#include "ops/cases.h"

static tu_shape random_shape(case_run *c) {
    return case_shape(c, case_size(c, 0, 4), 1, 4);
}

#define UNARY(name, low, high)                                                                               \
    OP_CASE(name, CASE_ALL_CHECKS) {                                                                         \
        case_output(c, tu_##name(case_input(c, random_shape(c), low, high)));                                \
    }
/* Operations that are not differentiable at zero. */
#define UNARY_KINK(name)                                                                                     \
    OP_CASE(name, CASE_ALL_CHECKS) {                                                                         \
        case_output(c, tu_##name(case_input_around(c, random_shape(c), 0, 2)));                              \
    }
/* Piecewise constant operations: checks that the gradient is zero. */
#define UNARY_STEP(name)                                                                                     \
    OP_CASE(name, CASE_ALL_CHECKS) {                                                                         \
        tu_value x = case_input(c, random_shape(c), 0.1, 0.4);                                               \
        double offset = case_pick(c, "below", 2) ? -2 : 1;                                                   \
        case_output(c, tu_##name(tu_shift(x, offset)));                                                      \
    }

UNARY(neg, -2, 2)
UNARY(square, -2, 2)
UNARY(reciprocal, 0.5, 2)
UNARY(exp, -2, 1)
UNARY(expm1, -2, 1)
UNARY(log, 0.5, 3)
UNARY(log1p, -0.5, 3)
UNARY(sqrt, 0.5, 3)
UNARY(rsqrt, 0.5, 3)
UNARY(sin, -3, 3)
UNARY(cos, -3, 3)
UNARY(tan, -1, 1)
UNARY(erf, -2, 2)
UNARY(tanh, -2, 2)
UNARY(sigmoid, -4, 4)
UNARY(gelu, -3, 3)
UNARY(gelu_tanh, -3, 3)
UNARY(silu, -4, 4)
UNARY(softplus, -4, 4)
UNARY_KINK(abs)
UNARY_KINK(relu)
UNARY_STEP(sign)
UNARY_STEP(floor)
UNARY_STEP(ceil)
UNARY_STEP(round)

/* The operation itself, with broadcasting; option "relu": as the gradient of a relu, whose derivatives use it. */
OP_CASE(relu_grad, CASE_ALL_CHECKS) {
    tu_shape shape = random_shape(c);
    tu_value x = case_input_around(c, shape, 0, 2), gradient;
    if (case_pick(c, "relu", 2)) {
        tu_value y = tu_relu(x);
        tu_gradients(tu_sum(tu_mul(tu_square(y), y)), 1, &x, &gradient);
        case_output(c, gradient);
    } else {
        tu_value dy = case_input(c, case_broadcastable(c, shape), -2, 2);
        case_output(c, tu__apply(RELU_GRAD, NULL, x, dy));
    }
}

/* The result of the relu and the gradient may differ in type, as mixed precision makes them. */
OP_CASE(relu_grad_types, CASE_NO_GRADIENT) {
    static const tu_dtype types[] = {TU_F32, TU_F64, TU_BF16, TU_F16, TU_I32};
    tu_shape shape = random_shape(c);
    tu_value x = tu_cast(case_input_around(c, shape, 0, 3), types[case_pick(c, "type", 5)]);
    case_output(c, tu__apply(RELU_GRAD, NULL, x, case_fixed(c, shape, -2, 2)));
}

OP_CASE(leaky_relu, CASE_ALL_CHECKS) {
    tu_value x = case_input_around(c, random_shape(c), 0, 2);
    case_output(c, tu_leaky_relu(x, case_pick(c, "slope", 2) ? 0.2 : 0.01));
}

OP_CASE(elu, CASE_ALL_CHECKS) {
    tu_value x = case_input_around(c, random_shape(c), 0, 2);
    case_output(c, tu_elu(x, case_pick(c, "alpha", 2) ? 1.0 : 0.7));
}

/* Activations selected by enum, as layers apply them. */
OP_CASE(activation, CASE_ALL_CHECKS) {
    tu_value x = case_input_around(c, random_shape(c), 0, 2);
    case_output(c, tu_activate(x, case_pick(c, "activation", 2) ? TU_ELU : TU_LEAKY_RELU));
}

OP_CASE(clip, CASE_ALL_CHECKS) {
    double low = case_pick(c, "low", 2) ? 0 : -3; /* inputs are in [-2, 2], but not near 0 */
    tu_value x = case_input_around(c, random_shape(c), 0, 2);
    case_output(c, tu_clip(x, low, case_pick(c, "high", 2) ? 2.5 : 0));
}

/* Adds two random inputs. Option "broadcast": 0: both have the full shape, 1: x is broadcast, 2: y is broadcast. */
static void add_two_inputs(case_run *c, double low, double high, tu_value *x, tu_value *y) {
    tu_shape shape = case_shape(c, case_size(c, 0, 4), 1, 4);
    int broadcast = case_pick(c, "broadcast", 3);
    *x = case_input(c, broadcast == 1 ? case_broadcastable(c, shape) : shape, low, high);
    *y = case_input(c, broadcast == 2 ? case_broadcastable(c, shape) : shape, low, high);
}

#define BINARY(name, low, high)                                                                              \
    OP_CASE(name, CASE_ALL_CHECKS) {                                                                         \
        tu_value x, y;                                                                                       \
        add_two_inputs(c, low, high, &x, &y);                                                                \
        case_output(c, tu_##name(x, y));                                                                     \
    }
BINARY(add, -2, 2)
BINARY(sub, -2, 2)
BINARY(mul, -2, 2)
BINARY(div, 0.5, 2)
BINARY(pow, 0.5, 2)

/* x and y are on different grids, so that x never equals y, where the operation is not differentiable. */
#define BINARY_KINK(name)                                                                                    \
    OP_CASE(name, CASE_ALL_CHECKS) {                                                                         \
        tu_shape shape = case_shape(c, case_size(c, 0, 3), 1, 4);                                            \
        tu_value x = case_input_apart(c, shape), y = case_input_apart(c, case_broadcastable(c, shape));      \
        case_output(c, tu_##name(x, tu_shift(y, case_pick(c, "side", 2) ? 0.05 : -0.05)));                   \
    }
BINARY_KINK(maximum)
BINARY_KINK(minimum)

/* Both operands are broadcast: [a,1,d] with [b,1]. */
OP_CASE(broadcast_both_ways, CASE_ALL_CHECKS) {
    int64_t a = case_size(c, 1, 4), b = case_size(c, 1, 4), d = case_size(c, 1, 4);
    tu_value x = case_input(c, TU_SHAPE(a, 1, d), -2, 2), y = case_input(c, TU_SHAPE(b, 1), -2, 2);
    case_output(c, tu_mul(tu_add(x, y), tu_sub(y, x)));
}

/* One value is both operands. */
OP_CASE(repeated_input, CASE_ALL_CHECKS) {
    tu_value x = case_input(c, random_shape(c), 0.5, 2);
    case_output(c, tu_add(tu_mul(x, x), tu_div(x, tu_add(x, x))));
}

OP_CASE(select, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 0, 3), 1, 4);
    int broadcast = case_pick(c, "broadcast", 3);
    tu_value condition = case_bools(c, broadcast == 0 ? shape : case_broadcastable(c, shape));
    tu_value y = case_input(c, broadcast == 1 ? shape : case_broadcastable(c, shape), -2, 2);
    tu_value z = case_input(c, broadcast == 2 ? shape : case_broadcastable(c, shape), -2, 2);
    case_output(c, tu_select(condition, y, z));
}

/* Comparisons are not differentiable: no gradient may flow through them. */
OP_CASE(comparisons, CASE_ALL_CHECKS) {
    static tu_value (*const compare[])(tu_value, tu_value) = {tu_equal,      tu_not_equal, tu_less,
                                                              tu_less_equal, tu_greater,   tu_greater_equal};
    tu_shape shape = case_shape(c, case_size(c, 0, 3), 1, 4);
    tu_value x = case_input_apart(c, shape), y = case_input_apart(c, shape);
    tu_value shifted = tu_shift(y, 0.05);
    tu_value mask = compare[case_pick(c, "comparison", 6)](x, shifted);
    case_output(c, mask);
    case_output(c, tu_select(mask, tu_square(x), y));
}

OP_CASE(comparisons_with_a_number, CASE_ALL_CHECKS) {
    static tu_value (*const compare[])(tu_value, double) = {tu_equal_to, tu_not_equal_to, tu_less_than,
                                                            tu_at_most,  tu_greater_than, tu_at_least};
    tu_shape shape = case_shape(c, case_size(c, 0, 3), 1, 4);
    int which = case_pick(c, "comparison", 6);
    tu_value x = case_input_around(c, shape, 0.5, 2), mask = compare[which](x, 0.5);
    case_output(c, mask);
    case_output(c, tu_select(mask, tu_square(x), x));
    case_output(c, compare[which](case_integers(c, TU_I32, shape, -2, 3), 1));
}

OP_CASE(truth, CASE_NO_GRADIENT) {
    tu_shape shape = case_shape(c, case_size(c, 0, 3), 1, 4);
    tu_value x = case_bools(c, shape), y = case_bools(c, case_broadcastable(c, shape));
    case_output(c, tu_and(x, y));
    case_output(c, tu_or(x, y));
    case_output(c, tu_not(x));
    case_output(c, tu_equal(x, y));
}

OP_CASE(is_finite, CASE_NO_GRADIENT) {
    tu_value x = case_input(c, random_shape(c), -1, 1);
    case_output(c, tu_is_finite(x));
    case_output(c, tu_is_finite(tu_div(x, tu_number(x, 0))));
}

OP_CASE(cast, CASE_ALL_CHECKS) {
    static const tu_dtype targets[] = {TU_F32, TU_I32, TU_I64, TU_U8, TU_BOOL, TU_F64, TU_I8};
    tu_value x = case_input(c, random_shape(c), 0.1, 0.9);
    tu_dtype target = targets[case_pick(c, "target", 7)];
    /* No gradient flows through an integer, and central differences in f32 are too coarse. Casts to those types are
     * therefore applied to an input that is not differentiated. */
    tu_value fixed = case_fixed(c, tu_value_shape(x), 3.1, 3.9);
    tu_value converted = tu_cast(target == TU_F64 ? x : fixed, target);
    case_output(c, converted);
    case_output(c, tu_mul(x, tu_cast(converted, case_dtype(c))));
}

OP_CASE(integers, CASE_NO_GRADIENT) {
    static const tu_dtype types[] = {TU_I32, TU_I64, TU_U8, TU_I8};
    tu_dtype dtype = types[case_pick(c, "dtype", 4)];
    tu_shape shape = case_shape(c, case_size(c, 0, 3), 1, 5);
    int64_t low = dtype == TU_U8 ? 0 : -9;
    tu_value x = case_integers(c, dtype, shape, low, 12),
             y = case_integers(c, dtype, case_broadcastable(c, shape), 1, 5);
    case_output(c, tu_add(x, y));
    case_output(c, tu_sub(x, y));
    case_output(c, tu_mul(x, y));
    case_output(c, tu_div(x, y));
    case_output(c, tu_maximum(x, y));
    case_output(c, tu_clip(x, -3, 7));
    case_output(c, tu_less(x, y));
}

OP_CASE(stop_gradient, CASE_ALL_CHECKS) {
    tu_value x = case_input(c, random_shape(c), -2, 2);
    /* The stopped factor is an input that is not differentiated: central differences of x would include a factor that
     * depends on x. */
    tu_value y = case_fixed(c, tu_value_shape(x), -2, 2);
    case_output(c, tu_mul(x, tu_stop_gradient(y)));
}

OP_CASE(copy, CASE_ALL_CHECKS) {
    case_output(c, tu_copy(case_input(c, random_shape(c), -2, 2)));
    case_output(c, tu_copy(case_integers(c, TU_I64, random_shape(c), -9, 9)));
}

OP_CASE(fill, CASE_ALL_CHECKS) {
    tu_value x = case_input(c, random_shape(c), -2, 2);
    case_output(c, tu_add(x, tu_fill(case_graph(c), case_dtype(c), tu_value_shape(x), 1.5)));
    case_output(c, tu_fill(case_graph(c), TU_I32, TU_SHAPE(3), -7));
}

/* Gradients through a recomputed block, whose activations are not kept for the backward pass. */
OP_CASE(recompute, CASE_ALL_CHECKS) {
    tu_value x = case_input(c, random_shape(c), 0.5, 2), y = {0};
    tu_recompute(case_graph(c)) {
        y = tu_exp(tu_sin(x));
        y = tu_mul(tu_tanh(y), tu_log(tu_shift(y, 1)));
    }
    case_output(c, tu_sqrt(tu_shift(tu_square(y), 1)));
}
