/* Copies between host and device that overlap with kernels, and events.
 *
 * Uploads and downloads have one stream each, so that the GPU's two copy engines work in parallel and neither waits
 * for kernels. Copy engines cannot read pageable host memory. Larger copies of pageable memory therefore go through
 * two pinned staging buffers per direction: the CPU fills or empties one while the copy engine uses the other:
 *
 *     CPU           fill 0 | fill 1 | wait, fill 0 | wait, fill 1 | …
 *     copy engine            copy 0 |  copy 1      |  copy 0      | …
 *
 * Small copies are passed to the driver, which stages them itself. Memory that the engine has pinned (scratch and
 * variables of a CPU in programs that also use GPUs) is copied directly and asynchronously: such a copy waits for the
 * kernels that produce its source, and its readers wait for the copy.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
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
    if (lane->pinned) cuda.cuMemFreeHost(lane->pinned);
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

/* ---- Pinned memory ---- */

typedef struct pinned_range {
    const char *begin, *end;
    struct pinned_range *next;
} pinned_range;

static pthread_mutex_t ranges_lock = PTHREAD_MUTEX_INITIALIZER;
static pinned_range *ranges; /* of all GPUs; only a few entries */

tu_status cuda_pin(cuda_device *d, void *host, size_t bytes) {
    TU_TRY(cuda_make_current(d));
    pinned_range *range = tu__alloc(sizeof *range, "pinned memory");
    if (!range) return TU_NO_MEMORY;
    tu_status status = CUDA_CALL(cuMemHostRegister, host, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    if (status != TU_OK) {
        tu__free(range);
        return status;
    }
    pthread_mutex_lock(&ranges_lock);
    *range = (pinned_range){.begin = host, .end = (const char *)host + bytes, .next = ranges};
    ranges = range;
    pthread_mutex_unlock(&ranges_lock);
    return TU_OK;
}

void cuda_unpin(cuda_device *d, void *host) {
    pthread_mutex_lock(&ranges_lock);
    pinned_range **link = &ranges;
    while (*link && (*link)->begin != host) link = &(*link)->next;
    pinned_range *removed = *link;
    if (removed) *link = removed->next;
    pthread_mutex_unlock(&ranges_lock);
    tu__free(removed);
    if (cuda_is_abandoned(d)) return;
    if (cuda.cuCtxSetCurrent(d->context) == CUDA_SUCCESS) cuda.cuMemHostUnregister(host);
}

static bool is_pinned(const void *host, size_t bytes) {
    const char *begin = host;
    pthread_mutex_lock(&ranges_lock);
    const pinned_range *r = ranges;
    while (r && !(begin >= r->begin && begin + bytes <= r->end)) r = r->next;
    pthread_mutex_unlock(&ranges_lock);
    return r != NULL;
}

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

static tu_status upload_direct(const cuda_lane *lane, const transfer *t) {
    CUDA_TRY(cuMemcpyHtoDAsync, cuda_address(t->to), t->from, t->bytes, lane->stream);
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

static tu_status download_direct(const cuda_lane *lane, const transfer *t) {
    CUDA_TRY(cuMemcpyDtoHAsync, t->to, cuda_address(t->from), t->bytes, lane->stream);
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
    if (!lane->pinned)
        CUDA_TRY(cuMemHostAlloc, (void **)&lane->pinned, (size_t)STAGING_BUFFERS * STAGING_BYTES, 0);
    return TU_OK;
}

/* Copies with `direct`, in one call, if the copy is small or the host memory is pinned; else with `staged`. Returns
 * when the copy is done. */
static tu_status transfer_and_wait(cuda_device *d, cuda_lane *lane, const transfer *t, const void *host,
                                   tu_status (*direct)(const cuda_lane *lane, const transfer *t),
                                   tu_status (*staged)(const cuda_lane *lane, const transfer *t)) {
    TU_TRY(cuda_make_current(d));
    if (!t->bytes) return TU_OK;
    if (t->bytes <= MAX_DIRECT_BYTES || is_pinned(host, t->bytes))
        return wait_for_lane(lane, direct(lane, t));
    pthread_mutex_lock(&lane->lock); /* the staging buffers serve one copy at a time */
    tu_status status = allocate_staging(lane);
    if (status == TU_OK) status = staged(lane, t);
    status = wait_for_lane(lane, status);
    pthread_mutex_unlock(&lane->lock);
    return status;
}

tu_status cuda_upload(cuda_device *d, void *to, const void *host, size_t bytes) {
    return transfer_and_wait(d, &d->in, &(transfer){to, host, bytes}, host, upload_direct, upload_staged);
}

tu_status cuda_upload_begin(cuda_device *d, void *to, const void *host, size_t bytes, CUevent event) {
    TU_TRY(cuda_make_current(d));
    bool staged = bytes > MAX_DIRECT_BYTES && !is_pinned(host, bytes);
    if (staged) TU_TRY(cuda_upload(d, to, host, bytes));
    if (!staged && bytes) TU_TRY(upload_direct(&d->in, &(transfer){to, host, bytes}));
    CUDA_TRY(cuEventRecord, event, d->in.stream);
    return TU_OK;
}

tu_status cuda_download(cuda_device *d, void *host, const void *from, size_t bytes) {
    return transfer_and_wait(d, &d->out, &(transfer){host, from, bytes}, host, download_direct,
                             download_staged);
}

/* If the host memory is not pinned, this blocks until the copy is done. */
tu_status cuda_download_begin(cuda_device *d, void *host, const void *from, size_t bytes, CUevent after,
                              CUevent event) {
    TU_TRY(cuda_make_current(d));
    if (is_pinned(host, bytes)) {
        CUDA_TRY(cuStreamWaitEvent, d->out.stream, after, 0);
        if (bytes) TU_TRY(download_direct(&d->out, &(transfer){host, from, bytes}));
    } else {
        TU_TRY(cuda_event_synchronize(d, after));
        TU_TRY(cuda_download(d, host, from, bytes));
    }
    CUDA_TRY(cuEventRecord, event, d->out.stream);
    return TU_OK;
}

/* Copies directly between GPUs with peer access (peer_access.c); without it, the driver copies through its own pinned
 * host memory. */
tu_status cuda_copy_from(cuda_device *d, void *to, const cuda_device *other, const void *from, size_t bytes) {
    TU_TRY(cuda_make_current(d));
    if (!bytes) return TU_OK;
    if (other->handle == d->handle)
        CUDA_TRY(cuMemcpyDtoDAsync, cuda_address(to), cuda_address(from), bytes, d->in.stream);
    else
        CUDA_TRY(cuMemcpyPeerAsync, cuda_address(to), d->context, cuda_address(from), other->context, bytes,
                 d->in.stream);
    CUDA_TRY(cuStreamSynchronize, d->in.stream);
    return TU_OK;
}

/* ---- Events ---- */

tu_status cuda_event_new(cuda_device *d, void **event) {
    TU_TRY(cuda_make_current(d));
    CUevent created = NULL;
    CUDA_TRY(cuEventCreate, &created, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    *event = created;
    return TU_OK;
}

void cuda_event_free(cuda_device *d, void *event) {
    cuda.cuCtxSetCurrent(d->context);
    cuda.cuEventDestroy(event);
}

tu_status cuda_event_record(cuda_device *d, void *event) {
    TU_TRY(cuda_make_current(d));
    CUDA_TRY(cuEventRecord, event, d->stream);
    return TU_OK;
}

tu_status cuda_event_wait(cuda_device *d, void *event) {
    TU_TRY(cuda_make_current(d));
    CUDA_TRY(cuStreamWaitEvent, d->stream, event, 0);
    return TU_OK;
}

/* Polls an event for up to 300 us before the thread blocks: the values of a step become ready shortly after each
 * other, and waking a thread takes longer than most of these waits. Pauses between polls, because each poll takes a
 * driver lock that launching threads need. */
static void poll_briefly(CUevent event) {
    const double duration = 300e-6, pause = 1e-6;
    double time = tu__now(), until = time + duration;
    while (time < until && cuda.cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        for (double next = time + pause; time < next;) time = tu__now();
}

/* cuEventSynchronize also reports errors of earlier asynchronous work. */
tu_status cuda_event_synchronize(cuda_device *d, void *event) {
    TU_TRY(cuda_make_current(d));
    poll_briefly(event);
    tu_status status = CUDA_CALL(cuEventSynchronize, event);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s: %s", d->name, tu_message());
}

/* cuEventSynchronize returns the error status of the finished work. */
tu_status cuda_event_query(cuda_device *d, void *event, bool *happened) {
    TU_TRY(cuda_make_current(d));
    *happened = cuda.cuEventQuery(event) != CUDA_ERROR_NOT_READY;
    tu_status status = *happened ? CUDA_CALL(cuEventSynchronize, event) : TU_OK;
    return status == TU_OK ? TU_OK : tu_fail(status, "%s: %s", d->name, tu_message());
}
