/* Convolutions with few results, in bf16 and f16: the small batches of inference.
 *
 * y [pixels, o] is the product of x, gathered at (pixel, tap, c), and the filter [o, tap, c]. A block computes a tile of
 * 64 pixels by 64 or 32 channels with tensor cores. A batch of one image has fewer tiles than a GPU has
 * multiprocessors: 8 for a 3x3 convolution of 512 channels over 7x7 pixels. So the depth of a tile is divided among
 * the blocks of a cluster. Each adds up the sums of all blocks of its cluster for some of the rows, reading them from
 * the shared memory of the others, in the order of the depth. Bias, residual and relu are applied to these sums in f32,
 * and the result is rounded once.
 *
 * What limits it is latency: kernels take a few microseconds. Four stages of 64 along the depth are on their way to
 * shared memory at a time. A stage has rows of 128 bytes for pixels, then for channels of y; the eight 16-byte words of a
 * row are permuted by its number, so that eight rows of one word lie in different banks. A kernel starts while the one
 * before it still runs, and fetches its first filters (early.cuh).
 *
 * Needs compute capability 9.0 for clusters. On the emulated GPU the first block of a cluster computes the parts of all.
 */
#include "prelude.cuh"
#include "async.cuh"
#include "cluster.cuh"
#include "early.cuh"
#include "mma.cuh"
#include "conv_small_args.h"

enum {
    ROWS = 64,   /* pixels of a tile */
    DEPTH = 64,  /* elements of a stage: 128 bytes of a row */
    WORDS = 32,  /* 4-byte words of a row of a stage */
    STAGES = 4,
    THREADS = 256,
    PAD = 4      /* words between rows of sums in shared memory */
};

/* ---- From global to shared memory ---- */

/* A thread copies one 16-byte word of every 32nd row: of PASSES rows of pixels, and COLUMNS / 32 channels of y. */
enum { ROW_WORDS = 8, PASS_ROWS = THREADS / ROW_WORDS, PASSES = ROWS / PASS_ROWS };

__device__ inline u32 *word_of_row(u32 *rows, int row, int word) {
    return rows + row * WORDS + ((word ^ row) & 7) * 4;
}

template <typename T, int COLUMNS> struct loader {
    int image_row[PASSES]; /* number of the first row of the pixel's image; -1: there is no such pixel */
    int row[PASSES], column[PASSES]; /* of tap 0 */
    const T *filter;                 /* of the thread's first channel of y */

    __device__ inline void init(const conv_small_args &a, int first_row, int first_column) {
        int line = (int)threadIdx.x / ROW_WORDS, word = (int)threadIdx.x % ROW_WORDS;
#pragma unroll
        for (int p = 0; p < PASSES; p++) {
            u32 pixel = (u32)(first_row + line + p * PASS_ROWS);
            bool exists = pixel < (u32)a.rows;
            column[p] = (int)divmod_in_place(pixel, a.width) * a.stride[1] - a.pad[1];
            row[p] = (int)divmod_in_place(pixel, a.height) * a.stride[0] - a.pad[0];
            image_row[p] = exists ? (int)pixel * a.x_size[0] : -1;
        }
        filter = (const T *)a.filter + (i64)(first_column + line) * a.steps * DEPTH + word * 8;
    }
    __device__ inline void load_filter(const conv_small_args &a, u32 *stage, int step) const {
        int line = (int)threadIdx.x / ROW_WORDS, word = (int)threadIdx.x % ROW_WORDS;
#pragma unroll
        for (int p = 0; p < COLUMNS / PASS_ROWS; p++)
            copy_async<16>(word_of_row(stage + ROWS * WORDS, line + p * PASS_ROWS, word),
                           filter + ((i64)p * PASS_ROWS * a.steps + step) * DEPTH, true);
    }
    __device__ inline void load_x(const conv_small_args &a, u32 *stage, int step) const {
        int line = (int)threadIdx.x / ROW_WORDS, word = (int)threadIdx.x % ROW_WORDS;
        u32 tap_row = (u32)step, channel = divmod_in_place(tap_row, a.tap_steps) * DEPTH;
        u32 tap_column = divmod_in_place(tap_row, a.filter_columns);
#pragma unroll
        for (int p = 0; p < PASSES; p++) {
            int r = row[p] + (int)tap_row * a.dilation[0], c = column[p] + (int)tap_column * a.dilation[1];
            bool inside = image_row[p] >= 0 && r >= 0 && r < a.x_size[0] && c >= 0 && c < a.x_size[1];
            i64 pixel = inside ? (i64)(image_row[p] + r) * a.x_size[1] + c : 0;
            copy_async<16>(word_of_row(stage, line + p * PASS_ROWS, word),
                           (const T *)a.x + pixel * a.x_channels + (int)channel + word * 8, inside);
        }
    }
};

/* ---- Products ---- */

/* Warps: four along the pixels, 16 each, by two along the channels. */
template <int COLUMNS> struct warp_tile {
    enum { PAIRS = COLUMNS / 32 /* of 8 channels */ };
    float sums[PAIRS][2][4];

    static __device__ inline int first_row() { return (int)threadIdx.x / 32 % 4 * 16; }
    static __device__ inline int first_column() { return (int)threadIdx.x / 128 * (COLUMNS / 2); }

    template <typename T> __device__ inline void multiply(u32 *stage) {
        int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            u32 rows[4];
            mma_load_matrices(rows, word_of_row(stage, first_row() + lane % 16, 2 * k + lane / 16));
#pragma unroll
            for (int pair = 0; pair < PAIRS; pair++) {
                u32 columns[4];
                int column = first_column() + pair * 16 + lane / 16 * 8 + lane % 8;
                mma_load_matrices(columns, word_of_row(stage + ROWS * WORDS, column, 2 * k + lane / 8 % 2));
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const u32 b[2] = {columns[2 * half], columns[2 * half + 1]};
                    mma<T>(sums[pair][half], rows, b);
                }
            }
        }
    }
    /* Stores the sums as a tile [ROWS][COLUMNS + PAD]. */
    __device__ inline void store(float *tile) const {
        int lane = (int)threadIdx.x % 32, row = first_row() + lane / 4;
#pragma unroll
        for (int pair = 0; pair < PAIRS; pair++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float *to = tile + row * (COLUMNS + PAD) + first_column() + pair * 16 + half * 8 + lane % 4 * 2;
                const float *sum = sums[pair][half];
                to[0] = sum[0], to[1] = sum[1];
                to[8 * (COLUMNS + PAD)] = sum[2], to[8 * (COLUMNS + PAD) + 1] = sum[3];
            }
    }
};

/* Leaves the sums over steps first … last - 1 in shared memory, for all threads. */
template <typename T, int COLUMNS>
__device__ inline void sum_steps(const conv_small_args &a, const loader<T, COLUMNS> &load, u32 *stages, int first,
                                 int last) {
    enum { STAGE = (ROWS + COLUMNS) * WORDS };
    warp_tile<COLUMNS> tile = {};
    if (!a.filter_is_constant) wait_for_kernels_before();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++)
        if (first + i < last) load.load_filter(a, stages + i * STAGE, first + i);
    wait_for_kernels_before();
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (first + i < last) load.load_x(a, stages + i * STAGE, first + i);
        commit_copies(); /* the first group has all filters too */
    }
    int stage = 0;
    for (int step = first; step < last; step++, stage = (stage + 1) % STAGES) {
        wait_for_copies_but<STAGES - 2>();
        __syncthreads(); /* the stage has arrived, and the one that is loaded next is no longer read */
        int next = step + STAGES - 1;
        u32 *to = stages + (stage + STAGES - 1) % STAGES * STAGE;
        if (next < last) load.load_filter(a, to, next), load.load_x(a, to, next);
        commit_copies();
        tile.template multiply<T>(stages + stage * STAGE);
    }
    wait_for_copies();
    __syncthreads();
    tile.store((float *)stages);
    __syncthreads();
}

/* ---- Results ---- */

/* Applies bias, residual and relu to four sums, and stores them. */
template <typename T>
__device__ inline void store_result(const conv_small_args &a, int row, int column, const pack<float, 4> &sums) {
    typedef pack<T, 4> four;
    if (row >= a.rows) return;
    i64 index = (i64)row * a.columns + column;
    four bias, residual, result;
    if (a.bias) bias = *(const four *)((const T *)a.bias + column);
    if (a.residual) residual = *(const four *)((const T *)a.residual + index);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        float value = sums.element[e];
        if (a.bias) value += widen(bias.element[e]);
        if (a.residual) value += widen(residual.element[e]);
        result.element[e] = narrow<T>(a.relu && value < 0.0f ? 0.0f : value);
    }
    *(four *)((T *)a.y + index) = result;
}

__device__ inline int split_begin(const conv_small_args &a, int split, int splits) { return a.steps * split / splits; }

#ifndef TU_EMULATED
template <typename T, int COLUMNS, int SPLITS>
__device__ inline void compute_tile(const conv_small_args &a, const loader<T, COLUMNS> &load, u32 *shared,
                                    int first_row, int first_column) {
    enum { SHARE = ROWS / SPLITS, PACKS = COLUMNS / 4 };
    int split = (int)blockIdx.y;
    sum_steps<T, COLUMNS>(a, load, shared, split_begin(a, split, SPLITS), split_begin(a, split + 1, SPLITS));
    if (SPLITS > 1) synchronize_cluster();
    for (int i = (int)threadIdx.x; i < SHARE * PACKS; i += THREADS) {
        int row = split * SHARE + i / PACKS, column = i % PACKS * 4;
        const float *mine = (const float *)shared + row * (COLUMNS + PAD) + column;
        pack<float, 4> sums, parts[SPLITS];
#pragma unroll
        for (int rank = 0; rank < SPLITS; rank++)
            parts[rank] = SPLITS > 1 ? load_from_block(mine, rank) : *(const pack<float, 4> *)mine;
        sums = parts[0];
#pragma unroll
        for (int rank = 1; rank < SPLITS; rank++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums.element[e] += parts[rank].element[e];
        store_result<T>(a, first_row + row, first_column + column, sums);
    }
    if (SPLITS > 1) synchronize_cluster(); /* the others still read this block's shared memory */
}
#else
template <typename T, int COLUMNS, int SPLITS>
__device__ inline void compute_tile(const conv_small_args &a, const loader<T, COLUMNS> &load, u32 *shared,
                                    int first_row, int first_column) {
    enum { PACKS = COLUMNS / 4, MINE = ROWS * PACKS / THREADS };
    pack<float, 4> sums[MINE];
    if (blockIdx.y) return;
    for (int split = 0; split < SPLITS; split++) {
        sum_steps<T, COLUMNS>(a, load, shared, split_begin(a, split, SPLITS), split_begin(a, split + 1, SPLITS));
        for (int m = 0; m < MINE; m++) {
            int i = (int)threadIdx.x + m * THREADS;
            const float *part = (const float *)shared + i / PACKS * (COLUMNS + PAD) + i % PACKS * 4;
            for (int e = 0; e < 4; e++) sums[m].element[e] = split ? sums[m].element[e] + part[e] : part[e];
        }
        __syncthreads();
    }
    for (int m = 0; m < MINE; m++) {
        int i = (int)threadIdx.x + m * THREADS;
        store_result<T>(a, first_row + i / PACKS, first_column + i % PACKS * 4, sums[m]);
    }
}
#endif

/* Blocks: x: tiles, along the channels first; y: SPLITS. */
template <typename T, int COLUMNS, int SPLITS>
__global__ void __cluster_dims__(1, SPLITS, 1) __launch_bounds__(THREADS, 2) conv_small(conv_small_args a) {
    extern __shared__ __align__(16) u32 shared[];
    int column_tiles = a.columns / COLUMNS;
    int first_row = (int)blockIdx.x / column_tiles * ROWS, first_column = (int)blockIdx.x % column_tiles * COLUMNS;
    loader<T, COLUMNS> load;
    start_next_kernel();
    load.init(a, first_row, first_column);
    compute_tile<T, COLUMNS, SPLITS>(a, load, shared, first_row, first_column);
}
