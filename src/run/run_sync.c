/* Events, the barrier and failures of a run.
 *
 * An event is a number that is set to the run's epoch, so nothing is reset between runs. Each thread waits on a
 * condition variable of its own, so that an event wakes only the thread that waits for it. */
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

tu_status tu__run_sync_init(tu__run_sync *x, uint32_t event_count, double timeout, size_t device_count,
                            tu__device *const *devices) {
    x->events = tu__alloc_array(event_count, sizeof *x->events, "a program's events");
    x->wakeups = tu__alloc_array(device_count * TU__THREADS, sizeof(pthread_cond_t), "a program's events");
    if (!x->events || !x->wakeups) return TU_NO_MEMORY;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (size_t i = 0; i < device_count * TU__THREADS; i++) pthread_cond_init(&x->wakeups[i], &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&x->lock, NULL);
    x->partition_count = device_count;
    x->spin_seconds = choose_spin_seconds(device_count, devices);
    x->event_count = event_count;
    x->timeout = timeout > 0 ? timeout : 600;
    return TU_OK;
}

void tu__run_sync_free(tu__run_sync *x) {
    for (size_t i = 0; i < x->partition_count * TU__THREADS; i++) pthread_cond_destroy(&x->wakeups[i]);
    if (x->partition_count) pthread_mutex_destroy(&x->lock); /* it was initialized */
    tu__free(x->events);
    tu__free(x->wakeups);
}

/* ---- Failing and signalling ---- */

static pthread_cond_t *wakeup_of(const tu__run_sync *x, size_t partition, tu__thread thread) {
    return &x->wakeups[partition * TU__THREADS + thread];
}

static void wake_all(const tu__run_sync *x) {
    for (size_t i = 0; i < x->partition_count * TU__THREADS; i++) pthread_cond_signal(&x->wakeups[i]);
}

void tu__run_sync_abort(tu__run_sync *x, tu_status status) {
    pthread_mutex_lock(&x->lock);
    if (x->status == TU_OK) {
        x->status = status;
        snprintf(x->message, sizeof x->message, "%s", tu_message());
    }
    atomic_store(&x->aborted, true);
    wake_all(x);
    pthread_mutex_unlock(&x->lock);
}

void tu__run_sync_signal(tu__run_sync *x, uint32_t event) {
    pthread_mutex_lock(&x->lock);
    atomic_store(&x->events[event], x->epoch);
    wake_all(x);
    pthread_mutex_unlock(&x->lock);
}

void tu__run_sync_signal_to(tu__run_sync *x, uint32_t event, size_t partition, tu__thread thread) {
    pthread_mutex_lock(&x->lock);
    atomic_store(&x->events[event], x->epoch);
    pthread_cond_signal(wakeup_of(x, partition, thread));
    pthread_mutex_unlock(&x->lock);
}

bool tu__run_sync_is_signalled(const tu__run_sync *x, uint32_t event) {
    return atomic_load(&((tu__run_sync *)x)->events[event]) == x->epoch;
}

bool tu__run_sync_sleep(tu__run_sync *x, size_t partition, tu__thread thread) {
    struct timespec until = {.tv_sec = (time_t)x->deadline};
    until.tv_nsec = (long)((x->deadline - (double)until.tv_sec) * 1e9);
    return pthread_cond_timedwait(wakeup_of(x, partition, thread), &x->lock, &until) != ETIMEDOUT;
}

enum { SPINS = 4000 }; /* a few microseconds: most waits between devices are short */

void tu__run_sync_begin_run(tu__run_sync *x) {
    x->epoch++;
    x->at_barrier = 0;
    x->status = TU_OK;
    x->deadline = tu__now() + x->timeout;
    atomic_store(&x->aborted, false);
}

tu_status tu__run_sync_end_run(tu__run_sync *x) {
    pthread_mutex_lock(&x->lock); /* a thread of an abandoned run may still set it */
    tu_status status = x->status == TU_OK ? TU_OK : tu_fail(x->status, "%s", x->message);
    pthread_mutex_unlock(&x->lock);
    return status;
}

bool tu__run_sync_barrier(tu__run_sync *x, size_t partition, uint32_t expected) {
    bool in_time = true;
    pthread_mutex_lock(&x->lock);
    if (++x->at_barrier == expected) wake_all(x);
    while (x->at_barrier < expected && !atomic_load(&x->aborted) && in_time)
        in_time = tu__run_sync_sleep(x, partition, TU__COMPUTE_THREAD);
    bool all = x->at_barrier >= expected;
    pthread_mutex_unlock(&x->lock);
    return all || atomic_load(&x->aborted);
}

bool tu__run_sync_is_aborted(const tu__run_sync *x) {
    return atomic_load(&((tu__run_sync *)x)->aborted);
}

bool tu__run_sync_wait(tu__run_sync *x, size_t partition, uint32_t event) {
    for (int i = 0; i < SPINS; i++)
        if (tu__run_sync_is_signalled(x, event) || atomic_load(&x->aborted)) return true;
    for (double until = x->spin_seconds > 0 ? tu__now() + x->spin_seconds : 0;
         until > 0 && tu__now() < until;)
        if (tu__run_sync_is_signalled(x, event) || atomic_load(&x->aborted)) return true;
    bool in_time = true;
    pthread_mutex_lock(&x->lock);
    while (!tu__run_sync_is_signalled(x, event) && !atomic_load(&x->aborted) && in_time)
        in_time = tu__run_sync_sleep(x, partition, TU__COMPUTE_THREAD);
    pthread_mutex_unlock(&x->lock);
    return in_time || tu__run_sync_is_signalled(x, event);
}
