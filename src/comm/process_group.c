/* Process groups: the communication thread's jobs, and waiting for other processes. See process_group.h. */
#include "comm/process_group.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "base/alloc.h"
#include "base/clock.h"
#include "base/contention.h"
#include "base/sized.h"
#include "comm/monitor.h"

/* ---- Failing ---- */

tu_status tu__group_check(tu_process_group *g) {
    if (!atomic_load(&g->failed)) return TU_OK;
    pthread_mutex_lock(&g->lock);
    tu_status status = tu_fail(TU_LOST, "%s", g->message);
    pthread_mutex_unlock(&g->lock);
    return status;
}

void tu__group_hear_of_failure(void *context, tu_status cause, const char *message) {
    tu_process_group *g = context;
    pthread_mutex_lock(&g->lock);
    if (!atomic_load(&g->failed)) snprintf(g->message, sizeof g->message, "%s", message);
    atomic_store(&g->failed, true);
    pthread_cond_signal(&g->wakeup);
    pthread_mutex_unlock(&g->lock);
    if (g->on_failure) g->on_failure(g->failure_context, cause, message);
}

void tu__group_fail(tu_process_group *g, tu_status cause, const char *message) {
    pthread_mutex_lock(&g->lock);
    bool is_first = !atomic_load(&g->failed);
    if (is_first) snprintf(g->message, sizeof g->message, "%s", message);
    atomic_store(&g->failed, true);
    pthread_cond_signal(&g->wakeup);
    pthread_mutex_unlock(&g->lock);
    if (is_first && g->monitor) tu__monitor_fail(g->monitor, cause, message);
}

void tu_process_group_fail(tu_process_group *group, tu_status cause, const char *message) {
    if (group->disagreement == TU_OK) tu__group_fail(group, cause, message);
}

void tu__group_set_step(tu_process_group *group, int64_t step) {
    tu__monitor_set_step(group->monitor, step);
}

void tu__group_set_begun(tu_process_group *group) {
    if (group->monitor) tu__monitor_set_begun(group->monitor);
}

void tu__group_set_common_step(tu_process_group *group, int64_t step) {
    tu__monitor_set_common_step(group->monitor, step);
}

void tu__group_set_device(tu_process_group *group, uint32_t rank, const char *device) {
    tu__monitor_set_device(group->monitor, rank, device);
}

void tu__group_add_waited(tu_process_group *group, double seconds) {
    atomic_fetch_add(&group->waited, (int64_t)(1e9 * seconds));
}

double tu__group_take_waited(tu_process_group *group) {
    return 1e-9 * (double)atomic_exchange(&group->waited, 0);
}

/* ---- Waiting, on the communication thread ---- */

static void nap(void) {
    const struct timespec duration = {.tv_nsec = 50000};
    nanosleep(&duration, NULL);
}

tu_status tu__group_explain(tu_process_group *g, tu_status status) {
    const double patience = 0.5;
    char message[1024];
    if (status == TU_OK || status == TU_LOST) return status;
    snprintf(message, sizeof message, "%s", tu_message());
    for (double end = tu__now() + patience; tu__now() < end && !atomic_load(&g->failed);) nap();
    TU_TRY(tu__group_check(g));
    return tu_fail(status, "%s", message);
}

/* Called after a deadline: asks the monitor who is late, whose answer makes the group fail. Before the processes are
 * connected nobody knows. If the rank that is late is excused, the deadline starts again. */
static tu_status ask_who_is_late(tu_process_group *g, double *deadline) {
    enum { VERDICT_SECONDS = 4 };
    char message[160] = "the other processes have not started in time";
    double now = tu__now();
    if (g->monitor) {
        tu__monitor_timed_out(g->monitor);
        if (tu__monitor_is_excused(g->monitor)) *deadline = now;
        if (now - *deadline < VERDICT_SECONDS) return TU_OK;
        snprintf(message, sizeof message, "rank %u has waited %g s in a collective, and found no reason",
                 g->info.rank, g->timeout);
    }
    tu__group_fail(g, TU_LOST, message);
    return tu__group_check(g);
}

/* The monitor names nobody if the collectives make progress. */
tu_status tu__group_fail_late(tu_process_group *g, double timeout) {
    const double patience = 4; /* longer than the monitor takes */
    char message[160];
    for (double end = tu__now() + patience; tu__now() < end; nap()) {
        TU_TRY(tu__group_check(g));
        tu__monitor_timed_out(g->monitor);
        if (tu__monitor_is_preparing(g->monitor)) end = tu__now() + patience;
    }
    snprintf(message, sizeof message,
             "the run has not finished within its timeout of %g s, although its collectives make progress",
             timeout);
    tu__group_fail(g, TU_LOST, message);
    return tu__group_check(g);
}

void tu__group_progress(tu_process_group *g) {
    g->deadline = tu__now() + g->timeout;
    if (g->monitor) tu__monitor_progress(g->monitor);
}

/* True if a thread that waits should poll: no other thread of this process needs its core, so far as we know. */
static bool may_poll(tu_process_group *g, double waited) {
    /* Longer than most waits: then waking up takes little of the time. In turns with other processes, shorter. */
    double max_seconds = g->is_crowded ? 100e-6 : 1e-3;
    return waited < max_seconds && atomic_load(&g->awaiting) && !tu__is_waiting_passively();
}

tu_status tu__group_watch(tu_process_group *g, tu_status (*check)(void *context, bool *ready),
                          void *context) {
    bool ready;
    unsigned arrivals = atomic_load(&g->arrivals);
    TU_TRY(check(context, &ready));
    double began = tu__now();
    for (double now = began; !ready; now = tu__now()) {
        if (may_poll(g, now - began)) {
            sched_yield();
        } else {
            TU_TRY(tu__group_check(g));
            if (atomic_load(&g->arrivals) != arrivals) tu__group_progress(g);
            arrivals = atomic_load(&g->arrivals);
            if (now > g->deadline) TU_TRY(ask_who_is_late(g, &g->deadline));
            nap();
        }
        TU_TRY(check(context, &ready));
    }
    return TU_OK;
}

tu_status tu__group_wait(tu_process_group *g, tu_status (*check)(void *context, bool *ready), void *context) {
    double began = tu__now();
    TU_TRY(tu__group_watch(g, check, context));
    tu__group_progress(g);
    tu__group_add_waited(g, tu__now() - began);
    return TU_OK;
}

static void pause_core(void) {
#ifdef __SSE2__
    _mm_pause();
#endif
}

tu_status tu__group_wait_counter(tu_process_group *g, tu__counter *counter, uint32_t value, double deadline,
                                 double *waited) {
    enum { POLLS = 1000, CROWDED_POLLS = 20 };
    const double nap_seconds = 10e-3; /* after which failures are noticed */
    double began = tu__now(), elapsed = 0;
    for (int i = 0; i < (g->is_crowded ? CROWDED_POLLS : POLLS) && !tu__counter_has(counter, value); i++)
        pause_core();
    while (!tu__counter_has(counter, value)) {
        elapsed = tu__now() - began;
        if (may_poll(g, elapsed)) {
            sched_yield();
            continue;
        }
        TU_TRY(tu__group_check(g));
        if (began + elapsed > deadline) TU_TRY(ask_who_is_late(g, &deadline));
        tu__counter_sleep(counter, value, nap_seconds);
    }
    if (g->monitor) tu__monitor_progress(g->monitor);
    *waited += tu__now() - began;
    return TU_OK;
}

typedef struct transfers {
    tu_process_group *group;
    size_t count;
    tu__transfer **list;
} transfers;

tu_status tu__group_test_transfers(tu_process_group *g, size_t count, tu__transfer **list, bool *done) {
    *done = true;
    for (size_t i = 0; i < count; i++) {
        bool is_done = false;
        if (!list[i]) continue;
        TU_TRY(g->api->test(g->transport, list[i], &is_done));
        if (is_done) list[i] = NULL;
        if (is_done) tu__group_progress(g);
        *done = *done && is_done;
    }
    return TU_OK;
}

static tu_status are_transfers_done(void *context, bool *done) {
    const transfers *t = context;
    return tu__group_test_transfers(t->group, t->count, t->list, done);
}

tu_status tu__group_wait_transfers(tu_process_group *g, size_t count, tu__transfer **list) {
    transfers t = {.group = g, .count = count, .list = list};
    return tu__group_wait(g, are_transfers_done, &t);
}

/* ---- Jobs ---- */

uint64_t tu__group_number(tu_process_group *g, uint64_t count) {
    return atomic_fetch_add(&g->numbers, count) + 1;
}

void tu__group_enter(tu_process_group *g, uint64_t number, const char *name) {
    if (g->monitor) tu__monitor_enter(g->monitor, number, name);
}

void tu__group_leave(tu_process_group *g) {
    if (g->monitor) tu__monitor_leave(g->monitor);
}

void tu__group_post(tu_process_group *g, tu__group_job *job) {
    pthread_mutex_lock(&g->lock);
    job->next = NULL;
    if (g->last)
        g->last->next = job;
    else
        g->first = job;
    g->last = job;
    pthread_cond_signal(&g->wakeup);
    pthread_mutex_unlock(&g->lock);
}

/* Returns the next job; NULL when the group is closed. */
static tu__group_job *next_job(tu_process_group *g) {
    pthread_mutex_lock(&g->lock);
    while (!g->first && !g->stop) pthread_cond_wait(&g->wakeup, &g->lock);
    tu__group_job *job = g->first;
    if (job) g->first = job->next;
    if (!g->first) g->last = NULL;
    pthread_mutex_unlock(&g->lock);
    return job;
}

static void run_job(tu_process_group *g, const tu__group_job *job) {
    tu_status status = tu__group_check(g);
    if (status == TU_OK) {
        g->deadline = tu__now() + g->timeout;
        tu__monitor_enter(g->monitor, job->number, job->name);
        status = job->run(g, job->context);
        tu__monitor_leave(g->monitor);
        if (status != TU_OK && status != TU_LOST) tu__group_fail(g, status, tu_message());
    }
    job->finished(job->context, status);
}

void tu__group_run_jobs(tu_process_group *g) {
    for (tu__group_job *job; (job = next_job(g));) run_job(g, job);
}

/* A job that the caller waits for. */
typedef struct awaited_job {
    tu__group_job job;
    tu_status (*run)(tu_process_group *group, void *context);
    void *context;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool is_done;
    tu_status status;
    char message[1024];
} awaited_job;

static tu_status run_awaited(tu_process_group *g, void *context) {
    const awaited_job *a = context;
    return a->run(g, a->context);
}

static void finish_awaited(void *context, tu_status status) {
    awaited_job *a = context;
    pthread_mutex_lock(&a->lock);
    a->status = status;
    if (status != TU_OK) snprintf(a->message, sizeof a->message, "%s", tu_message());
    a->is_done = true;
    pthread_cond_signal(&a->done);
    pthread_mutex_unlock(&a->lock);
}

/* Runs a function on the communication thread. */
static tu_status run_and_wait(tu_process_group *g, const char *name,
                              tu_status (*run)(tu_process_group *group, void *context), void *context) {
    awaited_job a = {.job = {.run = run_awaited, .finished = finish_awaited}, .run = run, .context = context};
    snprintf(a.job.name, sizeof a.job.name, "%s", name);
    a.job.context = &a;
    a.job.number = tu__group_number(g, 1);
    pthread_mutex_init(&a.lock, NULL);
    pthread_cond_init(&a.done, NULL);
    atomic_fetch_add(&g->awaiting, 1);
    tu__group_post(g, &a.job);
    pthread_mutex_lock(&a.lock);
    while (!a.is_done) pthread_cond_wait(&a.done, &a.lock);
    pthread_mutex_unlock(&a.lock);
    atomic_fetch_sub(&g->awaiting, 1);
    pthread_cond_destroy(&a.done);
    pthread_mutex_destroy(&a.lock);
    return a.status == TU_OK ? TU_OK : tu_fail(a.status, "%s", a.message);
}

/* ---- Gathering ---- */

/* What processes exchange in a gather. All gathers have the same size, so a process that fails takes part in the gather
 * that the others are in, whichever it is, and all fail alike. */
typedef struct frame {
    uint32_t status; /* tu_status of the process */
    uint32_t bytes;  /* number of bytes in `data` */
    char message[768];
    char data[1272];
} frame;

tu_status tu__group_gather_now(tu_process_group *g, const void *mine, size_t bytes, void *all) {
    tu__transfer *transfer;
    TU_TRY(g->api->gather(g->transport, mine, bytes, all, &transfer));
    return tu__group_wait_transfers(g, 1, &transfer);
}

typedef struct gather_call {
    const frame *mine;
    frame *all;
} gather_call;

static tu_status run_gather(tu_process_group *g, void *context) {
    const gather_call *call = context;
    return tu__group_gather_now(g, call->mine, sizeof *call->mine, call->all);
}

_Static_assert(sizeof(frame) <= TU__GATHER_BYTES, "a frame fits the buffers in shared memory");

static tu_status gather_frames(tu_process_group *g, const frame *mine, frame *all) {
    gather_call call = {mine, all};
    if (g->node_count == 1) return tu__group_gather_in_memory(g, mine, sizeof *mine, all);
    return run_and_wait(g, "gather", run_gather, &call);
}

/* Fails, with the same message in all processes, if one of them has failed or gathers something else. `names_always`:
 * names the process even if all have failed alike. */
static tu_status check_frames(const tu_process_group *g, const frame *all, bool names_always) {
    uint32_t failed = 0, first = UINT32_MAX;
    bool same = !names_always;
    for (uint32_t r = 0; r < g->info.size; r++) {
        if (all[r].status == TU_OK) continue;
        if (first == UINT32_MAX) first = r;
        same = same && strcmp(all[r].message, all[first].message) == 0;
        failed++;
    }
    if (failed == g->info.size && same)
        return tu_fail((tu_status)all[first].status, "%s", all[first].message);
    if (failed)
        return tu_fail((tu_status)all[first].status, "rank %u on host '%s': %s", first,
                       g->processes[first].host, all[first].message);
    for (uint32_t r = 1; r < g->info.size; r++)
        if (all[r].bytes != all[0].bytes)
            return tu_fail(
                TU_INVALID,
                "rank %u on host '%s' gathers %u bytes, rank 0 %u: all processes must make the same calls", r,
                g->processes[r].host, all[r].bytes, all[0].bytes);
    return TU_OK;
}

tu_status tu__group_disagree(tu_process_group *g, tu_status status) {
    pthread_mutex_lock(&g->lock);
    g->disagreement = status;
    snprintf(g->message, sizeof g->message, "%s", tu_message());
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* Gathers one frame. After a failure that all processes know of, there is nobody to gather with. */
static tu_status exchange(tu_process_group *g, const frame *mine, frame *all) {
    if (g->disagreement != TU_OK) return tu_fail(g->disagreement, "%s", g->message);
    TU_TRY(gather_frames(g, mine, all));
    tu_status status = check_frames(g, all, false);
    return status == TU_OK ? TU_OK : tu__group_disagree(g, status);
}

static tu_status gather_part(tu_process_group *g, const char *mine, size_t bytes, char *all, size_t stride,
                             frame *frames) {
    frame own = {.bytes = (uint32_t)bytes};
    memcpy(own.data, mine, bytes);
    TU_TRY(exchange(g, &own, frames));
    for (uint32_t r = 0; r < g->info.size; r++) memcpy(all + r * stride, frames[r].data, bytes);
    return TU_OK;
}

tu_status tu_process_group_gather(tu_process_group *g, const void *mine, size_t bytes, void *all) {
    frame *frames = tu__alloc_array(g->info.size, sizeof *frames, "a gather");
    tu_status status = frames ? TU_OK : TU_NO_MEMORY;
    for (size_t first = 0, part; status == TU_OK && first < bytes; first += part) {
        part = bytes - first < sizeof frames->data ? bytes - first : sizeof frames->data;
        status = gather_part(g, (const char *)mine + first, part, (char *)all + first, bytes, frames);
    }
    tu__free(frames);
    return status;
}

static frame frame_of(tu_status status) {
    frame f = {.status = (uint32_t)status};
    if (status != TU_OK) snprintf(f.message, sizeof f.message, "%s", tu_message());
    return f;
}

tu_status tu_process_group_agree(tu_process_group *g, tu_status status) {
    const frame own = frame_of(status);
    frame *frames = tu__alloc_array(g->info.size, sizeof *frames, "a gather");
    if (!frames) return TU_NO_MEMORY;
    tu_status agreed = exchange(g, &own, frames);
    tu__free(frames);
    return agreed;
}

tu_status tu__group_agree_now(tu_process_group *g, tu_status status) {
    const frame own = frame_of(status);
    frame *frames = tu__alloc_array(g->info.size, sizeof *frames, "a gather");
    if (!frames) return TU_NO_MEMORY;
    status = tu__group_gather_now(g, &own, sizeof own, frames);
    if (status == TU_OK) {
        status = check_frames(g, frames, true);
        if (status != TU_OK) tu__group_disagree(g, status);
    }
    tu__free(frames);
    return status;
}

/* Rank 0 may search for the cause of the failure before, and save what was computed so far. */
static void extend_timeout(tu_process_group *g) {
    enum { FACTOR = 10 };
    pthread_mutex_lock(&g->lock);
    g->timeout *= FACTOR;
    pthread_mutex_unlock(&g->lock);
}

tu_status tu__group_end_alike(tu_process_group *g, tu_status status) {
    const frame own = frame_of(status);
    if (g->disagreement == TU_OK) {
        if (status != TU_LOST) tu__group_fail(g, status, tu_message());
        return status;
    }
    frame *frames = tu__alloc_array(g->info.size, sizeof *frames, "a gather");
    if (!frames) return TU_NO_MEMORY;
    extend_timeout(g);
    tu_status gathered = gather_frames(g, &own, frames);
    if (gathered == TU_OK) gathered = tu_fail((tu_status)frames->status, "%s", frames->message);
    tu__free(frames);
    return gathered;
}

/* ---- Broadcasting ---- */

/* Parts are small, so that progress is seen over a slow network; while one is awaited, the next is on its way. */
enum { BROADCAST_TAG = 3, BROADCAST_BYTES = 1 << 20, PARTS_ON_THEIR_WAY = 2 };

typedef struct broadcast_call {
    uint32_t root;
    char *data;
    size_t bytes;
} broadcast_call;

typedef struct broadcast_part {
    tu__transfer *transfers[TU__MAX_PROCESSES];
    size_t count;
} broadcast_part;

/* The root sends to all others: it happens once, before the first step. */
static tu_status begin_part(tu_process_group *g, const broadcast_call *call, size_t first,
                            broadcast_part *p) {
    size_t left = call->bytes - first, bytes = left < BROADCAST_BYTES ? left : BROADCAST_BYTES;
    char *data = call->data + first;
    p->count = 0;
    if (g->info.rank != call->root)
        return g->api->receive(g->transport, call->root, BROADCAST_TAG, data, bytes,
                               &p->transfers[p->count++]);
    for (uint32_t r = 0; r < g->info.size; r++)
        if (r != call->root)
            TU_TRY(g->api->send(g->transport, r, BROADCAST_TAG, data, bytes, &p->transfers[p->count++]));
    return TU_OK;
}

static tu_status run_broadcast(tu_process_group *g, void *context) {
    const broadcast_call *call = context;
    broadcast_part parts[PARTS_ON_THEIR_WAY];
    size_t count = (call->bytes + BROADCAST_BYTES - 1) / BROADCAST_BYTES;
    for (size_t i = 0; i < count + PARTS_ON_THEIR_WAY; i++) {
        broadcast_part *p = &parts[i % PARTS_ON_THEIR_WAY];
        if (i >= PARTS_ON_THEIR_WAY && i - PARTS_ON_THEIR_WAY < count)
            TU_TRY(tu__group_wait_transfers(g, p->count, p->transfers));
        if (i < count) TU_TRY(begin_part(g, call, i * BROADCAST_BYTES, p));
    }
    return TU_OK;
}

tu_status tu_process_group_broadcast(tu_process_group *g, uint32_t root, void *data, size_t bytes) {
    if (root >= g->info.size)
        return tu_fail(TU_INVALID, "broadcast from rank %u of %u: expected a rank from 0", root,
                       g->info.size);
    broadcast_call call = {root, data, bytes};
    return run_and_wait(g, "broadcast", run_broadcast, &call);
}

tu_status tu_process_group_describe(const tu_process_group *g, tu_process_info *info) {
    TU_TRY(TU__CHECK_SIZED(tu_process_info, info));
    TU__COPY_SIZED(info, ((tu_process_info){.rank = g->info.rank,
                                            .size = g->info.size,
                                            .host_rank = g->info.host_rank,
                                            .host_size = g->info.host_size,
                                            .core_rank = tu__group_count_sharers(g, g->info.rank),
                                            .core_size = tu__group_count_sharers(g, g->info.size),
                                            .host = g->info.host,
                                            .transport = g->info.library}));
    return TU_OK;
}
