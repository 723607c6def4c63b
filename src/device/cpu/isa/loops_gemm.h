/* The inner loops of matrix products and convolutions: a tile of registers, and packing for it.
 *
 * A tile is c [rows, columns] = sum over k of a[row, k] b[k, column], with all of c in registers. A row of b
 * consists of a few contiguous vectors; elements of a are broadcast one by one, so a is not packed and may have any
 * stride. k has two levels: `blocks` blocks of `depth` elements. So one kernel computes
 *
 *     a matmul              one block of k elements
 *     a convolution         a block is a row of the filter: in NHWC the kw * channels values under it are contiguous
 *     a filter gradient     a block is a row of pixels
 *
 * without an im2col matrix. Elements are float or double; strides and offsets are in elements.
 *
 * In bf16 an element of a and b is a pair in 32 bits, the first number in the lower half, and a step of k adds both
 * products to a sum in f32. A filter gradient pairs the numbers of two pixels; a product with packed weights those of
 * two adjacent k, which are adjacent in a row of a. */
#ifndef TU__DEVICE_CPU_ISA_LOOPS_GEMM_H
#define TU__DEVICE_CPU_ISA_LOOPS_GEMM_H

#include <stdbool.h>
#include <stdint.h>

enum { CPU_GEMM_MAX_VECTORS = 4, CPU_GEMM_NEXT_BYTES = 64 /* that a tile fetches per k */ };

typedef struct cpu_gemm_tile {
    const void *a;
    int64_t a_row, a_step;   /* strides between rows, and between k within a block */
    const int64_t *a_blocks; /* offsets of the blocks from a */
    const void *b; /* whole vectors are read: its rows must be readable up to a multiple of vector_elements */
    int64_t b_step, b_block; /* strides between k, and between blocks */
    int64_t blocks, depth;
    void *c;
    int64_t c_row;
    int64_t rows, columns;
    bool add;             /* adds to c */
    bool relu;            /* at the end: x < 0 ? 0 : x */
    const void *bias;     /* added at the end, one per column; or NULL */
    const void *residual; /* added after the bias: elements at the same places as those of c; or NULL */
    const void
        *next; /* memory to fetch into the L2 cache meanwhile, a line per k; or NULL. Wide tiles do so. */
} cpu_gemm_tile;

typedef struct cpu_gemm_loops {
    int element_bytes;   /* bytes of an element, and of a sum */
    int operand_bytes;   /* bytes of a number in memory: less than element_bytes if elements are pairs */
    int vector_elements; /* elements per vector */
    int max_vectors;     /* maximum vectors per row of a tile, and so the maximum width of a panel of b */
    int max_rows[CPU_GEMM_MAX_VECTORS + 1]; /* maximum rows of a tile, by vectors per row */
    void (*tile)(const cpu_gemm_tile *tile);
    /* Makes n pairs (low[i], high[i]); a NULL operand means zeros. The function is NULL if elements are not pairs. */
    void (*pair)(int64_t n, const void *low, const void *high, void *pairs);
    /* Packs panel [depth, width] = source[k * k_step + j * column_step] for j < columns, then zeros. One of the
     * steps must be 1. Not for pairs. */
    void (*pack)(int64_t depth, int64_t columns, const void *source, int64_t k_step, int64_t column_step,
                 void *panel, int64_t width);
    /* out[j * out_row + i] = sum over s of parts[s * stride + i * row + j]: adds `count` matrices, in that order, and
     * transposes, for rows i in [first, last). The elements of `out` have operand_bytes. */
    void (*sum_transposed)(int64_t count, const void *parts, int64_t stride, int64_t row, int64_t first,
                           int64_t last, int64_t columns, void *out, int64_t out_row);
} cpu_gemm_loops;

/* Applies an epilogue to rows of `columns` elements in place: x + bias[column] (or NULL), then x < 0 ? 0 : x if relu
 * is set, each rounded to the type, as if it were a separate operation. */
typedef void (*cpu_epilogue_rows)(int64_t rows, int64_t columns, void *x, const void *bias, bool relu);

struct cpu_loops_gemm {
    const cpu_gemm_loops *f32, *f64, *bf16;
    const cpu_gemm_loops *bf16_dot; /* for processors with AVX512_BF16 (cpu_loops_has_bf16_dot()), or NULL */
    cpu_epilogue_rows epilogue_f32, epilogue_bf16;
};

#endif
