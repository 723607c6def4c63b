/* f16 conversions by integer arithmetic, which prelude.cuh does with GPU instructions. Also part of
 * emulated_device.cuh's text. */
#ifndef FAKE_CUDA_HALF_H
#define FAKE_CUDA_HALF_H

inline float half_to_float(unsigned short bits) {
    unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 1023u;
    unsigned wide = exponent == 31 ? 0x7f800000u | fraction << 13 : (exponent + 112u) << 23 | fraction << 13;
    float size;
    __builtin_memcpy(&size, &wide, sizeof size);
    if (!exponent) size = (float)fraction * 0x1p-24f;
    return sign ? -size : size;
}

/* Rounds to nearest, ties to even; NaN becomes 0x7fff, as on a GPU. */
inline unsigned short float_to_half(float x) {
    unsigned bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    unsigned sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;
    if (size >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u); /* 65520 and more */
    if (size < 0x38800000u) { /* below 2^-14: adding 2^-1 leaves units of 2^-24 in the last bits */
        float moved;
        __builtin_memcpy(&moved, &size, sizeof moved);
        moved += 0.5f;
        __builtin_memcpy(&size, &moved, sizeof size);
        return (unsigned short)(sign | (size - 0x3f000000u));
    }
    unsigned rounded = size - 0x38000000u + 0xfffu + (size >> 13 & 1u);
    return (unsigned short)(sign | rounded >> 13);
}

#endif
