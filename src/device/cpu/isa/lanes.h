/* Lanes: a vector of f32 numbers that fills one register, for loops that a compiler does not vectorise.
 *
 * Sums in a fixed order, selects, windows over channels: plain C for these compiles to scalar code, since the
 * compiler may not reorder a sum. Here the order is explicit: lane l of a vector contains the elements l, l + LANES,
 * … The types are the compilers' vector extensions, which work on every processor; intrinsics are used only where
 * x86-64 or ARM has one instruction for what would otherwise be several.
 *
 * An element in memory is f32, or bf16 if `is_bf16` is set; arithmetic is always f32. `is_bf16` is a constant in
 * every call, so that each loop is compiled twice, without tests. For rows that do not fill the last vector the _some
 * functions access n elements (0 < n < LANES) and no byte beyond. */
#ifndef TU__DEVICE_CPU_ISA_LANES_H
#define TU__DEVICE_CPU_ISA_LANES_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "device/cpu/isa/vector_math.h"

#ifdef __x86_64__
#include <immintrin.h>
#elif defined __ARM_NEON
#include <arm_neon.h>
#endif

#if defined __AVX512F__ && defined __AVX512BW__ && defined __AVX512DQ__ && defined __AVX512VL__
#define LANES_AVX512 1
enum { LANES = 16 };
#elif defined __AVX2__
#define LANES_AVX2 1
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif

typedef float lanes __attribute__((vector_size(LANES * 4)));
typedef int32_t lanes_int __attribute__((vector_size(LANES * 4)));
typedef uint32_t lanes_bits __attribute__((vector_size(LANES * 4)));
typedef uint16_t lanes_short __attribute__((vector_size(LANES * 2)));

#define LANES_INLINE static inline __attribute__((always_inline, unused))

LANES_INLINE lanes lanes_splat(float x) {
    return x - (lanes){0};
}

LANES_INLINE lanes_int lanes_int_splat(int32_t x) {
    return x - (lanes_int){0};
}

/* x y + z, rounded once if the processor has FMA. An explicit FMA is used where two loops must compute the same
 * bits, since compilers may contract different products and sums. */
LANES_INLINE lanes lanes_multiply_add(lanes x, lanes y, lanes z) {
#if defined LANES_AVX512
    return (lanes)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined LANES_AVX2 && defined __FMA__
    return (lanes)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#elif defined __ARM_NEON
    return (lanes)vfmaq_f32((float32x4_t)z, (float32x4_t)x, (float32x4_t)y);
#else
    return x * y + z;
#endif
}

/* Returns the vector 0, 1, 2, … */
LANES_INLINE lanes_int lanes_iota(void) {
    lanes_int count;
    for (int i = 0; i < LANES; i++) count[i] = i;
    return count;
}

/* ---- Comparisons and selects ---- */

#ifdef LANES_AVX512

typedef uint16_t lanes_mask; /* one bit per lane */

LANES_INLINE lanes_mask lanes_greater(lanes a, lanes b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
}
LANES_INLINE lanes_mask lanes_equal(lanes a, lanes b) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ);
}
LANES_INLINE lanes_mask lanes_nan(lanes a) {
    return _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_UNORD_Q);
}
LANES_INLINE lanes_mask lanes_int_equal(lanes_int a, lanes_int b) {
    return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b);
}
LANES_INLINE lanes_mask lanes_first(int64_t n) {
    return (lanes_mask)((1u << n) - 1);
}
LANES_INLINE bool lanes_any(lanes_mask mask) {
    return mask != 0;
}
LANES_INLINE lanes lanes_select(lanes_mask mask, lanes yes, lanes no) {
    return (lanes)_mm512_mask_blend_ps(mask, (__m512)no, (__m512)yes);
}
LANES_INLINE lanes_int lanes_int_select(lanes_mask mask, lanes_int yes, lanes_int no) {
    return (lanes_int)_mm512_mask_blend_epi32(mask, (__m512i)no, (__m512i)yes);
}

#else

typedef lanes_int lanes_mask; /* all bits of a lane set, or none */

LANES_INLINE lanes_mask lanes_greater(lanes a, lanes b) {
    return a > b;
}
LANES_INLINE lanes_mask lanes_equal(lanes a, lanes b) {
    return a == b;
}
LANES_INLINE lanes_mask lanes_nan(lanes a) {
    lanes same = a;
    return a != same;
}
LANES_INLINE lanes_mask lanes_int_equal(lanes_int a, lanes_int b) {
    return a == b;
}
LANES_INLINE lanes_mask lanes_first(int64_t n) {
    return lanes_iota() < lanes_int_splat((int32_t)n);
}
LANES_INLINE bool lanes_any(lanes_mask mask) {
    int32_t any = 0;
    for (int i = 0; i < LANES; i++) any |= mask[i];
    return any != 0;
}
LANES_INLINE lanes_int lanes_int_select(lanes_mask mask, lanes_int yes, lanes_int no) {
    return (mask & yes) | (~mask & no);
}
LANES_INLINE lanes lanes_select(lanes_mask mask, lanes yes, lanes no) {
#ifdef LANES_AVX2
    return (lanes)_mm256_blendv_ps((__m256)no, (__m256)yes, (__m256)mask);
#else
    return (lanes)lanes_int_select(mask, (lanes_int)yes, (lanes_int)no);
#endif
}

#endif

/* ---- Memory ---- */

/* gcc 12 does not use the single instruction for these conversions. */
LANES_INLINE lanes_int lanes_from_short(lanes_short x) {
#if defined LANES_AVX512
    return (lanes_int)_mm512_cvtepu16_epi32((__m256i)x);
#elif defined LANES_AVX2
    return (lanes_int)_mm256_cvtepu16_epi32((__m128i)x);
#else
    return __builtin_convertvector(x, lanes_int);
#endif
}

/* For numbers in [0, 65536). */
LANES_INLINE lanes_short lanes_to_short(lanes_int x) {
#if defined LANES_AVX512
    return (lanes_short)_mm512_cvtepi32_epi16((__m512i)x);
#elif defined LANES_AVX2
    return (lanes_short)_mm_packus_epi32(_mm256_castsi256_si128((__m256i)x),
                                         _mm256_extracti128_si256((__m256i)x, 1));
#else
    return __builtin_convertvector(x, lanes_short);
#endif
}

/* bf16 is the upper half of an f32. */
LANES_INLINE lanes lanes_widen(lanes_short x) {
    return (lanes)(lanes_from_short(x) << 16);
}

/* Rounds to nearest even; NaN becomes a quiet NaN. */
LANES_INLINE lanes_short lanes_narrow(lanes x) {
    lanes_bits bits = (lanes_bits)x, odd = (bits >> 16) & 1;
    lanes_bits rounded = (bits + 0x7fff + odd) >> 16, nan = (bits >> 16) | 0x40;
    return lanes_to_short(lanes_int_select(lanes_nan(x), (lanes_int)nan, (lanes_int)rounded));
}

/* Loads elements i … i + LANES - 1. */
LANES_INLINE lanes lanes_load(bool is_bf16, const void *base, int64_t i) {
    if (is_bf16) {
        lanes_short x;
        memcpy(&x, (const uint16_t *)base + i, sizeof x);
        return lanes_widen(x);
    }
    lanes x;
    memcpy(&x, (const float *)base + i, sizeof x);
    return x;
}

LANES_INLINE void lanes_store(bool is_bf16, void *base, int64_t i, lanes x) {
    if (is_bf16) {
        lanes_short narrow = lanes_narrow(x);
        memcpy((uint16_t *)base + i, &narrow, sizeof narrow);
        return;
    }
    memcpy((float *)base + i, &x, sizeof x);
}

/* Loads elements i … i + n - 1; the other lanes are zero. */
LANES_INLINE lanes lanes_load_some(bool is_bf16, const void *base, int64_t i, int64_t n) {
#ifdef LANES_AVX512
    if (is_bf16)
        return lanes_widen((lanes_short)_mm256_maskz_loadu_epi16(lanes_first(n), (const uint16_t *)base + i));
    return (lanes)_mm512_maskz_loadu_ps(lanes_first(n), (const float *)base + i);
#else
    if (is_bf16) {
        lanes_short x = {0};
        for (int64_t k = 0; k < n; k++) x[k] = ((const uint16_t *)base)[i + k];
        return lanes_widen(x);
    }
#ifdef LANES_AVX2
    return (lanes)_mm256_maskload_ps((const float *)base + i, (__m256i)lanes_first(n));
#else
    lanes x = {0};
    for (int64_t k = 0; k < n; k++) x[k] = ((const float *)base)[i + k];
    return x;
#endif
#endif
}

LANES_INLINE void lanes_store_some(bool is_bf16, void *base, int64_t i, int64_t n, lanes x) {
#ifdef LANES_AVX512
    if (is_bf16)
        _mm256_mask_storeu_epi16((uint16_t *)base + i, lanes_first(n), (__m256i)lanes_narrow(x));
    else
        _mm512_mask_storeu_ps((float *)base + i, lanes_first(n), (__m512)x);
#else
    if (is_bf16) {
        lanes_short narrow = lanes_narrow(x);
        for (int64_t k = 0; k < n; k++) ((uint16_t *)base)[i + k] = narrow[k];
        return;
    }
#ifdef LANES_AVX2
    _mm256_maskstore_ps((float *)base + i, (__m256i)lanes_first(n), (__m256)x);
#else
    for (int64_t k = 0; k < n; k++) ((float *)base)[i + k] = x[k];
#endif
#endif
}

/* Loads the elements before `end`, at most LANES. */
LANES_INLINE lanes lanes_load_upto(bool is_bf16, const void *base, int64_t i, int64_t end) {
    return end - i >= LANES ? lanes_load(is_bf16, base, i) : lanes_load_some(is_bf16, base, i, end - i);
}

LANES_INLINE void lanes_store_upto(bool is_bf16, void *base, int64_t i, int64_t end, lanes x) {
    if (end - i >= LANES)
        lanes_store(is_bf16, base, i, x);
    else
        lanes_store_some(is_bf16, base, i, end - i, x);
}

/* Selects x in the lanes before `end`, `other` in the rest. */
LANES_INLINE lanes lanes_upto(int64_t i, int64_t end, lanes x, lanes other) {
    return end - i >= LANES ? x : lanes_select(lanes_first(end - i), x, other);
}

/* ---- Reducing a vector to one number by halving, always in the same order ---- */

LANES_INLINE float lanes_reduce_sum(lanes x) {
    float part[LANES];
    memcpy(part, &x, sizeof part);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) part[i] += part[i + width];
    return part[0];
}

/* Return x if it is larger (smaller) than so_far or NaN, else so_far. */
LANES_INLINE lanes lanes_max_keep_nan(lanes so_far, lanes x) {
    return lanes_select(lanes_greater(x, so_far) | lanes_nan(x), x, so_far);
}
LANES_INLINE lanes lanes_min_keep_nan(lanes so_far, lanes x) {
    return lanes_select(lanes_greater(so_far, x) | lanes_nan(x), x, so_far);
}

/* Returns the maximum; if one operand is NaN, the result depends on the processor. */
LANES_INLINE lanes lanes_max(lanes a, lanes b) {
#if defined LANES_AVX512
    return (lanes)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined LANES_AVX2
    return (lanes)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return lanes_select(lanes_greater(a, b), a, b);
#endif
}

LANES_INLINE float lanes_reduce_max(lanes x) {
    float best = x[0];
    for (int i = 1; i < LANES; i++) best = x[i] > best || x[i] != x[i] ? x[i] : best;
    return best;
}
LANES_INLINE float lanes_reduce_min(lanes x) {
    float best = x[0];
    for (int i = 1; i < LANES; i++) best = x[i] < best || x[i] != x[i] ? x[i] : best;
    return best;
}

/* ---- Functions ---- */

/* 1 / sqrt(x), x > 0: the processor's estimate with 12 or 14 bits and one Newton step, r (3 - x r^2) / 2, which
 * doubles the number of bits. For infinity the step would compute 0 * infinity: the estimate, 0, is returned
 * instead. */
LANES_INLINE lanes lanes_rsqrt(lanes x) {
#ifdef __x86_64__
#if defined LANES_AVX512
    lanes r = (lanes)_mm512_rsqrt14_ps((__m512)x);
#elif defined LANES_AVX2
    lanes r = (lanes)_mm256_rsqrt_ps((__m256)x);
#else
    lanes r = (lanes)_mm_rsqrt_ps((__m128)x);
#endif
    lanes refined = r * (1.5f - (0.5f * x) * (r * r));
    return lanes_select(lanes_equal(r, (lanes){0}), r, refined);
#else
    for (int i = 0; i < LANES; i++) x[i] = 1 / sqrtf(x[i]);
    return x;
#endif
}

/* exp(x) for x <= 88, relative error below 2^-22; 0 below -87, where f32's normal numbers end. vector_math.h has an
 * exponential for plain loops, which gcc does not vectorise over a single vector.
 *
 * exp(x) = 2^n exp(r) with n = round(x / ln 2) and |r| <= ln 2 / 2. r is computed by subtracting n ln 2 in two
 * parts, the first short enough for an exact product (Cody and Waite 1980); exp(r) is the Taylor polynomial of
 * degree 7, whose error at the ends is 5e-9; 2^n is built from its exponent bits. */
LANES_INLINE lanes lanes_exp(lanes x) {
    const float magic = 0x1.8p23f; /* adding it rounds to an integer */
    lanes_mask underflows = lanes_greater(lanes_splat(-87), x);
    lanes clamped = lanes_select(underflows, (lanes){0}, x);
    lanes n = (clamped * 0x1.715476p0f + magic) - magic;
    lanes r = (clamped - n * 0x1.62ep-1f) - n * 0x1.0bfbe8p-15f;
    lanes p = lanes_splat(1.0f / 5040);
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    lanes_int power = (__builtin_convertvector(n, lanes_int) + 127) << 23;
    return lanes_select(underflows, (lanes){0}, p * (lanes)power);
}

/* Slow: for exponents that networks do not use. */
LANES_INLINE lanes lanes_pow(lanes x, float exponent) {
    float part[LANES];
    memcpy(part, &x, sizeof part);
    for (int i = 0; i < LANES; i++) part[i] = vm_pow(part[i], exponent);
    memcpy(&x, part, sizeof part);
    return x;
}

/* Defines loop_f32 and loop_bf16 from a function with `is_bf16` before its other parameters. */
#define LANES_BOTH_TYPES(loop, parameters, ...)                                                              \
    static void loop##_f32 parameters {                                                                      \
        loop(false, __VA_ARGS__);                                                                            \
    }                                                                                                        \
    static void loop##_bf16 parameters {                                                                     \
        loop(true, __VA_ARGS__);                                                                             \
    }

#endif
