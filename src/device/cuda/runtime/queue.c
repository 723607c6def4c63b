/* Queues: streams with numbered events.
 *
 * A CUDA event is created when its number is first recorded, since a program needs only some of them. An event that was
 * never recorded has happened. */
#include "base/alloc.h"
#include "device/cuda/runtime/branches.h"
#include "device/cuda/runtime/cuda.h"
#include "device/cuda/runtime/streams.h"

tu_status cuda_queue_open(cuda_queue *queue, cuda_device *device, uint32_t event_count) {
    queue->device = device;
    queue->event_count = event_count;
    if (event_count) {
        queue->events = tu__alloc_array(event_count, sizeof *queue->events, "the events of a queue");
        if (!queue->events) return TU_NO_MEMORY;
    }
    CUDA_TRY(cuStreamCreate, &queue->stream, CU_STREAM_NON_BLOCKING);
    queue->active = queue->stream;
    return TU_OK;
}

static void destroy_side_streams(cuda_queue *queue) {
    for (int i = 0; i < CUDA_STREAMS; i++) {
        if (queue->side_streams[i]) {
            cuda_libraries_forget(queue->device, queue->side_streams[i]);
            cuda.cuStreamDestroy(queue->side_streams[i]);
        }
        if (queue->join_events[i]) cuda.cuEventDestroy(queue->join_events[i]);
    }
}

void cuda_queue_close(cuda_queue *queue) {
    if (queue->stream) {
        cuda_libraries_forget(queue->device, queue->stream);
        cuda.cuStreamSynchronize(queue->stream);
    }
    destroy_side_streams(queue);
    cuda_destroy_branches(queue);
    for (uint32_t i = 0; queue->events && i < queue->event_count; i++)
        if (queue->events[i]) cuda.cuEventDestroy(queue->events[i]);
    if (queue->stream) cuda.cuStreamDestroy(queue->stream);
    tu__free(queue->events);
    *queue = (cuda_queue){0};
}

tu_status cuda_queue_new(cuda_device *device, uint32_t event_count, cuda_queue **queue) {
    TU_TRY(cuda_make_current(device));
    cuda_queue *created = tu__alloc(sizeof *created, "a queue");
    if (!created) return TU_NO_MEMORY;
    tu_status status = cuda_queue_open(created, device, event_count);
    if (status == TU_OK) {
        *queue = created;
        return TU_OK;
    }
    cuda_queue_close(created);
    tu__free(created);
    return status;
}

void cuda_queue_free(cuda_queue *queue) {
    cuda.cuCtxSetCurrent(
        queue->device->context); /* also for a lost GPU: then these calls fail without effect */
    cuda_queue_close(queue);
    tu__free(queue);
}

/* ---- Events ---- */

tu_status cuda_find_event(const cuda_queue *queue, uint32_t event, CUevent *found) {
    if (event >= queue->event_count)
        return tu_fail(TU_INVALID, "%s: there is no event %u: the queue has %u", queue->device->name, event,
                       queue->event_count);
    *found = queue->events[event];
    return TU_OK;
}

tu_status cuda_record(cuda_queue *queue, uint32_t event) {
    CUevent recorded = NULL;
    TU_TRY(cuda_find_event(queue, event, &recorded));
    TU_TRY(cuda_make_current(queue->device));
    if (!recorded)
        CUDA_TRY(cuEventCreate, &queue->events[event], CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC);
    CUDA_TRY(cuEventRecord, queue->events[event], queue->stream);
    return TU_OK;
}

tu_status cuda_wait(cuda_queue *queue, cuda_queue *other, uint32_t event) {
    CUevent awaited = NULL;
    TU_TRY(cuda_find_event(other, event, &awaited));
    TU_TRY(cuda_make_current(queue->device));
    if (awaited) CUDA_TRY(cuStreamWaitEvent, queue->stream, awaited, 0);
    return TU_OK;
}
