/* Convolutions and matrix products of frozen graphs: the weights are constants; with bias, residual and ReLU. */
#include "sweep/sweep.h"

enum {
    IN = 6,
    OUT = 4,
    TAPS = 3
}; /* of Winograd's convolution: pixels of a tile, of its result, and of the filter */

typedef struct geometry {
    int64_t images, size[2], kernel, stride[2], dilation[2], pad[4], in, out;
} geometry;

static int64_t output_size(const geometry *g, int axis) {
    int64_t last =
        g->size[axis] + g->pad[2 * axis] + g->pad[2 * axis + 1] - (g->kernel - 1) * g->dilation[axis] - 1;
    return last < 0 ? 0 : 1 + last / g->stride[axis];
}

static int64_t work_of(const geometry *g) {
    return g->images * output_size(g, 0) * output_size(g, 1) * g->kernel * g->kernel * g->in * g->out;
}

/* ---- The magnitude of the terms that Winograd's convolution adds ----
 *
 * Y = A^T [(G g G^T) * (B^T d B)] A is computed in f32, except G g G^T, which is rounded once. Every number is a sum of
 * products of the rows of these matrices with the pixels d, the filter g and the products; so its error is at most that
 * of a sum of as many terms, times the same expression with the absolute values of all numbers and matrices. */

static const double a_matrix[OUT * IN] = {1, 1, 1, 1, 1, 0, 0, 1, 1, 2, 2, 0,
                                          0, 1, 1, 4, 4, 0, 0, 1, 1, 8, 8, 1};
static const double b_matrix[IN * IN] = {4, 0, 5, 0, 1, 0, 0, 4, 4, 1, 1, 0, 0, 4, 4, 1, 1, 0,
                                         0, 2, 1, 2, 1, 0, 0, 2, 1, 2, 1, 0, 0, 4, 0, 5, 0, 1};
static const double g_matrix[IN * TAPS] = {1.0 / 4,  0,        0,       1.0 / 6,  1.0 / 6,  1.0 / 6,
                                           1.0 / 6,  1.0 / 6,  1.0 / 6, 1.0 / 24, 1.0 / 12, 1.0 / 6,
                                           1.0 / 24, 1.0 / 12, 1.0 / 6, 0,        0,        1};

/* Multiplies x [columns * columns, rest] by the Kronecker product of a matrix [rows, columns] with itself. */
static tu_value transform(const double *matrix, int64_t rows, int64_t columns, tu_value x) {
    double product[IN * IN * IN * IN];
    for (int64_t i = 0; i < rows * rows; i++)
        for (int64_t j = 0; j < columns * columns; j++)
            product[i * columns * columns + j] =
                matrix[i / rows * columns + j / columns] * matrix[i % rows * columns + j % columns];
    return tu_matmul(tu_constant(x.graph, TU_F64, TU_SHAPE(rows * rows, columns * columns), product), x);
}

/* Returns the pixels of all tiles, [36, tiles * channels]. */
static tu_value tiles_of(const geometry *g, const int64_t tiles[2], tu_value x) {
    tu_value parts[IN * IN];
    int64_t pad[4];
    for (int i = 0; i < 2; i++) {
        pad[2 * i] = g->pad[2 * i];
        pad[2 * i + 1] = OUT * tiles[i] + 2 - g->size[i] - g->pad[2 * i];
    }
    x = tu_pad(x, 1, pad[0], pad[1], 0);
    x = tu_pad(x, 2, pad[2], pad[3], 0);
    for (int i = 0; i < IN * IN; i++) {
        tu_value part = tu_slice(x, 1, i / IN, i / IN + OUT * (tiles[0] - 1) + 1, OUT);
        part = tu_slice(part, 2, i % IN, i % IN + OUT * (tiles[1] - 1) + 1, OUT);
        parts[i] = tu_reshape(part, TU_SHAPE(1, tu_shape_elements(tu_value_shape(part))));
    }
    return tu_concat(parts, IN * IN, 0);
}

static tu_value winograd_magnitude(const geometry *g, tu_value x, tu_value filter) {
    int64_t y[2] = {output_size(g, 0), output_size(g, 1)}, tiles[2] = {(y[0] + 3) / OUT, (y[1] + 3) / OUT};
    int64_t count = g->images * tiles[0] * tiles[1];
    tu_value v = transform(b_matrix, IN, IN, tiles_of(g, tiles, tu_abs(x)));
    tu_value u = tu_transpose(tu_abs(filter), 1, 2, 3, 0);
    u = transform(g_matrix, IN, TAPS, tu_reshape(u, TU_SHAPE(TAPS * TAPS, g->in * g->out)));
    tu_value m = tu_matmul(tu_reshape(v, TU_SHAPE(IN * IN, count, g->in)),
                           tu_reshape(u, TU_SHAPE(IN * IN, g->in, g->out)));
    m = transform(a_matrix, OUT, IN, tu_reshape(m, TU_SHAPE(IN * IN, count * g->out)));
    m = tu_transpose(tu_reshape(m, TU_SHAPE(OUT, OUT, g->images, tiles[0], tiles[1], g->out)), 2, 3, 0, 4, 1,
                     5);
    m = tu_reshape(m, TU_SHAPE(g->images, OUT * tiles[0], OUT * tiles[1], g->out));
    return tu_slice(tu_slice(m, 1, 0, y[0], 1), 2, 0, y[1], 1);
}

/* ---- The epilogue ---- */

/* Checks y after a random epilogue: bias, residual (on either side of the addition) and relu. */
static void expect_with_epilogue(sweep *s, const char *what, tu_value y, int64_t terms, tu_value magnitude) {
    tu_shape shape = tu_value_shape(y);
    bool has_bias = !sweep_one_in(s, 3), has_residual = sweep_one_in(s, 2), is_first = sweep_one_in(s, 2);
    if (has_bias) {
        tu_value bias = sweep_frozen_input(s, TU_SHAPE(shape.dim[shape.rank - 1]));
        y = tu_add(y, bias);
        if (sweep_is_oracle(s)) magnitude = tu_add(magnitude, tu_abs(bias));
    }
    if (has_residual) {
        tu_value residual = sweep_input(s, shape);
        y = is_first ? tu_add(residual, y) : tu_add(y, residual);
        if (sweep_is_oracle(s)) magnitude = tu_add(magnitude, tu_abs(residual));
    }
    if (sweep_one_in(s, 2)) y = tu_relu(y);
    sweep_note(s, "%s%s", has_bias ? " bias" : "", has_residual ? " residual" : "");
    sweep_expect_dot_products(s, what, y, terms + 2, sweep_is_16_bit(s), &magnitude);
}

/* ---- Convolutions ---- */

static tu_value convolve(const geometry *g, tu_value x, tu_value filter) {
    return tu_convolve(x, filter, .stride = {g->stride[0], g->stride[1]},
                       .dilation = {g->dilation[0], g->dilation[1]}, .padding = TU_EXPLICIT,
                       .pad = {g->pad[0], g->pad[1], g->pad[2], g->pad[3]});
}

/* 3x3 filters with stride 1 and multiples of 16 channels are half of the cases. */
static geometry random_geometry(sweep *s) {
    bool is_common = sweep_one_in(s, 2);
    geometry g = {.images = sweep_random_int(s, 1, is_common ? 3 : 6), .kernel = 3};
    g.in = is_common ? 16 * sweep_random_int(s, 2, 4) : sweep_size(s, 130);
    g.out = is_common ? 16 * sweep_random_int(s, 2, 4) : sweep_size(s, 130);
    if (!is_common) g.kernel = sweep_one_in(s, 2) ? 1 : sweep_random_int(s, 2, 7);
    for (int axis = 0; axis < 2; axis++) {
        g.size[axis] = is_common ? sweep_random_int(s, 3, 18) : sweep_size(s, 34);
        g.stride[axis] = is_common || sweep_one_in(s, 2) ? 1 : sweep_random_int(s, 1, 4);
        g.dilation[axis] = is_common || !sweep_one_in(s, 4) ? 1 : sweep_random_int(s, 2, 3);
        for (int side = 0; side < 2; side++)
            g.pad[2 * axis + side] = sweep_one_in(s, 3) ? sweep_random_int(s, 0, g.kernel) : g.kernel / 2;
    }
    return g;
}

void sweep_frozen_convolution(sweep *s) {
    int64_t max_work = sweep_one_in(s, 12) ? 16000000 : 4000000;
    geometry g;
    do g = random_geometry(s);
    while (output_size(&g, 0) < 1 || output_size(&g, 1) < 1 || work_of(&g) > max_work);
    sweep_note(
        s, " n%lld %lldx%lld c%lld o%lld k%lld stride %lld,%lld dilation %lld,%lld pad %lld,%lld,%lld,%lld",
        (long long)g.images, (long long)g.size[0], (long long)g.size[1], (long long)g.in, (long long)g.out,
        (long long)g.kernel, (long long)g.stride[0], (long long)g.stride[1], (long long)g.dilation[0],
        (long long)g.dilation[1], (long long)g.pad[0], (long long)g.pad[1], (long long)g.pad[2],
        (long long)g.pad[3]);
    tu_value x = sweep_input(s, TU_SHAPE(g.images, g.size[0], g.size[1], g.in));
    tu_value filter = sweep_frozen_input(s, TU_SHAPE(g.out, g.kernel, g.kernel, g.in)), magnitude = {0};
    bool is_transformed = sweep_is_oracle(s) && sweep_device_used(s, "winograd");
    if (sweep_is_oracle(s))
        magnitude =
            is_transformed ? winograd_magnitude(&g, x, filter) : convolve(&g, tu_abs(x), tu_abs(filter));
    /* Each transform adds at most 5 terms along each of two axes, and the products are sums of g.in terms. */
    int64_t terms = is_transformed ? g.in + 4 * 5 : g.kernel * g.kernel * g.in;
    expect_with_epilogue(s, "frozen convolution", convolve(&g, x, filter), terms, magnitude);
}

/* ---- Matrix products ---- */

void sweep_frozen_matmul(sweep *s) {
    int64_t max_work = sweep_one_in(s, 12) ? 6000000 : 400000, m, n, k;
    do {
        m = sweep_one_in(s, 4) ? 1 : sweep_size(s, 260);
        n = sweep_size(s, 260);
        k = sweep_one_in(s, 4) ? sweep_random_int(s, 500, 1600) : sweep_size(s, 260);
    } while (m * n * k > max_work);
    bool is_transposed = sweep_one_in(s, 3), has_batch = sweep_one_in(s, 3);
    sweep_note(s, " m%lld n%lld k%lld%s", (long long)m, (long long)n, (long long)k,
               is_transposed ? " b^T" : "");
    tu_value a = sweep_input(s, has_batch ? TU_SHAPE(2, m, k) : TU_SHAPE(m, k)), magnitude = {0};
    tu_value b = sweep_frozen_input(s, is_transposed ? TU_SHAPE(n, k) : TU_SHAPE(k, n));
    if (sweep_is_oracle(s)) magnitude = tu_matmul(tu_abs(a), tu_abs(b), .transpose_b = is_transposed);
    expect_with_epilogue(s, "frozen matmul", tu_matmul(a, b, .transpose_b = is_transposed), k, magnitude);
}
