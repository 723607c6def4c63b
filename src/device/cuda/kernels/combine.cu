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

/* The largest power of two below n: the size of a tree's left half. */
__device__ constexpr int left_of(int n) { return n <= 2 ? 1 : 2 * left_of((n + 1) / 2); }

/* The sum of N values, unrolled. */
template <int N> struct tree {
    template <typename C> static __device__ inline C sum(const C *x) {
        return tree<left_of(N)>::sum(x) + tree<N - left_of(N)>::sum(x + left_of(N));
    }
};
template <> struct tree<1> {
    template <typename C> static __device__ inline C sum(const C *x) { return *x; }
};

/* The same sum for any number of ranks: partial sums are merged like the digits of a binary counter. */
template <typename T> __device__ inline wide_of<T> sum_any(void *const *in, int ranks, i64 at) {
    wide_of<T> partial[8];
    int depth = 0;
    for (int r = 0; r < ranks; r++) {
        partial[depth++] = widen(((const T *)in[r])[at]);
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

/* One word of N elements, or the rest at the end of a range. */
template <typename T, int N, int RANKS>
__device__ inline void combine_word(void *const *in, void *const *out, i64 at, i64 count) {
    pack<T, N> value[RANKS], sum;
    if (at + N <= count) {
#pragma unroll
        for (int r = 0; r < RANKS; r++) value[r] = *(const pack<T, N> *)((const T *)in[r] + at);
    } else {
        for (int r = 0; r < RANKS; r++)
            for (int n = 0; n < N; n++) value[r].element[n] = ((const T *)in[r])[at + n < count ? at + n : at];
    }
#pragma unroll
    for (int n = 0; n < N; n++) {
        wide_of<T> x[RANKS];
#pragma unroll
        for (int r = 0; r < RANKS; r++) x[r] = widen(value[r].element[n]);
        sum.element[n] = narrow<T>(tree<RANKS>::sum(x));
    }
#pragma unroll
    for (int r = 0; r < RANKS; r++) {
        T *y = (T *)out[r] + at;
        if (at + N <= count)
            *(pack<T, N> *)y = sum;
        else
            for (int n = 0; n < N; n++)
                if (at + n < count) y[n] = sum.element[n];
    }
}

template <typename T, int RANKS> __global__ void combine(const __grid_constant__ combine_args a) {
    constexpr int N = 16 / sizeof(T);
    int p = range_of_block(a);
    void *const *in = a.pointers + p * 2 * RANKS, *const *out = in + RANKS;
    i64 first = (i64)(blockIdx.x - a.first_block[p]) * COMBINE_THREADS * COMBINE_WORDS * N;
#pragma unroll
    for (int u = 0; u < COMBINE_WORDS; u++) {
        i64 at = first + ((i64)u * COMBINE_THREADS + threadIdx.x) * N;
        if (at < a.count[p]) combine_word<T, N, RANKS>(in, out, at, a.count[p]);
    }
}

template <typename T> __global__ void combine_any(const __grid_constant__ combine_args a) {
    constexpr int N = 16 / sizeof(T);
    int p = range_of_block(a);
    void *const *in = a.pointers + p * 2 * a.ranks, *const *out = in + a.ranks;
    i64 first = (i64)(blockIdx.x - a.first_block[p]) * COMBINE_THREADS * COMBINE_WORDS * N;
    for (int u = 0; u < COMBINE_WORDS * N; u++) {
        i64 at = first + (i64)u * COMBINE_THREADS + threadIdx.x;
        if (at >= a.count[p]) continue;
        T sum = narrow<T>(sum_any<T>(in, a.ranks, at));
        for (int r = 0; r < a.ranks; r++) ((T *)out[r])[at] = sum;
    }
}
