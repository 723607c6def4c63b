/* Products of bf16 numbers in blocks, for processors with an instruction for them: AMX.
 *
 * A block is c [rows, columns] = sum over k of a[row, k] b[k, column], with c in f32. It is two by two of AMX's tiles at
 * most, whose shape both operands follow: k comes in chunks of 32,
 *
 *     a    a row of a tile is 32 numbers that lie beside each other; rows at any distance, overlapping if need be
 *     b    a row of a tile is a pair of k: b[2i][column] in the lower half of 32 bits, b[2i + 1][column] in the upper
 *
 * so a convolution's a is the image itself, read through strides (conv_blocks.c), and b is packed. */
#ifndef TU__DEVICE_CPU_ISA_BLOCKS_H
#define TU__DEVICE_CPU_ISA_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CPU_BLOCK_TILE =
        16, /* columns of a tile, and its rows at most; a block's columns are a multiple of it … */
    CPU_BLOCK_MOST = 32,  /* … up to this */
    CPU_BLOCK_DEPTH = 32, /* k of a chunk */
    CPU_BLOCK_PAIRS = 16
};

typedef struct cpu_block {
    const uint16_t *a;
    int64_t a_row;           /* from a row to the next */
    int64_t a_below;         /* from the first tile's first row to the second's */
    const int64_t *a_groups; /* where each group of chunks begins, from a; its chunks follow each other */
    int64_t groups, chunks;  /* chunks of a group */
    const uint32_t *b;       /* [groups, chunks, pairs, columns], at these distances: */
    int64_t b_group, b_chunk, b_pair;
    float *c; /* the second tile's rows follow the first's */
    int64_t c_row;
    int tiles, tile_rows; /* one above the other: 1 or 2; rows of each, as `begin` was told */
    int columns;          /* 16 or 32 */
    bool add;             /* onto what c holds */
} cpu_block;

typedef struct cpu_blocks {
    const char *name;
    void (*begin)(int tile_rows); /* on each thread before its first block; or NULL */
    void (*block)(const cpu_block *block);
    void (*end)(void); /* on each thread after its last; or NULL */
} cpu_blocks;

/* NULL where AMX cannot be used (instruction_sets.h) or the build does not have it. */
const cpu_blocks *cpu_blocks_for_this_machine(void);

/* By AMX, whether this machine has it or not; NULL where the build does not. */
const cpu_blocks *cpu_blocks_amx(void);

#endif
