/* Products of f32 rounded to tf32, for stacks: a tile of a b by a block, and a kernel whose result is not stored, but passed to
 * a fused program (ops/product_update.c):
 *
 *     update(a^T b)        a [k, m], b [k, n]: the gradient of weights [m, n], from k samples
 *
 * A block of eight warps has a few stages of 32 columns of a and 32 rows of b in shared memory: all but one are on their way
 * while that one is multiplied. Whichever axis is contiguous in memory is contiguous in shared memory, in rows whose lengths let
 * the lanes of a warp read from different banks. A sum has the order of k. Needs compute capability 8.0.
 */
#ifndef TU_PRODUCT
#define TU_PRODUCT

#include "async.cuh"
#include "mma.cuh"
#include "product_args.h"

enum { DEPTH = 32 /* of a stage */, THREADS = 256, WARPS = THREADS / 32 };

__device__ inline void prefetch_l2(const void *address) {
#ifndef TU_EMULATED
    asm volatile("prefetch.global.L2 [%0];" : : "l"(address));
#else
    (void)address;
#endif
}

/* Starts to copy ROWS x COLUMNS elements of a matrix from [row, column] on to rows of PITCH words, with zeros past [rows,
 * columns]. Rows of the matrix, and `columns`, are multiples of 16 bytes. */
template <int ROWS, int COLUMNS, int PITCH>
__device__ inline void fetch_box(const float *matrix, i64 row_stride, int row, int rows, int column, int columns, u32 *to) {
    enum { WORDS = COLUMNS / 4 };
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * WORDS; i += THREADS) {
        int r = i / WORDS, c = i % WORDS * 4;
        bool inside = row + r < rows && column + c < columns;
        copy_async<16>(to + r * PITCH + c, inside ? matrix + (row + r) * row_stride + column + c : matrix, inside);
    }
}

/* ---- Operands in shared memory ---- */

/* SIZE rows of a, or columns of b, of a stage. ALONG: they are contiguous, [DEPTH, SIZE]; else [SIZE, DEPTH]. */
template <int SIZE, bool ALONG> struct operand {
    enum { PITCH = ALONG ? SIZE + 8 : DEPTH + 4, WORDS = (ALONG ? DEPTH : SIZE) * PITCH };
    static __device__ inline void fetch(const float *matrix, i64 row_stride, int depth, int k, int first, int size, u32 *to) {
        if constexpr (ALONG)
            fetch_box<DEPTH, SIZE, PITCH>(matrix, row_stride, depth, k, first, size, to);
        else
            fetch_box<SIZE, DEPTH, PITCH>(matrix, row_stride, first, size, depth, k, to);
    }
    /* Loads the tile of 16 rows of a from `first` on, at a depth. */
    static __device__ inline void load_rows(u32 (&a)[4], const u32 *words, int first, int depth) {
        int lane = threadIdx.x & 31;
        if constexpr (ALONG) {
            const u32 *from = words + (depth + lane % 4) * PITCH + first + lane / 4;
#pragma unroll
            for (int i = 0; i < 4; i++) a[i] = from[i / 2 * 4 * PITCH + i % 2 * 8];
        } else {
            mma_load_matrices(a, words + (first + lane % 16) * PITCH + depth + lane / 16 * 4);
        }
        round(a);
    }
    /* Loads two tiles of 8 columns of b. */
    static __device__ inline void load_columns(u32 (&b)[2][2], const u32 *words, int first, int depth) {
        int lane = threadIdx.x & 31;
        u32 all[4];
        if constexpr (ALONG) {
            const u32 *from = words + (depth + lane % 4) * PITCH + first + lane / 4;
#pragma unroll
            for (int i = 0; i < 4; i++) all[i] = from[i % 2 * 4 * PITCH + i / 2 * 8];
        } else {
            mma_load_matrices(all, words + (first + lane % 8 + lane / 16 * 8) * PITCH + depth + lane / 8 % 2 * 4);
        }
        round(all);
#pragma unroll
        for (int i = 0; i < 4; i++) b[i / 2][i % 2] = all[i];
    }
    static __device__ inline void round(u32 (&words)[4]) {
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = tf32_bits(__uint_as_float(words[i]));
    }
};

/* ---- A tile of the product ---- */

/* ROWS x COLUMNS by a block, whose warps are in WARP_ROWS rows. A_ALONG: a is [k, m]; else [m, k]. B_ALONG: b is [k, n];
 * else [n, k]. */
template <int ROWS, int COLUMNS, int WARP_ROWS, int STAGES, bool A_ALONG, bool B_ALONG> struct block_product {
    typedef operand<ROWS, A_ALONG> rows;
    typedef operand<COLUMNS, B_ALONG> columns;
    enum {
        ROW_TILES = ROWS / WARP_ROWS / 16,                 /* per warp */
        COLUMN_TILES = COLUMNS / (WARPS / WARP_ROWS) / 8,
        STAGE = rows::WORDS + columns::WORDS
    };
    typedef float sums[ROW_TILES][COLUMN_TILES][4];

    /* The warp's first row and column in the tile. */
    static __device__ inline int warp_row() { return threadIdx.x / 32 / (WARPS / WARP_ROWS) * 16 * ROW_TILES; }
    static __device__ inline int warp_column() { return threadIdx.x / 32 % (WARPS / WARP_ROWS) * 8 * COLUMN_TILES; }

    static __device__ inline void add_stage(const u32 *a, const u32 *b, sums &sum) {
#pragma unroll
        for (int depth = 0; depth < DEPTH; depth += 8) {
            u32 x[ROW_TILES][4], y[COLUMN_TILES / 2][2][2];
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++) rows::load_rows(x[r], a, warp_row() + 16 * r, depth);
#pragma unroll
            for (int c = 0; c < COLUMN_TILES / 2; c++) columns::load_columns(y[c], b, warp_column() + 16 * c, depth);
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++)
#pragma unroll
                for (int c = 0; c < COLUMN_TILES; c++) mma<f32>(sum[r][c], x[r], y[c / 2][c % 2]);
        }
    }

    /* At the end all threads have used `shared`, of STAGES * STAGE words. */
    static __device__ inline void run(const product_args &p, int first_row, int first_column, u32 *shared, sums &sum) {
        const float *a = p.a + (i64)blockIdx.z * p.a_batch_stride, *b = p.b + (i64)blockIdx.z * p.b_batch_stride;
        auto fetch = [&](int stage) {
            u32 *to = shared + stage % STAGES * STAGE;
            if (stage * DEPTH < p.k) {
                rows::fetch(a, p.a_row_stride, stage * DEPTH, p.k, first_row, p.m, to);
                columns::fetch(b, p.b_row_stride, stage * DEPTH, p.k, first_column, p.n, to + rows::WORDS);
            }
            commit_copies();
        };
        for (int stage = 0; stage < STAGES - 1; stage++) fetch(stage);
        for (int stage = 0; stage * DEPTH < p.k; stage++) {
            wait_for_copies_but<STAGES - 2>();
            __syncthreads(); /* the stage has arrived, and the one before it is no longer used */
            fetch(stage + STAGES - 1);
            const u32 *words = shared + stage % STAGES * STAGE;
            add_stage(words, words + rows::WORDS, sum);
        }
        wait_for_copies();
        __syncthreads();
    }

    /* Calls `use(row, column, two)` for each pair of adjacent results that the thread has, with their position in the tile. */
    template <typename USE> static __device__ inline void for_each_pair(const sums &sum, USE use) {
        int row = warp_row() + threadIdx.x % 32 / 4, column = warp_column() + threadIdx.x % 4 * 2;
#pragma unroll
        for (int r = 0; r < ROW_TILES; r++)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int c = 0; c < COLUMN_TILES; c++)
                    use(row + 16 * r + 8 * half, column + 8 * c,
                        pack<float, 2>{{sum[r][c][2 * half], sum[r][c][2 * half + 1]}});
    }
};

/* ---- A product with an update ---- */

enum {
    TILE = 128,
    TILE_PITCH = TILE + 8,
    TILE_PACKS = TILE / 4, /* of 16 bytes, per row */
    LINE_PACKS = 8,        /* of a cache line */
    ROWS_AT_ONCE = 4,      /* that a warp updates: loads in flight */
    ROWS_AHEAD = TILE / 2  /* that the cache is asked for before they are read: of all blocks together a third of it */
};

/* The tile is passed on through shared memory, so that a warp accesses rows of 512 bytes of the values that the program reads
 * and writes. These are many times larger than a and b, which other blocks have brought into the L2 cache: each block asks for its
 * part of them long before it reads it.
 *
 * Blocks: x: columns, y: rows, z: batch. The program's packs have four elements of [batch, m, n]. */
template <typename UPDATE> __device__ inline void multiply_and_update(const product_args &p, const UPDATE &update) {
    typedef block_product<TILE, TILE, 2, 3, true, true> product;
    extern __shared__ u32 shared[];
    float *tile = (float *)shared;
    int first_row = (int)blockIdx.y * TILE, first_column = (int)blockIdx.x * TILE;
    int rows = min(TILE, p.m - first_row), packs = min(TILE_PACKS, (p.n - first_column) / 4);
    i64 row_packs = p.n / 4, first_pack = ((i64)blockIdx.z * p.m + first_row) * row_packs + first_column / 4;
    for (int i = threadIdx.x; i < min(rows, ROWS_AHEAD) * (TILE_PACKS / LINE_PACKS); i += THREADS) {
        int row = i / (TILE_PACKS / LINE_PACKS), column = i % (TILE_PACKS / LINE_PACKS) * LINE_PACKS;
        if (column < packs) update.prefetch(first_pack + row * row_packs + column);
    }
    {
        product::sums sum = {};
        product::run(p, first_row, first_column, shared, sum);
        product::for_each_pair(sum, [&](int row, int column, pack<float, 2> two) {
            *(pack<float, 2> *)(tile + row * TILE_PITCH + column) = two;
        });
    }
    __syncthreads();
    int column = threadIdx.x % 32;
    if (column >= packs) return;
    for (int row = threadIdx.x / 32 * ROWS_AT_ONCE; row < rows; row += WARPS * ROWS_AT_ONCE) {
        typename UPDATE::fetched fetched[ROWS_AT_ONCE];
#pragma unroll
        for (int r = 0; r < ROWS_AT_ONCE; r++)
            if (row + r < rows) update.fetch(first_pack + (row + r) * row_packs + column, fetched[r]);
        for (int r = 0; r < ROWS_AT_ONCE && column % LINE_PACKS == 0; r++)
            if (row + ROWS_AHEAD + r < rows)
                update.prefetch(first_pack + (row + ROWS_AHEAD + r) * row_packs + column);
#pragma unroll
        for (int r = 0; r < ROWS_AT_ONCE; r++)
            if (row + r < rows)
                update.run(first_pack + (row + r) * row_packs + column, fetched[r],
                           *(const pack<f32, 4> *)(tile + (row + r) * TILE_PITCH + 4 * column));
    }
}

#endif
