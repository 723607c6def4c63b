/* Reducers, which combine many elements to one. Shared by reductions, softmax and normalisation.
 *
 * A reducer is a structure of static functions over a `state`:
 *
 *     init      returns the state without elements
 *     add       adds one element, given its index along the reduced axis
 *     merge     adds the elements of another state
 *     finish    returns the result, in the type it is stored in
 *
 * The order of adding and merging affects only the last bits. It is fixed by shapes and the grid, so results are
 * bitwise reproducible.
 *
 * A row of contiguous elements is processed by `lanes` threads: up to 32 adjacent lanes of a warp (a power of two),
 * or a whole block. Rows may start anywhere: single elements up to the first aligned 16-byte word, then words, four
 * in flight per thread, then the remaining elements. So one template instance serves rows of any length.
 */
#ifndef TU_FOLDS
#define TU_FOLDS

#include "prelude.cuh"

/* ---- Infinity, exponential and logarithm by type ---- */

template <typename C> struct number_limits;
template <> struct number_limits<float> {
    static __device__ inline float infinity() { return __uint_as_float(0x7f800000u); }
};
template <> struct number_limits<double> {
    static __device__ inline double infinity() { return (double)number_limits<float>::infinity(); }
};
template <typename C> __device__ inline bool is_finite(C x) { return x - x == 0; }

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float logarithm(float x) { return logf(x); }
__device__ inline double logarithm(double x) { return log(x); }

/* ---- Reducers ---- */

template <typename C> struct summing {
    typedef C state;
    static __device__ inline C init() { return 0; }
    static __device__ inline void add(C &s, C x, i64) { s += x; }
    static __device__ inline void merge(C &s, C other) { s += other; }
    template <typename T> static __device__ inline T finish(C s, double divisor) { return narrow<T>(s / (C)divisor); }
};

template <typename C> struct multiplying {
    typedef C state;
    static __device__ inline C init() { return 1; }
    static __device__ inline void add(C &s, C x, i64) { s *= x; }
    static __device__ inline void merge(C &s, C other) { s *= other; }
    template <typename T> static __device__ inline T finish(C s, double) { return narrow<T>(s); }
};

template <typename C> struct largest {
    typedef C state;
    static __device__ inline C init() { return -number_limits<C>::infinity(); }
    static __device__ inline void add(C &s, C x, i64) { s = larger()(s, x); }
    static __device__ inline void merge(C &s, C other) { s = larger()(s, other); }
    template <typename T> static __device__ inline T finish(C s, double) { return narrow<T>(s); }
};

template <typename C> struct smallest {
    typedef C state;
    static __device__ inline C init() { return number_limits<C>::infinity(); }
    static __device__ inline void add(C &s, C x, i64) { s = smaller()(s, x); }
    static __device__ inline void merge(C &s, C other) { s = smaller()(s, other); }
    template <typename T> static __device__ inline T finish(C s, double) { return narrow<T>(s); }
};

/* Sums of exponentials in one pass: the sum is of exp(x - maximum), and is rescaled when a larger element is added.
 * `maximum` ignores NaN, but the sum does not: it is NaN exactly if an element was. */
template <typename C> struct exponents {
    C maximum, sum;
};
template <typename C> struct log_sum_exp {
    typedef exponents<C> state;
    static __device__ inline state init() { return state{-number_limits<C>::infinity(), 0}; }
    static __device__ inline void add(state &s, C x, i64) {
        if (x > s.maximum) {
            s.sum = s.sum * exponential(s.maximum - x) + 1;
            s.maximum = x;
        } else {
            s.sum += x == s.maximum
                         ? (C)1
                         : exponential(x - s.maximum); /* the difference of equal infinities is NaN */
        }
    }
    static __device__ inline void merge(state &s, state other) {
        if (other.maximum > s.maximum) {
            s.sum = s.sum * exponential(s.maximum - other.maximum) + other.sum;
            s.maximum = other.maximum;
        } else {
            s.sum += other.sum * (other.maximum == s.maximum ? (C)1 : exponential(other.maximum - s.maximum));
        }
    }
    template <typename T> static __device__ inline T finish(state s, double) {
        bool is_regular = is_finite(s.maximum) || s.sum != s.sum;
        return narrow<T>(is_regular ? s.maximum + logarithm(s.sum) : s.maximum);
    }
};

/* An extreme value and its index: the first NaN, or else the first of equal values. */
template <typename C> struct indexed {
    C value;
    i64 index;
};
template <typename C, bool IS_MIN> struct arg_extreme {
    typedef indexed<C> state;
    static __device__ inline state init() {
        return state{IS_MIN ? number_limits<C>::infinity() : -number_limits<C>::infinity(), 0x7fffffffffffffffll};
    }
    static __device__ inline bool precedes(state a, state b) {
        bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        if (a_nan || b_nan) return a_nan && (!b_nan || a.index < b.index);
        if (a.value == b.value) return a.index < b.index;
        return IS_MIN ? a.value < b.value : a.value > b.value;
    }
    static __device__ inline void add(state &s, C x, i64 index) { merge(s, state{x, index}); }
    static __device__ inline void merge(state &s, state other) {
        if (precedes(other, s)) s = other;
    }
    template <typename T> static __device__ inline i64 finish(state s, double) { return s.index; }
};
template <typename C> struct argmax : arg_extreme<C, false> {};
template <typename C> struct argmin : arg_extreme<C, true> {};

/* ---- Merging the states of adjacent threads ---- */

__device__ inline float shuffle_xor(float x, int distance) { return __shfl_xor_sync(0xffffffffu, x, distance); }
__device__ inline double shuffle_xor(double x, int distance) { return __shfl_xor_sync(0xffffffffu, x, distance); }
template <typename C> __device__ inline exponents<C> shuffle_xor(exponents<C> x, int distance) {
    return exponents<C>{shuffle_xor(x.maximum, distance), shuffle_xor(x.sum, distance)};
}
template <typename C> __device__ inline indexed<C> shuffle_xor(indexed<C> x, int distance) {
    return indexed<C>{shuffle_xor(x.value, distance), __shfl_xor_sync(0xffffffffu, x.index, distance)};
}

/* Merges the states of a row's threads; all of them get the result. All threads of the block must call it. `shared`:
 * shared memory for 32 states, used if a row has more than a warp. */
template <typename F> __device__ inline void merge_row(typename F::state &s, int lanes, typename F::state *shared) {
    for (int distance = (lanes < 32 ? lanes : 32) >> 1; distance; distance >>= 1)
        F::merge(s, shuffle_xor(s, distance));
    if (lanes <= 32) return;
    __syncthreads();
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = s;
    __syncthreads();
    s = shared[0];
    for (int warp = 1; warp < lanes >> 5; warp++) F::merge(s, shared[warp]);
}

/* A block of 256 threads as [slices, columns], each with W states: merged into slice 0 by halving the number of
 * slices, so that the order depends only on that number. */
template <typename F, int W>
__device__ inline void merge_slices(typename F::state (&s)[W], int column, int slice, int columns, int slices) {
    __shared__ typename F::state shared[256 * W];
    for (int count = slices; count > 1; count = (count + 1) / 2) {
        int half = (count + 1) / 2;
        __syncthreads();
        if (slice >= half && slice < count)
            for (int i = 0; i < W; i++) shared[((slice - half) * columns + column) * W + i] = s[i];
        __syncthreads();
        if (slice + half < count)
            for (int i = 0; i < W; i++) F::merge(s[i], shared[(slice * columns + column) * W + i]);
    }
}

/* ---- Iterating over a row ---- */

/* Elements per word: 16 bytes, but at most eight elements. */
template <typename T> struct word {
    static constexpr int fits = 16 / (int)sizeof(T);
    static constexpr int size = fits > 8 ? 8 : fits < 1 ? 1 : fits;
    typedef pack<T, size> type;
};

/* Returns the number of elements before the first aligned word. */
template <typename T> __device__ inline i64 head_of(const T *x, i64 n) {
    constexpr int size = word<T>::size;
    i64 head = (size - (i64)((u64)x / sizeof(T) % size)) % size;
    return head < n ? head : n;
}

/* Calls f(element, index) for the elements of this lane, out of n. */
template <typename T, typename F>
__device__ inline void for_each_in_row(const T *x, i64 n, int lane, int lanes, F f) {
    constexpr int size = word<T>::size;
    typedef typename word<T>::type words;
    i64 head = head_of(x, n), count = (n - head) / size, at = lane;
    const words *body = (const words *)(x + head);
    for (i64 i = lane; i < head; i += lanes) f(x[i], i);
    for (; at + 3 * lanes < count; at += 4 * lanes) {
        words w[4];
#pragma unroll
        for (int u = 0; u < 4; u++) w[u] = body[at + u * lanes];
#pragma unroll
        for (int u = 0; u < 4; u++)
#pragma unroll
            for (int i = 0; i < size; i++) f(w[u].element[i], head + (at + u * lanes) * size + i);
    }
    for (; at < count; at += lanes) {
        words w = body[at];
#pragma unroll
        for (int i = 0; i < size; i++) f(w.element[i], head + at * size + i);
    }
    for (i64 i = head + count * size + lane; i < n; i += lanes) f(x[i], i);
}

/* Computes y[i] = f(x[i], i). y has x's misalignment, in elements. */
template <typename T, typename O, typename F>
__device__ inline void map_row(const T *x, O *y, i64 n, int lane, int lanes, F f) {
    constexpr int size = word<T>::size;
    i64 head = head_of(x, n), count = (n - head) / size;
    const pack<T, size> *from = (const pack<T, size> *)(x + head);
    pack<O, size> *to = (pack<O, size> *)(y + head);
    for (i64 i = lane; i < head; i += lanes) y[i] = f(x[i], i);
#pragma unroll 2
    for (i64 at = lane; at < count; at += lanes) {
        pack<T, size> w = from[at];
        pack<O, size> result;
#pragma unroll
        for (int i = 0; i < size; i++) result.element[i] = f(w.element[i], head + at * size + i);
        to[at] = result;
    }
    for (i64 i = head + count * size + lane; i < n; i += lanes) y[i] = f(x[i], i);
}

/* ---- 64-bit division ---- */

/* Replaces n by n / d and returns the remainder. */
__device__ inline i64 divmod_in_place(i64 &n, i64 d) {
    if (((n | d) >> 32) == 0) {
        u32 q = (u32)n / (u32)d, r = (u32)n - q * (u32)d;
        n = q;
        return r;
    }
    i64 q = n / d, r = n - q * d;
    n = q;
    return r;
}

#endif
