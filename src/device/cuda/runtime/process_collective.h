/* Collectives over the GPUs of all processes of a group. */
#ifndef TU__DEVICE_CUDA_RUNTIME_PROCESS_COLLECTIVE_H
#define TU__DEVICE_CUDA_RUNTIME_PROCESS_COLLECTIVE_H

#include "base/arena.h"
#include "device/cuda/runtime/connection.h"

/* What tu_collective says about a collective over processes. */
typedef struct cuda_process_work {
    const tu_processes *processes;
    uint32_t count;
    const tu_combination *combinations;
    const tu_route *routes; /* per combination; NULL: from all processes to all */
} cuda_process_work;

typedef struct cuda_process_collective {
    cuda_connection *connection;
    tu__arena arena; /* of everything below */
    /* Executed in this order: three lists of combinations, with a list of transfers after each of the first two. */
    uint32_t load_count, add_count, store_count;
    const tu_combination *load, *add, *store;
    uint32_t scatter_count, gather_count;
    const cuda_transfer *scatter, *gather;
} cuda_process_collective;

/* Compiles kernels and allocates staging memory. After a failure, free it too. */
tu_status cuda_process_collective_prepare(cuda_process_collective *collective, const cuda_process_work *work);
/* Enqueues it into a stream of the connected GPU. All collectives of a process must run one after another. */
tu_status cuda_process_collective_enqueue(const cuda_process_collective *collective, CUstream stream);
void cuda_process_collective_free(cuda_process_collective *collective);

#endif
