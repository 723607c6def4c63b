/* Attention without tensor cores: every float type, every width, every GPU.
 *
 * A block of eight warps owns 32 rows, four per warp, and passes over tiles of 32 columns. In a tile a lane computes the
 * scores of one column, with elements that the block has copied to shared memory; then it adds to the results in its own
 * columns of the width, lane, lane + 32, …, CHUNK in all. Wider heads compute their scores once per chunk.
 *
 * The gradient of keys and that of queries are alike, as in attention.cu: rows are keys and columns queries, or the
 * other way round. */
#include "prelude.cuh"
#include "attention_args.h"

enum { WARPS = 8, THREADS = 32 * WARPS, WARP_ROWS = 4, ROWS = WARPS * WARP_ROWS, TILE = 32, LANE_COLUMNS = 4,
       CHUNK = 32 * LANE_COLUMNS };

/* Rows of one head: `base` is element 0 of row 0. Blocks: x: blocks of rows, y: heads, z: samples. */
template <typename T> struct head_rows { const T *base; i64 stride; };

template <typename T> __device__ inline head_rows<T> rows_of_x(const attention_args &a, const void *x, int part) {
    i64 stride = 3 * (i64)a.heads * a.width;
    return {(const T *)x + (i64)blockIdx.z * a.time * stride + ((i64)part * a.heads + blockIdx.y) * a.width, stride};
}
template <typename T> __device__ inline head_rows<T> rows_of_y(const attention_args &a, const void *y) {
    i64 stride = (i64)a.heads * a.width;
    return {(const T *)y + (i64)blockIdx.z * a.time * stride + (i64)blockIdx.y * a.width, stride};
}

template <typename C> using tile = C[TILE][TILE + 1];

/* Copies 32 rows of 32 elements from row `first` and column `column` on, with zeros outside. */
template <typename T>
__device__ inline void load_tile(const attention_args &a, const head_rows<T> &from, int first, int column,
                                 tile<compute_type<T>> &to) {
    for (int i = threadIdx.x; i < TILE * TILE; i += THREADS) {
        int row = i / TILE, c = i % TILE;
        bool inside = first + row < a.time && column + c < a.width;
        to[row][c] = inside ? widen(from.base[(first + row) * from.stride + column + c]) : compute_type<T>(0);
    }
}

/* products[r] = the product of the warp's row r and column `lane` of the tile. */
template <typename T>
__device__ inline void multiply(const attention_args &a, const head_rows<T> &rows, int first_row,
                                const head_rows<T> &columns, int first_column, compute_type<T> (&products)[WARP_ROWS]) {
    typedef compute_type<T> C;
    __shared__ tile<C> row_tile, column_tile;
    int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * WARP_ROWS;
    for (int r = 0; r < WARP_ROWS; r++) products[r] = 0;
    for (int column = 0; column < a.width; column += TILE) {
        __syncthreads();
        load_tile<T>(a, rows, first_row, column, row_tile);
        load_tile<T>(a, columns, first_column, column, column_tile);
        __syncthreads();
        for (int c = 0; c < TILE; c++) {
            C element = column_tile[lane][c];
#pragma unroll
            for (int r = 0; r < WARP_ROWS; r++) products[r] += row_tile[warp_row + r][c] * element;
        }
    }
}

/* Lanes of a warp own columns chunk + lane + 32 i of the sums of its rows. */
template <typename C> struct lane_sums { C sum[WARP_ROWS][LANE_COLUMNS]; };

/* sums[r] += sum over the tile's columns of weight[r], which lane j has for column j, times that column's row. */
template <typename T>
__device__ inline void add_columns(const attention_args &a, const compute_type<T> (&weight)[WARP_ROWS],
                                   const head_rows<T> &columns, int first_column, int chunk,
                                   lane_sums<compute_type<T>> &sums) {
    typedef compute_type<T> C;
    int lane = threadIdx.x % 32, count = a.time - first_column < TILE ? a.time - first_column : TILE;
    for (int j = 0; j < count; j++) {
        C w[WARP_ROWS];
#pragma unroll
        for (int r = 0; r < WARP_ROWS; r++) w[r] = __shfl_sync(0xffffffffu, weight[r], j);
#pragma unroll
        for (int i = 0; i < LANE_COLUMNS; i++) {
            int c = chunk + lane + 32 * i;
            C element = c < a.width ? widen(columns.base[(first_column + j) * columns.stride + c]) : C(0);
#pragma unroll
            for (int r = 0; r < WARP_ROWS; r++) sums.sum[r][i] += w[r] * element;
        }
    }
}

template <typename T>
__device__ inline void store_sums(const attention_args &a, const lane_sums<compute_type<T>> &sums,
                                  const compute_type<T> (&factor)[WARP_ROWS], const head_rows<T> &to, int first_row,
                                  int chunk) {
    for (int r = 0; r < WARP_ROWS; r++)
        for (int i = 0; i < LANE_COLUMNS; i++) {
            int row = first_row + threadIdx.x / 32 * WARP_ROWS + r, c = chunk + threadIdx.x % 32 + 32 * i;
            if (row < a.time && c < a.width)
                const_cast<T *>(to.base)[row * to.stride + c] = narrow<T>(sums.sum[r][i] * factor[r]);
        }
}

template <typename C> __device__ inline C infinity() { return (C)__uint_as_float(0x7f800000u); }

/* ---- Forward ---- */

template <typename C> struct running_softmax { C maximum[WARP_ROWS], total[WARP_ROWS]; };

/* Replaces scores by exp(score - maximum), and scales the sums if the maximum has grown. */
template <typename C>
__device__ inline void soften(const attention_args &a, C (&scores)[WARP_ROWS], int first_row, int key,
                              running_softmax<C> &state, lane_sums<C> &sums) {
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        int row = first_row + threadIdx.x / 32 * WARP_ROWS + r;
        bool visible = key < a.time && (!a.causal || key <= row);
        C score = visible ? scores[r] * (C)a.scale : -infinity<C>();
        C maximum = larger()(state.maximum[r], warp_reduce(score, larger()));
        C factor = exp(state.maximum[r] - maximum);
        scores[r] = exp(score - maximum);
        state.total[r] = state.total[r] * factor + warp_reduce(scores[r], adding());
        state.maximum[r] = maximum;
        for (int i = 0; i < LANE_COLUMNS; i++) sums.sum[r][i] *= factor;
    }
}

template <typename T> __global__ void __launch_bounds__(THREADS) attention_portable(attention_args a) {
    typedef compute_type<T> C;
    int first_row = (int)blockIdx.x * ROWS, end = a.causal && first_row + ROWS < a.time ? first_row + ROWS : a.time;
    head_rows<T> q = rows_of_x<T>(a, a.x, 0), k = rows_of_x<T>(a, a.x, 1), v = rows_of_x<T>(a, a.x, 2);
    C *logarithms = (C *)a.logarithms + ((i64)blockIdx.z * a.heads + blockIdx.y) * a.time;
    for (int chunk = 0; chunk < a.width; chunk += CHUNK) {
        lane_sums<C> sums = {};
        running_softmax<C> state;
        C factor[WARP_ROWS];
        for (int r = 0; r < WARP_ROWS; r++) state.maximum[r] = -infinity<C>(), state.total[r] = 0;
        for (int key = 0; key < end; key += TILE) {
            C scores[WARP_ROWS];
            multiply<T>(a, q, first_row, k, key, scores);
            soften<C>(a, scores, first_row, key + threadIdx.x % 32, state, sums);
            add_columns<T>(a, scores, v, key, chunk, sums);
        }
        for (int r = 0; r < WARP_ROWS; r++) {
            int row = first_row + threadIdx.x / 32 * WARP_ROWS + r;
            factor[r] = 1 / state.total[r];
            if (threadIdx.x % 32 == 0 && row < a.time && chunk == 0)
                logarithms[row] = state.maximum[r] + log(state.total[r]);
        }
        store_sums<T>(a, sums, factor, rows_of_y<T>(a, a.out), first_row, chunk);
    }
}

/* ---- Gradient ---- */

/* Turns scores and products of the warp's rows and a column into p and ds. */
template <bool OF_KEYS, typename C>
__device__ inline void weigh(const attention_args &a, int first_row, int column, C (&p)[WARP_ROWS], C (&ds)[WARP_ROWS]) {
    i64 head = ((i64)blockIdx.z * a.heads + blockIdx.y) * a.time;
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        int row = first_row + threadIdx.x / 32 * WARP_ROWS + r, key = OF_KEYS ? row : column, query = OF_KEYS ? column : row;
        bool visible = key < a.time && query < a.time && (!a.causal || key <= query);
        i64 index = head + (query < a.time ? query : 0);
        C logarithm = ((const C *)a.logarithms)[index], centre = ((const C *)a.centres)[index];
        p[r] = visible ? exp(p[r] * (C)a.scale - logarithm) : C(0);
        ds[r] = visible ? p[r] * (ds[r] - centre) : C(0);
    }
}

template <typename T, bool OF_KEYS>
__global__ void __launch_bounds__(THREADS) attention_gradient_portable(attention_args a) {
    typedef compute_type<T> C;
    int first_row = (int)blockIdx.x * ROWS, begin = OF_KEYS && a.causal ? first_row : 0;
    int end = !OF_KEYS && a.causal && first_row + ROWS < a.time ? first_row + ROWS : a.time;
    head_rows<T> q = rows_of_x<T>(a, a.x, 0), k = rows_of_x<T>(a, a.x, 1), v = rows_of_x<T>(a, a.x, 2),
                 dy = rows_of_y<T>(a, a.dy);
    for (int chunk = 0; chunk < a.width; chunk += CHUNK) {
        lane_sums<C> of_ds = {}, of_p = {};
        for (int column = begin; column < end; column += TILE) {
            C p[WARP_ROWS], ds[WARP_ROWS];
            multiply<T>(a, OF_KEYS ? k : q, first_row, OF_KEYS ? q : k, column, p);
            multiply<T>(a, OF_KEYS ? v : dy, first_row, OF_KEYS ? dy : v, column, ds);
            weigh<OF_KEYS, C>(a, first_row, column + threadIdx.x % 32, p, ds);
            add_columns<T>(a, ds, OF_KEYS ? q : k, column, chunk, of_ds);
            if (OF_KEYS) add_columns<T>(a, p, dy, column, chunk, of_p);
        }
        C scale[WARP_ROWS], one[WARP_ROWS];
        for (int r = 0; r < WARP_ROWS; r++) scale[r] = (C)a.scale, one[r] = 1;
        store_sums<T>(a, of_ds, scale, rows_of_x<T>(a, a.out, OF_KEYS ? 1 : 0), first_row, chunk);
        if (OF_KEYS) store_sums<T>(a, of_p, one, rows_of_x<T>(a, a.out, 2), first_row, chunk);
    }
}

/* A warp per row. */
template <typename T> __global__ void attention_centres(attention_centres_args a) {
    typedef compute_type<T> C;
    i64 row = global_thread_index() / 32;
    if (row >= a.rows) return;
    const T *y = (const T *)a.y + row * a.width, *dy = (const T *)a.dy + row * a.width;
    C sum = 0;
    for (int i = threadIdx.x % 32; i < a.width; i += 32) sum += widen(y[i]) * widen(dy[i]);
    sum = warp_reduce(sum, adding());
    i64 head = row % a.heads, position = row / a.heads % a.time, sample = row / a.heads / a.time;
    if (threadIdx.x % 32 == 0) ((C *)a.centres)[(sample * a.heads + head) * a.time + position] = sum;
}
