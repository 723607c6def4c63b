/* The loops of loops_blocks.h. */
#include "device/cpu/isa/loops_blocks.h"

#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include "device/cpu/isa/loops.h"

static inline float bf16_to_f32(uint32_t x) {
    union {
        uint32_t bits;
        float number;
    } u = {x << 16};
    return u.number;
}

/* Rounds to nearest even; NaN stays NaN. */
static inline uint32_t f32_to_bf16(float x) {
    union {
        float number;
        uint32_t bits;
    } u = {x};
    uint32_t rounded = (u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16, nan = u.bits >> 16 | 0x40;
    return (u.bits & 0x7fffffff) > 0x7f800000 ? nan : rounded;
}

static void pair(int64_t count, int64_t channels, const uint16_t *source, uint32_t *pairs, int64_t width) {
    for (int64_t i = 0; i < count; i++) {
        const uint16_t *restrict low = source + i * channels, *restrict high = low + channels;
        uint32_t *restrict to = pairs + i * width;
        for (int64_t c = 0; c < channels; c++) to[c] = low[c] | (uint32_t)high[c] << 16;
        for (int64_t c = channels; c < width; c++) to[c] = 0;
    }
}

static void make_windows(int64_t pixels, int64_t channels, const uint16_t *source, int64_t pitch,
                         uint16_t *windows) {
    for (int64_t q = 0; q < pixels; q++, windows += 32, source += channels) {
        memcpy(windows, source, 16 * sizeof *windows);
        memcpy(windows + 16, source + pitch * channels, 16 * sizeof *windows);
    }
}

/* Transposes squares of 16 pairs of pixels by up to 16 channels. */
enum { SIDE = 16 };

#ifdef __AVX512F__
/* Transposes in four steps, exchanging elements at distances 1, 2, 4 and 8, and stores the result. */
static inline void store_transposed(__m512i r[SIDE], int64_t count, uint16_t *to, int64_t plane) {
    __m512i t[SIDE];
    for (int i = 0; i < SIDE; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < SIDE; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    }
    for (int64_t i = 0; i < count; i++) _mm512_storeu_si512(to + i * plane, r[i]);
}

static inline void transpose_square(const uint16_t *from, int64_t channels, int64_t count, uint16_t *to,
                                    int64_t plane) {
    const __mmask16 some = (__mmask16)((1u << count) - 1);
    __m512i rows[SIDE];
    for (int i = 0; i < SIDE; i++) {
        const uint16_t *low = from + 2 * i * channels;
        __m512i l = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, low));
        __m512i h = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, low + channels));
        rows[i] = _mm512_or_si512(l, _mm512_slli_epi32(h, 16));
    }
    store_transposed(rows, count, to, plane);
}
#else
static inline void transpose_square(const uint16_t *from, int64_t channels, int64_t count, uint16_t *to,
                                    int64_t plane) {
    for (int64_t p = 0; p < 2 * SIDE; p++)
        for (int64_t i = 0; i < count; i++) to[i * plane + p] = from[p * channels + i];
}
#endif

static void transpose(int64_t pixels, int64_t channels, const uint16_t *source, uint16_t *planes,
                      int64_t plane) {
    for (int64_t c = 0; c < channels; c += SIDE)
        for (int64_t p = 0; p < pixels; p += 2 * SIDE)
            transpose_square(source + p * channels + c, channels, channels - c < SIDE ? channels - c : SIDE,
                             planes + c * plane + p, plane);
}

/* `biased` and `relu` are constants after inlining. */
static inline __attribute__((always_inline)) void finish_row(int64_t columns, const float *restrict sums,
                                                             const uint16_t *restrict bias, const bool biased,
                                                             const bool relu, uint16_t *restrict out) {
    for (int64_t j = 0; j < columns; j++) {
        uint32_t x = f32_to_bf16(sums[j]);
        if (biased) x = f32_to_bf16(bf16_to_f32(x) + bf16_to_f32(bias[j]));
        /* Negative numbers are 0x8001 (the smallest) to 0xff80 (minus infinity). */
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
    enum { CHUNK = 256 };
    for (int64_t first = 0; first < n; first += CHUNK) {
        int64_t length = n - first < CHUNK ? n - first : CHUNK;
        float sums[CHUNK];
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
    .pair = pair, .make_windows = make_windows, .transpose = transpose, .finish = finish, .sum = sum};
