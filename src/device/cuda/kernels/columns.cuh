/* Kernels over values seen as [positions, channels], where a position is a pixel or a window: thread layout, and sums
 * over the positions.
 *
 * A thread handles one pack, N channels in a word of up to 16 bytes, at many positions. Adjacent threads have the
 * packs of one position, then of the next, so a warp accesses contiguous memory. A block is
 * `packs_per_block` threads wide and `rows` positions high; blocks along x handle other positions, blocks along y
 * other packs.
 *
 * Since its pack stays the same, a thread can sum its channels in registers. At the end each block adds its rows, in
 * a fixed order, to one row of partial sums, which sum_blocks adds. The order depends only on shapes and the grid.
 *
 * In a stack, the positions have a part for each network, and blocks along z sum different parts.
 */
#ifndef TU_COLUMNS
#define TU_COLUMNS

#include "prelude.cuh"
#include "columns_args.h"

/* Replaces n by n / d and returns the remainder. n >= 2^31 uses a slow division. */
__device__ inline u32 divmod_in_place(i64 &n, fast_divmod d) {
    if (n < 0x80000000ll) {
        u32 low = (u32)n, remainder = divmod_in_place(low, d);
        n = low;
        return remainder;
    }
    i64 quotient = n / d.value;
    u32 remainder = (u32)(n - quotient * d.value);
    n = quotient;
    return remainder;
}

/* Position of a thread in the grid. `position` is past the end if there is no pack for the thread. */
struct thread_position {
    int row, pack_in_block; /* within the block */
    int pack;
    i64 position, stride; /* first position, and distance to the next */
};

__device__ inline thread_position get_thread_position(const column_grid &c) {
    u32 row = threadIdx.x, pack_in_block = divmod_in_place(row, c.packs_per_block);
    int pack = (int)(blockIdx.y * c.packs_per_block.value + pack_in_block);
    i64 position = pack < c.packs_per_position ? (i64)blockIdx.x * c.rows + row : c.positions;
    return thread_position{(int)row, (int)pack_in_block, pack, position, (i64)gridDim.x * c.rows};
}

enum { COLUMN_THREADS = 256, SUM_CHANNELS = 8, SUM_THREADS = 1024 };

/* Sums `sum` over the rows of the block, as a tree in a fixed order, and writes the block's row to `partial`.
 * `active` is false for threads without data; all threads of the block must call it. */
template <int N, typename C>
__device__ inline void block_reduce_rows(const C *sum, bool active, int row, int rows, int pack_in_block,
                                         int packs_per_block, int pack, int channels, C *partial) {
    __shared__ C shared[COLUMN_THREADS * N];
    C *mine = shared + (row * packs_per_block + pack_in_block) * N;
    if (active)
        for (int e = 0; e < N; e++) mine[e] = sum[e];
    for (int count = rows; count > 1;) {
        int half = (count + 1) / 2;
        __syncthreads();
        if (active && row < count - half)
            for (int e = 0; e < N; e++) mine[e] += mine[half * packs_per_block * N + e];
        count = half;
    }
    if (active && row == 0)
        for (int e = 0; e < N; e++) partial[(i64)blockIdx.x * channels + pack * N + e] = mine[e];
}

/* Blocks along y sum the networks of a stack. A block sums SUM_CHANNELS channels: that many fill a memory sector, and even 64 channels keep 8 multiprocessors
 * busy. Each row of threads adds every ROWS-th block; then the rows are added as a tree. */
template <typename T> __global__ void sum_blocks(sum_blocks_args a) {
    typedef compute_type<T> C;
    enum { ROWS = SUM_THREADS / SUM_CHANNELS };
    __shared__ C shared[SUM_THREADS];
    int row = threadIdx.x / SUM_CHANNELS, channel = blockIdx.x * SUM_CHANNELS + threadIdx.x % SUM_CHANNELS;
    const C *partial = (const C *)a.partial + (i64)blockIdx.y * a.blocks * a.channels;
    C sum = 0;
    if (channel < a.channels) {
#pragma unroll 4
        for (int block = row; block < a.blocks; block += ROWS) sum += partial[(i64)block * a.channels + channel];
    }
    shared[threadIdx.x] = sum;
    for (int half = ROWS / 2; half; half /= 2) {
        __syncthreads();
        if (row < half) shared[threadIdx.x] += shared[threadIdx.x + half * SUM_CHANNELS];
    }
    if (row == 0 && channel < a.channels) ((T *)a.to)[(i64)blockIdx.y * a.channels + channel] = narrow<T>(shared[threadIdx.x]);
}

#endif
