/* The memory of a card: what is taken from it and given back, and its reserve. */
#ifndef TU__DEVICE_CUDA_RUNTIME_MEMORY_H
#define TU__DEVICE_CUDA_RUNTIME_MEMORY_H

#include <stdint.h>

#include "device/cuda/runtime/driver.h"

typedef struct cuda_memory cuda_memory;

/* The memory of card `index`: one for all devices that are parts of it. NULL (message set) when the host's runs out. */
cuda_memory *cuda_memory_open(int index);
/* The last part gives the reserve back: its context must be the thread's. NULL: nothing was opened. */
void cuda_memory_close(cuda_memory *memory);

/* For all of these the card's context must be the calling thread's. */

/* Makes the reserve as large as this, if it is not yet. */
tu_status cuda_memory_reserve(cuda_memory *memory, uint64_t bytes);
/* A block of at least one byte: of the reserve where that has room, else of the card. Not while the thread captures. */
tu_status cuda_take(cuda_memory *memory, size_t bytes, CUdeviceptr *block);
/* What was enqueued may still use the block. 0: nothing. */
void cuda_give(cuda_memory *memory, CUdeviceptr block);
/* Bytes of the card that somebody else has: its context, libraries, other processes. */
tu_status cuda_memory_elsewhere(cuda_memory *memory, uint64_t *bytes);

/* Between these two, a thread captures. */
void cuda_capture_begins(void);
void cuda_capture_ends(void);

#endif
