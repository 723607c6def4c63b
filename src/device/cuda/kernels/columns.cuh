/* Kernels over values seen as [spots, channels], a spot being a pixel or a window: which thread has what, and sums over
 * the spots.
 *
 * A thread has a pack, N channels that lie in one word of up to 16 bytes, and keeps it while it walks over spots; threads
 * beside each other have the packs of one spot, then of the next, so a warp reads and writes contiguous memory. A block
 * is `packs` threads wide and `rows` spots high; blocks along x have other spots, blocks along y other packs.
 *
 * Since the pack stays, a thread can add up its channels as it goes. At the end each block folds its rows, in a fixed
 * order, into one row of partial sums; sum_blocks adds those. The order depends on shapes and the grid alone. */
#ifndef TU_COLUMNS
#define TU_COLUMNS

#include "prelude.cuh"
#include "columns_args.h"

/* n becomes n / d; the remainder is returned. Counts of elements may pass 2^31: then the division is a slow one. */
__device__ inline u32 divide_off_wide(i64 &n, divider d) {
    if (n < 0x80000000ll) {
        u32 low = (u32)n, rest = divide_off(low, d);
        n = low;
        return rest;
    }
    i64 quotient = n / d.divisor;
    u32 rest = (u32)(n - quotient * d.divisor);
    n = quotient;
    return rest;
}

/* Where a thread stands. `spot` is past the end where there is no pack for it. */
struct standing {
    int row, column; /* within the block */
    int pack;
    i64 spot, step;
};

__device__ inline standing stand(const column_grid &c) {
    u32 row = threadIdx.x, column = divide_off(row, c.packs);
    int pack = (int)(blockIdx.y * c.packs.divisor + column);
    i64 spot = pack < c.all_packs ? (i64)blockIdx.x * c.rows + row : c.spots;
    return standing{(int)row, (int)column, pack, spot, (i64)gridDim.x * c.rows};
}

enum { COLUMN_THREADS = 256, SUM_COLUMNS = 8, SUM_THREADS = 1024 };

/* Adds up the threads' `sum` over the rows of the block, in pairs of rows, and leaves the block's own row in `partial`.
 * `taking` is false for threads without a place; all must come. */
template <int N, typename C>
__device__ inline void fold_rows(const C *sum, bool taking, int row, int rows, int column, int columns_wide, int pack,
                                 int channels, C *partial) {
    __shared__ C room[COLUMN_THREADS * N];
    C *own = room + (row * columns_wide + column) * N;
    if (taking)
        for (int e = 0; e < N; e++) own[e] = sum[e];
    for (int count = rows; count > 1;) {
        int half = (count + 1) / 2;
        __syncthreads();
        if (taking && row < count - half)
            for (int e = 0; e < N; e++) own[e] += own[half * columns_wide * N + e];
        count = half;
    }
    if (taking && row == 0)
        for (int e = 0; e < N; e++) partial[(i64)blockIdx.x * channels + pack * N + e] = own[e];
}

/* A block has SUM_COLUMNS channels: so many neighbours make a sector of memory, and even 64 channels keep 8
 * multiprocessors busy. Each of its rows of threads adds every so-many-th block; then rows are folded in pairs. */
template <typename T> __global__ void sum_blocks(sum_blocks_args a) {
    typedef wide_of<T> C;
    enum { ROWS = SUM_THREADS / SUM_COLUMNS };
    __shared__ C room[SUM_THREADS];
    int row = threadIdx.x / SUM_COLUMNS, channel = blockIdx.x * SUM_COLUMNS + threadIdx.x % SUM_COLUMNS;
    const C *partial = (const C *)a.partial;
    C sum = 0;
    if (channel < a.channels) {
#pragma unroll 4
        for (int block = row; block < a.blocks; block += ROWS) sum += partial[(i64)block * a.channels + channel];
    }
    room[threadIdx.x] = sum;
    for (int half = ROWS / 2; half; half /= 2) {
        __syncthreads();
        if (row < half) room[threadIdx.x] += room[threadIdx.x + half * SUM_COLUMNS];
    }
    if (row == 0 && channel < a.channels) ((T *)a.to)[channel] = narrow<T>(room[threadIdx.x]);
}

#endif
