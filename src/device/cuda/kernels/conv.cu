/* Direct convolution: any type, group, dilation and padding, for cases without a cuDNN engine.
 *
 * Each result is a product of two matrices whose elements are computed on the fly:
 *
 *     y       [pixels of y, o]   = x at (pixel, tap)        times the filter [taps, o]
 *     x       [pixels of x, c]   = y at (pixel, tap) if the stride divides it   times the filter
 *     filter  [o, taps]          = y [pixels, o] transposed  times x at (pixel, tap)
 *
 * A block computes 64 by 64 results of one group. Slices of 16 along the depth go through shared memory, so each
 * element is loaded once for 64 products. This is the simplest compute-bound scheme; library engines use tensor cores
 * and are several times as fast. A filter's gradient has few results and a large depth: its depth is split, each
 * split is summed separately, and a second kernel adds the splits in order. Results do not depend on the order of
 * blocks.
 */
#include "prelude.cuh"
#include "conv_args.h"

enum { FORWARD, DGRAD, WGRAD }; /* y, gradient of x, gradient of the filter */
enum { TILE = 64, DEPTH = 16, THREADS = 256, THREAD_TILE = 4 /* rows and columns per thread */ };

/* Converts a pixel index to image, row and column. */
struct pixel_position { int image, row, column; };
__device__ inline pixel_position get_pixel_position(const conv_args &a, u32 pixel) {
    pixel_position p;
    p.column = (int)divmod_in_place(pixel, a.width);
    p.row = (int)divmod_in_place(pixel, a.height);
    p.image = (int)pixel;
    return p;
}

/* Converts an index along the taps to row and column of the filter and channel of the group. */
struct tap { int row, column, channel; };
__device__ inline tap tap_of(const conv_args &a, u32 tap_index) {
    tap t;
    t.channel = (int)divmod_in_place(tap_index, a.channels);
    t.column = (int)divmod_in_place(tap_index, a.filter_columns);
    t.row = (int)tap_index;
    return t;
}

/* Returns x at a tap of the window of a pixel of y; zero in the padding. */
template <typename T>
__device__ inline compute_type<T> load_x(const conv_args &a, int group, u32 pixel, u32 tap_index) {
    pixel_position p = get_pixel_position(a, pixel);
    tap t = tap_of(a, tap_index);
    int row = p.row * (int)a.stride[0].value + t.row * a.dilation[0] - a.pad[0];
    int column = p.column * (int)a.stride[1].value + t.column * a.dilation[1] - a.pad[1];
    if (row < 0 || row >= a.x_size[0] || column < 0 || column >= a.x_size[1]) return 0;
    i64 image_pixel = ((i64)p.image * a.x_size[0] + row) * a.x_size[1] + column;
    return widen(((const T *)a.x)[(image_pixel * a.groups + group) * a.x_channels + t.channel]);
}

/* Returns the element of y whose window has a pixel of x at the tap; zero if there is none. */
template <typename T>
__device__ inline compute_type<T> load_y(const conv_args &a, int group, u32 pixel, u32 tap_index) {
    pixel_position p = get_pixel_position(a, pixel);
    tap t = tap_of(a, tap_index);
    int row = p.row + a.pad[0] - t.row * a.dilation[0], column = p.column + a.pad[1] - t.column * a.dilation[1];
    if (row < 0 || column < 0) return 0;
    u32 y_row = (u32)row, y_column = (u32)column;
    u32 row_remainder = divmod_in_place(y_row, a.stride[0]),
        column_remainder = divmod_in_place(y_column, a.stride[1]);
    if (row_remainder || column_remainder || y_row >= (u32)a.y_size[0] || y_column >= (u32)a.y_size[1]) return 0;
    i64 image_pixel = ((i64)p.image * a.y_size[0] + y_row) * a.y_size[1] + y_column;
    return widen(((const T *)a.y)[(image_pixel * a.groups + group) * a.y_channels + t.channel]);
}

/* The left matrix, [rows, depth]. */
template <typename T, int RESULT>
__device__ inline compute_type<T> load_left(const conv_args &a, int group, u32 row, u32 k) {
    if (RESULT == FORWARD) return load_x<T>(a, group, row, k);
    if (RESULT == DGRAD) return load_y<T>(a, group, row, k);
    return widen(((const T *)a.y)[((i64)k * a.groups + group) * a.y_channels + row]);
}

/* The right matrix, [depth, columns]. */
template <typename T, int RESULT>
__device__ inline compute_type<T> load_right(const conv_args &a, int group, u32 k, u32 column) {
    if (RESULT == WGRAD) return load_x<T>(a, group, k, column);
    const T *filter = (const T *)a.filter;
    if (RESULT == FORWARD) return widen(filter[((i64)group * a.y_channels + column) * a.depth + k]);
    u32 taps = k, channel = divmod_in_place(taps, a.channels), filter_taps = (u32)a.depth / a.channels.value;
    return widen(filter[(((i64)group * a.y_channels + channel) * filter_taps + taps) * a.x_channels + column]);
}

/* Fills a tile in shared memory, [DEPTH][TILE]. Adjacent threads load adjacent elements: along the depth, or across
 * it. */
template <typename C, bool ALONG_DEPTH, typename F>
__device__ inline void fill_tile(C (*tile)[TILE + 1], u32 first, u32 end, u32 k_first, u32 k_end, F element) {
    for (int e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
        int k = ALONG_DEPTH ? e % DEPTH : e / TILE, i = ALONG_DEPTH ? e / DEPTH : e % TILE;
        bool inside = first + i < end && k_first + k < k_end;
        tile[k][i] = inside ? element(first + i, k_first + k) : C(0);
    }
}

template <typename T, int RESULT, typename C>
__device__ inline void store(const conv_args &a, int group, u32 row, u32 column, C value) {
    if (RESULT == WGRAD) {
        i64 index = ((i64)group * a.rows + row) * a.columns + column;
        if (a.partial)
            ((C *)a.partial)[(i64)blockIdx.z * a.groups * a.rows * a.columns + index] = value;
        else
            ((T *)a.filter)[index] = narrow<T>(value);
        return;
    }
    int channel = group * a.columns + (int)column;
    if (a.bias) value += widen(((const T *)a.bias)[channel]);
    if (a.relu) value = value < C(0) ? C(0) : value;
    ((T *)(RESULT == FORWARD ? a.y : a.x))[(i64)row * a.groups * a.columns + channel] = narrow<T>(value);
}

/* Blocks: x: tiles, y: groups, z: splits of the depth. */
template <typename T, int RESULT> __global__ void __launch_bounds__(THREADS, 2) conv_direct(conv_args a) {
    typedef compute_type<T> C;
    __shared__ C left[DEPTH][TILE + 1], right[DEPTH][TILE + 1];
    u32 column_tiles = ((u32)a.columns + TILE - 1) / TILE;
    u32 first_row = blockIdx.x / column_tiles * TILE, first_column = blockIdx.x % column_tiles * TILE;
    u32 k_first = blockIdx.z * (u32)a.split_depth;
    u32 k_end = (u32)a.depth - k_first < (u32)a.split_depth ? (u32)a.depth : k_first + (u32)a.split_depth;
    int thread_column = threadIdx.x % 16, thread_row = threadIdx.x / 16;
    for (int group = blockIdx.y; group < a.groups; group += gridDim.y) {
        C sum[THREAD_TILE][THREAD_TILE] = {};
        for (u32 k = k_first; k < k_end; k += DEPTH) {
            fill_tile<C, RESULT != WGRAD>(left, first_row, (u32)a.rows, k, k_end, [&](u32 row, u32 depth) {
                return load_left<T, RESULT>(a, group, row, depth);
            });
            fill_tile<C, RESULT == FORWARD>(
                right, first_column, (u32)a.columns, k, k_end,
                [&](u32 column, u32 depth) { return load_right<T, RESULT>(a, group, depth, column); });
            __syncthreads();
            for (int d = 0; d < DEPTH; d++) {
                C l[THREAD_TILE], r[THREAD_TILE];
#pragma unroll
                for (int i = 0; i < THREAD_TILE; i++)
                    l[i] = left[d][thread_row + 16 * i], r[i] = right[d][thread_column + 16 * i];
#pragma unroll
                for (int i = 0; i < THREAD_TILE; i++)
#pragma unroll
                    for (int j = 0; j < THREAD_TILE; j++) sum[i][j] += l[i] * r[j];
            }
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < THREAD_TILE; i++)
#pragma unroll
            for (int j = 0; j < THREAD_TILE; j++) {
                u32 row = first_row + thread_row + 16 * i, column = first_column + thread_column + 16 * j;
                if (row < (u32)a.rows && column < (u32)a.columns)
                    store<T, RESULT>(a, group, row, column, sum[i][j]);
            }
    }
}

template <typename T> __global__ void conv_sum(conv_sum_args a) {
    typedef compute_type<T> C;
    const C *partial = (const C *)a.partial;
    for (i64 i = global_thread_index(); i < a.count; i += grid_thread_count()) {
        C sum = partial[i];
        for (int split = 1; split < a.splits; split++) sum += partial[split * a.count + i];
        ((T *)a.out)[i] = narrow<T>(sum);
    }
}

/* Applies bias, residual and relu in place. Reads and writes y once, 16 bytes at a time if rows allow, and loads several
 * words before it uses the first. The position in a row advances by a constant step, so the loop has no division. */
template <typename T, int N> __global__ void conv_epilogue(conv_epilogue_args a) {
    typedef compute_type<T> C;
    enum { AHEAD = 4 };
    pack<T, N> *y = (pack<T, N> *)a.y;
    const pack<T, N> *bias = (const pack<T, N> *)a.bias, *residual = (const pack<T, N> *)a.residual;
    const i64 step = grid_thread_count(), row_step = step % a.row_packs;
    i64 in_row = global_thread_index() % a.row_packs;
    for (i64 first = global_thread_index(); first < a.packs; first += AHEAD * step) {
        pack<T, N> values[AHEAD], others[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            i64 i = first + u * step;
            if (i >= a.packs) continue;
            values[u] = y[i];
            if (residual) others[u] = residual[i];
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            i64 i = first + u * step;
            if (i >= a.packs) continue;
            pack<T, N> value = values[u], added = bias ? bias[in_row] : value;
#pragma unroll
            for (int e = 0; e < N; e++) {
                C sum = widen(value.element[e]);
                if (bias) sum += widen(added.element[e]);
                if (residual) sum += widen(others[u].element[e]);
                value.element[e] = narrow<T>(a.relu && sum < C(0) ? C(0) : sum);
            }
            y[i] = value;
            in_row += row_step;
            if (in_row >= a.row_packs) in_row -= a.row_packs;
        }
    }
}
