/* Image resizing, cropping and their gradients, as defined in src/graph/ops/image.c.
 *
 * All kernels gather: a thread computes a pixel of the result, or N channels of it, from the source pixels it depends
 * on. Each element of the result is written once, and the order of sums is that of the definition. Memory traffic:
 * the result, and up to four neighbours of the source, which adjacent pixels share in the caches.
 *
 * Positions are computed in double, as in the definition. A neighbour with weight exactly 0 is not read, so that an
 * infinity there does not spread; whether a weight is exactly 0 must not depend on the type.
 */
#include "columns.cuh"
#include "image_args.h"

struct pixel_position {
    i64 image;
    int row, column;
};

__device__ inline pixel_position get_pixel_position(i64 position, fast_divmod high, fast_divmod wide) {
    int column = (int)divmod_in_place(position, wide), row = (int)divmod_in_place(position, high);
    return pixel_position{position, row, column};
}

/* Returns the index of pack `pack` of a pixel. */
__device__ inline i64 pack_index(const column_grid &layout, i64 image, const int size[2], int row, int column,
                              int pack) {
    return ((image * size[0] + row) * size[1] + column) * layout.packs_per_position + pack;
}

/* ---- Resizing ---- */

/* As tu__neighbours_of in src/graph/ops/image.c. */
struct neighbours {
    int index[2];
    double weight[2];
};

__device__ inline int nearest_index(int index, int original, int resized) {
    return (int)((i64)index * original / resized);
}

__device__ inline neighbours neighbours_of(int index, int original, int resized, int nearest) {
    if (nearest) {
        int nearest_to = nearest_index(index, original, resized);
        return neighbours{{nearest_to, nearest_to}, {1, 0}};
    }
    double position = ((double)index + 0.5) * (double)original / (double)resized - 0.5;
    if (position < 0) position = 0;
    int low = (int)position;
    if (low >= original - 1) return neighbours{{original - 1, original - 1}, {1, 0}};
    double fraction = position - (double)low;
    return neighbours{{low, low + 1}, {1 - fraction, fraction}};
}

template <typename T, int N> __global__ void resize(resize_args a) {
    typedef compute_type<T> C;
    thread_position thread = get_thread_position(a.layout);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        pixel_position p = get_pixel_position(position, a.to_height, a.to_width);
        neighbours rows = neighbours_of(p.row, a.original[0], a.resized[0], 0);
        neighbours columns = neighbours_of(p.column, a.original[1], a.resized[1], 0);
        C sum[N] = {};
        for (int corner = 0; corner < 4; corner++) {
            double weight = rows.weight[corner / 2] * columns.weight[corner % 2];
            if (weight == 0) continue;
            i64 source = pack_index(a.layout, p.image, a.original, rows.index[corner / 2],
                                 columns.index[corner % 2], thread.pack);
            pack<T, N> pixel = ((const pack<T, N> *)a.from)[source];
            for (int e = 0; e < N; e++) sum[e] += (C)weight * widen(pixel.element[e]);
        }
        pack<T, N> result;
        for (int e = 0; e < N; e++) result.element[e] = narrow<T>(sum[e]);
        ((pack<T, N> *)a.to)[position * a.layout.packs_per_position + thread.pack] = result;
    }
}

/* Only copies elements: T has their size. */
template <typename T, int N> __global__ void resize_nearest(resize_args a) {
    thread_position thread = get_thread_position(a.layout);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        pixel_position p = get_pixel_position(position, a.to_height, a.to_width);
        i64 source = pack_index(a.layout, p.image, a.original, nearest_index(p.row, a.original[0], a.resized[0]),
                             nearest_index(p.column, a.original[1], a.resized[1]), thread.pack);
        ((pack<T, N> *)a.to)[position * a.layout.packs_per_position + thread.pack] =
            ((const pack<T, N> *)a.from)[source];
    }
}

/* Returns the indices of the resized axis that may depend on `index` of the original: one more on either side than
 * exact arithmetic would give, since those with weight 0 are skipped. */
struct span {
    int first, last;
};

__device__ inline span dependents_of(int index, int original, int resized) {
    double ratio = (double)resized / (double)original;
    double first = ((double)index - 0.5) * ratio - 1.5, last = ((double)index + 1.5) * ratio + 1.5;
    return span{first < 0 ? 0 : (int)first, last > (double)(resized - 1) ? resized - 1 : (int)last};
}

/* Returns the weight of an index of the original in one of the resized. */
__device__ inline double weight_of(const neighbours &n, int index) {
    return (n.index[0] == index ? n.weight[0] : 0) + (n.index[1] == index ? n.weight[1] : 0);
}

template <typename T, int N> __global__ void resize_grad(resize_args a) {
    typedef compute_type<T> C;
    thread_position thread = get_thread_position(a.layout);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        pixel_position p = get_pixel_position(position, a.to_height, a.to_width);
        span rows = dependents_of(p.row, a.original[0], a.resized[0]);
        span columns = dependents_of(p.column, a.original[1], a.resized[1]);
        C sum[N] = {};
        for (int i = rows.first; i <= rows.last; i++) {
            double row_weight = weight_of(neighbours_of(i, a.original[0], a.resized[0], a.nearest), p.row);
            for (int j = columns.first; row_weight != 0 && j <= columns.last; j++) {
                double weight =
                    row_weight * weight_of(neighbours_of(j, a.original[1], a.resized[1], a.nearest), p.column);
                if (weight == 0) continue;
                pack<T, N> next =
                    ((const pack<T, N> *)a.from)[pack_index(a.layout, p.image, a.resized, i, j, thread.pack)];
                for (int e = 0; e < N; e++) sum[e] += (C)weight * widen(next.element[e]);
            }
        }
        pack<T, N> result;
        for (int e = 0; e < N; e++) result.element[e] = narrow<T>(sum[e]);
        ((pack<T, N> *)a.to)[position * a.layout.packs_per_position + thread.pack] = result;
    }
}

/* ---- Cropping: T has the elements' size, I is the type of offsets ---- */

/* Returns the offset, clamped so that the window fits. */
template <typename I> __device__ inline int corner_of(const crop_args &a, i64 image, int axis) {
    I offset = ((const I *)a.offsets)[2 * image + axis];
    int limit = a.image[axis] - a.window[axis];
    return offset < 0 ? 0 : offset > (I)limit ? limit : (int)offset;
}

template <typename T, int N, typename I> __global__ void crop(crop_args a) {
    thread_position thread = get_thread_position(a.layout);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        pixel_position p = get_pixel_position(position, a.to_height, a.to_width);
        i64 source = pack_index(a.layout, p.image, a.image, p.row + corner_of<I>(a, p.image, 0),
                             p.column + corner_of<I>(a, p.image, 1), thread.pack);
        ((pack<T, N> *)a.to)[position * a.layout.packs_per_position + thread.pack] =
            ((const pack<T, N> *)a.from)[source];
    }
}

template <typename T, int N, typename I> __global__ void crop_grad(crop_args a) {
    thread_position thread = get_thread_position(a.layout);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        pixel_position p = get_pixel_position(position, a.to_height, a.to_width);
        int row = p.row - corner_of<I>(a, p.image, 0), column = p.column - corner_of<I>(a, p.image, 1);
        pack<T, N> result = {};
        if (row >= 0 && row < a.window[0] && column >= 0 && column < a.window[1])
            result = ((const pack<T, N> *)a.from)[pack_index(a.layout, p.image, a.window, row, column, thread.pack)];
        ((pack<T, N> *)a.to)[position * a.layout.packs_per_position + thread.pack] = result;
    }
}
