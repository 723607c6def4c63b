/* Matrix products of bf16 blocks by AMX, which has eight tiles of 16 rows of 64 bytes, and an instruction that
 * multiplies two tiles and adds to a third, 16,384 operations in 16 cycles. Four tiles contain c, two the rows of a
 * and two the columns of b: four products for four loads. */
#include "device/cpu/isa/blocks.h"

#include "device/cpu/isa/amx.h"

#ifdef CPU_HAS_AMX_INSTRUCTIONS

#define WITH_AMX __attribute__((target("amx-tile,amx-bf16")))

/* Tiles of c: 0 1 / 2 3; of a: 4, 5; of b: 6, 7. */
WITH_AMX static void block(const cpu_block *t) {
    const size_t a_row = (size_t)t->a_row * sizeof *t->a, b_row = (size_t)t->b_pair * sizeof *t->b;
    const size_t c_row = (size_t)t->c_row * sizeof *t->c;
    const bool has_two_row_tiles = t->tiles > 1, has_two_column_tiles = t->columns > CPU_BLOCK_TILE;
    float *c_second_rows = t->c + t->tile_rows * t->c_row;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (t->add) {
        _tile_loadd(0, t->c, c_row);
        if (has_two_column_tiles) _tile_loadd(1, t->c + CPU_BLOCK_TILE, c_row);
        if (has_two_row_tiles) _tile_loadd(2, c_second_rows, c_row);
        if (has_two_row_tiles && has_two_column_tiles) _tile_loadd(3, c_second_rows + CPU_BLOCK_TILE, c_row);
    }
    for (int64_t g = 0; g < t->groups; g++) {
        const uint16_t *a = t->a + t->a_groups[g];
        const uint32_t *b = t->b + g * t->b_group;
        for (int64_t i = 0; i < t->chunks; i++, a += CPU_BLOCK_DEPTH, b += t->b_chunk) {
            _tile_loadd(4, a, a_row);
            _tile_loadd(6, b, b_row);
            _tile_dpbf16ps(0, 4, 6);
            if (has_two_row_tiles) {
                _tile_loadd(5, a + t->a_second_tile, a_row);
                _tile_dpbf16ps(2, 5, 6);
            }
            if (has_two_column_tiles) {
                _tile_loadd(7, b + CPU_BLOCK_TILE, b_row);
                _tile_dpbf16ps(1, 4, 7);
                if (has_two_row_tiles) _tile_dpbf16ps(3, 5, 7);
            }
        }
    }
    _tile_stored(0, t->c, c_row);
    if (has_two_column_tiles) _tile_stored(1, t->c + CPU_BLOCK_TILE, c_row);
    if (has_two_row_tiles) _tile_stored(2, c_second_rows, c_row);
    if (has_two_row_tiles && has_two_column_tiles) _tile_stored(3, c_second_rows + CPU_BLOCK_TILE, c_row);
}

const cpu_blocks *cpu_blocks_amx(void) {
    static const cpu_blocks amx = {
        .name = "amx", .configure = cpu_amx_configure, .block = block, .release = cpu_amx_release};
    return &amx;
}
#else
const cpu_blocks *cpu_blocks_amx(void) {
    return NULL;
}
#endif
