/* Device memory of a GPU: allocation, and an optional reserve. */
#ifndef TU__DEVICE_CUDA_RUNTIME_MEMORY_H
#define TU__DEVICE_CUDA_RUNTIME_MEMORY_H

#include <stdint.h>

#include "device/cuda/runtime/driver.h"

typedef struct cuda_memory cuda_memory;

/* Opens the memory of GPU `index`, shared by all its logical devices. Returns NULL (message set) if host memory runs
 * out. */
cuda_memory *cuda_memory_open(int index);
/* Closes the memory; the last call frees the reserve. The GPU's context must be current. NULL is ignored. */
void cuda_memory_close(cuda_memory *memory);

/* The GPU's context must be current on the calling thread for all functions below. */

/* Grows the reserve to this size if it is smaller. */
tu_status cuda_memory_reserve(cuda_memory *memory, uint64_t bytes);
/* Allocates a block of at least one byte, from the reserve if it has room, else from the driver. Must not be called
 * while the thread captures. */
tu_status cuda_memory_allocate(cuda_memory *memory, size_t bytes, CUdeviceptr *block);
/* Frees a block. Enqueued work may still use it. 0 is ignored. */
void cuda_memory_free(cuda_memory *memory, CUdeviceptr block);
/* Returns the GPU memory used by others: the context, libraries, other processes. */
tu_status cuda_memory_used_elsewhere(cuda_memory *memory, uint64_t *bytes);

#endif
