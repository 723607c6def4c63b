/* Copies values from one device to another while both compute.
 *
 * A partition performs the copies to its device, and those from its device to the host (partition.c says why). If the
 * device can, copies are asynchronous: the device's kernels wait for uploads, and downloads are queued after the
 * kernels that compute the value, so that they start without a host thread.
 *
 * The compute thread begins, between two kernels, the copies that can be begun without waiting: downloads into pinned
 * memory, and uploads from it whose value exists before the run or is produced before the source partition waits for
 * anything. The receiving partition polls until such a download is complete. All other copies are the work of the
 * device's copy thread. It begins copies as their values are produced, in any order, and waits for downloads when
 * there is nothing to begin. Using fewer threads matters on a busy machine, where each of them can be delayed. */
#include "base/clock.h"
#include "run/execution.h"
#include "run/trace.h"

tu__bound_copy *tu__copy_of(const tu__execution *e, const tu__receive *receive) {
    const tu__part *to = &e->parts[receive->partition];
    return &to->copies[receive - to->partition->receives];
}

bool tu__is_copied_async(const tu__execution *e, const tu__receive *receive) {
    return tu__copy_of(e, receive)->is_async && !tu__is_traced(e);
}

tu_queue *tu__copy_queue(const tu__execution *e, const tu__receive *receive) {
    const tu__part *copying = &e->parts[receive->copied_by];
    return receive->copied_by == receive->partition ? copying->upload_queue : copying->download_queue;
}

/* ---- Choosing the thread ---- */

/* True if the compute thread begins the copy. */
static bool begins_on_compute_thread(const tu__execution *e, const tu__receive *receive) {
    if (!tu__is_copied_async(e, receive) || !tu__copy_of(e, receive)->is_pinned) return false;
    return receive->copied_by != receive->partition || receive->is_early;
}

void tu__assign_copies(tu__execution *e) {
    for (size_t p = 0; p < e->program->device_count; p++) {
        tu__part *part = &e->parts[p];
        part->copy_thread_copies = 0;
        for (uint32_t i = 0; i < part->partition->copy_count; i++) {
            tu__bound_copy *copy = tu__copy_of(e, part->partition->copies[i]);
            copy->by_compute_thread = begins_on_compute_thread(e, part->partition->copies[i]);
            part->copy_thread_copies += !copy->by_compute_thread;
        }
    }
}

/* The copies of a partition's copy thread in one run. */
typedef struct copy_worker {
    tu__execution *execution;
    tu__part *part;
    uint32_t first; /* copies before this one are complete, or belong to the compute thread */
} copy_worker;

/* ---- Choosing the next copy ---- */

static const tu__receive *copy_at(const copy_worker *w, uint32_t index) {
    return w->part->partition->copies[index];
}

static bool is_own(const copy_worker *w, uint32_t index) {
    return !tu__copy_of(w->execution, copy_at(w, index))->by_compute_thread;
}

static bool is_begun(const copy_worker *w, uint32_t index) {
    return tu__copy_of(w->execution, copy_at(w, index))->begun_in_run == w->execution->sync.epoch;
}

static bool is_received(const copy_worker *w, uint32_t index) {
    return tu__run_sync_is_signalled(&w->execution->sync, copy_at(w, index)->received);
}

/* Returns a copy that has not begun and whose value is produced; TU_NO_NODE if there is none. */
static uint32_t find_startable_copy(copy_worker *w) {
    uint32_t count = w->part->partition->copy_count;
    while (w->first < count && (!is_own(w, w->first) || is_received(w, w->first))) w->first++;
    for (uint32_t i = w->first; i < count; i++)
        if (is_own(w, i) && !is_begun(w, i) &&
            tu__run_sync_is_signalled(&w->execution->sync, copy_at(w, i)->produced))
            return i;
    return TU_NO_NODE;
}

/* Returns the first copy in progress; the copies of a queue are listed in the order in which they are produced. */
static uint32_t find_copy_in_progress(const copy_worker *w) {
    for (uint32_t i = w->first; i < w->part->partition->copy_count; i++)
        if (is_own(w, i) && is_begun(w, i) && !is_received(w, i)) return i;
    return TU_NO_NODE;
}

/* Polls until there is a copy to begin, for at most `spin_seconds`. */
static void poll_for_copy(copy_worker *w) {
    const tu__run_sync *sync = &w->execution->sync;
    double until = sync->spin_seconds > 0 ? tu__now() + sync->spin_seconds : 0;
    while (until > 0 && tu__now() < until)
        if (find_startable_copy(w) != TU_NO_NODE || tu__run_sync_is_aborted(sync)) return;
}

/* Sleeps until there is a copy to begin; TU_NO_NODE if the run was aborted or timed out. */
static uint32_t wait_for_startable_copy(copy_worker *w) {
    tu__run_sync *sync = &w->execution->sync;
    bool in_time = true;
    uint32_t next;
    poll_for_copy(w);
    pthread_mutex_lock(&sync->lock);
    while ((next = find_startable_copy(w)) == TU_NO_NODE && !tu__run_sync_is_aborted(sync) && in_time)
        in_time = tu__run_sync_sleep(sync, w->part->index, TU__COPY_THREAD);
    pthread_mutex_unlock(&sync->lock);
    return next;
}

/* ---- Copying ---- */

static void signal_received(const copy_worker *w, const tu__receive *receive) {
    tu__run_sync_signal_to(&w->execution->sync, receive->received, receive->partition, TU__COMPUTE_THREAD);
}

static tu_status fail_copy(const tu__execution *e, const tu__receive *receive, tu_status status) {
    return tu_fail(status, "copying '%s' from device '%s' to '%s' failed: %.768s",
                   e->program->unit.graph->nodes[receive->source.node]->name,
                   e->parts[receive->source_partition].device->name,
                   e->parts[receive->partition].device->name, tu_message());
}

static tu_status wait_until_produced(const tu__execution *e, const tu__receive *receive) {
    const tu__part *from = &e->parts[receive->source_partition];
    if (!from->queue) return TU_OK;
    return tu__part_wait_event(from, from->queue, receive->produced,
                               &e->parts[receive->copied_by].copy_thread_awaits);
}

/* Performs a copy synchronously. */
static tu_status copy_synchronously(copy_worker *w, const tu__receive *receive) {
    tu__execution *e = w->execution;
    const tu__part *to = &e->parts[receive->partition], *from = &e->parts[receive->source_partition];
    TU_TRY(wait_until_produced(e, receive));
    double began = tu__trace_now(e);
    tu_status status = tu__device_copy(to->device, to->addresses[receive->buffer], from->device,
                                       from->addresses[receive->source_buffer],
                                       to->partition->plan->buffers[receive->buffer].bytes);
    tu__trace_add(e, TU__SPAN_COPY, receive->partition, (size_t)(receive - to->partition->receives), began);
    if (status != TU_OK) return fail_copy(e, receive, status);
    signal_received(w, receive);
    return TU_OK;
}

/* A download comes after the kernels that compute the value. */
static tu_status enqueue_copy(const tu__execution *e, const tu__receive *receive) {
    const tu__part *to = &e->parts[receive->partition], *from = &e->parts[receive->source_partition],
                   *copying = &e->parts[receive->copied_by];
    const tu_device_api *api = copying->device->api;
    tu_queue *queue = tu__copy_queue(e, receive);
    bool is_upload = copying == to;
    if (!is_upload) TU_TRY(api->wait(queue, from->queue, receive->produced));
    tu_memory target = {is_upload ? to->device->instance : NULL, to->addresses[receive->buffer]},
              source = {is_upload ? NULL : from->device->instance, from->addresses[receive->source_buffer]};
    TU_TRY(api->copy(copying->device->instance, queue, target, source,
                     to->partition->plan->buffers[receive->buffer].bytes));
    return api->record(queue, receive->received);
}

tu_status tu__begin_copy(tu__execution *e, const tu__receive *receive) {
    tu__copy_of(e, receive)->begun_in_run = e->sync.epoch;
    tu_status status = enqueue_copy(e, receive);
    return status == TU_OK ? TU_OK : fail_copy(e, receive, status);
}

/* Begins an asynchronous copy, or performs it. An upload counts as received once it has begun: the device waits for
 * the rest. */
static tu_status start_copy(copy_worker *w, const tu__receive *receive) {
    tu__copy_of(w->execution, receive)->begun_in_run = w->execution->sync.epoch;
    if (!tu__is_copied_async(w->execution, receive)) return copy_synchronously(w, receive);
    TU_TRY(tu__begin_copy(w->execution, receive));
    if (receive->copied_by == receive->partition) signal_received(w, receive);
    return TU_OK;
}

static tu_status finish_copy(copy_worker *w, const tu__receive *receive) {
    bool done;
    tu_status status = w->part->device->api->synchronize(tu__copy_queue(w->execution, receive),
                                                         receive->received, -1, &done);
    if (status != TU_OK) return tu__part_fail(w->part, status);
    signal_received(w, receive);
    return TU_OK;
}

/* Returns without an error on a timeout: the partition that waits for the value reports it. */
static tu_status perform_copies(copy_worker *w) {
    for (uint32_t remaining = w->part->copy_thread_copies;
         remaining || find_copy_in_progress(w) != TU_NO_NODE;) {
        uint32_t next = find_startable_copy(w), in_progress = find_copy_in_progress(w);
        if (next == TU_NO_NODE && in_progress != TU_NO_NODE) {
            TU_TRY(finish_copy(w, copy_at(w, in_progress)));
            continue;
        }
        if (next == TU_NO_NODE) next = wait_for_startable_copy(w);
        if (next == TU_NO_NODE) return TU_OK;
        TU_TRY(start_copy(w, copy_at(w, next)));
        remaining--;
    }
    return TU_OK;
}

void tu__finish_failed_copies(const tu__execution *e, const tu__part *part, tu__thread thread) {
    for (uint32_t i = 0; i < part->partition->copy_count; i++) {
        const tu__receive *receive = part->partition->copies[i];
        const tu__bound_copy *copy = tu__copy_of(e, receive);
        bool belongs_to_thread = copy->by_compute_thread == (thread == TU__COMPUTE_THREAD), done;
        if (belongs_to_thread && tu__is_copied_async(e, receive) && copy->begun_in_run == e->sync.epoch)
            (void)part->device->api->synchronize(tu__copy_queue(e, receive), TU_ALL_EVENTS, -1, &done);
    }
}

void tu__run_copy_thread(void *argument) {
    const tu__job *j = argument;
    copy_worker w = {.execution = j->execution, .part = j->part};
    tu_status status = perform_copies(&w);
    if (status != TU_OK) tu__run_sync_abort(&j->execution->sync, status);
    if (tu__run_sync_is_aborted(&j->execution->sync))
        tu__finish_failed_copies(j->execution, j->part, TU__COPY_THREAD);
}
