/* A product of f32 rounded to tf32 whose result is not stored, but passed to a fused program (ops/product_update.c):
 *
 *     update(a^T b)        a [k, m], b [k, n]: the gradient of weights [m, n], from k samples
 *
 * A block computes a tile of 128 x 128. Its eight warps have 64 x 32 each. Three stages of 32 rows of a and b are in shared
 * memory, so that two are on their way while one is multiplied. A row is 8 words longer than the tile: then the lanes of a warp
 * read 32 different banks. The tile is passed on through shared memory too, so that a warp accesses rows of 512
 * bytes of the values that the program reads and writes. These are many times larger than a and b, which other blocks have
 * brought into the L2 cache: at the beginning each block asks for its part of them.
 *
 * A sum has the order of k. Needs compute capability 8.0.
 */
#ifndef TU_PRODUCT
#define TU_PRODUCT

#include "async.cuh"
#include "mma.cuh"
#include "product_args.h"

enum {
    TILE = 128,
    DEPTH = 32, /* rows of a and b per stage */
    STAGES = 3,
    PITCH = TILE + 8,
    THREADS = 256,
    WORDS_PER_ROW = TILE / 4, /* of 16 bytes */
    ROW_TILES = 4,            /* of 16 rows, per warp */
    COLUMN_TILES = 4,         /* of 8 columns */
    ROWS_AT_ONCE = 4          /* that a warp updates: loads in flight */
};

__device__ inline void prefetch_l2(const void *address) {
#ifndef TU_EMULATED
    asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
#else
    (void)address;
#endif
}

/* Starts to copy 32 rows of a matrix [k, columns] from `first_row` on, with zeros past its ends. */
__device__ inline void fetch_rows(const float *matrix, i64 row_stride, int first_row, int k, int first_column,
                                  int columns, u32 *to) {
#pragma unroll
    for (int i = threadIdx.x; i < DEPTH * WORDS_PER_ROW; i += THREADS) {
        int row = i / WORDS_PER_ROW, column = first_column + i % WORDS_PER_ROW * 4;
        bool inside = first_row + row < k && column < columns;
        const float *from = inside ? matrix + (first_row + row) * row_stride + column : matrix;
        copy_async<16>(to + row * PITCH + i % WORDS_PER_ROW * 4, from, inside);
    }
}

typedef float warp_tile[ROW_TILES][COLUMN_TILES][4];

/* Adds the product of a stage. `a` and `b`: at the warp's first row and column. */
__device__ inline void add_stage(const u32 *a, const u32 *b, warp_tile &sum) {
    int group = threadIdx.x % 32 / 4, word = threadIdx.x % 4;
#pragma unroll
    for (int step = 0; step < DEPTH; step += 8) {
        const u32 *a_row = a + (step + word) * PITCH + group, *b_row = b + (step + word) * PITCH + group;
        u32 x[ROW_TILES][4], y[COLUMN_TILES][2];
#pragma unroll
        for (int t = 0; t < ROW_TILES; t++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[t][i] = tf32_bits(__uint_as_float(a_row[i / 2 * 4 * PITCH + 16 * t + i % 2 * 8]));
#pragma unroll
        for (int t = 0; t < COLUMN_TILES; t++)
#pragma unroll
            for (int i = 0; i < 2; i++) y[t][i] = tf32_bits(__uint_as_float(b_row[i * 4 * PITCH + 8 * t]));
#pragma unroll
        for (int r = 0; r < ROW_TILES; r++)
#pragma unroll
            for (int c = 0; c < COLUMN_TILES; c++) mma<f32>(sum[r][c], x[r], y[c]);
    }
}

/* Stores a warp's sums at its first row and column of the tile in shared memory. */
__device__ inline void store_tile(const warp_tile &sum, float *tile) {
    int group = threadIdx.x % 32 / 4, word = threadIdx.x % 4;
#pragma unroll
    for (int r = 0; r < ROW_TILES; r++)
#pragma unroll
        for (int c = 0; c < COLUMN_TILES; c++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                pack<float, 2> two = {{sum[r][c][2 * half], sum[r][c][2 * half + 1]}};
                *(pack<float, 2> *)(tile + (16 * r + 8 * half + group) * PITCH + 8 * c + 2 * word) = two;
            }
}

/* Computes the tile of a block into shared memory. */
__device__ inline void multiply_tile(const product_args &p, int first_row, int first_column, u32 *shared) {
    const float *a = p.a + (i64)blockIdx.z * p.a_batch_stride, *b = p.b + (i64)blockIdx.z * p.b_batch_stride;
    int warp = threadIdx.x / 32, row = warp / 4 * 16 * ROW_TILES, column = warp % 4 * 8 * COLUMN_TILES;
    warp_tile sum = {};
    auto fetch = [&](int stage) {
        u32 *to = shared + stage % STAGES * 2 * DEPTH * PITCH;
        if (stage * DEPTH < p.k) {
            fetch_rows(a, p.a_row_stride, stage * DEPTH, p.k, first_row, p.m, to);
            fetch_rows(b, p.b_row_stride, stage * DEPTH, p.k, first_column, p.n, to + DEPTH * PITCH);
        }
        commit_copies();
    };
    for (int stage = 0; stage < STAGES - 1; stage++) fetch(stage);
    for (int stage = 0; stage * DEPTH < p.k; stage++) {
        wait_for_copies_but<STAGES - 2>();
        __syncthreads(); /* the stage has arrived, and the one before it is no longer used */
        fetch(stage + STAGES - 1);
        const u32 *words = shared + stage % STAGES * 2 * DEPTH * PITCH;
        add_stage(words + row, words + DEPTH * PITCH + column, sum);
    }
    wait_for_copies();
    __syncthreads();
    store_tile(sum, (float *)shared + row * PITCH + column);
    __syncthreads();
}

/* Blocks: x: columns, y: rows, z: batch. The program's packs have four elements of [batch, m, n]. */
template <typename UPDATE> __device__ inline void multiply_and_update(const product_args &p, const UPDATE &update) {
    extern __shared__ u32 shared[];
    int first_row = (int)blockIdx.y * TILE, first_column = (int)blockIdx.x * TILE;
    int rows = min(TILE, p.m - first_row), words = min(WORDS_PER_ROW, (p.n - first_column) / 4);
    i64 row_packs = p.n / 4, first_pack = ((i64)blockIdx.z * p.m + first_row) * row_packs + first_column / 4;
    enum { LINE = 8 /* packs of a cache line */ };
    for (int i = threadIdx.x; i < rows * (WORDS_PER_ROW / LINE); i += THREADS) {
        int row = i / (WORDS_PER_ROW / LINE), word = i % (WORDS_PER_ROW / LINE) * LINE;
        if (word < words) update.prefetch(first_pack + row * row_packs + word);
    }
    multiply_tile(p, first_row, first_column, shared);
    int word = threadIdx.x % 32;
    if (word >= words) return;
    for (int row = threadIdx.x / 32 * ROWS_AT_ONCE; row < rows; row += THREADS / 32 * ROWS_AT_ONCE) {
        typename UPDATE::fetched fetched[ROWS_AT_ONCE];
#pragma unroll
        for (int r = 0; r < ROWS_AT_ONCE; r++)
            if (row + r < rows) update.fetch(first_pack + (row + r) * row_packs + word, fetched[r]);
#pragma unroll
        for (int r = 0; r < ROWS_AT_ONCE; r++)
            if (row + r < rows)
                update.run(first_pack + (row + r) * row_packs + word, fetched[r],
                           *(const pack<f32, 4> *)((const float *)shared + (row + r) * PITCH + 4 * word));
    }
}

#endif
