/* The block of tiles.h. Before including it, define TARGET (an attribute, or nothing), and on tiles with literal numbers
 *
 *     TILE_ZERO(tile), TILE_LOAD(tile, from, row_bytes), TILE_STORE(tile, to, row_bytes)
 *     TILE_DOT(sums, a, b)     adds products of bf16 numbers [16, 32] and pairs [16 pairs, 16 columns] to f32 [16, 16]
 *
 * Tiles 0 1 / 2 3 have sums, 4 and 5 rows of a, 6 and 7 columns of b: four products for four loads. A test defines the
 * macros as plain functions. */
#include <stdbool.h>

#include "device/cpu/isa/tiles.h"

/* `two_rows` and `two_columns` are constants after inlining. */
TARGET static inline __attribute__((always_inline)) void
multiply_tiles(const cpu_tile_block *t, const bool two_rows, const bool two_columns) {
    const int64_t row_bytes = CPU_TILE_SUMS_ROW * (int64_t)sizeof(float);
    const char *b = t->b;
    float *second_rows = t->c + (int64_t)CPU_TILE_ROWS * CPU_TILE_SUMS_ROW;
    TILE_ZERO(0);
    if (two_columns) TILE_ZERO(1);
    if (two_rows) TILE_ZERO(2);
    if (two_rows && two_columns) TILE_ZERO(3);
    for (int64_t i = 0; i < t->chunks; i++) {
        const char *a = t->a + t->offsets[i];
        TILE_LOAD(6, b, CPU_TILE_ROW_BYTES);
        TILE_LOAD(4, a, t->a_row);
        TILE_DOT(0, 4, 6);
        if (two_rows) {
            TILE_LOAD(5, a + t->a_second, t->a_row);
            TILE_DOT(2, 5, 6);
        }
        if (two_columns) {
            TILE_LOAD(7, b + CPU_TILE_BYTES, CPU_TILE_ROW_BYTES);
            TILE_DOT(1, 4, 7);
        }
        if (two_rows && two_columns) TILE_DOT(3, 5, 7);
        b += two_columns ? 2 * CPU_TILE_BYTES : CPU_TILE_BYTES;
    }
    TILE_STORE(0, t->c, row_bytes);
    if (two_columns) TILE_STORE(1, t->c + CPU_TILE_COLUMNS, row_bytes);
    if (two_rows) TILE_STORE(2, second_rows, row_bytes);
    if (two_rows && two_columns) TILE_STORE(3, second_rows + CPU_TILE_COLUMNS, row_bytes);
}

TARGET static void multiply_block(const cpu_tile_block *t) {
    if (t->row_tiles > 1 && t->column_tiles > 1)
        multiply_tiles(t, true, true);
    else if (t->row_tiles > 1)
        multiply_tiles(t, true, false);
    else if (t->column_tiles > 1)
        multiply_tiles(t, false, true);
    else
        multiply_tiles(t, false, false);
}
