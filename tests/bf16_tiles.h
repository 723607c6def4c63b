/* Products of bf16 tiles (isa/tiles.h) on emulated registers: TDPBF16PS as in Intel's manual, volume 2. The products of the
 * lower numbers of the pairs and of the upper ones are summed separately, by fused multiply-adds, and both sums are added to
 * the result. Subnormal numbers are zeros, in operands and results. */
#ifndef TESTS_BF16_TILES_H
#define TESTS_BF16_TILES_H

#include <math.h>

#include "tile_registers.h"

static inline float without_subnormals(float x) {
    return fpclassify(x) == FP_SUBNORMAL ? copysignf(0, x) : x;
}

static inline float bf16_operand(uint16_t number) {
    const uint32_t bits = (uint32_t)number << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return without_subnormals(x);
}

static inline void dot_bf16_tiles(int sums, int a, int b) {
    for (int row = 0; row < tile_register_rows(sums); row++)
        for (int column = 0; column < 16; column++) {
            float even = 0, odd = 0;
            for (int k = 0; k < 16; k++) {
                const uint16_t *x = &tile_register(a)->halves[row][2 * k];
                const uint16_t *y = &tile_register(b)->halves[k][2 * column];
                even = without_subnormals(fmaf(bf16_operand(x[0]), bf16_operand(y[0]), even));
                odd = without_subnormals(fmaf(bf16_operand(x[1]), bf16_operand(y[1]), odd));
            }
            float *sum = &tile_register(sums)->floats[row][column];
            *sum = without_subnormals(without_subnormals(*sum) + without_subnormals(even + odd));
        }
}

#define TILE_DOT(sums, a, b) dot_bf16_tiles(sums, a, b)
#include "device/cpu/isa/tile_blocks.h"

static const cpu_tiles emulated_bf16_tiles = {
    .name = "emulated", .configure = configure_tiles, .block = multiply_block, .release = release_tiles};

#endif
