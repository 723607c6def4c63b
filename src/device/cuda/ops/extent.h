/* Host side of kernels/extent.cuh: index types, fast division, and word sizes for copies. */
#ifndef TU__DEVICE_CUDA_OPS_EXTENT_H
#define TU__DEVICE_CUDA_OPS_EXTENT_H

#include "device/cuda/runtime/cuda.h"

#include "device/cuda/kernels/extent_args.h"

static inline bool cuda_fits_u32(int64_t count) {
    return count <= INT32_MAX;
}

/* Returns the type of indices below `count`. */
static inline const char *cuda_index_type(int64_t count) {
    return cuda_fits_u32(count) ? "u32" : "u64";
}

static inline extent cuda_extent(int64_t size) {
    return (extent){size, cuda_fast_divmod(cuda_fits_u32(size) ? (uint32_t)size : 1)};
}

/* Returns the unsigned type with `bytes` bytes (1, 2, 4, 8 or 16) that single elements or groups of them are copied
 * as. */
static inline const char *cuda_word(size_t bytes) {
    return bytes == 16 ? "u128" : bytes == 8 ? "u64" : bytes == 4 ? "u32" : bytes == 2 ? "u16" : "u8";
}

/* Returns the largest word size, at most 16 bytes, that divides `bytes`. */
static inline size_t cuda_widest_word(int64_t bytes) {
    size_t word = 16;
    while (bytes % (int64_t)word) word /= 2;
    return word;
}

#endif
