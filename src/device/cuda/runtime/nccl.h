/* Calls of NCCL for one communicator. Everything that begins something returns at once: cuda_nccl_poll() says when it
 * is done. In a build without NCCL's header (HAVE_NCCL) all functions fail. */
#ifndef TU__DEVICE_CUDA_RUNTIME_NCCL_H
#define TU__DEVICE_CUDA_RUNTIME_NCCL_H

#include <stdint.h>

#include "device/cuda/runtime/driver.h"

typedef void cuda_nccl; /* ncclComm */

typedef struct cuda_nccl_id {
    char bytes[128];
} cuda_nccl_id;

typedef struct cuda_transfer { /* bytes sent to and received from one process; 0 bytes: nothing */
    uint32_t process;
    const void *send; /* in GPU memory, as `receive` */
    void *receive;
    size_t send_bytes, receive_bytes;
} cuda_transfer;

/* Makes the number by which the processes find each other; one process does. */
tu_status cuda_nccl_new_id(cuda_nccl_id *id);
/* Begins to connect the current GPU. After a failure `*communicator` may be set: abort it. */
tu_status cuda_nccl_begin(uint32_t rank, uint32_t size, const cuda_nccl_id *id, cuda_nccl **communicator);
/* Sets `*done` when what was begun has been done or, for transfers, enqueued. Fails with errors of NCCL, also those of
 * earlier transfers. */
tu_status cuda_nccl_poll(cuda_nccl *communicator, bool *done);
/* Begins to enqueue transfers. */
tu_status cuda_nccl_transfer(cuda_nccl *communicator, uint32_t count, const cuda_transfer *transfers,
                             CUstream stream);

/* Begins to end; then cuda_nccl_free(). */
tu_status cuda_nccl_end(cuda_nccl *communicator);
void cuda_nccl_free(cuda_nccl *communicator);
/* Ends without the other processes. Call it only before the communicator is used in a CUDA graph. */
void cuda_nccl_abort(cuda_nccl *communicator);

#endif
