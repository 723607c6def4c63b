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

enum { AT_ONCE = 4 };

/* ---- Any strides ---- */

template <typename I> __device__ inline bool comes_from(const move_axis &axis, I &place) {
    I distance = place - (I)axis.before; /* wraps around if the index is before */
    if (distance >= (I)axis.reach) return false;
    place = distance;
    return axis.step.size == 1 || split_off(place, axis.step) == 0;
}

template <typename T, typename I, bool PAD> __device__ inline T source_of(const move_args &a, I index) {
    i64 at = a.start;
    bool inside = true;
    for (int d = a.rank - 1; d >= 0; d--) {
        I place = index;
        if (d > 0) place = split_off(index, a.axes[d].size);
        if (PAD && inside) inside = comes_from(a.axes[d], place);
        at += (i64)place * a.axes[d].from;
    }
    return inside ? ((const T *)a.x)[at] : repeating<T>::of(a.number);
}

/* N words are stored at once. */
template <typename T, int N, typename I, bool PAD> __global__ void move_elements(move_args a) {
    i64 stride = threads_of_grid() * N;
    for (i64 first = thread_of_grid() * N; first < a.count; first += AT_ONCE * stride) {
        pack<T, N> held[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
#pragma unroll
            for (int n = 0; n < N; n++) {
                i64 i = first + u * stride + n;
                if (i < a.count) held[u].element[n] = source_of<T, I, PAD>(a, (I)i);
            }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            i64 i = first + u * stride;
            T *y = (T *)a.y + i;
            if (i + N <= a.count)
                *(pack<T, N> *)y = held[u];
            else
                for (int n = 0; n < N; n++)
                    if (i + n < a.count) y[n] = held[u].element[n];
        }
    }
}

/* ---- Transposes: blocks of 256 threads, 8 warps ---- */

template <typename T> struct tile_of {
    static constexpr int bytes = (int)sizeof(T);
    static constexpr int side = bytes < 4 ? 64 : 32;
    static constexpr int width = side + (bytes < 4 ? 4 / bytes : 1);
};

template <typename T> __global__ void move_tiles(tile_args a) {
    constexpr int side = tile_of<T>::side, width = tile_of<T>::width, rows = side / 8, columns = side / 32;
    __shared__ T tile[side][width]; /* [along][across] */
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (u32 number = blockIdx.x; number < a.tiles; number += gridDim.x) {
        u32 outer = number;
        i64 along = (i64)divide_off(outer, a.tiles_along) * side;
        i64 across = (i64)divide_off(outer, a.tiles_across) * side;
        i64 from = a.start + along * a.along_from + across, to = across * a.across_to + along;
        for (int d = a.rank - 1; d >= 0; d--) {
            i64 place = divide_off(outer, a.axes[d].size.by);
            from += place * a.axes[d].from;
            to += place * a.axes[d].to;
        }
        T held[rows][columns];
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int k = 0; k < columns; k++) {
                int r = warp + 8 * i, c = lane + 32 * k;
                if (along + r < a.along && across + c < a.across)
                    held[i][k] = ((const T *)a.x)[from + r * a.along_from + c];
            }
        __syncthreads(); /* the previous tile has been stored */
#pragma unroll
        for (int i = 0; i < rows; i++)
#pragma unroll
            for (int k = 0; k < columns; k++) tile[warp + 8 * i][lane + 32 * k] = held[i][k];
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

template <typename T, typename I> __device__ inline T joined(const join_args &a, I row, I place) {
    int p = 0;
    i64 begin = 0;
    while ((i64)place >= a.part[p].end) begin = a.part[p++].end;
    return ((const T *)a.part[p].from)[(i64)row * a.part[p].stride + ((i64)place - begin)];
}

template <typename T, typename I> __global__ void join(join_args a) {
    i64 stride = threads_of_grid();
    for (i64 first = thread_of_grid(); first < a.count; first += AT_ONCE * stride) {
        T held[AT_ONCE];
        i64 to[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            if (first + u * stride >= a.count) continue;
            I row = (I)(first + u * stride), place = split_off(row, a.span);
            held[u] = joined<T, I>(a, row, place);
            to[u] = (i64)row * a.row + a.start + (i64)place;
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            if (first + u * stride < a.count) ((T *)a.y)[to[u]] = held[u];
    }
}

/* ---- Fills and bands ---- */

template <typename T> __global__ void fill(fill_args a) {
    for (i64 i = thread_of_grid(); i < a.count; i += threads_of_grid())
        ((T *)a.y)[i] = repeating<T>::of(a.number);
}

template <typename T, typename I> __global__ void band(band_args a) {
    for (i64 i = thread_of_grid(); i < a.count; i += threads_of_grid()) {
        I row = (I)i;
        i64 column = (i64)split_off(row, a.columns);
        i64 below = (i64)split_off(row, a.rows) - column;
        bool kept = (a.below < 0 || below <= a.below) && (a.above < 0 || -below <= a.above);
        ((T *)a.y)[i] = kept ? ((const T *)a.x)[i] : (T)0;
    }
}
