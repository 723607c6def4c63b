/* Products of int8_tiles.h on emulated registers: TDPBUSD as in Intel's manual, volume 2. */
#ifndef TESTS_UNIT_EMULATED_TILES_H
#define TESTS_UNIT_EMULATED_TILES_H

#include "tile_registers.h"

static void dot_tiles(int sums, int a, int b) {
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 16; column++)
            for (int k = 0; k < 64; k++) {
                uint32_t product = (uint32_t)(tile_register(a)->unsigned_bytes[row][k] *
                                              tile_register(b)->signed_bytes[k / 4][4 * column + k % 4]);
                int32_t *sum = &tile_register(sums)->words[row][column];
                *sum = (int32_t)((uint32_t)*sum + product);
            }
}

#define TILE_DOT(sums, a, b) dot_tiles(sums, a, b)
#include "device/cpu/isa/int8_tiles.h"

static void begin_tiles(void) {
    configure_tiles(16);
}

static const cpu_int8_dot emulated_dot = {TILE_LOOPS("emulated tiles"), .begin = begin_tiles,
                                          .end = release_tiles};

#endif
