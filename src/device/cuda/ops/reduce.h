/* Shared by reductions, softmax, cumulative sums, top-k and normalisations: grids over rows and columns, and the
 * inputs and outputs of a kernel. */
#ifndef TU__DEVICE_CUDA_OPS_REDUCE_H
#define TU__DEVICE_CUDA_OPS_REDUCE_H

#include "device/cuda/runtime/cuda.h"

typedef enum cuda_reduce_op {
    CUDA_SUM,
    CUDA_PRODUCT,
    CUDA_LARGEST,
    CUDA_SMALLEST,
    CUDA_LOG_SUM_EXP,
    CUDA_ARGMAX,
    CUDA_ARGMIN,
} cuda_reduce_op;

/* Returns the threads per row of n elements of `element` bytes (kernels/folds.cuh), and the grid for `rows` rows. */
int cuda_row_lanes(int64_t n, size_t element);
cuda_grid cuda_row_grid(int64_t rows, int lanes);

/* How columns of `reduced` rows are distributed over blocks of 256 threads, [slices, columns]; a column is a word of
 * adjacent elements. If that gives too few blocks, rows are split into `splits` segments: as many blocks as the GPU
 * holds at once, `resident` per multiprocessor, so that all end together. */
typedef struct cuda_tiling {
    int columns, slices, splits;
    int64_t segment; /* rows per split */
} cuda_tiling;
cuda_tiling cuda_tile_columns(int64_t groups, int64_t reduced, int multiprocessors, int resident);

/* Adds reads of all inputs of the node, and writes of all outputs. The first output may reuse the memory of input
 * `in_place` (-1: none). */
tu_status cuda_kernel_add_operands(tu__kernel *k, const tu__node *node, int in_place);
/* Sets the flops and bytes of a kernel that reads and writes each value once. */
void cuda_kernel_set_costs(tu__kernel *k, const tu__node *node);

#endif
