/* Reductions, cumulative sums, top-k, softmax and losses: sums and maxima along axes. */
#include "sweep/sweep.h"

static void note_shape(sweep *s, tu_shape shape) {
    for (int i = 0; i < shape.rank; i++) sweep_note(s, "%s%lld", i ? "x" : " ", (long long)shape.dim[i]);
}

/* At most 60,000 elements; sometimes one axis is long. */
static tu_shape draw_shape(sweep *s, int64_t least_rank) {
    for (;;) {
        tu_shape shape = sweep_shape(s, sweep_between(s, least_rank, 4), 64);
        if (sweep_one_in(s, 6)) shape.dim[sweep_between(s, 0, shape.rank - 1)] = sweep_between(s, 300, 5000);
        if (tu_shape_elements(shape) <= 60000) return shape;
    }
}

static tu_axes draw_axes(sweep *s, tu_shape shape) {
    tu_axes axes = {0};
    for (int i = 0; i < shape.rank; i++)
        if (sweep_one_in(s, 2)) axes.axis[axes.count++] = i;
    if (!axes.count) axes.axis[axes.count++] = (int32_t)sweep_between(s, 0, shape.rank - 1);
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
    tu_shape shape = draw_shape(s, 1);
    tu_axes axes = draw_axes(s, shape);
    int64_t kind = sweep_between(s, 0, 7), count = elements_over(shape, axes);
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
        if (kind == 6) /* A relative error of the sum is an absolute error of its logarithm. */
            magnitude = tu_shift(tu_abs(y), 2);
        if (kind == 7) magnitude = y;
    }
    bool sums = kind == 0 || kind == 1 || kind == 6;
    if (kind == 7) /* in half types squares are rounded, unless they are fused */
        sweep_expect_product(s, "sum of squares", y, count, sweep_is_half(s), &magnitude);
    else
        sweep_expect(s, names[kind], y, sums ? count : 0, sums ? &magnitude : NULL);
}

void sweep_running_sum(sweep *s) {
    tu_shape shape = draw_shape(s, 1);
    int axis = (int)sweep_between(s, 0, shape.rank - 1);
    bool exclusive = sweep_one_in(s, 2), reverse = sweep_one_in(s, 2);
    note_shape(s, shape);
    sweep_note(s, " along %d%s%s", axis, exclusive ? " exclusive" : "", reverse ? " reverse" : "");
    tu_value x = sweep_input(s, shape), magnitude = {0};
    tu_value y = tu_cumsum(x, axis, .exclusive = exclusive, .reverse = reverse);
    if (sweep_is_oracle(s)) /* the sum of all elements: some kernels subtract from it */
        magnitude = tu_broadcast(tu_sum(tu_abs(x), .axes = {1, {axis}}, .keep = true), shape);
    sweep_expect(s, "running sum", y, shape.dim[axis], &magnitude);
}

void sweep_top(sweep *s) {
    tu_shape shape = draw_shape(s, 1);
    int axis = (int)sweep_between(s, 0, shape.rank - 1);
    int64_t k = sweep_between(s, 1, shape.dim[axis] < 8 ? shape.dim[axis] : 8);
    note_shape(s, shape);
    sweep_note(s, " the %lld largest along %d", (long long)k, axis);
    tu_value y = tu_top_k(sweep_input(s, shape), k, axis);
    sweep_expect(s, "largest", y, 0, NULL);
    sweep_expect(s, "their indices", tu_output_of(y, 1), 0, NULL);
}

/* ---- Softmax ---- */

static tu_value along(tu_value (*reduce)(tu_value, const tu_reduce_options *), tu_value x, int axis) {
    tu_reduce_options options = {.struct_size = sizeof options, .axes = {1, {axis}}, .keep = true};
    return reduce(x, &options);
}

/* An absolute error of eps |x| in the argument of exp is a relative error of the same size in its result. */
static tu_value spread(tu_value x, int axis) {
    return tu_shift(along(tu_max_with, tu_abs(x), axis), 1);
}

void sweep_softmax(sweep *s) {
    tu_shape shape = draw_shape(s, 1);
    int axis = sweep_one_in(s, 2) ? (int)shape.rank - 1 : (int)sweep_between(s, 0, shape.rank - 1);
    bool logarithm = sweep_one_in(s, 2);
    double size = sweep_one_in(s, 3) ? 30 : 3;
    note_shape(s, shape);
    sweep_note(s, " %s along %d, up to %g", logarithm ? "log_softmax" : "softmax", axis, size);
    tu_value x = sweep_input_between(s, shape, -size, size), dy = sweep_input(s, shape), gradient;
    tu_value y = logarithm ? tu_log_softmax(x, axis) : tu_softmax(x, axis);
    tu_gradients(tu_sum(tu_mul(y, dy)), 1, &x, &gradient);
    tu_value magnitude = {0}, gradient_magnitude = {0};
    if (sweep_is_oracle(s)) {
        tu_value p = tu_softmax(x, axis), wide = spread(x, axis), all = along(tu_sum_with, tu_abs(dy), axis);
        magnitude = logarithm ? tu_add(tu_abs(y), tu_broadcast(wide, shape)) : tu_mul(p, wide);
        if (logarithm)
            gradient_magnitude = tu_add(tu_abs(dy), tu_mul(tu_mul(p, wide), all));
        else
            gradient_magnitude =
                tu_mul(tu_mul(p, wide), tu_add(tu_abs(dy), along(tu_sum_with, tu_mul(tu_abs(dy), p), axis)));
    }
    /* The gradient reads the stored y, which is rounded in half types. */
    sweep_expect(s, "softmax", y, shape.dim[axis], &magnitude);
    sweep_expect_product(s, "its gradient", gradient, 2 * shape.dim[axis], sweep_is_half(s),
                         &gradient_magnitude);
}

void sweep_cross_entropy(sweep *s) {
    int64_t rows = sweep_size(s, 129), classes = sweep_size(s, 257);
    double size = sweep_one_in(s, 3) ? 20 : 2, smoothing = sweep_one_in(s, 3) ? 0.1 : 0;
    sweep_note(s, " %lldx%lld up to %g, smoothing %g", (long long)rows, (long long)classes, size, smoothing);
    tu_value x = sweep_input_between(s, TU_SHAPE(rows, classes), -size, size);
    tu_value labels = sweep_integers(s, TU_SHAPE(rows), sweep_one_in(s, 4) ? -1 : 0, classes);
    tu_value dy = sweep_input(s, TU_SHAPE(rows)), gradient;
    tu_value loss = tu_cross_entropy(x, labels, .smoothing = smoothing);
    tu_gradients(tu_sum(tu_mul(loss, dy)), 1, &x, &gradient);
    tu_value magnitude = {0}, gradient_magnitude = {0};
    if (sweep_is_oracle(s)) {
        tu_value wide = spread(x, 1), size_of_loss = tu_abs(tu_log_softmax(x, 1));
        tu_value p = tu_softmax(x, 1), hot = tu_shift(tu_one_hot(labels, classes, TU_F64), smoothing);
        magnitude = tu_add(tu_reshape(along(tu_max_with, size_of_loss, 1), TU_SHAPE(rows)),
                           tu_scale(tu_reshape(wide, TU_SHAPE(rows)), 2));
        gradient_magnitude = tu_mul(tu_add(tu_mul(p, wide), hot), tu_reshape(tu_abs(dy), TU_SHAPE(rows, 1)));
    }
    sweep_expect(s, "loss", loss, classes, &magnitude);
    sweep_expect_product(s, "its gradient", gradient, classes, sweep_is_half(s), &gradient_magnitude);
}
