/* Grids over [positions, channels]: number and shape of blocks, and the kernel that finishes sums over positions. */
#include "device/cuda/ops/columns.h"

enum {
    MAX_BLOCKS = INT32_MAX, /* along x */
    MAX_BLOCKS_Y = 65535,
    BLOCKS_AT_A_TIME = 4, /* resident per multiprocessor: kernels that sum use many registers */
    SUM_COLUMNS = 8,      /* as in kernels/columns.cuh */
    SUM_THREADS = 1024,
};

static int64_t quotient_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

int cuda_pack_width(tu_dtype dtype, int64_t channels) {
    int width = (int)(16 / tu_dtype_size(dtype));
    while (channels % width) width /= 2;
    return width;
}

/* All blocks get the same number of iterations, or nearly: otherwise multiprocessors would be idle at the end. */
unsigned cuda_even_blocks(const cuda_device *device, int64_t spots, int64_t rows, bool few) {
    int64_t most = few ? (int64_t)BLOCKS_AT_A_TIME * device->multiprocessors : MAX_BLOCKS;
    int64_t turns = quotient_up(spots, rows), each = quotient_up(turns, most);
    return (unsigned)quotient_up(turns, each);
}

bool cuda_lay_columns(const cuda_device *device, int64_t spots, int64_t packs, bool few, column_grid *over,
                      cuda_grid *grid) {
    int64_t wide = packs < CUDA_COLUMN_THREADS ? packs : CUDA_COLUMN_THREADS,
            rows = CUDA_COLUMN_THREADS / wide;
    int64_t across = quotient_up(packs, wide);
    if (across > MAX_ROWS_OF_BLOCKS) return false;
    *over = (column_grid){cuda_divider((uint32_t)wide), (int)rows, (int)packs, spots};
    *grid = (cuda_grid){
        {cuda_even_blocks(device, spots, rows, few), (unsigned)across}, (unsigned)(wide * rows), 0};
    return true;
}

tu_status cuda_request_column_sums(tu__selection *s, const char *unit, tu_dtype dtype, int64_t channels,
                                   cuda_grid grid, cuda_column_sums *sums) {
    size_t number = cuda_is_wide(dtype) ? sizeof(double) : sizeof(float);
    sums->args = (sum_blocks_args){.blocks = (int)grid.blocks[0], .channels = (int)channels};
    sums->bytes = grid.blocks[0] * (size_t)channels * number;
    sums->function = cuda_request(s, unit, "sum_blocks<%s>", cuda_type(dtype));
    return sums->function ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_run_column_sums(const tu__kernel *k, const cuda_column_sums *sums, const void *partial,
                               void *to) {
    sum_blocks_args a = sums->args;
    a.partial = partial, a.to = to;
    cuda_grid grid = {{(unsigned)quotient_up(a.channels, SUM_COLUMNS)}, SUM_THREADS, 0};
    return cuda_launch(k, sums->function, grid, &a);
}
