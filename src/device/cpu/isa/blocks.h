/* Matrix products in bf16, in blocks of AMX tiles.
 *
 * A block is c [rows, columns] = sum over k of a[row, k] b[k, column], with c in f32. It has at most two by two AMX
 * tiles, which determine the layout of both operands. k is divided into chunks of 32:
 *
 *     a    a row of a tile is 32 contiguous numbers; rows have any stride, and may overlap
 *     b    a row of a tile is a pair of k: b[2i][column] in the lower half of 32 bits, b[2i + 1][column] in the upper
 *
 * So a of a convolution is the image itself, read through strides (conv_blocks.c), and b is packed. */
#ifndef TU__DEVICE_CPU_ISA_BLOCKS_H
#define TU__DEVICE_CPU_ISA_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CPU_BLOCK_TILE = 16,        /* columns of a tile, and its maximum rows */
    CPU_BLOCK_MAX_COLUMNS = 32, /* maximum columns of a block, which are a multiple of CPU_BLOCK_TILE */
    CPU_BLOCK_DEPTH = 32,       /* k of a chunk */
    CPU_BLOCK_PAIRS = 16
};

typedef struct cpu_block {
    const uint16_t *a;
    int64_t a_row;           /* stride between rows */
    int64_t a_second_tile;   /* offset of the second tile's first row from the first's */
    const int64_t *a_groups; /* offset of each group of chunks; the chunks of a group are contiguous */
    int64_t groups, chunks;  /* number of groups; chunks per group */
    const uint32_t *b;       /* [groups, chunks, pairs, columns], with these strides: */
    int64_t b_group, b_chunk, b_pair;
    float *c; /* the second tile's rows follow the first's */
    int64_t c_row;
    int tiles, tile_rows; /* number of tiles in rows, 1 or 2; rows per tile, as given to `configure` */
    int columns;          /* 16 or 32 */
    bool add;             /* adds to c */
} cpu_block;

typedef struct cpu_blocks {
    const char *name;
    void (*configure)(int tile_rows); /* call it on each thread before its first block; or NULL */
    void (*block)(const cpu_block *block);
    void (*release)(void); /* call it on each thread after its last block; or NULL */
} cpu_blocks;

/* Returns NULL if AMX cannot be used (instruction_sets.h) or is not supported by the build. */
const cpu_blocks *cpu_blocks_for_this_machine(void);

/* Returns the AMX kernels even if this machine has no AMX; NULL if they are not supported by the build. */
const cpu_blocks *cpu_blocks_amx(void);

#endif
