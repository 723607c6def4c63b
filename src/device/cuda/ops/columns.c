/* Grids over [positions, channels]: number and shape of blocks, and the kernel that finishes sums over positions. */
#include "device/cuda/ops/columns.h"

enum {
    MAX_BLOCKS = INT32_MAX, /* along x */
    MAX_BLOCKS_Y = 65535,
    RESIDENT_BLOCKS = 4, /* resident per multiprocessor: kernels that sum use many registers */
    SUM_CHANNELS = 8,    /* as in kernels/columns.cuh */
    SUM_THREADS = 1024,
};

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

int cuda_pack_width(tu_dtype dtype, int64_t channels) {
    int width = (int)(16 / tu_dtype_size(dtype));
    while (channels % width) width /= 2;
    return width;
}

/* All blocks get the same number of iterations, or nearly: otherwise multiprocessors would be idle at the end. */
unsigned cuda_even_blocks(const cuda_device *device, int64_t positions, int64_t rows, int64_t sums) {
    int64_t limit = sums ? (int64_t)RESIDENT_BLOCKS * device->multiprocessors / sums : MAX_BLOCKS;
    if (limit < 1) limit = 1;
    int64_t iterations = divide_up(positions, rows), per_block = divide_up(iterations, limit);
    return (unsigned)divide_up(iterations, per_block);
}

bool cuda_plan_columns(const cuda_device *device, int64_t positions, int64_t packs, int64_t sums,
                       column_grid *layout, cuda_grid *grid) {
    int64_t width = packs < CUDA_COLUMN_THREADS ? packs : CUDA_COLUMN_THREADS,
            rows = CUDA_COLUMN_THREADS / width;
    int64_t grid_y = divide_up(packs, width);
    if (grid_y > MAX_BLOCKS_Y) return false;
    if (sums > 1) positions /= sums;
    *layout = (column_grid){cuda_fast_divmod((uint32_t)width), (int)rows, (int)packs, positions};
    *grid = (cuda_grid){{cuda_even_blocks(device, positions, rows, sums), (unsigned)grid_y, (unsigned)sums},
                        (unsigned)(width * rows),
                        0};
    return true;
}

tu_status cuda_request_column_sums(tu__selection *s, const char *unit, tu_dtype dtype, int64_t channels,
                                   cuda_grid grid, cuda_column_sums *sums) {
    size_t element = cuda_is_wide(dtype) ? sizeof(double) : sizeof(float);
    sums->count = grid.blocks[2] ? grid.blocks[2] : 1;
    sums->args = (sum_blocks_args){.blocks = (int)grid.blocks[0], .channels = (int)channels};
    sums->bytes = sums->count * grid.blocks[0] * (size_t)channels * element;
    sums->function = cuda_request(s, unit, "sum_blocks<%s>", cuda_type(dtype));
    return sums->function ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_run_column_sums(const tu__kernel *k, const cuda_column_sums *sums, const void *partial,
                               void *to) {
    sum_blocks_args a = sums->args;
    a.partial = partial, a.to = to;
    cuda_grid grid = {{(unsigned)divide_up(a.channels, SUM_CHANNELS), sums->count}, SUM_THREADS, 0};
    return cuda_launch(k, sums->function, grid, &a);
}
