/* The training loop.
 *
 * What happens after a step depends only on the step number, not on time or on where a process started. Every
 * checkpoint contains the state, the sample ordinal and the current measurement. A run that was killed and resumed is
 * therefore bit-identical to an uninterrupted one. For the same reason the order after a step is fixed: measure,
 * evaluate, save. Everything recorded about steps up to N is on the disk before checkpoint N. The exception is a
 * checkpoint saved because an evaluation failed: the resumed run starts with that evaluation.
 *
 * The run selects its best state, and decides when to stop, only on the validation split of the training images; the
 * test split is evaluated once, after the last step. Runs of versions without validation split evaluate the test
 * split throughout and continue to do so. */
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/open_file.h"
#include "base/sized.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "train/compile_options.h"
#include "train/diagnose.h"
#include "train/ranks.h"
#include "train/task.h"
#include "train/trace_steps.h"

enum { MEASUREMENTS = 100 }; /* approximate number of measurements per run */

/* ---- What is due after a step ---- */

static bool is_last(const tu__trainer *t) {
    return t->progress.step >= t->config.steps || t->progress.stopped_early;
}

/* Returns the number of steps between two events: the setting, or an epoch if it is 0. */
static int64_t period(const tu__trainer *t, int64_t every) {
    return every ? every : t->config.steps_per_epoch;
}

static int64_t measurement_period(const tu__trainer *t) {
    int64_t every = t->config.steps / MEASUREMENTS;
    return every ? every : 1;
}

static bool is_due(const tu__trainer *t, int64_t every) {
    return t->progress.step % every == 0 || is_last(t);
}

static bool measurement_due(const tu__trainer *t) {
    return is_due(t, measurement_period(t));
}

/* True if an evaluation is due by its period. Runs of earlier versions without test images never evaluate. */
static bool evaluation_period_ends(const tu__trainer *t) {
    if (t->config.selects_on_test && t->config.dataset.count[TU_TEST] == 0) return false;
    return is_due(t, period(t, t->config.settings.evaluate_every));
}

static bool validation_due(const tu__trainer *t) {
    return tu__validation_images(&t->config) > 0 && t->progress.validation_step != t->progress.step &&
           evaluation_period_ends(t);
}

static bool test_due(const tu__trainer *t) {
    return !t->shared && t->config.dataset.count[TU_TEST] > 0 && t->progress.test_step != t->progress.step &&
           (t->config.selects_on_test ? evaluation_period_ends(t) : is_last(t));
}

/* Returns the number of steps until something other than a step is due. */
static int64_t steps_until_due(const tu__trainer *t) {
    const tu__settings *s = &t->config.settings;
    const int64_t periods[] = {measurement_period(t), period(t, s->checkpoint_every),
                               period(t, s->evaluate_every)};
    int64_t step = t->progress.step, left = t->config.steps - step;
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++) {
        int64_t until = periods[i] - step % periods[i];
        if (until < left) left = until;
    }
    return tu__trace_steps_until(t, left);
}

/* True if the caller's stop flag is set. Read once per step, because it may change at any time, and the last step
 * must be saved. */
static bool is_stop_requested(const tu__trainer *t) {
    return tu__flag_is_set(t->options.stop);
}

/* ---- Reports ---- */

/* Updates the report's progress and timing. */
static void update_report(tu__trainer *t) {
    tu_train_report *r = &t->report;
    const tu__progress *p = &t->progress;
    double now = tu__now(), trained = now - t->start_time - t->idle;
    int64_t completed = p->step - t->first_step;
    r->step = p->step;
    r->steps = t->config.steps;
    r->epoch = (double)p->step / (double)t->config.steps_per_epoch;
    r->epochs = (double)t->config.steps / (double)t->config.steps_per_epoch;
    r->seconds = t->seconds_before + now - t->start_time;
    r->images_per_second = trained > 0 ? (double)t->images / trained : 0;
    r->seconds_left =
        completed > 0 ? (now - t->start_time) / (double)completed * (double)(t->config.steps - p->step) : -1;
    r->task = t->config.task;
    r->samples = tu__samples_name(&t->config);
    r->has_accuracy = t->stepper.counts_correct;
    if (p->samples > 0) {
        r->loss = p->losses / (double)p->samples;
        r->accuracy = (double)p->correct / (double)p->samples;
    } else {
        r->loss = p->loss;
        r->accuracy = p->accuracy;
    }
}

static void measure(tu__trainer *t) {
    tu__progress *p = &t->progress;
    if (p->samples == 0) return;
    p->loss = p->losses / (double)p->samples;
    p->accuracy = (double)p->correct / (double)p->samples;
    tu__ranks_measure(t);
    tu__trainer_report(t, TU_TRAIN_MEASURED, NULL);
    if (t->metrics) tu__metrics_training(t->metrics, &t->report);
    p->samples = p->correct = 0;
    p->losses = 0;
}

/* ---- Checkpoints ---- */

static tu_status write_state(tu__trainer *t, bool best) {
    if (!tu__is_writer(t)) return TU_OK;
    TU_TRY(tu__train_stack_sync(t));
    TU_TRY(tu__snapshot_take(t->state, &t->snapshot));
    return tu__checkpoint_save(t->folder.path, best, &t->config, &t->snapshot, &t->progress);
}

static tu_status write_checkpoint(tu__trainer *t) {
    if (!tu__is_writer(t)) return TU_OK;
    t->progress.seconds = t->seconds_before + tu__now() - t->start_time;
    tu__metrics_flush(t->metrics);
    TU_TRY(write_state(t, false));
    TU_TRY(tu__checkpoint_prune(t->folder.path, t->progress.step, t->config.settings.keep));
    const tu_train_hooks *hooks = t->config.hooks;
    if (!hooks || !hooks->on_checkpoint) return TU_OK;
    tu__path path = tu__path_in(t->folder.path, "checkpoints/step-%" PRId64 ".safetensors", t->progress.step);
    return hooks->on_checkpoint(hooks->context, t->progress.step, path.text);
}

/* Writes a checkpoint. If that fails, reports a notice; fails the run only if `needed`, because no later checkpoint
 * will follow. */
static tu_status save_checkpoint(tu__trainer *t, bool needed) {
    tu_status status = write_checkpoint(t);
    if (status == TU_OK) return TU_OK;
    if (needed)
        return tu_fail(status, "%s; after fixing this, continue with 'tutti train %s --resume'", tu_message(),
                       t->folder.path);
    char message[1024];
    snprintf(message, sizeof message, "%s; the run continues, and its earlier checkpoints are unchanged",
             tu_message());
    tu__trainer_notice(t, message);
    return TU_OK;
}

/* Saves a checkpoint of the unaffected state, then fails with the current message, followed by `advice`. On several
 * processes rank 0 does; the others get its message at the end of the run. If one of them is lost, the last checkpoint
 * counts. */
static tu_status save_and_fail(tu__trainer *t, tu_status status, const char *advice) {
    char message[1024], saved[96] = "";
    if (!tu__is_writer(t) || status == TU_LOST) return status;
    snprintf(message, sizeof message, "%s", tu_message());
    if (write_checkpoint(t) == TU_OK)
        snprintf(saved, sizeof saved, "; the state before the error is saved as checkpoint %lld",
                 (long long)t->progress.step);
    else
        tu__trainer_notice(t, tu_message());
    return tu_fail(status, "%s%s%s", message, saved, advice);
}

static bool save_best(tu__trainer *t) {
    t->best_unsaved = write_state(t, true) != TU_OK;
    return !t->best_unsaved;
}

/* Tries again to save the best state before the next step changes it: a checkpoint was written and older ones removed
 * in between, so there may be space now. If it fails again, removes best.safetensors, which is not the best state any
 * more. */
static void retry_save_best(tu__trainer *t) {
    if (!t->best_unsaved || save_best(t)) return;
    t->best_unsaved = false;
    char message[1024];
    snprintf(message, sizeof message, "%s", tu_message());
    bool removed = tu__remove_file(t->folder.path, TU__BEST_CHECKPOINT) == 0;
    size_t length = strlen(message);
    snprintf(message + length, sizeof message - length,
             "; the best state so far, of step %lld, is not saved%s", (long long)t->progress.step,
             removed ? ", and best.safetensors, of an earlier step, is removed" : "");
    tu__trainer_notice(t, message);
}

/* ---- Evaluating ---- */

static bool has_stalled(const tu__trainer *t) {
    double epochs = t->config.settings.early_stop;
    double since = (double)(t->progress.step - t->progress.best_step) / (double)t->config.steps_per_epoch;
    return epochs > 0 && since >= epochs;
}

static void report_evaluation(tu__trainer *t, tu_train_event event) {
    t->report.seconds = t->seconds_before + tu__now() - t->start_time;
    tu__trainer_report(t, event, NULL);
    if (t->metrics) tu__metrics_evaluation(t->metrics, &t->report);
}

/* Calls the caller's function after an evaluation. */
static tu_status call_on_evaluation(tu__trainer *t) {
    const tu_train_hooks *hooks = t->config.hooks;
    if (!hooks || !hooks->on_evaluation || !tu__is_writer(t)) return TU_OK;
    return hooks->on_evaluation(hooks->context, &t->report, t->state);
}

/* Records the first metric. Returns true if it is the best so far; the caller saves the state after reporting it. Sets
 * stopped_early if it has stalled. */
static bool record_metric(tu__trainer *t, double value) {
    tu__progress *p = &t->progress;
    bool lower = t->config.metrics[0].lower_is_better;
    bool best = p->best_step < 0 || (lower ? value < p->best_accuracy : value > p->best_accuracy);
    if (best) p->best_step = p->step, p->best_accuracy = value;
    if (has_stalled(t)) p->stopped_early = 1;
    return best;
}

/* Stores the metrics of an evaluation for the report and, unless they are those of classification, in `stored`. */
static void store_metrics(tu__trainer *t, const tu__score *score, double stored[TU_MAX_METRICS]) {
    const tu__run_config *c = &t->config;
    for (size_t i = 0; i < c->metric_count; i++) {
        memcpy(t->metric_values[i].name, c->metrics[i].name, sizeof t->metric_values[i].name);
        t->metric_values[i].value = stored[i] = score->metrics[i];
    }
    t->report.metric_count = c->metric_count;
    t->report.metrics = t->metric_values;
}

static double fraction(int64_t count, const tu__score *score) {
    return (double)count / (double)score->images;
}

static tu_status validate(tu__trainer *t) {
    tu__score score = {0};
    tu__progress *p = &t->progress;
    TU_TRY(tu__evaluator_run(&t->evaluator, t->state, t->dataset, tu__validation_images(&t->config), &score));
    p->validation_step = p->step;
    t->report.validation_loss = p->validation_loss = score.loss;
    t->report.validation_accuracy = p->validation_accuracy = fraction(score.correct, &score);
    t->report.validation_top5 = p->validation_top5 = fraction(score.top5, &score);
    p->validation_largest = score.largest;
    store_metrics(t, &score, p->validation_metrics);
    bool best = record_metric(t, score.metrics[0]);
    report_evaluation(t, TU_TRAIN_VALIDATED);
    TU_TRY(call_on_evaluation(t));
    if (best) save_best(t);
    return TU_OK;
}

static tu_status test(tu__trainer *t) {
    tu__score score = {0};
    tu__progress *p = &t->progress;
    TU_TRY(tu__evaluator_run(&t->evaluator, t->state, t->dataset, 0, &score));
    p->test_step = p->step;
    t->report.test_loss = p->test_loss = score.loss;
    t->report.test_accuracy = p->test_accuracy = fraction(score.correct, &score);
    t->report.test_top5 = p->test_top5 = fraction(score.top5, &score);
    p->test_largest = score.largest;
    store_metrics(t, &score, p->test_metrics);
    bool best = t->config.selects_on_test && record_metric(t, score.metrics[0]);
    report_evaluation(t, TU_TRAIN_EVALUATED);
    TU_TRY(call_on_evaluation(t));
    if (best) save_best(t);
    return TU_OK;
}

/* Evaluates the validation split first: it may end the run, and then the test split is due. */
static tu_status evaluate(tu__trainer *t) {
    TU_TRY(tu__train_stack_sync(t));
    if (validation_due(t)) TU_TRY(validate(t));
    if (test_due(t))
        TU_TRY(test(t));
    else if (t->metrics && tu__validation_images(&t->config) == 0 && !t->config.selects_on_test)
        tu__metrics_draw(t->metrics); /* only the training curves */
    if (t->metrics) tu__metrics_histograms(t->metrics, t->progress.step, t->state, &t->snapshot);
    return TU_OK;
}

/* ---- Steps ---- */

/* Clears the mark that a non-finite step set to disable later steps, because the state is saved and may be
 * resumed. */
static tu_status reset_healthy(tu__trainer *t) {
    const bool healthy = true;
    const char *name = tu__healthy_name(t->stepper.full.graph);
    if (!name || !tu__has_run_variables(&t->config)) return TU_OK;
    return tu_state_set(t->state, name, &healthy, sizeof healthy);
}

/* Fails with the first non-finite value of a step. The step changed nothing, so it is recomputed from the same
 * state. */
static tu_status diagnose_step(tu__trainer *t, const tu_batch *batch, const tu__step_values *values) {
    TU_TRY(reset_healthy(t));
    tu__finding finding;
    tu_feed feeds[TU__MAX_FEEDS];
    float share;
    char image[64] = "";
    size_t count =
        tu__micro_batch_feeds(&t->stepper, values->failed, batch, values->failed_first, &share, feeds);
    tu_status status = tu__diagnose(values->failed->graph, &t->config, t->state, count, feeds, &finding);
    if (status != TU_OK || !*finding.text)
        snprintf(finding.text, sizeof finding.text, "none found when the step was recomputed");
    if (finding.sample >= 0)
        snprintf(image, sizeof image, ", training %s %lld of the data set",
                 tu__has_pictures(&t->dataset->info) ? "image" : "sample",
                 (long long)batch->indices[values->failed_first + finding.sample]);
    tu_fail(TU_NUMERIC, "step %lld: the loss or a gradient is not finite; first non-finite value: %s%s",
            (long long)t->progress.step + 1, finding.text, image);
    return save_and_fail(t, TU_NUMERIC,
                         *image ? "; fix or remove it" : "; try a lower --rate, --clip 1 or --warmup");
}

static tu_status read_samples(const tu_dataset *dataset, const tu_batch *batch, void *const *columns) {
    void *elements[TU_MAX_COLUMNS];
    for (int64_t i = 0; i < batch->count; i++) {
        for (size_t c = 0; c < dataset->columns.count; c++)
            elements[c] = (char *)columns[c] + (size_t)i * dataset->columns.column[c].bytes;
        TU_TRY(tu_dataset_read_columns(dataset, TU_TRAIN, batch->indices[i], elements));
    }
    return TU_OK;
}

/* Reads the samples first: the step selected them by index, or the other processes have read theirs. */
static tu_status read_and_diagnose_step(tu__trainer *t, tu_batch batch, const tu__step_values *values) {
    void *columns[TU_MAX_COLUMNS] = {0};
    tu_status status = TU_OK;
    for (size_t c = 0; status == TU_OK && c < t->dataset->columns.count; c++) {
        columns[c] = tu__alloc_aligned((size_t)batch.count * t->dataset->columns.column[c].bytes,
                                       "the samples of a non-finite step");
        if (!columns[c]) status = TU_NO_MEMORY;
    }
    if (status == TU_OK) status = read_samples(t->dataset, &batch, columns);
    batch.columns = (const void *const *)columns;
    status = status == TU_OK ? diagnose_step(t, &batch, values) : save_and_fail(t, status, "");
    for (size_t c = 0; c < TU_MAX_COLUMNS; c++) tu__free_aligned(columns[c]);
    return status;
}

/* Fails after a step that was not finite, which all processes know. Rank 0 diagnoses the step: it has the variables with
 * every strategy. */
static tu_status fail_step(tu__trainer *t, const tu_batch *batch, const tu__step_values *values) {
    tu_status status = tu_fail(TU_NUMERIC, "step %lld: the loss or a gradient is not finite",
                               (long long)t->progress.step + 1);
    status = tu__ranks_agree(t, status);
    if (!tu__is_writer(t) || status == TU_LOST) return status;
    TU_TRY(tu__train_stack_sync(t));
    bool has_samples = batch->columns && !t->config.group;
    return has_samples ? diagnose_step(t, batch, values) : read_and_diagnose_step(t, *batch, values);
}

/* Updates progress and report after a step. With loss scaling a skipped step may have a loss that is not finite; it
 * is not counted. */
static tu_status count_step(tu__trainer *t, const tu_batch *batch, const tu__step_values *values) {
    tu__progress *p = &t->progress;
    p->step++;
    p->sample = batch->first + batch->count;
    if (isfinite(values->loss)) {
        p->samples += batch->count;
        p->correct += values->correct;
        p->losses += values->loss * (double)batch->count;
    }
    t->images += batch->count;
    t->report.rate = values->rate;
    t->report.gradient_norm = values->gradient_norm;
    update_report(t);
    tu__trainer_report(t, TU_TRAIN_STEPPED, NULL);
    const tu_train_hooks *hooks = t->config.hooks;
    if (!hooks || !hooks->on_step || !tu__is_writer(t)) return TU_OK;
    tu_status status = hooks->on_step(hooks->context, &t->report);
    return status == TU_OK ? TU_OK : save_and_fail(t, status, "");
}

/* Adds the step to the message of a device error. */
static tu_status add_step_to_error(const tu__trainer *t, tu_status status) {
    if (status != TU_DEVICE) return status;
    return tu_fail(status, "training stopped after step %lld: %s", (long long)t->progress.step, tu_message());
}

static tu_status run_step(tu__trainer *t, tu_loader *loader) {
    tu_batch batch = TU_SIZED(tu_batch);
    tu__step_values values;
    tu_status status = tu_loader_next(loader, &batch);
    if (!t->stepper.feeder.has_tables)
        status = tu__ranks_agree(t, status); /* a sample of one process may not be readable */
    if (status != TU_OK) return save_and_fail(t, status, "");
    status = tu__stepper_run(&t->stepper, t->state, &batch, &values);
    if (status != TU_OK) return add_step_to_error(t, status);
    if (!values.finite) return fail_step(t, &batch, &values);
    return count_step(t, &batch, &values);
}

/* Returns the program for the next steps, and in `*steps` the number of steps to submit. The last batch of an epoch
 * may be short and has its own program. */
static const tu__micro_batch *next_steps(const tu__trainer *t, int64_t length, int64_t *steps) {
    int64_t images = tu__training_images(&t->config), full = t->stepper.full.samples;
    int64_t full_batches = (images - t->progress.sample % images) / full, due = steps_until_due(t);
    *steps = due < length ? due : length;
    if (full_batches == 0) *steps = 1;
    if (full_batches > 0 && full_batches < *steps) *steps = full_batches;
    return full_batches ? &t->stepper.full : &t->stepper.short_batch;
}

static tu_status run_multi_step(tu__trainer *t, tu_loader *loader) {
    int64_t steps, completed;
    const tu__micro_batch *micro_batch = next_steps(t, t->multi_step.length, &steps);
    tu_status status =
        tu__multi_step_loop_run(&t->multi_step, micro_batch, t->state, loader, steps, &completed);
    if (status != TU_OK) return completed ? add_step_to_error(t, status) : save_and_fail(t, status, "");
    for (int64_t i = 0; i < completed; i++) {
        tu__step_values values = tu__multi_step_loop_values(&t->multi_step, micro_batch, i);
        if (!values.finite) return fail_step(t, &t->multi_step.batches[i], &values);
        TU_TRY(count_step(t, &t->multi_step.batches[i], &values));
    }
    return TU_OK;
}

/* Runs steps together with the other runs of the stack. */
static tu_status run_stacked(tu__trainer *t, tu_loader *loader) {
    int64_t steps, completed;
    bool is_short = next_steps(t, INT64_MAX, &steps) == &t->stepper.short_batch;
    tu_status status = tu__train_stack_run(t, loader, steps, is_short, &completed);
    if (status != TU_OK) return completed ? add_step_to_error(t, status) : save_and_fail(t, status, "");
    for (int64_t i = 0; i < completed; i++) {
        tu__step_values values = tu__train_stack_values(t, i);
        const tu_batch *batch = tu__train_stack_batch(t, i);
        if (!values.finite) return fail_step(t, batch, &values);
        count_step(t, batch, &values);
    }
    return TU_OK;
}

/* Reports a slow step. Steps of one multi-step call count with their mean time. */
static void report_if_slow(tu__trainer *t, int64_t first, double seconds) {
    int64_t completed = t->progress.step - first;
    double usual, each = completed > 0 ? seconds / (double)completed : 0;
    char message[256];
    if (completed <= 0 || !tu__step_is_slow(&t->times, each, &usual)) return;
    tu__slow_step_message(message, sizeof message, t->progress.step, each, usual);
    tu__trainer_notice(t, message);
}

/* Fails after steps that may have read zeros in place of images. Their state is not saved. */
static tu_status check_dataset(const tu__trainer *t) {
    tu_status status = tu__dataset_intact(t->dataset);
    if (status == TU_OK) return TU_OK;
    return tu_fail(
        status,
        "%s; the steps since the last checkpoint are not saved: restore the data set, then continue with "
        "'tutti train %s --resume'",
        tu_message(), t->folder.path);
}

static tu_status run_steps(tu__trainer *t, tu_loader *loader) {
    double start = tu__now();
    int64_t first = t->progress.step;
    if (t->stack) return run_stacked(t, loader); /* its time depends on the other runs */
    TU_TRY(t->multi_step.stepper ? run_multi_step(t, loader) : run_step(t, loader));
    TU_TRY(check_dataset(t));
    report_if_slow(t, first, tu__now() - start);
    return TU_OK;
}

/* Does everything that is due after a step: measurement, evaluation, checkpoint. */
static tu_status finish_step(tu__trainer *t) {
    double start = tu__now();
    if (evaluation_period_ends(t)) {
        measure(t);
        tu_status status = evaluate(t);
        if (status != TU_OK) return save_and_fail(t, status, "");
    } else if (measurement_due(t)) {
        measure(t);
    }
    /* A trial that was pruned by its validation trains no further step. */
    if (t->shared && is_stop_requested(t)) t->stopping = true;
    bool end = is_last(t) || t->stopping;
    if (end || is_due(t, period(t, t->config.settings.checkpoint_every))) {
        tu_status status = save_checkpoint(t, end);
        TU_TRY(end ? tu__ranks_agree(t, status) : status);
    }
    retry_save_best(t);
    if (!end) tu__snapshot_free(&t->snapshot);
    t->idle += tu__now() - start;
    return TU_OK;
}

/* True if the checkpoint was saved because the evaluation after its step failed. */
static bool is_evaluation_missing(const tu__trainer *t) {
    return t->progress.step > 0 && (validation_due(t) || test_due(t));
}

/* Sets `stopping`: whether this process, or another one, is to stop. */
static tu_status agree_to_stop(tu__trainer *t) {
    t->stopping = is_stop_requested(t);
    return tu__ranks_agree_to_stop(t, &t->stopping);
}

static tu_status train_loop(tu__trainer *t) {
    tu_loader *loader;
    TU_TRY(tu_loader_new(
        t->dataset, &loader, .split = TU_TRAIN, .batch = t->config.settings.batch,
        .seed = (uint64_t)t->config.settings.seed, .shuffle = true, .start = t->progress.sample,
        .indices_only = t->stack ? tu__train_stack_selects(t)
                                 : t->multi_step.feeder.has_tables || t->stepper.feeder.has_tables,
        .bootstrap = t->config.settings.bootstrap, .balanced = t->config.settings.balanced,
        .validation = tu__validation_images(&t->config),
        .is_used = t->config.group ? tu__stepper_reads_row : NULL, .context = &t->stepper));
    t->start_time = tu__now();
    tu_status status = TU_OK;
    if (is_evaluation_missing(t)) status = finish_step(t);
    if (status == TU_OK) status = agree_to_stop(t);
    while (status == TU_OK && !is_last(t) && !t->stopping) {
        status = tu__trace_steps_begin(t);
        if (status != TU_OK) break;
        status = run_steps(t, loader);
        if (status == TU_OK) status = agree_to_stop(t);
        if (status == TU_OK) tu__trace_steps_end(t, is_last(t) || t->stopping);
        if (status == TU_OK) status = finish_step(t);
    }
    tu_loader_free(loader);
    return status;
}

/* ---- The run ---- */

static void fill_metrics(const tu__trainer *t, tu_train_result *result) {
    const tu__progress *p = &t->progress;
    const tu__run_config *c = &t->config;
    bool classes = tu__is_classification(c);
    const double validation[] = {p->validation_accuracy, p->validation_top5},
                 test_values[] = {p->test_accuracy, p->test_top5};
    result->metric_count = c->metric_count;
    for (size_t i = 0; i < c->metric_count; i++) {
        tu_metric *v = &result->validation_metrics[i], *s = &result->test_metrics[i];
        memcpy(v->name, c->metrics[i].name, sizeof v->name);
        *s = *v;
        v->value = classes && i < 2 ? validation[i] : p->validation_metrics[i];
        s->value = classes && i < 2 ? test_values[i] : p->test_metrics[i];
    }
}

static tu_status summarize(tu__trainer *t, tu_train_result *result) {
    const tu__progress *p = &t->progress;
    *result = (tu_train_result){.step = p->step,
                                .steps = t->config.steps,
                                .stopped = !is_last(t),
                                .stopped_early = p->stopped_early != 0,
                                .loss = p->loss,
                                .accuracy = p->accuracy,
                                .test_step = p->test_step,
                                .test_loss = p->test_loss,
                                .test_accuracy = p->test_accuracy,
                                .test_top5 = p->test_top5,
                                .best_step = p->best_step,
                                .best_accuracy = p->best_accuracy,
                                .seconds = tu__now() - t->start_time,
                                .images_per_second = t->report.images_per_second,
                                .parameters = t->config.parameters,
                                .train_images = tu__training_images(&t->config),
                                .validation_images = tu__validation_images(&t->config),
                                .validation_step = p->validation_step,
                                .validation_loss = p->validation_loss,
                                .validation_accuracy = p->validation_accuracy,
                                .validation_top5 = p->validation_top5,
                                .validation_largest_class = p->validation_largest,
                                .test_largest_class = p->test_largest};
    snprintf(result->task, sizeof result->task, "%s", t->config.task);
    snprintf(result->samples, sizeof result->samples, "%s", tu__samples_name(&t->config));
    result->has_accuracy = t->stepper.counts_correct;
    fill_metrics(t, result);
    snprintf(result->folder, sizeof result->folder, "%s", tu__is_writer(t) ? t->folder.path : "");
    tu__ranks_fill_result(t, result);
    TU_TRY(tu__snapshot_take(t->state, &t->snapshot));
    memcpy(result->digest, tu__snapshot_digest(&t->snapshot), TU__SHA256_HEX);
    return tu__ranks_copy_digest(t, result->digest, sizeof result->digest);
}

/* Reports the start of the run, with the devices that a list such as "all" resolved to. */
static void report_start(tu__trainer *t) {
    tu__text devices = {0};
    tu_device_report report = TU_SIZED(tu_device_report);
    for (size_t i = 0; i < tu_program_device_count(t->stepper.full.program) &&
                       tu_program_device(t->stepper.full.program, i, &report) == TU_OK;
         i++)
        tu__text_printf(&devices, "%s%s", i ? ", " : "", report.device);
    tu__trainer_report(t, TU_TRAIN_BEGUN, tu__text_string(&devices));
    tu__text_free(&devices);
}

tu_status tu__trainer_run(tu__trainer *t, tu_train_result *result) {
    t->start_time = tu__now();
    t->first_step = t->waited_step = t->progress.step;
    t->seconds_before = t->progress.seconds;
    update_report(t);
    report_start(t);
    tu_status status = train_loop(t);
    if (status == TU_OK)
        TU_TRY(tu__train_stack_leave(t));
    else
        tu__train_stack_abandon(t);
    TU_TRY(status);
    update_report(t);
    return result ? summarize(t, result) : TU_OK;
}

tu_status tu_train_with(const char *model, const char *data, tu_train_result *result,
                        const tu_train_options *options) {
    tu__trainer trainer;
    tu_train_result full = TU_SIZED(tu_train_result);
    if (result) TU_TRY(TU__CHECK_SIZED(tu_train_result, result));
    TU__OPTIONS(tu_train_options, given, options);
    if (given.stack && *given.stack)
        return tu_fail(TU_INVALID,
                       "--stack '%.60s' without --ensemble: one network has nothing to be stacked with",
                       given.stack);
    if (given.snapshots > 0)
        return tu_fail(TU_INVALID,
                       "--snapshots without --ensemble: expected --ensemble N, the number of snapshots");
    tu_status status = tu__trainer_begin(&trainer, model, data, options, NULL);
    status = tu__ranks_agree(&trainer, status);
    if (status == TU_OK) {
        status = tu__trainer_run(&trainer, result ? &full : NULL);
        status = tu__ranks_end(&trainer, status);
    }
    if (status == TU_OK && result) TU__COPY_SIZED(result, full);
    tu__trainer_end(&trainer);
    return status;
}
