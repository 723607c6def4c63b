/* The monitor's functions for other threads, and the loop of its thread: see monitor.h. */
#include "comm/monitor.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/start_thread.h"
#include "comm/monitor_thread.h"

static void wake_thread(tu__monitor *m) {
    uint64_t one = 1;
    ssize_t written;
    do {
        written = write(m->wake, &one, sizeof one);
    } while (written < 0 && errno == EINTR);
}

/* ---- Called by other threads ---- */

void tu__monitor_set_begun(tu__monitor *m) {
    pthread_mutex_lock(&m->lock);
    m->mine.begun = true;
    pthread_mutex_unlock(&m->lock);
}

void tu__monitor_set_step(tu__monitor *m, int64_t step) {
    pthread_mutex_lock(&m->lock);
    m->mine.step = step;
    m->mine.begun = true;
    pthread_mutex_unlock(&m->lock);
}

void tu__monitor_set_common_step(tu__monitor *m, int64_t step) {
    pthread_mutex_lock(&m->lock);
    m->common_step = step;
    pthread_mutex_unlock(&m->lock);
}

void tu__monitor_set_device(tu__monitor *m, uint32_t rank, const char *device) {
    pthread_mutex_lock(&m->lock);
    snprintf(m->devices[rank], sizeof m->devices[rank], "%s", device);
    m->devices_changed = true;
    pthread_mutex_unlock(&m->lock);
}

void tu__monitor_enter(tu__monitor *m, uint64_t collective, const char *operation) {
    double now = tu__now();
    tu__monitor_collective *entered = &m->recent[collective % TU__MONITOR_RECENT];
    size_t bytes = strnlen(operation, sizeof entered->operation - 1);
    pthread_mutex_lock(&m->lock);
    m->mine.collective = collective;
    m->mine.entered = true;
    m->mine.state = TU__MONITOR_IN_COLLECTIVE;
    entered->number = collective;
    memcpy(entered->operation, operation, bytes);
    entered->operation[bytes] = '\0';
    m->progressed_at = now;
    m->timed_out = false;
    pthread_mutex_unlock(&m->lock);
}

/* This rank has made progress in its collective, if it is in one, and has `state` now. */
static void progress_to(tu__monitor *m, tu__monitor_state state) {
    double now = tu__now();
    pthread_mutex_lock(&m->lock);
    if (m->mine.state == TU__MONITOR_IN_COLLECTIVE) {
        m->mine.state = (uint8_t)state;
        m->progressed_at = now;
        m->timed_out = false;
    }
    pthread_mutex_unlock(&m->lock);
}

void tu__monitor_progress(tu__monitor *m) {
    progress_to(m, TU__MONITOR_IN_COLLECTIVE);
}

void tu__monitor_leave(tu__monitor *m) {
    progress_to(m, TU__MONITOR_COMPUTING);
}

void tu__monitor_timed_out(tu__monitor *m) {
    pthread_mutex_lock(&m->lock);
    bool first = !m->timed_out && m->mine.state == TU__MONITOR_IN_COLLECTIVE;
    m->timed_out = m->timed_out || first;
    pthread_mutex_unlock(&m->lock);
    if (first) wake_thread(m);
}

bool tu__monitor_is_preparing(tu__monitor *m) {
    pthread_mutex_lock(&m->lock);
    bool preparing = m->preparing;
    pthread_mutex_unlock(&m->lock);
    return preparing;
}

bool tu__monitor_is_excused(tu__monitor *m) {
    pthread_mutex_lock(&m->lock);
    bool excused = m->preparing || m->excused;
    pthread_mutex_unlock(&m->lock);
    return excused;
}

static struct timespec to_timespec(double time) {
    struct timespec t = {.tv_sec = (time_t)time};
    t.tv_nsec = (long)((time - (double)t.tv_sec) * 1e9);
    return t;
}

void tu__monitor_fail(tu__monitor *m, tu_status cause, const char *message) {
    struct timespec deadline = to_timespec(tu__now() + 1);
    pthread_mutex_lock(&m->lock);
    if (!m->failing) {
        m->cause = cause;
        snprintf(m->why, sizeof m->why, "%s", message);
    }
    m->failing = true;
    wake_thread(m);
    int status = 0;
    while (!m->failed && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&m->changed, &m->lock, &deadline);
    if (!m->failed) {
        m->failed = true;
        snprintf(m->failure, sizeof m->failure, "%s", m->why);
    }
    pthread_mutex_unlock(&m->lock);
}

bool tu__monitor_failure(tu__monitor *m, char *message, size_t bytes) {
    pthread_mutex_lock(&m->lock);
    bool failed = m->failed;
    if (failed && bytes > 0) snprintf(message, bytes, "%s", m->failure);
    pthread_mutex_unlock(&m->lock);
    return failed;
}

static void close_hub(tu__monitor *m) {
    tu__monitor_hub *h = &m->hub;
    for (uint32_t i = 0; i < h->listeners; i++) close(h->listener[i]);
    for (uint32_t i = 0; i < h->pending_count; i++) tu__link_close(&h->pending[i]);
    for (uint32_t r = 0; h->links && r < m->size; r++) tu__link_close(&h->links[r]);
    tu__free(h->pending);
    tu__free(h->links);
    tu__free(h->lost);
    tu__free(h->received);
}

void tu__monitor_stop(tu__monitor *m) {
    if (!m) return;
    if (m->thread_started) {
        pthread_mutex_lock(&m->lock);
        m->stopping = true;
        m->stopping_since = tu__now();
        pthread_mutex_unlock(&m->lock);
        wake_thread(m);
        pthread_join(m->thread, NULL);
    }
    close_hub(m);
    tu__link_close(&m->member.link);
    if (m->wake >= 0) close(m->wake);
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->changed);
    tu__free(m->table.ranks);
    tu__free(m->devices);
    tu__free(m->polled);
    tu__free(m->reports);
    tu__free(m);
}

/* ---- Called by the monitor's thread ---- */

static bool is_preparing(const tu__monitor *m, double now) {
    bool preparing = false;
    for (uint32_t r = 0; r < m->size; r++)
        preparing =
            preparing || (tu__monitor_is_active(&m->table.ranks[r]) && !m->table.ranks[r].report.begun);
    return preparing && now - m->started < TU__MONITOR_PREPARE_SECONDS;
}

/* Returns the seconds since a rank has made progress, as far as is known. */
static double since_progress(const tu__monitor_rank *rank, double now) {
    return 1e-3 * rank->report.waited_ms + now - rank->heard;
}

/* True if a rank has made progress since rank `waiting` has, and less than the timeout ago. Over a slow network a rank
 * may still receive what rank `waiting` has sent long ago, in an earlier collective. */
static bool has_progressed(const tu__monitor *m, const tu__monitor_rank *rank, uint32_t waiting, double now) {
    const double uncertainty = 2 * TU__MONITOR_BEAT;
    double since = since_progress(rank, now);
    return since + uncertainty < since_progress(&m->table.ranks[waiting], now) && since < m->table.timeout;
}

/* True if a rank in the collective of rank `waiting` makes progress, or has reached it a moment ago, so that it may be
 * about to complete. */
static bool is_under_way(const tu__monitor *m, uint32_t waiting, double now) {
    const tu__monitor_rank *w = &m->table.ranks[waiting];
    for (const tu__monitor_rank *r = m->table.ranks; r < m->table.ranks + m->size; r++)
        if (r->report.state == TU__MONITOR_IN_COLLECTIVE && r->report.collective == w->report.collective &&
            (since_progress(r, now) < TU__MONITOR_SILENCE || has_progressed(m, r, waiting, now)))
            return true;
    return false;
}

bool tu__monitor_excuses_late(const tu__monitor *m, uint32_t waiting, double now) {
    uint32_t late = tu__monitor_find_late(&m->table, waiting);
    if (late == waiting) return is_under_way(m, waiting, now);
    const tu__monitor_rank *rank = &m->table.ranks[late];
    bool prepares = !rank->report.begun && now - m->started < TU__MONITOR_PREPARE_SECONDS;
    return prepares ||
           (rank->report.entered && tu__monitor_is_active(rank) && has_progressed(m, rank, waiting, now));
}

tu__monitor_requests tu__monitor_take_requests(tu__monitor *m, double now) {
    tu__monitor_rank *row = &m->table.ranks[m->rank];
    pthread_mutex_lock(&m->lock);
    tu__monitor_requests requests = {.timed_out = m->timed_out,
                                     .failing = m->failing,
                                     .stopping = m->stopping,
                                     .stopping_since = m->stopping_since};
    for (uint32_t r = 0; m->devices_changed && r < m->size; r++)
        memcpy(m->table.ranks[r].device, m->devices[r], sizeof m->devices[r]);
    m->devices_changed = false;
    m->table.common_step = m->common_step;
    row->report = m->mine;
    if (m->stopping) row->report.state = TU__MONITOR_LEAVING;
    if (row->report.entered && now > m->progressed_at)
        row->report.waited_ms = (uint32_t)((now - m->progressed_at) * 1000);
    memcpy(m->table.recent, m->recent, sizeof m->table.recent);
    memcpy(row->operation, m->recent[m->mine.collective % TU__MONITOR_RECENT].operation,
           sizeof row->operation);
    row->heard = now;
    m->preparing = is_preparing(m, now);
    m->excused = m->timed_out && tu__monitor_excuses_late(m, m->rank, now);
    pthread_mutex_unlock(&m->lock);
    return requests;
}

/* True if the others have found this process itself to be the culprit, and it did not say so. */
static bool is_given_up(const tu__monitor *m, const tu__verdict *verdict) {
    return verdict->rank == m->rank && verdict->kind != TU__VERDICT_FAILED;
}

void tu__monitor_conclude(tu__monitor *m, const tu__verdict *verdict) {
    pthread_mutex_lock(&m->lock);
    bool first = !m->failed, call = first && m->ready && !m->failing && m->on_failure;
    if (first)
        snprintf(m->failure, sizeof m->failure, "%s%s",
                 is_given_up(m, verdict) ? "the other processes have excluded this one: " : "",
                 verdict->line);
    m->failed = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
    if (call) m->on_failure(m->failure_context, verdict->cause, m->failure); /* no longer changes */
}

bool tu__monitor_has_failed(tu__monitor *m) {
    return tu__monitor_failure(m, NULL, 0);
}

void tu__monitor_set_ready(tu__monitor *m) {
    pthread_mutex_lock(&m->lock);
    m->ready = true;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

bool tu__monitor_was_paused(const tu__monitor *m, double now) {
    return m->paused > 0 && now - m->resumed < 1;
}

static void empty_wake(int wake) {
    uint64_t count;
    while (read(wake, &count, sizeof count) < 0 && errno == EINTR) {}
}

/* Waits for messages, requests or the time `until`. */
static void wait_for_events(tu__monitor *m, uint32_t count, double until) {
    double begin = tu__now();
    int milliseconds = until > begin ? (int)((until - begin) * 1000) + 1 : 0;
    m->polled[count] = (struct pollfd){.fd = m->wake, .events = POLLIN};
    poll(m->polled, count + 1,
         milliseconds); /* after EINTR or ENOMEM nothing is lost: all sockets are tried anyway */
    empty_wake(m->wake);
    double late = tu__now() - until;
    if (late > TU__MONITOR_SILENCE) {
        m->paused = late;
        m->resumed = tu__now();
    }
}

static void *monitor_thread(void *argument) {
    tu__monitor *m = argument;
    bool hub = m->rank == 0, running = true;
    double next_beat = tu__now();
    while (running) {
        double until = m->urgent ? fmin(next_beat, tu__now() + 0.02) : next_beat;
        wait_for_events(m, hub ? tu__monitor_hub_poll(m) : tu__monitor_member_poll(m), until);
        /* First read everything: after a pause, what has arrived meanwhile counts. */
        double now = tu__now();
        tu__monitor_requests requests = tu__monitor_take_requests(m, now);
        if (hub)
            tu__monitor_hub_receive(m, now);
        else
            tu__monitor_member_receive(m, now);
        running = hub ? tu__monitor_hub_check(m, requests, now) : tu__monitor_member_check(m, requests, now);
        if (now < next_beat) continue;
        if (hub)
            tu__monitor_hub_beat(m, now);
        else
            tu__monitor_member_beat(m, now);
        next_beat = now + TU__MONITOR_BEAT;
    }
    return NULL;
}

tu_status tu__monitor_run(tu__monitor *m) {
    int error = tu__start_thread(&m->thread, monitor_thread, m);
    if (error != 0)
        return tu_fail(TU_NO_MEMORY,
                       "cannot start the monitor's thread: the system's limit of threads is reached");
    pthread_setname_np(m->thread, "tutti-monitor");
    m->thread_started = true;
    return TU_OK;
}
