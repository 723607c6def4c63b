/* Calls of NCCL. See nccl.h. */
#include "device/cuda/runtime/nccl.h"

#include <string.h>

#ifdef HAVE_NCCL

tu_status cuda_nccl_new_id(cuda_nccl_id *id) {
    ncclUniqueId made;
    NCCL_TRY(ncclGetUniqueId, &made);
    _Static_assert(sizeof made == sizeof *id, "the size of NCCL's ids is part of its interface");
    memcpy(id, &made, sizeof *id);
    return TU_OK;
}

tu_status cuda_nccl_begin(uint32_t rank, uint32_t size, const cuda_nccl_id *id, cuda_nccl **communicator) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId number;
    ncclComm_t made = NULL;
    config.blocking = 0;
    memcpy(&number, id, sizeof number);
    tu_status status = NCCL_CALL(ncclCommInitRankConfig, &made, (int)size, number, (int)rank, &config);
    *communicator = made;
    return status;
}

tu_status cuda_nccl_poll(cuda_nccl *communicator, bool *done) {
    ncclResult_t state = ncclSuccess;
    *done = false;
    NCCL_TRY(ncclCommGetAsyncError, communicator, &state);
    TU_TRY(cuda_check_nccl(state, "NCCL"));
    *done = state == ncclSuccess;
    return TU_OK;
}

static tu_status add_transfers(cuda_nccl *communicator, uint32_t count, const cuda_transfer *list,
                               CUstream stream) {
    for (const cuda_transfer *t = list; t < list + count; t++) {
        int peer = (int)t->process;
        if (t->send_bytes)
            NCCL_TRY(ncclSend, t->send, t->send_bytes, ncclInt8, peer, communicator, (cudaStream_t)stream);
        if (t->receive_bytes)
            NCCL_TRY(ncclRecv, t->receive, t->receive_bytes, ncclInt8, peer, communicator,
                     (cudaStream_t)stream);
    }
    return TU_OK;
}

/* The group is ended in any case: an open one would swallow all later calls. */
tu_status cuda_nccl_transfer(cuda_nccl *communicator, uint32_t count, const cuda_transfer *transfers,
                             CUstream stream) {
    char message[768];
    NCCL_TRY(ncclGroupStart);
    tu_status status = add_transfers(communicator, count, transfers, stream);
    if (status == TU_OK) return NCCL_CALL(ncclGroupEnd);
    snprintf(message, sizeof message, "%s", tu_message());
    cuda.ncclGroupEnd();
    return tu_fail(status, "%s", message);
}

tu_status cuda_nccl_end(cuda_nccl *communicator) {
    return NCCL_CALL(ncclCommFinalize, communicator);
}

void cuda_nccl_free(cuda_nccl *communicator) {
    cuda.ncclCommDestroy(communicator);
}

void cuda_nccl_abort(cuda_nccl *communicator) {
    cuda.ncclCommAbort(communicator);
}

#else

static tu_status fail(void) {
    return cuda_load_library(CUDA_nccl);
}

tu_status cuda_nccl_new_id(cuda_nccl_id *id) {
    memset(id, 0, sizeof *id);
    return fail();
}

tu_status cuda_nccl_begin(uint32_t rank, uint32_t size, const cuda_nccl_id *id, cuda_nccl **communicator) {
    (void)rank, (void)size, (void)id;
    *communicator = NULL;
    return fail();
}

tu_status cuda_nccl_poll(cuda_nccl *communicator, bool *done) {
    (void)communicator;
    *done = false;
    return fail();
}

tu_status cuda_nccl_transfer(cuda_nccl *communicator, uint32_t count, const cuda_transfer *transfers,
                             CUstream stream) {
    (void)communicator, (void)count, (void)transfers, (void)stream;
    return fail();
}

tu_status cuda_nccl_end(cuda_nccl *communicator) {
    (void)communicator;
    return fail();
}

void cuda_nccl_free(cuda_nccl *communicator) {
    (void)communicator;
}

void cuda_nccl_abort(cuda_nccl *communicator) {
    (void)communicator;
}

#endif
