/* Tables of inner loops for pooling, normalisation, softmax, reductions and random numbers; see loops.h.
 *
 * Each family has a table, filled by isa/loops_kernels_<family>.c per instruction set. Loops for two element types
 * are arrays of two: [0] reads and writes f32, [1] bf16; `void *` then points to either, and arithmetic is in f32.
 * Every loop processes the rows it is given and starts no threads; the files of the parent folder divide the work. */
#ifndef TU__DEVICE_CPU_ISA_KERNELS_H
#define TU__DEVICE_CPU_ISA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/draw.h"
#include "device/cpu/isa/loops.h"

/* ---- Pooling ---- */

typedef struct cpu_pooling {
    int64_t images, channels;
    int64_t x_size[2], y_size[2];         /* height, width of the image and of the result */
    int64_t window[2], stride[2], pad[2]; /* pad: top, left */
    bool count_padding;
} cpu_pooling;

struct cpu_pool_loops {
    /* Computes row `row` of the windows of one image: x [h,w,c] -> y [w',c]. */
    void (*max[2])(const cpu_pooling *p, int64_t row, const void *x, void *y);
    void (*mean[2])(const cpu_pooling *p, int64_t row, const void *x, void *y);
    /* Computes one image. argmax [h',w',c]: workspace for the position of each maximum in its window. */
    void (*max_gradient[2])(const cpu_pooling *p, const void *x, const void *dy, uint16_t *argmax, void *dx);
    /* Computes row `row` of one image's dx [w,c]. */
    void (*mean_gradient[2])(const cpu_pooling *p, int64_t row, const void *dy, void *dx);
};

/* ---- Rounding of sums ---- */

struct cpu_round_loops {
    /* Rounds sums [rows, columns], with `sums_row` numbers from row to row, to bf16; then adds bias [columns] and
     * residual, which has the rows of `out` (each or NULL), and applies relu. */
    void (*sums_to_bf16)(int64_t rows, int64_t columns, const float *sums, int64_t sums_row, const void *bias,
                         const void *residual, bool relu, void *out, int64_t out_row);
};

/* round_bf16.c: the same by AVX512_BF16, whose instruction takes subnormal sums for zeros; NULL if the build does not
 * support it. */
const struct cpu_round_loops *cpu_round_loops_avx512_bf16(void);

/* ---- Winograd's convolution ---- */

enum {
    CPU_WINOGRAD_IN = 6,
    CPU_WINOGRAD_OUT = 4
}; /* pixels of a tile along an axis: of the input, of the result */

typedef struct cpu_winograd_output {
    int64_t channels;
    float *pixels[CPU_WINOGRAD_OUT * CPU_WINOGRAD_OUT]; /* NULL: not in the image */
    const float *const *residual;                       /* like `pixels`; NULL: none */
    const float *bias;                                  /* [channels]; NULL: none */
    bool relu;
} cpu_winograd_output;

/* The number of channels is a multiple of CPU_WINOGRAD_CHANNELS. */
enum { CPU_WINOGRAD_CHANNELS = 16 };

struct cpu_winograd_loops {
    /* Transforms the pixels of a tile, [36] addresses of `channels` numbers: v[e * stride + c]. */
    void (*input)(int64_t channels, const float *const *pixels, float *v, int64_t stride);
    /* Transforms the products of a tile, m[e * stride + c], and applies the epilogue. */
    void (*output)(const cpu_winograd_output *o, const float *m, int64_t stride);
};

/* ---- Local response normalisation ---- */

enum { CPU_LRN_ROWS = 8 }; /* rows processed together: their scratch stays in the L1 cache */

typedef struct cpu_lrn {
    int64_t channels, radius; /* radius < channels */
    int64_t stride; /* floats per row of scratch: the channels, `radius` zeros on both sides, and padding */
    float bias, alpha, beta;
} cpu_lrn;

struct cpu_lrn_loops {
    int64_t lanes;
    /* scratch: 3 * CPU_LRN_ROWS * stride floats, zeroed before the first call. */
    void (*forward[2])(const cpu_lrn *p, int64_t rows, const void *x, float *scratch, void *y);
    void (*backward[2])(const cpu_lrn *p, int64_t rows, const void *x, const void *dy, float *scratch,
                        void *dx);
};

/* ---- Batch and layer normalisation ---- */

/* The mean of each column of x [rows, c], and the factors of y, scale and shift: y = (x - mean) scale + shift.
 * Arrays [c]. */
typedef struct cpu_norm_columns {
    const float *mean, *scale, *shift;
} cpu_norm_columns;

struct cpu_norm_loops {
    /* x [rows, c]: pivot [c] is the first row; the mean is pivot + mean [c], and m2 [c] the sum of squared
     * differences from it. */
    void (*moments[2])(int64_t rows, int64_t c, const void *x, float *pivot, float *mean, float *m2);
    /* y = (x - mean) scale + shift, per column; then adds `addend` (or NULL), of y's size, and applies relu if set.
     * Each result is rounded to the type, as if it were a separate operation. */
    void (*apply[2])(int64_t rows, int64_t c, const void *x, const cpu_norm_columns *columns,
                     const void *addend, bool relu, void *y);
    /* sum_dy [c] = the sum of dy, sum_dy_x [c] = that of dy (x - mean). If `relu_factors` (the factors of y before a
     * relu) is not NULL, dy is replaced by zero where y is not above zero. */
    void (*gradient_sums[2])(int64_t rows, int64_t c, const void *x, const void *dy, const float *mean,
                             const cpu_norm_columns *relu_factors, float *sum_dy, float *sum_dy_x);
    /* dx = scale (dy - by_dy) - by_x (x - mean), per column; dy as above. */
    void (*gradient[2])(int64_t rows, int64_t c, const void *x, const void *dy, const float *mean,
                        const cpu_norm_columns *relu_factors, const float *scale, const float *by_dy,
                        const float *by_x, void *dx);
    /* Layer normalisation of rows: mean [rows] and rstd [rows], the inverse standard deviation, are results. */
    void (*layer[2])(int64_t rows, int64_t n, double epsilon, const void *x, const float *gamma,
                     const float *beta, void *y, float *mean, float *rstd);
    /* Adds to dgamma [n] and dbeta [n]. */
    void (*layer_gradient[2])(int64_t rows, int64_t n, const void *x, const float *gamma, const float *mean,
                              const float *rstd, const void *dy, void *dx, float *dgamma, float *dbeta);
};

/* ---- Softmax and cross-entropy, along rows of k ---- */

struct cpu_softmax_loops {
    void (*softmax[2])(int64_t rows, int64_t k, const void *x, void *y);
    void (*log_softmax[2])(int64_t rows, int64_t k, const void *x, void *y);
    /* labels: class indices; or NULL, and targets [rows, k] are probabilities. loss [rows]. */
    void (*cross_entropy[2])(int64_t rows, int64_t k, float smoothing, const void *x, const int64_t *labels,
                             const void *targets, float *loss);
    void (*cross_entropy_grad[2])(int64_t rows, int64_t k, const void *x, const int64_t *labels, void *y);
};

/* ---- Attention: blocks of f32 numbers whose rows are multiples of CPU_ATTENTION_COLUMNS ---- */

enum { CPU_ATTENTION_COLUMNS = 32 }; /* a multiple of the columns that a product computes at a time */

/* c [rows, columns] = a [rows, depth] b [depth, columns], or += if `adds`. Element (r, k) of a is a[r * a_row + k *
 * a_depth]; rows of b and c are b_row and c_row elements apart. `columns` is a multiple of CPU_ATTENTION_COLUMNS. */
typedef struct cpu_block_product {
    int64_t rows, columns, depth;
    const float *a, *b;
    int64_t a_row, a_depth, b_row, c_row;
    float *c;
    bool adds;
} cpu_block_product;

/* A row of scores so far: their maximum, the sum of exp(score - maximum), and the factor by which sums of the blocks
 * before the latest must be multiplied. */
typedef struct cpu_running_softmax {
    float maximum, sum, factor;
} cpu_running_softmax;

struct cpu_attention_loops {
    void (*multiply)(const cpu_block_product *p);
    /* Replaces scores [keys] by exp(scale * score - maximum), 0 from index `visible` on, and updates `row`. */
    void (*soften)(int64_t keys, int64_t visible, float scale, float *scores, cpu_running_softmax *row);
    /* y [n] = x [n] * factor */
    void (*scale_row)(int64_t n, float factor, const float *x, float *y);
    /* Replaces scores [keys] by p = exp(scale * score - logarithm), 0 from index `visible` on, and products [keys] by
     * scale * p * (product - centre). */
    void (*weigh)(int64_t keys, int64_t visible, float scale, float logarithm, float centre, float *scores,
                  float *products);
    float (*dot)(int64_t n, const float *x, const float *y);
};

/* ---- Reductions ---- */

typedef enum cpu_reduction { CPU_SUM, CPU_MAX, CPU_MIN, CPU_REDUCTION_COUNT } cpu_reduction;

struct cpu_reduce_loops {
    /* x [rows, c] with rows `stride` elements apart -> out [c]. */
    void (*columns[CPU_REDUCTION_COUNT][2])(int64_t rows, int64_t c, int64_t stride, const void *x,
                                            float *out);
    /* x [n] -> one number. */
    float (*row[CPU_REDUCTION_COUNT][2])(int64_t n, const void *x);
    /* Sums the squares of n elements, with the same bits as row[CPU_SUM] over squares stored in memory. */
    float (*row_of_squares)(int64_t n, const float *x);
    /* Returns the index of the first maximum (minimum) of x [n]; NaN is above and below all numbers. */
    int64_t (*index_of_max[2])(int64_t n, const void *x);
    int64_t (*index_of_min[2])(int64_t n, const void *x);
    /* finish: out [n] = x [n] / divisor in the element type. merge: combines so_far [n] with x [n]. */
    void (*finish[2])(int64_t n, const float *x, float divisor, void *out);
    void (*merge[CPU_REDUCTION_COUNT])(int64_t n, const float *x, float *so_far);
};

/* ---- Random numbers ---- */

struct cpu_random_loops {
    /* Computes Philox blocks first … first + count - 1 of one sample: words [count, 4]. */
    void (*words)(tu__draw_key key, uint64_t ordinal, uint32_t first, int64_t count, uint32_t *words);
};

struct cpu_loops_kernels {
    const struct cpu_pool_loops *pool;
    const struct cpu_lrn_loops *lrn;
    const struct cpu_norm_loops *norm;
    const struct cpu_softmax_loops *softmax;
    const struct cpu_attention_loops *attention;
    const struct cpu_reduce_loops *reduce;
    const struct cpu_random_loops *random;
    const struct cpu_winograd_loops *winograd;
    const struct cpu_round_loops *round;
};

#ifdef TU_ISA
extern const struct cpu_pool_loops LOOP(cpu_pool_loops);
extern const struct cpu_lrn_loops LOOP(cpu_lrn_loops);
extern const struct cpu_norm_loops LOOP(cpu_norm_loops);
extern const struct cpu_softmax_loops LOOP(cpu_softmax_loops);
extern const struct cpu_attention_loops LOOP(cpu_attention_loops);
extern const struct cpu_reduce_loops LOOP(cpu_reduce_loops);
extern const struct cpu_random_loops LOOP(cpu_random_loops);
extern const struct cpu_winograd_loops LOOP(cpu_winograd_loops);
extern const struct cpu_round_loops LOOP(cpu_round_loops);
extern struct cpu_loops_kernels LOOP(cpu_loops_kernels);
#endif

#endif
