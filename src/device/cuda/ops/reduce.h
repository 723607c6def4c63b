/* What reductions, softmax, orderings and normalisations share: how rows are dealt out, and how a kernel is bound. */
#ifndef TU__DEVICE_CUDA_OPS_REDUCE_H
#define TU__DEVICE_CUDA_OPS_REDUCE_H

#include "device/cuda/runtime/cuda.h"

typedef enum cuda_folding {
    CUDA_SUM,
    CUDA_PRODUCT,
    CUDA_LARGEST,
    CUDA_SMALLEST,
    CUDA_LOG_SUM_EXP,
    CUDA_PLACE_OF_LARGEST,
    CUDA_PLACE_OF_SMALLEST,
} cuda_folding;

/* How many threads walk a row of n elements of `element` bytes (kernels/folds.cuh), and the grid for so many rows. */
int cuda_row_lanes(int64_t n, size_t element);
cuda_grid cuda_row_grid(int64_t rows, int lanes);

/* How columns of `reduced` rows are dealt out to blocks of 256 threads, [slices, columns]; a column here is a word of
 * neighbouring elements. Where that leaves too little to do at a time, rows are cut into `splits` segments: as many
 * blocks as the card holds at once, `resident` to each multiprocessor, so that all end together. */
typedef struct cuda_tiling {
    int columns, slices, splits;
    int64_t segment; /* rows of a split */
} cuda_tiling;
cuda_tiling cuda_tile_columns(int64_t groups, int64_t reduced, int multiprocessors, int resident);

/* Reads all inputs of the node, and writes all its outputs, the first of them over input `in_place` (-1: over none). */
tu_status cuda_kernel_bind(tu__kernel *k, const tu__node *node, int in_place);
/* What tables show of a kernel that reads and writes each of its values once. */
void cuda_kernel_count(tu__kernel *k, const tu__node *node);

#endif
