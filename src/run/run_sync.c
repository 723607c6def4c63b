/* Events, the barrier and failures of a run.
 *
 * An event is a number that is set to the run's epoch, so nothing is reset between runs. Each thread has its
 * own condition variable, so that an event wakes only the thread that waits for it. */
#include "run/run_sync.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

/* Returns how long a thread polls before it sleeps. The host threads of GPUs mostly wait, and waking a thread takes
 * longer than most of these waits. So they poll, if there is a core for each of them. */
static double choose_spin_seconds(size_t device_count, tu__device *const *devices) {
    const double spin = 300e-6;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    for (size_t i = 0; i < device_count; i++)
        if (!devices[i]->api->host_memory && cores >= 2 * (long)device_count) return spin;
    return 0;
}

tu_status tu__run_sync_init(tu__run_sync *sync, uint32_t event_count, double timeout, size_t device_count,
                            tu__device *const *devices) {
    sync->events = tu__alloc_array(event_count, sizeof *sync->events, "a program's events");
    sync->wakeups = tu__alloc_array(device_count * TU__THREADS, sizeof(pthread_cond_t), "a program's events");
    if (!sync->events || !sync->wakeups) return TU_NO_MEMORY;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (size_t i = 0; i < device_count * TU__THREADS; i++) pthread_cond_init(&sync->wakeups[i], &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&sync->lock, NULL);
    sync->partition_count = device_count;
    sync->spin_seconds = choose_spin_seconds(device_count, devices);
    sync->event_count = event_count;
    sync->timeout = timeout > 0 ? timeout : 600;
    return TU_OK;
}

void tu__run_sync_free(tu__run_sync *sync) {
    for (size_t i = 0; i < sync->partition_count * TU__THREADS; i++) pthread_cond_destroy(&sync->wakeups[i]);
    if (sync->partition_count) pthread_mutex_destroy(&sync->lock); /* it was initialized */
    tu__free(sync->events);
    tu__free(sync->wakeups);
}

/* ---- Failing and signalling ---- */

static pthread_cond_t *wakeup_of(const tu__run_sync *sync, size_t partition, tu__thread thread) {
    return &sync->wakeups[partition * TU__THREADS + thread];
}

static void wake_all(const tu__run_sync *sync) {
    for (size_t i = 0; i < sync->partition_count * TU__THREADS; i++) pthread_cond_signal(&sync->wakeups[i]);
}

void tu__run_sync_abort(tu__run_sync *sync, tu_status status) {
    pthread_mutex_lock(&sync->lock);
    if (sync->status == TU_OK) {
        sync->status = status;
        snprintf(sync->message, sizeof sync->message, "%s", tu_message());
    }
    atomic_store(&sync->aborted, true);
    wake_all(sync);
    pthread_mutex_unlock(&sync->lock);
}

void tu__run_sync_signal(tu__run_sync *sync, uint32_t event) {
    pthread_mutex_lock(&sync->lock);
    atomic_store(&sync->events[event], sync->epoch);
    wake_all(sync);
    pthread_mutex_unlock(&sync->lock);
}

void tu__run_sync_signal_to(tu__run_sync *sync, uint32_t event, size_t partition, tu__thread thread) {
    pthread_mutex_lock(&sync->lock);
    atomic_store(&sync->events[event], sync->epoch);
    pthread_cond_signal(wakeup_of(sync, partition, thread));
    pthread_mutex_unlock(&sync->lock);
}

bool tu__run_sync_is_signalled(const tu__run_sync *sync, uint32_t event) {
    return atomic_load(&((tu__run_sync *)sync)->events[event]) == sync->epoch;
}

bool tu__run_sync_sleep(tu__run_sync *sync, size_t partition, tu__thread thread) {
    struct timespec until = {.tv_sec = (time_t)sync->deadline};
    until.tv_nsec = (long)((sync->deadline - (double)until.tv_sec) * 1e9);
    return pthread_cond_timedwait(wakeup_of(sync, partition, thread), &sync->lock, &until) != ETIMEDOUT;
}

enum { MAX_POLLS = 4000 }; /* a few microseconds: most waits between devices are short */

void tu__run_sync_begin_run(tu__run_sync *sync) {
    sync->epoch++;
    sync->at_barrier = 0;
    sync->status = TU_OK;
    sync->deadline = tu__now() + sync->timeout;
    atomic_store(&sync->aborted, false);
}

tu_status tu__run_sync_end_run(tu__run_sync *sync) {
    pthread_mutex_lock(&sync->lock); /* a thread of an abandoned run may still set it */
    tu_status status = sync->status == TU_OK ? TU_OK : tu_fail(sync->status, "%s", sync->message);
    pthread_mutex_unlock(&sync->lock);
    return status;
}

bool tu__run_sync_barrier(tu__run_sync *sync, size_t partition, uint32_t expected) {
    bool in_time = true;
    pthread_mutex_lock(&sync->lock);
    if (++sync->at_barrier == expected) wake_all(sync);
    while (sync->at_barrier < expected && !atomic_load(&sync->aborted) && in_time)
        in_time = tu__run_sync_sleep(sync, partition, TU__COMPUTE_THREAD);
    bool all_arrived = sync->at_barrier >= expected;
    pthread_mutex_unlock(&sync->lock);
    return all_arrived || atomic_load(&sync->aborted);
}

bool tu__run_sync_is_aborted(const tu__run_sync *sync) {
    return atomic_load(&((tu__run_sync *)sync)->aborted);
}

bool tu__run_sync_wait(tu__run_sync *sync, size_t partition, uint32_t event) {
    for (int i = 0; i < MAX_POLLS; i++)
        if (tu__run_sync_is_signalled(sync, event) || atomic_load(&sync->aborted)) return true;
    for (double until = sync->spin_seconds > 0 ? tu__now() + sync->spin_seconds : 0;
         until > 0 && tu__now() < until;)
        if (tu__run_sync_is_signalled(sync, event) || atomic_load(&sync->aborted)) return true;
    bool in_time = true;
    pthread_mutex_lock(&sync->lock);
    while (!tu__run_sync_is_signalled(sync, event) && !atomic_load(&sync->aborted) && in_time)
        in_time = tu__run_sync_sleep(sync, partition, TU__COMPUTE_THREAD);
    pthread_mutex_unlock(&sync->lock);
    return in_time || tu__run_sync_is_signalled(sync, event);
}
