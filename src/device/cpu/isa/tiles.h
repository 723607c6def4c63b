/* Products of bf16 matrices in blocks of AMX tiles, for weights that were packed into tiles (tile_product.c).
 *
 * A block is c = a b, with c in f32: up to 2 tiles of 16 rows by up to 2 tiles of 16 columns. k is divided into chunks of
 * 64 bytes, one row of a tile:
 *
 *     a    a row of a tile is 32 contiguous numbers. Rows are equally spaced; `offsets` locates each chunk
 *     b    packed: chunk after chunk, in each one or two whole tiles. A row of a tile has pairs of k of 16 columns
 *
 * An element of c is a sum over the chunks in their order, whatever the rows and columns of its block: so its bits do not
 * depend on how a matrix is divided into blocks. */
#ifndef TU__DEVICE_CPU_ISA_TILES_H
#define TU__DEVICE_CPU_ISA_TILES_H

#include <stdint.h>

enum {
    CPU_TILE_ROWS = 16,
    CPU_TILE_COLUMNS = 16,
    CPU_TILE_ROW_BYTES = 64,
    CPU_TILE_BYTES = 1024,
    CPU_TILE_DEPTH = 32, /* numbers of a chunk */
    CPU_TILES = 2,       /* per block, of rows and of columns */
    CPU_TILE_SUMS_ROW = CPU_TILES * CPU_TILE_COLUMNS
};

typedef struct cpu_tile_block {
    const char *a;
    int64_t a_row,
        a_second; /* bytes between rows, and from the first row of the first tile to that of the second */
    const int64_t *offsets; /* bytes from a row's address to each of its chunks */
    int64_t chunks;
    const char *b;
    int row_tiles, column_tiles; /* 1 or 2 */
    float *c;                    /* [row_tiles * 16, CPU_TILE_SUMS_ROW] */
} cpu_tile_block;

typedef struct cpu_tiles {
    const char *name;
    void (*configure)(int rows); /* call it on each thread before blocks whose tiles have so many rows */
    void (*block)(const cpu_tile_block *block);
    void (*release)(void); /* call it on each thread after its last block */
} cpu_tiles;

/* Returns NULL if AMX cannot be used (instruction_sets.h) or is not supported by the build. */
const cpu_tiles *cpu_tiles_for_this_machine(void);

/* tiles_amx.c: NULL if the build does not support AMX. */
const cpu_tiles *cpu_tiles_amx(void);

/* For tests: cpu_tiles_for_this_machine returns these tiles from now on, or again the machine's if NULL. */
void cpu_tiles_emulate(const cpu_tiles *tiles);

#endif
