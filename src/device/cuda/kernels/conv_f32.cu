/* Full-precision f32 convolutions: without tensor cores, whose tf32 has a 10-bit mantissa.
 *
 * Each result is a product of a dense matrix and one that is gathered on the fly (conv.cu is the general kernel for
 * any type, group and stride; this one is for one group and channels divisible by 4, with 16-byte loads):
 *
 *     y            [pixels, o] = x at (pixel, tap, c)              times  filter [tap, c, o]
 *     x            [pixels, c] = y at (pixel, tap, o), stride 1    times  filter [tap, o, c]
 *     filter [tap and c, o]    = x at (pixel, tap, c) transposed   times  y [pixels, o]
 *
 * The limit is the multiply-adds: 128 per cycle and multiprocessor. A thread sums 8 by 8 results, so 16 elements from
 * shared memory serve 64 multiply-adds; a block computes 64 by 64 results. Its two halves process alternate groups of
 * 8 along the depth for the same results and are added at the end: that doubles the warps per block, which balances
 * the schedulers while blocks stay small enough to balance the multiprocessors. While 16 of the depth are multiplied,
 * the next 16 are loaded into registers. If there are few results, the tile has 48 or 32 rows, whichever leaves the
 * fewest multiprocessors idle in the last wave (conv_f32.c). The depth of a filter's gradient is split, and conv_sum
 * adds the splits. A filter's gradient with other channel counts, such as the 3 of an image, loads and stores single
 * elements (ANY_WGRAD): its operands are read once for many multiplications, so little is lost.
 */
#include "prelude.cuh"
#include "conv_f32_args.h"

enum { FORWARD, DGRAD, WGRAD, ANY_WGRAD }; /* y, gradient of x, gradient of the filter */
enum {
    COLUMNS = 64, /* per tile; rows are 8 * THREAD_ROWS */
    DEPTH = 16,   /* per stage in shared memory */
    HALVES = 2,   /* of the block: each processes half of a stage */
    THREADS = 128,
    HALF_THREADS = THREADS / HALVES,
    PITCH = 68,
    BUFFER = 2 * DEPTH * PITCH /* floats per stage: left and right */
};
typedef pack<float, 4> quad;

/* ---- Gathering elements of the image ---- */

/* Position in the image of tap 0 of a pixel of the result (or of y). */
struct origin { int image, row, column; };

__device__ inline origin origin_of(const conv_f32_args &a, u32 pixel) {
    origin o;
    o.column = (int)divmod_in_place(pixel, a.width) * a.scale[1] + a.shift[1];
    o.row = (int)divmod_in_place(pixel, a.height) * a.scale[0] + a.shift[0];
    o.image = (int)pixel;
    return o;
}

/* Offset of an index along taps and channels. */
struct tap_offset { int row, column, channel; };

__device__ inline tap_offset tap_of(const conv_f32_args &a, u32 index) {
    tap_offset t;
    t.channel = (int)divmod_in_place(index, a.channels);
    t.column = (int)divmod_in_place(index, a.filter_columns) * a.tap_step[1];
    t.row = (int)index * a.tap_step[0];
    return t;
}

/* Loads four channels; zeros outside the image or if not `needed`. */
__device__ inline quad gather(const conv_f32_args &a, const origin &o, const tap_offset &t, bool needed) {
    int row = o.row + t.row, column = o.column + t.column;
    bool inside = needed && row >= 0 && row < a.image_size[0] && column >= 0 && column < a.image_size[1];
    int pixel = (o.image * a.image_size[0] + row) * a.image_size[1] + column;
    quad zeros = {};
    return inside ? *(const quad *)(a.image + pixel * (int)a.channels.value + t.channel) : zeros;
}

/* Loads one element. */
__device__ inline float gather_one(const conv_f32_args &a, const origin &o, const tap_offset &t, bool needed) {
    int row = o.row + t.row, column = o.column + t.column;
    bool inside = needed && row >= 0 && row < a.image_size[0] && column >= 0 && column < a.image_size[1];
    int pixel = (o.image * a.image_size[0] + row) * a.image_size[1] + column;
    return inside ? a.image[pixel * (int)a.channels.value + t.channel] : 0.0f;
}

__device__ inline quad load_if(const float *from, int index, bool needed) {
    quad zeros = {};
    return needed ? *(const quad *)(from + index) : zeros;
}

/* Loads the first `count` of four elements. */
__device__ inline quad load_first(const float *from, int index, int count) {
    quad q;
#pragma unroll
    for (int e = 0; e < 4; e++) q.element[e] = e < count ? from[index + e] : 0.0f;
    return q;
}

/* ---- From global to shared memory ----
 *
 * A quad lies along the depth and is transposed into a column of the stage, or lies across the depth. Adjacent
 * threads load adjacent quads.
 */

template <bool ALONG> struct quad_position {
    int line, depth; /* of the quad's first element in a tile */
    __device__ inline quad_position(int pass) {
        line = ALONG ? (int)threadIdx.x / 4 + 32 * pass : (int)threadIdx.x % 16 * 4;
        depth = ALONG ? (int)threadIdx.x % 4 * 4 : (int)threadIdx.x / 16 + 8 * pass;
    }
    __device__ inline void store(float *stage, const quad &q) const {
        if constexpr (ALONG) {
#pragma unroll
            for (int e = 0; e < 4; e++) stage[(depth + e) * PITCH + line] = q.element[e];
        } else {
            *(quad *)(stage + depth * PITCH + line) = q;
        }
    }
};

/* The elements of the left matrix, [rows, depth], that a thread loads. */
template <int RESULT, int ROWS> struct left_loader {
    enum {
        ALONG = RESULT == FORWARD || RESULT == DGRAD,
        SINGLE = RESULT == ANY_WGRAD,
        PASSES = (ROWS * DEPTH / 4 + THREADS - 1) / THREADS
    };
    origin origins[PASSES];          /* of its pixels, if rows are pixels */
    tap_offset taps[SINGLE ? 4 : 1]; /* of its row or four rows, if rows are taps */
    int row_count;                   /* number of valid rows */
    bool row_exists[PASSES];
    quad quads[PASSES];

    __device__ inline void init(const conv_f32_args &a, int first_row) {
#pragma unroll
        for (int p = 0; p < PASSES; p++) {
            int line = quad_position<ALONG>(p).line, row = first_row + line;
            row_exists[p] = line < ROWS && row < a.rows;
            if (ALONG) origins[p] = origin_of(a, (u32)(row_exists[p] ? row : 0));
            if (ALONG) continue;
            row_count = a.rows - row;
#pragma unroll
            for (int e = 0; e < (SINGLE ? 4 : 1); e++) taps[e] = tap_of(a, (u32)(e < row_count ? row + e : 0));
        }
    }
    __device__ inline quad fetch_one_by_one(const conv_f32_args &a, const origin &o, bool needed) const {
        quad q;
#pragma unroll
        for (int e = 0; e < 4; e++) q.element[e] = gather_one(a, o, taps[SINGLE ? e : 0], needed && e < row_count);
        return q;
    }
    __device__ inline void fetch(const conv_f32_args &a, int k, int k_end) {
        if (ALONG) taps[0] = tap_of(a, (u32)(k + quad_position<ALONG>(0).depth));
#pragma unroll
        for (int p = 0; p < PASSES; p++) {
            int depth = k + quad_position<ALONG>(p).depth;
            if (!ALONG) origins[p] = origin_of(a, (u32)depth);
            bool needed = row_exists[p] && depth < k_end;
            quads[p] = SINGLE ? fetch_one_by_one(a, origins[p], needed) : gather(a, origins[p], taps[0], needed);
        }
    }
    __device__ inline void store(float *stage) const {
#pragma unroll
        for (int p = 0; p < PASSES; p++)
            if (quad_position<ALONG>(p).line < ROWS) quad_position<ALONG>(p).store(stage, quads[p]);
    }
};

/* The same for the right matrix, [depth, columns]. */
template <int RESULT> struct right_loader {
    enum { ALONG = RESULT == FORWARD, PASSES = COLUMNS * DEPTH / 4 / THREADS };
    quad quads[PASSES];

    __device__ inline void fetch(const conv_f32_args &a, int first_column, int k, int k_end) {
#pragma unroll
        for (int p = 0; p < PASSES; p++) {
            quad_position<ALONG> position(p);
            int column = first_column + position.line, depth = k + position.depth;
            int index = RESULT == FORWARD ? column * a.depth + depth : depth * a.columns + column;
            if (RESULT == DGRAD) { /* o, tap, c */
                u32 tap = (u32)depth, channel = divmod_in_place(tap, a.channels);
                index = ((int)channel * a.taps + (int)tap) * a.columns + column;
            }
            if (RESULT == ANY_WGRAD)
                quads[p] = load_first(a.other, index, depth < k_end ? a.columns - column : 0);
            else
                quads[p] = load_if(a.other, index, column < a.columns && depth < k_end);
        }
    }
    __device__ inline void store(float *stage) const {
#pragma unroll
        for (int p = 0; p < PASSES; p++) quad_position<ALONG>(p).store(stage + DEPTH * PITCH, quads[p]);
    }
};

/* ---- Matrix product ---- */

/* Row i of a thread: in words of four, or two, that are adjacent for adjacent threads. */
template <int THREAD_ROWS> struct thread_rows {
    enum { WORD = THREAD_ROWS % 4 ? 2 : 4 };
    static __device__ inline int of(int i) {
        int line = threadIdx.x % HALF_THREADS / 8;
        return line * WORD + i / WORD * 8 * WORD + i % WORD;
    }
};
__device__ inline int column_of(int j) { return (int)threadIdx.x % 8 * 4 + j / 4 * 32 + j % 4; }

/* Adds the products of this half's part of a stage. */
template <int THREAD_ROWS> __device__ inline void multiply(const float *stage, float (&sums)[THREAD_ROWS][8]) {
    enum { WORD = thread_rows<THREAD_ROWS>::WORD };
    typedef pack<float, WORD> word;
    const float *left = stage + threadIdx.x / HALF_THREADS * (DEPTH / HALVES) * PITCH, *right = left + DEPTH * PITCH;
#pragma unroll
    for (int d = 0; d < DEPTH / HALVES; d++) {
        float l[THREAD_ROWS], r[8];
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; i += WORD) {
            word w = *(const word *)(left + d * PITCH + thread_rows<THREAD_ROWS>::of(i));
#pragma unroll
            for (int e = 0; e < WORD; e++) l[i + e] = w.element[e];
        }
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            quad q = *(const quad *)(right + d * PITCH + column_of(j));
#pragma unroll
            for (int e = 0; e < 4; e++) r[j + e] = q.element[e];
        }
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) sums[i][j] += l[i] * r[j];
    }
}

/* Each half of the block sends the other its sums of half the rows and adds the other half. */
template <int THREAD_ROWS>
__device__ inline void exchange_halves(float *shared, float (&sums)[THREAD_ROWS][8],
                                       float (&totals)[THREAD_ROWS / 2][8]) {
    int half = threadIdx.x / HALF_THREADS, thread = threadIdx.x % HALF_THREADS;
    float *mine = shared + half * THREAD_ROWS * 4 * HALF_THREADS,
          *theirs = shared + (1 - half) * THREAD_ROWS * 4 * HALF_THREADS;
    __syncthreads(); /* the last stage is no longer read */
#pragma unroll
    for (int i = 0; i < THREAD_ROWS / 2; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            totals[i][j] = half ? sums[THREAD_ROWS / 2 + i][j] : sums[i][j];
            mine[(i * 8 + j) * HALF_THREADS + thread] = half ? sums[i][j] : sums[THREAD_ROWS / 2 + i][j];
        }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < THREAD_ROWS / 2; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            float other = theirs[(i * 8 + j) * HALF_THREADS + thread];
            totals[i][j] =
                half ? other + totals[i][j]
                     : totals[i][j] + other; /* always in the same order: first half + second half */
        }
}

/* ---- Storing ---- */

__device__ inline float apply_epilogue(const conv_f32_args &a, float value, int column) {
    if (a.bias) value += a.bias[column];
    return a.relu && value < 0.0f ? 0.0f : value;
}

/* Stores a result whose rows are pixels. */
template <int THREAD_ROWS>
__device__ inline void store_pixels(const conv_f32_args &a, int first_row, int first_column,
                                    const float (&totals)[THREAD_ROWS / 2][8]) {
    int half = threadIdx.x / HALF_THREADS;
#pragma unroll
    for (int i = 0; i < THREAD_ROWS / 2; i++) {
        int row = first_row + (half ? thread_rows<THREAD_ROWS>::of(THREAD_ROWS / 2 + i)
                                    : thread_rows<THREAD_ROWS>::of(i));
#pragma unroll
        for (int j = 0; j < 8; j += 4) {
            int column = first_column + column_of(j);
            if (row >= a.rows || column >= a.columns) continue;
            quad q;
#pragma unroll
            for (int e = 0; e < 4; e++) q.element[e] = apply_epilogue(a, totals[i][j + e], column + e);
            *(quad *)(a.out + (i64)row * a.columns + column) = q;
        }
    }
}

/* Stores a filter, [o, taps and channels]: transposed, since its rows are taps and channels. */
template <bool SINGLE> __device__ inline void store_filter(const conv_f32_args &a, int first_row, int first_column,
                                    const float (&totals)[4][8]) {
    int row = first_row + thread_rows<8>::of(threadIdx.x / HALF_THREADS * 4);
    float *out = a.out + (i64)blockIdx.z * a.rows * a.columns + row;
#pragma unroll
    for (int j = 0; j < 8; j++) {
        int column = first_column + column_of(j);
        float *to = out + (i64)column * a.rows;
        if (column >= a.columns) continue;
        if constexpr (SINGLE) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (row + e < a.rows) to[e] = totals[e][j];
        } else {
            quad q = {{totals[0][j], totals[1][j], totals[2][j], totals[3][j]}};
            if (row < a.rows) *(quad *)to = q;
        }
    }
}

/* Blocks: x: tiles, along a row first; z: splits of the depth. */
template <int RESULT, int THREAD_ROWS> __global__ void __launch_bounds__(THREADS, 3) conv_f32(conv_f32_args a) {
    __shared__ quad shared[2 * BUFFER / 4];
    float *stages = (float *)shared;
    int column_tiles = (a.columns + COLUMNS - 1) / COLUMNS;
    int first_row = (int)blockIdx.x / column_tiles * 8 * THREAD_ROWS,
        first_column = (int)blockIdx.x % column_tiles * COLUMNS;
    int k_first = (int)blockIdx.z * a.split_depth;
    int k_end = a.depth - k_first < a.split_depth ? a.depth : k_first + a.split_depth;
    left_loader<RESULT, 8 * THREAD_ROWS> left;
    right_loader<RESULT> right;
    left.init(a, first_row);
    left.fetch(a, k_first, k_end), right.fetch(a, first_column, k_first, k_end);
    left.store(stages), right.store(stages);
    __syncthreads();
    float sums[THREAD_ROWS][8] = {};
    int buffer = 0;
    for (int k = k_first; k < k_end; k += DEPTH, buffer ^= 1) {
        bool has_next = k_end - k > DEPTH;
        if (has_next) left.fetch(a, k + DEPTH, k_end), right.fetch(a, first_column, k + DEPTH, k_end);
        multiply<THREAD_ROWS>(stages + buffer * BUFFER, sums);
        if (has_next) left.store(stages + (buffer ^ 1) * BUFFER), right.store(stages + (buffer ^ 1) * BUFFER);
        __syncthreads();
    }
    float totals[THREAD_ROWS / 2][8];
    exchange_halves<THREAD_ROWS>(stages, sums, totals);
    if constexpr (RESULT == WGRAD || RESULT == ANY_WGRAD)
        store_filter<RESULT == ANY_WGRAD>(a, first_row, first_column, totals);
    else
        store_pixels<THREAD_ROWS>(a, first_row, first_column, totals);
}
