/* Loads and stores float elements as doubles. The fake CUDA libraries compute in double and round each result
 * once. */
#ifndef FAKE_CUDA_ELEMENTS_H
#define FAKE_CUDA_ELEMENTS_H

#include <library_types.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "half.h"

inline size_t element_bytes(cudaDataType type) {
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}
inline bool is_supported_float(cudaDataType type) {
    return type == CUDA_R_64F || type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
}

inline float bits_as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline uint32_t float_as_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline double load_element(cudaDataType type, const void *data, int64_t index) {
    switch (type) {
    case CUDA_R_64F: return ((const double *)data)[index];
    case CUDA_R_32F: return ((const float *)data)[index];
    case CUDA_R_16F: return half_to_float(((const uint16_t *)data)[index]);
    default: return bits_as_float((uint32_t)((const uint16_t *)data)[index] << 16);
    }
}

/* Rounds to odd (sticky last bit), so that the following rounding to 16 bits is not a double rounding. */
inline float round_to_odd(double x) {
    float f = (float)x;
    if ((double)f == x || x != x || std::isinf(f)) return f;
    if (std::fabs((double)f) > std::fabs(x)) f = std::nextafterf(f, 0.0f);
    return bits_as_float(float_as_bits(f) | 1u);
}
inline uint16_t float_to_bfloat(float x) {
    uint32_t bits = float_as_bits(x);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline void store_element(cudaDataType type, void *data, int64_t index, double x) {
    switch (type) {
    case CUDA_R_64F: ((double *)data)[index] = x; break;
    case CUDA_R_32F: ((float *)data)[index] = (float)x; break;
    case CUDA_R_16F: ((uint16_t *)data)[index] = float_to_half(round_to_odd(x)); break;
    default: ((uint16_t *)data)[index] = float_to_bfloat(round_to_odd(x));
    }
}

/* Rounds to tf32 (10-bit mantissa), as tensor cores do with matmul operands. */
inline double round_to_tf32(double x) {
    uint32_t bits = float_as_bits((float)x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return x;
    return bits_as_float((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

#endif
