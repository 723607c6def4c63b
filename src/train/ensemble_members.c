/* Trains the members of an ensemble: one thread per device, which trains the members of that device one after
 * another.
 *
 * Members share only the caller's on_report callback and the stop flag; both are accessed while holding
 * `report_lock`. Only one thread at a time calls the on_report callback. A member reads a copy of the stop flag,
 * which is updated whenever the member reports. Members start one at a time, because that compiles programs and
 * creates folders; then they train in parallel. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "train/ensemble.h"
#include "train/trainer.h"

/* ---- Reports ---- */

/* Returns a report on all members: sums of steps and speeds, means of loss and accuracy over the members that have
 * reported. `reporter` is the member that sent `member_report`. */
static tu_train_report summarize(const tu__ensemble *e, int64_t reporter,
                                 const tu_train_report *member_report) {
    tu_train_report total = *member_report;
    int64_t completed = 0, reported = 0;
    total.step = total.steps = 0;
    total.epoch = total.epochs = total.loss = total.accuracy = total.images_per_second = 0;
    for (int64_t i = 0; i < e->config.members; i++) {
        const tu__ensemble_member *m = &e->members[i];
        total.step += m->latest.step;
        total.steps += m->latest.steps;
        total.epoch += m->latest.epoch / (double)e->config.members;
        total.epochs += m->latest.epochs / (double)e->config.members;
        if (!m->started || m->latest.step == m->first_step) continue;
        completed += m->latest.step - m->first_step;
        reported++;
        total.loss += m->latest.loss;
        total.accuracy += m->latest.accuracy;
        bool trains = m->latest.step < m->latest.steps || i == reporter;
        if (trains) total.images_per_second += m->latest.images_per_second;
    }
    if (reported) total.loss /= (double)reported, total.accuracy /= (double)reported;
    total.seconds = tu__now() - e->start_time;
    total.seconds_left =
        completed > 0 ? total.seconds / (double)completed * (double)(total.steps - total.step) : -1;
    return total;
}

static void call_watch(const tu__ensemble *e, tu_train_report *report, int64_t member) {
    report->members = e->config.members;
    report->member = member;
    if (e->options.on_report) e->options.on_report(e->options.context, report);
}

/* The tu_train_options.on_report of one member. */
static void report_member(void *context, const tu_train_report *report) {
    tu__ensemble_member *m = context;
    tu__ensemble *e = m->ensemble;
    pthread_mutex_lock(&e->report_lock);
    if (report->event == TU_TRAIN_BEGUN) m->started = true, m->first_step = report->step;
    if (report->event != TU_TRAIN_LOADING) m->latest = *report;
    bool is_summary = report->event == TU_TRAIN_STEPPED || report->event == TU_TRAIN_MEASURED;
    tu_train_report reported = is_summary ? summarize(e, m->number, report) : *report;
    call_watch(e, &reported, m->number);
    m->stop = tu__flag_is_set(e->options.stop);
    pthread_mutex_unlock(&e->report_lock);
}

static bool is_stop_requested(tu__ensemble *e) {
    pthread_mutex_lock(&e->report_lock);
    bool requested = tu__flag_is_set(e->options.stop);
    pthread_mutex_unlock(&e->report_lock);
    return requested;
}

/* True if the later members of the same device cannot be trained either. */
static bool stops_device(tu_status status) {
    return status == TU_DEVICE;
}

/* Reports a failed member at once, because the others may train for hours. */
static void report_failure(tu__ensemble_member *m) {
    char message[sizeof m->message + 64];
    snprintf(m->message, sizeof m->message, "%s", tu_message());
    snprintf(message, sizeof message, "%s; the %s continue", m->message,
             stops_device(m->status) ? "members of other devices" : "other members");
    tu_train_report report = {.struct_size = sizeof report, .event = TU_TRAIN_NOTICE, .message = message};
    pthread_mutex_lock(&m->ensemble->report_lock);
    if (m->ensemble->config.members > 1 && m->started) call_watch(m->ensemble, &report, m->number);
    pthread_mutex_unlock(&m->ensemble->report_lock);
}

/* ---- One member ---- */

static tu_status start_member(tu__ensemble_member *m, tu__trainer *trainer) {
    tu__ensemble *e = m->ensemble;
    const tu__run_config *c = &e->config;
    tu_train_options o = e->options;
    tu__path path = tu__member_folder(e->folder.path, m->number);
    tu__settings_as_options(&c->settings, &o);
    int64_t seed = c->settings.seed + m->number;
    o.seed = seed ? seed : -1;
    o.devices = e->devices[(size_t)m->number % e->device_count].text;
    o.on_report = report_member;
    o.context = m;
    o.stop = &m->stop;
    o.resume = tu__run_folder_has_run(path.text);
    o.init = *c->init ? c->init : NULL;
    o.out = o.resume ? NULL : path.text;
    const char *data = *c->data ? c->data : NULL;
    pthread_mutex_lock(&e->start_lock);
    tu_status status = tu__trainer_begin(trainer, o.resume ? path.text : c->model, data, &o, c);
    pthread_mutex_unlock(&e->start_lock);
    return status;
}

static void train_member(tu__ensemble_member *m) {
    tu__trainer trainer;
    m->status = start_member(m, &trainer);
    if (m->status == TU_OK) m->status = tu__trainer_run(&trainer, &m->ensemble->results[m->number]);
    if (m->status != TU_OK) report_failure(m);
    tu__trainer_end(&trainer);
}

/* ---- Members of one device ---- */

typedef struct device_queue {
    tu__ensemble *ensemble;
    size_t device;
    pthread_t thread;
} device_queue;

static void *train_queue(void *context) {
    const device_queue *q = context;
    tu__ensemble *e = q->ensemble;
    tu_status status = TU_OK;
    for (int64_t i = (int64_t)q->device;
         i < e->config.members && !stops_device(status) && !is_stop_requested(e);
         i += (int64_t)e->device_count) {
        train_member(&e->members[i]);
        status = e->members[i].status;
    }
    return NULL;
}

/* Starts the threads with all signals blocked, so that only the caller's threads receive them. */
static tu_status start_queues(size_t count, device_queue *queues, size_t *started) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = 0;
    for (*started = 0; *started < count; ++*started) {
        device_queue *q = &queues[*started];
        failure = pthread_create(&q->thread, NULL, train_queue, q);
        if (failure) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!failure) return TU_OK;
    return tu_fail(TU_NO_MEMORY, "ensemble: cannot start thread %zu of %zu: %s; use fewer devices",
                   *started + 1, count, strerror(failure));
}

tu_status tu__ensemble_run(tu__ensemble *e) {
    device_queue queues[TU__MAX_DEVICES];
    size_t started, count = e->device_count;
    if ((int64_t)count > e->config.members) count = (size_t)e->config.members;
    for (size_t i = 0; i < count; i++) queues[i] = (device_queue){.ensemble = e, .device = i};
    tu_status status = start_queues(count, queues, &started);
    for (size_t i = 0; i < started; i++) pthread_join(queues[i].thread, NULL);
    TU_TRY(status);
    for (int64_t i = 0; i < e->config.members; i++)
        if (e->members[i].status != TU_OK)
            return tu_fail(e->members[i].status, "member %lld: %s", (long long)i, e->members[i].message);
    return TU_OK;
}
