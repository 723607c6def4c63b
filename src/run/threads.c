/* Runs a step of all partitions on the host threads of their devices, and abandons it if a device call does not
 * return.
 *
 * Each session has a compute thread and a copy thread per device. Waiting partitions time out at the deadline and
 * report which device is late, but a device call may not return at all. The run and its threads are then abandoned: the
 * execution, the program and the variables stay allocated, and the device cannot be used any more. */
#include "base/worker.h"
#include "run/execution.h"

static tu_status pin_thread(void *device) {
    return tu__device_pin_thread(device);
}

static tu_status start_workers(tu__part *part) {
    tu__session_device *on = part->on;
    if (!on->compute_thread)
        TU_TRY(tu__worker_start(&on->compute_thread, part->device->name, pin_thread, part->device));
    if (part->copy_thread_copies && !on->copy_thread)
        TU_TRY(tu__worker_start(&on->copy_thread, part->device->name, NULL, NULL));
    return TU_OK;
}

/* Fails if a thread of the device has not returned from an earlier run. */
static tu_status check_threads_free(const tu__part *part) {
    if (!tu__worker_busy(part->on->compute_thread) && !tu__worker_busy(part->on->copy_thread)) return TU_OK;
    bool may_return = !part->device->api->abandon;
    return tu_fail(TU_DEVICE, "device '%s' is still busy with an abandoned run: %srestart the process",
                   part->device->name, may_return ? "wait until that run ends, or " : "");
}

tu_status tu__check_threads_free(const tu__execution *e) {
    for (size_t i = 0; i < e->program->device_count; i++) TU_TRY(check_threads_free(&e->parts[i]));
    return TU_OK;
}

/* ---- One partition ---- */

/* True if the run can use the caller's thread, which saves the switch to another thread: only one partition is
 * active, on an undivided device. A logical device runs on its own thread, which is pinned to its cores. With several
 * partitions, each runs on the thread of its device. */
static bool runs_on_caller(const tu__execution *e) {
    return e->program->only_active && e->program->only_active->device->options.logical_count == 1;
}

tu_status tu__run_on_one_thread(tu__execution *e, void (*work)(void *job), tu__job job) {
    tu__run_sync_begin_run(&e->sync);
    e->sync.device_timeout = e->sync.timeout; /* no other thread can enforce it */
    job.execution = e;
    if (runs_on_caller(e)) {
        work(&job);
    } else {
        TU_TRY(start_workers(job.part));
        tu__worker_post(job.part->on->compute_thread, work, &job);
        tu__worker_join(job.part->on->compute_thread);
    }
    return tu__run_sync_end_run(&e->sync);
}

/* ---- All partitions ---- */

static void post_part(tu__execution *e, tu__part *part, void (*work)(void *job)) {
    tu__job *job = &e->jobs[part->index];
    *job = (tu__job){.execution = e, .part = part};
    atomic_store(&part->current_command, 0);
    atomic_store(&part->is_committing, false);
    tu__worker_post(part->on->compute_thread, work, job);
    if (part->copy_thread_copies) tu__worker_post(part->on->copy_thread, tu__run_copy_thread, job);
}

/* Tells the device that its call is abandoned, so that freeing objects does not wait for it. */
static void abandon_device(const tu__device *device) {
    if (device->api->abandon) device->api->abandon(device->instance);
}

/* Waits for a partition's threads, and abandons them one second after the deadline. */
static void join_part(tu__execution *e, tu__part *part) {
    enum { GRACE_SECONDS = 1 }; /* so that waiting partitions report first */
    double until = e->sync.deadline + GRACE_SECONDS;
    bool computed = tu__worker_join_until(part->on->compute_thread, until);
    bool copied = !part->copy_thread_copies || tu__worker_join_until(part->on->copy_thread, until);
    if (computed && copied) return;
    abandon_device(part->device);
    uint32_t awaited = atomic_load(computed ? &part->copy_thread_awaits : &part->compute_thread_awaits);
    tu__part *late = awaited ? &e->parts[awaited - 1] : part;
    abandon_device(late->device);
    e->abandoned = true;
    tu__run_sync_abort(&e->sync,
                       tu_fail(TU_DEVICE, "a call to device '%s' has not returned after %g s: %s",
                               late->device->name, e->sync.timeout, tu__part_activity(e, late).text));
}

tu_status tu__run_on_threads(tu__execution *e, void (*work)(void *job)) {
    size_t count = e->program->device_count;
    tu__assign_copies(e);
    for (size_t i = 0; i < count; i++)
        if (!e->parts[i].partition->is_idle) TU_TRY(start_workers(&e->parts[i]));
    e->abandoned = false;
    tu__run_sync_begin_run(&e->sync);
    e->sync.device_timeout = -1; /* threads that wait for a device enforce it */
    tu__signal_persistent_values(e);
    for (size_t i = 0; i < count; i++)
        if (!e->parts[i].partition->is_idle) post_part(e, &e->parts[i], work);
    for (size_t i = 0; i < count; i++)
        if (!e->parts[i].partition->is_idle) join_part(e, &e->parts[i]);
    return tu__run_sync_end_run(&e->sync);
}
