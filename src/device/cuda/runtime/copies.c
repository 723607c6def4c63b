/* Copies between host and device, within a device, and between GPUs.
 *
 * Copies without a queue overlap with kernels. Uploads and downloads have one stream each, so that the GPU's two copy
 * engines work in parallel and neither waits for kernels. Copy engines cannot read pageable host memory. Larger copies of pageable memory therefore go through
 * two pinned staging buffers per direction: the CPU fills or empties one while the copy engine uses the other:
 *
 *     CPU           fill 0 | fill 1 | wait, fill 0 | wait, fill 1 | …
 *     copy engine            copy 0 |  copy 1      |  copy 0      | …
 *
 * Small copies are passed to the driver, which stages them itself. Pinned memory (pinned_memory.c) is copied directly.
 *
 * A copy with a queue is enqueued into the queue's stream if the driver can copy directly. Otherwise it waits for the
 * queue and is then staged like a copy without one.
 */
#include <string.h>

#include "device/cuda/runtime/cuda.h"

enum {
    STAGING_BUFFERS = 2,
    STAGING_BYTES = 1 << 20, /* per buffer: large layers need several, so that CPU and copy engine overlap */
    MAX_DIRECT_BYTES = 64 << 10, /* bytes; up to this size the driver's staging is faster */
};

/* ---- Copy lanes ---- */

tu_status cuda_lane_open(cuda_lane *lane) {
    CUDA_TRY(cuStreamCreate, &lane->stream, CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < STAGING_BUFFERS; i++)
        CUDA_TRY(cuEventCreate, &lane->done[i], CU_EVENT_DISABLE_TIMING);
    return TU_OK;
}

void cuda_lane_close(cuda_lane *lane) {
    if (lane->stream) cuda.cuStreamSynchronize(lane->stream);
    for (int i = 0; i < STAGING_BUFFERS; i++)
        if (lane->done[i]) cuda.cuEventDestroy(lane->done[i]);
    cuda_staging_free(lane->pinned);
    if (lane->stream) cuda.cuStreamDestroy(lane->stream);
}

static unsigned char *staging_buffer(const cuda_lane *lane, size_t chunk) {
    return lane->pinned + chunk % STAGING_BUFFERS * STAGING_BYTES;
}

static CUevent staging_event(const cuda_lane *lane, size_t chunk) {
    return lane->done[chunk % STAGING_BUFFERS];
}

static size_t chunk_bytes(size_t bytes, size_t chunk) {
    size_t left = bytes - chunk * STAGING_BYTES;
    return left < STAGING_BYTES ? left : STAGING_BYTES;
}

typedef struct transfer {
    void *to;
    const void *from;
    size_t bytes;
} transfer;

/* ---- Uploads ---- */

static tu_status upload_chunk(const cuda_lane *lane, const transfer *t, size_t chunk) {
    size_t offset = chunk * STAGING_BYTES, bytes = chunk_bytes(t->bytes, chunk);
    if (chunk >= STAGING_BUFFERS) CUDA_TRY(cuEventSynchronize, staging_event(lane, chunk));
    memcpy(staging_buffer(lane, chunk), (const char *)t->from + offset, bytes);
    CUDA_TRY(cuMemcpyHtoDAsync, cuda_address((char *)t->to + offset), staging_buffer(lane, chunk), bytes,
             lane->stream);
    CUDA_TRY(cuEventRecord, staging_event(lane, chunk), lane->stream);
    return TU_OK;
}

static tu_status upload_staged(const cuda_lane *lane, const transfer *t) {
    for (size_t i = 0; i * STAGING_BYTES < t->bytes; i++) TU_TRY(upload_chunk(lane, t, i));
    return TU_OK;
}

static tu_status upload_direct(CUstream stream, const transfer *t) {
    CUDA_TRY(cuMemcpyHtoDAsync, cuda_address(t->to), t->from, t->bytes, stream);
    return TU_OK;
}

/* ---- Downloads ---- */

static tu_status start_download_chunk(const cuda_lane *lane, const transfer *t, size_t chunk) {
    size_t offset = chunk * STAGING_BYTES;
    CUDA_TRY(cuMemcpyDtoHAsync, staging_buffer(lane, chunk), cuda_address((const char *)t->from + offset),
             chunk_bytes(t->bytes, chunk), lane->stream);
    CUDA_TRY(cuEventRecord, staging_event(lane, chunk), lane->stream);
    return TU_OK;
}

static tu_status finish_download_chunk(const cuda_lane *lane, const transfer *t, size_t chunk) {
    CUDA_TRY(cuEventSynchronize, staging_event(lane, chunk));
    memcpy((char *)t->to + chunk * STAGING_BYTES, staging_buffer(lane, chunk), chunk_bytes(t->bytes, chunk));
    return TU_OK;
}

static tu_status download_staged(const cuda_lane *lane, const transfer *t) {
    size_t count = (t->bytes + STAGING_BYTES - 1) / STAGING_BYTES;
    for (size_t i = 0; i < count; i++) {
        TU_TRY(start_download_chunk(lane, t, i));
        if (i) TU_TRY(finish_download_chunk(lane, t, i - 1));
    }
    return finish_download_chunk(lane, t, count - 1);
}

static tu_status download_direct(CUstream stream, const transfer *t) {
    CUDA_TRY(cuMemcpyDtoHAsync, t->to, cuda_address(t->from), t->bytes, stream);
    return TU_OK;
}

/* ---- Both directions ---- */

/* Waits for the lane's copies. Also after a failure: the staging buffers and the caller's memory are reused. */
static tu_status wait_for_lane(const cuda_lane *lane, tu_status status) {
    if (status != TU_OK) {
        cuda.cuStreamSynchronize(lane->stream);
        return status;
    }
    CUDA_TRY(cuStreamSynchronize, lane->stream);
    return TU_OK;
}

static tu_status allocate_staging(cuda_lane *lane) {
    if (lane->pinned) return TU_OK;
    return cuda_staging_allocate((size_t)STAGING_BUFFERS * STAGING_BYTES, (void **)&lane->pinned);
}

/* Up to MAX_DIRECT_BYTES the driver stages the copy. */
static bool can_copy_directly(const void *host, size_t bytes) {
    return bytes <= MAX_DIRECT_BYTES || cuda_is_pinned(host, bytes);
}

static tu_status copy_staged(cuda_lane *lane, const transfer *t,
                             tu_status (*staged)(const cuda_lane *lane, const transfer *t)) {
    pthread_mutex_lock(&lane->lock); /* the staging buffers serve one copy at a time */
    tu_status status = allocate_staging(lane);
    if (status == TU_OK) status = staged(lane, t);
    status = wait_for_lane(lane, status);
    pthread_mutex_unlock(&lane->lock);
    return status;
}

static tu_status upload(cuda_device *d, const cuda_queue *queue, const transfer *t) {
    bool direct = can_copy_directly(t->from, t->bytes);
    if (direct && queue) return upload_direct(queue->stream, t);
    if (direct) return wait_for_lane(&d->in, upload_direct(d->in.stream, t));
    if (queue) CUDA_TRY(cuStreamSynchronize, queue->stream);
    return copy_staged(&d->in, t, upload_staged);
}

/* If the host memory is not pinned, this blocks until the copy is done. */
static tu_status download(cuda_device *d, const cuda_queue *queue, const transfer *t) {
    bool direct = can_copy_directly(t->to, t->bytes);
    if (direct && queue) return download_direct(queue->stream, t);
    if (direct) return wait_for_lane(&d->out, download_direct(d->out.stream, t));
    if (queue) CUDA_TRY(cuStreamSynchronize, queue->stream);
    return copy_staged(&d->out, t, download_staged);
}

/* ---- Between and within devices ---- */

/* Copies directly between GPUs with peer access (peer_access.c); without it, the driver copies through its own pinned
 * host memory. */
static tu_status copy_on_gpus(const cuda_device *to, const cuda_device *from, const transfer *t,
                              CUstream stream) {
    if (to->handle == from->handle)
        CUDA_TRY(cuMemcpyDtoDAsync, cuda_address(t->to), cuda_address(t->from), t->bytes, stream);
    else
        CUDA_TRY(cuMemcpyPeerAsync, cuda_address(t->to), to->context, cuda_address(t->from), from->context,
                 t->bytes, stream);
    return TU_OK;
}

tu_status cuda_copy_memory(cuda_device *d, const cuda_queue *queue, tu_memory to, tu_memory from,
                           size_t bytes) {
    const transfer t = {to.address, from.address, bytes};
    TU_TRY(cuda_make_current(d));
    if (!bytes) return TU_OK;
    if (!from.device) return upload(d, queue, &t);
    if (!to.device) return download(d, queue, &t);
    CUstream stream = queue ? queue->stream : d->in.stream;
    TU_TRY(copy_on_gpus(cuda_device_of(to.device), cuda_device_of(from.device), &t, stream));
    if (!queue) CUDA_TRY(cuStreamSynchronize, stream);
    return TU_OK;
}
