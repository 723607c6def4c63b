/* Inner loops of batch and layer normalisation.
 *
 * Statistics in f32 over a million rows must stay accurate. A block of rows is summed, its mean computed, and the
 * squared differences from that mean are summed in a second pass while the block is in the L1 cache; blocks are then
 * merged by the formula of Chan, Golub and LeVeque (1979), which is exact:
 *
 *     d = mean_b - mean_a     mean = mean_a + d n_b / n     m2 = m2_a + m2_b + d^2 n_a n_b / n
 *
 * All values are differences from the first row, so that a mean far from zero loses no precision either.
 *
 * Memory is read once. The error grows with the block size and the number of blocks, not with their product. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

enum { BLOCK = 64 }; /* rows */

LANES_INLINE int64_t block_rows(int64_t first, int64_t rows) {
    return rows - first < BLOCK ? rows - first : BLOCK;
}

/* ---- By columns: batch normalisation ---- */

/* Computes the moments of the columns of one block, minus `pivot`; row 0 starts at element `offset` of x; `n` columns
 * are valid. */
LANES_INLINE void block_moments(bool half, int64_t rows, int64_t c, const void *x, int64_t offset, int64_t n,
                                lanes pivot, lanes *mean, lanes *m2) {
    lanes even = {0}, odd = {0};
    int64_t i = 0;
    for (; i + 1 < rows; i += 2) {
        even += lanes_load_upto(half, x, offset + i * c, offset + i * c + n) - pivot;
        odd += lanes_load_upto(half, x, offset + i * c + c, offset + i * c + c + n) - pivot;
    }
    if (i < rows) even += lanes_load_upto(half, x, offset + i * c, offset + i * c + n) - pivot;
    *mean = (even + odd) * (1 / (float)rows);
    even = odd = (lanes){0};
    for (i = 0; i + 1 < rows; i += 2) {
        lanes a = (lanes_load_upto(half, x, offset + i * c, offset + i * c + n) - pivot) - *mean;
        lanes b = (lanes_load_upto(half, x, offset + i * c + c, offset + i * c + c + n) - pivot) - *mean;
        even += a * a;
        odd += b * b;
    }
    if (i < rows) {
        lanes a = (lanes_load_upto(half, x, offset + i * c, offset + i * c + n) - pivot) - *mean;
        even += a * a;
    }
    *m2 = even + odd;
}

LANES_INLINE void moments(bool half, int64_t rows, int64_t c, const void *x, float *pivot, float *mean,
                          float *m2) {
    for (int64_t first = 0; first < rows; first += BLOCK) {
        int64_t block = block_rows(first, rows);
        float fraction = (float)block / (float)(first + block), weight = (float)first * fraction;
        for (int64_t k = 0; k < c; k += LANES) {
            lanes base = lanes_load_upto(half, x, k, c), block_mean, block_m2, old_mean = {0}, old_m2 = {0};
            block_moments(half, block, c, x, first * c + k, c - k, base, &block_mean, &block_m2);
            if (first > 0) {
                old_mean = lanes_load_upto(false, mean, k, c);
                old_m2 = lanes_load_upto(false, m2, k, c);
            } else {
                lanes_store_upto(false, pivot, k, c, base);
            }
            lanes d = block_mean - old_mean;
            lanes_store_upto(false, mean, k, c, old_mean + d * fraction); /* 1 for the first block */
            lanes_store_upto(false, m2, k, c, old_m2 + block_m2 + d * d * weight);
        }
    }
}

/* Normalises a vector of x, rounded to the type. */
LANES_INLINE lanes normalize(bool half, lanes x, lanes mean, lanes scale, lanes shift) {
    lanes v = lanes_multiply_add(x - mean, scale, shift);
    return half ? lanes_widen(lanes_narrow(v)) : v;
}

/* Like the operation relu: NaN and -0 stay. */
LANES_INLINE lanes apply_relu(lanes x) {
    return lanes_select(lanes_greater((lanes){0}, x), (lanes){0}, x);
}

/* `has_addend` and `relu` are constants in every call, so that the loops contain no tests. */
LANES_INLINE void apply_as(bool half, bool has_addend, bool relu, int64_t rows, int64_t c, const void *x,
                           const cpu_norm_columns *columns, const void *addend, void *y) {
    for (int64_t first = 0; first < rows; first += BLOCK) {
        int64_t end = first + block_rows(first, rows);
        for (int64_t k = 0; k < c; k += LANES) {
            lanes mean = lanes_load_upto(false, columns->mean, k, c),
                  scale = lanes_load_upto(false, columns->scale, k, c),
                  shift = lanes_load_upto(false, columns->shift, k, c);
            for (int64_t i = first; i < end; i++) {
                int64_t offset = i * c + k, row_end = i * c + c;
                lanes v = normalize(half, lanes_load_upto(half, x, offset, row_end), mean, scale, shift);
                if (has_addend) v += lanes_load_upto(half, addend, offset, row_end);
                if (has_addend && half) v = lanes_widen(lanes_narrow(v));
                lanes_store_upto(half, y, offset, row_end, relu ? apply_relu(v) : v);
            }
        }
    }
}

LANES_INLINE void apply(bool half, int64_t rows, int64_t c, const void *x, const cpu_norm_columns *columns,
                        const void *addend, bool relu, void *y) {
    if (addend && relu)
        apply_as(half, true, true, rows, c, x, columns, addend, y);
    else if (addend)
        apply_as(half, true, false, rows, c, x, columns, addend, y);
    else if (relu)
        apply_as(half, false, true, rows, c, x, columns, NULL, y);
    else
        apply_as(half, false, false, rows, c, x, columns, NULL, y);
}

/* Returns dy where y is above zero before the relu, else zero. y is recomputed, with the same bits, which is cheaper
 * than reading it. */
LANES_INLINE lanes gradient_through_relu(bool half, lanes dy, lanes x, lanes mean, lanes scale, lanes shift) {
    lanes y = normalize(half, x, mean, scale, shift);
    return lanes_select(lanes_greater(y, (lanes){0}), dy, (lanes){0});
}

LANES_INLINE lanes column_of(const float *array, int64_t k, int64_t c) {
    return array ? lanes_load_upto(false, array, k, c) : (lanes){0};
}

LANES_INLINE void gradient_sums_as(bool half, bool through_relu, int64_t rows, int64_t c, const void *x,
                                   const void *dy, const float *mean, const cpu_norm_columns *y,
                                   float *sum_dy, float *sum_dy_x) {
    for (int64_t first = 0; first < rows; first += BLOCK) {
        int64_t end = first + block_rows(first, rows);
        for (int64_t k = 0; k < c; k += LANES) {
            lanes middle = lanes_load_upto(false, mean, k, c), sum = {0}, sum_x = {0};
            lanes scale = column_of(y->scale, k, c), shift = column_of(y->shift, k, c);
            for (int64_t i = first; i < end; i++) {
                lanes g = lanes_load_upto(half, dy, i * c + k, i * c + c);
                lanes v = lanes_load_upto(half, x, i * c + k, i * c + c);
                if (through_relu) g = gradient_through_relu(half, g, v, middle, scale, shift);
                sum += g;
                sum_x = lanes_multiply_add(g, v - middle, sum_x);
            }
            if (first > 0) {
                sum += lanes_load_upto(false, sum_dy, k, c);
                sum_x += lanes_load_upto(false, sum_dy_x, k, c);
            }
            lanes_store_upto(false, sum_dy, k, c, sum);
            lanes_store_upto(false, sum_dy_x, k, c, sum_x);
        }
    }
}

static const cpu_norm_columns no_columns = {NULL, NULL, NULL};

LANES_INLINE void gradient_sums(bool half, int64_t rows, int64_t c, const void *x, const void *dy,
                                const float *mean, const cpu_norm_columns *relu_factors, float *sum_dy,
                                float *sum_dy_x) {
    if (relu_factors)
        gradient_sums_as(half, true, rows, c, x, dy, mean, relu_factors, sum_dy, sum_dy_x);
    else
        gradient_sums_as(half, false, rows, c, x, dy, mean, &no_columns, sum_dy, sum_dy_x);
}

LANES_INLINE void gradient_as(bool half, bool through_relu, int64_t rows, int64_t c, const void *x,
                              const void *dy, const float *mean, const cpu_norm_columns *y,
                              const float *scale, const float *by_dy, const float *by_x, void *dx) {
    for (int64_t first = 0; first < rows; first += BLOCK) {
        int64_t end = first + block_rows(first, rows);
        for (int64_t k = 0; k < c; k += LANES) {
            lanes middle = lanes_load_upto(false, mean, k, c), factor = lanes_load_upto(false, scale, k, c);
            lanes less_dy = lanes_load_upto(false, by_dy, k, c), less_x = lanes_load_upto(false, by_x, k, c);
            lanes y_scale = column_of(y->scale, k, c), y_shift = column_of(y->shift, k, c);
            for (int64_t i = first; i < end; i++) {
                int64_t at = i * c + k, row_end = i * c + c;
                lanes v = lanes_load_upto(half, x, at, row_end), g = lanes_load_upto(half, dy, at, row_end);
                if (through_relu) g = gradient_through_relu(half, g, v, middle, y_scale, y_shift);
                lanes less = less_x * (v - middle);
                lanes_store_upto(half, dx, at, row_end, lanes_multiply_add(factor, g - less_dy, -less));
            }
        }
    }
}

LANES_INLINE void gradient(bool half, int64_t rows, int64_t c, const void *x, const void *dy,
                           const float *mean, const cpu_norm_columns *relu_factors, const float *scale,
                           const float *by_dy, const float *by_x, void *dx) {
    if (relu_factors)
        gradient_as(half, true, rows, c, x, dy, mean, relu_factors, scale, by_dy, by_x, dx);
    else
        gradient_as(half, false, rows, c, x, dy, mean, &no_columns, scale, by_dy, by_x, dx);
}

/* ---- By rows: layer normalisation ---- */

LANES_INLINE float row_mean(bool half, int64_t n, const void *x, int64_t offset) {
    lanes sum = {0};
    for (int64_t i = 0; i < n; i += LANES) sum += lanes_load_upto(half, x, offset + i, offset + n);
    return lanes_reduce_sum(sum) / (float)n;
}

LANES_INLINE float row_variance(bool half, int64_t n, const void *x, int64_t offset, float mean) {
    lanes sum = {0};
    for (int64_t i = 0; i < n; i += LANES) {
        lanes d = lanes_upto(i, n, lanes_load_upto(half, x, offset + i, offset + n) - mean, (lanes){0});
        sum += d * d;
    }
    return lanes_reduce_sum(sum) / (float)n;
}

LANES_INLINE void layer(bool half, int64_t rows, int64_t n, double epsilon, const void *x, const float *gamma,
                        const float *beta, void *y, float *mean, float *rstd) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = row * n;
        mean[row] = row_mean(half, n, x, offset);
        rstd[row] = 1 / sqrtf(row_variance(half, n, x, offset, mean[row]) + (float)epsilon);
        for (int64_t i = 0; i < n; i += LANES) {
            lanes v = (lanes_load_upto(half, x, offset + i, offset + n) - mean[row]) * rstd[row];
            v = v * lanes_load_upto(false, gamma, i, n) + lanes_load_upto(false, beta, i, n);
            lanes_store_upto(half, y, offset + i, offset + n, v);
        }
    }
}

LANES_INLINE void layer_gradient(bool half, int64_t rows, int64_t n, const void *x, const float *gamma,
                                 const float *mean, const float *rstd, const void *dy, void *dx,
                                 float *dgamma, float *dbeta) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = row * n;
        lanes h_sum = {0}, hx_sum = {0};
        for (int64_t i = 0; i < n; i += LANES) { /* lanes past the end add zero, because dy is zero there */
            lanes g = lanes_load_upto(half, dy, offset + i, offset + n);
            lanes normal = (lanes_load_upto(half, x, offset + i, offset + n) - mean[row]) * rstd[row];
            lanes h = g * lanes_load_upto(false, gamma, i, n);
            h_sum += h;
            hx_sum += h * normal;
            lanes_store_upto(false, dgamma, i, n, lanes_load_upto(false, dgamma, i, n) + g * normal);
            lanes_store_upto(false, dbeta, i, n, lanes_load_upto(false, dbeta, i, n) + g);
        }
        float h_mean = lanes_reduce_sum(h_sum) / (float)n, hx_mean = lanes_reduce_sum(hx_sum) / (float)n;
        for (int64_t i = 0; i < n; i += LANES) {
            lanes h = lanes_load_upto(half, dy, offset + i, offset + n) * lanes_load_upto(false, gamma, i, n);
            lanes normal = (lanes_load_upto(half, x, offset + i, offset + n) - mean[row]) * rstd[row];
            lanes_store_upto(half, dx, offset + i, offset + n, (h - h_mean - normal * hx_mean) * rstd[row]);
        }
    }
}

/* ---- The table ---- */

LANES_BOTH_TYPES(moments, (int64_t rows, int64_t c, const void *x, float *pivot, float *mean, float *m2),
                 rows, c, x, pivot, mean, m2)
LANES_BOTH_TYPES(apply,
                 (int64_t rows, int64_t c, const void *x, const cpu_norm_columns *columns, const void *addend,
                  bool relu, void *y),
                 rows, c, x, columns, addend, relu, y)
LANES_BOTH_TYPES(gradient_sums,
                 (int64_t rows, int64_t c, const void *x, const void *dy, const float *mean,
                  const cpu_norm_columns *relu_factors, float *sum_dy, float *sum_dy_x),
                 rows, c, x, dy, mean, relu_factors, sum_dy, sum_dy_x)
LANES_BOTH_TYPES(gradient,
                 (int64_t rows, int64_t c, const void *x, const void *dy, const float *mean,
                  const cpu_norm_columns *relu_factors, const float *scale, const float *by_dy,
                  const float *by_x, void *dx),
                 rows, c, x, dy, mean, relu_factors, scale, by_dy, by_x, dx)
LANES_BOTH_TYPES(layer,
                 (int64_t rows, int64_t n, double epsilon, const void *x, const float *gamma,
                  const float *beta, void *y, float *mean, float *rstd),
                 rows, n, epsilon, x, gamma, beta, y, mean, rstd)
LANES_BOTH_TYPES(layer_gradient,
                 (int64_t rows, int64_t n, const void *x, const float *gamma, const float *mean,
                  const float *rstd, const void *dy, void *dx, float *dgamma, float *dbeta),
                 rows, n, x, gamma, mean, rstd, dy, dx, dgamma, dbeta)

const struct cpu_norm_loops LOOP(cpu_norm_loops) = {
    .moments = {moments_f32, moments_bf16},
    .apply = {apply_f32, apply_bf16},
    .gradient_sums = {gradient_sums_f32, gradient_sums_bf16},
    .gradient = {gradient_f32, gradient_bf16},
    .layer = {layer_f32, layer_bf16},
    .layer_gradient = {layer_gradient_f32, layer_gradient_bf16},
};
