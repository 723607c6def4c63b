/* Rounding of f32 sums to bf16 by the instruction of AVX512_BF16, for products with AMX tiles: with integer arithmetic
 * (loops_kernels_round.c) it takes as long as the products if k is short. The bits are the same, since sums of tiles are never
 * subnormal: the instruction flushes subnormal numbers to zero. */
#include "device/cpu/isa/kernels.h"

#include <stddef.h>

#if defined(__x86_64__) && (!defined(__clang__) || __clang_major__ >= 12)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define INLINE static inline __attribute__((always_inline))

enum { COLUMNS = 32 };

typedef struct rounding {
    const float *sums;
    const uint16_t *bias, *residual;
    uint16_t *out;
    int64_t rows, columns, sums_row, out_row; /* columns: 1 to COLUMNS */
    bool relu;
} rounding;

typedef struct pair { /* 32 numbers */
    __m512 low, high;
} pair;

TARGET INLINE __m512 widen(__m256i x) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

TARGET INLINE pair load_bf16(__mmask32 columns, const uint16_t *from) {
    const __m512i x = _mm512_maskz_loadu_epi16(columns, from);
    return (pair){widen(_mm512_castsi512_si256(x)), widen(_mm512_extracti64x4_epi64(x, 1))};
}

TARGET INLINE pair load_sums(__mmask32 columns, const float *from) {
    return (pair){_mm512_maskz_loadu_ps((__mmask16)columns, from),
                  _mm512_maskz_loadu_ps((__mmask16)(columns >> 16), from + 16)};
}

TARGET INLINE __m512 rounded(__m512 x) {
    return widen((__m256i)_mm512_cvtneps_pbh(x));
}

TARGET INLINE pair add(pair x, pair y) {
    return (pair){_mm512_add_ps(rounded(x.low), y.low), _mm512_add_ps(rounded(x.high), y.high)};
}

TARGET INLINE __m512 relu_of(__m512 x) { /* keeps NaN and -0 */
    const __m512 zero = _mm512_setzero_ps();
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, zero, _CMP_LT_OQ), zero);
}

/* `is_full`, `has_bias` and `has_residual` are constants after inlining. */
TARGET INLINE void round_rows(const rounding *r, const bool is_full, const bool has_bias,
                              const bool has_residual) {
    const __mmask32 columns = is_full ? 0xffffffff : (__mmask32)((UINT64_C(1) << r->columns) - 1);
    const pair bias = load_bf16(has_bias ? columns : 0, has_bias ? r->bias : r->out);
    const bool relu = r->relu;
    for (int64_t i = 0; i < r->rows; i++) {
        pair x = load_sums(columns, r->sums + i * r->sums_row);
        if (has_bias) x = add(x, bias);
        if (has_residual) x = add(x, load_bf16(columns, r->residual + i * r->out_row));
        if (relu) x = (pair){relu_of(x.low), relu_of(x.high)};
        const __m512i y = (__m512i)_mm512_cvtne2ps_pbh(x.high, x.low);
        if (is_full)
            _mm512_storeu_si512(r->out + i * r->out_row, y);
        else
            _mm512_mask_storeu_epi16(r->out + i * r->out_row, columns, y);
    }
}

TARGET static void round_columns(const rounding *r) {
    if (r->columns < COLUMNS) {
        if (r->residual && r->bias)
            round_rows(r, false, true, true);
        else if (r->residual)
            round_rows(r, false, false, true);
        else if (r->bias)
            round_rows(r, false, true, false);
        else
            round_rows(r, false, false, false);
    } else if (r->residual && r->bias)
        round_rows(r, true, true, true);
    else if (r->residual)
        round_rows(r, true, false, true);
    else if (r->bias)
        round_rows(r, true, true, false);
    else
        round_rows(r, true, false, false);
}

static void sums_to_bf16(int64_t rows, int64_t columns, const float *sums, int64_t sums_row, const void *bias,
                         const void *residual, bool relu, void *out, int64_t out_row) {
    for (int64_t j = 0; j < columns; j += COLUMNS) {
        const rounding r = {.sums = sums + j,
                            .bias = bias ? (const uint16_t *)bias + j : NULL,
                            .residual = residual ? (const uint16_t *)residual + j : NULL,
                            .out = (uint16_t *)out + j,
                            .rows = rows,
                            .columns = columns - j < COLUMNS ? columns - j : COLUMNS,
                            .sums_row = sums_row,
                            .out_row = out_row,
                            .relu = relu};
        round_columns(&r);
    }
}

const struct cpu_round_loops *cpu_round_loops_avx512_bf16(void) {
    static const struct cpu_round_loops loops = {.sums_to_bf16 = sums_to_bf16};
    return &loops;
}
#else
const struct cpu_round_loops *cpu_round_loops_avx512_bf16(void) {
    return NULL;
}
#endif
