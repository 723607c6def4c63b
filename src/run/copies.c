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
#include <stdio.h>

#include "base/clock.h"
#include "run/trace.h"

/* ---- Choosing the thread ---- */

/* True if the compute thread begins the copy. The receiver of a download must be able to poll for its completion. A
 * traced copy is measured by waiting for it, which would block the compute thread. */
static bool begins_on_compute_thread(const tu_program *program, const tu__receive *receive, bool is_traced) {
    if (!receive->copy_event || !receive->is_pinned || is_traced) return false;
    return receive->copied_by == receive->partition
               ? receive->is_early
               : program->devices[receive->copied_by]->api->event_query != NULL;
}

void tu__assign_copies(tu_program *program) {
    bool is_traced = tu__trace_now(program) > 0;
    for (size_t p = 0; p < program->device_count; p++) {
        tu__partition *partition = &program->partitions[p];
        partition->copy_thread_copies = 0;
        for (uint32_t i = 0; i < partition->copy_count; i++) {
            partition->copies[i]->by_compute_thread =
                begins_on_compute_thread(program, partition->copies[i], is_traced);
            partition->copy_thread_copies += !partition->copies[i]->by_compute_thread;
        }
    }
}

/* The copies of a partition's copy thread in one run. */
typedef struct copy_worker {
    tu_program *program;
    tu__partition *partition;
    uint32_t first; /* copies before this one are complete, or belong to the compute thread */
} copy_worker;

/* ---- Choosing the next copy ---- */

static bool is_begun(const copy_worker *w, uint32_t index) {
    return w->partition->copies[index]->begun_in_run == w->program->sync.epoch;
}

static bool is_received(const copy_worker *w, uint32_t index) {
    return tu__run_sync_is_signalled(&w->program->sync, w->partition->copies[index]->received);
}

/* Returns a copy that has not begun and whose value is produced; TU_NO_NODE if there is none. */
static uint32_t find_startable_copy(copy_worker *w) {
    while (w->first < w->partition->copy_count &&
           (w->partition->copies[w->first]->by_compute_thread || is_received(w, w->first)))
        w->first++;
    for (uint32_t i = w->first; i < w->partition->copy_count; i++)
        if (!w->partition->copies[i]->by_compute_thread && !is_begun(w, i) &&
            tu__run_sync_is_signalled(&w->program->sync, w->partition->copies[i]->produced))
            return i;
    return TU_NO_NODE;
}

/* Returns the first copy in progress; downloads are listed in the order in which they are produced. */
static uint32_t find_copy_in_progress(const copy_worker *w) {
    for (uint32_t i = w->first; i < w->partition->copy_count; i++)
        if (!w->partition->copies[i]->by_compute_thread && is_begun(w, i) && !is_received(w, i)) return i;
    return TU_NO_NODE;
}

/* Polls until there is a copy to begin, for at most `spin_seconds`. */
static void poll_for_copy(copy_worker *w) {
    const tu__run_sync *sync = &w->program->sync;
    double until = sync->spin_seconds > 0 ? tu__now() + sync->spin_seconds : 0;
    while (until > 0 && tu__now() < until)
        if (find_startable_copy(w) != TU_NO_NODE || tu__run_sync_is_aborted(sync)) return;
}

/* Sleeps until there is a copy to begin; TU_NO_NODE if the run was aborted or timed out. */
static uint32_t wait_for_startable_copy(copy_worker *w) {
    tu__run_sync *sync = &w->program->sync;
    bool in_time = true;
    uint32_t next;
    poll_for_copy(w);
    pthread_mutex_lock(&sync->lock);
    while ((next = find_startable_copy(w)) == TU_NO_NODE && !tu__run_sync_is_aborted(sync) && in_time)
        in_time = tu__run_sync_sleep(sync, (size_t)(w->partition - w->program->partitions), TU__COPY_THREAD);
    pthread_mutex_unlock(&sync->lock);
    return next;
}

/* ---- Copying ---- */

static void signal_received(copy_worker *w, uint32_t index) {
    const tu__receive *receive = w->partition->copies[index];
    tu__run_sync_signal_to(&w->program->sync, receive->received, receive->partition, TU__COMPUTE_THREAD);
}

static tu_status fail_copy(const tu_program *program, const tu__receive *receive, tu_status status) {
    char message[768];
    snprintf(message, sizeof message, "%s", tu_message());
    return tu_fail(status, "copying '%s' from device '%s' to '%s' failed: %s",
                   program->unit.graph->nodes[receive->source.node]->name,
                   program->devices[receive->source_partition]->name,
                   program->devices[receive->partition]->name, message);
}

static tu_status wait_until_produced(const tu_program *program, const tu__receive *receive) {
    const tu__partition *from = &program->partitions[receive->source_partition];
    if (!receive->source_event) return TU_OK;
    return tu__partition_wait_event(program, from, receive->source_event,
                                    &program->partitions[receive->copied_by].copy_thread_awaits);
}

/* Performs a copy synchronously. */
static tu_status copy_synchronously(copy_worker *w, uint32_t index) {
    const tu__receive *receive = w->partition->copies[index];
    const tu__partition *to = &w->program->partitions[receive->partition],
                        *from = &w->program->partitions[receive->source_partition];
    TU_TRY(wait_until_produced(w->program, receive));
    double began = tu__trace_now(w->program);
    tu_status status =
        tu__device_copy(to->device, to->addresses[receive->buffer], from->device,
                        from->addresses[receive->source_buffer], to->plan->buffers[receive->buffer].bytes);
    tu__trace_add(w->program, TU__SPAN_COPY, receive->partition, (size_t)(receive - to->receives), began);
    if (status != TU_OK) return fail_copy(w->program, receive, status);
    signal_received(w, index);
    return TU_OK;
}

tu_status tu__begin_copy(const tu_program *program, tu__receive *receive) {
    const tu__partition *to = &program->partitions[receive->partition],
                        *from = &program->partitions[receive->source_partition];
    const tu__device *d = program->devices[receive->copied_by];
    bool is_upload = receive->copied_by == receive->partition;
    void *target = to->addresses[receive->buffer];
    const void *value = from->addresses[receive->source_buffer];
    size_t bytes = to->plan->buffers[receive->buffer].bytes;
    receive->begun_in_run = program->sync.epoch;
    tu_status status = is_upload
                           ? d->api->upload_begin(d->instance, target, value, bytes, receive->copy_event)
                           : d->api->download_begin(d->instance, target, value, bytes, receive->source_event,
                                                    receive->copy_event);
    return status == TU_OK ? TU_OK : fail_copy(program, receive, status);
}

/* Begins an asynchronous copy. An upload counts as received once it has begun: the device waits for the rest. */
static tu_status begin_copy(copy_worker *w, uint32_t index) {
    tu__receive *receive = w->partition->copies[index];
    TU_TRY(tu__begin_copy(w->program, receive));
    if (receive->copied_by == receive->partition) signal_received(w, index);
    return TU_OK;
}

static tu_status start_copy(copy_worker *w, uint32_t index) {
    w->partition->copies[index]->begun_in_run = w->program->sync.epoch;
    bool is_traced = tu__trace_now(w->program) > 0;
    return w->partition->copies[index]->copy_event && !is_traced ? begin_copy(w, index)
                                                                 : copy_synchronously(w, index);
}

static tu_status finish_copy(copy_worker *w, uint32_t index) {
    const tu__device *d = w->partition->device;
    tu_status status = d->api->event_synchronize(d->instance, w->partition->copies[index]->copy_event);
    if (status != TU_OK) return tu__partition_fail(w->partition, status);
    signal_received(w, index);
    return TU_OK;
}

/* Returns without an error on a timeout: the partition that waits for the value reports it. */
static tu_status perform_copies(copy_worker *w) {
    for (uint32_t remaining = w->partition->copy_thread_copies;
         remaining || find_copy_in_progress(w) != TU_NO_NODE;) {
        uint32_t next = find_startable_copy(w), in_progress = find_copy_in_progress(w);
        if (next == TU_NO_NODE && in_progress != TU_NO_NODE) {
            TU_TRY(finish_copy(w, in_progress));
            continue;
        }
        if (next == TU_NO_NODE) next = wait_for_startable_copy(w);
        if (next == TU_NO_NODE) return TU_OK;
        TU_TRY(start_copy(w, next));
        remaining--;
    }
    return TU_OK;
}

void tu__finish_failed_copies(const tu_program *program, const tu__partition *partition, tu__thread thread) {
    const tu__device *d = partition->device;
    for (uint32_t i = 0; i < partition->copy_count; i++) {
        const tu__receive *receive = partition->copies[i];
        bool belongs_to_thread = receive->by_compute_thread == (thread == TU__COMPUTE_THREAD);
        if (belongs_to_thread && receive->copy_event && receive->begun_in_run == program->sync.epoch)
            (void)d->api->event_synchronize(d->instance, receive->copy_event);
    }
}

void tu__run_copy_thread(void *argument) {
    const tu__job *j = argument;
    copy_worker w = {.program = j->program, .partition = j->partition};
    tu_status status = perform_copies(&w);
    if (status != TU_OK) tu__run_sync_abort(&j->program->sync, status);
    if (tu__run_sync_is_aborted(&j->program->sync))
        tu__finish_failed_copies(j->program, j->partition, TU__COPY_THREAD);
}
