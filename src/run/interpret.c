/* The interpreter: executes one step of a program's command list (compile/command_list.h).
 *
 * Each partition's compute queue runs on the compute thread of its device. A second thread performs the copies that
 * the compute thread cannot begin itself (copies.c). COMMIT waits until all partitions have computed, so a step that
 * fails before changes no variable. Since it comes between two steps, the WAITs that only protect memory from being
 * overwritten too early need no action here. Every wait has a timeout, and its message names the device that is late.
 * With one active partition the step is a single call of a device, which enforces the timeout itself if it can.
 *
 * The tail of a compute queue, which are the fetches and the updates that no kernel wrote in place, is executed by the
 * caller's thread when all partitions have succeeded: all fetches, then all updates. */
#include <time.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/thread_pool.h"
#include "run/perform_collective.h"
#include "run/table.h"
#include "run/trace.h"

/* ---- Waiting for values ---- */

static tu_status fail_receive_timeout(tu__execution *e, const tu__part *part, const tu__receive *receive) {
    tu__part *from = &e->parts[receive->source_partition];
    return tu_fail(TU_DEVICE, "device '%s' waited %g s for '%s' from device '%s', which is late: %s",
                   part->device->name, e->sync.timeout,
                   e->program->unit.graph->nodes[receive->source.node]->name, from->device->name,
                   tu__part_activity(e, from).text);
}

static tu_status wait_for_receive(tu__execution *e, const tu__part *part, const tu__receive *receive) {
    if (tu__run_sync_is_signalled(&e->sync, receive->received)) return TU_OK;
    double began = tu__trace_now(e);
    if (!tu__run_sync_wait(&e->sync, part->index, receive->received))
        return fail_receive_timeout(e, part, receive);
    tu__trace_add(e, TU__SPAN_WAIT, part->index, (size_t)(receive - part->partition->receives), began);
    return TU_OK;
}

/* Waits between two queries of an event. Short waits poll if there are enough cores (run_sync.c), with a delay
 * between queries, since a query slows down threads that launch. Longer waits sleep. */
static void wait_before_query(const tu__run_sync *sync, double waited) {
    const double query_interval = 1e-6, min_sleep = 20e-6, max_sleep = 10e-3;
    if (waited < sync->spin_seconds) {
        for (double until = tu__now() + query_interval; tu__now() < until;) continue;
        return;
    }
    double seconds = waited / 1000 < min_sleep   ? min_sleep
                     : waited / 1000 < max_sleep ? waited / 1000
                                                 : max_sleep;
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

static tu_status query_copy(const tu__execution *e, tu__part *part, const tu__receive *receive,
                            bool *is_done) {
    const tu__part *from = &e->parts[receive->copied_by];
    atomic_store(&part->compute_thread_awaits, receive->copied_by + 1);
    tu_status status =
        from->device->api->synchronize(tu__copy_queue(e, receive), receive->received, 0, is_done);
    atomic_store(&part->compute_thread_awaits, 0);
    return status == TU_OK ? TU_OK : tu__part_fail(from, status);
}

/* Waits until an asynchronous copy that another device has begun is complete. */
static tu_status wait_for_copy(tu__execution *e, tu__part *part, const tu__receive *receive) {
    const tu__run_sync *sync = &e->sync;
    double began = tu__now(), time = began;
    for (bool is_done = false; !tu__run_sync_is_aborted(sync); time = tu__now()) {
        TU_TRY(query_copy(e, part, receive, &is_done));
        if (is_done) return TU_OK;
        if (time > sync->deadline) return fail_receive_timeout(e, part, receive);
        wait_before_query(sync, time - began);
    }
    return TU_OK;
}

/* Begins a copy from the host on the partition's own compute thread, unless it has begun already. */
static tu_status begin_upload(tu__execution *e, const tu__part *part, const tu__receive *receive) {
    if (tu__copy_of(e, receive)->begun_in_run == e->sync.epoch) return TU_OK;
    if (!tu__run_sync_wait(&e->sync, part->index, receive->produced))
        return fail_receive_timeout(e, part, receive);
    return tu__run_sync_is_aborted(&e->sync) ? TU_OK : tu__begin_copy(e, receive);
}

/* Waits for a received value. If an upload is still in progress, the device waits for it, not the thread. */
static tu_status wait_for_value(tu__execution *e, tu__part *part, const tu__receive *receive) {
    bool is_upload = receive->copied_by == part->index;
    const tu__bound_copy *copy = tu__copy_of(e, receive);
    TU_TRY(copy->by_compute_thread && is_upload ? begin_upload(e, part, receive)
                                                : wait_for_receive(e, part, receive));
    if (!tu__is_copied_async(e, receive) || tu__run_sync_is_aborted(&e->sync)) return TU_OK;
    if (!is_upload) return copy->by_compute_thread ? wait_for_copy(e, part, receive) : TU_OK;
    tu_status status = part->device->api->wait(part->queue, tu__copy_queue(e, receive), receive->received);
    return status == TU_OK ? TU_OK : tu__part_fail(part, status);
}

/* A WAIT for a value that this partition sent only protects memory, for which COMMIT suffices. */
static tu_status execute_wait(tu__execution *e, tu__part *part, const tu__event *event) {
    return event->receive->partition == part->index ? wait_for_value(e, part, event->receive) : TU_OK;
}

/* ---- Launching ---- */

tu_status tu__part_synchronize(const tu__execution *e, const tu__part *part) {
    bool done = true;
    if (!part->queue) return TU_OK;
    tu_status status =
        part->device->api->synchronize(part->queue, TU_ALL_EVENTS, e->sync.device_timeout, &done);
    if (status == TU_OK && !done) {
        if (part->device->api->abandon) part->device->api->abandon(part->device->instance);
        status = tu_fail(TU_DEVICE, "its kernels have not ended after %g s", e->sync.device_timeout);
    }
    return status == TU_OK ? TU_OK : tu__part_fail(part, status);
}

tu_status tu__part_wait_event(const tu__part *part, tu_queue *queue, uint32_t event,
                              atomic_uint *awaited_partition) {
    bool done;
    atomic_store(awaited_partition, part->index + 1);
    tu_status status = part->device->api->synchronize(queue, event, -1, &done);
    atomic_store(awaited_partition, 0);
    return status == TU_OK ? TU_OK : tu__part_fail(part, status);
}

/* With one active partition, COMMIT has no effect: the kernels before and after it are one launch. */
uint32_t tu__launch_count(const tu__execution *e, const tu__part *part, uint32_t index) {
    const tu__partition *partition = part->partition;
    uint32_t count = partition->commands[index].count;
    for (uint32_t i = index + 1; e->program->only_active && i < partition->tail; i++) {
        if (partition->commands[i].kind == TU_COMMAND_LAUNCH)
            count += partition->commands[i].count;
        else if (partition->commands[i].kind != TU_COMMAND_COMMIT)
            break;
    }
    return count;
}

/* Launches the kernels one by one and measures each, because the device cannot. */
static tu_status launch_timed(tu__execution *e, const tu__part *part, uint32_t first, uint32_t count) {
    const tu__device *d = part->device;
    for (uint32_t i = first; i < first + count; i++) {
        double began = tu__trace_now(e);
        TU_TRY(d->api->launch(d->instance, part->executable, i, 1));
        TU_TRY(tu__part_synchronize(e, part));
        tu__trace_add(e, TU__SPAN_KERNEL, part->index, i, began);
    }
    return TU_OK;
}

/* Launches the kernels of command `*index`, and of those that are launched with it, to which it advances `*index`. */
static tu_status launch(tu__execution *e, const tu__part *part, uint32_t *index) {
    const tu_command *commands = part->partition->commands;
    const tu__device *d = part->device;
    uint32_t first = commands[*index].first, count = tu__launch_count(e, part, *index);
    tu_status status = tu__trace_times_launches(e, part)
                           ? launch_timed(e, part, first, count)
                           : d->api->launch(d->instance, part->executable, first, count);
    if (status != TU_OK)
        return tu_fail(status == TU_INTERNAL ? TU_DEVICE : status, "device '%s' failed at %s: %.768s",
                       d->name, tu__part_kernels(e, part, first, count).text, tu_message());
    while (commands[*index].kind != TU_COMMAND_LAUNCH ||
           commands[*index].first + commands[*index].count < first + count)
        ++*index;
    return TU_OK;
}

/* ---- Committing ---- */

/* Returns the first active partition that has not computed. */
static tu__part *find_missing_part(tu__execution *e) {
    for (size_t i = 0; i < e->program->device_count; i++)
        if (!e->parts[i].partition->is_idle && !atomic_load(&e->parts[i].is_committing)) return &e->parts[i];
    return NULL;
}

static tu_status fail_commit_timeout(tu__execution *e) {
    tu__part *part = find_missing_part(e);
    if (!part)
        return tu_fail(TU_DEVICE, "the run has not finished within its timeout of %g s", e->sync.timeout);
    return tu_fail(TU_DEVICE, "device '%s' has not finished computing after %g s: %s", part->device->name,
                   e->sync.timeout, tu__part_activity(e, part).text);
}

/* Waits until all active partitions have computed. */
static tu_status commit(tu__execution *e, tu__part *part) {
    if (e->program->only_active) return TU_OK;
    TU_TRY(tu__part_synchronize(e, part));
    double began = tu__trace_now(e);
    atomic_store(&part->is_committing, true);
    if (!tu__run_sync_barrier(&e->sync, part->index, (uint32_t)e->program->active_count))
        return fail_commit_timeout(e);
    tu__trace_add(e, TU__SPAN_COMMIT, part->index, 0, began);
    return TU_OK;
}

/* ---- Sending values ---- */

/* Signals that a value is computed, to the thread that copies it. */
static void signal_produced(tu__execution *e, const tu__receive *receive) {
    tu__run_sync_signal_to(&e->sync, receive->produced, receive->copied_by,
                           tu__copy_of(e, receive)->by_compute_thread ? TU__COMPUTE_THREAD : TU__COPY_THREAD);
}

/* Signals the values that exist before the run, so that they can be copied without waiting for the source device's
 * thread. */
void tu__signal_persistent_values(tu__execution *e) {
    for (size_t i = 0; i < e->program->device_count; i++)
        for (uint32_t k = 0; k < e->parts[i].partition->receive_count; k++) {
            const tu__receive *receive = &e->parts[i].partition->receives[k];
            if (receive->is_persistent && !e->parts[receive->source_partition].queue)
                signal_produced(e, receive);
        }
}

/* Sends a value, or signals that it can be copied: now, or once the device's event happens. */
static tu_status send_value(tu__execution *e, const tu__part *part, const tu__receive *receive) {
    if (tu__run_sync_is_signalled(&e->sync, receive->produced)) return TU_OK;
    tu_status status = part->queue ? part->device->api->record(part->queue, receive->produced) : TU_OK;
    if (status != TU_OK) return tu__part_fail(part, status);
    if (!tu__copy_of(e, receive)->by_compute_thread || receive->copied_by != part->index) {
        signal_produced(e, receive);
        return TU_OK;
    }
    if (tu__run_sync_is_aborted(&e->sync)) return TU_OK;
    TU_TRY(tu__begin_copy(e, receive));
    tu__run_sync_signal_to(&e->sync, receive->received, receive->partition, TU__COMPUTE_THREAD);
    return TU_OK;
}

/* Begins the copies of values that are in host memory before the run, so that they proceed while the first kernels
 * are launched. Inputs are uploaded before: usually the first kernel waits for them. */
static tu_status begin_persistent_copies(tu__execution *e, const tu__part *part) {
    for (uint32_t i = 0; i < part->partition->receive_count; i++) {
        const tu__receive *receive = &part->partition->receives[i];
        if (part->copies[i].by_compute_thread && receive->is_persistent && receive->copied_by == part->index)
            TU_TRY(tu__begin_copy(e, receive));
    }
    return TU_OK;
}

/* ---- Inputs ---- */

/* Gathers rows of a table directly into an input in host memory. */
static void gather(const tu__part *part, const tu__input *input, const tu_submit_feed *data, size_t bytes,
                   void *to) {
    tu__parallel_setting saved = tu__parallel_begin(part->partition->is_idle ? 1 : part->device->threads);
    tu__table_gather(input->feed.table, data->rows, bytes / data->row_bytes, to);
    tu__parallel_end(saved);
}

static tu_status feed(tu__execution *e, const tu__part *part, uint32_t index) {
    const tu_slot *slot = &e->program->list.list.feeds[index];
    const tu_submit_feed *data = &e->inputs.feeds[index];
    void *to = part->addresses[slot->place.buffer];
    double began = tu__trace_now(e);
    tu_status status = TU_OK;
    if (data->table)
        gather(part, &e->inputs.list[index], data, slot->bytes, to);
    else
        status = tu__upload(part->device, to, data->host, slot->bytes);
    if (status != TU_OK)
        return tu__part_fail_at(part, "uploading",
                                e->program->unit.graph->nodes[e->program->feeds[index].node]->name, status);
    tu__trace_add(e, TU__SPAN_FEED, part->index, index, began);
    return TU_OK;
}

/* ---- A compute queue ---- */

/* Executes command `*index`, and advances `*index`. */
static tu_status execute_command(tu__execution *e, tu__part *part, uint32_t *index) {
    const tu_command *c = &part->partition->commands[*index];
    const tu__collective *collectives = e->program->collectives.list;
    switch (c->kind) {
    case TU_COMMAND_FEED: TU_TRY(feed(e, part, c->index)); break;
    case TU_COMMAND_WAIT: TU_TRY(execute_wait(e, part, &e->program->list.events[c->index])); break;
    case TU_COMMAND_LAUNCH: TU_TRY(launch(e, part, index)); break;
    case TU_COMMAND_SIGNAL: TU_TRY(send_value(e, part, e->program->list.events[c->index].receive)); break;
    case TU_COMMAND_POST: TU_TRY(tu__collective_post(e, part, &collectives[c->index])); break;
    case TU_COMMAND_AWAIT: TU_TRY(tu__collective_run(e, part, &collectives[c->index])); break;
    case TU_COMMAND_COMMIT: TU_TRY(commit(e, part)); break;
    case TU_COMMAND_WAIT_PREVIOUS:
    case TU_COMMAND_COPY:
    case TU_COMMAND_FETCH: break; /* not before the tail of a compute queue */
    }
    ++*index;
    return TU_OK;
}

/* Uploads the inputs, and begins copies of variables and constants before the first kernel. */
static tu_status execute_feeds(tu__execution *e, tu__part *part, uint32_t *index) {
    const tu__partition *partition = part->partition;
    while (*index < partition->tail && partition->commands[*index].kind == TU_COMMAND_FEED) {
        atomic_store_explicit(&part->current_command, *index, memory_order_relaxed);
        TU_TRY(execute_command(e, part, index));
    }
    return begin_persistent_copies(e, part);
}

/* True if COMMIT was the last command: a partition without updates has no work in progress afterwards. To synchronize
 * again could only fail a run in which other partitions have begun their updates. */
static bool ends_with_commit(const tu__execution *e, const tu__partition *partition) {
    return !e->program->only_active && partition->tail &&
           partition->commands[partition->tail - 1].kind == TU_COMMAND_COMMIT;
}

/* Executes the compute queue of a partition up to its tail. */
static void execute_part(void *argument) {
    const tu__job *job = argument;
    tu__execution *e = job->execution;
    tu__part *part = job->part;
    uint32_t index = 0, tail = part->partition->tail;
    tu_status status = execute_feeds(e, part, &index);
    while (index < tail && status == TU_OK && !tu__run_sync_is_aborted(&e->sync)) {
        atomic_store_explicit(&part->current_command, index, memory_order_relaxed);
        status = execute_command(e, part, &index);
    }
    bool is_done = status == TU_OK && index == tail && ends_with_commit(e, part->partition);
    if (status != TU_OK) tu__run_sync_abort(&e->sync, status); /* before later calls replace the message */
    /* Nothing may still be running when this function returns, also after a failure. */
    tu_status synchronized = is_done ? TU_OK : tu__part_synchronize(e, part);
    if (tu__run_sync_is_aborted(&e->sync)) tu__finish_failed_copies(e, part, TU__COMPUTE_THREAD);
    if (status == TU_OK && synchronized == TU_OK) atomic_store(&part->current_command, tail);
    if (status == TU_OK && synchronized != TU_OK) tu__run_sync_abort(&e->sync, synchronized);
}

/* Executes a compute queue, with the threads of the session's pool if the graph is frozen. */
static void run_part(void *argument) {
    const tu__job *job = argument;
    tu__thread_pool *pool = job->execution->program->unit.graph->is_frozen ? job->part->on->pool : NULL;
    if (!pool) {
        execute_part(argument);
        return;
    }
    tu__thread_pool_begin(pool);
    tu__parallel_use_pool(pool);
    execute_part(argument);
    tu__parallel_use_pool(NULL);
    tu__thread_pool_end(pool);
}

/* Uploads the inputs of idle partitions, which have no thread. The user may fetch them. */
static tu_status feed_idle_parts(tu__execution *e) {
    for (size_t i = 0; i < e->program->device_count; i++) {
        tu__part *part = &e->parts[i];
        uint32_t index = 0;
        if (part->partition->is_idle && part->partition != e->program->only_active)
            TU_TRY(execute_feeds(e, part, &index));
    }
    return TU_OK;
}

/* ---- The tail ---- */

static tu_status fetch(tu__execution *e, const tu__part *part, uint32_t index, void *to) {
    const tu_slot *slot = &e->program->list.list.fetches[index];
    double began = tu__trace_now(e);
    tu_status status = tu__download(part->device, to, part->addresses[slot->place.buffer], slot->bytes);
    if (status != TU_OK)
        return tu__part_fail_at(part, "downloading",
                                e->program->unit.graph->nodes[e->program->unit.fetch[index].node]->name,
                                status);
    tu__trace_add(e, TU__SPAN_FETCH, part->index, index, began);
    return TU_OK;
}

static tu_status copy_update(tu__execution *e, const tu__part *part, const tu_command *c) {
    double began = tu__trace_now(e);
    TU_TRY(tu__device_copy(part->device, part->addresses[c->to.buffer], part->device,
                           part->addresses[c->from.buffer], c->bytes));
    tu__trace_add(e, TU__SPAN_UPDATE, part->index, c->index, began);
    return TU_OK;
}

/* Executes the fetches of all tails, to index `step` of every array in `fetches`; or all copies. */
static tu_status execute_tails(tu__execution *e, tu_command_kind kind, void *const *fetches, size_t step) {
    for (size_t i = 0; i < e->program->device_count; i++) {
        const tu__part *part = &e->parts[i];
        for (uint32_t k = part->partition->tail; k < part->partition->command_count; k++) {
            const tu_command *c = &part->partition->commands[k];
            if (c->kind != kind) continue;
            if (kind == TU_COMMAND_COPY) TU_TRY(copy_update(e, part, c));
            if (kind == TU_COMMAND_FETCH && fetches && fetches[c->index])
                TU_TRY(
                    fetch(e, part, c->index,
                          (char *)fetches[c->index] + step * e->program->list.list.fetches[c->index].bytes));
        }
    }
    return TU_OK;
}

/* ---- A step ---- */

static tu_status execute_queues(tu__execution *e) {
    const tu_program *p = e->program;
    TU_TRY(feed_idle_parts(e));
    tu__begin_updates(e);
    if (p->active_count > 1) return tu__run_on_threads(e, run_part);
    return tu__run_on_one_thread(e, run_part, (tu__job){.part = &e->parts[p->only_active - p->partitions]});
}

tu_status tu__interpret_step(tu__execution *e, tu_state *state, void *const *fetches, size_t step) {
    double began;
    bool was_stuck = tu__execution_is_stuck(e);
    TU_TRY(tu__build_collectives(e));
    TU_TRY(tu__trace_begin_run(e, &began));
    tu__group_begin_step(e);
    tu_status status = execute_queues(e);
    tu__group_end_step(e, status);
    /* If a thread does not return, the variables that its kernels update are never freed. */
    if (!was_stuck && tu__execution_is_stuck(e)) state->never_free = true;
    TU_TRY(status);
    TU_TRY(execute_tails(e, TU_COMMAND_FETCH, fetches, step));
    TU_TRY(execute_tails(e, TU_COMMAND_COPY, NULL, 0));
    tu__end_updates(e, state, 1);
    return tu__trace_end_run(e, began);
}
