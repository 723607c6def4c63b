/* Pooling, local response normalisation, and resize_case: sums and maxima over windows. */
#include "sweep/sweep.h"

/* ---- Pooling ---- */

typedef struct pool {
    int64_t size[2], window[2], stride[2], pad[4];
    bool max, count_padding;
} pool;

static pool random_pool(sweep *s) {
    for (;;) {
        pool p = {.count_padding = sweep_one_in(s, 2)};
        bool is_valid = true;
        for (int axis = 0; axis < 2; axis++) {
            p.window[axis] = sweep_random_int(s, 1, 5);
            p.stride[axis] = sweep_random_int(s, 1, 6);
            p.size[axis] = sweep_size(s, 20);
            for (int side = 0; side < 2; side++)
                p.pad[2 * axis + side] = sweep_one_in(s, 2) ? 0 : sweep_random_int(s, 0, p.window[axis] - 1);
            is_valid = is_valid && p.size[axis] + p.pad[2 * axis] + p.pad[2 * axis + 1] >= p.window[axis];
        }
        if (is_valid) return p;
    }
}

static tu_value apply_pool(const void *context, const tu_value *operands) {
    const pool *p = context;
    tu_pool_options options = {.struct_size = sizeof options,
                               .window = {p->window[0], p->window[1]},
                               .stride = {p->stride[0], p->stride[1]},
                               .padding = TU_EXPLICIT,
                               .pad = {p->pad[0], p->pad[1], p->pad[2], p->pad[3]},
                               .count_padding = p->count_padding};
    return p->max ? tu_max_pool_with(operands[0], &options) : tu_avg_pool_with(operands[0], &options);
}

static tu_value random_images(sweep *s, const pool *p) {
    int64_t images = sweep_random_int(s, 1, 5), channels = sweep_size(s, 70);
    sweep_note(s, " n%lld %lldx%lld c%lld window %lldx%lld stride %lld,%lld pad %lld,%lld,%lld,%lld%s",
               (long long)images, (long long)p->size[0], (long long)p->size[1], (long long)channels,
               (long long)p->window[0], (long long)p->window[1], (long long)p->stride[0],
               (long long)p->stride[1], (long long)p->pad[0], (long long)p->pad[1], (long long)p->pad[2],
               (long long)p->pad[3], p->count_padding ? " counting padding" : "");
    return sweep_input(s, TU_SHAPE(images, p->size[0], p->size[1], channels));
}

void sweep_average_pool(sweep *s) {
    pool p = random_pool(s);
    tu_value x = random_images(s, &p), y, magnitude, gradient, gradient_magnitude;
    sweep_differentiate(s, apply_pool, &p, 1, &x, &y, &magnitude, &gradient, &gradient_magnitude);
    int64_t terms = p.window[0] * p.window[1];
    sweep_expect(s, "average pool", y, terms, &magnitude);
    sweep_expect(s, "its gradient", gradient, terms, &gradient_magnitude);
}

/* The definition determines which of several equal maxima gets the gradient. */
void sweep_max_pool(sweep *s) {
    pool p = random_pool(s);
    p.max = true;
    tu_value x = random_images(s, &p), y = apply_pool(&p, &x), gradient, magnitude = {0};
    tu_value dy = sweep_input(s, tu_value_shape(y));
    tu_gradients(tu_sum(tu_mul(y, dy)), 1, &x, &gradient);
    if (sweep_is_oracle(s)) tu_gradients(tu_sum(tu_mul(y, tu_abs(dy))), 1, &x, &magnitude);
    sweep_expect(s, "max pool", y, 0, NULL);
    sweep_expect(s, "its gradient", gradient, p.window[0] * p.window[1], &magnitude);
}

/* ---- Local response normalisation ---- */

/* Sums over the channels at most `radius` away. */
static tu_value sum_over_window(tu_value x, int64_t radius) {
    tu_shape shape = tu_value_shape(x);
    int axis = (int)shape.rank - 1;
    int64_t channels = shape.dim[axis];
    tu_value padded = tu_pad(x, axis, radius, radius, 0), sum = tu_slice(padded, axis, 0, channels, 1);
    for (int64_t d = 1; d <= 2 * radius; d++) sum = tu_add(sum, tu_slice(padded, axis, d, d + channels, 1));
    return sum;
}

void sweep_lrn(sweep *s) {
    int64_t radius = sweep_random_int(s, 1, 6);
    double bias = sweep_one_in(s, 2) ? 1 : 2, alpha = sweep_one_in(s, 2) ? 1e-2 : 0.3;
    double beta = sweep_one_in(s, 2) ? 0.75 : 0.5;
    tu_shape shape =
        TU_SHAPE(sweep_random_int(s, 1, 3), sweep_size(s, 12), sweep_size(s, 12), sweep_size(s, 70));
    sweep_note(s, " %lldx%lldx%lldx%lld radius %lld bias %g alpha %g beta %g", (long long)shape.dim[0],
               (long long)shape.dim[1], (long long)shape.dim[2], (long long)shape.dim[3], (long long)radius,
               bias, alpha, beta);
    tu_value x = sweep_input(s, shape), dy = sweep_input(s, shape), gradient;
    tu_value y = tu_lrn(x, .radius = radius, .bias = bias, .alpha = alpha, .beta = beta);
    tu_gradients(tu_sum(tu_mul(y, dy)), 1, &x, &gradient);
    tu_value magnitude = {0}, gradient_magnitude = {0};
    if (sweep_is_oracle(s)) {
        /* dx = dy t^-beta - 2 alpha beta x sum(dy x t^(-beta - 1)), t = bias + alpha sum(x^2) */
        tu_value t = tu_shift(tu_scale(sum_over_window(tu_square(x), radius), alpha), bias);
        tu_value power = tu_exp(tu_scale(tu_log(t), -beta));
        tu_value window_sum =
            sum_over_window(tu_div(tu_mul(tu_mul(tu_abs(dy), tu_abs(x)), power), t), radius);
        magnitude = tu_mul(tu_abs(x), power);
        gradient_magnitude =
            tu_add(tu_mul(tu_abs(dy), power), tu_scale(tu_mul(tu_abs(x), window_sum), 2 * alpha * beta));
    }
    sweep_expect(s, "lrn", y, 2 * radius + 1, &magnitude);
    sweep_expect(s, "its gradient", gradient, 2 * (2 * radius + 1), &gradient_magnitude);
}

/* ---- Resizing ---- */

typedef struct resize_case {
    int64_t height, width;
    tu_resize_method method;
} resize_case;

static tu_value apply_resize(const void *context, const tu_value *operands) {
    const resize_case *r = context;
    return tu_resize(operands[0], r->height, r->width, r->method);
}

/* Weights are differences of coordinates, which are rounded like any number of their size: so the size is added to
 * the terms. */
void sweep_resize(sweep *s) {
    resize_case r = {sweep_size(s, 30), sweep_size(s, 30), sweep_one_in(s, 3) ? TU_NEAREST : TU_BILINEAR};
    tu_shape shape =
        TU_SHAPE(sweep_random_int(s, 1, 3), sweep_size(s, 20), sweep_size(s, 20), sweep_size(s, 19));
    sweep_note(s, " %lldx%lldx%lldx%lld to %lldx%lld %s", (long long)shape.dim[0], (long long)shape.dim[1],
               (long long)shape.dim[2], (long long)shape.dim[3], (long long)r.height, (long long)r.width,
               r.method == TU_NEAREST ? "nearest" : "bilinear");
    tu_value x = sweep_input(s, shape), y, magnitude, gradient, gradient_magnitude;
    sweep_differentiate(s, apply_resize, &r, 1, &x, &y, &magnitude, &gradient, &gradient_magnitude);
    int64_t size = shape.dim[1] + shape.dim[2];
    if (r.method == TU_BILINEAR && sweep_is_oracle(s))
        magnitude = tu_shift(magnitude, 1); /* a weight of 0 may be computed as 1e-7 */
    if (r.method == TU_BILINEAR && sweep_is_oracle(s)) gradient_magnitude = tu_shift(gradient_magnitude, 1);
    sweep_expect(s, "resize", y, 4 + size, &magnitude);
    sweep_expect(s, "its gradient", gradient,
                 4 + size + (r.height / shape.dim[1] + 2) * (r.width / shape.dim[2] + 2),
                 &gradient_magnitude);
}
