/* Reductions, cumulative sums, top-k, softmax and losses: sums and maxima along axes. */
#include "sweep/sweep.h"

static void note_shape(sweep *s, tu_shape shape) {
    for (int i = 0; i < shape.rank; i++) sweep_note(s, "%s%lld", i ? "x" : " ", (long long)shape.dim[i]);
}

/* At most 60,000 elements; sometimes one axis is long. */
static tu_shape random_shape(sweep *s, int64_t min_rank) {
    for (;;) {
        tu_shape shape = sweep_shape(s, sweep_random_int(s, min_rank, 4), 64);
        if (sweep_one_in(s, 6))
            shape.dim[sweep_random_int(s, 0, shape.rank - 1)] = sweep_random_int(s, 300, 5000);
        if (tu_shape_elements(shape) <= 60000) return shape;
    }
}

static tu_axes random_axes(sweep *s, tu_shape shape) {
    tu_axes axes = {0};
    for (int i = 0; i < shape.rank; i++)
        if (sweep_one_in(s, 2)) axes.axis[axes.count++] = i;
    if (!axes.count) axes.axis[axes.count++] = (int32_t)sweep_random_int(s, 0, shape.rank - 1);
    return axes;
}

static int64_t elements_over(tu_shape shape, tu_axes axes) {
    int64_t count = 1;
    for (uint32_t i = 0; i < axes.count; i++) count *= shape.dim[axes.axis[i]];
    return count;
}

void sweep_reduction(sweep *s) {
    static const char *const names[] = {"sum",    "mean",   "max",       "min",
                                        "argmax", "argmin", "logsumexp", "squares"};
    tu_shape shape = random_shape(s, 1);
    tu_axes axes = random_axes(s, shape);
    int64_t kind = sweep_random_int(s, 0, 7), count = elements_over(shape, axes);
    bool keep = sweep_one_in(s, 2);
    note_shape(s, shape);
    sweep_note(s, " %s over", names[kind]);
    for (uint32_t i = 0; i < axes.count; i++) sweep_note(s, " %d", (int)axes.axis[i]);
    tu_value x = sweep_input(s, shape), y, magnitude = {0};
    tu_reduce_options options = {.struct_size = sizeof options, .axes = axes, .keep = keep};
    switch (kind) {
    case 0: y = tu_sum_with(x, &options); break;
    case 1: y = tu_mean_with(x, &options); break;
    case 2: y = tu_max_with(x, &options); break;
    case 3: y = tu_min_with(x, &options); break;
    case 4: y = tu_argmax(x, axes.axis[0]); break;
    case 5: y = tu_argmin(x, axes.axis[0]); break;
    case 6: y = tu_logsumexp_with(x, &options); break;
    default: y = tu_sum_with(tu_square(x), &options); break;
    }
    if (sweep_is_oracle(s)) {
        if (kind == 0) magnitude = tu_sum_with(tu_abs(x), &options);
        if (kind == 1) magnitude = tu_mean_with(tu_abs(x), &options);
        if (kind == 6) /* A relative error of the sum is an absolute error of its is_log. */
            magnitude = tu_shift(tu_abs(y), 2);
        if (kind == 7) magnitude = y;
    }
    bool sums = kind == 0 || kind == 1 || kind == 6;
    if (kind == 7) /* in 16-bit types squares are rounded, unless they are fused */
        sweep_expect_dot_products(s, "sum of squares", y, count, sweep_is_16_bit(s), &magnitude);
    else
        sweep_expect(s, names[kind], y, sums ? count : 0, sums ? &magnitude : NULL);
}

void sweep_cumsum(sweep *s) {
    tu_shape shape = random_shape(s, 1);
    int axis = (int)sweep_random_int(s, 0, shape.rank - 1);
    bool exclusive = sweep_one_in(s, 2), reverse = sweep_one_in(s, 2);
    note_shape(s, shape);
    sweep_note(s, " along %d%s%s", axis, exclusive ? " exclusive" : "", reverse ? " reverse" : "");
    tu_value x = sweep_input(s, shape), magnitude = {0};
    tu_value y = tu_cumsum(x, axis, .exclusive = exclusive, .reverse = reverse);
    if (sweep_is_oracle(s)) /* the sum of all elements: some kernels subtract from it */
        magnitude = tu_broadcast(tu_sum(tu_abs(x), .axes = {1, {axis}}, .keep = true), shape);
    sweep_expect(s, "cumsum", y, shape.dim[axis], &magnitude);
}

void sweep_top_k(sweep *s) {
    tu_shape shape = random_shape(s, 1);
    int axis = (int)sweep_random_int(s, 0, shape.rank - 1);
    int64_t k = sweep_random_int(s, 1, shape.dim[axis] < 8 ? shape.dim[axis] : 8);
    note_shape(s, shape);
    sweep_note(s, " the %lld largest along %d", (long long)k, axis);
    tu_value y = tu_top_k(sweep_input(s, shape), k, axis);
    sweep_expect(s, "largest", y, 0, NULL);
    sweep_expect(s, "their indices", tu_output_of(y, 1), 0, NULL);
}

/* ---- Softmax ---- */

static tu_value reduce_along(tu_value (*reduce)(tu_value, const tu_reduce_options *), tu_value x, int axis) {
    tu_reduce_options options = {.struct_size = sizeof options, .axes = {1, {axis}}, .keep = true};
    return reduce(x, &options);
}

/* An absolute error of eps |x| in the argument of exp is a relative error of the same size in its result. */
static tu_value exp_error_factor(tu_value x, int axis) {
    return tu_shift(reduce_along(tu_max_with, tu_abs(x), axis), 1);
}

void sweep_softmax(sweep *s) {
    tu_shape shape = random_shape(s, 1);
    int axis = sweep_one_in(s, 2) ? (int)shape.rank - 1 : (int)sweep_random_int(s, 0, shape.rank - 1);
    bool is_log = sweep_one_in(s, 2);
    double size = sweep_one_in(s, 3) ? 30 : 3;
    note_shape(s, shape);
    sweep_note(s, " %s along %d, up to %g", is_log ? "log_softmax" : "softmax", axis, size);
    tu_value x = sweep_input_between(s, shape, -size, size), dy = sweep_input(s, shape), gradient;
    tu_value y = is_log ? tu_log_softmax(x, axis) : tu_softmax(x, axis);
    tu_gradients(tu_sum(tu_mul(y, dy)), 1, &x, &gradient);
    tu_value magnitude = {0}, gradient_magnitude = {0};
    if (sweep_is_oracle(s)) {
        tu_value p = tu_softmax(x, axis), error_factor = exp_error_factor(x, axis),
                 dy_sum = reduce_along(tu_sum_with, tu_abs(dy), axis);
        magnitude = is_log ? tu_add(tu_abs(y), tu_broadcast(error_factor, shape)) : tu_mul(p, error_factor);
        if (is_log)
            gradient_magnitude = tu_add(tu_abs(dy), tu_mul(tu_mul(p, error_factor), dy_sum));
        else
            gradient_magnitude =
                tu_mul(tu_mul(p, error_factor),
                       tu_add(tu_abs(dy), reduce_along(tu_sum_with, tu_mul(tu_abs(dy), p), axis)));
    }
    /* The gradient reads the stored y, which is rounded in 16-bit types. */
    sweep_expect(s, "softmax", y, shape.dim[axis], &magnitude);
    sweep_expect_dot_products(s, "its gradient", gradient, 2 * shape.dim[axis], sweep_is_16_bit(s),
                              &gradient_magnitude);
}

void sweep_cross_entropy(sweep *s) {
    int64_t rows = sweep_size(s, 129), classes = sweep_size(s, 257);
    double size = sweep_one_in(s, 3) ? 20 : 2, smoothing = sweep_one_in(s, 3) ? 0.1 : 0;
    sweep_note(s, " %lldx%lld up to %g, smoothing %g", (long long)rows, (long long)classes, size, smoothing);
    tu_value x = sweep_input_between(s, TU_SHAPE(rows, classes), -size, size);
    tu_value labels = sweep_input_integers(s, TU_SHAPE(rows), sweep_one_in(s, 4) ? -1 : 0, classes);
    tu_value dy = sweep_input(s, TU_SHAPE(rows)), gradient;
    tu_value loss = tu_cross_entropy(x, labels, .smoothing = smoothing);
    tu_gradients(tu_sum(tu_mul(loss, dy)), 1, &x, &gradient);
    tu_value magnitude = {0}, gradient_magnitude = {0};
    if (sweep_is_oracle(s)) {
        tu_value error_factor = exp_error_factor(x, 1), loss_magnitude = tu_abs(tu_log_softmax(x, 1));
        tu_value p = tu_softmax(x, 1), hot = tu_shift(tu_one_hot(labels, classes, TU_F64), smoothing);
        magnitude = tu_add(tu_reshape(reduce_along(tu_max_with, loss_magnitude, 1), TU_SHAPE(rows)),
                           tu_scale(tu_reshape(error_factor, TU_SHAPE(rows)), 2));
        gradient_magnitude =
            tu_mul(tu_add(tu_mul(p, error_factor), hot), tu_reshape(tu_abs(dy), TU_SHAPE(rows, 1)));
    }
    sweep_expect(s, "loss", loss, classes, &magnitude);
    sweep_expect_dot_products(s, "its gradient", gradient, classes, sweep_is_16_bit(s), &gradient_magnitude);
}
