/* Matrix products of integers, and of other types without a cuBLASLt kernel.
 *
 * A block computes a tile of 32 x 32 results: 256 threads with four each, a warp along a row. Tiles of both operands
 * go through shared memory, so each element is loaded once for 32 uses; lanes follow whichever axis is contiguous in
 * memory. Each result is summed in the order of p, as the operation defines it. Not optimised: integers are computed
 * in double, so that they saturate instead of wrapping, as everywhere in Tutti.
 */
#include "prelude.cuh"
#include "gemm_args.h"

enum { MATMUL_TILE = 32, THREAD_ROWS = 8 /* per block */ };

/* Loads a tile of a matrix whose element (row, column) is at row * row_stride + column * column_stride; zeros
 * outside. */
template <typename T>
__device__ inline void load_tile(const T *x, i64 row, i64 rows, i64 row_stride, i64 column, i64 columns,
                                   i64 column_stride, compute_type<T> (*tile)[MATMUL_TILE + 1]) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    bool along_rows = column_stride == 1;
    for (int i = warp; i < MATMUL_TILE; i += THREAD_ROWS) {
        int r = along_rows ? i : lane, c = along_rows ? lane : i;
        bool inside = row + r < rows && column + c < columns;
        tile[r][c] = inside ? widen(x[(row + r) * row_stride + (column + c) * column_stride]) : (compute_type<T>)0;
    }
}

template <typename T>
__device__ inline void compute_tile(const matmul_args &a, i64 batch, i64 row, i64 column) {
    typedef compute_type<T> C;
    __shared__ C left[MATMUL_TILE][MATMUL_TILE + 1], right[MATMUL_TILE][MATMUL_TILE + 1];
    const T *x = (const T *)a.a + batch * a.a_batch_stride, *y = (const T *)a.b + batch * a.b_batch_stride;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    C sums[MATMUL_TILE / THREAD_ROWS] = {};
    for (i64 p = 0; p < a.k; p += MATMUL_TILE) {
        __syncthreads();
        load_tile(x, row, a.m, a.a_row_stride, p, a.k, a.a_column_stride, left);
        load_tile(y, p, a.k, a.b_row_stride, column, a.n, a.b_column_stride, right);
        __syncthreads();
        for (int q = 0; q < MATMUL_TILE; q++)
#pragma unroll
            for (int i = 0; i < MATMUL_TILE / THREAD_ROWS; i++)
                sums[i] += left[warp + i * THREAD_ROWS][q] * right[q][lane];
    }
    T *out = (T *)a.out + batch * a.m * a.n;
#pragma unroll
    for (int i = 0; i < MATMUL_TILE / THREAD_ROWS; i++) {
        i64 r = row + warp + i * THREAD_ROWS, c = column + lane;
        if (r < a.m && c < a.n) out[r * a.n + c] = narrow<T>(sums[i]);
    }
}

/* Blocks of 256 threads; a grid of columns x rows x batch. The last two are looped over if the grid is smaller. */
template <typename T> __global__ void matmul(matmul_args a) {
    i64 column = (i64)blockIdx.x * MATMUL_TILE;
    for (i64 batch = blockIdx.z; batch < a.batch; batch += gridDim.z)
        for (i64 row = (i64)blockIdx.y * MATMUL_TILE; row < a.m; row += (i64)gridDim.y * MATMUL_TILE)
            compute_tile<T>(a, batch, row, column);
}
