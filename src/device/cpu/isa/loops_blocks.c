/* The loops of loops_blocks.h. */
#include "device/cpu/isa/loops_blocks.h"

#include <string.h>

#include "device/cpu/isa/loops.h"

static inline float widen(uint32_t x) {
    union {
        uint32_t bits;
        float number;
    } u = {x << 16};
    return u.number;
}

/* To nearest, halves to even; NaN stays one. */
static inline uint32_t narrow(float x) {
    union {
        float number;
        uint32_t bits;
    } u = {x};
    uint32_t rounded = (u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16, nan = u.bits >> 16 | 0x40;
    return (u.bits & 0x7fffffff) > 0x7f800000 ? nan : rounded;
}

static void pair(int64_t count, int64_t channels, const uint16_t *source, int64_t step, uint32_t *pairs,
                 int64_t width) {
    for (int64_t i = 0; i < count; i++) {
        const uint16_t *restrict low = source + i * step * channels, *restrict high = low + channels;
        uint32_t *restrict to = pairs + i * width;
        for (int64_t c = 0; c < channels; c++) to[c] = low[c] | (uint32_t)high[c] << 16;
        for (int64_t c = channels; c < width; c++) to[c] = 0;
    }
}

/* Two pixels of 16 channels at a time: the 16 lines written to stay at hand. */
static void transpose(int64_t pixels, int64_t channels, const uint16_t *source, uint16_t *planes,
                      int64_t plane) {
    for (int64_t c = 0; c < channels; c += 16) {
        int64_t count = channels - c < 16 ? channels - c : 16;
        for (int64_t p = 0; p < pixels; p += 2) {
            const uint16_t *low = source + p * channels + c, *high = low + channels;
            uint16_t *to = planes + c * plane + p;
            uint32_t both[16];
            for (int64_t i = 0; i < count; i++) both[i] = low[i] | (uint32_t)high[i] << 16;
            for (int64_t i = 0; i < count; i++) memcpy(to + i * plane, &both[i], sizeof both[i]);
        }
    }
}

/* `bias` and `relu` are constants where this is inlined. */
static inline __attribute__((always_inline)) void finish_row(int64_t columns, const float *restrict sums,
                                                             const uint16_t *restrict bias, const bool biased,
                                                             const bool relu, uint16_t *restrict out) {
    for (int64_t j = 0; j < columns; j++) {
        uint32_t x = narrow(sums[j]);
        if (biased) x = narrow(widen(x) + widen(bias[j]));
        /* Numbers below zero lie between the smallest, 0x8001, and minus infinity, 0xff80. */
        if (relu) x = x > 0x8000 && x <= 0xff80 ? 0 : x;
        out[j] = (uint16_t)x;
    }
}

static void finish(int64_t rows, int64_t columns, const float *sums, int64_t width, const uint16_t *bias,
                   bool relu, uint16_t *out) {
    for (int64_t i = 0; i < rows; i++, sums += width, out += columns)
        if (bias && relu)
            finish_row(columns, sums, bias, true, true, out);
        else if (bias)
            finish_row(columns, sums, bias, true, false, out);
        else if (relu)
            finish_row(columns, sums, NULL, false, true, out);
        else
            finish_row(columns, sums, NULL, false, false, out);
}

static void sum(int64_t n, int64_t count, const float *parts, int64_t stride, uint16_t *out) {
    enum { PIECE = 256 };
    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t length = n - first < PIECE ? n - first : PIECE;
        float sums[PIECE];
        memcpy(sums, parts + first, (size_t)length * sizeof *sums);
        for (int64_t s = 1; s < count; s++) {
            const float *restrict part = parts + s * stride + first;
            for (int64_t i = 0; i < length; i++) sums[i] += part[i];
        }
        finish_row(length, sums, NULL, false, false, out + first);
    }
}

extern struct cpu_loops_blocks LOOP(cpu_loops_blocks);
struct cpu_loops_blocks LOOP(cpu_loops_blocks) = {
    .pair = pair, .transpose = transpose, .finish = finish, .sum = sum};
