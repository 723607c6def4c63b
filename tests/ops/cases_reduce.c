/* Cases of reductions, and of sorting and cumulative sums along an axis. */
#include "ops/cases.h"

/* Returns a random set of axes, or an empty one, which means all axes. */
static tu_axes random_axes(case_run *c, int64_t rank) {
    tu_axes axes = {0};
    if (case_pick(c, "axes", 3) == 0) return axes;
    for (int64_t i = 0; i < rank; i++)
        if (case_size(c, 0, 1)) axes.axis[axes.count++] = (int32_t)(case_size(c, 0, 1) ? i : i - rank);
    return axes;
}

#define REDUCTION(name, function, input, flags)                                                              \
    OP_CASE(name, flags) {                                                                                   \
        tu_shape shape = case_shape(c, case_size(c, 0, 4), 1, 4);                                            \
        tu_axes axes = random_axes(c, shape.rank);                                                           \
        tu_value x = input;                                                                                  \
        case_output(c, function(x, .axes = axes, .keep = case_pick(c, "keep", 2)));                          \
    }
REDUCTION(sum, tu_sum, case_input(c, shape, -2, 2), 0)
REDUCTION(mean, tu_mean, case_input(c, shape, -2, 2), 0)
REDUCTION(max, tu_max, case_input_apart(c, shape), 0)
REDUCTION(min, tu_min, case_input_apart(c, shape), 0)
REDUCTION(prod, tu_prod, case_input_around(c, shape, 0, 1.5), 0)
REDUCTION(logsumexp, tu_logsumexp, case_input(c, shape, -2, 2), 0)
REDUCTION(variance, tu_variance, case_input(c, shape, -2, 2), 0)

/* Fills each row with positive numbers and one zero. The gradient with respect to the zero is the product of the
 * other elements. Second derivatives of prod require nonzero elements. */
static void fill_with_one_zero_per_row(case_run *c, double *data, tu_shape shape) {
    int64_t columns = shape.dim[1];
    for (int64_t i = 0; i < tu_shape_elements(shape); i++) data[i] = case_uniform(c, 0.5, 1.5);
    for (int64_t row = 0; row < shape.dim[0]; row++) data[row * columns + case_size(c, 0, columns - 1)] = 0;
}

OP_CASE(prod_of_zeros, CASE_NO_SECOND) {
    tu_value x = case_input_filled(c, case_shape(c, 2, 1, 4), fill_with_one_zero_per_row);
    case_output(c, tu_prod(x, .axes = TU_AXES(1)));
}

/* The squared norm over several tensors, as gradient clipping computes it. */
OP_CASE(squared_norm, CASE_ALL_CHECKS) {
    tu_value total = {0};
    for (int64_t i = 0, count = case_size(c, 2, 4); i < count; i++) {
        tu_shape shape = case_shape(c, case_size(c, 0, 3), 1, 5);
        tu_value x = case_input(c, shape, -2, 2);
        tu_value sum = tu_square(tu_value_dtype(x) == TU_F64 ? x : tu_cast(x, TU_F32));
        if (shape.rank > 1 && case_pick(c, "rows", 2)) sum = tu_sum(sum, .axes = TU_AXES(-1));
        sum = tu_cast(tu_sum(sum), TU_F64);
        total = i ? tu_add(total, sum) : sum;
    }
    case_output(c, total);
    case_output(c, tu_is_finite(total));
}

OP_CASE(argmax, CASE_NO_GRADIENT) {
    tu_shape shape = case_shape(c, case_size(c, 1, 4), 1, 5);
    int axis = (int)case_size(c, 0, shape.rank - 1);
    tu_value x = case_input_apart(c, shape);
    case_output(c, case_pick(c, "argmin", 2) ? tu_argmin(x, axis) : tu_argmax(x, axis - (int)shape.rank));
}

OP_CASE(argmax_among_equals, CASE_NO_GRADIENT) {
    tu_value x = case_integers(c, TU_I32, case_shape(c, 2, 1, 6), 0, 3);
    case_output(c, tu_argmax(x, 1));
    case_output(c, tu_argmin(x, 0));
}

OP_CASE(reduce_integers, CASE_NO_GRADIENT) {
    tu_value x = case_integers(c, case_pick(c, "i64", 2) ? TU_I64 : TU_I32, case_shape(c, 3, 1, 4), -5, 6);
    case_output(c, tu_sum(x, .axes = TU_AXES(0)));
    case_output(c, tu_max(x, .axes = TU_AXES(1)));
    case_output(c, tu_min(x));
}

OP_CASE(cumsum, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 4), 1, 5);
    tu_value x = case_input(c, shape, -2, 2);
    int axis = (int)case_size(c, 0, shape.rank - 1);
    case_output(c, tu_cumsum(x, axis, .exclusive = case_pick(c, "exclusive", 2),
                             .reverse = case_pick(c, "reverse", 2)));
}

OP_CASE(top_k, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 5);
    int axis = (int)case_size(c, 0, shape.rank - 1);
    int64_t k = case_size(c, 1, shape.dim[axis]);
    tu_value best = tu_top_k(case_input_apart(c, shape), k, axis);
    case_output(c, tu_square(best));
    case_output(c, tu_output_of(best, 1));
}
