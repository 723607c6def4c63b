/* Inner loops of local response normalisation: windows across the channels of one row.
 *
 * With s = bias + alpha W(x^2), y = x s^-beta and dx = g s^-beta - 2 alpha beta x W(g x s^(-beta-1)); W sums 2
 * radius + 1 adjacent channels. W dominates the cost: its terms are stored into a row with `radius` zeros at both
 * ends, from which shifted vectors are loaded and added, 9 loads per vector of results for radius 4. A load that
 * overlaps two stores must wait until both have reached the cache, so CPU_LRN_ROWS rows go through each stage
 * together: a stage then loads what was stored long before.
 *
 * Powers: with r = 1/sqrt(s), which the processor estimates, s^-3/4 = r^2 / sqrt(r), s^-1/2 = r, s^-1 = r^2, and one
 * more power of s in the denominator is another r^2. Other exponents need a logarithm and an exponential. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

/* beta is one of these, or any number. It is a constant of each loop, so that nothing is tested per element. */
typedef enum power { POWER_3_4, POWER_1_2, POWER_1, POWER_ANY } power;

/* Computes s^-beta and s^(-beta-1). */
LANES_INLINE void powers(power kind, float beta, lanes s, lanes *p, lanes *p_over_s) {
    if (kind == POWER_ANY) {
        *p = lanes_pow(s, -beta);
        *p_over_s = *p / s;
        return;
    }
    lanes r = lanes_rsqrt(s), square = r * r;
    *p = kind == POWER_1_2 ? r : kind == POWER_1 ? square : square * lanes_rsqrt(r);
    *p_over_s = *p * square;
}

/* Sums the window that starts at `from` in a padded row. */
LANES_INLINE lanes window_sum(int64_t radius, const float *from) {
    lanes sum = lanes_load(false, from, 0);
    for (int64_t d = 1; d <= 2 * radius; d++) sum += lanes_load(false, from, d);
    return sum;
}

LANES_INLINE lanes scale_of(const cpu_lrn *p, int64_t radius, const float *squares) {
    return window_sum(radius, squares) * p->alpha + p->bias;
}

/* Stores the squares of `rows` rows into the padded rows of scratch. Lanes past the last channel are zeros, as the
 * padding must be. */
LANES_INLINE void store_squares(bool is_bf16, const cpu_lrn *p, int64_t rows, const void *x, float *scratch) {
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = row * p->channels, end = offset + p->channels;
        float *to = scratch + row * p->stride + p->radius;
        for (int64_t c = 0; c < p->channels; c += LANES) {
            lanes v = lanes_load_upto(is_bf16, x, offset + c, end);
            lanes_store(false, to, c, v * v);
        }
    }
}

LANES_INLINE void forward_block(bool is_bf16, power kind, int64_t radius, const cpu_lrn *p, int64_t rows,
                                const void *x, float *scratch, void *y) {
    store_squares(is_bf16, p, rows, x, scratch);
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = row * p->channels, end = offset + p->channels;
        for (int64_t c = 0; c < p->channels; c += LANES) {
            lanes v = lanes_load_upto(is_bf16, x, offset + c, end), factor, unused;
            powers(kind, p->beta, scale_of(p, radius, scratch + row * p->stride + c), &factor, &unused);
            lanes_store_upto(is_bf16, y, offset + c, end, v * factor);
        }
    }
}

LANES_INLINE void backward_block(bool is_bf16, power kind, int64_t radius, const cpu_lrn *p, int64_t rows,
                                 const void *x, const void *dy, float *scratch, void *dx) {
    float *terms = scratch + CPU_LRN_ROWS * p->stride, *factors = terms + CPU_LRN_ROWS * p->stride;
    store_squares(is_bf16, p, rows, x, scratch);
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = row * p->channels, end = offset + p->channels, start = row * p->stride;
        for (int64_t c = 0; c < p->channels; c += LANES) {
            lanes v = lanes_load_upto(is_bf16, x, offset + c, end),
                  g = lanes_load_upto(is_bf16, dy, offset + c, end);
            lanes factor, p_over_s;
            powers(kind, p->beta, scale_of(p, radius, scratch + start + c), &factor, &p_over_s);
            lanes_store(false, factors, start + c, factor);
            lanes_store(false, terms, start + p->radius + c, g * v * p_over_s);
        }
    }
    float window_factor = 2 * p->alpha * p->beta;
    for (int64_t row = 0; row < rows; row++) {
        int64_t offset = row * p->channels, end = offset + p->channels, start = row * p->stride;
        for (int64_t c = 0; c < p->channels; c += LANES) {
            lanes v = lanes_load_upto(is_bf16, x, offset + c, end),
                  g = lanes_load_upto(is_bf16, dy, offset + c, end);
            lanes sum = window_sum(radius, terms + start + c);
            lanes_store_upto(is_bf16, dx, offset + c, end,
                             g * lanes_load(false, factors, start + c) - v * window_factor * sum);
        }
    }
}

/* The exponents and the radius that networks use are compile-time constants. */
#define DISPATCH(block, p, ...)                                                                              \
    do {                                                                                                     \
        if ((p)->beta == 0.75f && (p)->radius == 4)                                                          \
            block(is_bf16, POWER_3_4, 4, p, __VA_ARGS__);                                                    \
        else if ((p)->beta == 0.75f)                                                                         \
            block(is_bf16, POWER_3_4, (p)->radius, p, __VA_ARGS__);                                          \
        else if ((p)->beta == 0.5f)                                                                          \
            block(is_bf16, POWER_1_2, (p)->radius, p, __VA_ARGS__);                                          \
        else if ((p)->beta == 1)                                                                             \
            block(is_bf16, POWER_1, (p)->radius, p, __VA_ARGS__);                                            \
        else                                                                                                 \
            block(is_bf16, POWER_ANY, (p)->radius, p, __VA_ARGS__);                                          \
    } while (0)

LANES_INLINE int64_t rows_left(int64_t row, int64_t rows) {
    return rows - row < CPU_LRN_ROWS ? rows - row : CPU_LRN_ROWS;
}

LANES_INLINE const void *input_element(bool is_bf16, const void *base, int64_t i) {
    return is_bf16 ? (const void *)((const uint16_t *)base + i) : (const void *)((const float *)base + i);
}

LANES_INLINE void *output_element(bool is_bf16, void *base, int64_t i) {
    return is_bf16 ? (void *)((uint16_t *)base + i) : (void *)((float *)base + i);
}

LANES_INLINE void forward(bool is_bf16, const cpu_lrn *p, int64_t rows, const void *x, float *scratch,
                          void *y) {
    for (int64_t row = 0; row < rows; row += CPU_LRN_ROWS) {
        int64_t offset = row * p->channels;
        DISPATCH(forward_block, p, rows_left(row, rows), input_element(is_bf16, x, offset), scratch,
                 output_element(is_bf16, y, offset));
    }
}

LANES_INLINE void backward(bool is_bf16, const cpu_lrn *p, int64_t rows, const void *x, const void *dy,
                           float *scratch, void *dx) {
    for (int64_t row = 0; row < rows; row += CPU_LRN_ROWS) {
        int64_t offset = row * p->channels;
        DISPATCH(backward_block, p, rows_left(row, rows), input_element(is_bf16, x, offset),
                 input_element(is_bf16, dy, offset), scratch, output_element(is_bf16, dx, offset));
    }
}

static void forward_f32(const cpu_lrn *p, int64_t rows, const void *x, float *scratch, void *y) {
    forward(false, p, rows, x, scratch, y);
}
static void forward_bf16(const cpu_lrn *p, int64_t rows, const void *x, float *scratch, void *y) {
    forward(true, p, rows, x, scratch, y);
}
static void backward_f32(const cpu_lrn *p, int64_t rows, const void *x, const void *dy, float *scratch,
                         void *dx) {
    backward(false, p, rows, x, dy, scratch, dx);
}
static void backward_bf16(const cpu_lrn *p, int64_t rows, const void *x, const void *dy, float *scratch,
                          void *dx) {
    backward(true, p, rows, x, dy, scratch, dx);
}

const struct cpu_lrn_loops LOOP(cpu_lrn_loops) = {
    .lanes = LANES,
    .forward = {forward_f32, forward_bf16},
    .backward = {backward_f32, backward_bf16},
};
