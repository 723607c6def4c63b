/* Grids over values seen as [positions, channels], and sums over the positions: the host side of
 * kernels/columns.cuh. */
#ifndef TU__DEVICE_CUDA_OPS_COLUMNS_H
#define TU__DEVICE_CUDA_OPS_COLUMNS_H

#include "device/cuda/runtime/cuda.h"

#include "device/cuda/kernels/columns_args.h"

/* As in kernels/columns.cuh. */
enum { CUDA_COLUMN_THREADS = 256 };

/* Returns the elements per load: the widest word of up to 16 bytes that divides a row of `channels`. */
int cuda_pack_width(tu_dtype dtype, int64_t channels);

enum { CUDA_MAX_SUMS = 65535 }; /* sums over parts of the positions: blocks along z */

/* Plans a grid whose blocks process about equally many positions. `sums`: for kernels that sum so many equal parts of the
 * positions, with at most as many blocks as the GPU can hold at once; 0: nothing is summed. With several sums, blocks along
 * z process different parts. Returns false if there are more packs than a grid can have. */
bool cuda_plan_columns(const cuda_device *device, int64_t positions, int64_t packs, int64_t sums,
                       column_grid *layout, cuda_grid *grid);
/* Returns the number of blocks that gives each about the same number of iterations over `rows` positions of a part. */
unsigned cuda_even_blocks(const cuda_device *device, int64_t positions, int64_t rows, int64_t sums);

/* Second kernel of a sum over positions: adds the partial rows of all blocks. */
typedef struct cuda_column_sums {
    cuda_function *function; /* NULL: no sums are needed */
    sum_blocks_args args;
    unsigned count; /* of sums, each over a part of the positions */
    size_t bytes;   /* size of the partial rows */
} cuda_column_sums;

/* `unit` must include columns.cuh. */
tu_status cuda_request_column_sums(tu__selection *s, const char *unit, tu_dtype dtype, int64_t channels,
                                   cuda_grid grid, cuda_column_sums *sums);
tu_status cuda_run_column_sums(const tu__kernel *k, const cuda_column_sums *sums, const void *partial,
                               void *to);

#endif
