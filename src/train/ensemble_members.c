/* Trains the members of an ensemble: one thread per device and place in its stack (stack.h), which trains its members one
 * after another. Without --stack a device has one place.
 *
 * Members share only the caller's on_report callback and the stop flag; both are accessed while holding
 * `report_lock`. Only one thread at a time calls the on_report callback. A member reads a copy of the stop flag,
 * which is updated whenever the member reports. Members start one at a time, because that compiles programs and
 * creates folders; then they train in parallel. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/start_thread.h"
#include "train/ensemble.h"
#include "train/stack_size.h"
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
    tu__path before = tu__member_folder(e->folder.path, m->number - 1);
    bool is_snapshot = c->settings.snapshots && m->number > 0;
    o.init = is_snapshot ? o.resume ? NULL : before.text : *c->init ? c->init : NULL;
    o.out = o.resume ? NULL : path.text;
    const char *data = *c->data ? c->data : NULL;
    pthread_mutex_lock(&e->start_lock);
    tu_status status = tu__trainer_begin(trainer, o.resume ? path.text : c->model, data, &o, c);
    pthread_mutex_unlock(&e->start_lock);
    return status;
}

/* `stack`: NULL if the device trains one member at a time. `first`: the stack waits for this member. */
static void train_member(tu__ensemble_member *m, tu__train_stack *stack, bool first) {
    tu__trainer trainer;
    m->status = start_member(m, &trainer);
    if (m->status == TU_OK && stack) m->status = tu__train_stack_join(stack, &trainer);
    if (m->status != TU_OK && stack && first) tu__train_stack_expect_fewer(stack, 1);
    if (m->status == TU_OK) m->status = tu__trainer_run(&trainer, &m->ensemble->results[m->number]);
    if (m->status != TU_OK) report_failure(m);
    tu__trainer_end(&trainer);
}

/* ---- Members of one place of a device ---- */

typedef struct place_queue {
    tu__ensemble *ensemble;
    tu__train_stack *stack; /* NULL: the device has one place */
    int64_t first, step;    /* its members: first, first + step, … */
    pthread_t thread;
} place_queue;

static void *train_queue(void *context) {
    const place_queue *q = context;
    tu__ensemble *e = q->ensemble;
    tu_status status = TU_OK;
    for (int64_t i = q->first; i < e->config.members; i += q->step) {
        bool goes_on = !stops_device(status) && !is_stop_requested(e);
        if (!goes_on && i == q->first && q->stack) tu__train_stack_expect_fewer(q->stack, 1);
        if (!goes_on) break;
        if (e->config.settings.snapshots &&
            status != TU_OK) { /* it would start from weights that do not exist */
            e->members[i].status = status;
            snprintf(e->members[i].message, sizeof e->members[i].message, "the member before it failed");
            continue;
        }
        train_member(&e->members[i], q->stack, i == q->first);
        status = e->members[i].status;
    }
    return NULL;
}

static tu_status start_queues(size_t count, place_queue *queues, size_t *started) {
    int failure = 0;
    for (*started = 0; *started < count; ++*started) {
        place_queue *q = &queues[*started];
        failure = tu__start_thread(&q->thread, train_queue, q);
        if (failure) break;
    }
    if (!failure) return TU_OK;
    for (size_t i = *started; i < count; i++)
        if (queues[i].stack) tu__train_stack_expect_fewer(queues[i].stack, 1);
    return tu_fail(TU_NO_MEMORY, "ensemble: cannot start thread %zu of %zu: %s; use fewer devices%s",
                   *started + 1, count, strerror(failure), queues[0].stack ? " or a smaller --stack" : "");
}

/* The places of all devices, and the stacks of devices with several places. */
typedef struct places {
    int64_t devices, per_device;
    tu__train_stack *stacks[TU__MAX_DEVICES];
    place_queue *queues;
    size_t count;
} places;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Divides the members among devices, and those of a device among its places. */
static tu_status make_places(tu__ensemble *e, places *p) {
    int64_t members = e->config.members;
    p->devices = e->config.settings.snapshots ? 1 : smaller((int64_t)e->device_count, members);
    p->per_device = tu__stack_setting_number(e->config.settings.stack);
    if (p->per_device < 1) p->per_device = 1;
    p->per_device = smaller(p->per_device, (members + p->devices - 1) / p->devices);
    p->queues = tu__alloc_array((size_t)(p->devices * p->per_device), sizeof *p->queues, "an ensemble");
    if (!p->queues) return TU_NO_MEMORY;
    for (int64_t d = 0; d < p->devices; d++) {
        int64_t mine = smaller(p->per_device, (members - d + p->devices - 1) / p->devices);
        if (p->per_device > 1) TU_TRY(tu__train_stack_new(p->per_device, mine, &p->stacks[d]));
        for (int64_t place = 0; place < mine; place++)
            p->queues[p->count++] = (place_queue){.ensemble = e,
                                                  .stack = p->stacks[d],
                                                  .first = d + place * p->devices,
                                                  .step = p->devices * p->per_device};
    }
    return TU_OK;
}

static void free_places(places *p) {
    for (int64_t d = 0; d < p->devices; d++) tu__train_stack_free(p->stacks[d]);
    tu__free(p->queues);
}

tu_status tu__ensemble_run(tu__ensemble *e) {
    places p = {0};
    size_t started = 0;
    tu_status status = make_places(e, &p);
    if (status == TU_OK) status = start_queues(p.count, p.queues, &started);
    for (size_t i = 0; i < started; i++) pthread_join(p.queues[i].thread, NULL);
    free_places(&p);
    TU_TRY(status);
    for (int64_t i = 0; i < e->config.members; i++)
        if (e->members[i].status != TU_OK)
            return tu_fail(e->members[i].status, "member %lld: %s", (long long)i, e->members[i].message);
    return TU_OK;
}
