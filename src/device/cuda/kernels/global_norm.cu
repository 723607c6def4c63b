/* The squared global norm of many tensors: of all gradients of a step.
 *
 * Every element is read once, 16 bytes at a time. A block sums the squares of its chunk of one tensor in the tensor's
 * compute type; one more block adds these sums in f64. The distribution over blocks depends only on shapes and the
 * GPU model, so results are bitwise reproducible.
 */
#include "prelude.cuh"
#include "global_norm_args.h"

__device__ inline int tensor_of_block(const global_norm_args &a) {
    int low = 0, high = a.tensors;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (a.first_block[middle] <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return low;
}

template <typename T, int N> __global__ void sum_squares(const __grid_constant__ global_norm_args a) {
    typedef compute_type<T> C;
    __shared__ C scratch[32];
    int t = tensor_of_block(a);
    i64 first = (i64)(blockIdx.x - a.first_block[t]) * a.chunk, last = first + a.chunk;
    if (last > a.count[t]) last = a.count[t];
    const T *x = (const T *)a.x[t];
    C sum = 0;
    i64 words = first + (last - first) / N * N; /* end of the full words */
    for (i64 i = first + (i64)threadIdx.x * N; i < words; i += (i64)GLOBAL_NORM_THREADS * N) {
        const pack<T, N> word = *(const pack<T, N> *)(x + i);
#pragma unroll
        for (int n = 0; n < N; n++) sum += widen(word.element[n]) * widen(word.element[n]);
    }
    if (words + threadIdx.x < last) sum += widen(x[words + threadIdx.x]) * widen(x[words + threadIdx.x]);
    sum = block_reduce(sum, adding(), scratch);
    if (threadIdx.x == 0) a.partial[blockIdx.x] = (double)sum;
}

__global__ void add_partial(add_partial_args a) {
    __shared__ double scratch[32];
    double sum = 0;
    for (i64 i = threadIdx.x; i < a.partial_count; i += blockDim.x) sum += a.partial[i];
    sum = block_reduce(sum, adding(), scratch);
    if (threadIdx.x != 0) return;
    *a.out = sum;
    if (a.finite) *a.finite = sum - sum == 0;
}
