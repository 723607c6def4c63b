/* Sums and copies between devices that can access each other's memory: logical devices of one GPU, and GPUs with peer
 * access.
 *
 * Every element is read once from each input and written once to each output, 16 bytes at a time if all addresses are
 * aligned to that. The cost is memory bandwidth or, between GPUs, the links: each GPU does its share, in parallel with
 * the others. Values are added pairwise in the order of inputs, ((0 + 1) + (2 + 3)) + …, bf16 and f16 in float and
 * rounded once, as on the CPU (src/comm/). The sum may overwrite its inputs: a thread reads the words of all inputs
 * before it writes. One input is copied without converting it, so that all bits are kept.
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

/* The same sum for any number of inputs: partial sums are merged like the digits of a binary counter. */
template <typename T> __device__ inline T sum_inputs(void *const *in, int in_count, i64 index) {
    compute_type<T> partial[8];
    int depth = 0;
    for (int r = 0; r < in_count; r++) {
        partial[depth++] = widen(((const T *)in[r])[index]);
        for (int carry = r + 1; depth > 1 && (carry % 2 == 0 || r + 1 == in_count); carry /= 2) {
            depth--;
            partial[depth - 1] = partial[depth - 1] + partial[depth];
        }
    }
    return narrow<T>(partial[0]);
}

__device__ inline int range_of_block(const combine_args &a) {
    int p = 0;
    while (blockIdx.x >= a.first_block[p + 1]) p++;
    return p;
}

/* Adds the words of all inputs. */
template <typename T, int N, int IN> __device__ inline pack<T, N> sum_words(const pack<T, N> *value) {
    if constexpr (IN == 1) {
        return value[0];
    } else {
        pack<T, N> sum;
#pragma unroll
        for (int n = 0; n < N; n++) {
            compute_type<T> x[IN];
#pragma unroll
            for (int r = 0; r < IN; r++) x[r] = widen(value[r].element[n]);
            sum.element[n] = narrow<T>(tree<IN>::sum(x));
        }
        return sum;
    }
}

/* Combines one word of N elements, or fewer at the end of a range. */
template <typename T, int N, int IN>
__device__ inline void combine_word(void *const *in, void *const *out, int out_count, i64 index, i64 count) {
    pack<T, N> value[IN];
    if (index + N <= count) {
#pragma unroll
        for (int r = 0; r < IN; r++) value[r] = *(const pack<T, N> *)((const T *)in[r] + index);
    } else {
        for (int r = 0; r < IN; r++)
            for (int n = 0; n < N; n++)
                value[r].element[n] = ((const T *)in[r])[index + n < count ? index + n : index];
    }
    pack<T, N> sum = sum_words<T, N, IN>(value);
    for (int r = 0; r < out_count; r++) {
        T *y = (T *)out[r] + index;
        if (index + N <= count)
            *(pack<T, N> *)y = sum;
        else
            for (int n = 0; n < N; n++)
                if (index + n < count) y[n] = sum.element[n];
    }
}

/* For ranges whose addresses are all aligned to 16 bytes. */
template <typename T, int IN> __global__ void combine(const __grid_constant__ combine_args a) {
    constexpr int N = 16 / sizeof(T);
    int p = range_of_block(a);
    void *const *in = a.pointers + p * (IN + a.out_count), *const *out = in + IN;
    i64 first = (i64)(blockIdx.x - a.first_block[p]) * COMBINE_THREADS * COMBINE_WORDS * N;
#pragma unroll
    for (int u = 0; u < COMBINE_WORDS; u++) {
        i64 index = first + ((i64)u * COMBINE_THREADS + threadIdx.x) * N;
        if (index < a.count[p]) combine_word<T, N, IN>(in, out, a.out_count, index, a.count[p]);
    }
}

/* For many inputs, and for addresses that are only aligned to an element. SUM: there are several inputs. */
template <typename T, bool SUM> __global__ void combine_generic(const __grid_constant__ combine_args a) {
    constexpr int N = 16 / sizeof(T);
    int p = range_of_block(a);
    void *const *in = a.pointers + p * (a.in_count + a.out_count), *const *out = in + a.in_count;
    i64 first = (i64)(blockIdx.x - a.first_block[p]) * COMBINE_THREADS * COMBINE_WORDS * N;
    for (int u = 0; u < COMBINE_WORDS * N; u++) {
        i64 index = first + (i64)u * COMBINE_THREADS + threadIdx.x;
        if (index >= a.count[p]) continue;
        T sum;
        if constexpr (SUM)
            sum = sum_inputs<T>(in, a.in_count, index);
        else
            sum = ((const T *)in[0])[index];
        for (int r = 0; r < a.out_count; r++) ((T *)out[r])[index] = sum;
    }
}
