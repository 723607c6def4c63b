/* Sums between devices that can access each other's memory: logical devices of one GPU, and GPUs with peer access.
 *
 * Every element is read once from each rank and written once to each, 16 bytes at a time. The cost is memory
 * bandwidth or, between GPUs, the links: each GPU reads its slice from all ranks and writes the sum to all, in
 * parallel with the others. Values are added pairwise in rank order, ((0 + 1) + (2 + 3)) + …, bf16 and f16 in float
 * and rounded once, as on the CPU (src/comm/). The sum may overwrite its inputs: a thread reads all ranks' words
 * before it writes.
 */
#include "prelude.cuh"
#include "combine_args.h"

/* Returns the largest power of two below n: the leaves of a tree's left half. */
__device__ constexpr int left_leaves(int n) { return n <= 2 ? 1 : 2 * left_leaves((n + 1) / 2); }

/* The sum of N values, unrolled. */
template <int N> struct tree {
    template <typename C> static __device__ inline C sum(const C *x) {
        return tree<left_leaves(N)>::sum(x) + tree<N - left_leaves(N)>::sum(x + left_leaves(N));
    }
};
template <> struct tree<1> {
    template <typename C> static __device__ inline C sum(const C *x) { return *x; }
};

/* The same sum for any number of ranks: partial sums are merged like the digits of a binary counter. */
template <typename T> __device__ inline compute_type<T> sum_ranks(void *const *in, int ranks, i64 index) {
    compute_type<T> partial[8];
    int depth = 0;
    for (int r = 0; r < ranks; r++) {
        partial[depth++] = widen(((const T *)in[r])[index]);
        for (int carry = r + 1; depth > 1 && (carry % 2 == 0 || r + 1 == ranks); carry /= 2) {
            depth--;
            partial[depth - 1] = partial[depth - 1] + partial[depth];
        }
    }
    return partial[0];
}

__device__ inline int range_of_block(const combine_args &a) {
    int p = 0;
    while (blockIdx.x >= a.first_block[p + 1]) p++;
    return p;
}

/* Sums one word of N elements, or fewer at the end of a range. */
template <typename T, int N, int RANKS>
__device__ inline void combine_word(void *const *in, void *const *out, i64 index, i64 count) {
    pack<T, N> value[RANKS], sum;
    if (index + N <= count) {
#pragma unroll
        for (int r = 0; r < RANKS; r++) value[r] = *(const pack<T, N> *)((const T *)in[r] + index);
    } else {
        for (int r = 0; r < RANKS; r++)
            for (int n = 0; n < N; n++)
                value[r].element[n] = ((const T *)in[r])[index + n < count ? index + n : index];
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        compute_type<T> x[RANKS];
#pragma unroll
        for (int r = 0; r < RANKS; r++) x[r] = widen(value[r].element[n]);
        sum.element[n] = narrow<T>(tree<RANKS>::sum(x));
    }
#pragma unroll
    for (int r = 0; r < RANKS; r++) {
        T *y = (T *)out[r] + index;
        if (index + N <= count)
            *(pack<T, N> *)y = sum;
        else
            for (int n = 0; n < N; n++)
                if (index + n < count) y[n] = sum.element[n];
    }
}

template <typename T, int RANKS> __global__ void combine(const __grid_constant__ combine_args a) {
    constexpr int N = 16 / sizeof(T);
    int p = range_of_block(a);
    void *const *in = a.pointers + p * 2 * RANKS, *const *out = in + RANKS;
    i64 first = (i64)(blockIdx.x - a.first_block[p]) * COMBINE_THREADS * COMBINE_WORDS * N;
#pragma unroll
    for (int u = 0; u < COMBINE_WORDS; u++) {
        i64 index = first + ((i64)u * COMBINE_THREADS + threadIdx.x) * N;
        if (index < a.count[p]) combine_word<T, N, RANKS>(in, out, index, a.count[p]);
    }
}

template <typename T> __global__ void combine_generic(const __grid_constant__ combine_args a) {
    constexpr int N = 16 / sizeof(T);
    int p = range_of_block(a);
    void *const *in = a.pointers + p * 2 * a.ranks, *const *out = in + a.ranks;
    i64 first = (i64)(blockIdx.x - a.first_block[p]) * COMBINE_THREADS * COMBINE_WORDS * N;
    for (int u = 0; u < COMBINE_WORDS * N; u++) {
        i64 index = first + (i64)u * COMBINE_THREADS + threadIdx.x;
        if (index >= a.count[p]) continue;
        T sum = narrow<T>(sum_ranks<T>(in, a.ranks, index));
        for (int r = 0; r < a.ranks; r++) ((T *)out[r])[index] = sum;
    }
}
