/* Batch and layer normalisation; graph/ops/norm.c has the definitions.
 *
 * Batch normalisation is bound by memory, so the number of passes over values of x's size matters. Forward and
 * backward are three launches each: partial sums by blocks of rows, a small kernel that adds them in f64 and computes
 * factors, and one that applies the factors. Passes over x, and the time for x of 256 x 56 x 56 x 256 in bf16, 411
 * MB, at 3.5 TB/s:
 *
 *                                    to sum             to apply                    passes
 *     forward                        x                  x, y                        3        0.35 ms
 *       + residual and relu          x                  x, residual, y, mask        4 1/16   0.48
 *     backward, with or without relu x, dy              x, dy, dx                   5        0.59
 *       + residual                   x, dy (2), mask,   x, dy, dx                   7 1/16   0.83
 *                                    masked dy
 *
 * This needs full 16-byte words for stores too: a result is assembled in a separate word, because the compiler stores
 * a word that is modified in place in parts of 2 bytes, and each part costs as much L2 bandwidth as a full word.
 *
 * With rstd = 1 / sqrt(variance + epsilon), the inverse standard deviation:
 *
 *     y  = (x - mean) scale + shift                      scale = gamma rstd
 *     dx = scale dy - (dx_offset + (x - mean) dx_slope)  dx_offset = scale sum(dy) / n
 *                                                        dx_slope = scale rstd^2 sum(dy (x - mean)) / n
 *
 * The sums traverse the rows from first to last, all blocks in parallel, and the passes that apply factors from last
 * to first: the end of x is still in the L2 cache.
 *
 * A relu after y costs the gradient no extra pass. If nothing was added to y, the gradient recomputes y from x, which
 * it reads anyway, with the same bits. If a residual was added, the forward kernel stores a mask, one byte per
 * 16-byte word, one bit per element. The summing pass then masks dy, after adding the two values it may consist of,
 * and stores it.
 *
 * Sums are of x - pivot, where the pivot is the column's first element: a mean far from zero loses no precision.
 */
#include "folds.cuh"
#include "norm_args.h"

__device__ inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return fma(a, b, c); }

/* Two sums that are computed together. */
template <typename C> struct sums {
    C first, second;
};
template <typename C> struct sum_pair_reducer {
    typedef sums<C> state;
    static __device__ inline state init() { return state{0, 0}; }
    static __device__ inline void merge(state &s, state other) {
        s.first += other.first;
        s.second += other.second;
    }
};
template <typename C> __device__ inline sums<C> shuffle_xor(sums<C> x, int distance) {
    return sums<C>{shuffle_xor(x.first, distance), shuffle_xor(x.second, distance)};
}

/* ---- Rows and columns of a thread in x [rows, width] ---- */

struct row_range {
    i64 column, first, end; /* column of its word, 0 if not inside; first row, and end of the rows */
    int step, slice, group; /* step: distance of its rows */
    bool inside;
};
__device__ inline row_range get_row_range(const norm_tiling &t, int width) {
    row_range p;
    p.slice = (int)threadIdx.x / t.columns;
    p.group = (int)threadIdx.x - p.slice * t.columns;
    i64 group = (i64)blockIdx.x * t.columns + p.group;
    p.inside = p.slice < t.slices && group < t.groups;
    p.column = p.inside ? group * width : 0;
    return p;
}
/* For sums: all blocks traverse x together, from the first row to the last. */
__device__ inline row_range range_to_sum(const norm_tiling &t, int width) {
    row_range p = get_row_range(t, width);
    p.first = (i64)blockIdx.y * t.slices + p.slice;
    p.step = (int)gridDim.y * t.slices;
    p.end = t.rows;
    return p;
}
/* For applying: one segment of rows per block, last segments first. */
__device__ inline row_range range_to_apply(const norm_tiling &t, int width) {
    row_range p = get_row_range(t, width);
    i64 start = (i64)(gridDim.y - 1 - blockIdx.y) * t.segment;
    p.first = start + p.slice;
    p.step = t.slices;
    p.end = start + t.segment < t.rows ? start + t.segment : t.rows;
    return p;
}

/* Iterates over the rows of a thread, with the loads of U rows in flight: load(offset of a row's word), then
 * use(loaded, offset), row after row. Offsets are recomputed each time to save registers. */
template <int U, typename LOADED, typename LOAD, typename USE>
__device__ inline void for_each_row(const row_range &p, i64 width, LOAD load, USE use) {
    if (!p.inside) return;
    i64 row = p.first;
    for (; row + (i64)(U - 1) * p.step < p.end; row += (i64)U * p.step) {
        LOADED loaded[U];
#pragma unroll
        for (int u = 0; u < U; u++) loaded[u] = load((row + (i64)u * p.step) * width + p.column);
#pragma unroll
        for (int u = 0; u < U; u++) use(loaded[u], (row + (i64)u * p.step) * width + p.column);
    }
    for (; row < p.end; row += p.step) {
        LOADED loaded = load(row * width + p.column);
        use(loaded, row * width + p.column);
    }
}

template <typename T, int W> __device__ inline pack<T, W> load_word(const void *x, i64 offset) {
    return *(const pack<T, W> *)((const T *)x + offset);
}
template <typename T, int W> __device__ inline void store_word(void *y, i64 offset, const pack<T, W> &word) {
    *(pack<T, W> *)((T *)y + offset) = word;
}

/* Loads W adjacent numbers of an array, in words of up to 16 bytes. */
template <typename C, typename P, int W>
__device__ inline void load_columns(C (&to)[W], const void *array, i64 column) {
    constexpr int fits = 16 / (int)sizeof(P), N = fits < W ? fits : W;
#pragma unroll
    for (int i = 0; i < W; i += N) {
        pack<P, N> some = load_word<P, N>(array, column + i);
#pragma unroll
        for (int e = 0; e < N; e++) to[i + e] = (C)widen(some.element[e]);
    }
}

/* Returns 0 instead of a non-finite pivot, which would make the whole column NaN. */
template <typename C> __device__ inline C pivot_of(C first) { return is_finite(first) ? first : (C)0; }

/* ---- Column sums ---- */

template <typename C, int W>
__device__ inline void store_sums(const norm_sums_args &a, const row_range &p, sums<C> (&s)[W]) {
    merge_slices<sum_pair_reducer<C>, W>(s, p.group, p.slice, a.tiling.columns, a.tiling.slices);
    if (!p.inside || p.slice) return;
    C *to = (C *)a.partial + (i64)blockIdx.y * 2 * a.tiling.width + p.column;
#pragma unroll
    for (int i = 0; i < W; i++) {
        to[i] = s[i].first;
        to[a.tiling.width + i] = s[i].second;
    }
}

/* Sums of x - pivot and of its square. */
template <typename T, int W> __global__ void __launch_bounds__(256, 4) norm_moments(norm_sums_args a) {
    typedef compute_type<T> C;
    row_range p = range_to_sum(a.tiling, W);
    sums<C> s[W];
    C pivot[W];
    load_columns<C, T, W>(pivot, a.x, p.column);
#pragma unroll
    for (int i = 0; i < W; i++) {
        s[i] = sums<C>{0, 0};
        pivot[i] = pivot_of(pivot[i]);
    }
    for_each_row<4, pack<T, W>>(
        p, a.tiling.width, [&](i64 offset) { return load_word<T, W>(a.x, offset); },
        [&](const pack<T, W> &x, i64) {
#pragma unroll
            for (int i = 0; i < W; i++) {
                C d = widen(x.element[i]) - pivot[i];
                s[i].first += d;
                s[i].second = multiply_add(d, d, s[i].second);
            }
        });
    store_sums(a, p, s);
}

/* y rounded to T is positive exactly if y is above rounds_to_zero<T>::largest(): half of T's smallest positive number,
 * which rounds to 0. */
template <typename T> struct rounds_to_zero {
    static __device__ inline compute_type<T> largest() { return 0; }
};
template <> struct rounds_to_zero<bf16> {
    static __device__ inline float largest() { return __uint_as_float(0x8000u); }
};
template <> struct rounds_to_zero<f16> {
    static __device__ inline float largest() { return __uint_as_float(0x33000000u); }
};

/* Whether dy passes the gradient of a relu first. */
enum { PLAIN, RECOMPUTED };

/* The gradient of a relu whose y is recomputed from x - mean, with the factors of W columns. */
template <typename T, int W, int RELU_MODE> struct relu_gradient {
    typedef compute_type<T> C;
    C scale[W], shift[W];
    __device__ inline relu_gradient(const void *factors, i64 width, const row_range &p) {
        load_columns<C, C, W>(scale, factors, width + p.column);
        load_columns<C, C, W>(shift, factors, 2 * width + p.column);
    }
    __device__ inline C operator()(C dy, C centred, int i) const {
        return multiply_add(centred, scale[i], shift[i]) > rounds_to_zero<T>::largest() ? dy : (C)0;
    }
};
template <typename T, int W> struct relu_gradient<T, W, PLAIN> {
    typedef compute_type<T> C;
    __device__ inline relu_gradient(const void *, i64, const row_range &) {}
    __device__ inline C operator()(C dy, C, int) const { return dy; }
};

template <typename T, int W> struct loaded_pair {
    pack<T, W> x, dy;
};

/* Sums of dy and of dy (x - mean). */
template <typename T, typename P, int W, int RELU_MODE>
__global__ void __launch_bounds__(256, RELU_MODE == PLAIN ? 4 : 3) norm_gradient_sums(norm_sums_args a) {
    typedef compute_type<T> C;
    row_range p = range_to_sum(a.tiling, W);
    relu_gradient<T, W, RELU_MODE> relu_gradient_of(a.relu_factors, a.tiling.width, p);
    sums<C> s[W];
    C mean[W];
    load_columns<C, P, W>(mean, a.mean, p.column);
#pragma unroll
    for (int i = 0; i < W; i++) s[i] = sums<C>{0, 0};
    for_each_row<2, loaded_pair<T, W>>(
        p, a.tiling.width,
        [&](i64 offset) { return loaded_pair<T, W>{load_word<T, W>(a.x, offset), load_word<T, W>(a.dy, offset)}; },
        [&](const loaded_pair<T, W> &l, i64) {
#pragma unroll
            for (int i = 0; i < W; i++) {
                C x = widen(l.x.element[i]) - mean[i], dy = relu_gradient_of(widen(l.dy.element[i]), x, i);
                s[i].first += dy;
                s[i].second = multiply_add(dy, x, s[i].second);
            }
        });
    store_sums(a, p, s);
}

template <typename T, int W> struct loaded_masked {
    pack<T, W> x, dy, addend;
    u8 mask;
};

/* The same for a dy that is masked first and stored. If ADDS, dy is the sum of two values. */
template <typename T, typename P, int W, bool ADDS>
__global__ void __launch_bounds__(256, 3) norm_masked_sums(norm_sums_args a) {
    typedef compute_type<T> C;
    row_range p = range_to_sum(a.tiling, W);
    sums<C> s[W];
    C mean[W];
    load_columns<C, P, W>(mean, a.mean, p.column);
#pragma unroll
    for (int i = 0; i < W; i++) s[i] = sums<C>{0, 0};
    for_each_row<2, loaded_masked<T, W>>(
        p, a.tiling.width,
        [&](i64 offset) {
            loaded_masked<T, W> l;
            l.x = load_word<T, W>(a.x, offset);
            l.dy = load_word<T, W>(a.dy, offset);
            if (ADDS) l.addend = load_word<T, W>(a.addend, offset);
            l.mask = ((const u8 *)a.mask)[offset / W];
            return l;
        },
        [&](const loaded_masked<T, W> &l, i64 offset) {
            pack<T, W> masked;
#pragma unroll
            for (int i = 0; i < W; i++) {
                C dy = widen(l.dy.element[i]);
                if (ADDS) dy += widen(l.addend.element[i]);
                masked.element[i] = narrow<T>(l.mask >> i & 1 ? dy : (C)0);
            }
            store_word<T, W>(a.masked_dy, offset, masked);
#pragma unroll
            for (int i = 0; i < W; i++) {
                C dy = widen(masked.element[i]);
                s[i].first += dy;
                s[i].second = multiply_add(dy, widen(l.x.element[i]) - mean[i], s[i].second);
            }
        });
    store_sums(a, p, s);
}

/* ---- From partial sums to factors ---- */

/* Adds partial sums with blocks of [slices of the splits, columns]. Returns true for the threads that hold a result.
 * Four loads of each sum are in flight, because latency dominates. */
template <typename C>
__device__ inline bool add_partial_sums(const norm_partial_sums &j, i64 &column, sums<double> &s) {
    int slice = (int)threadIdx.x / j.columns, group = (int)threadIdx.x - slice * j.columns, slices = 256 / j.columns;
    column = (i64)blockIdx.x * j.columns + group;
    sums<double> total[1] = {{0, 0}};
    if (column < j.width)
        for (i64 split = slice; split < j.splits; split += 4 * slices) {
            C first[4], second[4];
#pragma unroll
            for (int u = 0; u < 4; u++) {
                bool valid = split + u * slices < j.splits;
                const C *from = (const C *)j.partial + (split + u * slices) * 2 * j.width + column;
                first[u] = valid ? from[0] : (C)0;
                second[u] = valid ? from[j.width] : (C)0;
            }
#pragma unroll
            for (int u = 0; u < 4; u++) {
                total[0].first += (double)first[u];
                total[0].second += (double)second[u];
            }
        }
    merge_slices<sum_pair_reducer<double>, 1>(total, group, slice, j.columns, slices);
    s = total[0];
    return column < j.width && slice == 0;
}

template <typename T, typename P> __global__ void norm_factors(norm_factors_args a) {
    typedef compute_type<T> C;
    i64 column;
    sums<double> s;
    if (!add_partial_sums<C>(a.partial_sums, column, s)) return;
    double n = (double)a.rows, delta = s.first / n,
           mean = (double)pivot_of(widen(((const T *)a.x)[column])) + delta;
    double variance = s.second / n - delta * delta;
    if (variance < 0) variance = 0;
    P stored = narrow<P>(mean);
    C stored_mean = (C)widen(stored),
      scale = (C)((double)widen(((const P *)a.gamma)[column]) / sqrt(variance + a.epsilon));
    C *to = (C *)a.factors + column;
    to[0] = stored_mean;
    to[a.partial_sums.width] = scale;
    to[2 * a.partial_sums.width] = /* compensates for the rounding of the mean */
        (C)((double)widen(((const P *)a.beta)[column]) + ((double)stored_mean - mean) * (double)scale);
    ((P *)a.mean)[column] = stored;
    ((P *)a.variance)[column] = narrow<P>(variance);
}

template <typename T, typename P> __global__ void norm_gradient_factors(norm_gradient_factors_args a) {
    typedef compute_type<T> C;
    i64 column;
    sums<double> s;
    if (!add_partial_sums<C>(a.partial_sums, column, s)) return;
    double n = (double)a.rows, rstd = 1 / sqrt((double)widen(((const P *)a.variance)[column]) + a.epsilon);
    double scale = (double)widen(((const P *)a.gamma)[column]) * rstd;
    C *to = (C *)a.factors + column;
    to[0] = (C)widen(((const P *)a.mean)[column]);
    to[a.partial_sums.width] = (C)scale;
    to[2 * a.partial_sums.width] = (C)(scale * s.first / n);
    to[3 * a.partial_sums.width] = (C)(scale * rstd * rstd * s.second / n);
    ((P *)a.dgamma)[column] = narrow<P>(s.second * rstd);
    ((P *)a.dbeta)[column] = narrow<P>(s.first);
}

template <typename T, typename P> __global__ void layer_norm_finish(layer_norm_finish_args a) {
    i64 column;
    sums<double> s;
    if (!add_partial_sums<compute_type<T>>(a.partial_sums, column, s)) return;
    ((P *)a.dgamma)[column] = narrow<P>(s.second);
    ((P *)a.dbeta)[column] = narrow<P>(s.first);
}

/* ---- Applying factors ---- */

/* Applies the factors to x, and adds the residual if there is one. */
template <typename T, int W, bool ADDS_RESIDUAL>
__global__ void __launch_bounds__(256, ADDS_RESIDUAL ? 3 : 4) norm_apply(norm_apply_args a) {
    typedef compute_type<T> C;
    row_range p = range_to_apply(a.tiling, W);
    C mean[W], scale[W], shift[W];
    load_columns<C, C, W>(mean, a.factors, p.column);
    load_columns<C, C, W>(scale, a.factors, a.tiling.width + p.column);
    load_columns<C, C, W>(shift, a.factors, 2 * a.tiling.width + p.column);
    for_each_row<ADDS_RESIDUAL ? 2 : 4, loaded_pair<T, W>>(
        p, a.tiling.width,
        [&](i64 offset) {
            loaded_pair<T, W> l;
            l.x = load_word<T, W>(a.x, offset);
            if (ADDS_RESIDUAL) l.dy = load_word<T, W>(a.residual, offset);
            return l;
        },
        [&](const loaded_pair<T, W> &l, i64 offset) {
            u32 bits = 0;
            pack<T, W> result;
#pragma unroll
            for (int i = 0; i < W; i++) {
                C y = multiply_add(widen(l.x.element[i]) - mean[i], scale[i], shift[i]);
                if (ADDS_RESIDUAL) y = rounded<T>(y) + widen(l.dy.element[i]);
                bits |= (u32)(y > rounds_to_zero<T>::largest()) << i;
                result.element[i] = narrow<T>(a.relu && y < 0 ? (C)0 : y);
            }
            store_word<T, W>(a.y, offset, result);
            if (ADDS_RESIDUAL && a.mask) ((u8 *)a.mask)[offset / W] = (u8)bits;
        });
}

template <typename T, int W, int RELU_MODE>
__global__ void __launch_bounds__(256, RELU_MODE == PLAIN ? 4 : 3) norm_gradient(norm_gradient_args a) {
    typedef compute_type<T> C;
    row_range p = range_to_apply(a.tiling, W);
    relu_gradient<T, W, RELU_MODE> relu_gradient_of(a.relu_factors, a.tiling.width, p);
    C mean[W], scale[W], dx_offset[W], dx_slope[W];
    load_columns<C, C, W>(mean, a.factors, p.column);
    load_columns<C, C, W>(scale, a.factors, a.tiling.width + p.column);
    load_columns<C, C, W>(dx_offset, a.factors, 2 * a.tiling.width + p.column);
    load_columns<C, C, W>(dx_slope, a.factors, 3 * a.tiling.width + p.column);
    for_each_row<2, loaded_pair<T, W>>(
        p, a.tiling.width,
        [&](i64 offset) { return loaded_pair<T, W>{load_word<T, W>(a.x, offset), load_word<T, W>(a.dy, offset)}; },
        [&](const loaded_pair<T, W> &l, i64 offset) {
            pack<T, W> dx;
#pragma unroll
            for (int i = 0; i < W; i++) {
                C x = widen(l.x.element[i]) - mean[i], dy = relu_gradient_of(widen(l.dy.element[i]), x, i);
                C correction = multiply_add(x, dx_slope[i], dx_offset[i]);
                dx.element[i] = narrow<T>(multiply_add(scale[i], dy, -correction));
            }
            store_word<T, W>(a.dx, offset, dx);
        });
}

/* ---- Layer normalisation: a few lanes, a warp or a block per row, in two passes. With mixed precision y and dy may have
 * half precision and x not: O is the type of y, G that of dy. ---- */

template <typename T, typename O, typename P> __global__ void layer_norm(layer_norm_args a) {
    typedef compute_type<T> C;
    __shared__ sums<C> shared[32];
    i64 row = global_thread_index() / a.lanes, n = row < a.rows ? a.n : 0;
    int lane = (int)threadIdx.x & (a.lanes - 1);
    const T *x = (const T *)a.x + (n ? row * a.n : 0);
    O *y = (O *)a.y + (n ? row * a.n : 0);
    C pivot = n ? pivot_of(widen(x[0])) : (C)0;
    sums<C> s = {0, 0};
    for_each_in_row(x, n, lane, a.lanes, [&](T e, i64) {
        C d = widen(e) - pivot;
        s.first += d;
        s.second = multiply_add(d, d, s.second);
    });
    merge_row<sum_pair_reducer<C>>(
        s, a.lanes, shared); /* also a barrier: all threads have read the pivot before y is written */
    if (!n) return;
    C delta = s.first / (C)n, variance = s.second / (C)n - delta * delta;
    variance = variance < 0 ? (C)0 : variance;
    C rstd = (C)(1 / sqrt((double)variance + a.epsilon));
    const P *gamma = (const P *)a.gamma, *beta = (const P *)a.beta;
    map_row(x, y, n, lane, a.lanes, [&](T e, i64 i) {
        C normalized = ((widen(e) - pivot) - delta) * rstd;
        return narrow<O>(multiply_add(normalized, (C)widen(gamma[i]), (C)widen(beta[i])));
    });
    if (lane) return;
    ((P *)a.mean)[row] = narrow<P>(pivot + delta);
    ((P *)a.rstd)[row] = narrow<P>(rstd);
}

/* Computes dx. layer_norm_sums computes the column sums for gamma and beta. */
template <typename T, typename G, typename P> __global__ void layer_norm_gradient(layer_norm_gradient_args a) {
    typedef compute_type<T> C;
    __shared__ sums<C> shared[32];
    i64 row = global_thread_index() / a.lanes, n = row < a.rows ? a.n : 0;
    int lane = (int)threadIdx.x & (a.lanes - 1);
    i64 start = n ? row * a.n : 0;
    const T *x = (const T *)a.x + start;
    const G *dy = (const G *)a.dy + start;
    T *dx = (T *)a.dx + start;
    const P *gamma = (const P *)a.gamma;
    C mean = n ? (C)widen(((const P *)a.mean)[row]) : (C)0, rstd = n ? (C)widen(((const P *)a.rstd)[row]) : (C)0;
    sums<C> s = {0, 0};
    for_each_in_row(x, n, lane, a.lanes, [&](T e, i64 i) {
        C h = (C)widen(gamma[i]) * widen(dy[i]);
        s.first += h;
        s.second = multiply_add(h, (widen(e) - mean) * rstd, s.second);
    });
    merge_row<sum_pair_reducer<C>>(s, a.lanes, shared);
    if (!n) return;
    C mean_h = s.first / (C)n, mean_hx = s.second / (C)n;
    map_row(x, dx, n, lane, a.lanes, [&](T e, i64 i) {
        C h = (C)widen(gamma[i]) * widen(dy[i]), normalized = (widen(e) - mean) * rstd;
        return narrow<T>(rstd * (h - mean_h - normalized * mean_hx));
    });
}

template <typename T, typename G, int W> struct loaded_x_dy {
    pack<T, W> x;
    pack<G, W> dy;
};

/* Column sums of dy and of dy times the normalised x. */
template <typename T, typename G, typename P, int W>
__global__ void __launch_bounds__(256, 4) layer_norm_sums(norm_sums_args a) {
    typedef compute_type<T> C;
    row_range p = range_to_sum(a.tiling, W);
    sums<C> s[W];
#pragma unroll
    for (int i = 0; i < W; i++) s[i] = sums<C>{0, 0};
    i64 row = p.first;
    typedef loaded_x_dy<T, G, W> loaded;
    for_each_row<2, loaded>(
        p, a.tiling.width,
        [&](i64 offset) { return loaded{load_word<T, W>(a.x, offset), load_word<G, W>(a.dy, offset)}; },
        [&](const loaded &l, i64) {
            C mean = widen(((const P *)a.mean)[row]), rstd = widen(((const P *)a.rstd)[row]);
            row += p.step;
#pragma unroll
            for (int i = 0; i < W; i++) {
                C dy = widen(l.dy.element[i]);
                s[i].first += dy;
                s[i].second = multiply_add(dy, (widen(l.x.element[i]) - mean) * rstd, s[i].second);
            }
        });
    store_sums(a, p, s);
}
