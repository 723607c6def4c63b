/* Local response normalisation across channels, as defined in src/graph/ops/lrn.c:
 *
 *     s = bias + alpha W(x^2)     y = x s^-beta     dx = dy s^-beta - 2 alpha beta x W(dy x s^(-beta-1))
 *
 * where W(v)[c] is the sum of v over the channels c - R … c + R of the same row, and R is the radius.
 *
 * Memory traffic: forward reads x and writes y, backward reads x and dy and writes dx, each once; s is not stored. A
 * thread has 8 channels of a row in registers, and the next lane of the warp has the next 8: a row of 64 channels
 * occupies 8 lanes. Channels of other threads come from adjacent lanes by shuffles, so a radius of up to 8
 * needs no memory, and the second window sum, whose terms depend on the first, is as cheap as the first. Rows that
 * are not a multiple of 8 channels or longer than a warp, and wider windows, use plain kernels with one element per
 * thread, through the caches, and store the terms of the second window sum in the workspace.
 *
 * The 2 R + 1 values of a window are added as sums of 1, 2, 4 … neighbours, which adjacent windows share: 5.5
 * additions per channel instead of 8 at R = 4. Running sums with subtraction would need 2, but an infinity in one
 * window would become NaN in the next.
 *
 * Powers: s^-1/2 and s^-3/4, the usual ones, are computed from reciprocal square roots; others use pow.
 *
 * If x is the result of a relu, dx is set to 0 unless x > 0. Sums over all rows (a bias's gradient) use dx before it
 * is rounded. For several sums, each over the rows of one network of a stack, blocks along z have the networks.
 */
#include "columns.cuh"
#include "lrn_args.h"

enum { RELU_GRAD = 1, SUM_OVER_ROWS = 2, SEVERAL_SUMS = 4 };
enum { BETA_ANY, BETA_1_2, BETA_3_4 };

/* ---- s^-beta and 1 / s ---- */

template <typename C> struct powers { C scale, inverse; };

/* s is at least bias > 0; if it is infinite, both are 0. */
template <int BETA> __device__ inline powers<float> powers_of(float s, float beta) {
    float root = rsqrtf(s);
    if (BETA == BETA_1_2) return powers<float>{root, root * root};
    if (BETA == BETA_3_4) return powers<float>{root == 0 ? 0.0f : root * root * rsqrtf(root), root * root};
    return powers<float>{powf(s, -beta), 1 / s};
}
template <int BETA> __device__ inline powers<double> powers_of(double s, double beta) {
    if (BETA == BETA_1_2) return powers<double>{1 / sqrt(s), 1 / s};
    if (BETA == BETA_3_4) return powers<double>{1 / (sqrt(s) * sqrt(sqrt(s))), 1 / s};
    return powers<double>{pow(s, -beta), 1 / s};
}

/* ---- Rows within a warp ---- */

enum { THREAD_CHANNELS = 8 };

/* The row and channels of a thread. Lanes without a row are idle. */
struct lane_position {
    int row, pack;                   /* row: within the block */
    bool is_first, is_last, is_idle; /* first or last: of the row */
};

__device__ inline lane_position get_lane_position(const lrn_args &a) {
    u32 lane = threadIdx.x & 31, row = lane, pack = divmod_in_place(row, a.lanes);
    bool idle = (int)row >= a.rows_per_warp;
    return lane_position{(int)((threadIdx.x >> 5) * a.rows_per_warp + row), (int)pack, pack == 0,
                         pack + 1 == a.lanes.value, idle};
}

/* Sets `all` to the thread's channels and R channels on either side, from adjacent lanes; zeros beyond the row's
 * ends. */
template <int R, typename C>
__device__ inline void gather_neighbours(const lane_position &pos, const C *mine, C *all) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < R; i++) {
        C before = __shfl_sync(0xffffffffu, mine[THREAD_CHANNELS - R + i], (lane + 31) & 31);
        C after = __shfl_sync(0xffffffffu, mine[i], (lane + 1) & 31);
        all[i] = pos.is_first ? (C)0 : before;
        all[R + THREAD_CHANNELS + i] = pos.is_last ? (C)0 : after;
    }
#pragma unroll
    for (int i = 0; i < THREAD_CHANNELS; i++) all[R + i] = mine[i];
}

/* Computes sums over sliding windows of 2 R + 1 channels by recursive doubling. On entry, all[i] is the sum of RUN
 * channels from i on, and sum[i] is the sum of the first ADDED channels of window i. Overwrites `all`. */
template <int R, int RUN, int ADDED, typename C> __device__ inline void add_windows(C *all, C *sum) {
    constexpr bool adds_run = ((2 * R + 1) & RUN) != 0;
#pragma unroll
    for (int i = 0; adds_run && i < THREAD_CHANNELS; i++) sum[i] = ADDED ? sum[i] + all[i + ADDED] : all[i];
#pragma unroll
    for (int i = 0; i + 2 * RUN <= THREAD_CHANNELS + 2 * R; i++) all[i] += all[i + RUN];
    if constexpr (2 * RUN <= 2 * R + 1) add_windows<R, 2 * RUN, ADDED + (adds_run ? RUN : 0)>(all, sum);
}

template <int R, typename C> __device__ inline void window_sums(const lane_position &pos, const C *mine, C *sum) {
    C all[THREAD_CHANNELS + 2 * R];
    gather_neighbours<R>(pos, mine, all);
    add_windows<R, 1, 0>(all, sum);
}

template <typename T>
__device__ inline void load_channels(bool is_active, const void *from, i64 pack_index, compute_type<T> *to) {
    pack<T, THREAD_CHANNELS> loaded = {};
    if (is_active) loaded = ((const pack<T, THREAD_CHANNELS> *)from)[pack_index];
#pragma unroll
    for (int i = 0; i < THREAD_CHANNELS; i++) to[i] = is_active ? widen(loaded.element[i]) : 0;
}

template <int R, int BETA, typename C>
__device__ inline void row_powers(const lrn_args &a, const lane_position &pos, const C *x, powers<C> *p) {
    C square[THREAD_CHANNELS], sum[THREAD_CHANNELS];
#pragma unroll
    for (int i = 0; i < THREAD_CHANNELS; i++) square[i] = x[i] * x[i];
    window_sums<R>(pos, square, sum);
#pragma unroll
    for (int i = 0; i < THREAD_CHANNELS; i++) p[i] = powers_of<BETA>((C)a.bias + (C)a.alpha * sum[i], (C)a.beta);
}

/* All lanes run every iteration together, because shuffles need all of them. */
template <typename T, int R, int BETA> __global__ void lrn(lrn_args a) {
    typedef compute_type<T> C;
    lane_position pos = get_lane_position(a);
    for (i64 first = (i64)blockIdx.x * a.rows_per_block; first < a.rows; first += (i64)gridDim.x * a.rows_per_block) {
        bool is_active = !pos.is_idle && first + pos.row < a.rows;
        i64 pack_index = (first + pos.row) * a.lanes.value + pos.pack;
        C x[THREAD_CHANNELS];
        powers<C> p[THREAD_CHANNELS];
        load_channels<T>(is_active, a.x, pack_index, x);
        row_powers<R, BETA>(a, pos, x, p);
        pack<T, THREAD_CHANNELS> y;
#pragma unroll
        for (int i = 0; i < THREAD_CHANNELS; i++) y.element[i] = narrow<T>(x[i] * p[i].scale);
        if (is_active) ((pack<T, THREAD_CHANNELS> *)a.to)[pack_index] = y;
    }
}

/* Returns where the partial sums of the block's network begin. */
template <int EPILOGUE> __device__ inline i64 sums_offset(int channels) {
    return (EPILOGUE & SEVERAL_SUMS) ? (i64)blockIdx.z * gridDim.x * channels : 0;
}

template <typename T, int R, int BETA, int EPILOGUE> __global__ void lrn_grad(lrn_args a) {
    typedef compute_type<T> C;
    lane_position pos = get_lane_position(a);
    C total[THREAD_CHANNELS] = {};
    const i64 first_row = (EPILOGUE & SEVERAL_SUMS) ? (i64)blockIdx.z * a.rows : 0; /* of the network */
    for (i64 first = (i64)blockIdx.x * a.rows_per_block; first < a.rows; first += (i64)gridDim.x * a.rows_per_block) {
        bool is_active = !pos.is_idle && first + pos.row < a.rows;
        i64 pack_index = (first_row + first + pos.row) * a.lanes.value + pos.pack;
        C x[THREAD_CHANNELS], dy[THREAD_CHANNELS], term[THREAD_CHANNELS], sum[THREAD_CHANNELS];
        powers<C> p[THREAD_CHANNELS];
        load_channels<T>(is_active, a.x, pack_index, x);
        load_channels<T>(is_active, a.dy, pack_index, dy);
        row_powers<R, BETA>(a, pos, x, p);
#pragma unroll
        for (int i = 0; i < THREAD_CHANNELS; i++) term[i] = dy[i] * x[i] * (p[i].scale * p[i].inverse);
        window_sums<R>(pos, term, sum);
        pack<T, THREAD_CHANNELS> result;
#pragma unroll
        for (int i = 0; i < THREAD_CHANNELS; i++) {
            C dx = dy[i] * p[i].scale - (C)a.twice_alpha_beta * x[i] * sum[i];
            if ((EPILOGUE & RELU_GRAD) && !(x[i] > 0)) dx = 0;
            result.element[i] = narrow<T>(dx);
            total[i] += dx;
        }
        if (is_active) ((pack<T, THREAD_CHANNELS> *)a.to)[pack_index] = result;
    }
    if constexpr ((EPILOGUE & SUM_OVER_ROWS) != 0)
        block_reduce_rows<THREAD_CHANNELS>(total, !pos.is_idle, pos.row, a.rows_per_block, pos.pack,
                                           (int)a.lanes.value, pos.pack, (int)a.channels.value,
                                           (C *)a.sums + sums_offset<EPILOGUE>(a.channels.value));
}

/* ---- Rows of any length, windows of any size: one element per thread ---- */

struct element_position {
    i64 row_begin; /* index of the row's first element */
    int channel, first, last; /* first and last: of the window */
};

__device__ inline element_position get_element_position(const lrn_args &a, i64 element) {
    i64 row = element;
    int channel = (int)divmod_in_place(row, a.channels);
    return element_position{element - channel, channel, max(channel - a.radius, 0),
                            min(channel + a.radius, (int)a.channels.value - 1)};
}

template <typename T>
__device__ inline powers<compute_type<T>> element_powers(const lrn_args &a, const element_position &pos) {
    typedef compute_type<T> C;
    const T *x = (const T *)a.x + pos.row_begin;
    C sum = 0;
    for (int i = pos.first; i <= pos.last; i++) {
        C value = widen(x[i]);
        sum += value * value;
    }
    return powers_of<BETA_ANY>((C)a.bias + (C)a.alpha * sum, (C)a.beta);
}

template <typename T> __global__ void lrn_generic(lrn_args a) {
    for (i64 i = global_thread_index(); i < a.rows * a.channels.value; i += grid_thread_count())
        ((T *)a.to)[i] =
            narrow<T>(widen(((const T *)a.x)[i]) * element_powers<T>(a, get_element_position(a, i)).scale);
}

template <typename T> __global__ void lrn_terms(lrn_args a) {
    typedef compute_type<T> C;
    for (i64 i = global_thread_index(); i < a.rows * a.channels.value; i += grid_thread_count()) {
        powers<C> p = element_powers<T>(a, get_element_position(a, i));
        ((C *)a.terms)[i] = widen(((const T *)a.dy)[i]) * widen(((const T *)a.x)[i]) * (p.scale * p.inverse);
    }
}

template <typename T> __global__ void lrn_grad_generic(lrn_args a) {
    typedef compute_type<T> C;
    for (i64 i = global_thread_index(); i < a.rows * a.channels.value; i += grid_thread_count()) {
        element_position pos = get_element_position(a, i);
        C x = widen(((const T *)a.x)[i]), dy = widen(((const T *)a.dy)[i]), sum = 0;
        for (int c = pos.first; c <= pos.last; c++) sum += ((const C *)a.terms)[pos.row_begin + c];
        ((T *)a.to)[i] =
            narrow<T>(dy * element_powers<T>(a, pos).scale - (C)a.twice_alpha_beta * x * sum);
    }
}
