/* Trains the trials of a study: one thread per device, or per place in its stack (--stack), which claims a trial, trains it, and
 * claims the next one. The calling thread renews the heartbeats of all and passes on the wish to stop.
 *
 * A trial is an ordinary run in a folder of its own. After each validation its worker records the result in the study and may
 * be told to stop. A trial of a worker that died is resumed from its checkpoint; if that is not possible, because its folder
 * cannot be seen from here or is still locked by a process that hangs, it is trained anew in another folder. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/start_thread.h"
#include "tune/search.h"
#include "tune/trial_options.h"

static const double poll_seconds = 0.05, claim_again_seconds = 0.3, redraw_seconds = 0.1;

static void sleep_for(double seconds) {
    struct timespec time = {.tv_nsec = (long)(1e9 * seconds)};
    nanosleep(&time, NULL);
}

static void set_flag(volatile sig_atomic_t *flag, sig_atomic_t value) {
    __atomic_store_n(flag, value, __ATOMIC_SEQ_CST);
}

static bool is_set(const volatile sig_atomic_t *flag) {
    return flag && __atomic_load_n(flag, __ATOMIC_SEQ_CST) != 0;
}

/* ---- Reports to the caller ---- */

void tu__search_report(tu__search *s, tu_tune_report *report) {
    report->struct_size = sizeof *report;
    report->folder = s->folder;
    report->study = s->study.sql.shown;
    report->workers = (int64_t)s->worker_count;
    report->objective = s->study.plan.objective;
    if (s->options.on_report) s->options.on_report(s->options.context, report);
}

static void report_event(tu__search_worker *w, tu_tune_report report) {
    report.worker = w->number;
    report.device = w->device;
    report.trial = w->claim.number;
    pthread_mutex_lock(&w->search->lock);
    tu__search_report(w->search, &report);
    pthread_mutex_unlock(&w->search->lock);
}

/* Keeps the first failure, which ends the search. The message is this thread's. */
static void fail_search(tu__search *s, tu_status status) {
    pthread_mutex_lock(&s->lock);
    if (s->status == TU_OK) {
        s->status = status;
        snprintf(s->message, sizeof s->message, "%s", tu_message());
    }
    pthread_mutex_unlock(&s->lock);
    set_flag(&s->stop, 1);
}

/* ---- Reports of a run ---- */

/* Tasks without accuracy are judged by their loss. */
static double cost_of(const tu__search *s, const tu_train_report *r) {
    return !r->has_accuracy || strcmp(s->study.plan.objective, "loss") == 0 ? r->validation_loss
                                                                            : 1 - r->validation_accuracy;
}

static void record_validation(tu__search_worker *w, const tu_train_report *r) {
    tu__search *s = w->search;
    bool prune = false;
    tu__report report = {r->step, r->steps, cost_of(s, r), r->validation_loss, r->validation_accuracy};
    tu_status status = tu__study_report(&s->study, &w->claim, &report, &prune);
    w->lost = w->lost || status == TU_LOST;
    w->pruned = prune;
    w->cost = fmin(w->cost, report.cost); /* fmin(NaN, x) is x */
    if (status != TU_OK && status != TU_LOST) {
        w->study_status = status;
        fail_search(s, status);
    }
    if (prune || status != TU_OK) set_flag(&w->stop, 1);
    report_event(w, (tu_tune_report){.event = TU_TUNE_VALIDATED,
                                     .step = r->step,
                                     .steps = r->steps,
                                     .loss = r->validation_loss,
                                     .accuracy = r->validation_accuracy,
                                     .cost = report.cost,
                                     .images_per_second = r->images_per_second});
}

static void report_step(tu__search_worker *w, const tu_train_report *r) {
    double now = tu__now();
    if (now - w->drawn_at < redraw_seconds) return;
    w->drawn_at = now;
    report_event(w, (tu_tune_report){.event = TU_TUNE_STEPPED,
                                     .step = r->step,
                                     .steps = r->steps,
                                     .loss = r->loss,
                                     .accuracy = r->accuracy,
                                     .cost = (double)NAN,
                                     .images_per_second = r->images_per_second});
}

/* The on_report of a run. */
static void on_run_report(void *context, const tu_train_report *r) {
    tu__search_worker *w = context;
    w->seconds = r->seconds;
    if (r->event != TU_TRAIN_LOADING && r->event != TU_TRAIN_NOTICE) w->step = r->step;
    if (is_set(&w->search->stop)) set_flag(&w->stop, 1);
    if (r->event == TU_TRAIN_STEPPED || r->event == TU_TRAIN_BEGUN) report_step(w, r);
    if (r->event == TU_TRAIN_VALIDATED) record_validation(w, r);
}

/* ---- One trial ---- */

/* Returns the options of the claimed trial. Texts live in the arena. */
static tu_status make_options(tu__search_worker *w, tu__arena *arena, tu_train_options *o) {
    *o = w->search->train;
    o->devices = w->device;
    o->on_report = on_run_report;
    o->context = w;
    o->stop = &w->stop;
    if (!o->keep) o->keep = 1;
    o->stack = NULL;
    return tu__trial_options_set(&w->search->study.space, &w->claim.point, arena, o);
}

/* Continues the run of a worker that died or was stopped. */
static tu_status resume_run(tu__search_worker *w, const tu_train_options *options, tu__trainer *trainer) {
    tu_train_options o = {.struct_size = sizeof o,
                          .devices = w->device,
                          .threads = options->threads,
                          .on_report = on_run_report,
                          .context = w,
                          .stop = &w->stop,
                          .resume = true};
    tu__path folder = tu__path_in(w->search->folder, "%s", w->claim.run);
    if (!tu__run_folder_has_run(folder.text)) return tu_fail(TU_NOT_FOUND, "no run");
    return tu__trainer_begin_trial(trainer, folder.text, NULL, &o, &w->search->shared);
}

/* Trains the trial from its beginning in the folder `run`, beneath that of the search. */
static tu_status start_run_in(tu__search_worker *w, const char *run, const tu_train_options *options,
                              tu__trainer *trainer) {
    tu_train_options o = *options;
    tu__path folder = tu__path_in(w->search->folder, "%s", run);
    o.out = folder.text;
    return tu__trainer_begin_trial(trainer, w->search->model, w->search->data, &o, &w->search->shared);
}

/* Starts in a folder of its own, which the study learns first. */
static tu_status start_run(tu__search_worker *w, const tu_train_options *options, tu__trainer *trainer) {
    char run[sizeof w->claim.run], suffix[32] = "";
    if (w->claim.attempt > 1) snprintf(suffix, sizeof suffix, ".%" PRId64, w->claim.attempt);
    snprintf(run, sizeof run, "trials/%05" PRId64 "%s", w->claim.number, suffix);
    tu__path folder = tu__path_in(w->search->folder, "%s", run);
    /* Another process may have died in the same attempt before the study knew its folder. */
    for (int i = 2; access(folder.text, F_OK) == 0 && i < 1000; i++) {
        snprintf(run, sizeof run, "trials/%05" PRId64 "%s-%d", w->claim.number, suffix, i);
        folder = tu__path_in(w->search->folder, "%s", run);
    }
    TU_TRY(tu__study_set_run(&w->search->study, &w->claim, run));
    snprintf(w->claim.run, sizeof w->claim.run, "%s", run);
    return start_run_in(w, run, options, trainer);
}

/* True if the folder of the trial is here, but has no run: its worker died before it had begun. */
static bool has_unfinished_start(const tu__search_worker *w) {
    tu__path folder = tu__path_in(w->search->folder, "%s", w->claim.run);
    return access(folder.text, F_OK) == 0 && !tu__run_folder_has_run(folder.text);
}

/* Resumes the trial of another worker if that is possible. A start that was killed is repeated in its folder, so that nothing
 * is left of it. */
static tu_status begin_run(tu__search_worker *w, const tu_train_options *options, tu__trainer *trainer) {
    *trainer = (tu__trainer){0};
    if (*w->claim.run) {
        if ((has_unfinished_start(w) ? start_run_in(w, w->claim.run, options, trainer)
                                     : resume_run(w, options, trainer)) == TU_OK)
            return TU_OK;
        tu__trainer_end(trainer);
        *trainer = (tu__trainer){0};
    }
    return start_run(w, options, trainer);
}

/* Tells the stack that this worker brings no trial to its first step. */
static void stop_being_awaited(tu__search_worker *w) {
    if (w->awaited) tu__train_stack_expect_fewer(w->stack, 1);
    w->awaited = false;
}

/* Gives the run a place in the device's stack. One that cannot be stacked with the others, because its batch or its network
 * differs, trains by itself at the same time. */
static void join_stack(tu__search_worker *w, tu__trainer *trainer) {
    char message[700];
    if (!w->stack) return;
    tu_status status = tu__train_stack_join(w->stack, trainer);
    if (status == TU_OK) {
        w->awaited = false;
        return;
    }
    snprintf(message, sizeof message, "trial %" PRId64 " trains outside of the stack of %s: %s",
             w->claim.number, w->device, tu_message());
    stop_being_awaited(w);
    report_event(w, (tu_tune_report){.event = TU_TUNE_NOTICE, .message = message, .cost = (double)NAN});
}

static tu_status train(tu__search_worker *w, tu_train_result *result) {
    tu__arena arena = {.purpose = "the settings of a trial"};
    tu_train_options options;
    tu__trainer trainer = {0};
    tu_status status = make_options(w, &arena, &options);
    if (status == TU_OK) status = begin_run(w, &options, &trainer);
    if (status == TU_OK) join_stack(w, &trainer);
    stop_being_awaited(w); /* if it has not begun */
    if (status == TU_OK) status = tu__trainer_run(&trainer, result);
    char message[1024]; /* closing the run must not replace it */
    snprintf(message, sizeof message, "%s", tu_message());
    tu__trainer_end(&trainer);
    tu__arena_free(&arena);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s", message);
}

/* True for failures of this trial alone: others may succeed. */
static bool is_own_failure(tu_status status) {
    return status == TU_NUMERIC || status == TU_NO_MEMORY || status == TU_INVALID || status == TU_UNSUPPORTED;
}

static tu_status end_trial(tu__search_worker *w, tu__trial_state state, const char *message) {
    tu__search *s = w->search;
    tu_status status = tu__study_end(&s->study, &w->claim, state, w->step, w->seconds, message);
    if (status == TU_LOST) return TU_OK; /* another worker has it */
    TU_TRY(status);
    report_event(w, (tu_tune_report){.event = TU_TUNE_ENDED,
                                     .state = (tu_trial_state)state,
                                     .step = w->step,
                                     .message = message,
                                     .cost = w->cost});
    return TU_OK;
}

/* Fails only if the worker cannot go on. */
static tu_status train_trial(tu__search_worker *w) {
    tu_train_result result = TU_SIZED(tu_train_result);
    tu__text values = {0};
    tu__search *s = w->search;
    tu__point_print(&s->study.space, &w->claim.point, &values);
    report_event(w, (tu_tune_report){
                        .event = TU_TUNE_STARTED, .message = tu__text_string(&values), .cost = (double)NAN});
    tu__text_free(&values);
    tu_status status = train(w, &result);
    if (w->lost || status == TU_LOST) return TU_OK;
    if (status == TU_OK && !result.stopped) return end_trial(w, TU__TRIAL_FINISHED, NULL);
    if (status == TU_OK && w->pruned) return end_trial(w, TU__TRIAL_PRUNED, NULL);
    if (is_own_failure(status)) {
        char message[1024];
        snprintf(message, sizeof message, "%s", tu_message());
        return end_trial(w, TU__TRIAL_FAILED, message);
    }
    char message[1024];
    snprintf(message, sizeof message, "%s", tu_message());
    tu__study_release(&s->study, &w->claim); /* if that fails, the heartbeat ends */
    return status == TU_OK ? TU_OK : tu_fail(status, "trial %" PRId64 ": %s", w->claim.number, message);
}

/* ---- A worker ---- */

static void hold_claim(tu__search_worker *w, bool holds) {
    pthread_mutex_lock(&w->search->lock);
    w->has_claim = holds;
    pthread_mutex_unlock(&w->search->lock);
}

/* Claims and trains one trial. Sets `*more` to false if there will be none. */
static tu_status work_once(tu__search_worker *w, bool *more) {
    tu__search *s = w->search;
    tu__claim claim = {0};
    tu__claimed claimed;
    tu__claim_text(claim.text);
    TU_TRY(tu__study_claim(&s->study, w->name, &claim, &claimed));
    *more = claimed != TU__CLAIM_NEVER;
    if (claimed != TU__CLAIMED) stop_being_awaited(w);
    if (claimed == TU__CLAIM_LATER) sleep_for(claim_again_seconds);
    if (claimed != TU__CLAIMED) return TU_OK;
    w->claim = claim;
    w->pruned = w->lost = false;
    w->step = 0, w->seconds = 0, w->drawn_at = 0, w->cost = (double)NAN;
    w->study_status = TU_OK;
    set_flag(&w->stop, is_set(&s->stop));
    hold_claim(w, true);
    tu_status status = train_trial(w);
    hold_claim(w, false);
    return status;
}

static void *work(void *context) {
    tu__search_worker *w = context;
    tu__search *s = w->search;
    bool more = true;
    while (more && !is_set(&s->stop)) {
        tu_status status = work_once(w, &more);
        if (status == TU_OK) continue;
        fail_search(s, status);
        break;
    }
    stop_being_awaited(w);
    pthread_mutex_lock(&s->lock);
    w->done = true;
    if (!more) s->budget_used = true;
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- The calling thread ---- */

static size_t copy_claims(tu__search *s, size_t started) {
    size_t count = 0;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < started; i++) {
        if (!s->workers[i].has_claim) continue;
        s->beating_claims[count] = s->workers[i].claim;
        s->beating[count] = &s->beating_claims[count];
        count++;
    }
    pthread_mutex_unlock(&s->lock);
    return count;
}

static bool all_done(tu__search *s, size_t started) {
    bool done = true;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < started; i++) done = done && s->workers[i].done;
    pthread_mutex_unlock(&s->lock);
    return done;
}

/* Renews the heartbeats four times per timeout. A failure is left to the workers, whose reports fail too. */
static void supervise(tu__search *s, size_t started) {
    double beat = tu__now();
    while (!all_done(s, started)) {
        sleep_for(poll_seconds);
        double now = tu__now();
        bool out_of_time = s->options.seconds > 0 && now - s->start_time > s->options.seconds;
        if (out_of_time || is_set(s->options.stop)) set_flag(&s->stop, 1);
        for (size_t i = 0; is_set(&s->stop) && i < started; i++) set_flag(&s->workers[i].stop, 1);
        if (now - beat < s->study.timeout / 4) continue;
        beat = now;
        tu__study_heartbeat(&s->study, copy_claims(s, started), s->beating);
    }
}

tu_status tu__search_run(tu__search *s) {
    size_t started = 0;
    int failure = 0;
    for (; started < s->worker_count && !failure; started += !failure)
        failure = tu__start_thread(&s->workers[started].thread, work, &s->workers[started]);
    if (failure) set_flag(&s->stop, 1);
    for (size_t i = started; i < s->worker_count; i++) stop_being_awaited(&s->workers[i]);
    supervise(s, started);
    for (size_t i = 0; i < started; i++) pthread_join(s->workers[i].thread, NULL);
    if (failure)
        return tu_fail(TU_NO_MEMORY,
                       "cannot start thread %zu of %zu: %s; use fewer devices or a smaller --stack",
                       started + 1, s->worker_count, strerror(failure));
    return s->status == TU_OK ? TU_OK : tu_fail(s->status, "%s", s->message);
}
