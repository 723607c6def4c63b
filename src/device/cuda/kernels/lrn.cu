/* Local response normalisation across channels, as defined in src/graph/ops/lrn.c:
 *
 *     s = bias + alpha W(x^2)     y = x s^-beta     dx = dy s^-beta - 2 alpha beta x W(dy x s^(-beta-1))
 *
 * Memory traffic: forward reads x and writes y, backward reads x and dy and writes dx, each once; s is not stored. A
 * thread has 8 channels of a row in registers, and the next lanes of the warp the following channels: a row of 64
 * channels is 8 lanes. Channels beyond a thread's own come from adjacent lanes by shuffles, so a radius of up to 8
 * needs no memory, and the second W, of terms that depend on W(x^2), is as cheap as the first. Rows that are not a
 * multiple of 8 channels or longer than a warp, and wider windows, use plain kernels with one element per thread,
 * through the caches, and store the terms of the second W in the workspace.
 *
 * The 2 R + 1 values of a window are added as sums of 1, 2, 4 … neighbours, which adjacent windows share: 5.5
 * additions per channel instead of 8 at R = 4. Running sums with subtraction would need 2, but an infinity in one
 * window would become NaN in the next.
 *
 * Powers: s^-1/2 and s^-3/4, the usual ones, are computed from reciprocal square roots; others use pow.
 *
 * If x is the result of a relu, dx is set to 0 unless x > 0. Sums over all rows (a bias's gradient) use dx before it
 * is rounded.
 */
#include "columns.cuh"
#include "lrn_args.h"

enum { RELU_GRAD = 1, SUMMED = 2 };
enum { ANY_POWER, HALF, THREE_QUARTERS };

/* ---- s^-beta and 1 / s ---- */

template <typename C> struct powers { C scale, inverse; };

/* s is at least bias > 0; if it is infinite, both are 0. */
template <int POWER> __device__ inline powers<float> powers_of(float s, float beta) {
    float root = rsqrtf(s);
    if (POWER == HALF) return powers<float>{root, root * root};
    if (POWER == THREE_QUARTERS) return powers<float>{root == 0 ? 0.0f : root * root * rsqrtf(root), root * root};
    return powers<float>{powf(s, -beta), 1 / s};
}
template <int POWER> __device__ inline powers<double> powers_of(double s, double beta) {
    if (POWER == HALF) return powers<double>{1 / sqrt(s), 1 / s};
    if (POWER == THREE_QUARTERS) return powers<double>{1 / (sqrt(s) * sqrt(sqrt(s))), 1 / s};
    return powers<double>{pow(s, -beta), 1 / s};
}

/* ---- Rows within a warp ---- */

enum { THREAD_CHANNELS = 8 };

/* The row and channels of a thread. Surplus lanes are idle. */
struct lane_place {
    int row, pack; /* row: within the block */
    bool first, last, idle;
};

__device__ inline lane_place place_lane(const lrn_args &a) {
    u32 lane = threadIdx.x & 31, row = lane, pack = divide_off(row, a.lanes);
    bool idle = (int)row >= a.rows_per_warp;
    return lane_place{(int)((threadIdx.x >> 5) * a.rows_per_warp + row), (int)pack, pack == 0,
                      pack + 1 == a.lanes.divisor, idle};
}

/* Loads the own channels with R of the neighbours' on either side; zeros beyond the row's ends. */
template <int R, typename C> __device__ inline void load_neighbours(const lane_place &at, const C *mine, C *all) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < R; i++) {
        C before = __shfl_sync(0xffffffffu, mine[THREAD_CHANNELS - R + i], (lane + 31) & 31);
        C after = __shfl_sync(0xffffffffu, mine[i], (lane + 1) & 31);
        all[i] = at.first ? (C)0 : before;
        all[R + THREAD_CHANNELS + i] = at.last ? (C)0 : after;
    }
#pragma unroll
    for (int i = 0; i < THREAD_CHANNELS; i++) all[R + i] = mine[i];
}

/* Sums each 2 R + 1 neighbours. Overwrites `all`: here its entry i is the sum of RUN entries from i on, and `sum`
 * already contains ADDED entries of each window. */
template <int R, int RUN, int ADDED, typename C> __device__ inline void add_windows(C *all, C *sum) {
    constexpr bool adds_run = ((2 * R + 1) & RUN) != 0;
#pragma unroll
    for (int i = 0; adds_run && i < THREAD_CHANNELS; i++) sum[i] = ADDED ? sum[i] + all[i + ADDED] : all[i];
#pragma unroll
    for (int i = 0; i + 2 * RUN <= THREAD_CHANNELS + 2 * R; i++) all[i] += all[i + RUN];
    if constexpr (2 * RUN <= 2 * R + 1) add_windows<R, 2 * RUN, ADDED + (adds_run ? RUN : 0)>(all, sum);
}

template <int R, typename C> __device__ inline void window_sums(const lane_place &at, const C *mine, C *sum) {
    C all[THREAD_CHANNELS + 2 * R];
    load_neighbours<R>(at, mine, all);
    add_windows<R, 1, 0>(all, sum);
}

template <typename T> __device__ inline void load_row(bool is_active, const void *from, i64 pack_at, wide_of<T> *to) {
    pack<T, THREAD_CHANNELS> loaded = {};
    if (is_active) loaded = ((const pack<T, THREAD_CHANNELS> *)from)[pack_at];
#pragma unroll
    for (int i = 0; i < THREAD_CHANNELS; i++) to[i] = is_active ? widen(loaded.element[i]) : 0;
}

template <int R, int POWER, typename C>
__device__ inline void row_powers(const lrn_args &a, const lane_place &at, const C *x, powers<C> *p) {
    C square[THREAD_CHANNELS], sum[THREAD_CHANNELS];
#pragma unroll
    for (int i = 0; i < THREAD_CHANNELS; i++) square[i] = x[i] * x[i];
    window_sums<R>(at, square, sum);
#pragma unroll
    for (int i = 0; i < THREAD_CHANNELS; i++) p[i] = powers_of<POWER>((C)a.bias + (C)a.alpha * sum[i], (C)a.beta);
}

/* All lanes run every iteration together, because shuffles need all of them. */
template <typename T, int R, int POWER> __global__ void lrn(lrn_args a) {
    typedef wide_of<T> C;
    lane_place at = place_lane(a);
    for (i64 first = (i64)blockIdx.x * a.rows_per_block; first < a.rows; first += (i64)gridDim.x * a.rows_per_block) {
        bool is_active = !at.idle && first + at.row < a.rows;
        i64 pack_at = (first + at.row) * a.lanes.divisor + at.pack;
        C x[THREAD_CHANNELS];
        powers<C> p[THREAD_CHANNELS];
        load_row<T>(is_active, a.x, pack_at, x);
        row_powers<R, POWER>(a, at, x, p);
        pack<T, THREAD_CHANNELS> y;
#pragma unroll
        for (int i = 0; i < THREAD_CHANNELS; i++) y.element[i] = narrow<T>(x[i] * p[i].scale);
        if (is_active) ((pack<T, THREAD_CHANNELS> *)a.to)[pack_at] = y;
    }
}

template <typename T, int R, int POWER, int EPILOGUE> __global__ void lrn_grad(lrn_args a) {
    typedef wide_of<T> C;
    lane_place at = place_lane(a);
    C total[THREAD_CHANNELS] = {};
    for (i64 first = (i64)blockIdx.x * a.rows_per_block; first < a.rows; first += (i64)gridDim.x * a.rows_per_block) {
        bool is_active = !at.idle && first + at.row < a.rows;
        i64 pack_at = (first + at.row) * a.lanes.divisor + at.pack;
        C x[THREAD_CHANNELS], dy[THREAD_CHANNELS], term[THREAD_CHANNELS], sum[THREAD_CHANNELS];
        powers<C> p[THREAD_CHANNELS];
        load_row<T>(is_active, a.x, pack_at, x);
        load_row<T>(is_active, a.dy, pack_at, dy);
        row_powers<R, POWER>(a, at, x, p);
#pragma unroll
        for (int i = 0; i < THREAD_CHANNELS; i++) term[i] = dy[i] * x[i] * (p[i].scale * p[i].inverse);
        window_sums<R>(at, term, sum);
        pack<T, THREAD_CHANNELS> result;
#pragma unroll
        for (int i = 0; i < THREAD_CHANNELS; i++) {
            C dx = dy[i] * p[i].scale - (C)a.twice_alpha_beta * x[i] * sum[i];
            if ((EPILOGUE & RELU_GRAD) && !(x[i] > 0)) dx = 0;
            result.element[i] = narrow<T>(dx);
            total[i] += dx;
        }
        if (is_active) ((pack<T, THREAD_CHANNELS> *)a.to)[pack_at] = result;
    }
    if constexpr ((EPILOGUE & SUMMED) != 0)
        fold_rows<THREAD_CHANNELS>(total, !at.idle, at.row, a.rows_per_block, at.pack, (int)a.lanes.divisor, at.pack,
                       (int)a.channels.divisor, (C *)a.sums);
}

/* ---- Any row length and window: one element per thread ---- */

struct element_place {
    i64 row_begin; /* index of the row's first element */
    int first, last, channel;
};

__device__ inline element_place locate(const lrn_args &a, i64 element) {
    i64 row = element;
    int channel = (int)divide_off_wide(row, a.channels);
    return element_place{element - channel, max(channel - a.radius, 0),
                      min(channel + a.radius, (int)a.channels.divisor - 1), channel};
}

template <typename T>
__device__ inline powers<wide_of<T>> element_powers(const lrn_args &a, const element_place &at) {
    typedef wide_of<T> C;
    const T *x = (const T *)a.x + at.row_begin;
    C sum = 0;
    for (int i = at.first; i <= at.last; i++) {
        C value = widen(x[i]);
        sum += value * value;
    }
    return powers_of<ANY_POWER>((C)a.bias + (C)a.alpha * sum, (C)a.beta);
}

template <typename T> __global__ void lrn_any(lrn_args a) {
    for (i64 i = thread_of_grid(); i < a.rows * a.channels.divisor; i += threads_of_grid())
        ((T *)a.to)[i] = narrow<T>(widen(((const T *)a.x)[i]) * element_powers<T>(a, locate(a, i)).scale);
}

template <typename T> __global__ void lrn_terms(lrn_args a) {
    typedef wide_of<T> C;
    for (i64 i = thread_of_grid(); i < a.rows * a.channels.divisor; i += threads_of_grid()) {
        powers<C> p = element_powers<T>(a, locate(a, i));
        ((C *)a.terms)[i] = widen(((const T *)a.dy)[i]) * widen(((const T *)a.x)[i]) * (p.scale * p.inverse);
    }
}

template <typename T> __global__ void lrn_grad_any(lrn_args a) {
    typedef wide_of<T> C;
    for (i64 i = thread_of_grid(); i < a.rows * a.channels.divisor; i += threads_of_grid()) {
        element_place at = locate(a, i);
        C x = widen(((const T *)a.x)[i]), dy = widen(((const T *)a.dy)[i]), sum = 0;
        for (int c = at.first; c <= at.last; c++) sum += ((const C *)a.terms)[at.row_begin + c];
        ((T *)a.to)[i] =
            narrow<T>(dy * element_powers<T>(a, at).scale - (C)a.twice_alpha_beta * x * sum);
    }
}
