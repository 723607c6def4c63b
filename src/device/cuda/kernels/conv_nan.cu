/* Restores NaN in the result of a 1x1 convolution whose relu, by a library, has turned it into 0, in bf16 and f16.
 *
 *     y [rows, columns] = relu(x [rows, depth] times the filter [columns, depth] transposed + bias + residual)
 *
 * Filter and bias are finite. So an element of y is NaN only if its row of x contains NaN or infinity, or if its element of
 * the residual is NaN. The kernel reads x and the residual. Nearly always it finds nothing, and leaves y as it is; otherwise a
 * block computes its tile again, and stores the elements that are NaN.
 *
 * It moves the bytes of x and of the residual. For each tile of y it notes whether it has NaN, so that a later kernel that y is
 * the residual of need not read it.
 */
#include "prelude.cuh"
#include "conv_nan_args.h"

enum { ROWS = 64 /* of a tile */, THREADS = 256, AHEAD = 4 };

/* The lowest bit of the exponent. */
template <typename T> struct exponent;
template <> struct exponent<bf16> { enum { LOWEST = 0x0080 }; };
template <> struct exponent<f16> { enum { LOWEST = 0x0400 }; };

/* Returns something other than 0 if one of two elements is NaN or infinite: an exponent of ones only overflows into the sign. */
template <typename T> __device__ inline u32 find_non_finite(u32 two) {
    return ((two & 0x7fff7fffu) + (u32)exponent<T>::LOWEST * 0x10001u) & 0x80008000u;
}

/* Looks at this thread's share of elements, in words of 16 bytes, of which several are loaded before the first is used. */
template <typename T> __device__ inline u32 find_non_finite(const void *elements, i64 count) {
    const pack<u32, 4> *words = (const pack<u32, 4> *)elements;
    u32 found = 0;
    for (i64 first = threadIdx.x; first < count / 8; first += AHEAD * THREADS) {
        pack<u32, 4> loaded[AHEAD] = {};
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (first + u * THREADS < count / 8) loaded[u] = words[first + u * THREADS];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
#pragma unroll
            for (int i = 0; i < 4; i++) found |= find_non_finite<T>(loaded[u].element[i]);
    }
    return found;
}

/* Returns an element of y before the relu. Its bits need not be those of the library, only whether it is NaN. */
template <typename T> __device__ inline float compute(const conv_nan_args &a, i64 row, int column) {
    const T *x = (const T *)a.x + row * a.depth, *filter = (const T *)a.filter + (i64)column * a.depth;
    float sum = a.bias ? widen(((const T *)a.bias)[column]) : 0.0f;
    if (a.residual) sum += widen(((const T *)a.residual)[row * a.columns + column]);
    for (int k = 0; k < a.depth; k++) sum += widen(x[k]) * widen(filter[k]);
    return sum;
}

/* Blocks: one per tile. */
template <typename T> __global__ void __launch_bounds__(THREADS) conv_nan(conv_nan_args a) {
    __shared__ int is_suspect, has_nan;
    const i64 first_row = (i64)blockIdx.x * ROWS;
    const int rows = a.rows - first_row < ROWS ? (int)(a.rows - first_row) : ROWS;
    if (threadIdx.x == 0) is_suspect = has_nan = 0;
    __syncthreads();
    u32 found = find_non_finite<T>((const T *)a.x + first_row * a.depth, (i64)rows * a.depth);
    if (a.residual && (!a.residual_notes || a.residual_notes[blockIdx.x]))
        found |= find_non_finite<T>((const T *)a.residual + first_row * a.columns, (i64)rows * a.columns);
    if (found) is_suspect = 1;
    __syncthreads();
    for (int i = threadIdx.x; is_suspect && i < rows * a.columns; i += THREADS) {
        float value = compute<T>(a, first_row + i / a.columns, i % a.columns);
        if (value == value) continue;
        ((T *)a.y)[first_row * a.columns + i] = narrow<T>(value);
        has_nan = 1;
    }
    __syncthreads();
    if (threadIdx.x == 0) a.notes[blockIdx.x] = has_nan;
}
