/* Finders: a learning rate, or a batch size, within seconds.
 *
 * Learning rate (L. Smith, "Cyclical Learning Rates for Training Neural Networks", 2017): one short run in which the rate grows
 * by a constant factor each step, until the loss explodes. The suggestion is the rate at which the smoothed loss falls
 * fastest per factor of the rate: smaller ones learn slower, larger ones become unstable.
 *
 * Batch size: short runs with doubled batches, until one does not fit or throughput no longer grows. The suggestion is the
 * smallest batch with at least 90% of the best throughput: larger ones only cost accuracy per image.
 *
 * The runs are ordinary ones in a temporary folder, which is removed. */
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/tune.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "base/clock.h"
#include "base/sized.h"
#include "graph/graph.h"
#include "train/trainer.h"
#include "train/training_set.h"

enum {
    RATE_STEPS = 150, /* so few that each is measured and reported */
    MAX_POINTS = 256,
    FIRST_BATCH = 16,
    BATCH_STEPS = 4000,
    WARM_STEPS = 3, /* of a batch size that are not timed */
};
static const double first_rate = 1e-6, last_rate = 10, smoothing = 0.85, explosion = 4;
static const double batch_seconds = 0.7, all_batches_seconds = 30, good_throughput = 0.9;

typedef struct finder {
    const char *model, *data;
    tu_train_options options;
    tu_dataset *dataset;
    tu__shared_inputs shared;
    char folder[64]; /* temporary */
    const volatile sig_atomic_t *caller_stop;
    volatile sig_atomic_t stop;
    tu_tune_point points[MAX_POINTS];
    size_t count;
    char reason[512];
    /* rate */
    double average, weight, lowest;
    /* batch */
    double timed_from;
    int64_t timed_step, step;
    double timed_to;
} finder;

/* ---- A run ---- */

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

static tu_status train(finder *f, tu_train_options *o, void (*on_report)(void *, const tu_train_report *)) {
    tu__trainer trainer = {0};
    char run[sizeof f->folder + 8];
    snprintf(run, sizeof run, "%s/run", f->folder);
    o->out = run;
    o->validation = TU_ZERO;
    o->evaluate_every = o->early_stop = 0;
    o->checkpoint_every = 1000000000;
    o->on_report = on_report;
    o->context = f;
    o->stop = &f->stop;
    f->stop = 0;
    tu_status status = tu__trainer_begin_trial(&trainer, f->model, f->data, o, &f->shared);
    if (status == TU_OK) status = tu__trainer_run(&trainer, NULL);
    char message[512];
    snprintf(message, sizeof message, "%s", tu_message());
    tu__trainer_end(&trainer);
    nftw(run, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s", message);
}

static void stop_if_asked(finder *f) {
    if (tu__flag_is_set(f->caller_stop)) f->stop = 1;
}

/* ---- Learning rate ---- */

/* Smooths the loss by a moving average without the bias of its start. Ends the run when the loss explodes. */
static void on_rate_report(void *context, const tu_train_report *r) {
    finder *f = context;
    stop_if_asked(f);
    if (r->event != TU_TRAIN_MEASURED || f->count == MAX_POINTS) return;
    f->average = smoothing * f->average + (1 - smoothing) * r->loss;
    f->weight = smoothing * f->weight + 1 - smoothing;
    double loss = f->average / f->weight;
    f->points[f->count++] = (tu_tune_point){.value = r->rate, .loss = loss};
    f->lowest = fmin(f->lowest, loss);
    if (loss < explosion * f->lowest && isfinite(loss)) return;
    snprintf(f->reason, sizeof f->reason, "the loss exploded at the rate %.3g", r->rate);
    f->stop = 1;
}

/* Returns the rate with the steepest descent, over a window of half a decade; 0 if the loss never falls. */
static double steepest(const finder *f) {
    enum { HALF_WINDOW = 5, SKIPPED = 5 };
    double rate = 0, steepest = 0;
    for (size_t i = SKIPPED + HALF_WINDOW; i + HALF_WINDOW < f->count; i++) {
        double slope = f->points[i + HALF_WINDOW].loss - f->points[i - HALF_WINDOW].loss;
        if (slope < steepest) steepest = slope, rate = f->points[i].value;
    }
    return rate;
}

static tu_status find_rate(finder *f, double *suggestion) {
    tu_train_options o = f->options;
    o.steps = RATE_STEPS;
    o.epochs = 0;
    o.rate = first_rate;
    f->shared.rate_growth = pow(last_rate / first_rate, 1.0 / (RATE_STEPS - 1));
    f->lowest = INFINITY;
    tu_status status = train(f, &o, on_rate_report);
    if (status == TU_NUMERIC && f->count) { /* a loss that is not finite is the end of the curve */
        snprintf(f->reason, sizeof f->reason, "the loss was not finite after the rate %.3g",
                 f->points[f->count - 1].value);
        status = TU_OK;
    }
    TU_TRY(status);
    if (!*f->reason && tu__flag_is_set(f->caller_stop))
        snprintf(f->reason, sizeof f->reason, "it was stopped");
    if (!*f->reason) snprintf(f->reason, sizeof f->reason, "the rate reached %g", last_rate);
    *suggestion = steepest(f);
    return TU_OK;
}

/* ---- Batch size ---- */

static void on_batch_report(void *context, const tu_train_report *r) {
    finder *f = context;
    double now = tu__now();
    stop_if_asked(f);
    if (r->event != TU_TRAIN_STEPPED) return;
    if (r->step < WARM_STEPS) return;
    if (f->timed_from == 0) {
        f->timed_from = now;
        f->timed_step = r->step;
    }
    f->step = r->step;
    f->timed_to = now;
    if (now - f->timed_from > batch_seconds) f->stop = 1;
}

/* Trains with one batch size. Sets `*fits` to false with a reason if it does not fit. */
static tu_status time_batch(finder *f, int64_t batch, bool *fits) {
    tu_train_options o = f->options;
    o.batch = batch;
    o.steps = BATCH_STEPS;
    o.epochs = 0;
    f->timed_from = f->timed_to = 0;
    f->step = f->timed_step = 0;
    tu_status status = train(f, &o, on_batch_report);
    *fits = status != TU_NO_MEMORY;
    if (!*fits) {
        snprintf(f->reason, sizeof f->reason, "%.500s", tu_message());
        return TU_OK;
    }
    TU_TRY(status);
    double seconds = f->timed_to - f->timed_from, steps = (double)(f->step - f->timed_step);
    double speed = seconds > 0 ? steps * (double)batch / seconds : (double)NAN;
    f->points[f->count++] =
        (tu_tune_point){.value = (double)batch, .loss = (double)NAN, .images_per_second = speed};
    return TU_OK;
}

static double best_throughput(const finder *f) {
    double best = 0;
    for (size_t i = 0; i < f->count; i++) best = fmax(best, f->points[i].images_per_second);
    return best;
}

/* True if the last two doublings have brought less than 3% each. */
static bool has_levelled(const finder *f) {
    if (f->count < 3) return false;
    const tu_tune_point *p = &f->points[f->count - 3];
    return p[1].images_per_second < 1.03 * p[0].images_per_second &&
           p[2].images_per_second < 1.03 * fmax(p[0].images_per_second, p[1].images_per_second);
}

static tu_status find_batch(finder *f, double *suggestion) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    double began = tu__now();
    bool fits = true;
    TU_TRY(tu_dataset_describe(f->dataset, &info));
    for (int64_t batch = FIRST_BATCH; fits && !*f->reason; batch *= 2) {
        if (batch > info.count[TU_TRAIN] || f->count == MAX_POINTS)
            snprintf(f->reason, sizeof f->reason, "the set has %" PRId64 " training images",
                     info.count[TU_TRAIN]);
        else if (tu__flag_is_set(f->caller_stop))
            snprintf(f->reason, sizeof f->reason, "it was stopped");
        else if (tu__now() - began > all_batches_seconds)
            snprintf(f->reason, sizeof f->reason, "%.0f s are over", all_batches_seconds);
        else
            TU_TRY(time_batch(f, batch, &fits));
        if (has_levelled(f) && !*f->reason)
            snprintf(f->reason, sizeof f->reason, "larger batches are not faster");
    }
    for (size_t i = 0; i < f->count && *suggestion == 0; i++)
        if (f->points[i].images_per_second >= good_throughput * best_throughput(f))
            *suggestion = f->points[i].value;
    return TU_OK;
}

/* ---- Both ---- */

static tu_status prepare(finder *f) {
    tu_network_options defaults = TU_SIZED(tu_network_options);
    f->shared.network = f->model;
    if (tu_network_is_file(f->model)) TU_TRY(tu_network_load(f->model, &f->shared.network));
    TU_TRY(tu_network_defaults(f->shared.network, &defaults));
    TU_TRY(tu__training_set_open(f->shared.network, f->data, &f->options, NULL, NULL, &f->dataset));
    f->shared.dataset = f->dataset;
    const char *parent = getenv("TMPDIR");
    snprintf(f->folder, sizeof f->folder, "%.30s/tutti-find-XXXXXX",
             parent && strlen(parent) <= 30 ? parent : "/tmp");
    if (!mkdtemp(f->folder)) return tu_fail(TU_IO, "cannot create the temporary folder '%s': %m", f->folder);
    return TU_OK;
}

static tu_status find(finder *f, size_t what, tu_tune_found *full) {
    TU_TRY(prepare(f));
    tu_status status = what == 0 ? find_rate(f, &full->suggestion) : find_batch(f, &full->suggestion);
    rmdir(f->folder);
    return status;
}

tu_status tu_tune_find(const char *what, const char *model, const char *data, tu_tune_found *result,
                       const tu_train_options *options) {
    static const char *const names[] = {"rate", "batch", NULL};
    size_t index;
    double began = tu__now();
    tu_tune_found full = {0};
    TU_TRY(TU__CHECK_SIZED(tu_tune_found, result));
    tu__clear_sized(result);
    TU_TRY(tu__choice_find("--find", what, names, &index));
    if (!model || !*model) return tu_fail(TU_INVALID, "no model given: expected a name or a C file");
    finder *f = tu__alloc(sizeof *f, "a finder");
    if (!f) return TU_NO_MEMORY;
    f->model = model, f->data = data;
    tu__copy_options(&f->options, sizeof f->options, options);
    f->caller_stop = f->options.stop;
    tu_status status = find(f, index, &full);
    tu_dataset_free(f->dataset);
    full.seconds = tu__now() - began;
    full.count = f->count;
    full.points = f->points;
    full.reason = f->reason;
    full.internal = f;
    if (status == TU_OK)
        TU__COPY_SIZED(result, full);
    else
        tu__free(f);
    return status;
}

void tu_tune_found_free(tu_tune_found *result) {
    tu__free(result->internal);
    tu__clear_sized(result);
}
