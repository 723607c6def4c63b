/* Attention and its gradient.
 *
 * An error e of a score changes its probability p by the factor 1 + e, and so does the error of the row's logarithm. A
 * score is a sum of d products; a row has t terms. So each term of a result is bounded by its absolute value times 1 + a,
 * where a is the magnitude of the scores that it depends on, for sums of t + d terms. Kernels with 16-bit types round p and
 * ds to these types. */
#include "sweep/sweep.h"

typedef struct oracle {
    tu_value part[3];   /* queries, keys, values [b, h, t, d] */
    tu_value p;         /* [b, h, t, t] */
    tu_value magnitude; /* p (1 + a) */
    tu_value row;       /* [b, h, t, 1]: the magnitude of the logarithm */
    double scale;
} oracle;

static tu_value heads_first(tu_value x) {
    return tu_transpose(x, 0, 2, 1, 3);
}

static oracle make_oracle(tu_value x, double scale, bool causal) {
    tu_shape shape = tu_value_shape(x);
    int64_t t = shape.dim[1];
    oracle o = {.scale = scale};
    for (int i = 0; i < 3; i++) o.part[i] = heads_first(tu_squeeze_axis(tu_slice(x, 2, i, i + 1, 1), 2));
    tu_value visible = tu_band(tu_fill(x.graph, TU_F64, TU_SHAPE(t, t), 1), -1, causal ? 0 : -1);
    tu_value scores = tu_scale(tu_matmul(o.part[0], o.part[1], .transpose_b = true), scale);
    scores = tu_select(tu_greater_than(visible, 0), scores, tu_number(scores, -1e300));
    tu_value sizes = tu_scale(tu_matmul(tu_abs(o.part[0]), tu_abs(o.part[1]), .transpose_b = true), scale);
    o.p = tu_softmax(scores, -1);
    tu_value logarithm = tu_logsumexp(scores, .axes = TU_AXES(-1), .keep = true);
    o.row = tu_add(tu_abs(logarithm), tu_sum(tu_mul(o.p, sizes), .axes = TU_AXES(-1), .keep = true));
    o.magnitude = tu_mul(o.p, tu_shift(tu_add(sizes, o.row), 1));
    return o;
}

/* Returns the magnitude of the packed gradient. */
static tu_value gradient_magnitude(const oracle *o, tu_value dy) {
    tu_value size = tu_abs(heads_first(dy)), value = tu_abs(o->part[2]);
    tu_value dp = tu_matmul(size, value, .transpose_b = true);
    tu_value centre = tu_sum(tu_mul(size, tu_matmul(o->p, value)), .axes = TU_AXES(-1), .keep = true);
    tu_value ds = tu_scale(tu_mul(o->magnitude, tu_add(dp, centre)), o->scale);
    tu_value parts[3] = {tu_matmul(ds, tu_abs(o->part[1])),
                         tu_matmul(ds, tu_abs(o->part[0]), .transpose_a = true),
                         tu_matmul(o->magnitude, size, .transpose_a = true)};
    for (int i = 0; i < 3; i++) parts[i] = heads_first(parts[i]);
    return tu_stack(parts, 3, 2);
}

static void expect_attention(sweep *s, int64_t b, int64_t t, int64_t h, int64_t d, bool causal) {
    double scale = sweep_one_in(s, 3) ? 0.5 : 0;
    sweep_note(s, " batch %lld time %lld heads %lld width %lld%s scale %g", (long long)b, (long long)t,
               (long long)h, (long long)d, causal ? " causal" : "", scale);
    tu_value x = sweep_input_between(s, TU_SHAPE(b, t, 3, h, d), -1.5, 1.5);
    tu_value y = tu_attention(x, .causal = causal, .scale = scale), dx;
    tu_value dy = sweep_input(s, TU_SHAPE(b, t, h, d));
    tu_gradients(tu_sum(tu_mul(y, dy)), 1, &x, &dx);
    tu_value y_size = {0}, dx_size = {0}, logarithm_size = {0};
    if (sweep_is_oracle(s)) {
        double root = 1;
        for (int i = 0; i < 60; i++) root = (root + (double)d / root) / 2;
        oracle o = make_oracle(x, scale != 0 ? scale : 1 / root, causal);
        y_size = heads_first(tu_matmul(o.magnitude, tu_abs(o.part[2])));
        dx_size = gradient_magnitude(&o, dy);
        logarithm_size = tu_shift(tu_squeeze_axis(o.row, -1), 1);
    }
    sweep_expect_dot_products(s, "attention", y, t + d, sweep_is_16_bit(s), &y_size);
    sweep_expect_dot_products(s, "logarithms", tu_output_of(y, 1), t + d, false, &logarithm_size);
    sweep_expect_dot_products(s, "gradient", dx, t + d, sweep_is_16_bit(s), &dx_size);
}

void sweep_attention(sweep *s) {
    int64_t max_work = sweep_one_in(s, 12) ? 4000000 : 300000, b, t, h, d;
    do {
        b = sweep_random_int(s, 1, 3), h = sweep_random_int(s, 1, 4);
        t = sweep_size(s, 300);
        d = sweep_one_in(s, 2) ? 16 * sweep_random_int(s, 1, 8) : sweep_size(s, 140);
    } while (b * t * t * h * d > max_work);
    expect_attention(s, b, t, h, d, sweep_one_in(s, 2));
}
