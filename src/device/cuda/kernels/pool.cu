/* Pooling, as defined in src/graph/ops/pool.c.
 *
 * Maximum. max_pool reads x once from memory, since overlapping windows hit the caches, and writes y. If a gradient
 * follows, it also writes the argmax of each window: an index in the window, one byte. The gradient then reads dy and
 * the argmax and writes dx: x, four times as large as y at stride 2, is not read again. The byte's highest bit is 1 if
 * the maximum is positive. If x is the result of a relu, dx is 0 unless x > 0: this bit replaces x.
 *
 * The argmax of a window is its first largest element in row-major order; NaN is larger than all. Windows of 2 x 2 and
 * 3 x 3 are unrolled: all their elements are loaded before the first is compared. An element outside the image is
 * replaced by the nearest one inside, including its index: comparing it with itself changes nothing, and no branch is
 * needed.
 *
 * The gradient gathers: each element of dx sums the windows whose argmax it is, in row-major order. With one element
 * per thread, each would read 2.25 windows (3 x 3, stride 2) and be bound by instructions. So a thread handles a
 * patch as large as the stride, which few windows overlap (4 for 4 elements), each loaded once, with all indices
 * known at compile time. Other windows use a plain kernel.
 *
 * Sums over all positions (a bias's gradient) use dx before it is rounded. For several sums, each over the images of one
 * network of a stack, blocks along z have the networks.
 */
#include "columns.cuh"
#include "pool_args.h"

enum { RELU_GRAD = 1, SUM_OVER_POSITIONS = 2, SEVERAL_SUMS = 4 };

/* ---- Positions ---- */

struct image_position {
    i64 image;
    int row, column;
};

__device__ inline image_position get_image_position(const pool_args &a, i64 position) {
    int column = (int)divmod_in_place(position, a.position_columns),
        row = (int)divmod_in_place(position, a.position_rows);
    return image_position{position, row, column};
}

/* Start of x, and of y or the argmax, for an image and a pack. */
template <typename T, int N> __device__ inline const T *x_of(const pool_args &a, const void *x, i64 image, int pack) {
    return (const T *)x + (image * a.x_size[0] * a.x_size[1] * a.layout.packs_per_position + pack) * N;
}
template <typename T, int N> __device__ inline const T *y_of(const pool_args &a, const void *y, i64 image, int pack) {
    return (const T *)y + (image * a.y_size[0] * a.y_size[1] * a.layout.packs_per_position + pack) * N;
}

template <typename T, int N> __device__ inline pack<T, N> load(const T *from, i64 pixel, int channels) {
    return *(const pack<T, N> *)(from + pixel * channels);
}

/* A window: its corner in x, and its rows and columns inside the image, [start, end). Never empty. */
struct window {
    int corner[2], start[2], end[2];
};

__device__ inline window window_at(const pool_args &a, int row, int column) {
    const int index[2] = {row, column};
    window w;
    for (int i = 0; i < 2; i++) {
        w.corner[i] = index[i] * (int)a.stride[i].value - a.pad[i];
        w.start[i] = w.corner[i] < 0 ? -w.corner[i] : 0;
        w.end[i] = min(a.window[i], a.x_size[i] - w.corner[i]);
    }
    return w;
}

/* The windows that contain a row or column of x: [first, last]. */
struct span {
    int first, last;
};

__device__ inline span windows_over(const pool_args &a, int axis, int index) {
    int padded = index + a.pad[axis], past_window = padded - a.window[axis];
    int first = past_window < 0 ? 0 : (int)divide((u32)past_window, a.stride[axis]) + 1;
    return span{first, min((int)divide((u32)padded, a.stride[axis]), a.y_size[axis] - 1)};
}

/* ---- Argmax: index of the maximum within its window ---- */

template <typename P> struct above_zero { static constexpr u32 mark = 1u << (8 * sizeof(P) - 1); };

/* Converts back a value that was widened from T. */
template <typename T, typename C> __device__ inline T convert_back(C x) { return narrow<T>(x); }
template <> __device__ inline bf16 convert_back<bf16, float>(float x) {
    return bf16{(u16)(__float_as_uint(x) >> 16)};
}

template <typename T, int N> struct running_max {
    compute_type<T> value[N];
    int index[N];
    __device__ void start(const pack<T, N> &x, int window_index) {
        for (int e = 0; e < N; e++) value[e] = widen(x.element[e]), index[e] = window_index;
    }
    __device__ void compare(const pack<T, N> &x, int window_index) {
        for (int e = 0; e < N; e++) {
            compute_type<T> next = widen(x.element[e]);
            bool is_larger = !(next <= value[e]) && value[e] == value[e];
            value[e] = is_larger ? next : value[e];
            index[e] = is_larger ? window_index : index[e];
        }
    }
};

/* `x`: start of the image. */
template <typename T, int N>
__device__ inline running_max<T, N> find_argmax(const pool_args &a, const window &w, const T *x) {
    running_max<T, N> best;
    for (int i = w.start[0]; i < w.end[0]; i++) {
        i64 row = (i64)(w.corner[0] + i) * a.x_size[1] + w.corner[1];
        for (int j = w.start[1]; j < w.end[1]; j++) {
            pack<T, N> next = load<T, N>(x, row + j, a.channels);
            if (i == w.start[0] && j == w.start[1])
                best.start(next, i * a.window[1] + j);
            else
                best.compare(next, i * a.window[1] + j);
        }
    }
    return best;
}

template <typename T, int N, int K>
__device__ inline running_max<T, N> find_argmax_unrolled(const pool_args &a, const window &w, const T *x) {
    int row[K], column[K];
    pack<T, N> all[K * K];
    for (int i = 0; i < K; i++) {
        row[i] = min(max(i, w.start[0]), w.end[0] - 1);
        column[i] = min(max(i, w.start[1]), w.end[1] - 1);
    }
#pragma unroll
    for (int i = 0; i < K * K; i++) {
        i64 pixel = (i64)(w.corner[0] + row[i / K]) * a.x_size[1] + w.corner[1] + column[i % K];
        all[i] = load<T, N>(x, pixel, a.channels);
    }
    running_max<T, N> best;
    best.start(all[0], row[0] * K + column[0]);
#pragma unroll
    for (int i = 1; i < K * K; i++) best.compare(all[i], row[i / K] * K + column[i % K]);
    return best;
}

/* P: type of an argmax. K: height and width of the window; 0: given by the arguments. */
template <typename T, int N, typename P, int K> __global__ void max_pool(pool_args a) {
    thread_position thread = get_thread_position(a.layout);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        image_position s = get_image_position(a, position);
        window w = window_at(a, s.row, s.column);
        const T *x = x_of<T, N>(a, a.x, s.image, thread.pack);
        running_max<T, N> best;
        if constexpr (K == 0)
            best = find_argmax<T, N>(a, w, x);
        else
            best = find_argmax_unrolled<T, N, K>(a, w, x);
        pack<T, N> y;
        pack<P, N> argmax;
        for (int e = 0; e < N; e++) {
            y.element[e] = convert_back<T>(best.value[e]);
            argmax.element[e] = (P)((u32)best.index[e] | (best.value[e] > 0 ? above_zero<P>::mark : 0u));
        }
        i64 to = position * a.layout.packs_per_position + thread.pack;
        if (a.to) ((pack<T, N> *)a.to)[to] = y;
        if (a.argmax) ((pack<P, N> *)a.argmax)[to] = argmax;
    }
}

/* y[window] = u[argmax]. Needed only for second derivatives, so one element per thread is fast enough. */
template <typename T> __global__ void max_pool_pick(pool_args a) {
    thread_position thread = get_thread_position(a.layout);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        image_position s = get_image_position(a, position);
        window w = window_at(a, s.row, s.column);
        int index = find_argmax<T, 1>(a, w, x_of<T, 1>(a, a.x, s.image, thread.pack)).index[0];
        int row = w.corner[0] + index / a.window[1], column = w.corner[1] + index % a.window[1];
        const T *u = x_of<T, 1>(a, a.from, s.image, thread.pack);
        ((T *)a.to)[position * a.channels + thread.pack] = u[((i64)row * a.x_size[1] + column) * a.channels];
    }
}

/* ---- Gradient of the maximum ---- */

/* Returns the first position of the block's network, and where its partial sums begin. */
template <int EPILOGUE> __device__ inline i64 first_position(const pool_args &a) {
    return (EPILOGUE & SEVERAL_SUMS) ? (i64)blockIdx.z * a.layout.positions : 0;
}
template <int EPILOGUE> __device__ inline i64 sums_offset(const pool_args &a) {
    return (EPILOGUE & SEVERAL_SUMS) ? (i64)blockIdx.z * gridDim.x * a.channels : 0;
}

/* Writes one row of sums per block, if sums are needed. */
template <int N, int EPILOGUE, typename C>
__device__ inline void store_sums(const pool_args &a, const thread_position &thread, const C *sum) {
    if constexpr ((EPILOGUE & SUM_OVER_POSITIONS) != 0)
        block_reduce_rows<N>(sum, thread.pack < a.layout.packs_per_position && thread.row < a.layout.rows, thread.row,
                             a.layout.rows, thread.pack_in_block, (int)a.layout.packs_per_block.value, thread.pack,
                             a.channels, (C *)a.sums + sums_offset<EPILOGUE>(a));
}

/* Any window and stride; a position is an element of x. */
template <typename T, int N, typename P, int EPILOGUE> __global__ void max_pool_grad(pool_args a) {
    typedef compute_type<T> C;
    const u32 mark = above_zero<P>::mark, ignored = (EPILOGUE & RELU_GRAD) ? 0u : mark;
    thread_position thread = get_thread_position(a.layout);
    C sum[N] = {};
    const i64 first = first_position<EPILOGUE>(a);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        image_position s = get_image_position(a, first + position);
        span rows = windows_over(a, 0, s.row), columns = windows_over(a, 1, s.column);
        const T *dy = y_of<T, N>(a, a.from, s.image, thread.pack);
        const P *argmax = y_of<P, N>(a, a.argmax, s.image, thread.pack);
        C dx[N] = {};
        for (int i = rows.first; i <= rows.last; i++)
            for (int j = columns.first; j <= columns.last; j++) {
                i64 window_offset = (i64)i * a.y_size[1] + j;
                pack<T, N> window_dy = load<T, N>(dy, window_offset, a.channels);
                pack<P, N> index = load<P, N>(argmax, window_offset, a.channels);
                window w = window_at(a, i, j);
                u32 index_in_window = (u32)((s.row - w.corner[0]) * a.window[1] + s.column - w.corner[1]);
                for (int e = 0; e < N; e++)
                    if (((u32)index.element[e] | ignored) == (index_in_window | mark))
                        dx[e] += widen(window_dy.element[e]);
            }
        pack<T, N> result;
        for (int e = 0; e < N; e++) {
            result.element[e] = narrow<T>(dx[e]);
            sum[e] += dx[e];
        }
        ((pack<T, N> *)a.to)[(first + position) * a.layout.packs_per_position + thread.pack] = result;
    }
    store_sums<N, EPILOGUE>(a, thread, sum);
}

/* The argmax of N channels, four per word if possible: comparing one is then one instruction. */
template <int N> struct index_pack {
    enum { WORDS = N < 4 ? N : N / 4 };
    u32 word[WORDS];
    __device__ void load(const u8 *from) {
        for (int i = 0; i < WORDS; i++) word[i] = N < 4 ? from[i] : ((const u32 *)from)[i];
    }
    __device__ void set(u32 bits) {
        for (int i = 0; i < WORDS; i++) word[i] |= bits;
    }
    __device__ bool is(int e, u32 index) const {
        return N < 4 ? (word[e] & 0xffu) == index
                     : ((word[e / 4] ^ index * 0x01010101u) & (0xffu << 8 * (e % 4))) == 0;
    }
};
template <> __device__ inline void index_pack<8>::load(const u8 *from) {
    pack<u32, 2> both = *(const pack<u32, 2> *)from;
    word[0] = both.element[0], word[1] = both.element[1];
}

/* Loads the windows that overlap a patch. Windows outside y get indices that match nothing. */
template <typename T, int N, int OVERLAP> struct overlapping_windows {
    pack<T, N> dy[OVERLAP * OVERLAP];
    index_pack<N> index[OVERLAP * OVERLAP];
    __device__ void load_all(const pool_args &a, const image_position &s, int packed, u32 ignored) {
        const T *from = y_of<T, N>(a, a.from, s.image, packed);
        const u8 *argmax = y_of<u8, N>(a, a.argmax, s.image, packed);
#pragma unroll
        for (int i = 0; i < OVERLAP * OVERLAP; i++) {
            int row = s.row - (OVERLAP - 1) + i / OVERLAP, column = s.column - (OVERLAP - 1) + i % OVERLAP;
            bool inside = row >= 0 && row < a.y_size[0] && column >= 0 && column < a.y_size[1];
            i64 window_offset = inside ? (i64)row * a.y_size[1] + column : 0;
            dy[i] = load<T, N>(from, window_offset, a.channels);
            index[i].load(argmax + window_offset * a.channels);
            index[i].set(inside ? ignored : 0xffffffffu);
        }
    }
};

/* Windows of K x K at stride S. A patch is S x S elements of padded x; patch (i, j) starts where window (i, j) does,
 * and windows (i - OVERLAP + 1 … i, …) overlap it. A window's dy is added to the sums by the
 * patch that starts with it. */
template <typename T, int N, int K, int S, int EPILOGUE> __global__ void max_pool_grad_patches(pool_args a) {
    typedef compute_type<T> C;
    enum { OVERLAP = (K - 1) / S + 1 };
    const u32 ignored = (EPILOGUE & RELU_GRAD) ? 0u : 0x80808080u;
    thread_position thread = get_thread_position(a.layout);
    C sum[N] = {};
    const i64 first = first_position<EPILOGUE>(a);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        image_position s = get_image_position(a, first + position);
        overlapping_windows<T, N, OVERLAP> w;
        w.load_all(a, s, thread.pack, ignored);
        if constexpr ((EPILOGUE & SUM_OVER_POSITIONS) != 0) {
            const index_pack<N> &last_index = w.index[OVERLAP * OVERLAP - 1];
            for (int e = 0; e < N; e++) {
                u32 bits = last_index.word[N < 4 ? e : e / 4] >> (N < 4 ? 0 : 8 * (e % 4)) & 0xffu;
                if (bits >= 0x80u && bits < 0x80u + K * K) sum[e] += widen(w.dy[OVERLAP * OVERLAP - 1].element[e]);
            }
        }
        T *image = (T *)x_of<T, N>(a, a.to, s.image, thread.pack);
#pragma unroll
        for (int r = 0; r < S; r++)
#pragma unroll
            for (int c = 0; c < S; c++) {
                C dx[N] = {};
#pragma unroll
                for (int i = 0; i < OVERLAP * OVERLAP; i++) {
                    const int row = r + (OVERLAP - 1 - i / OVERLAP) * S, column = c + (OVERLAP - 1 - i % OVERLAP) * S;
                    if (row >= K || column >= K) continue;
                    for (int e = 0; e < N; e++)
                        if (w.index[i].is(e, 0x80u | (u32)(row * K + column))) dx[e] += widen(w.dy[i].element[e]);
                }
                pack<T, N> result;
                for (int e = 0; e < N; e++) result.element[e] = narrow<T>(dx[e]);
                int row = s.row * S + r - a.pad[0], column = s.column * S + c - a.pad[1];
                if (row >= 0 && row < a.x_size[0] && column >= 0 && column < a.x_size[1])
                    *(pack<T, N> *)(image + ((i64)row * a.x_size[1] + column) * a.channels) = result;
            }
    }
    store_sums<N, EPILOGUE>(a, thread, sum);
}

/* ---- Mean ---- */

/* Weight of each element of a window. */
template <typename C> __device__ inline C weight_of(const pool_args &a, const window &w) {
    if (a.count_padding) return (C)1 / ((C)a.window[0] * (C)a.window[1]);
    return (C)1 / ((C)(w.end[0] - w.start[0]) * (C)(w.end[1] - w.start[1]));
}

template <typename T, int N> __global__ void avg_pool(pool_args a) {
    typedef compute_type<T> C;
    thread_position thread = get_thread_position(a.layout);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        image_position s = get_image_position(a, position);
        window w = window_at(a, s.row, s.column);
        const T *x = x_of<T, N>(a, a.x, s.image, thread.pack);
        C sum[N] = {};
        for (int i = w.start[0]; i < w.end[0]; i++) {
            i64 row = (i64)(w.corner[0] + i) * a.x_size[1] + w.corner[1];
#pragma unroll 4
            for (int j = w.start[1]; j < w.end[1]; j++) {
                pack<T, N> next = load<T, N>(x, row + j, a.channels);
                for (int e = 0; e < N; e++) sum[e] += widen(next.element[e]);
            }
        }
        C weight = weight_of<C>(a, w);
        pack<T, N> y;
        for (int e = 0; e < N; e++) y.element[e] = narrow<T>(sum[e] * weight);
        ((pack<T, N> *)a.to)[position * a.layout.packs_per_position + thread.pack] = y;
    }
}

template <typename T, int N> __global__ void avg_pool_grad(pool_args a) {
    typedef compute_type<T> C;
    thread_position thread = get_thread_position(a.layout);
    for (i64 position = thread.position; position < a.layout.positions; position += thread.stride) {
        image_position s = get_image_position(a, position);
        span rows = windows_over(a, 0, s.row), columns = windows_over(a, 1, s.column);
        const T *dy = y_of<T, N>(a, a.from, s.image, thread.pack);
        C sum[N] = {};
        for (int i = rows.first; i <= rows.last; i++)
            for (int j = columns.first; j <= columns.last; j++) {
                C weight = weight_of<C>(a, window_at(a, i, j));
                pack<T, N> next = load<T, N>(dy, (i64)i * a.y_size[1] + j, a.channels);
                for (int e = 0; e < N; e++) sum[e] += weight * widen(next.element[e]);
            }
        pack<T, N> dx;
        for (int e = 0; e < N; e++) dx.element[e] = narrow<T>(sum[e]);
        ((pack<T, N> *)a.to)[position * a.layout.packs_per_position + thread.pack] = dx;
    }
}
