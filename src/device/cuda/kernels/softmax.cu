/* Softmax, log-softmax and cross-entropy.
 *
 * A first pass finds a row's maximum and the sum of its exponentials (folds.cuh); a second writes the row, or the
 * loss. x is read once from memory, because the second pass finds the row in the cache: a block works on one row at a
 * time, and all blocks together on some tens of megabytes even with rows of 100 KB.
 *
 * With m the maximum and s the sum, softmax is exp(x - m) / s and its logarithm (x - m) - log s. If m is infinite, s
 * is not used, as in graph/ops/softmax.c.
 *
 * Cross-entropy can also write its gradient, softmax minus the target, whose inputs it has computed. A small loss,
 * such as that of 128 samples, is computed with the operations that follow it by one block (block_loss): the cost
 * of such small kernels is the number of launches and of instructions loaded.
 */
#include "folds.cuh"
#include "softmax_args.h"

template <typename C> struct normalizer {
    C maximum, scale, log_sum;
};
template <typename C> __device__ inline normalizer<C> normalizer_of(exponents<C> s) {
    C sum = is_finite(s.maximum) ? s.sum : (C)1;
    return normalizer<C>{s.maximum, 1 / sum, logarithm(sum)};
}
template <typename C> __device__ inline C log_softmax_of(normalizer<C> z, C x) { return (x - z.maximum) - z.log_sum; }
template <typename C> __device__ inline C softmax_of(normalizer<C> z, C x) {
    return exponential(x - z.maximum) * z.scale;
}

/* Returns the normalizer of this thread's row. All threads of the block must call it; `n` is 0 past the last row. */
template <typename T>
__device__ inline normalizer<compute_type<T>> normalizer_of_row(const T *x, i64 n, int lane, int lanes,
                                                                exponents<compute_type<T>> *shared) {
    typedef log_sum_exp<compute_type<T>> reducer;
    exponents<compute_type<T>> s = reducer::init();
    for_each_in_row(x, n, lane, lanes, [&](T e, i64 i) { reducer::add(s, widen(e), i); });
    merge_row<reducer>(s, lanes, shared);
    return normalizer_of(s);
}

template <typename T> __global__ void softmax_rows(softmax_rows_args a) {
    typedef compute_type<T> C;
    __shared__ exponents<C> shared[32];
    i64 row = global_thread_index() / a.lanes, n = row < a.rows ? a.n : 0;
    int lane = (int)threadIdx.x & (a.lanes - 1);
    const T *x = (const T *)a.x + (n ? row * a.n : 0);
    T *y = (T *)a.y + (n ? row * a.n : 0);
    normalizer<C> z = normalizer_of_row(x, n, lane, a.lanes, shared);
    if (a.logarithm)
        map_row(x, y, n, lane, a.lanes, [&](T e, i64) { return narrow<T>(log_softmax_of(z, widen(e))); });
    else
        map_row(x, y, n, lane, a.lanes, [&](T e, i64) { return narrow<T>(softmax_of(z, widen(e))); });
}

/* Along an axis other than the last: blocks of 32 adjacent columns by 8 slices of the axis. */
template <typename T> __global__ void softmax_columns(softmax_columns_args a) {
    typedef compute_type<T> C;
    typedef log_sum_exp<C> reducer;
    __shared__ exponents<C> shared[8][32];
    int slice = (int)threadIdx.x >> 5, column = (int)threadIdx.x & 31;
    i64 outer = (i64)blockIdx.x * 32 + column;
    bool inside = outer < a.columns;
    i64 inner_index = divmod_in_place(outer, a.inner), start = outer * a.n * a.inner + inner_index;
    const T *x = (const T *)a.x + start;
    T *y = (T *)a.y + start;
    exponents<C> s = reducer::init();
    if (inside)
        for (i64 i = slice; i < a.n; i += 8) reducer::add(s, widen(x[i * a.inner]), i);
    shared[slice][column] = s;
    __syncthreads();
    s = shared[0][column];
    for (int i = 1; i < 8; i++) reducer::merge(s, shared[i][column]);
    normalizer<C> z = normalizer_of(s);
    if (inside)
        for (i64 i = slice; i < a.n; i += 8) {
            C e = widen(x[i * a.inner]);
            y[i * a.inner] = narrow<T>(a.logarithm ? log_softmax_of(z, e) : softmax_of(z, e));
        }
}

/* ---- Cross-entropy ---- */

/* The target of class i of a row, from probabilities per class (target_of) or a class index (class_of). */
template <typename T, typename L> struct target_of {
    typedef compute_type<T> C;
    const L *labels;
    C label_weight, uniform_weight; /* label_weight: 1 - smoothing, uniform_weight: smoothing / n */
    __device__ inline C operator()(i64 i) const { return label_weight * widen(labels[i]) + uniform_weight; }
};
template <typename T, typename L> struct class_of {
    typedef compute_type<T> C;
    i64 label;
    C label_weight, uniform_weight;
    __device__ inline bool masked(i64 n) const { return label < 0 || label >= n; }
    __device__ inline C operator()(i64 i) const { return (i == label ? label_weight : (C)0) + uniform_weight; }
};
template <typename T, typename L> struct label_reader {
    typedef target_of<T, L> type;
    static __device__ inline type read(const void *labels, i64 row, i64 n, compute_type<T> label_weight,
                                        compute_type<T> uniform_weight) {
        return type{(const L *)labels + row * n, label_weight, uniform_weight};
    }
};
template <typename T> struct label_reader<T, i32> {
    typedef class_of<T, i32> type;
    static __device__ inline type read(const void *labels, i64 row, i64, compute_type<T> label_weight,
                                        compute_type<T> uniform_weight) {
        return type{((const i32 *)labels)[row], label_weight, uniform_weight};
    }
};
template <typename T> struct label_reader<T, i64> {
    typedef class_of<T, i64> type;
    static __device__ inline type read(const void *labels, i64 row, i64, compute_type<T> label_weight,
                                        compute_type<T> uniform_weight) {
        return type{((const i64 *)labels)[row], label_weight, uniform_weight};
    }
};

/* Returns this lane's terms of a row's loss: minus the sum of target * log-softmax. Classes with weight 0
 * are skipped, even if their logit is infinite. */
template <typename T, typename TARGET, typename C>
__device__ inline C sum_terms(const T *x, i64 n, int lane, int lanes, normalizer<C> z, TARGET target) {
    C loss = 0;
    for_each_in_row(x, n, lane, lanes, [&](T e, i64 i) {
        C weight = target(i);
        if (weight != 0) loss -= weight * log_softmax_of(z, (C)widen(e));
    });
    return loss;
}
template <typename T, typename L, typename C>
__device__ inline C loss_terms(const T *x, i64 n, int lane, int lanes, normalizer<C> z, target_of<T, L> target) {
    return sum_terms(x, n, lane, lanes, z, target);
}
/* A class index without smoothing leaves one term. */
template <typename T, typename L, typename C>
__device__ inline C loss_terms(const T *x, i64 n, int lane, int lanes, normalizer<C> z, class_of<T, L> target) {
    if (target.masked(n)) return 0;
    if (target.uniform_weight != 0) return sum_terms(x, n, lane, lanes, z, target);
    return lane == 0 ? -log_softmax_of(z, (C)widen(x[target.label])) : (C)0;
}

/* softmax * mass - target; the mass of a masked row is 0. */
template <typename T, typename L, typename C>
__device__ inline void store_gradient(const T *x, T *dx, i64 n, int lane, int lanes, normalizer<C> z,
                                      class_of<T, L> target) {
    C mass = target.masked(n) ? (C)0 : (C)1;
    map_row(x, dx, n, lane, lanes, [&](T e, i64 i) {
        return narrow<T>(softmax_of(z, (C)widen(e)) * mass - (i == target.label ? (C)1 : (C)0));
    });
}
template <typename T, typename L, typename C>
__device__ inline void store_gradient(const T *, T *, i64, int, int, normalizer<C>, target_of<T, L>) {}

template <typename T, typename L> __global__ void cross_entropy(cross_entropy_args a) {
    typedef compute_type<T> C;
    __shared__ exponents<C> shared[32];
    __shared__ C sums[32];
    i64 row = global_thread_index() / a.lanes, n = row < a.rows ? a.n : 0;
    int lane = (int)threadIdx.x & (a.lanes - 1);
    const T *x = (const T *)a.x + (n ? row * a.n : 0);
    normalizer<C> z = normalizer_of_row(x, n, lane, a.lanes, shared);
    C loss = 0;
    if (n) {
        auto target = label_reader<T, L>::read(a.labels, row, n, (C)(1 - a.smoothing), (C)(a.smoothing / (double)n));
        loss = loss_terms(x, n, lane, a.lanes, z, target);
        if (a.gradient) store_gradient(x, (T *)a.gradient + row * n, n, lane, a.lanes, z, target);
    }
    merge_row<summing<C>>(loss, a.lanes, sums);
    if (n && lane == 0 && a.losses) ((T *)a.losses)[row] = narrow<T>(loss);
}

/* The loss of 16-bit logits, in f32, and its scaled gradient, rounded once. The gradient may overwrite the logits: all
 * threads of a row have read them when the first one writes. */
template <typename H, typename L> __global__ void narrow_cross_entropy(cross_entropy_args a) {
    __shared__ exponents<float> shared[32];
    __shared__ float sums[32];
    i64 row = global_thread_index() / a.lanes, n = row < a.rows ? a.n : 0;
    int lane = (int)threadIdx.x & (a.lanes - 1);
    const H *x = (const H *)a.x + (n ? row * a.n : 0);
    normalizer<float> z = normalizer_of_row(x, n, lane, a.lanes, shared);
    auto target = label_reader<H, L>::read(a.labels, n ? row : 0, a.n, 1.0f, 0.0f);
    float loss = n ? loss_terms(x, n, lane, a.lanes, z, target) : 0.0f;
    merge_row<summing<float>>(loss, a.lanes, sums);
    __syncthreads();
    if (!n) return;
    if (lane == 0) ((f32 *)a.losses)[row] = loss;
    float mass = target.masked(n) ? 0.0f : 1.0f, scale = (float)a.scale;
    map_row(x, (H *)a.gradient + row * n, n, lane, a.lanes, [&](H e, i64 i) {
        return narrow<H>((softmax_of(z, widen(e)) * mass - (i == target.label ? 1.0f : 0.0f)) * scale);
    });
}

/* ---- A loss and what follows it in one block ---- */

/* Replaces a row of logits in shared memory by the scaled gradient and returns its loss. Lanes past the last row must
 * call it with n = 0, because of the shuffles. */
template <typename T, typename C>
__device__ inline C gradient_of_row(C *x, int n, int lane, int lanes, i64 label, C scale) {
    C maximum = -number_limits<C>::infinity(), sum = 0;
    for (int i = lane; i < n; i += lanes) maximum = x[i] > maximum ? x[i] : maximum;
    for (int distance = lanes >> 1; distance; distance >>= 1) {
        C other = shuffle_xor(maximum, distance);
        maximum = other > maximum ? other : maximum;
    }
    for (int i = lane; i < n; i += lanes) sum += x[i] == maximum ? (C)1 : exponential(x[i] - maximum);
    for (int distance = lanes >> 1; distance; distance >>= 1) sum += shuffle_xor(sum, distance);
    normalizer<C> z = normalizer_of(exponents<C>{maximum, sum});
    bool masked = label < 0 || label >= n;
    C loss = masked ? (C)0 : -log_softmax_of(z, x[label]), mass = masked ? (C)0 : (C)1;
    __syncwarp(0xffffffffu); /* all lanes have read their label's logit */
    for (int i = lane; i < n; i += lanes)
        x[i] = rounded<T>(rounded<T>(softmax_of(z, x[i]) * mass - (i == label ? (C)1 : (C)0)) * scale);
    return loss;
}

template <typename T, typename C>
__device__ inline void store_mean(const block_loss_args &a, const C *losses, C *shared) {
    C sum = 0;
    for (int row = (int)threadIdx.x; row < a.rows; row += (int)blockDim.x) sum += losses[row];
    sum = block_reduce(sum, adding(), shared);
    if (threadIdx.x == 0) ((T *)a.mean)[blockIdx.x] = narrow<T>(sum / (C)a.rows);
}

/* Threads as [slices, columns]; each slice handles every slices-th row. `shared`: one number per thread. */
template <typename T, typename C>
__device__ inline void store_column_sums(const block_loss_args &a, const C *x, C *shared) {
    int threads = (int)blockDim.x, columns = a.n < threads ? a.n : threads;
    int slices = threads / columns < 16 ? threads / columns : 16;
    int slice = (int)threadIdx.x / columns, column = (int)threadIdx.x - slice * columns;
    for (int base = 0; base < a.n; base += columns) {
        bool inside = slice < slices && base + column < a.n;
        C sum = 0;
        for (int row = slice; inside && row < a.rows; row += slices) sum += x[row * a.n + base + column];
        __syncthreads();
        shared[threadIdx.x] = sum;
        __syncthreads();
        if (!inside || slice) continue;
        for (int i = 1; i < slices; i++) sum += shared[i * columns + column];
        ((T *)a.sums)[(i64)blockIdx.x * a.n + base + column] = narrow<T>(sum);
    }
}

/* A block per network of a stack; without a stack, one block. */
template <typename T, typename L, typename H>
__global__ void __launch_bounds__(1024) block_loss(block_loss_args a) {
    typedef compute_type<T> C;
    extern __shared__ double shared_memory[];
    int count = a.rows * a.n, threads = (int)blockDim.x, lane = (int)threadIdx.x & (a.lanes - 1);
    i64 first_row = (i64)blockIdx.x * a.rows, start = (i64)blockIdx.x * count; /* of the block's network */
    C *x = (C *)shared_memory, *losses = x + count, *scratch = losses + a.rows, *column_scratch = scratch + 32;
    for (int i = (int)threadIdx.x; i < count; i += threads) x[i] = widen(((const T *)a.x)[start + i]);
    __syncthreads();
    for (int first = 0; first < a.rows; first += threads / a.lanes) {
        int row = first + (int)threadIdx.x / a.lanes;
        bool inside = row < a.rows;
        i64 label = inside ? (i64)((const L *)a.labels)[first_row + row] : -1;
        C loss = gradient_of_row<T>(x + (inside ? row * a.n : 0), inside ? a.n : 0, lane, a.lanes, label,
                               rounded<T>((C)a.scale));
        if (inside && lane == 0) losses[row] = rounded<T>(loss);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; a.gradient && i < count; i += threads) ((T *)a.gradient)[start + i] = narrow<T>(x[i]);
    for (int i = (int)threadIdx.x; a.cast && i < count; i += threads) ((H *)a.cast)[start + i] = narrow<H>(x[i]);
    for (int i = (int)threadIdx.x; a.losses && i < a.rows; i += threads) ((T *)a.losses)[first_row + i] = narrow<T>(losses[i]);
    if (a.mean) store_mean<T>(a, losses, scratch);
    if (a.sums) store_column_sums<T>(a, x, column_scratch);
}
