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
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "base/worker.h"
#include "run/perform_collective.h"
#include "run/table.h"
#include "run/trace.h"

static const char *name_of(const tu_program *program, tu__edge value) {
    return program->unit.graph->nodes[value.node]->name;
}

/* ---- Error messages ---- */

/* Writes the first operation of a kernel: "matmul 'fc1/matmul'". */
static int write_operation(const tu_program *program, const tu__partition *partition, uint32_t position,
                           char *text, size_t capacity) {
    const tu_kernel *kernel = &partition->plan->kernels[partition->order[position]];
    if (!kernel->node_count) return snprintf(text, capacity, "%s", kernel->name);
    const tu__node *node = program->unit.graph->nodes[kernel->nodes[0]];
    return snprintf(text, capacity, "%s '%.100s'", node->op->name, node->name);
}

/* A LAUNCH command, or several adjacent ones. */
typedef struct launch_range {
    uint32_t first, count;
} launch_range;

/* With one active partition, COMMIT has no effect: the kernels before and after it are one launch. */
static launch_range range_at(const tu_program *program, const tu__partition *partition, uint32_t index) {
    launch_range range = {partition->commands[index].first, partition->commands[index].count};
    for (uint32_t i = index + 1; program->only_active && i < partition->tail; i++) {
        if (partition->commands[i].kind == TU_COMMAND_LAUNCH)
            range.count += partition->commands[i].count;
        else if (partition->commands[i].kind != TU_COMMAND_COMMIT)
            break;
    }
    return range;
}

/* Returns "matmul 'fc1/matmul'", or for several kernels "its 12 kernels from matmul 'fc1/matmul' to …". */
static tu__phrase operations_of(const tu_program *program, const tu__partition *partition,
                                launch_range range) {
    tu__phrase p;
    size_t room = sizeof p.text, used = 0;
    if (range.count > 1) used = (size_t)snprintf(p.text, room, "its %u kernels from ", range.count);
    used += (size_t)write_operation(program, partition, range.first, p.text + used, room - used);
    if (range.count > 1 && used < room) used += (size_t)snprintf(p.text + used, room - used, " to ");
    if (range.count > 1 && used < room)
        write_operation(program, partition, range.first + range.count - 1, p.text + used, room - used);
    return p;
}

tu__phrase tu__partition_activity(const tu_program *program, tu__partition *partition) {
    tu__phrase p = {"it has finished all its commands"};
    uint32_t index = atomic_load(&partition->current_command);
    if (index >= partition->tail) return p;
    const tu_command *command = &partition->commands[index];
    switch (command->kind) {
    case TU_COMMAND_FEED:
        snprintf(p.text, sizeof p.text, "it is uploading '%.200s'",
                 program->unit.graph->nodes[program->feeds[command->index].node]->name);
        break;
    case TU_COMMAND_WAIT:
        snprintf(p.text, sizeof p.text, "it is waiting for '%.200s'",
                 name_of(program, program->list.events[command->index].receive->source));
        break;
    case TU_COMMAND_LAUNCH: {
        tu__phrase operations = operations_of(program, partition, range_at(program, partition, index));
        int used = snprintf(p.text, sizeof p.text, "it is executing ");
        snprintf(p.text + used, sizeof p.text - (size_t)used, "%.300s", operations.text);
        break;
    }
    case TU_COMMAND_POST:
    case TU_COMMAND_AWAIT:
        snprintf(p.text, sizeof p.text, "it is executing collective %lld",
                 (long long)program->collectives.list[command->index].id);
        break;
    case TU_COMMAND_COMMIT:
        if (atomic_load(&partition->is_committing)) {
            snprintf(p.text, sizeof p.text, "it is waiting for the other devices");
            break;
        }
        /* fall through */
    default: snprintf(p.text, sizeof p.text, "its kernels are still running"); break;
    }
    return p;
}

static tu_status fail_receive_timeout(tu_program *program, const tu__partition *partition,
                                      const tu__receive *receive) {
    tu__partition *from = &program->partitions[receive->source_partition];
    return tu_fail(TU_DEVICE, "device '%s' waited %g s for '%s' from device '%s', which is late: %s",
                   partition->device->name, program->sync.timeout, name_of(program, receive->source),
                   from->device->name, tu__partition_activity(program, from).text);
}

/* An internal error reported by a device is an error of the device, not of the engine. */
static tu_status as_device_error(tu_status status) {
    return status == TU_INTERNAL ? TU_DEVICE : status;
}

/* Fails with a message that names the device and the kernels, and contains the device's own message. */
static tu_status fail_launch(const tu_program *program, const tu__partition *partition, launch_range range,
                             tu_status status) {
    char message[768];
    snprintf(message, sizeof message, "%s", tu_message());
    return tu_fail(as_device_error(status), "device '%s' failed at %s: %s", partition->device->name,
                   operations_of(program, partition, range).text, message);
}

tu_status tu__partition_fail(const tu__partition *partition, tu_status status) {
    char message[768];
    snprintf(message, sizeof message, "%s", tu_message());
    return tu_fail(as_device_error(status), "device '%s' failed: %s", partition->device->name, message);
}

tu_status tu__partition_fail_at(const tu__partition *partition, const char *activity, const char *name,
                                tu_status status) {
    return tu_fail(as_device_error(status), "device '%s' failed at %s '%.100s': %.768s",
                   partition->device->name, activity, name, tu_message());
}

/* ---- Waiting ---- */

static size_t index_of(const tu_program *program, const tu__partition *partition) {
    return (size_t)(partition - program->partitions);
}

static tu_status wait_for_receive(tu_program *program, const tu__partition *partition,
                                  const tu__receive *receive) {
    tu__run_sync *sync = &program->sync;
    if (tu__run_sync_is_signalled(sync, receive->received)) return TU_OK;
    double began = tu__trace_now(program);
    if (!tu__run_sync_wait(sync, index_of(program, partition), receive->received))
        return fail_receive_timeout(program, partition, receive);
    tu__trace_add(program, TU__SPAN_WAIT, index_of(program, partition),
                  (size_t)(receive - partition->receives), began);
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

static tu_status query_copy(const tu_program *program, tu__partition *partition, const tu__receive *receive,
                            bool *is_done) {
    const tu__partition *from = &program->partitions[receive->copied_by];
    atomic_store(&partition->compute_thread_awaits, receive->copied_by + 1);
    tu_status status = from->device->api->event_query(from->device->instance, receive->copy_event, is_done);
    atomic_store(&partition->compute_thread_awaits, 0);
    return status == TU_OK ? TU_OK : tu__partition_fail(from, status);
}

/* Waits until an asynchronous copy that another device has begun is complete. */
static tu_status wait_for_copy(tu_program *program, tu__partition *partition, const tu__receive *receive) {
    const tu__run_sync *sync = &program->sync;
    double began = tu__now(), time = began;
    for (bool is_done = false; !tu__run_sync_is_aborted(sync); time = tu__now()) {
        TU_TRY(query_copy(program, partition, receive, &is_done));
        if (is_done) return TU_OK;
        if (time > sync->deadline) return fail_receive_timeout(program, partition, receive);
        wait_before_query(sync, time - began);
    }
    return TU_OK;
}

/* Begins a copy from the host on the partition's own compute thread, unless it has begun already. */
static tu_status begin_upload(tu_program *program, const tu__partition *partition, tu__receive *receive) {
    tu__run_sync *sync = &program->sync;
    if (receive->begun_in_run == sync->epoch) return TU_OK;
    if (!tu__run_sync_wait(sync, index_of(program, partition), receive->produced))
        return fail_receive_timeout(program, partition, receive);
    return tu__run_sync_is_aborted(sync) ? TU_OK : tu__begin_copy(program, receive);
}

/* Waits for a received value. If an upload is still in progress, the device waits for it, not the thread. */
static tu_status wait_for_value(tu_program *program, tu__partition *partition, tu__receive *receive) {
    bool is_upload = &program->partitions[receive->copied_by] == partition;
    TU_TRY(receive->by_compute_thread && is_upload ? begin_upload(program, partition, receive)
                                                   : wait_for_receive(program, partition, receive));
    if (!receive->copy_event || tu__run_sync_is_aborted(&program->sync)) return TU_OK;
    if (!is_upload) return receive->by_compute_thread ? wait_for_copy(program, partition, receive) : TU_OK;
    tu_status status = partition->device->api->event_wait(partition->device->instance, receive->copy_event);
    return status == TU_OK ? TU_OK : tu__partition_fail(partition, status);
}

/* Returns the first active partition that has not computed. */
static tu__partition *find_missing_partition(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++)
        if (!program->partitions[i].is_idle && !atomic_load(&program->partitions[i].is_committing))
            return &program->partitions[i];
    return NULL;
}

static tu_status fail_commit_timeout(tu_program *program) {
    tu__partition *partition = find_missing_partition(program);
    if (!partition)
        return tu_fail(TU_DEVICE, "the run has not finished within its timeout of %g s",
                       program->sync.timeout);
    return tu_fail(TU_DEVICE, "device '%s' has not finished computing after %g s: %s",
                   partition->device->name, program->sync.timeout,
                   tu__partition_activity(program, partition).text);
}

/* ---- Compute thread ---- */

tu_status tu__partition_synchronize(const tu__partition *partition) {
    const tu_device_api *api = partition->device->api;
    tu_status status = api->synchronize ? api->synchronize(partition->device->instance) : TU_OK;
    return status == TU_OK ? TU_OK : tu__partition_fail(partition, status);
}

tu_status tu__partition_wait_event(const tu_program *program, const tu__partition *partition, void *event,
                                   atomic_uint *awaited_partition) {
    atomic_store(awaited_partition, (uint32_t)index_of(program, partition) + 1);
    tu_status status = partition->device->api->event_synchronize(partition->device->instance, event);
    atomic_store(awaited_partition, 0);
    return status == TU_OK ? TU_OK : tu__partition_fail(partition, status);
}

/* Launches the kernels one by one and measures each, because the device cannot. */
static tu_status launch_timed(tu_program *program, const tu__partition *partition, launch_range range) {
    for (uint32_t i = range.first; i < range.first + range.count; i++) {
        double began = tu__trace_now(program);
        TU_TRY(partition->device->api->launch(partition->device->instance, partition->plan, i, 1));
        if (partition->device->api->synchronize)
            TU_TRY(partition->device->api->synchronize(partition->device->instance));
        tu__trace_add(program, TU__SPAN_KERNEL, index_of(program, partition), i, began);
    }
    return TU_OK;
}

static tu_status launch(tu_program *program, const tu__partition *partition, launch_range range) {
    tu_status status = tu__trace_times_launches(program, partition)
                           ? launch_timed(program, partition, range)
                           : partition->device->api->launch(partition->device->instance, partition->plan,
                                                            range.first, range.count);
    return status == TU_OK ? TU_OK : fail_launch(program, partition, range, status);
}

/* Waits until all active partitions have computed. */
static tu_status commit(tu_program *program, tu__partition *partition) {
    if (program->only_active) return TU_OK;
    TU_TRY(tu__partition_synchronize(partition));
    double began = tu__trace_now(program);
    atomic_store(&partition->is_committing, true);
    if (!tu__run_sync_barrier(&program->sync, index_of(program, partition), (uint32_t)program->active_count))
        return fail_commit_timeout(program);
    tu__trace_add(program, TU__SPAN_COMMIT, index_of(program, partition), 0, began);
    return TU_OK;
}

/* Signals that a value is computed, to the thread that copies it. */
static void signal_produced(tu_program *program, const tu__receive *receive) {
    tu__run_sync_signal_to(&program->sync, receive->produced, receive->copied_by,
                           receive->by_compute_thread ? TU__COMPUTE_THREAD : TU__COPY_THREAD);
}

static tu_status begin_send(tu_program *program, tu__receive *receive) {
    if (tu__run_sync_is_aborted(&program->sync)) return TU_OK;
    TU_TRY(tu__begin_copy(program, receive));
    tu__run_sync_signal_to(&program->sync, receive->received, receive->partition, TU__COMPUTE_THREAD);
    return TU_OK;
}

/* Sends a value, or signals that it can be copied: now, or once the device's event completes. */
static tu_status send_value(tu_program *program, const tu__partition *partition, tu__receive *receive) {
    if (tu__run_sync_is_signalled(&program->sync, receive->produced)) return TU_OK;
    tu_status status =
        receive->source_event
            ? partition->device->api->event_record(partition->device->instance, receive->source_event)
            : TU_OK;
    if (status != TU_OK) return tu__partition_fail(partition, status);
    if (!receive->source_event) TU_TRY(tu__partition_synchronize(partition));
    if (receive->by_compute_thread && &program->partitions[receive->copied_by] == partition)
        return begin_send(program, receive);
    signal_produced(program, receive);
    return TU_OK;
}

/* Gathers rows of a table directly into an input in host memory. */
static void gather(const tu__partition *partition, const tu__input *input, const tu_submit_feed *feed,
                   size_t bytes, void *to) {
    tu__parallel_setting saved =
        tu__parallel_begin(partition->is_idle ? 1 : tu__device_threads(partition->device));
    tu__table_gather(input->feed.table, feed->rows, bytes / feed->row_bytes, to);
    tu__parallel_end(saved);
}

static tu_status feed(tu_program *program, const tu__partition *partition, uint32_t index) {
    const tu_slot *slot = &program->list.list.feeds[index];
    const tu_submit_feed *data = &program->inputs.feeds[index];
    void *to = partition->addresses[slot->place.buffer];
    double began = tu__trace_now(program);
    tu_status status = TU_OK;
    if (data->table)
        gather(partition, &program->inputs.list[index], data, slot->bytes, to);
    else
        status = partition->device->api->upload(partition->device->instance, to, data->host, slot->bytes);
    if (status != TU_OK)
        return tu__partition_fail_at(partition, "uploading",
                                     program->unit.graph->nodes[program->feeds[index].node]->name, status);
    tu__trace_add(program, TU__SPAN_FEED, index_of(program, partition), index, began);
    return TU_OK;
}

static tu_status execute_wait(tu_program *program, tu__partition *partition, const tu__event *event) {
    tu__receive *receive = event->receive;
    bool is_for_own_values = &program->partitions[receive->partition] == partition;
    return is_for_own_values ? wait_for_value(program, partition, receive) : TU_OK;
}

/* Executes command `*index` of the compute queue, and advances `*index`. */
static tu_status execute_command(tu_program *program, tu__partition *partition, uint32_t *index) {
    const tu_command *command = &partition->commands[*index];
    switch (command->kind) {
    case TU_COMMAND_FEED: TU_TRY(feed(program, partition, command->index)); break;
    case TU_COMMAND_WAIT:
        TU_TRY(execute_wait(program, partition, &program->list.events[command->index]));
        break;
    case TU_COMMAND_SIGNAL:
        TU_TRY(send_value(program, partition, program->list.events[command->index].receive));
        break;
    case TU_COMMAND_POST:
        TU_TRY(tu__collective_post(program, partition, &program->collectives.list[command->index]));
        break;
    case TU_COMMAND_AWAIT:
        TU_TRY(tu__collective_run(program, partition, &program->collectives.list[command->index]));
        break;
    case TU_COMMAND_COMMIT: TU_TRY(commit(program, partition)); break;
    case TU_COMMAND_LAUNCH: {
        launch_range range = range_at(program, partition, *index);
        TU_TRY(launch(program, partition, range));
        while (*index + 1 < partition->tail &&
               partition->commands[*index].first + partition->commands[*index].count <
                   range.first + range.count)
            ++*index;
        break;
    }
    case TU_COMMAND_WAIT_PREVIOUS:
    case TU_COMMAND_COPY:
    case TU_COMMAND_FETCH: break; /* not before the tail of a compute queue */
    }
    ++*index;
    return TU_OK;
}

/* Begins the copies of values that are in host memory before the run, so that they proceed while the first kernels
 * are launched. Inputs are uploaded before: usually the first kernel waits for them. */
static tu_status begin_persistent_copies(const tu_program *program, const tu__partition *partition) {
    for (uint32_t i = 0; i < partition->receive_count; i++) {
        tu__receive *receive = &partition->receives[i];
        if (receive->by_compute_thread && receive->is_persistent &&
            &program->partitions[receive->copied_by] == partition)
            TU_TRY(tu__begin_copy(program, receive));
    }
    return TU_OK;
}

/* Uploads the inputs, and begins copies of variables and constants before the first kernel. */
static tu_status execute_feeds(tu_program *program, tu__partition *partition, uint32_t *index) {
    while (*index < partition->tail && partition->commands[*index].kind == TU_COMMAND_FEED) {
        atomic_store_explicit(&partition->current_command, *index, memory_order_relaxed);
        TU_TRY(execute_command(program, partition, index));
    }
    return begin_persistent_copies(program, partition);
}

/* True if COMMIT was the last command: a partition without updates has no work in progress afterwards. To synchronize
 * again could only fail a run in which other partitions have begun their updates. */
static bool ends_with_commit(const tu_program *program, const tu__partition *partition) {
    return !program->only_active && partition->tail &&
           partition->commands[partition->tail - 1].kind == TU_COMMAND_COMMIT;
}

/* Executes the compute queue up to its tail. */
static void run_partition(void *argument) {
    const tu__job *j = argument;
    tu__partition *partition = j->partition;
    tu__run_sync *sync = &j->program->sync;
    uint32_t index = 0;
    tu_status status = execute_feeds(j->program, partition, &index);
    while (index < partition->tail && status == TU_OK && !tu__run_sync_is_aborted(sync)) {
        atomic_store_explicit(&partition->current_command, index, memory_order_relaxed);
        status = execute_command(j->program, partition, &index);
    }
    bool is_done = status == TU_OK && index == partition->tail && ends_with_commit(j->program, partition);
    if (status != TU_OK) tu__run_sync_abort(sync, status); /* before later calls replace the message */
    /* Nothing may still be running when this function returns, also after a failure. */
    tu_status synchronized = is_done ? TU_OK : tu__partition_synchronize(partition);
    if (tu__run_sync_is_aborted(sync)) tu__finish_failed_copies(j->program, partition, TU__COMPUTE_THREAD);
    if (status == TU_OK && synchronized == TU_OK) atomic_store(&partition->current_command, partition->tail);
    if (status == TU_OK && synchronized != TU_OK) tu__run_sync_abort(sync, synchronized);
}

static void submit_steps(void *argument) {
    const tu__job *j = argument;
    tu_status status = j->partition->device->api->submit(j->submission);
    if (status != TU_OK) tu__run_sync_abort(&j->program->sync, status);
}

/* ---- A run ---- */

static tu_status attach(void *context) {
    tu__device *device = context;
    return device->api->attach ? device->api->attach(device->instance) : TU_OK;
}

static tu_status start_workers(tu__partition *partition) {
    tu__device *d = partition->device;
    if (!d->compute_thread) TU_TRY(tu__worker_start(&d->compute_thread, d->name, attach, d));
    if (partition->copy_thread_copies && !d->copy_thread)
        TU_TRY(tu__worker_start(&d->copy_thread, d->name, NULL, NULL));
    return TU_OK;
}

/* True if the run can use the caller's thread, which saves the switch to another thread: only one partition is
 * active, on an undivided device. A logical device runs on its own thread, which is pinned to its cores. With several
 * partitions, each runs on the thread that is attached to its device. */
static bool runs_on_caller(const tu_program *program) {
    return program->only_active && program->only_active->device->options.logical_count == 1;
}

/* Fails if a thread of the device has not returned from an earlier run. */
static tu_status check_threads_free(const tu__partition *partition) {
    if (!tu__worker_busy(partition->device->compute_thread) &&
        !tu__worker_busy(partition->device->copy_thread))
        return TU_OK;
    bool may_return = !partition->device->api->abandon;
    return tu_fail(TU_DEVICE, "device '%s' is still busy with an abandoned run: %srestart the process",
                   partition->device->name, may_return ? "wait until that run ends, or " : "");
}

/* Sets the timeout of devices that enforce it themselves, if no other thread can; 0: none. */
static void set_device_timeout(const tu_program *program, double seconds) {
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__device *d = program->devices[i];
        if (d->api->set_timeout) d->api->set_timeout(d->instance, seconds);
    }
}

/* Runs `work` for the only active partition, or for all partitions in one thread. */
static tu_status run_single(tu_program *program, void (*work)(void *job), tu__job job) {
    tu__device *device = job.partition->device;
    TU_TRY(check_threads_free(job.partition));
    tu__run_sync_begin_run(&program->sync);
    set_device_timeout(program, program->sync.timeout);
    if (runs_on_caller(program)) {
        TU_TRY(attach(device));
        work(&job);
    } else {
        TU_TRY(start_workers(job.partition));
        tu__worker_post(device->compute_thread, work, &job);
        tu__worker_join(device->compute_thread);
    }
    return tu__run_sync_end_run(&program->sync);
}

static void post_partition(tu_program *program, size_t index) {
    tu__partition *partition = &program->partitions[index];
    tu__job *job = &program->jobs[index];
    *job = (tu__job){.program = program, .partition = partition};
    atomic_store(&partition->current_command, 0);
    atomic_store(&partition->is_committing, false);
    tu__worker_post(partition->device->compute_thread, run_partition, job);
    if (partition->copy_thread_copies)
        tu__worker_post(partition->device->copy_thread, tu__run_copy_thread, job);
}

/* Tells the device that its call is abandoned, so that freeing objects does not wait for it. */
static void abandon_device(const tu__device *device) {
    if (device->api->abandon) device->api->abandon(device->instance);
}

/* Waits for a partition's threads. Waiting partitions time out at the deadline and report which device is late, but
 * a device call may not return. If so, the run and its threads are abandoned one second later. */
static void join_partition(tu_program *program, tu__partition *partition) {
    enum { GRACE_SECONDS = 1 }; /* so that waiting partitions report first */
    double until = program->sync.deadline + GRACE_SECONDS;
    bool computed = tu__worker_join_until(partition->device->compute_thread, until);
    bool copied =
        !partition->copy_thread_copies || tu__worker_join_until(partition->device->copy_thread, until);
    if (computed && copied) return;
    abandon_device(partition->device);
    uint32_t awaited =
        atomic_load(computed ? &partition->copy_thread_awaits : &partition->compute_thread_awaits);
    tu__partition *late = awaited ? &program->partitions[awaited - 1] : partition;
    abandon_device(late->device);
    program->abandoned = true;
    tu__run_sync_abort(&program->sync,
                       tu_fail(TU_DEVICE, "a call to device '%s' has not returned after %g s: %s",
                               late->device->name, program->sync.timeout,
                               tu__partition_activity(program, late).text));
}

/* Checks that the threads of all partitions are free, and starts those that do not exist yet. */
static tu_status prepare_threads(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++) TU_TRY(check_threads_free(&program->partitions[i]));
    tu__assign_copies(program);
    for (size_t i = 0; i < program->device_count; i++)
        if (!program->partitions[i].is_idle) TU_TRY(start_workers(&program->partitions[i]));
    program->abandoned = false;
    return TU_OK;
}

/* ---- Running all partitions ---- */

/* Signals the values that exist before the run, so that they can be copied without waiting for the source device's
 * thread. */
static void signal_persistent_values(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++)
        for (uint32_t k = 0; k < program->partitions[i].receive_count; k++) {
            const tu__receive *receive = &program->partitions[i].receives[k];
            if (receive->is_persistent && !receive->source_event) signal_produced(program, receive);
        }
}

static tu_status run_parallel(tu_program *program) {
    TU_TRY(prepare_threads(program));
    tu__run_sync_begin_run(&program->sync);
    set_device_timeout(program, 0);
    signal_persistent_values(program);
    for (size_t i = 0; i < program->device_count; i++)
        if (!program->partitions[i].is_idle) post_partition(program, i);
    for (size_t i = 0; i < program->device_count; i++)
        if (!program->partitions[i].is_idle) join_partition(program, &program->partitions[i]);
    return tu__run_sync_end_run(&program->sync);
}

/* Uploads the inputs of idle partitions, which have no thread. The user may fetch them. */
static tu_status feed_idle_partitions(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++) {
        tu__partition *partition = &program->partitions[i];
        uint32_t index = 0;
        if (partition->is_idle && partition != program->only_active)
            TU_TRY(execute_feeds(program, partition, &index));
    }
    return TU_OK;
}

bool tu__program_is_stuck(const tu_program *program) {
    for (size_t i = 0; program->abandoned && i < program->device_count; i++)
        if (tu__worker_busy(program->devices[i]->compute_thread) ||
            tu__worker_busy(program->devices[i]->copy_thread))
            return true;
    return false;
}

/* ---- The tail ---- */

static tu_status fetch(tu_program *program, const tu__partition *partition, uint32_t index, void *to) {
    const tu_slot *slot = &program->list.list.fetches[index];
    double began = tu__trace_now(program);
    tu_status status = partition->device->api->download(
        partition->device->instance, to, partition->addresses[slot->place.buffer], slot->bytes);
    if (status != TU_OK)
        return tu__partition_fail_at(partition, "downloading",
                                     program->unit.graph->nodes[program->unit.fetch[index].node]->name,
                                     status);
    tu__trace_add(program, TU__SPAN_FETCH, index_of(program, partition), index, began);
    return TU_OK;
}

static tu_status copy_update(tu_program *program, const tu__partition *partition, const tu_command *command) {
    double began = tu__trace_now(program);
    TU_TRY(tu__device_copy(partition->device, partition->addresses[command->to.buffer], partition->device,
                           partition->addresses[command->from.buffer], command->bytes));
    tu__trace_add(program, TU__SPAN_UPDATE, index_of(program, partition), command->index, began);
    return TU_OK;
}

/* Executes the fetches of all tails, to index `step` of every array in `fetches`; or all copies. */
static tu_status execute_tails(tu_program *program, tu_command_kind kind, void *const *fetches, size_t step) {
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *partition = &program->partitions[i];
        for (uint32_t k = partition->tail; k < partition->command_count; k++) {
            const tu_command *c = &partition->commands[k];
            if (c->kind != kind) continue;
            if (kind == TU_COMMAND_COPY) TU_TRY(copy_update(program, partition, c));
            if (kind == TU_COMMAND_FETCH && fetches && fetches[c->index])
                TU_TRY(fetch(program, partition, c->index,
                             (char *)fetches[c->index] + step * program->list.list.fetches[c->index].bytes));
        }
    }
    return TU_OK;
}

/* ---- A step ---- */

static tu_status execute(tu_program *program) {
    TU_TRY(feed_idle_partitions(program));
    tu__program_begin_updates(program);
    if (program->active_count > 1) return run_parallel(program);
    return run_single(program, run_partition,
                      (tu__job){.program = program, .partition = program->only_active});
}

/* If a thread does not return, the program and the variables that its kernels update are never freed. */
static tu_status execute_on(tu_program *program, tu_state *state) {
    bool was_stuck = tu__program_is_stuck(program);
    tu_status status = execute(program);
    if (!was_stuck && tu__program_is_stuck(program)) state->never_free = true;
    return status;
}

tu_status tu__interpret_step(tu_program *program, tu_state *state, void *const *fetches, size_t step) {
    double began;
    TU_TRY(tu__trace_begin_run(program, &began));
    TU_TRY(execute_on(program, state));
    TU_TRY(execute_tails(program, TU_COMMAND_FETCH, fetches, step));
    TU_TRY(execute_tails(program, TU_COMMAND_COPY, NULL, 0));
    tu__program_end_updates(program, state, 1);
    return tu__trace_end_run(program, began);
}

tu_status tu__submit_to_device(tu_program *program, const tu_submission *submission) {
    tu__partition *first = &program->partitions[submission->list->queues[0].partition];
    for (size_t i = 0; i < program->device_count; i++) TU_TRY(check_threads_free(&program->partitions[i]));
    tu__program_begin_updates(program);
    return run_single(program, submit_steps,
                      (tu__job){.program = program, .partition = first, .submission = submission});
}
