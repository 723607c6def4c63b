/* Integer convolutions and products for one instruction set: dot products, tile sizes, and the conversions between u8,
 * i32 and f32.
 *
 * A tile of r rows and v vectors reads v vectors of b and r words of a for its r * v dot products. The sums hide the
 * latency of the dot product (5 cycles times 2 units); loads, 2 per cycle, should not be more than dot products. A row
 * has a pointer of its own, and x86-64 has registers for at most 12 of them. */
#include "device/cpu/isa/loops_int8.h"

#include <string.h>

#include "device/cpu/isa/lanes.h"
#include "device/cpu/isa/loops.h"

#define PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define UNROLL PRAGMA(clang loop unroll(full))
#else
#define UNROLL PRAGMA(GCC unroll 32)
#endif

#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

/* TO_n: TILE(rows, v) for all numbers of rows up to n that the TO_ before does not have. */
/* clang-format off */
#define TO_6(v) TILE(1, v) TILE(2, v) TILE(3, v) TILE(4, v) TILE(5, v) TILE(6, v)
#define TO_8(v) TILE(7, v) TILE(8, v)
#define TO_12(v) TILE(9, v) TILE(10, v) TILE(11, v) TILE(12, v)
/* clang-format on */

#ifdef __AVX512F__
#define WORDS 16
#define MAX_VECTORS 4
#define MAX_ROWS 12
#define ROWS_BY_VECTORS                                                                                      \
    { 0, 12, 8, 6, 6 }
#define TILES TO_6(1) TO_8(1) TO_12(1) TO_6(2) TO_8(2) TO_6(3) TO_6(4)
#elif defined __AVX2__
#define WORDS 8
#define MAX_VECTORS 2
#define MAX_ROWS 8
#define ROWS_BY_VECTORS                                                                                      \
    { 0, 8, 6 }
#define TILES TO_6(1) TO_8(1) TO_6(2)
#else
#define WORDS 4
#define MAX_VECTORS 2
#define MAX_ROWS 8
#define ROWS_BY_VECTORS                                                                                      \
    { 0, 8, 6 }
#define TILES TO_6(1) TO_8(1) TO_6(2)
#endif

/* ---- Pairs of i16 ---- */

#if defined __AVX512BW__
#define DOT(x, y, sum) ((sum) + (words_widened)_mm512_madd_epi16((__m512i)(x), (__m512i)(y)))
#elif defined __AVX2__
#define DOT(x, y, sum) ((sum) + (words_widened)_mm256_madd_epi16((__m256i)(x), (__m256i)(y)))
#elif defined __SSE2__
#define DOT(x, y, sum) ((sum) + (words_widened)_mm_madd_epi16((__m128i)(x), (__m128i)(y)))
#else
#define DOT(x, y, sum) ((sum) + ((x) << 16 >> 16) * ((y) << 16 >> 16) + ((x) >> 16) * ((y) >> 16))
#endif
#define NAME(x) x##_widened
#define TARGET
#include "device/cpu/isa/loops_int8_tile.h"

static const cpu_int8_dot dot_widened = DOT_LOOPS(TEXT(TU_ISA), 2);
#undef NAME
#undef TARGET
#undef DOT
#undef DOT_LOOPS

/* ---- Four bytes, with VNNI: of AVX-512, or the later AVX-VNNI for processors without AVX-512 ---- */

#if defined __AVX512F__
#define TARGET __attribute__((target("avx512vnni")))
#define DOT(x, y, sum) ((words_bytes)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(x), (__m512i)(y)))
#define SET "avx512_vnni"
#elif defined __AVX2__ && (!defined __clang__ || __clang_major__ >= 12)
#define TARGET __attribute__((target("avxvnni")))
#define DOT(x, y, sum) ((words_bytes)_mm256_dpbusd_avx_epi32((__m256i)(sum), (__m256i)(x), (__m256i)(y)))
#define SET "avx_vnni"
#endif

#ifdef SET
#define NAME(x) x##_bytes
#include "device/cpu/isa/loops_int8_tile.h"

static const cpu_int8_dot dot_bytes = DOT_LOOPS(SET, 1);
#define BYTES &dot_bytes
#else
#define BYTES NULL
#endif

static void widen(int64_t n, const uint8_t *from, int16_t *to) {
    LOOP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
}

/* ---- Conversions. This file is compiled without contraction: each operation rounds once. ---- */

typedef struct bounds {
    float low, high; /* relative to the zero point */
    int32_t zero;
} bounds;

static inline bounds bounds_of(const cpu_requantization *r) {
    return (bounds){(float)(r->low - r->zero), (float)(r->high - r->zero), r->zero};
}

/* Quantizes a number in units of the result's scale. Adding 1.5 * 2^23 rounds a small number to an integer, to nearest
 * even, in the lower bits of the sum. */
static inline uint8_t quantized(float v, bounds to) {
    union {
        float number;
        int32_t bits;
    } magic = {12582912.0f}, sum;
    v = v > to.low ? v : to.low; /* NaN becomes low */
    v = v < to.high ? v : to.high;
    sum.number = v + magic.number;
    return (uint8_t)(sum.bits - magic.bits + to.zero);
}

static inline int32_t add_wrapping(int32_t x, int32_t y) {
    return (int32_t)((uint32_t)x + (uint32_t)y);
}

static void add_bias(const int32_t *bias, const cpu_int8_rows *m) {
    for (int64_t r = 0; r < m->rows; r++) {
        const int32_t *sums = m->sums + r * m->sums_row;
        int32_t *out = (int32_t *)m->out + r * m->out_row;
        LOOP_INDEPENDENT
        for (int64_t j = 0; j < m->columns; j++) out[j] = add_wrapping(sums[j], bias[j]);
    }
}

/* ---- Requantization: a vector of sums at a time, so that narrow results have no loop for what is left over ---- */

/* x > low ? x : low; NaN becomes low. */
LANES_INLINE lanes at_least(lanes x, lanes low) {
#if defined LANES_AVX512
    return (lanes)_mm512_max_ps((__m512)x, (__m512)low);
#elif defined LANES_AVX2
    return (lanes)_mm256_max_ps((__m256)x, (__m256)low);
#else
    return lanes_select(lanes_greater(x, low), x, low);
#endif
}

LANES_INLINE lanes at_most(lanes x, lanes high) {
#if defined LANES_AVX512
    return (lanes)_mm512_min_ps((__m512)x, (__m512)high);
#elif defined LANES_AVX2
    return (lanes)_mm256_min_ps((__m256)x, (__m256)high);
#else
    return lanes_select(lanes_greater(high, x), x, high);
#endif
}

/* Convert LANES bytes to integers, and integers of 0 to 255 to bytes. gcc 12 does so one by one. */
LANES_INLINE lanes_int widen_bytes(const uint8_t *from) {
#if defined LANES_AVX512
    return (lanes_int)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
#elif defined LANES_AVX2
    return (lanes_int)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)from));
#else
    lanes_int x;
    for (int i = 0; i < LANES; i++) x[i] = from[i];
    return x;
#endif
}

LANES_INLINE void narrow_to_bytes(lanes_int x, uint8_t *to) {
#if defined LANES_AVX512
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8((__m512i)x));
#elif defined LANES_AVX2
    const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)x, (__m256i)x), 0x08);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(pairs), _mm256_castsi256_si128(pairs));
    _mm_storel_epi64((__m128i *)(void *)to, bytes);
#elif defined __SSE2__
    const __m128i words = _mm_packs_epi32((__m128i)x, (__m128i)x);
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    memcpy(to, &bytes, sizeof bytes);
#else
    for (int i = 0; i < LANES; i++) to[i] = (uint8_t)x[i];
#endif
}

/* Loads and stores n bytes (n <= LANES). */
LANES_INLINE lanes load_bytes(const uint8_t *from, int64_t n, int32_t zero) {
    uint8_t some[LANES] = {0};
    if (n < LANES) from = memcpy(some, from, (size_t)n);
    return __builtin_convertvector(widen_bytes(from) - zero, lanes);
}

LANES_INLINE void store_bytes(uint8_t *to, int64_t n, lanes_int x) {
    uint8_t some[LANES];
    narrow_to_bytes(x, n < LANES ? some : to);
    if (n < LANES) memcpy(to, some, (size_t)n);
}

/* Requantizes LANES columns from column `j` on, of which `n` exist, for all rows. */
LANES_INLINE void requantize_columns(const cpu_requantization *q, const cpu_int8_rows *m, int64_t j,
                                     int64_t n, bool adds) {
    const bounds to = bounds_of(q);
    const lanes low = lanes_splat(to.low), high = lanes_splat(to.high), magic = lanes_splat(12582912.0f);
    const lanes_int zero = lanes_int_splat(to.zero) - (lanes_int)magic;
    lanes factors = {0};
    lanes_int bias = {0};
    memcpy(&factors, q->factors + j, (size_t)n * sizeof(float));
    memcpy(&bias, q->bias + j, (size_t)n * sizeof(int32_t));
    for (int64_t r = 0; r < m->rows; r++) {
        const int32_t *sums = m->sums + r * m->sums_row + j;
        lanes_int sum = {0};
        memcpy(&sum, sums, n == LANES ? sizeof sum : (size_t)n * sizeof *sums);
        lanes v = __builtin_convertvector((lanes_int)((lanes_bits)sum + (lanes_bits)bias), lanes) * factors;
        if (adds)
            v += load_bytes(m->residual + r * m->out_row + j, n, q->residual_zero) *
                 lanes_splat(q->residual_factor);
        v = at_most(at_least(v, low), high) + magic;
        store_bytes((uint8_t *)m->out + r * m->out_row + j, n, (lanes_int)v + zero);
    }
}

static void requantize(const cpu_requantization *q, const cpu_int8_rows *m) {
    int64_t j = 0;
    for (; j + LANES <= m->columns; j += LANES) requantize_columns(q, m, j, LANES, false);
    if (j < m->columns) requantize_columns(q, m, j, m->columns - j, false);
}

static void requantize_add(const cpu_requantization *q, const cpu_int8_rows *m) {
    int64_t j = 0;
    for (; j + LANES <= m->columns; j += LANES) requantize_columns(q, m, j, LANES, true);
    if (j < m->columns) requantize_columns(q, m, j, m->columns - j, true);
}

/* ---- Element by element ---- */

static void quantize(int64_t n, const float *x, float factor, int32_t zero, uint8_t *q) {
    const bounds to = {(float)-zero, (float)(UINT8_MAX - zero), zero};
    LOOP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) q[i] = quantized(x[i] * factor, to);
}

static void dequantize(int64_t n, const uint8_t *q, float factor, int32_t zero, float *x) {
    LOOP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) x[i] = (float)(q[i] - zero) * factor;
}

static void add(int64_t n, const uint8_t *x, const uint8_t *y, const float factor[2],
                const int32_t input_zero[2], const cpu_requantization *r, uint8_t *q) {
    const bounds to = bounds_of(r);
    const float x_factor = factor[0], y_factor = factor[1];
    const int32_t x_zero = input_zero[0], y_zero = input_zero[1];
    LOOP_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        q[i] = quantized((float)(x[i] - x_zero) * x_factor + (float)(y[i] - y_zero) * y_factor, to);
}

static void maximum(int64_t n, const uint8_t *x, uint8_t *max) {
    LOOP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) max[i] = x[i] > max[i] ? x[i] : max[i];
}

static void accumulate(int64_t n, const uint8_t *x, int32_t *sums) {
    LOOP_INDEPENDENT
    for (int64_t i = 0; i < n; i++) sums[i] += x[i];
}

extern struct cpu_loops_int8 LOOP(cpu_loops_int8);
struct cpu_loops_int8 LOOP(cpu_loops_int8) = {.bytes = BYTES,
                                              .widened = &dot_widened,
                                              .widen = widen,
                                              .add_bias = add_bias,
                                              .requantize = requantize,
                                              .requantize_add = requantize_add,
                                              .quantize = quantize,
                                              .dequantize = dequantize,
                                              .add = add,
                                              .maximum = maximum,
                                              .accumulate = accumulate};
