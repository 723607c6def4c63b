/* The inner loops of integer convolutions and products, and of the conversions between u8, i32 and f32.
 *
 * A tile is sums [rows, columns] = sum over k of a[row, k] b[k, column], with all sums in registers. Operands are words
 * of 32 bits that contain several numbers of one row or column, so that a step of k is one dot product per sum:
 *
 *     four bytes     u8 x i8, with VNNI, which adds four products to a sum without saturation
 *     two i16        elsewhere. A multiplication of bytes with AVX2 (vpmaddubsw) would add two products in 16 bits,
 *                    which saturate: 255 * 127 * 2 > 2^15. So bytes are widened first
 *     64 bytes       with AMX, whose tiles have 16 rows of 16 words (int8_tiles.h)
 *
 * k has two levels: `blocks` blocks of `depth` words. A row of a is any address, so neither a convolution nor a
 * product needs a packed a. Integer sums are exact, so every instruction set computes the same bits. */
#ifndef TU__DEVICE_CPU_ISA_LOOPS_INT8_H
#define TU__DEVICE_CPU_ISA_LOOPS_INT8_H

#include <stdbool.h>
#include <stdint.h>

enum { CPU_INT8_MAX_VECTORS = 4, CPU_INT8_MAX_SUMS = 32 * 4 * 16 };

typedef struct cpu_int8_dot cpu_int8_dot;

typedef struct cpu_int8_tile {
    const char *a;
    const int32_t *a_rows;   /* byte offset of each row from a */
    const int64_t *a_blocks; /* byte offset of each block within a row */
    int64_t blocks, depth;   /* words per block */
    const uint32_t *b;       /* a panel [blocks * depth, vectors * vector_words] */
    int64_t rows, vectors;
    int32_t *sums; /* [rows, vectors * vector_words]; room for CPU_INT8_MAX_SUMS */
} cpu_int8_tile;

struct cpu_int8_dot {
    const char *name;                       /* of the instruction set */
    int element_bytes;                      /* of a number in a word: 1 or 2 */
    int vector_words;                       /* words, and sums, per vector */
    int max_vectors;                        /* maximum width of a panel of b */
    int max_rows[CPU_INT8_MAX_VECTORS + 1]; /* maximum rows of a tile, by vectors per row */
    bool prefers_full;                      /* fewer rows than the maximum take as long */
    void (*tile)(const cpu_int8_tile *tile);
    /* NULL, or what a thread must call before tiles and after them. */
    void (*begin)(void), (*end)(void);
};

/* How sums become u8, see tu_requantize. One factor and bias per column. */
typedef struct cpu_requantization {
    const float *factors;
    const int32_t *bias;
    int32_t zero, low, high;
    float residual_factor;
    int32_t residual_zero;
} cpu_requantization;

/* A matrix of sums and its result. */
typedef struct cpu_int8_rows {
    int64_t rows, columns;
    const int32_t *sums;
    int64_t sums_row; /* strides between rows, in elements; the residual has the stride of the result */
    const uint8_t *residual;
    void *out; /* u8, or i32 */
    int64_t out_row;
} cpu_int8_rows;

struct cpu_loops_int8 {
    const cpu_int8_dot *bytes;   /* with the VNNI of this set, or NULL */
    const cpu_int8_dot *widened; /* with pairs of i16 */
    void (*widen)(int64_t n, const uint8_t *from, int16_t *to);
    void (*add_bias)(const int32_t *bias, const cpu_int8_rows *rows);
    void (*requantize)(const cpu_requantization *r, const cpu_int8_rows *rows);
    void (*requantize_add)(const cpu_requantization *r, const cpu_int8_rows *rows);
    void (*quantize)(int64_t n, const float *x, float factor, int32_t zero, uint8_t *q);
    void (*dequantize)(int64_t n, const uint8_t *q, float factor, int32_t zero, float *x);
    /* Adds two u8 values; `factor` and `input_zero` have an element per operand. */
    void (*add)(int64_t n, const uint8_t *x, const uint8_t *y, const float factor[2],
                const int32_t input_zero[2], const cpu_requantization *to, uint8_t *q);
    void (*maximum)(int64_t n, const uint8_t *x, uint8_t *max); /* max = maximum(max, x) */
    void (*accumulate)(int64_t n, const uint8_t *x, int32_t *sums);
};

/* Returns the best tiles for the instruction set in use, and for blocks of so many bytes per row. */
const cpu_int8_dot *cpu_int8_dot_for_this_machine(int64_t block_bytes);

/* int8_amx.c: NULL if the compiler lacks AMX. */
const cpu_int8_dot *cpu_int8_dot_amx(void);

#endif
