/* Batch and layer normalisation, and their gradients.
 *
 * Error analysis. With c numbers in a group (the elements that share a mean) and eps that of f32, a mean has an error
 * of about c eps mean|x|, so x - mean one of c eps (|x| + mean|x|), and the variance a relative error of c eps q, q =
 * mean(|x - mean| (|x| + mean|x|)) / (variance + epsilon). The normalised value h = (x - mean) rstd, rstd = 1 /
 * sqrt(variance + epsilon), then has an error of c eps e, e = rstd (|x| + mean|x|) + |h| q. */
#include "sweep/sweep.h"

typedef struct norm {
    tu_value x, gamma, beta, dy; /* gamma, beta broadcast to x */
    tu_axes axes;                /* the axes that are normalised over */
    double epsilon;
    /* computed in the oracle only */
    tu_value mean, variance, rstd, h, q, e, centered, x_magnitude;
} norm;

static tu_value mean_of_group(const norm *n, tu_value x) {
    return tu_mean(x, .axes = n->axes, .keep = true);
}

static void prepare_oracle(norm *n) {
    tu_value level = mean_of_group(n, tu_abs(n->x));
    n->x_magnitude = tu_add(tu_abs(n->x), level);
    n->mean = mean_of_group(n, n->x);
    n->centered = tu_sub(n->x, n->mean);
    n->variance = mean_of_group(n, tu_square(n->centered));
    n->rstd = tu_rsqrt(tu_shift(n->variance, n->epsilon));
    n->h = tu_mul(n->centered, n->rstd);
    n->q = tu_mul(mean_of_group(n, tu_mul(tu_abs(n->centered), n->x_magnitude)), tu_square(n->rstd));
    n->e = tu_add(tu_mul(n->rstd, n->x_magnitude), tu_mul(tu_abs(n->h), n->q));
}

static tu_value y_magnitude(const norm *n) {
    return tu_add(tu_mul(tu_abs(n->gamma), n->e), tu_abs(n->beta));
}

/* dx = rstd (g - mean(g) - h mean(g h)), g = gamma dy */
static tu_value dx_magnitude(const norm *n) {
    tu_value g = tu_abs(tu_mul(n->gamma, n->dy)), h = tu_abs(n->h);
    tu_value terms =
        tu_add(tu_add(g, mean_of_group(n, g)), tu_add(tu_mul(n->e, mean_of_group(n, tu_mul(g, h))),
                                                      tu_mul(h, mean_of_group(n, tu_mul(g, n->e)))));
    tu_value gradient_terms =
        tu_add(tu_add(g, mean_of_group(n, g)), tu_mul(h, mean_of_group(n, tu_mul(g, h))));
    return tu_mul(n->rstd, tu_add(terms, tu_mul(gradient_terms, n->q)));
}

static void random_x(sweep *s, tu_shape shape, tu_value *x) {
    double center = sweep_one_in(s, 3) ? 4 : 0;
    *x = sweep_input_between(s, shape, center - 1, center + 1);
    sweep_note(s, " around %g", center);
}

/* gamma and beta may be f32 if x is a 16-bit type, as in mixed precision. */
static tu_value random_parameter(sweep *s, tu_shape shape, double low, double high, bool f32_parameters) {
    tu_value value = sweep_input_between(s, shape, low, high);
    return f32_parameters ? tu_cast(value, sweep_is_oracle(s) ? TU_F64 : TU_F32) : value;
}

static void note_shape(sweep *s, tu_shape shape) {
    for (int i = 0; i < shape.rank; i++) sweep_note(s, "%s%lld", i ? "x" : " ", (long long)shape.dim[i]);
}

static void expect_norm(sweep *s, norm *n, tu_value y, tu_value dx, tu_value dgamma, tu_value dbeta,
                        tu_axes parameter_sum_axes, int64_t group_size, int64_t group_count) {
    tu_value magnitude = {0}, dx_bound = {0}, dgamma_bound = {0}, dbeta_bound = {0};
    if (sweep_is_oracle(s)) {
        tu_shape parameter = tu_value_shape(dgamma);
        prepare_oracle(n);
        magnitude = y_magnitude(n);
        dx_bound = dx_magnitude(n);
        dgamma_bound = tu_reshape(tu_sum(tu_mul(tu_abs(n->dy), n->e), .axes = parameter_sum_axes), parameter);
        dbeta_bound = tu_reshape(tu_sum(tu_abs(n->dy), .axes = parameter_sum_axes), parameter);
    }
    sweep_expect(s, "normalised", y, group_size, &magnitude);
    sweep_expect(s, "gradient of x", dx, 2 * group_size, &dx_bound);
    sweep_expect(s, "gradient of gamma", dgamma, group_size + group_count, &dgamma_bound);
    sweep_expect(s, "gradient of beta", dbeta, group_count, &dbeta_bound);
}

void sweep_batch_norm(sweep *s) {
    tu_shape shape = sweep_shape(s, sweep_random_int(s, 2, 4), 24);
    shape.dim[0] += 1;
    shape.dim[shape.rank - 1] = sweep_size(s, 97);
    int64_t channels = shape.dim[shape.rank - 1], group_size = tu_shape_elements(shape) / channels;
    bool f32_parameters = sweep_is_16_bit(s) && sweep_one_in(s, 2);
    norm n = {.epsilon = sweep_one_in(s, 2) ? 1e-3 : 1e-5};
    note_shape(s, shape);
    random_x(s, shape, &n.x);
    n.gamma = random_parameter(s, TU_SHAPE(channels), 0.5, 1.5, f32_parameters);
    n.beta = random_parameter(s, TU_SHAPE(channels), -1, 1, f32_parameters);
    for (int i = 0; i + 1 < shape.rank; i++) n.axes.axis[n.axes.count++] = i;
    tu_value y = tu_batch_normalize(n.x, n.gamma, n.beta, .epsilon = n.epsilon);
    n.dy = sweep_input(s, shape);
    tu_value wrt[3] = {n.x, n.gamma, n.beta}, gradients[3];
    tu_gradients(tu_sum(tu_mul(y, n.dy)), 3, wrt, gradients);
    expect_norm(s, &n, y, gradients[0], gradients[1], gradients[2], n.axes, group_size, group_size);
    tu_value mean_bound = {0}, variance_bound = {0};
    if (sweep_is_oracle(s)) {
        mean_bound = tu_mean(tu_abs(n.x), .axes = n.axes);
        variance_bound = tu_mean(tu_mul(tu_abs(n.centered), n.x_magnitude), .axes = n.axes);
    }
    sweep_expect(s, "mean", tu_output_of(y, 1), group_size, &mean_bound);
    sweep_expect(s, "variance", tu_output_of(y, 2), 2 * group_size, &variance_bound);
}

void sweep_layer_norm(sweep *s) {
    tu_shape shape = sweep_shape(s, sweep_random_int(s, 2, 3), 20);
    int64_t axes = sweep_random_int(s, 1, shape.rank - 1);
    shape.dim[shape.rank - 1] =
        1 + (sweep_one_in(s, 6) ? sweep_random_int(s, 500, 3000) : sweep_size(s, 257));
    tu_shape trailing = tu_shape_of((size_t)axes, shape.dim + shape.rank - axes);
    int64_t group_size = tu_shape_elements(trailing), group_count = tu_shape_elements(shape) / group_size;
    bool f32_parameters = sweep_is_16_bit(s) && sweep_one_in(s, 2);
    norm n = {.epsilon = sweep_one_in(s, 2) ? 1e-3 : 1e-5};
    note_shape(s, shape);
    sweep_note(s, " over %lld axes", (long long)axes);
    random_x(s, shape, &n.x);
    n.gamma = random_parameter(s, trailing, 0.5, 1.5, f32_parameters);
    n.beta = random_parameter(s, trailing, -1, 1, f32_parameters);
    tu_axes leading = {0};
    for (int i = 0; i < shape.rank; i++) {
        tu_axes *list = i >= shape.rank - axes ? &n.axes : &leading;
        list->axis[list->count++] = i;
    }
    tu_value y = tu_layer_normalize(n.x, n.gamma, n.beta, .epsilon = n.epsilon, .axes = axes);
    n.dy = sweep_input(s, shape);
    tu_value wrt[3] = {n.x, n.gamma, n.beta}, gradients[3];
    tu_gradients(tu_sum(tu_mul(y, n.dy)), 3, wrt, gradients);
    expect_norm(s, &n, y, gradients[0], gradients[1], gradients[2], leading, group_size, group_count);
}
