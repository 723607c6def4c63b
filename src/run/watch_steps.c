/* Watches a call with many steps. See watch_steps.h.
 *
 * The devices of all processes wait for each other without the host. A job of the communication thread stands for the
 * call meanwhile: for the monitor it is a collective, which all processes enter in the same order, and its deadline
 * starts again with every step that ends. When the deadline passes or the monitor reports a lost process, the job
 * fails, and with it the group; the device notices that (`check` of tu_processes) and returns. */
#include "run/watch_steps.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "run/submit.h"

/* On the communication thread. A step may be late only since the previous one has ended. */
static tu_status has_ended(void *watch, bool *ended) {
    tu__step_watch *w = watch;
    uint32_t done = __atomic_load_n(w->submission->steps_done, __ATOMIC_RELAXED);
    if (done != w->seen) tu__group_progress(w->group);
    w->seen = done;
    *ended = atomic_load(&w->ended);
    return TU_OK;
}

static tu_status watch_steps(tu_process_group *group, void *watch) {
    return tu__group_watch(group, has_ended, watch);
}

static void finished(void *watch, tu_status status) {
    tu__step_watch *w = watch;
    pthread_mutex_lock(&w->lock);
    w->status = status;
    if (status != TU_OK) snprintf(w->message, sizeof w->message, "%s", tu_message());
    w->is_finished = true;
    pthread_cond_signal(&w->wakeup);
    pthread_mutex_unlock(&w->lock);
}

void tu__watch_steps_begin(tu__step_watch *w, const tu_program *p, const tu_submission *submission) {
    w->group = p->connection ? p->group : NULL;
    if (!w->group) return;
    w->submission = submission;
    w->job = (tu__group_job){
        .run = watch_steps, .finished = finished, .context = w, .number = tu__group_number(w->group, 1)};
    w->seen = 0;
    w->is_finished = false;
    atomic_init(&w->ended, false);
    snprintf(w->job.name, sizeof w->job.name, "%u submitted step%s", submission->steps,
             submission->steps == 1 ? "" : "s");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wakeup, NULL);
    tu__group_post(w->group, &w->job);
}

tu_status tu__watch_steps_end(tu__step_watch *w, tu_status status) {
    if (!w->group) return status;
    status = tu__group_explain(w->group, status);
    /* The others wait in a kernel for this process. */
    if (status != TU_OK && status != TU_LOST) tu__group_fail(w->group, status, tu_message());
    atomic_store(&w->ended, true);
    pthread_mutex_lock(&w->lock);
    while (!w->is_finished) pthread_cond_wait(&w->wakeup, &w->lock);
    pthread_mutex_unlock(&w->lock);
    pthread_cond_destroy(&w->wakeup);
    pthread_mutex_destroy(&w->lock);
    return status == TU_OK && w->status != TU_OK ? tu_fail(w->status, "%s", w->message) : status;
}

/* ---- Before a call ---- */

typedef struct call {
    uint64_t steps, chunk;
    uint32_t are_submitted;
} call;

static tu_status compare(const tu_process_group *g, const call *all, size_t *chunk) {
    for (uint32_t r = 0; r < g->info.size; r++) {
        if (all[r].steps != all[0].steps)
            return tu_fail(TU_INVALID,
                           "rank %u on host '%s' runs %" PRIu64 " steps, rank 0 runs %" PRIu64
                           ": all processes must make the same calls",
                           r, g->processes[r].host, all[r].steps, all[0].steps);
        if (all[r].are_submitted != all[0].are_submitted)
            return tu_fail(TU_INVALID,
                           "rank %u on host '%s' %s its steps, rank 0 %s: expected all processes or none", r,
                           g->processes[r].host, all[r].are_submitted ? "does not trace" : "traces",
                           all[0].are_submitted ? "does not" : "does");
        if (all[r].chunk < *chunk) *chunk = all[r].chunk;
    }
    return TU_OK;
}

tu_status tu__agree_on_steps(const tu_program *p, bool are_submitted, size_t steps, size_t *chunk) {
    call mine = {.steps = steps, .chunk = *chunk, .are_submitted = are_submitted}, all[TU__MAX_PROCESSES];
    if (!p->connection || !tu__can_submit(p)) return TU_OK;
    TU_TRY(tu_process_group_gather(p->group, &mine, sizeof mine, all));
    return compare(p->group, all, chunk);
}
