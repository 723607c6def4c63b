/* The executor: runs all partitions of a program in parallel, each on the compute thread of its device.
 *
 * The compute thread uploads the partition's inputs and executes its steps: wait for a value from another device,
 * launch kernels, send a value or signal that it is ready. A second thread performs the copies that the compute
 * thread cannot begin itself (copies.c). If several partitions are active, updates wait at a barrier until all have
 * computed, so a run that fails changes no variable. Every wait has a timeout, and its message names the device that
 * is late. A program with one active partition, and a multi-step call, are a single call of a device, which enforces
 * the timeout itself if it can. */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/worker.h"
#include "run/perform_collective.h"
#include "run/trace.h"

static const char *name_of(const tu_program *program, tu__edge value) {
    return program->unit.graph->nodes[value.node]->name;
}

/* ---- Error messages ---- */

/* Writes the first operation of a kernel: "matmul 'fc1/matmul'". */
static int write_operation(const tu_program *program, const tu__partition *part, uint32_t place, char *text,
                           size_t capacity) {
    const tu_kernel *kernel = &part->plan->kernels[part->order[place]];
    if (!kernel->node_count) return snprintf(text, capacity, "%s", kernel->name);
    const tu__node *node = program->unit.graph->nodes[kernel->nodes[0]];
    return snprintf(text, capacity, "%s '%.100s'", node->op->name, node->name);
}

/* Returns "matmul 'fc1/matmul'", or for several kernels "its 12 kernels from matmul 'fc1/matmul' to …". */
static tu__phrase operations_of(const tu_program *program, const tu__partition *part, const tu__step *step) {
    tu__phrase p;
    size_t room = sizeof p.text, used = 0;
    if (step->count > 1) used = (size_t)snprintf(p.text, room, "its %u kernels from ", step->count);
    used += (size_t)write_operation(program, part, step->first, p.text + used, room - used);
    if (step->count > 1 && used < room) used += (size_t)snprintf(p.text + used, room - used, " to ");
    if (step->count > 1 && used < room)
        write_operation(program, part, step->first + step->count - 1, p.text + used, room - used);
    return p;
}

tu__phrase tu__partition_doing(const tu_program *program, tu__partition *part) {
    tu__phrase p = {"all its steps are done"};
    uint32_t at = atomic_load(&part->at);
    if (at >= TU__FILLING) {
        const tu__node *input = program->unit.graph->nodes[program->feeds[at - TU__FILLING].node];
        snprintf(p.text, sizeof p.text, "it is at filling '%.200s'", input->name);
        return p;
    }
    if (at >= part->step_count) return p;
    const tu__step *step = &part->steps[at];
    switch (step->kind) {
    case TU__STEP_WAIT:
        snprintf(p.text, sizeof p.text, "it waits for '%.200s'", name_of(program, step->receive->source));
        break;
    case TU__STEP_LAUNCH: {
        tu__phrase operations = operations_of(program, part, step);
        int used = snprintf(p.text, sizeof p.text, "it is at ");
        snprintf(p.text + used, sizeof p.text - (size_t)used, "%.300s", operations.text);
        break;
    }
    case TU__STEP_SIGNAL: snprintf(p.text, sizeof p.text, "its kernels are still under way"); break;
    case TU__STEP_POST:
    case TU__STEP_COLLECTIVE:
        snprintf(p.text, sizeof p.text, "it is at collective %lld",
                 (long long)part->collectives[step->membership].collective->number);
        break;
    case TU__STEP_BARRIER:
        snprintf(p.text, sizeof p.text, "%s",
                 atomic_load(&part->there) ? "it waits for the others" : "its kernels are still under way");
        break;
    }
    return p;
}

static tu_status late(tu_program *program, const tu__partition *part, const tu__receive *a) {
    tu__partition *from = &program->parts[a->source_part];
    return tu_fail(TU_DEVICE, "device '%s' waited %g s for '%s' from device '%s', which is late: %s",
                   part->device->name, program->exchange.allowed, name_of(program, a->source),
                   from->device->name, tu__partition_doing(program, from).text);
}

/* An internal error reported by a device is an error of the device, not of the engine. */
static tu_status of_device(tu_status status) {
    return status == TU_INTERNAL ? TU_DEVICE : status;
}

/* Fails with a message that names the device and the kernels, and contains the device's own message. */
static tu_status failed_launch(const tu_program *program, const tu__partition *part, const tu__step *step,
                               tu_status status) {
    char message[768];
    snprintf(message, sizeof message, "%s", tu_message());
    return tu_fail(of_device(status), "device '%s' failed at %s: %s", part->device->name,
                   operations_of(program, part, step).text, message);
}

tu_status tu__partition_failed(const tu__partition *part, tu_status status) {
    char message[768];
    snprintf(message, sizeof message, "%s", tu_message());
    return tu_fail(of_device(status), "device '%s' failed: %s", part->device->name, message);
}

tu_status tu__partition_failed_at(const tu__partition *part, const char *doing, const char *name,
                                  tu_status status) {
    return tu_fail(of_device(status), "device '%s' failed at %s '%.100s': %.768s", part->device->name, doing,
                   name, tu_message());
}

/* ---- Waiting ---- */

static size_t index_of(const tu_program *program, const tu__partition *part) {
    return (size_t)(part - program->parts);
}

static tu_status await_receive(tu_program *program, const tu__partition *part, const tu__receive *a) {
    tu__exchange *x = &program->exchange;
    if (tu__exchange_has_happened(x, a->arrived)) return TU_OK;
    double began = tu__trace_now(program);
    if (!tu__exchange_await(x, index_of(program, part), a->arrived)) return late(program, part, a);
    tu__trace_add(program, TU__SPAN_WAIT, index_of(program, part), (size_t)(a - part->receives), began);
    return TU_OK;
}

/* Waits between two queries of an event. Short waits poll if there are enough cores (exchange.c), with a delay
 * between queries, since a query slows down threads that launch. Longer waits sleep. */
static void pass_time(const tu__exchange *x, double waited) {
    const double look = 1e-6, nap = 20e-6, longest = 10e-3;
    if (waited < x->watch) {
        for (double until = tu__now() + look; tu__now() < until;) continue;
        return;
    }
    double seconds = waited / 1000 < nap ? nap : waited / 1000 < longest ? waited / 1000 : longest;
    nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL);
}

static tu_status ask_for_landing(const tu_program *program, tu__partition *part, const tu__receive *a,
                                 bool *landed) {
    const tu__partition *from = &program->parts[a->mover];
    atomic_store(&part->awaited_by_launcher, a->mover + 1);
    tu_status status = from->device->api->event_query(from->device->instance, a->landed, landed);
    atomic_store(&part->awaited_by_launcher, 0);
    return status == TU_OK ? TU_OK : tu__partition_failed(from, status);
}

/* Waits until an asynchronous copy that another device has begun is complete. */
static tu_status await_landing(tu_program *program, tu__partition *part, const tu__receive *a) {
    const tu__exchange *x = &program->exchange;
    double began = tu__now(), time = began;
    for (bool landed = false; !tu__exchange_is_aborted(x); time = tu__now()) {
        TU_TRY(ask_for_landing(program, part, a, &landed));
        if (landed) return TU_OK;
        if (time > x->deadline) return late(program, part, a);
        pass_time(x, time - began);
    }
    return TU_OK;
}

/* Begins a copy from the host on the partition's own compute thread, unless it has begun already. */
static tu_status fetch(tu_program *program, const tu__partition *part, tu__receive *a) {
    tu__exchange *x = &program->exchange;
    if (a->begun == x->epoch) return TU_OK;
    if (!tu__exchange_await(x, index_of(program, part), a->made)) return late(program, part, a);
    return tu__exchange_is_aborted(x) ? TU_OK : tu__begin_move(program, a);
}

/* Waits for a received value. If an upload is still in progress, the device waits for it, not the thread. */
static tu_status wait_for(tu_program *program, tu__partition *part, tu__receive *a) {
    bool comes = &program->parts[a->mover] == part;
    TU_TRY(a->by_launcher && comes ? fetch(program, part, a) : await_receive(program, part, a));
    if (!a->landed || tu__exchange_is_aborted(&program->exchange)) return TU_OK;
    if (!comes) return a->by_launcher ? await_landing(program, part, a) : TU_OK;
    tu_status status = part->device->api->event_wait(part->device->instance, a->landed);
    return status == TU_OK ? TU_OK : tu__partition_failed(part, status);
}

/* Returns the first active partition that has not reached the barrier. */
static tu__partition *missing_part(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++)
        if (!program->parts[i].idle && !atomic_load(&program->parts[i].there)) return &program->parts[i];
    return NULL;
}

static tu_status not_all_there(tu_program *program) {
    tu__partition *part = missing_part(program);
    if (!part)
        return tu_fail(TU_DEVICE, "a run was to take %g s at most: it is late", program->exchange.allowed);
    return tu_fail(TU_DEVICE, "device '%s' has not computed its part after %g s: %s", part->device->name,
                   program->exchange.allowed, tu__partition_doing(program, part).text);
}

/* Waits until every active partition has computed. */
static tu_status wait_at_barrier(tu_program *program, size_t part) {
    if (tu__exchange_meet(&program->exchange, part, (uint32_t)program->working)) return TU_OK;
    return not_all_there(program);
}

/* ---- Compute thread ---- */

tu_status tu__partition_synchronize(const tu__partition *part) {
    const tu_device_api *api = part->device->api;
    tu_status status = api->synchronize ? api->synchronize(part->device->instance) : TU_OK;
    return status == TU_OK ? TU_OK : tu__partition_failed(part, status);
}

tu_status tu__partition_await(const tu_program *program, const tu__partition *part, void *event,
                              atomic_uint *note) {
    atomic_store(note, (uint32_t)index_of(program, part) + 1);
    tu_status status = part->device->api->event_synchronize(part->device->instance, event);
    atomic_store(note, 0);
    return status == TU_OK ? TU_OK : tu__partition_failed(part, status);
}

/* Launches the kernels one by one and measures each, because the device cannot. */
static tu_status launch_timed(tu_program *program, const tu__partition *part, const tu__step *step) {
    for (uint32_t i = step->first; i < step->first + step->count; i++) {
        double began = tu__trace_now(program);
        TU_TRY(part->device->api->launch(part->device->instance, part->plan, i, 1));
        if (part->device->api->synchronize) TU_TRY(part->device->api->synchronize(part->device->instance));
        tu__trace_add(program, TU__SPAN_KERNEL, index_of(program, part), i, began);
    }
    return TU_OK;
}

static tu_status launch(tu_program *program, const tu__partition *part, const tu__step *step) {
    tu_status status =
        tu__trace_times_launches(program, part)
            ? launch_timed(program, part, step)
            : part->device->api->launch(part->device->instance, part->plan, step->first, step->count);
    return status == TU_OK ? TU_OK : failed_launch(program, part, step, status);
}

static tu_status wait_for_others(tu_program *program, tu__partition *part) {
    double began = tu__trace_now(program);
    atomic_store(&part->there, true);
    TU_TRY(wait_at_barrier(program, index_of(program, part)));
    tu__trace_add(program, TU__SPAN_BARRIER, index_of(program, part), 0, began);
    return TU_OK;
}

/* Signals that a value is computed, to the thread that copies it. */
static void tell_made(tu_program *program, const tu__receive *a) {
    tu__exchange_signal_to(&program->exchange, a->made, a->mover, a->by_launcher ? TU__LAUNCHER : TU__COPIER);
}

static tu_status send(tu_program *program, tu__receive *a) {
    if (tu__exchange_is_aborted(&program->exchange)) return TU_OK;
    TU_TRY(tu__begin_move(program, a));
    tu__exchange_signal_to(&program->exchange, a->arrived, a->part, TU__LAUNCHER);
    return TU_OK;
}

/* Sends a value, or signals that it can be copied: now, or once the device's event completes. */
static tu_status send_off(tu_program *program, const tu__partition *part, tu__receive *a) {
    if (tu__exchange_has_happened(&program->exchange, a->made)) return TU_OK;
    tu_status status = a->ready ? part->device->api->event_record(part->device->instance, a->ready) : TU_OK;
    if (status != TU_OK) return tu__partition_failed(part, status);
    if (!a->ready) TU_TRY(tu__partition_synchronize(part));
    if (a->by_launcher && &program->parts[a->mover] == part) return send(program, a);
    tell_made(program, a);
    return TU_OK;
}

static tu_status take_step(tu_program *program, tu__partition *part, const tu__step *step) {
    switch (step->kind) {
    case TU__STEP_WAIT: return wait_for(program, part, step->receive);
    case TU__STEP_LAUNCH: return launch(program, part, step);
    case TU__STEP_SIGNAL: return send_off(program, part, step->receive);
    case TU__STEP_POST: return tu__collective_post(program, part, step->membership);
    case TU__STEP_COLLECTIVE: return tu__collective_run(program, part, step->membership);
    case TU__STEP_BARRIER: TU_TRY(tu__partition_synchronize(part)); return wait_for_others(program, part);
    }
    return TU_OK;
}

static tu_status feed_part(tu_program *program, tu__partition *part) {
    size_t index = index_of(program, part);
    for (size_t i = 0; i < program->feed_count; i++) {
        const tu__feed_place *place = &program->feeds[i];
        if (place->part != index || !program->fed[i]) continue;
        double began = tu__trace_now(program);
        atomic_store_explicit(&part->at, (uint32_t)(TU__FILLING + i), memory_order_relaxed);
        tu_status status = part->device->api->upload(part->device->instance, part->addresses[place->buffer],
                                                     program->fed[i], place->bytes);
        if (status != TU_OK)
            return tu__partition_failed_at(part, "filling", program->unit.graph->nodes[place->node]->name,
                                           status);
        tu__trace_add(program, TU__SPAN_FEED, index, i, began);
    }
    return TU_OK;
}

/* Begins the copies of values that are in host memory before the run, so that they proceed while the first kernels
 * are launched. Inputs are uploaded before: usually the first kernel waits for them. */
static tu_status begin_early_moves(const tu_program *program, const tu__partition *part) {
    for (uint32_t i = 0; i < part->receive_count; i++) {
        tu__receive *a = &part->receives[i];
        if (a->by_launcher && a->at_hand && &program->parts[a->mover] == part)
            TU_TRY(tu__begin_move(program, a));
    }
    return TU_OK;
}

/* True if the last step is the barrier: a partition without updates has no work in progress afterwards. To
 * synchronize again could only fail a run in which other partitions have begun their updates. */
static bool ends_at_barrier(const tu__partition *part) {
    return part->step_count && part->steps[part->step_count - 1].kind == TU__STEP_BARRIER;
}

static void compute_part(void *argument) {
    const tu__job *j = argument;
    tu__exchange *x = &j->program->exchange;
    tu_status status = feed_part(j->program, j->part);
    if (status == TU_OK) status = begin_early_moves(j->program, j->part);
    uint32_t taken = 0;
    while (taken < j->part->step_count && status == TU_OK && !tu__exchange_is_aborted(x)) {
        atomic_store_explicit(&j->part->at, taken, memory_order_relaxed);
        status = take_step(j->program, j->part, &j->part->steps[taken]);
        if (status == TU_OK) taken++;
    }
    bool is_done = taken == j->part->step_count && ends_at_barrier(j->part);
    if (status != TU_OK) tu__exchange_abort(x, status); /* before later calls replace the message */
    /* Nothing may still be running when this function returns, also after a failure. */
    tu_status ended = is_done ? TU_OK : tu__partition_synchronize(j->part);
    if (tu__exchange_is_aborted(x)) tu__let_moves_land(j->program, j->part, TU__LAUNCHER);
    if (status == TU_OK && ended == TU_OK) atomic_store(&j->part->at, j->part->step_count);
    if (status == TU_OK && ended != TU_OK) tu__exchange_abort(x, ended);
}

static void repeat_part(void *argument) {
    const tu__job *j = argument;
    const tu__device *d = j->part->device;
    tu_status status = d->api->repeat(d->instance, j->part->plan, j->steps, j->what);
    if (status != TU_OK) tu__exchange_abort(&j->program->exchange, status);
}

static void repeat_all(void *argument) {
    const tu__job *j = argument;
    const tu__joint *joint = &j->program->many.joint;
    tu_status status = j->part->device->api->repeat_joint(joint->part_count, joint->parts, joint->move_count,
                                                          joint->moves, j->steps);
    if (status != TU_OK) tu__exchange_abort(&j->program->exchange, status);
}

/* ---- A run ---- */

static tu_status attach(void *context) {
    tu__device *device = context;
    return device->api->attach ? device->api->attach(device->instance) : TU_OK;
}

static tu_status start_workers(tu__partition *part) {
    tu__device *d = part->device;
    if (!d->compute) TU_TRY(tu__worker_start(&d->compute, d->name, attach, d));
    if (part->copier_moves && !d->copier) TU_TRY(tu__worker_start(&d->copier, d->name, NULL, NULL));
    return TU_OK;
}

/* True if the run can use the caller's thread, which saves the switch to another thread: only one partition is
 * active, on a whole device. A logical device runs on its own thread, which is pinned to its cores. With several
 * partitions, each runs on the thread that is attached to its device. */
static bool runs_on_caller(const tu_program *program) {
    return program->alone && program->alone->device->options.parts == 1;
}

/* Fails if a thread of the device has not returned from an earlier run. */
static tu_status check_free(const tu__partition *part) {
    if (!tu__worker_busy(part->device->compute) && !tu__worker_busy(part->device->copier)) return TU_OK;
    bool may_come_back = !part->device->api->give_up;
    return tu_fail(TU_DEVICE, "device '%s' is still busy with a run that was given up: end the program%s",
                   part->device->name, may_come_back ? ", or wait for it" : "");
}

/* Sets the timeout of devices that enforce it themselves, if no other thread can; 0: none. */
static void allow(const tu_program *program, double seconds) {
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__device *d = program->devices[i];
        if (d->api->allow) d->api->allow(d->instance, seconds);
    }
}

/* Runs `work` for the only active partition, or for all partitions in one thread. */
static tu_status run_alone(tu_program *program, void (*work)(void *job), tu__job job) {
    tu__device *device = job.part->device;
    TU_TRY(check_free(job.part));
    tu__exchange_begin_run(&program->exchange);
    allow(program, program->exchange.allowed);
    if (runs_on_caller(program)) {
        TU_TRY(attach(device));
        work(&job);
    } else {
        TU_TRY(start_workers(job.part));
        tu__worker_post(device->compute, work, &job);
        tu__worker_join(device->compute);
    }
    return tu__exchange_end_run(&program->exchange);
}

static void post_part(tu_program *program, size_t index) {
    tu__partition *part = &program->parts[index];
    tu__job *job = &program->jobs[index];
    *job = (tu__job){.program = program, .part = part};
    atomic_store(&part->at, 0);
    atomic_store(&part->there, false);
    tu__worker_post(part->device->compute, compute_part, job);
    if (part->copier_moves) tu__worker_post(part->device->copier, tu__make_moves, job);
}

/* Tells the device that its call is abandoned, so that freeing objects does not wait for it. */
static void give_up(const tu__device *device) {
    if (device->api->give_up) device->api->give_up(device->instance);
}

/* Waits for a partition's threads. Waiting partitions time out at the deadline and report who is late, but a device
 * call may not return. If so, the run and its threads are abandoned one second later. */
static void join_part(tu_program *program, tu__partition *part) {
    enum { MOMENT = 1 }; /* so that waiting partitions report first */
    double until = program->exchange.deadline + MOMENT;
    bool computed = tu__worker_join_until(part->device->compute, until);
    bool copied = !part->copier_moves || tu__worker_join_until(part->device->copier, until);
    if (computed && copied) return;
    give_up(part->device);
    uint32_t awaited = atomic_load(computed ? &part->awaited_by_copier : &part->awaited_by_launcher);
    tu__partition *late = awaited ? &program->parts[awaited - 1] : part;
    give_up(late->device);
    program->abandoned = true;
    tu__exchange_abort(&program->exchange,
                       tu_fail(TU_DEVICE, "device '%s' has not come back after %g s: %s", late->device->name,
                               program->exchange.allowed, tu__partition_doing(program, late).text));
}

/* Checks that the threads of all partitions are free, and starts those that do not exist yet. */
static tu_status make_ready(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++) TU_TRY(check_free(&program->parts[i]));
    tu__deal_moves(program);
    for (size_t i = 0; i < program->device_count; i++)
        if (!program->parts[i].idle) TU_TRY(start_workers(&program->parts[i]));
    program->abandoned = false;
    return TU_OK;
}

/* ---- Running all partitions ---- */

/* Signals the values that exist before the run, so that they can be copied without waiting for the source device's
 * thread. */
static void announce_what_is_at_hand(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++)
        for (uint32_t k = 0; k < program->parts[i].receive_count; k++) {
            const tu__receive *a = &program->parts[i].receives[k];
            if (a->at_hand && !a->ready) tell_made(program, a);
        }
}

static tu_status run_together(tu_program *program) {
    TU_TRY(make_ready(program));
    tu__exchange_begin_run(&program->exchange);
    allow(program, 0);
    announce_what_is_at_hand(program);
    for (size_t i = 0; i < program->device_count; i++)
        if (!program->parts[i].idle) post_part(program, i);
    for (size_t i = 0; i < program->device_count; i++)
        if (!program->parts[i].idle) join_part(program, &program->parts[i]);
    return tu__exchange_end_run(&program->exchange);
}

/* Uploads the inputs of idle partitions, which have no thread. The user may fetch them. */
static tu_status feed_idle_parts(tu_program *program) {
    for (size_t i = 0; i < program->device_count; i++)
        if (program->parts[i].idle && &program->parts[i] != program->alone)
            TU_TRY(feed_part(program, &program->parts[i]));
    return TU_OK;
}

bool tu__program_is_stuck(const tu_program *program) {
    for (size_t i = 0; program->abandoned && i < program->device_count; i++)
        if (tu__worker_busy(program->devices[i]->compute) || tu__worker_busy(program->devices[i]->copier))
            return true;
    return false;
}

tu_status tu__program_execute(tu_program *program) {
    TU_TRY(feed_idle_parts(program));
    tu__program_begin_updates(program);
    if (program->working > 1) return run_together(program);
    return run_alone(program, compute_part, (tu__job){.program = program, .part = program->alone});
}

tu_status tu__program_repeat(tu_program *program, uint32_t steps, const tu_repetition *what) {
    tu__job job = {.program = program, .part = program->alone, .steps = steps, .what = what};
    tu__program_begin_updates(program);
    return run_alone(program, repeat_part, job);
}

tu_status tu__program_repeat_joint(tu_program *program, uint32_t steps) {
    tu__partition *first = &program->parts[program->many.joint.first];
    for (size_t i = 0; i < program->device_count; i++) TU_TRY(check_free(&program->parts[i]));
    tu__program_begin_updates(program);
    return run_alone(program, repeat_all, (tu__job){.program = program, .part = first, .steps = steps});
}
