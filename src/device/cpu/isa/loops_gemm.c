/* Matrix products and convolutions for one instruction set: vector widths and tile sizes.
 *
 * A tile of r rows and v vectors has r * v sums in registers, and reads v vectors of b and r single elements of a
 * for its r * v multiply-adds. There must be enough sums to hide the latency of the multiply-add (4 cycles times 2
 * units: at least 8), and not more loads (2 per cycle) than multiply-adds. With 32 registers, 6 x 4 (28 registers,
 * 10 loads for 24 multiply-adds) is the widest tile; tiles with fewer vectors per row, for narrow matrices, have
 * more rows. With 16 registers, 6 x 2 leaves one for the broadcast. */
#include "device/cpu/isa/loops_gemm.h"

#include <string.h>

#include "device/cpu/isa/loops.h"

#define PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define UNROLL PRAGMA(clang loop unroll(full))
#else
#define UNROLL PRAGMA(GCC unroll 32)
#endif

#if defined __AVX512F__
#include <immintrin.h>
#define VECTOR_BYTES 64
#define FMA_F32 _mm512_fmadd_ps
#define FMA_F64 _mm512_fmadd_pd
#define MANY_REGISTERS 1
#elif defined __AVX2__ && defined __FMA__
#include <immintrin.h>
#define VECTOR_BYTES 32
#define FMA_F32 _mm256_fmadd_ps
#define FMA_F64 _mm256_fmadd_pd
#elif defined __ARM_NEON
#include <arm_neon.h>
#define VECTOR_BYTES 16
#define FMA_F32(x, y, z) vfmaq_f32(z, x, y)
#define FMA_F64(x, y, z) vfmaq_f64(z, x, y)
#define MANY_REGISTERS 1
#else
#define VECTOR_BYTES 16
#define FMA_F32(x, y, z) ((x) * (y) + (z))
#define FMA_F64(x, y, z) ((x) * (y) + (z))
#endif

/* ---- Packing of columns ---- */

#if defined __AVX512F__

/* Loads 4 columns of rows r, r + 4, r + 8 and r + 12 into one vector. */
static inline __m512 load_lanes(const float *from, int64_t row) {
    __m512 x = _mm512_castps128_ps512(_mm_loadu_ps(from));
    x = _mm512_insertf32x4(x, _mm_loadu_ps(from + 4 * row), 1);
    x = _mm512_insertf32x4(x, _mm_loadu_ps(from + 8 * row), 2);
    return _mm512_insertf32x4(x, _mm_loadu_ps(from + 12 * row), 3);
}
#define UNPACK_LOW_F32 _mm512_unpacklo_ps
#define UNPACK_HIGH_F32 _mm512_unpackhi_ps
#define UNPACK_LOW_F64(x, y) _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)))
#define UNPACK_HIGH_F64(x, y) _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)))
#define STORE_LANES _mm512_storeu_ps
typedef __m512 lanes;

#elif defined __AVX2__

static inline __m256 load_lanes(const float *from, int64_t row) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from)), _mm_loadu_ps(from + 4 * row), 1);
}
#define UNPACK_LOW_F32 _mm256_unpacklo_ps
#define UNPACK_HIGH_F32 _mm256_unpackhi_ps
#define UNPACK_LOW_F64(x, y) _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(x), _mm256_castps_pd(y)))
#define UNPACK_HIGH_F64(x, y) _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(x), _mm256_castps_pd(y)))
#define STORE_LANES _mm256_storeu_ps
typedef __m256 lanes;

#endif

#ifdef STORE_LANES
/* Transposes as many rows as a vector has elements, 4 columns of each: every group of 4 lanes transposes a square,
 * and whole vectors are stored. If squares were stored separately, a cache line of the panel, which does not fit the
 * L1 cache, would be loaded once per quarter. */
static inline void transpose_lanes(const float *from, int64_t from_row, float *to, int64_t to_row) {
    lanes a = load_lanes(from, from_row), b = load_lanes(from + from_row, from_row);
    lanes c = load_lanes(from + 2 * from_row, from_row), d = load_lanes(from + 3 * from_row, from_row);
    lanes ab_low = UNPACK_LOW_F32(a, b), cd_low = UNPACK_LOW_F32(c, d);
    lanes ab_high = UNPACK_HIGH_F32(a, b), cd_high = UNPACK_HIGH_F32(c, d);
    STORE_LANES(to, UNPACK_LOW_F64(ab_low, cd_low));
    STORE_LANES(to + to_row, UNPACK_HIGH_F64(ab_low, cd_low));
    STORE_LANES(to + 2 * to_row, UNPACK_LOW_F64(ab_high, cd_high));
    STORE_LANES(to + 3 * to_row, UNPACK_HIGH_F64(ab_high, cd_high));
}
#endif

/* TO_n: TILE(rows, v) for all numbers of rows up to n that the TO_ before does not have. */
/* clang-format off */
#define TO_6(v) TILE(1, v) TILE(2, v) TILE(3, v) TILE(4, v) TILE(5, v) TILE(6, v)
#define TO_8(v) TILE(7, v) TILE(8, v)
#define TO_10(v) TILE(9, v) TILE(10, v)
#define TO_14(v) TILE(11, v) TILE(12, v) TILE(13, v) TILE(14, v)
#define TO_24(v) TILE(15, v) TILE(16, v) TILE(17, v) TILE(18, v) TILE(19, v) TILE(20, v) TILE(21, v) TILE(22, v) \
                 TILE(23, v) TILE(24, v)
/* clang-format on */

#ifdef MANY_REGISTERS
#define MAX_VECTORS 4
#define MAX_ROWS 24
#define ROWS_BY_VECTORS                                                                                      \
    { 0, 24, 14, 8, 6 }
/* clang-format off */
#define TILES                                                                                                \
    TO_6(1) TO_8(1) TO_10(1) TO_14(1) TO_24(1)  TO_6(2) TO_8(2) TO_10(2) TO_14(2)  TO_6(3) TO_8(3)  TO_6(4)
/* clang-format on */
#else
#define MAX_VECTORS 2
#define MAX_ROWS 10
#define ROWS_BY_VECTORS                                                                                      \
    { 0, 10, 6 }
#define TILES TO_6(1) TO_8(1) TO_10(1) TO_6(2)
#endif

#define REAL float
#define BITS int32_t
#define NAME(x) x##_f32
#define FMA FMA_F32
#ifdef STORE_LANES
#define TRANSPOSE transpose_lanes
#define TRANSPOSED (VECTOR_BYTES / (int)sizeof(float))
#else
#define TRANSPOSE transpose_square_f32
#define TRANSPOSED 4
#endif
#include "device/cpu/isa/loops_gemm_real.h"
#undef REAL
#undef BITS
#undef NAME
#undef FMA
#undef TRANSPOSE
#undef TRANSPOSED

#define REAL double
#define BITS int64_t
#define NAME(x) x##_f64
#define FMA FMA_F64
#define TRANSPOSE transpose_square_f64
#define TRANSPOSED 4
#include "device/cpu/isa/loops_gemm_real.h"
#undef REAL
#undef BITS
#undef NAME
#undef FMA

/* ---- Pairs of bf16 ---- */

static inline float widen(uint16_t x) {
    union {
        uint32_t bits;
        float number;
    } u = {(uint32_t)x << 16};
    return u.number;
}

/* Rounds to nearest even; NaN stays NaN. */
static inline uint16_t narrow(float x) {
    union {
        float number;
        uint32_t bits;
    } u = {x};
    uint32_t rounded = (u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16, nan = u.bits >> 16 | 0x40;
    return (uint16_t)((u.bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

static void pair_bf16(int64_t n, const void *low, const void *high, void *pairs) {
    const uint16_t *restrict l = low, *restrict h = high;
    uint32_t *restrict to = pairs;
    if (l && h)
        for (int64_t i = 0; i < n; i++) to[i] = (uint32_t)h[i] << 16 | l[i];
    else if (l)
        for (int64_t i = 0; i < n; i++) to[i] = l[i];
    else if (h)
        for (int64_t i = 0; i < n; i++) to[i] = (uint32_t)h[i] << 16;
    else
        memset(to, 0, (size_t)n * sizeof *to);
}

static void sum_transposed_bf16(int64_t count, const void *parts, int64_t stride, int64_t row, int64_t first,
                                int64_t last, int64_t columns, void *out, int64_t out_row) {
    for (int64_t i = first; i < last; i++) {
        const float *from = (const float *)parts + i * row;
        for (int64_t j = 0; j < columns; j++) {
            float sum = from[j];
            for (int64_t s = 1; s < count; s++) sum += from[s * stride + j];
            ((uint16_t *)out)[j * out_row + i] = narrow(sum);
        }
    }
}

#define PAIR_LOOPS(tile_function)                                                                            \
    {                                                                                                        \
        .element_bytes = sizeof(float), .operand_bytes = sizeof(uint16_t), .vector_elements = WIDTH_f32,     \
        .max_vectors = MAX_VECTORS, .max_rows = ROWS_BY_VECTORS, .tile = (tile_function), .pair = pair_bf16, \
        .sum_transposed = sum_transposed_bf16                                                                \
    }

#define ELEMENT int32_t
#define REAL float
#define BITS int32_t

/* bf16 is the upper half of an f32: with a shift and a mask each half becomes a vector of f32. */
static inline __attribute__((always_inline)) vector_f32 add_pairs(bits_f32 x, bits_f32 y, vector_f32 sum) {
    const bits_f32 upper = (bits_f32){0} - 0x10000;
    sum = FMA_F32((vector_f32)(x << 16), (vector_f32)(y << 16), sum);
    return FMA_F32((vector_f32)(x & upper), (vector_f32)(y & upper), sum);
}

#define NAME(x) x##_bf16
#define FMA add_pairs
#define TARGET
#include "device/cpu/isa/loops_gemm_tile.h"
#undef NAME
#undef FMA
#undef TARGET

static const cpu_gemm_loops loops_bf16 = PAIR_LOOPS(dispatch_tile_bf16);

#ifdef __AVX512F__ /* one instruction for both products, which treats subnormal numbers as zeros */
#define NAME(x) x##_bf16_dot
#define FMA(x, y, sum) ((vector_f32)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(x), (__m512bh)(y)))
#define TARGET __attribute__((target("avx512bf16")))
#include "device/cpu/isa/loops_gemm_tile.h"

static const cpu_gemm_loops loops_bf16_dot = PAIR_LOOPS(dispatch_tile_bf16_dot);
#define BF16_DOT &loops_bf16_dot
#else
#define BF16_DOT NULL
#endif

/* ---- Epilogues of results in memory ---- */

static void epilogue_f32(int64_t rows, int64_t columns, void *data, const void *bias_data, bool relu) {
    const float *restrict bias = bias_data;
    for (int64_t r = 0; r < rows; r++) {
        float *restrict x = (float *)data + r * columns;
        if (bias)
            for (int64_t j = 0; j < columns; j++) x[j] += bias[j];
        if (relu)
            for (int64_t j = 0; j < columns; j++) x[j] = x[j] < 0 ? 0 : x[j];
    }
}

static void epilogue_bf16(int64_t rows, int64_t columns, void *data, const void *bias_data, bool relu) {
    const uint16_t *restrict bias = bias_data;
    for (int64_t r = 0; r < rows; r++) {
        uint16_t *restrict x = (uint16_t *)data + r * columns;
        if (bias)
            for (int64_t j = 0; j < columns; j++) x[j] = narrow(widen(x[j]) + widen(bias[j]));
        if (relu) /* negative numbers are 0x8001 (the smallest) to 0xff80 (minus infinity) */
            for (int64_t j = 0; j < columns; j++) x[j] = x[j] > 0x8000 && x[j] <= 0xff80 ? 0 : x[j];
    }
}

extern struct cpu_loops_gemm LOOP(cpu_loops_gemm);
struct cpu_loops_gemm LOOP(cpu_loops_gemm) = {.f32 = &loops_f32,
                                              .f64 = &loops_f64,
                                              .bf16 = &loops_bf16,
                                              .bf16_dot = BF16_DOT,
                                              .epilogue_f32 = epilogue_f32,
                                              .epilogue_bf16 = epilogue_bf16};
