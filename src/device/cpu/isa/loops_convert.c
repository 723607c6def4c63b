/* Conversion of element types to and from f32: bf16 and f16 round to nearest even; u8 and i8 truncate and saturate; bool
 * is x != 0. For numbers that f32 represents exactly, the results are those of src/base/number.h.
 *
 * bf16 is the upper half of an f32: rounding adds just less than half of the lower half's range, plus the odd bit,
 * so that ties round to even. In f16, exponent and fraction form one integer that numbers the values from zero on,
 * so rounding may carry into the exponent; subnormal numbers are rounded by adding 1/2, whose unit in the last place
 * is theirs. Processors with F16C have an instruction for each direction, with the same results. */
#include "device/cpu/isa/loops.h"
#include "device/cpu/isa/vector_math.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

static inline float decode_bf16(uint16_t x) {
    return vm_float((uint32_t)x << 16);
}

static inline uint16_t encode_bf16(float x) {
    uint32_t bits = vm_bits(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(x != x ? bits >> 16 | 0x40u : rounded);
}

static inline float decode_f16(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, size = x & 0x7fffu;
    uint32_t normal = (size << 13) + (size < 0x7c00u ? 112u << 23 : 224u << 23);
    uint32_t tiny = vm_bits((float)(int32_t)size * 0x1p-24f);
    return vm_float(sign | (size < 0x400u ? tiny : normal));
}

static inline uint16_t encode_f16(float x) {
    uint32_t bits = vm_bits(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    uint32_t normal = ((size + 0xfffu + (size >> 13 & 1)) >> 13) - (112u << 10);
    uint32_t tiny = vm_bits(vm_float(size) + 0.5f) - vm_bits(0.5f);
    uint32_t result = size < 0x38800000u ? tiny : normal; /* 2^-14 */
    result = size >= 0x477ff000u ? 0x7c00u : result;      /* 65520 and above round to infinity */
    result = size > 0x7f800000u ? 0x7e00u : result;
    return (uint16_t)(sign | result);
}

static inline float nearest_f16(float x) {
    return decode_f16(encode_f16(x));
}

static inline float decode_u8(uint8_t x) {
    return (float)x;
}

static inline uint8_t encode_u8(float x) {
    float bounded = x > 0.0f ? x : 0.0f; /* NaN becomes 0 */
    bounded = bounded < 255.0f ? bounded : 255.0f;
    return (uint8_t)(int32_t)bounded;
}

static inline float nearest_u8(float x) {
    return decode_u8(encode_u8(x));
}

static inline float decode_i8(int8_t x) {
    return x;
}

static inline int8_t encode_i8(float x) {
    return (int8_t)(x != x ? 0 : x <= -128.0f ? -128 : x >= 127.0f ? 127 : (int32_t)x);
}

static inline float nearest_i8(float x) {
    return decode_i8(encode_i8(x));
}

static inline float decode_bool(uint8_t x) {
    return x ? 1.0f : 0.0f;
}

static inline uint8_t encode_bool(float x) {
    return x != 0.0f;
}

static inline float nearest_bool(float x) {
    return x != 0.0f ? 1.0f : 0.0f;
}

/* Encodes and decodes without leaving 32 bits. */
static inline float nearest_bf16(float x) {
    uint32_t bits = vm_bits(x);
    uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
    return vm_float(x != x ? bits | 0x400000u : rounded);
}

#define CONVERSIONS(name, element)                                                                           \
    static void load_##name(int64_t n, const void *from, float *to) {                                        \
        const element *source = from;                                                                        \
        LOOP_INDEPENDENT                                                                                     \
        for (int64_t i = 0; i < n; i++) to[i] = decode_##name(source[i]);                                    \
    }                                                                                                        \
    static void store_##name(int64_t n, const float *from, void *to) {                                       \
        element *target = to;                                                                                \
        LOOP_INDEPENDENT                                                                                     \
        for (int64_t i = 0; i < n; i++) target[i] = encode_##name(from[i]);                                  \
    }                                                                                                        \
    static void round_##name(int64_t n, float *x) {                                                          \
        LOOP_INDEPENDENT                                                                                     \
        for (int64_t i = 0; i < n; i++) x[i] = nearest_##name(x[i]);                                         \
    }

CONVERSIONS(bf16, uint16_t)
CONVERSIONS(u8, uint8_t)
CONVERSIONS(i8, int8_t)
CONVERSIONS(bool, uint8_t)

#ifdef __F16C__

static void load_f16(int64_t n, const void *from, float *to) {
    const uint16_t *source = from;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(to + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(source + i))));
    for (; i < n; i++) to[i] = decode_f16(source[i]);
}

static void store_f16(int64_t n, const float *from, void *to) {
    uint16_t *target = to;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(target + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) target[i] = encode_f16(from[i]);
}

static void round_f16(int64_t n, float *x) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i,
                         _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT)));
    for (; i < n; i++) x[i] = nearest_f16(x[i]);
}

#else
CONVERSIONS(f16, uint16_t)
#endif

static void load_f32(int64_t n, const void *from, float *to) {
    memcpy(to, from, (size_t)n * sizeof *to);
}

static void store_f32(int64_t n, const float *from, void *to) {
    memcpy(to, from, (size_t)n * sizeof *from);
}

extern struct cpu_loops_convert LOOP(cpu_loops_convert);
struct cpu_loops_convert LOOP(cpu_loops_convert) = {
    .load = {[TU_F32] = load_f32,
             [TU_BF16] = load_bf16,
             [TU_F16] = load_f16,
             [TU_U8] = load_u8,
             [TU_BOOL] = load_bool,
             [TU_I8] = load_i8},
    .store = {[TU_F32] = store_f32,
              [TU_BF16] = store_bf16,
              [TU_F16] = store_f16,
              [TU_U8] = store_u8,
              [TU_BOOL] = store_bool,
              [TU_I8] = store_i8},
    .round = {[TU_BF16] = round_bf16,
              [TU_F16] = round_f16,
              [TU_U8] = round_u8,
              [TU_BOOL] = round_bool,
              [TU_I8] = round_i8},
};
