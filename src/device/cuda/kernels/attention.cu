/* Attention with tensor cores, for bf16 and f16 and widths that are multiples of 16 (capability 8.0).
 *
 * Forward: a block has four warps; a warp owns 16 or 32 queries, whose fragments it keeps in registers, and passes over
 * blocks of 64 keys (Dao 2023). Scores and results stay in registers: the accumulators of two adjacent tiles of scores
 * have the layout of a left operand of the next product, so probabilities need not go through shared memory. While a
 * block of keys and values is used, the next one is copied.
 *
 * Gradient: one template for both halves, which are alike:
 *
 *                 rows (own)   columns      p, ds [rows, columns]         sums
 *     of keys     k, v         q, dy        p^T, ds^T                     dk += ds^T q,  dv += p^T dy
 *     of queries  q, dy        k, v         p, ds                         dq += ds k
 *
 * s = rows[0] columns[0]^T and dp = rows[1] columns[1]^T are computed 32 columns at a time, which leaves registers for
 * the sums. Scores are recomputed in both halves: 7 products instead of 5, but every result has one owner, so no sums go
 * through atomic additions.
 *
 * A product of 16 by 16 by 8 reads 256 bytes of its right operand from shared memory; with 32 rows per warp it is used
 * twice. Widths above 64 leave registers for 16 rows only. Rows in shared memory are 16 bytes longer than the width, so
 * that the eight rows of a matrix load lie in different banks. */
#include "async.cuh"
#include "mma.cuh"
#include "attention_args.h"

enum { WARPS = 4, THREADS = 32 * WARPS, COLUMNS = 64, SUBTILE = 32 };

/* 16-row tiles per warp. */
template <int D> struct tiles_of { enum { ROW_TILES = D <= 64 ? 2 : 1, ROWS = WARPS * 16 * ROW_TILES, PITCH = D + 8 }; };

#define LOG2_E 1.44269504088896340736f
#define LN_2 0.693147180559945309417f

__device__ inline float exp2_of(float x) {
#ifndef TU_EMULATED
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}

__device__ inline float infinity() { return __uint_as_float(0x7f800000u); }

/* ---- One sample and head ---- */

/* Rows of one head: `base` is element 0 of row 0. */
template <typename T> struct head_rows { const T *base; i64 stride; };

/* part: 0: queries, 1: keys, 2: values. Blocks: x: blocks of rows, y: heads, z: samples. */
template <typename T> __device__ inline head_rows<T> rows_of_x(const attention_args &a, const void *x, int part, int width) {
    i64 stride = 3 * (i64)a.heads * width;
    return {(const T *)x + (i64)blockIdx.z * a.time * stride + ((i64)part * a.heads + blockIdx.y) * width, stride};
}
template <typename T> __device__ inline head_rows<T> rows_of_y(const attention_args &a, const void *y, int width) {
    i64 stride = (i64)a.heads * width;
    return {(const T *)y + (i64)blockIdx.z * a.time * stride + (i64)blockIdx.y * width, stride};
}

/* Starts to copy ROWS rows from `first` on to shared memory, with zeros after the last row. */
template <typename T, int D, int ROWS>
__device__ inline void fetch(const head_rows<T> &from, int first, int time, u16 *to) {
    enum { PACKS = D / 8, PITCH = tiles_of<D>::PITCH };
#pragma unroll
    for (int i = threadIdx.x; i < ROWS * PACKS; i += THREADS) {
        int row = i / PACKS, column = i % PACKS * 8;
        bool inside = first + row < time;
        copy_async<16>((u32 *)(to + row * PITCH + column), from.base + (inside ? first + row : 0) * from.stride + column,
                       inside);
    }
}

/* Copies the ROWS rows of the block, [ROWS, D] in shared memory, to a value of the graph. */
template <typename T, int D, int ROWS>
__device__ inline void store_rows(const u16 *from, const head_rows<T> &to, int first, int time) {
    enum { PACKS = D / 8, PITCH = tiles_of<D>::PITCH };
    typedef pack<u32, 4> words;
    for (int i = threadIdx.x; i < ROWS * PACKS; i += THREADS) {
        int row = i / PACKS, column = i % PACKS * 8;
        if (first + row >= time) continue;
        *(words *)(void *)(const_cast<T *>(to.base) + (first + row) * to.stride + column) =
            *(const words *)(const void *)(from + row * PITCH + column);
    }
}

/* Writes the sums of a warp, times `factor` per row, to its rows in shared memory. */
template <typename T, int D, int ROW_TILES>
__device__ inline void stage_sums(const float (&sums)[ROW_TILES][D / 8][4], const float (&factor)[ROW_TILES][2],
                                  u16 *warp_rows) {
    enum { PITCH = tiles_of<D>::PITCH };
    int group = threadIdx.x % 32 / 4, column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(u32 *)(void *)(warp_rows + (16 * m + 8 * half + group) * PITCH + 8 * n + column) = mma_pack<T>(
                    sums[m][n][2 * half] * factor[m][half], sums[m][n][2 * half + 1] * factor[m][half]);
}

/* Reduces over the four lanes that share a row. */
template <typename F> __device__ inline float reduce_row(float x, F f) {
    x = f(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return f(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/* Makes the left operand of a product from the accumulators of two adjacent tiles of columns. */
template <typename T> __device__ inline void pack_tiles(u32 (&a)[4], const float (&left)[4], const float (&right)[4]) {
    a[0] = mma_pack<T>(left[0], left[1]), a[1] = mma_pack<T>(left[2], left[3]);
    a[2] = mma_pack<T>(right[0], right[1]), a[3] = mma_pack<T>(right[2], right[3]);
}

/* ---- Forward ---- */

/* Scores of a warp's rows and a block of keys; sums of values. */
template <int ROW_TILES, int D> struct forward_state {
    float sums[ROW_TILES][D / 8][4];
    float maximum[ROW_TILES][2], total[ROW_TILES][2]; /* per row; maxima of scores times `factor` */
};

/* Replaces scores that a query must not see. */
template <int ROW_TILES>
__device__ inline void mask_scores(float (&s)[ROW_TILES][COLUMNS / 8][4], const attention_args &a, int first_row,
                                   int first_key) {
    int group = threadIdx.x % 32 / 4, column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int row = first_row + 16 * m + group + 8 * (i / 2), key = first_key + 8 * n + column + i % 2;
                if (key >= a.time || (a.causal && key > row)) s[m][n][i] = -infinity();
            }
}

/* Replaces scores by exp(score - maximum), and scales the sums if the maximum has grown. */
template <int ROW_TILES, int D>
__device__ inline void soften(float (&s)[ROW_TILES][COLUMNS / 8][4], forward_state<ROW_TILES, D> &state, float factor) {
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float maximum = s[m][0][2 * half];
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
                maximum = fmaxf(maximum, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            maximum = fmaxf(reduce_row(maximum, [](float x, float y) { return fmaxf(x, y); }) * factor,
                            state.maximum[m][half]);
            float scale = exp2_of(state.maximum[m][half] - maximum), total = 0;
            state.maximum[m][half] = maximum;
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[m][n][i] = exp2_of(s[m][n][i] * factor - maximum);
                    total += s[m][n][i];
                }
            state.total[m][half] = state.total[m][half] * scale + total;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                state.sums[m][n][2 * half] *= scale;
                state.sums[m][n][2 * half + 1] *= scale;
            }
        }
}

template <typename T, int D, int ROW_TILES>
__device__ inline void add_keys(const attention_args &a, const u32 (&q)[ROW_TILES][D / 16][4], const u16 *keys,
                                const u16 *values, int first_row, int first_key, float factor,
                                forward_state<ROW_TILES, D> &state) {
    enum { PITCH = tiles_of<D>::PITCH };
    float s[ROW_TILES][COLUMNS / 8][4] = {};
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; n++) {
            u32 b[2][2];
            mma_load_transposed(b, keys + 16 * n * PITCH + 16 * k, PITCH);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                mma<T>(s[m][2 * n], q[m][k], b[0]);
                mma<T>(s[m][2 * n + 1], q[m][k], b[1]);
            }
        }
    if (first_key + COLUMNS > a.time || (a.causal && first_key + COLUMNS - 1 > first_row))
        mask_scores<ROW_TILES>(s, a, first_row, first_key);
    soften<ROW_TILES, D>(s, state, factor);
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; k++) {
        u32 p[ROW_TILES][4];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) pack_tiles<T>(p[m], s[m][2 * k], s[m][2 * k + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            u32 b[2][2];
            mma_load_columns(b, values + 16 * k * PITCH + 16 * n, PITCH);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                mma<T>(state.sums[m][2 * n], p[m], b[0]);
                mma<T>(state.sums[m][2 * n + 1], p[m], b[1]);
            }
        }
    }
}

/* Blocks of queries with most keys start first. */
__device__ inline int first_row_of_block(int rows) { return ((int)gridDim.x - 1 - (int)blockIdx.x) * rows; }

template <typename T, int D> __global__ void __launch_bounds__(THREADS) attention(attention_args a) {
    enum { ROW_TILES = tiles_of<D>::ROW_TILES, ROWS = tiles_of<D>::ROWS, PITCH = tiles_of<D>::PITCH };
    extern __shared__ u32 shared[];
    u16 *queries = (u16 *)shared, *stages = queries + ROWS * PITCH;
    int first_query = first_row_of_block(ROWS), first_row = first_query + threadIdx.x / 32 * 16 * ROW_TILES;
    int end = a.causal && first_query + ROWS < a.time ? first_query + ROWS : a.time;
    head_rows<T> keys = rows_of_x<T>(a, a.x, 1, D), values = rows_of_x<T>(a, a.x, 2, D);
    auto fetch_stage = [&](int key, int stage) {
        u16 *to = stages + stage * 2 * COLUMNS * PITCH;
        fetch<T, D, COLUMNS>(keys, key, a.time, to);
        fetch<T, D, COLUMNS>(values, key, a.time, to + COLUMNS * PITCH);
    };
    fetch<T, D, ROWS>(rows_of_x<T>(a, a.x, 0, D), first_query, a.time, queries);
    fetch_stage(0, 0);
    u32 q[ROW_TILES][D / 16][4];
    forward_state<ROW_TILES, D> state = {};
    for (int m = 0; m < ROW_TILES; m++)
        for (int half = 0; half < 2; half++) state.maximum[m][half] = -infinity();
    u16 *warp_rows = queries + threadIdx.x / 32 * 16 * ROW_TILES * PITCH;
    float factor = (float)a.scale * LOG2_E;
    int stage = 0;
    for (int key = 0; key < end; key += COLUMNS, stage ^= 1) {
        wait_for_copies();
        __syncthreads(); /* the block of keys has arrived, and the previous one is no longer used */
        if (key + COLUMNS < end) fetch_stage(key + COLUMNS, stage ^ 1);
        if (key == 0) {
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
                for (int k = 0; k < D / 16; k++) mma_load_rows(q[m][k], warp_rows + 16 * m * PITCH + 16 * k, PITCH);
        }
        if (a.causal && key > first_row + 16 * ROW_TILES - 1) continue; /* no query of the warp sees them */
        const u16 *from = stages + stage * 2 * COLUMNS * PITCH;
        add_keys<T, D, ROW_TILES>(a, q, from, from + COLUMNS * PITCH, first_row, key, factor, state);
    }
    float inverse[ROW_TILES][2], *logarithms = (float *)a.logarithms + ((i64)blockIdx.z * a.heads + blockIdx.y) * a.time;
#pragma unroll
    for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = reduce_row(state.total[m][half], adding());
            int row = first_row + 16 * m + 8 * half + threadIdx.x % 32 / 4;
            inverse[m][half] = 1.0f / total;
            if (threadIdx.x % 4 == 0 && row < a.time) logarithms[row] = state.maximum[m][half] * LN_2 + logf(total);
        }
    stage_sums<T, D, ROW_TILES>(state.sums, inverse, warp_rows);
    __syncthreads();
    store_rows<T, D, ROWS>(queries, rows_of_y<T>(a, a.out, D), first_query, a.time);
}

/* ---- Gradient ---- */

/* Numbers per query: logarithms (times log2 e) and centres. For the gradient of keys the queries are columns. */
struct query_numbers { float logarithm, centre; };

/* p and ds of 32 columns. */
template <int ROW_TILES> struct weights { float p[ROW_TILES][SUBTILE / 8][4], ds[ROW_TILES][SUBTILE / 8][4]; };

template <typename T, int D, int ROW_TILES>
__device__ inline void multiply_rows(const u16 *rows, const u16 *columns, float (&sums)[ROW_TILES][SUBTILE / 8][4]) {
    enum { PITCH = tiles_of<D>::PITCH };
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        u32 left[ROW_TILES][4];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) mma_load_rows(left[m], rows + 16 * m * PITCH + 16 * k, PITCH);
#pragma unroll
        for (int n = 0; n < SUBTILE / 16; n++) {
            u32 b[2][2];
            mma_load_transposed(b, columns + 16 * n * PITCH + 16 * k, PITCH);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                mma<T>(sums[m][2 * n], left[m], b[0]);
                mma<T>(sums[m][2 * n + 1], left[m], b[1]);
            }
        }
    }
}

/* Turns scores and products into p and ds, in place. */
template <bool OF_KEYS, int ROW_TILES>
__device__ inline void weigh(const attention_args &a, weights<ROW_TILES> &w, int first_row, int first_column,
                             const query_numbers (&of_rows)[ROW_TILES][2], const query_numbers *of_columns,
                             float factor) {
    int group = threadIdx.x % 32 / 4, lane_column = 2 * (threadIdx.x % 4);
    int last = (first_row > first_column ? first_row : first_column) + SUBTILE;
    bool masks = last > a.time;
    if (a.causal) masks = masks || (OF_KEYS ? first_row + 16 * ROW_TILES - 1 > first_column
                                            : first_column + SUBTILE - 1 > first_row);
#pragma unroll
    for (int n = 0; n < SUBTILE / 8; n++)
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                query_numbers q = OF_KEYS ? of_columns[8 * n + lane_column + i % 2] : of_rows[m][i / 2];
                float p = exp2_of(w.p[m][n][i] * factor - q.logarithm);
                if (masks) {
                    int row = first_row + 16 * m + group + 8 * (i / 2), column = first_column + 8 * n + lane_column + i % 2;
                    int key = OF_KEYS ? row : column, query = OF_KEYS ? column : row;
                    if (key >= a.time || query >= a.time || (a.causal && key > query)) p = 0;
                }
                w.p[m][n][i] = p;
                w.ds[m][n][i] = p * (w.ds[m][n][i] - q.centre);
            }
}

/* sums += weights [rows, 32] columns [32, D] */
template <typename T, int D, int ROW_TILES>
__device__ inline void add_product(const float (&weight)[ROW_TILES][SUBTILE / 8][4], const u16 *columns,
                                   float (&sums)[ROW_TILES][D / 8][4]) {
    enum { PITCH = tiles_of<D>::PITCH };
#pragma unroll
    for (int k = 0; k < SUBTILE / 16; k++) {
        u32 left[ROW_TILES][4];
#pragma unroll
        for (int m = 0; m < ROW_TILES; m++) pack_tiles<T>(left[m], weight[m][2 * k], weight[m][2 * k + 1]);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            u32 b[2][2];
            mma_load_columns(b, columns + 16 * k * PITCH + 16 * n, PITCH);
#pragma unroll
            for (int m = 0; m < ROW_TILES; m++) {
                mma<T>(sums[m][2 * n], left[m], b[0]);
                mma<T>(sums[m][2 * n + 1], left[m], b[1]);
            }
        }
    }
}

/* Returns zeros for queries after the last one. */
__device__ inline query_numbers numbers_of_query(const attention_args &a, int query) {
    i64 index = ((i64)blockIdx.z * a.heads + blockIdx.y) * a.time + query;
    if (query >= a.time) return {0, 0};
    return {((const float *)a.logarithms)[index] * LOG2_E, ((const float *)a.centres)[index]};
}

template <typename T, int D, bool OF_KEYS>
__global__ void __launch_bounds__(THREADS) attention_gradient(attention_args a) {
    enum { ROW_TILES = tiles_of<D>::ROW_TILES, ROWS = tiles_of<D>::ROWS, PITCH = tiles_of<D>::PITCH };
    enum { STAGE = 2 * COLUMNS * PITCH };
    extern __shared__ u32 shared[];
    __shared__ query_numbers of_columns[2][COLUMNS];
    u16 *rows = (u16 *)shared, *stages = rows + 2 * ROWS * PITCH;
    int first = OF_KEYS ? (int)blockIdx.x * ROWS : first_row_of_block(ROWS);
    int warp_row = threadIdx.x / 32 * 16 * ROW_TILES, first_row = first + warp_row;
    int begin = OF_KEYS && a.causal ? first / COLUMNS * COLUMNS : 0;
    int end = !OF_KEYS && a.causal && first + ROWS < a.time ? first + ROWS : a.time;
    head_rows<T> q = rows_of_x<T>(a, a.x, 0, D), k = rows_of_x<T>(a, a.x, 1, D), v = rows_of_x<T>(a, a.x, 2, D),
                 dy = rows_of_y<T>(a, a.dy, D);
    auto fetch_stage = [&](int column, int stage) {
        fetch<T, D, COLUMNS>(OF_KEYS ? q : k, column, a.time, stages + stage * STAGE);
        fetch<T, D, COLUMNS>(OF_KEYS ? dy : v, column, a.time, stages + stage * STAGE + STAGE / 2);
        if (OF_KEYS && threadIdx.x < COLUMNS) of_columns[stage][threadIdx.x] = numbers_of_query(a, column + threadIdx.x);
    };
    fetch<T, D, ROWS>(OF_KEYS ? k : q, first, a.time, rows);
    fetch<T, D, ROWS>(OF_KEYS ? v : dy, first, a.time, rows + ROWS * PITCH);
    fetch_stage(begin, 0);
    query_numbers of_rows[ROW_TILES][2];
#pragma unroll
    for (int i = 0; i < 2 * ROW_TILES; i++)
        of_rows[i / 2][i % 2] = OF_KEYS ? query_numbers{0, 0} : numbers_of_query(a, first_row + 8 * i + threadIdx.x % 32 / 4);
    float sums[OF_KEYS ? 2 : 1][ROW_TILES][D / 8][4] = {};
    const u16 *warp_rows = rows + warp_row * PITCH;
    float factor = (float)a.scale * LOG2_E;
    int stage = 0;
    for (int column = begin; column < end; column += COLUMNS, stage ^= 1) {
        wait_for_copies();
        __syncthreads(); /* the block of columns has arrived, and the previous one is no longer used */
        if (column + COLUMNS < end) fetch_stage(column + COLUMNS, stage ^ 1);
#pragma unroll 1
        for (int part = 0; part < COLUMNS; part += SUBTILE) {
            int first_column = column + part;
            if (a.causal && (OF_KEYS ? first_column + SUBTILE - 1 < first_row
                                     : first_column > first_row + 16 * ROW_TILES - 1))
                continue; /* all weights are zero */
            const u16 *columns = stages + stage * STAGE + part * PITCH;
            weights<ROW_TILES> w = {};
            multiply_rows<T, D, ROW_TILES>(warp_rows, columns, w.p);
            multiply_rows<T, D, ROW_TILES>(warp_rows + ROWS * PITCH, columns + STAGE / 2, w.ds);
            weigh<OF_KEYS, ROW_TILES>(a, w, first_row, first_column, of_rows, of_columns[stage] + part, factor);
            add_product<T, D, ROW_TILES>(w.ds, columns, sums[0]);
            if (OF_KEYS) add_product<T, D, ROW_TILES>(w.p, columns + STAGE / 2, sums[OF_KEYS ? 1 : 0]);
        }
    }
    float scale[ROW_TILES][2], one[ROW_TILES][2];
    for (int i = 0; i < 2 * ROW_TILES; i++) scale[i / 2][i % 2] = (float)a.scale, one[i / 2][i % 2] = 1.0f;
    __syncthreads();
    stage_sums<T, D, ROW_TILES>(sums[0], scale, rows + warp_row * PITCH);
    if (OF_KEYS) stage_sums<T, D, ROW_TILES>(sums[OF_KEYS ? 1 : 0], one, rows + (ROWS + warp_row) * PITCH);
    __syncthreads();
    store_rows<T, D, ROWS>(rows, rows_of_x<T>(a, a.out, OF_KEYS ? 1 : 0, D), first, a.time);
    if (OF_KEYS) store_rows<T, D, ROWS>(rows + ROWS * PITCH, rows_of_x<T>(a, a.out, 2, D), first, a.time);
}
