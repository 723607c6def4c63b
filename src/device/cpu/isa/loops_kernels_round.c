/* Rounds f32 sums to bf16 and applies an epilogue: see isa/kernels.h. Each result is rounded as by a separate
 * operation. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

LANES_INLINE lanes to_bf16(lanes x) {
    return lanes_widen(lanes_narrow(x));
}

LANES_INLINE void round_row(int64_t columns, const float *sums, const uint16_t *bias,
                            const uint16_t *residual, bool relu, uint16_t *out) {
    for (int64_t j = 0; j < columns; j += LANES) {
        lanes x = lanes_load_upto(false, sums, j, columns);
        if (bias) x = to_bf16(x) + lanes_load_upto(true, bias, j, columns);
        if (residual) x = to_bf16(x) + lanes_load_upto(true, residual, j, columns);
        x = to_bf16(x);
        if (relu) x = lanes_select(lanes_greater((lanes){0}, x), (lanes){0}, x); /* keeps NaN */
        lanes_store_upto(true, out, j, columns, x);
    }
}

static void sums_to_bf16(int64_t rows, int64_t columns, const float *sums, int64_t sums_row, const void *bias,
                         const void *residual, bool relu, void *out, int64_t out_row) {
    for (int64_t r = 0; r < rows; r++)
        round_row(columns, sums + r * sums_row, bias,
                  residual ? (const uint16_t *)residual + r * out_row : NULL, relu,
                  (uint16_t *)out + r * out_row);
}

const struct cpu_round_loops LOOP(cpu_round_loops) = {.sums_to_bf16 = sums_to_bf16};
