/* Sums over the GPUs of all processes of a group. */
#ifndef TU__DEVICE_CUDA_RUNTIME_GROUP_SUM_H
#define TU__DEVICE_CUDA_RUNTIME_GROUP_SUM_H

#include "base/arena.h"
#include "device/cuda/runtime/connection.h"

typedef struct cuda_group_sum {
    cuda_connection *connection;
    tu__arena arena; /* of everything below */
    /* Executed in this order: three lists of combinations, with a list of transfers after each of the first two. */
    uint32_t load_count, add_count, store_count;
    const tu_combination *load, *add, *store;
    uint32_t scatter_count, gather_count;
    const cuda_transfer *scatter, *gather;
} cuda_group_sum;

/* Prepares the sum of combinations over all processes: compiles kernels and allocates staging memory. After a failure,
 * free it too. */
tu_status cuda_group_sum_prepare(cuda_group_sum *sum, const tu_processes *processes, uint32_t count,
                                 const tu_combination *combinations);
/* Enqueues it into a stream of the connected GPU. All sums of a process must run one after another. */
tu_status cuda_group_sum_enqueue(const cuda_group_sum *sum, CUstream stream);
void cuda_group_sum_free(cuda_group_sum *sum);

#endif
