/* Loops around AMX blocks (isa/blocks.h): preparing operands and rounding sums, per instruction set. Numbers of 16
 * bits are bf16. */
#ifndef TU__DEVICE_CPU_ISA_LOOPS_BLOCKS_H
#define TU__DEVICE_CPU_ISA_LOOPS_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct cpu_loops_blocks {
    /* pairs[p * width + c] = (source[p * channels + c], source[(p + 1) * channels + c]) for p < count; each row is
     * padded with zeros to `width`. */
    void (*pair)(int64_t count, int64_t channels, const uint16_t *source, uint32_t *pairs, int64_t width);
    /* windows[q][0 … 15] = source from pixel q on, windows[q][16 … 31] = source from pixel q + pitch on. */
    void (*make_windows)(int64_t pixels, int64_t channels, const uint16_t *source, int64_t pitch,
                         uint16_t *windows);
    /* planes[c * plane + p] = source[p * channels + c] for p < pixels, a multiple of 32. */
    void (*transpose)(int64_t pixels, int64_t channels, const uint16_t *source, uint16_t *planes,
                      int64_t plane);
    /* out [rows, columns] = sums [rows, columns of width] rounded; then + bias (or NULL), and x < 0 ? 0 : x if relu
     * is set, each rounded as if it were a separate operation. */
    void (*finish)(int64_t rows, int64_t columns, const float *sums, int64_t width, const uint16_t *bias,
                   bool relu, uint16_t *out);
    /* out[i] = parts[i] + parts[stride + i] + … over `count` arrays, in that order, rounded. */
    void (*sum)(int64_t n, int64_t count, const float *parts, int64_t stride, uint16_t *out);
};

#endif
