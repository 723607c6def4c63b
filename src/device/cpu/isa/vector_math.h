/* Elementary functions in f32, without branches so that compilers vectorise loops around them.
 *
 * Each function reduces its argument to a small interval and evaluates a polynomial there, fitted at Chebyshev
 * points with 40 digits (the fits have errors below 2^-26; the rest is rounding). Maximum errors, measured by
 * tests/unit/test_cpu_vector_math.c over the whole range:
 *
 *     exp, log 1; expm1, log1p, erf 1.5; tanh 2.3 units in the last place
 *     sin, cos, tan, pow                   half a unit: computed in f64
 *
 * For infinities, NaN, zero and subnormal numbers the results are those of libm. sin, cos and tan of numbers above
 * 2^30 are meaningless, since the reduction uses 99 bits of pi/2. */
#ifndef TU__DEVICE_CPU_ISA_VECTOR_MATH_H
#define TU__DEVICE_CPU_ISA_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define VECTOR_MATH static inline __attribute__((always_inline, unused))

VECTOR_MATH uint32_t vm_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

VECTOR_MATH float vm_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

VECTOR_MATH uint64_t vm_bits64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

VECTOR_MATH double vm_double(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

VECTOR_MATH float vm_copysign(float magnitude, float sign) {
    return vm_float((vm_bits(magnitude) & 0x7fffffffu) | (vm_bits(sign) & 0x80000000u));
}

VECTOR_MATH float vm_abs(float x) {
    return vm_float(vm_bits(x) & 0x7fffffffu);
}

/* ---- exp ---- */

/* Adding it rounds x to an integer, in the low bits of the sum. */
#define VM_ROUNDER 0x1.8p23f

/* x = n ln 2 + r with |r| <= ln 2 / 2; n is *sum - VM_ROUNDER. Returns exp(r) - 1. */
VECTOR_MATH float vm_exp_reduced(float x, float *sum) {
    *sum = x * 1.44269504f + VM_ROUNDER;
    float n = *sum - VM_ROUNDER;
    float r = x - n * 0x1.62ep-1f; /* the high bits of ln 2: n times them is exact */
    r = r - n * 0x1.0bfbe8p-15f;
    float q = 0.0001989118016f;
    q = q * r + 0.001393382049f;
    q = q * r + 0.008333310755f;
    q = q * r + 0.04166646339f;
    q = q * r + 0.1666666668f;
    q = q * r + 0.5000000014f;
    return q * r * r + r;
}

VECTOR_MATH float vm_exp(float x) {
    x = x < -105.0f ? -105.0f : x; /* NaN stays NaN */
    x = x > 89.0f ? 89.0f : x;
    float sum, e = vm_exp_reduced(x, &sum);
    /* 2^n as two factors, since n is between -151 and 128. */
    int32_t n = (int32_t)(vm_bits(sum) - vm_bits(VM_ROUNDER)), half = n >> 1;
    float low = vm_float((uint32_t)(half + 127) << 23), high = vm_float((uint32_t)(n - half + 127) << 23);
    return (e + 1.0f) * low * high;
}

/* exp(x) - 1 = 2 (2^(n-1) (exp(r) - 1) + (2^(n-1) - 1/2)). */
VECTOR_MATH float vm_expm1(float x) {
    float bounded = x < -20.0f ? -20.0f : x;
    bounded = bounded > 89.0f ? 89.0f : bounded;
    float sum, e = vm_exp_reduced(bounded, &sum);
    uint32_t n = vm_bits(sum) - vm_bits(VM_ROUNDER);
    float half = vm_float((n + 126) << 23);
    float result = 2.0f * (half * e + (half - 0.5f));
    return x == 0.0f ? x : result; /* keeps the sign of zero */
}

/* ---- log ---- */

/* Returns log(x) - shift ln 2 for a positive, finite, normal x = 2^n m with m in [sqrt 1/2, sqrt 2). */
VECTOR_MATH float vm_log_normal(float x, float shift) {
    uint32_t bits = vm_bits(x) - 0x3f3504f3u; /* the bits of sqrt 1/2 */
    float n = (float)((int32_t)bits >> 23) - shift;
    float f = vm_float((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    float p = 0.06972518634f;
    p = p * f - 0.1148121206f;
    p = p * f + 0.1168578472f;
    p = p * f - 0.1242552336f;
    p = p * f + 0.1424900724f;
    p = p * f - 0.1666780713f;
    p = p * f + 0.2000071721f;
    p = p * f - 0.2499999693f;
    p = p * f + 0.3333333117f;
    float square = f * f;
    float rest = p * f * square + n * 0x1.0bfbe8p-15f - 0.5f * square;
    return n * 0x1.62ep-1f + (f + rest);
}

VECTOR_MATH float vm_log(float x) {
    float tiny = x < 0x1p-126f ? 0x1p23f : 1.0f, shift = x < 0x1p-126f ? 23.0f : 0.0f;
    float result = vm_log_normal(x * tiny, shift);
    result = x == 0.0f ? -INFINITY : result;
    result = x < 0.0f ? NAN : result;
    return x < INFINITY ? result : x; /* infinity and NaN */
}

/* log(1 + x): with u = 1 + x rounded, the rounding error c is known, and log(u + c) = log u + c / u. */
VECTOR_MATH float vm_log1p(float x) {
    float u = 1.0f + x;
    float rounding_error = x > 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    float result = vm_log_normal(u, 0.0f) + rounding_error / u;
    result = x == -1.0f ? -INFINITY : result;
    result = x < -1.0f ? NAN : result;
    result = x == 0.0f ? x : result;
    return x < 0x1p127f ? result : vm_log(x);
}

/* ---- tanh, erf ---- */

/* tanh |x| = e / (e + 2), e = exp(2 |x|) - 1, without cancellation. */
VECTOR_MATH float vm_tanh(float x) {
    float magnitude = vm_abs(x);
    magnitude = magnitude > 10.0f ? 10.0f : magnitude; /* 1 from 9.01 on */
    float e = vm_expm1(2.0f * magnitude);
    return vm_copysign(e / (e + 2.0f), x);
}

/* Near zero x (1 + p(x^2)); elsewhere 1 - exp(-q(x)), q = -log erfc. */
VECTOR_MATH float vm_erf(float x) {
    float magnitude = vm_abs(x), s = x * x;
    float p = 8.299430835e-5f;
    p = p * s - 0.000812624891f;
    p = p * s + 0.005199613873f;
    p = p * s - 0.02685884409f;
    p = p * s + 0.1128368593f;
    p = p * s - 0.3761263315f;
    p = p * s + 0.1283791666f;
    float near = x + x * p;
    float t = magnitude > 4.0f ? 4.0f : magnitude;
    float q = -1.643487203e-6f;
    q = q * t + 4.617800016e-5f;
    q = q * t - 0.0005977610695f;
    q = q * t + 0.004763749466f;
    q = q * t - 0.02643181434f;
    q = q * t + 0.1100964944f;
    q = q * t + 0.6318116364f;
    q = q * t + 0.1302397910f; /* 1.1302… minus the 1 that is added exactly below */
    q = q * t - 0.0003211113002f;
    float far = vm_copysign(1.0f - vm_exp(-(q + t)), x);
    return magnitude > 0.93f ? far : near;
}

/* ---- sin, cos, tan: reduced and computed in f64 ---- */

#define VM_ROUNDER64 0x1.8p52

/* x = n pi/2 + r; returns n in the low bits of an integer. */
VECTOR_MATH uint64_t vm_quadrant(float x, double *r) {
    double wide = (double)x, sum = wide * 0.63661977236758134308 + VM_ROUNDER64, n = sum - VM_ROUNDER64;
    /* pi/2 in parts of 23, 23 and 53 bits: n times the first two is exact for n below 2^30. */
    *r = ((wide - n * 0x1.921fb4p+0) - n * 0x1.4442dp-24) - n * 0x1.8469898cc517p-48;
    return vm_bits64(sum);
}

VECTOR_MATH double vm_sin_reduced(double r) {
    double z = r * r, p = 2.724931405e-6;
    p = p * z - 0.0001984008201;
    p = p * z + 0.008333331866;
    p = p * z - 0.1666666666;
    return r + r * z * p;
}

VECTOR_MATH double vm_cos_reduced(double r) {
    double z = r * r, p = -2.730044862e-7;
    p = p * z + 2.480059644e-5;
    p = p * z - 0.001388888766;
    p = p * z + 0.04166666666;
    return 1.0 - 0.5 * z + z * z * p;
}

/* Returns the sine of (quadrant + turn) pi/2 + r. */
VECTOR_MATH double vm_sin_of_quadrant(uint64_t quadrant, uint64_t turn, double r) {
    uint64_t q = quadrant + turn;
    double y = (q & 1) ? vm_cos_reduced(r) : vm_sin_reduced(r);
    return vm_double(vm_bits64(y) ^ (q & 2) << 62);
}

VECTOR_MATH float vm_sin(float x) {
    double r;
    uint64_t quadrant = vm_quadrant(x, &r);
    float y = (float)vm_sin_of_quadrant(quadrant, 0, r);
    return x == 0.0f ? x : y;
}

VECTOR_MATH float vm_cos(float x) {
    double r;
    uint64_t quadrant = vm_quadrant(x, &r);
    return (float)vm_sin_of_quadrant(quadrant, 1, r);
}

VECTOR_MATH float vm_tan(float x) {
    double r;
    uint64_t quadrant = vm_quadrant(x, &r);
    float y = (float)(vm_sin_of_quadrant(quadrant, 0, r) / vm_sin_of_quadrant(quadrant, 1, r));
    return x == 0.0f ? x : y;
}

/* ---- pow: |x|^y = 2^(y log2 |x|), the logarithm to 36 bits in f64 ---- */

VECTOR_MATH double vm_log2_wide(double x) {
    uint64_t bits = vm_bits64(x) - 0x3fe6a09e667f3bcdu; /* the bits of sqrt 1/2 */
    /* n + 1023 from the exponent bits: 64-bit integers have no vector conversion before AVX-512. */
    double n = vm_double(((bits + ((uint64_t)1023 << 52)) >> 52) | 0x4330000000000000u) - 0x1p52 - 1023.0;
    double m = vm_double((bits & 0xfffffffffffffu) + 0x3fe6a09e667f3bcdu);
    double s = (m - 1.0) / (m + 1.0), z = s * s, p = 0.1936318693;
    p = p * z + 0.2219137338;
    p = p * z + 0.2857175497;
    p = p * z + 0.399999988;
    p = p * z + 0.6666666667;
    return n + (2.0 * s + s * z * p) * 1.44269504088896340736;
}

VECTOR_MATH double vm_exp2_wide(double x) {
    x = x < -1000.0 ? -1000.0 : x;
    x = x > 1000.0 ? 1000.0 : x;
    double sum = x + VM_ROUNDER64, r = (x - (sum - VM_ROUNDER64)) * 0.69314718055994530942;
    double q = 2.485981068e-5;
    q = q * r + 0.0001989950653;
    q = q * r + 0.001388885377;
    q = q * r + 0.008333298204;
    q = q * r + 0.04166666672;
    q = q * r + 0.1666666672;
    q = q * r + 0.5;
    uint64_t n = vm_bits64(sum) - vm_bits64(VM_ROUNDER64);
    return (1.0 + r + q * r * r) * vm_double((n + 1023) << 52);
}

VECTOR_MATH float vm_pow(float x, float y) {
    float magnitude = vm_abs(x), half = 0.5f * y;
    /* Numbers of 2^24 or more are even integers; VM_ROUNDER works for numbers below 2^22. */
    float rounded = vm_abs(y) < 0x1p22f ? (y + VM_ROUNDER) - VM_ROUNDER : __builtin_rintf(y);
    float rounded_half = vm_abs(half) < 0x1p22f ? (half + VM_ROUNDER) - VM_ROUNDER : __builtin_rintf(half);
    double exponent = (double)y * vm_log2_wide((double)magnitude);
    exponent = magnitude == 0.0f ? (y > 0.0f ? -1000.0 : 1000.0) : exponent;
    exponent = magnitude == INFINITY ? (y > 0.0f ? 1000.0 : -1000.0) : exponent;
    float result = (float)vm_exp2_wide(exponent);
    result = magnitude == 1.0f ? 1.0f : result;
    result = y != y ? y : result;
    result = x != x ? x : result;
    float odd = rounded_half != half ? -1.0f : 1.0f;
    float negative = rounded != y ? NAN : odd * result;
    result =
        vm_bits(x) >> 31
            ? (magnitude == 0.0f || magnitude == INFINITY ? (rounded == y ? odd * result : result) : negative)
            : result;
    result = x == 1.0f ? 1.0f : result;
    return y == 0.0f ? 1.0f : result;
}

#endif
