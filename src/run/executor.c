/* The executor: all parts of a program at once, each on its device's own host thread.
 *
 * A part's thread goes through its steps: wait for a value from another device, launch kernels, say that a value is
 * ready. A second thread a device fetches arriving values as soon as they are made, in whatever order that is, while
 * the first computes. Events are numbers that reach the run's epoch, so nothing is reset between runs and nothing is
 * allocated. Where there are several parts, updates wait at a barrier until all have computed: a run that fails changes no
 * variable. Every wait has a deadline; what is late is named. */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/alloc.h"
#include "base/worker.h"
#include "run/program.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

tu_status tu__exchange_begin(tu__exchange *x, uint32_t event_count, double allowed) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    x->allowed = allowed > 0 ? allowed : 600;
    x->event_count = event_count;
    x->events = tu__alloc_array(event_count, sizeof *x->events, "a program's events");
    return x->events ? TU_OK : TU_NO_MEMORY;
}

void tu__exchange_end(tu__exchange *x) {
    if (!x->allowed) return; /* never begun */
    tu__free(x->events);
    pthread_mutex_destroy(&x->lock);
    pthread_cond_destroy(&x->changed);
}

/* ---- Failing and waiting ---- */

/* Keeps this thread's message as the run's, if it is the first, and lets everybody go. */
static void abort_run(tu__exchange *x, tu_status status) {
    pthread_mutex_lock(&x->lock);
    if (x->status == TU_OK) {
        x->status = status;
        snprintf(x->message, sizeof x->message, "%s", tu_message());
    }
    atomic_store(&x->aborted, true);
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

static void signal_event(tu__exchange *x, uint32_t event) {
    pthread_mutex_lock(&x->lock);
    atomic_store(&x->events[event], x->epoch);
    pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

static bool has_happened(const tu__exchange *x, uint32_t event) {
    return atomic_load(&((tu__exchange *)x)->events[event]) == x->epoch;
}

/* Sleeps until something changes; false when the deadline has passed. Call with the lock held. */
static bool sleep_until_change(tu__exchange *x) {
    struct timespec until = {.tv_sec = (time_t)x->deadline};
    until.tv_nsec = (long)((x->deadline - (double)until.tv_sec) * 1e9);
    return pthread_cond_timedwait(&x->changed, &x->lock, &until) != ETIMEDOUT;
}

enum { SPINS = 4000 }; /* a few microseconds: most waits between devices are short */

static const tu__arrival *arrival_of(const tu__part *part, uint32_t event) {
    for (uint32_t i = 0; i < part->arrival_count; i++)
        if (part->arrivals[i].arrived == event) return &part->arrivals[i];
    return NULL;
}

static tu_status late(const tu_program *program, const tu__part *part, uint32_t event) {
    const tu__arrival *a = arrival_of(part, event);
    return tu_fail(TU_INTERNAL, "device '%s' waited %g s for '%s' from device '%s': it is late",
                   part->device->name, program->exchange.allowed,
                   program->unit.graph->nodes[a->source.node]->name, program->devices[a->source_part]->name);
}

static tu_status wait_for(tu_program *program, const tu__part *part, uint32_t event) {
    tu__exchange *x = &program->exchange;
    for (int i = 0; i < SPINS; i++)
        if (has_happened(x, event) || atomic_load(&x->aborted)) break;
    bool in_time = true;
    pthread_mutex_lock(&x->lock);
    while (!has_happened(x, event) && !atomic_load(&x->aborted) && in_time) in_time = sleep_until_change(x);
    pthread_mutex_unlock(&x->lock);
    if (!in_time && !has_happened(x, event)) return late(program, part, event);
    return TU_OK;
}

/* Waits until every part has computed. */
static tu_status wait_at_barrier(tu_program *program) {
    tu__exchange *x = &program->exchange;
    bool in_time = true;
    pthread_mutex_lock(&x->lock);
    x->at_barrier++;
    pthread_cond_broadcast(&x->changed);
    while (x->at_barrier < program->device_count && !atomic_load(&x->aborted) && in_time)
        in_time = sleep_until_change(x);
    bool all = x->at_barrier >= program->device_count;
    pthread_mutex_unlock(&x->lock);
    return all || atomic_load(&x->aborted)
               ? TU_OK
               : tu_fail(TU_INTERNAL, "not every device had computed after %g s", x->allowed);
}

/* ---- A part's two threads ---- */

typedef struct job {
    tu_program *program;
    tu__part *part;
    uint32_t steps; /* with `what`: many, by the device alone */
    const tu_repetition *what;
} job;

static tu_status take_step(tu_program *program, tu__part *part, const tu__step *step) {
    const tu_device_api *api = part->device->api;
    switch (step->kind) {
    case TU__STEP_WAIT: return wait_for(program, part, step->event);
    case TU__STEP_LAUNCH: return api->launch(part->device->instance, part->plan, step->first, step->count);
    case TU__STEP_SIGNAL:
        if (api->synchronize) TU_TRY(api->synchronize(part->device->instance));
        signal_event(&program->exchange, step->event);
        return TU_OK;
    case TU__STEP_BARRIER:
        if (api->synchronize) TU_TRY(api->synchronize(part->device->instance));
        return wait_at_barrier(program);
    }
    return TU_OK;
}

static void compute_part(void *argument) {
    const job *j = argument;
    tu__exchange *x = &j->program->exchange;
    tu_status status = TU_OK;
    for (uint32_t i = 0; i < j->part->step_count && status == TU_OK && !atomic_load(&x->aborted); i++)
        status = take_step(j->program, j->part, &j->part->steps[i]);
    const tu_device_api *api = j->part->device->api;
    if (status == TU_OK && api->synchronize) status = api->synchronize(j->part->device->instance);
    if (status != TU_OK) abort_run(x, status);
}

static void repeat_part(void *argument) {
    const job *j = argument;
    const tu__device *d = j->part->device;
    tu_status status = d->api->repeat(d->instance, j->part->plan, j->steps, j->what);
    if (status != TU_OK) abort_run(&j->program->exchange, status);
}

static tu_status fetch_arrival(tu_program *program, tu__part *part, const tu__arrival *a) {
    tu__part *from = &program->parts[a->source_part];
    return tu__device_copy(part->device, part->addresses[a->buffer], from->device,
                           from->addresses[a->source_buffer], part->plan->buffers[a->buffer].bytes);
}

/* Any arrival that is made and not fetched yet; TU_NO_NODE when there is none. */
static uint32_t next_arrival(const tu__exchange *x, const tu__part *part) {
    for (uint32_t i = 0; i < part->arrival_count; i++)
        if (has_happened(x, part->arrivals[i].made) && !has_happened(x, part->arrivals[i].arrived)) return i;
    return TU_NO_NODE;
}

static void copy_arrivals(void *argument) {
    const job *j = argument;
    tu__exchange *x = &j->program->exchange;
    tu_status status = TU_OK;
    for (uint32_t left = j->part->arrival_count; left && status == TU_OK; left--) {
        bool in_time = true;
        uint32_t next;
        pthread_mutex_lock(&x->lock);
        while ((next = next_arrival(x, j->part)) == TU_NO_NODE && !atomic_load(&x->aborted) && in_time)
            in_time = sleep_until_change(x);
        pthread_mutex_unlock(&x->lock);
        if (next == TU_NO_NODE) return; /* aborted, or late: the part that waits for it says so */
        status = fetch_arrival(j->program, j->part, &j->part->arrivals[next]);
        if (status == TU_OK) signal_event(x, j->part->arrivals[next].arrived);
    }
    if (status != TU_OK) abort_run(x, status);
}

/* ---- A run ---- */

static tu_status attach(void *context) {
    tu__device *device = context;
    return device->api->attach ? device->api->attach(device->instance) : TU_OK;
}

static tu_status start_workers(tu__part *part) {
    tu__device *d = part->device;
    if (!d->compute) TU_TRY(tu__worker_start(&d->compute, d->name, attach, d));
    if (part->arrival_count && !d->copier) TU_TRY(tu__worker_start(&d->copier, d->name, NULL, NULL));
    return TU_OK;
}

/* A program on one whole device has nobody to run beside: it runs on the caller's thread, and no hand-over is paid
 * for. A logical device keeps to its own thread, which is pinned to its cores. */
static bool runs_on_caller(const tu_program *program) {
    return program->device_count == 1 && program->devices[0]->options.parts == 1;
}

static void begin_run(tu__exchange *x) {
    x->epoch++;
    x->at_barrier = 0;
    x->status = TU_OK;
    x->deadline = now() + x->allowed;
    atomic_store(&x->aborted, false);
}

static tu_status end_run(const tu__exchange *x) {
    return x->status == TU_OK ? TU_OK : tu_fail(x->status, "%s", x->message);
}

/* The work of a program's only part. */
static tu_status run_alone(tu_program *program, void (*work)(void *job), job *j) {
    tu__device *device = program->devices[0];
    begin_run(&program->exchange);
    if (runs_on_caller(program)) {
        TU_TRY(attach(device));
        work(j);
    } else {
        TU_TRY(start_workers(j->part));
        tu__worker_post(device->compute, work, j);
        tu__worker_join(device->compute);
    }
    return end_run(&program->exchange);
}

static tu_status run_together(tu_program *program) {
    job jobs[TU__MOST_DEVICES];
    for (size_t i = 0; i < program->device_count; i++) TU_TRY(start_workers(&program->parts[i]));
    begin_run(&program->exchange);
    for (size_t i = 0; i < program->device_count; i++) {
        tu__part *part = &program->parts[i];
        jobs[i] = (job){.program = program, .part = part};
        tu__worker_post(part->device->compute, compute_part, &jobs[i]);
        if (part->arrival_count) tu__worker_post(part->device->copier, copy_arrivals, &jobs[i]);
    }
    for (size_t i = 0; i < program->device_count; i++) {
        tu__worker_join(program->devices[i]->compute);
        if (program->parts[i].arrival_count) tu__worker_join(program->devices[i]->copier);
    }
    return end_run(&program->exchange);
}

tu_status tu__program_execute(tu_program *program) {
    if (program->device_count > 1) return run_together(program);
    job alone = {.program = program, .part = &program->parts[0]};
    return run_alone(program, compute_part, &alone);
}

tu_status tu__program_repeat(tu_program *program, uint32_t steps, const tu_repetition *what) {
    job alone = {.program = program, .part = &program->parts[0], .steps = steps, .what = what};
    return run_alone(program, repeat_part, &alone);
}
