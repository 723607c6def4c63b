/* Converts elements of every type to doubles and back.
 *
 * Each type has three small functions: round (to a double the type can represent), encode (to the stored element;
 * integers round here) and decode (back to a double). The public functions are loops around them, expanded from one
 * list, so that the type is a compile-time constant in each loop and compilers can vectorise it.
 *
 * bf16 and f16 are rounded by computing |x| + c - c, where c is the power of two whose unit in the last place is the
 * spacing of the narrow type around x. The processor rounds the addition once, ties to even; the subtraction is
 * exact. Rounding first to f32 and then to f16 would be wrong: 1 + 2^-11 + 2^-30 is above a midpoint of f16, and f32
 * rounds it to that midpoint.
 */
#include "base/number.h"

#include <math.h>
#include <string.h>

static uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- Rounding to a narrow float type ---- */

typedef struct float_format {
    double precision; /* 2^(stored mantissa bits) */
    double tiny;      /* the smallest normal number */
    double huge;      /* the smallest power of two that overflows */
} float_format;

static const float_format bf16 = {0x1p7, 0x1p-126, 0x1p128};
static const float_format f16 = {0x1p10, 0x1p-14, 0x1p16};

static inline double round_narrow(float_format format, double x) {
    const uint64_t exponent_mask = UINT64_C(0x7ff) << 52;
    double size = fabs(x);
    size = size < format.huge ? size : format.huge; /* also replaces NaN, which is restored at the end */
    /* Below `tiny` (subnormal numbers) the spacing is the same as just above it. */
    double power = double_of(bits_of(size > format.tiny ? size : format.tiny) & exponent_mask);
    double c = power * (0x1p52 / format.precision);
    double rounded = (size + c) - c;
    rounded = rounded < format.huge ? rounded : (double)INFINITY;
    return x != x ? x : copysign(rounded, x);
}

/* ---- round, encode and decode of each type ---- */

static inline double round_f64(double x) {
    return x;
}
static inline double encode_f64(double x) {
    return x;
}
static inline double decode_f64(double x) {
    return x;
}

static inline double round_f32(double x) {
    return (double)(float)x;
}
static inline float encode_f32(double x) {
    return (float)x;
}
static inline double decode_f32(float x) {
    return (double)x;
}

/* bf16 is the upper half of an f32. */
static inline double round_bf16(double x) {
    return round_narrow(bf16, x);
}
static inline uint16_t encode_bf16(double x) {
    float single = (float)round_bf16(x); /* exact */
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    /* Set a mantissa bit: a NaN with a payload only in the lower half must not become infinity. */
    return (uint16_t)(bits >> 16 | (x != x ? 0x40u : 0u));
}
static inline double decode_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float single;
    memcpy(&single, &bits, sizeof single);
    return (double)single;
}

/* f16: sign, 5 exponent bits with bias 15, 10 mantissa bits. Exponent and mantissa together, read as an integer,
 * number the non-negative values from zero on; subnormal numbers are 2^-24 apart. */
enum { F16_FRACTION = 10, F16_SHIFT = 52 - F16_FRACTION, F16_BIAS_STEP = (1023 - 15) << F16_FRACTION };

static inline double round_f16(double x) {
    return round_narrow(f16, x);
}
static inline uint16_t encode_f16(double x) {
    double rounded = round_f16(x), size = fabs(rounded);
    uint32_t sign = signbit(x) ? 0x8000u : 0u;
    uint32_t fraction = (uint32_t)(bits_of(rounded) >> F16_SHIFT) & 0x3ffu;
    if (x != x) return (uint16_t)(sign | 0x7e00u | fraction);
    if (size > f16.huge) return (uint16_t)(sign | 0x7c00u);
    if (size < f16.tiny) return (uint16_t)(sign | (uint32_t)(size * 0x1p24));
    return (uint16_t)(sign | ((uint32_t)(bits_of(size) >> F16_SHIFT) - F16_BIAS_STEP));
}
static inline double decode_f16(uint16_t x) {
    uint64_t sign = (uint64_t)(x & 0x8000u) << 48;
    uint32_t magnitude = x & 0x7fffu;
    if (magnitude < 0x400u) return double_of(sign | bits_of((double)magnitude * 0x1p-24));
    uint64_t step = magnitude < 0x7c00u ? F16_BIAS_STEP : (uint64_t)(0x7ff - 0x1f) << F16_FRACTION;
    return double_of(sign | (magnitude + step) << F16_SHIFT);
}

/* C's conversion truncates. Saturate first: converting a value that does not fit is undefined behaviour. */
static inline int32_t encode_i32(double x) {
    return x != x ? 0 : x <= (double)INT32_MIN ? INT32_MIN : x >= (double)INT32_MAX ? INT32_MAX : (int32_t)x;
}
static inline double decode_i32(int32_t x) {
    return (double)x;
}
static inline double round_i32(double x) {
    return decode_i32(encode_i32(x));
}

static inline int64_t encode_i64(double x) {
    return x != x ? 0 : x <= -0x1p63 ? INT64_MIN : x >= 0x1p63 ? INT64_MAX : (int64_t)x;
}
static inline double decode_i64(int64_t x) {
    return (double)x;
}
static inline double round_i64(double x) {
    return decode_i64(encode_i64(x));
}

static inline uint8_t encode_u8(double x) {
    return !(x > 0) ? 0 : x >= UINT8_MAX ? UINT8_MAX : (uint8_t)x;
}
static inline double decode_u8(uint8_t x) {
    return x;
}
static inline double round_u8(double x) {
    return decode_u8(encode_u8(x));
}

static inline int8_t encode_i8(double x) {
    return (int8_t)(x != x ? 0 : x <= INT8_MIN ? INT8_MIN : x >= INT8_MAX ? INT8_MAX : x);
}
static inline double decode_i8(int8_t x) {
    return x;
}
static inline double round_i8(double x) {
    return decode_i8(encode_i8(x));
}

static inline uint8_t encode_bool(double x) {
    return x != 0;
}
static inline double decode_bool(uint8_t x) {
    return x != 0;
}
static inline double round_bool(double x) {
    return x != 0;
}

#define EACH_TYPE(X)                                                                                         \
    X(F32, f32, float)                                                                                       \
    X(F64, f64, double)                                                                                      \
    X(BF16, bf16, uint16_t)                                                                                  \
    X(F16, f16, uint16_t)                                                                                    \
    X(I32, i32, int32_t)                                                                                     \
    X(I64, i64, int64_t)                                                                                     \
    X(U8, u8, uint8_t)                                                                                       \
    X(BOOL, bool, uint8_t)                                                                                   \
    X(I8, i8, int8_t)

/* ---- The loops ---- */

void tu__round_array(tu_dtype dtype, double *x, int64_t count) {
    switch (dtype) {
#define ROUND(id, name, element)                                                                             \
    case TU_##id:                                                                                            \
        for (int64_t i = 0; i < count; i++) x[i] = round_##name(x[i]);                                       \
        break;
        EACH_TYPE(ROUND)
#undef ROUND
    default: break;
    }
}

void tu__load_array(tu_dtype dtype, const void *source, int64_t count, double *target) {
    const char *bytes = source;
    switch (dtype) {
#define LOAD(id, name, element)                                                                              \
    case TU_##id:                                                                                            \
        for (int64_t i = 0; i < count; i++) {                                                                \
            element stored;                                                                                  \
            memcpy(&stored, bytes + i * (int64_t)sizeof stored, sizeof stored);                              \
            target[i] = decode_##name(stored);                                                               \
        }                                                                                                    \
        break;
        EACH_TYPE(LOAD)
#undef LOAD
    default:
        for (int64_t i = 0; i < count; i++) target[i] = 0;
    }
}

void tu__store_array(tu_dtype dtype, const double *source, int64_t count, void *target) {
    char *bytes = target;
    switch (dtype) {
#define STORE(id, name, element)                                                                             \
    case TU_##id:                                                                                            \
        for (int64_t i = 0; i < count; i++) {                                                                \
            element stored = encode_##name(source[i]);                                                       \
            memcpy(bytes + i * (int64_t)sizeof stored, &stored, sizeof stored);                              \
        }                                                                                                    \
        break;
        EACH_TYPE(STORE)
#undef STORE
    default: break;
    }
}

double tu__round_to(tu_dtype dtype, double x) {
    tu__round_array(dtype, &x, 1);
    return x;
}

double tu__load(tu_dtype dtype, const void *base, int64_t index) {
    double x;
    tu__load_array(dtype, (const char *)base + index * (int64_t)tu_dtype_size(dtype), 1, &x);
    return x;
}

void tu__store(tu_dtype dtype, void *base, int64_t index, double x) {
    tu__store_array(dtype, &x, 1, (char *)base + index * (int64_t)tu_dtype_size(dtype));
}

/* ---- The public conversions between f32 and the 16-bit float types: via double, so they also round once ---- */

#define F32_CONVERSIONS(name)                                                                                \
    void tu_##name##_from_f32(const float *source, size_t count, uint16_t *target) {                         \
        for (size_t i = 0; i < count; i++) target[i] = encode_##name((double)source[i]);                     \
    }                                                                                                        \
    void tu_f32_from_##name(const uint16_t *source, size_t count, float *target) {                           \
        for (size_t i = 0; i < count; i++) target[i] = (float)decode_##name(source[i]);                      \
    }
F32_CONVERSIONS(bf16)
F32_CONVERSIONS(f16)
#undef F32_CONVERSIONS
