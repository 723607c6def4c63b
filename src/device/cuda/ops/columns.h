/* Grids over values seen as [spots, channels], and sums over the spots: the host's side of kernels/columns.cuh. */
#ifndef TU__DEVICE_CUDA_OPS_COLUMNS_H
#define TU__DEVICE_CUDA_OPS_COLUMNS_H

#include "device/cuda/runtime/cuda.h"

#include "device/cuda/kernels/columns_args.h"

/* As in kernels/columns.cuh. */
enum { CUDA_COLUMN_THREADS = 256 };

/* Elements of a word of up to 16 bytes that rows of `channels` can be read by. */
int cuda_pack_width(tu_dtype dtype, int64_t channels);

/* Blocks so that each walks over about the same number of spots; `few`: no more than the card holds at a time, for
 * kernels that sum. False when there are more packs than a grid can have. */
bool cuda_lay_columns(const cuda_device *device, int64_t spots, int64_t packs, bool few, column_grid *over,
                      cuda_grid *grid);
/* As many blocks as give each the same number of turns of `rows` spots. */
unsigned cuda_even_blocks(const cuda_device *device, int64_t spots, int64_t rows, bool few);

/* The second half of sums over spots: blocks' partial rows become one. */
typedef struct cuda_column_sums {
    cuda_function *function; /* NULL: no sums are wanted */
    sum_blocks_args args;
    size_t bytes; /* of the partial rows */
} cuda_column_sums;

/* `unit` includes columns.cuh. */
tu_status cuda_request_column_sums(tu__selection *s, const char *unit, tu_dtype dtype, int64_t channels,
                                   cuda_grid grid, cuda_column_sums *sums);
tu_status cuda_run_column_sums(const tu__kernel *k, const cuda_column_sums *sums, const void *partial,
                               void *to);

#endif
