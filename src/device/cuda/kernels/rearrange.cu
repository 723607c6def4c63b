/* Operations that only copy elements: strided copies, transposes, concatenations, fills, bands.
 *
 * Each kernel reads what it needs once and writes y once, in order, and is bound by memory. Types do not matter, so
 * kernels are templates on words: an element, or up to 16 bytes of adjacent elements if all sizes and offsets are
 * multiples of that (the channels of NHWC images mostly are).
 *
 * copy_elements finds the source of every word of y by splitting its index into coordinates: broadcasts, slices,
 * flips, permutations that keep the last axis, pads. Elements of 1 and 2 bytes are combined to 4 before they are
 * stored. A thread has four loads in flight before it stores the first, to hide latency.
 *
 * copy_tiles does transposes, where neighbours in y are far apart in x: tiles go through shared memory, so that rows
 * are read and written contiguously. A tile row is 128 bytes, or 64 for elements of 1 byte; in shared memory it is
 * padded by one bank, to avoid bank conflicts along columns.
 */
#include "extent.cuh"
#include "rearrange_args.h"

enum { IN_FLIGHT = 4 };

/* ---- Any strides ---- */

template <typename I> __device__ inline bool has_source(const copy_axis &axis, I &index) {
    I distance = index - (I)axis.before; /* wraps around if the index is before */
    if (distance >= (I)axis.extent_in_source) return false;
    index = distance;
    return axis.step.size == 1 || divmod_in_place(index, axis.step) == 0;
}

template <typename T, typename I, bool PAD> __device__ inline T load_source(const copy_args &a, I index) {
    i64 offset = a.start;
    bool inside = true;
    for (int d = a.rank - 1; d >= 0; d--) {
        I coordinate = index;
        if (d > 0) coordinate = divmod_in_place(index, a.axes[d].size);
        if (PAD && inside) inside = has_source(a.axes[d], coordinate);
        offset += (i64)coordinate * a.axes[d].from;
    }
    return inside ? ((const T *)a.x)[offset] : repeating<T>::of(a.pattern);
}

/* N words are stored at once. */
template <typename T, int N, typename I, bool PAD> __global__ void copy_elements(copy_args a) {
    i64 stride = grid_thread_count() * N;
    for (i64 first = global_thread_index() * N; first < a.count; first += IN_FLIGHT * stride) {
        pack<T, N> loaded[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                i64 i = first + u * stride + n;
                if (i < a.count) loaded[u].element[n] = load_source<T, I, PAD>(a, (I)i);
            }
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            i64 i = first + u * stride;
            T *y = (T *)a.y + i;
            if (i + N <= a.count)
                *(pack<T, N> *)y = loaded[u];
            else
                for (int n = 0; n < N; n++)
                    if (i + n < a.count) y[n] = loaded[u].element[n];
        }
    }
}

/* ---- Transposes: blocks of 256 threads, 8 warps ---- */

template <typename T> struct tile_of {
    static constexpr int bytes = (int)sizeof(T);
    static constexpr int side = bytes < 4 ? 64 : 32;
    static constexpr int width = side + (bytes < 4 ? 4 / bytes : 1);
};

template <typename T> __global__ void copy_tiles(tile_args a) {
    constexpr int side = tile_of<T>::side, width = tile_of<T>::width, rows = side / 8, columns = side / 32;
    __shared__ T tile[side][width]; /* [along][across] */
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (u32 tile_index = blockIdx.x; tile_index < a.tiles; tile_index += gridDim.x) {
        u32 outer = tile_index;
        i64 along = (i64)divmod_in_place(outer, a.tiles_along) * side;
        i64 across = (i64)divmod_in_place(outer, a.tiles_across) * side;
        i64 from = a.start + along * a.along_from + across, to = across * a.across_to + along;
        for (int d = a.rank - 1; d >= 0; d--) {
            i64 index = divmod_in_place(outer, a.axes[d].size.divmod);
            from += index * a.axes[d].from;
            to += index * a.axes[d].to;
        }
        T loaded[rows][columns];
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int k = 0; k < columns; k++) {
                int r = warp + 8 * i, c = lane + 32 * k;
                if (along + r < a.along && across + c < a.across)
                    loaded[i][k] = ((const T *)a.x)[from + r * a.along_from + c];
            }
        __syncthreads(); /* the previous tile has been stored */
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int k = 0; k < columns; k++) tile[warp + 8 * i][lane + 32 * k] = loaded[i][k];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int k = 0; k < columns; k++) {
                int c = warp + 8 * i, r = lane + 32 * k;
                if (along + r < a.along && across + c < a.across)
                    ((T *)a.y)[to + c * a.across_to + r] = tile[r][c];
            }
    }
}

/* ---- Concatenation of rows. A roll concatenates two parts of one tensor ---- */

template <typename T, typename I> __device__ inline T concat_source(const concat_args &a, I row, I index) {
    int p = 0;
    i64 begin = 0;
    while ((i64)index >= a.part[p].end) begin = a.part[p++].end;
    return ((const T *)a.part[p].from)[(i64)row * a.part[p].stride + ((i64)index - begin)];
}

template <typename T, typename I> __global__ void concat_rows(concat_args a) {
    i64 stride = grid_thread_count();
    for (i64 first = global_thread_index(); first < a.count; first += IN_FLIGHT * stride) {
        T loaded[IN_FLIGHT];
        i64 to[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++) {
            if (first + u * stride >= a.count) continue;
            I row = (I)(first + u * stride), index = divmod_in_place(row, a.span);
            loaded[u] = concat_source<T, I>(a, row, index);
            to[u] = (i64)row * a.row + a.start + (i64)index;
        }
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (first + u * stride < a.count) ((T *)a.y)[to[u]] = loaded[u];
    }
}

/* ---- Fills and bands ---- */

template <typename T> __global__ void fill(fill_args a) {
    for (i64 i = global_thread_index(); i < a.count; i += grid_thread_count())
        ((T *)a.y)[i] = repeating<T>::of(a.pattern);
}

template <typename T, typename I> __global__ void band(band_args a) {
    for (i64 i = global_thread_index(); i < a.count; i += grid_thread_count()) {
        I row = (I)i;
        i64 column = (i64)divmod_in_place(row, a.columns);
        i64 below = (i64)divmod_in_place(row, a.rows) - column;
        bool in_band = (a.below < 0 || below <= a.below) && (a.above < 0 || -below <= a.above);
        ((T *)a.y)[i] = in_band ? ((const T *)a.x)[i] : (T)0;
    }
}
