/* The inner loops of products and convolutions: one tile of registers, and the packing that feeds it.
 *
 * A tile is c [rows, columns] = sum over k of a[row, k] b[k, column], with all of c in registers. A row of b is a few
 * vectors that lie beside each other; elements of a are broadcast one by one, so a is read where it lies, at any
 * stride. k runs in two levels: `blocks` blocks of `depth` elements. That is what lets one kernel serve
 *
 *     a product             one block of k elements
 *     a convolution         a block is a row of the filter: in NHWC the kw * channels values under it are neighbours
 *     its weight gradient   a block is a row of pixels
 *
 * without an im2col matrix. Elements are float or double; strides and offsets count elements.
 *
 * Of bf16 there is the weight gradient alone. An element of a and b is then a pair: the numbers of two pixels in 32
 * bits, the first in the lower half, and a step of k adds both products to a sum in f32. */
#ifndef TU__DEVICE_CPU_ISA_LOOPS_GEMM_H
#define TU__DEVICE_CPU_ISA_LOOPS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

enum { CPU_GEMM_MAX_VECTORS = 4 };

typedef struct cpu_gemm_tile {
    const void *a;
    int64_t a_row, a_step;   /* from a row to the next, from a k to the next within a block */
    const int64_t *a_blocks; /* where blocks begin, from a */
    const void *b;           /* whole vectors are read: its rows are readable up to a multiple of `vector` */
    int64_t b_step, b_block; /* from a k to the next, from a block to the next */
    int64_t blocks, depth;
    void *c;
    int64_t c_row;
    int64_t rows, columns;
    bool add;         /* onto what c holds */
    bool relu;        /* at the end: x < 0 ? 0 : x */
    const void *bias; /* at the end, one for each column; or NULL */
} cpu_gemm_tile;

typedef struct cpu_gemm_loops {
    int bytes;         /* of an element, and of a sum */
    int operand_bytes; /* of a number in memory: less than an element where those are pairs */
    int vector;        /* elements in a vector */
    int most_vectors;  /* of a tile's row: panels of b are at most this wide */
    int most_rows[CPU_GEMM_MAX_VECTORS + 1]; /* of a tile whose row has that many vectors */
    void (*tile)(const cpu_gemm_tile *tile);
    /* n pairs (low[i], high[i]); NULL stands for zeros. NULL itself where elements are single numbers. */
    void (*pair)(int64_t n, const void *low, const void *high, void *pairs);
    /* panel [depth, width] = source(k, j) = source[k * k_step + j * column_step] for j < columns, then zeros. One of
     * the steps is 1. Not for pairs. */
    void (*pack)(int64_t depth, int64_t columns, const void *source, int64_t k_step, int64_t column_step,
                 void *panel, int64_t width);
    /* out[j * out_row + i] = sum over s of parts[s * stride + i * row + j]: adds up `count` matrices, in that order,
     * and transposes, for rows i in [first, last). `out` has numbers as in memory. */
    void (*sum_transposed)(int64_t count, const void *parts, int64_t stride, int64_t row, int64_t first,
                           int64_t last, int64_t columns, void *out, int64_t out_row);
} cpu_gemm_loops;

/* Rows of `columns` elements in place: x + bias[column] where there is a bias, then x < 0 ? 0 : x where relu is set,
 * each rounded to the type, as if they were operations of their own. */
typedef void (*cpu_end_rows)(int64_t rows, int64_t columns, void *x, const void *bias, bool relu);

struct cpu_loops_gemm {
    const cpu_gemm_loops *f32, *f64, *bf16;
    const cpu_gemm_loops *bf16_dot; /* for processors with AVX512_BF16 (cpu_loops_has_bf16_dot()), or NULL */
    cpu_end_rows end_f32, end_bf16;
};

#endif
