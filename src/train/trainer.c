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

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/disk.h"
#include "base/sized.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "train/compile_options.h"
#include "train/diagnose.h"
#include "train/ranks.h"
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
    return t->config.dataset.count[TU_TEST] > 0 && t->progress.test_step != t->progress.step &&
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
    TU_TRY(tu__snapshot_take(t->state, &t->snapshot));
    return tu__checkpoint_save(t->folder.path, best, &t->config, &t->snapshot, &t->progress);
}

static tu_status write_checkpoint(tu__trainer *t) {
    if (!tu__is_writer(t)) return TU_OK;
    t->progress.seconds = t->seconds_before + tu__now() - t->start_time;
    tu__metrics_flush(t->metrics);
    TU_TRY(write_state(t, false));
    return tu__checkpoint_prune(t->folder.path, t->progress.step, t->config.settings.keep);
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
    bool removed =
        tu__disk_in_use()->unlink(tu__path_in(t->folder.path, "checkpoints/best.safetensors").text) == 0;
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

/* Records an accuracy. Returns true if it is the best so far; the caller saves the state after reporting it. Sets
 * stopped_early if the accuracy has stalled. */
static bool record_accuracy(tu__trainer *t, double accuracy) {
    tu__progress *p = &t->progress;
    bool best = p->best_step < 0 || accuracy > p->best_accuracy;
    if (best) p->best_step = p->step, p->best_accuracy = accuracy;
    if (has_stalled(t)) p->stopped_early = 1;
    return best;
}

static tu_status validate(tu__trainer *t) {
    tu__score score = {0};
    tu__progress *p = &t->progress;
    TU_TRY(tu__evaluator_run(&t->evaluator, t->state, t->dataset, tu__validation_images(&t->config), &score));
    p->validation_step = p->step;
    t->report.validation_loss = p->validation_loss = score.loss;
    t->report.validation_accuracy = p->validation_accuracy = (double)score.correct / (double)score.images;
    t->report.validation_top5 = p->validation_top5 = (double)score.top5 / (double)score.images;
    p->validation_largest = score.largest;
    bool best = record_accuracy(t, p->validation_accuracy);
    report_evaluation(t, TU_TRAIN_VALIDATED);
    if (best) save_best(t);
    return TU_OK;
}

static tu_status test(tu__trainer *t) {
    tu__score score = {0};
    tu__progress *p = &t->progress;
    TU_TRY(tu__evaluator_run(&t->evaluator, t->state, t->dataset, 0, &score));
    p->test_step = p->step;
    t->report.test_loss = p->test_loss = score.loss;
    t->report.test_accuracy = p->test_accuracy = (double)score.correct / (double)score.images;
    t->report.test_top5 = p->test_top5 = (double)score.top5 / (double)score.images;
    p->test_largest = score.largest;
    bool best = t->config.selects_on_test && record_accuracy(t, p->test_accuracy);
    report_evaluation(t, TU_TRAIN_EVALUATED);
    if (best) save_best(t);
    return TU_OK;
}

/* Evaluates the validation split first: it may end the run, and then the test split is due. */
static tu_status evaluate(tu__trainer *t) {
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
        snprintf(image, sizeof image, ", training image %lld of the data set",
                 (long long)batch->indices[values->failed_first + finding.sample]);
    tu_fail(TU_NUMERIC, "step %lld: the loss or a gradient is not finite; first non-finite value: %s%s",
            (long long)t->progress.step + 1, finding.text, image);
    return save_and_fail(
        t, TU_NUMERIC, *image ? "; fix or remove that image" : "; try a lower --rate, --clip 1 or --warmup");
}

static tu_status read_images(const tu_dataset *dataset, const tu_batch *batch, unsigned char *images,
                             int32_t *labels) {
    for (int64_t i = 0; i < batch->count; i++)
        TU_TRY(tu_dataset_read(dataset, TU_TRAIN, batch->indices[i],
                               images + (size_t)i * dataset->image_bytes, &labels[i]));
    return TU_OK;
}

/* Reads the images first: the step selected them by index, or the other processes have read theirs. */
static tu_status read_and_diagnose_step(tu__trainer *t, tu_batch batch, const tu__step_values *values) {
    unsigned char *images =
        tu__alloc_aligned((size_t)batch.count * t->dataset->image_bytes, "the images of a non-finite step");
    int32_t *labels = tu__alloc_array((size_t)batch.count, sizeof *labels, "the labels of a non-finite step");
    tu_status status = images && labels ? read_images(t->dataset, &batch, images, labels) : TU_NO_MEMORY;
    batch.images = images;
    batch.labels = labels;
    status = status == TU_OK ? diagnose_step(t, &batch, values) : save_and_fail(t, status, "");
    tu__free_aligned(images);
    tu__free(labels);
    return status;
}

/* Fails after a step that was not finite, which all processes know. Rank 0 diagnoses the step: it has the variables with
 * every strategy. */
static tu_status fail_step(tu__trainer *t, const tu_batch *batch, const tu__step_values *values) {
    tu_status status = tu_fail(TU_NUMERIC, "step %lld: the loss or a gradient is not finite",
                               (long long)t->progress.step + 1);
    status = tu__ranks_agree(t, status);
    if (!tu__is_writer(t) || status == TU_LOST) return status;
    bool has_images = batch->images && !t->config.group;
    return has_images ? diagnose_step(t, batch, values) : read_and_diagnose_step(t, *batch, values);
}

/* Updates progress and report after a step. With loss scaling a skipped step may have a loss that is not finite; it
 * is not counted. */
static void count_step(tu__trainer *t, const tu_batch *batch, const tu__step_values *values) {
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
    if (!t->stepper.images)
        status = tu__ranks_agree(t, status); /* an image of one process may not be readable */
    if (status != TU_OK) return save_and_fail(t, status, "");
    status = tu__stepper_run(&t->stepper, t->state, &batch, &values);
    if (status != TU_OK) return add_step_to_error(t, status);
    if (!values.finite) return fail_step(t, &batch, &values);
    count_step(t, &batch, &values);
    return TU_OK;
}

/* Returns the program for the next steps, and in `*steps` the number of steps to submit. The last batch of an epoch
 * may be short and has its own program. */
static const tu__micro_batch *next_multi_step(const tu__trainer *t, int64_t *steps) {
    int64_t images = tu__training_images(&t->config), full = t->stepper.full.samples;
    int64_t full_batches = (images - t->progress.sample % images) / full, due = steps_until_due(t);
    *steps = due < t->multi_step.length ? due : t->multi_step.length;
    if (full_batches == 0) *steps = 1;
    if (full_batches > 0 && full_batches < *steps) *steps = full_batches;
    return full_batches ? &t->stepper.full : &t->stepper.short_batch;
}

static tu_status run_multi_step(tu__trainer *t, tu_loader *loader) {
    int64_t steps, completed;
    const tu__micro_batch *micro_batch = next_multi_step(t, &steps);
    tu_status status =
        tu__multi_step_loop_run(&t->multi_step, micro_batch, t->state, loader, steps, &completed);
    if (status != TU_OK) return completed ? add_step_to_error(t, status) : save_and_fail(t, status, "");
    for (int64_t i = 0; i < completed; i++) {
        tu__step_values values = tu__multi_step_loop_values(&t->multi_step, micro_batch, i);
        if (!values.finite) return fail_step(t, &t->multi_step.batches[i], &values);
        count_step(t, &t->multi_step.batches[i], &values);
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

static tu_status run_steps(tu__trainer *t, tu_loader *loader) {
    double start = tu__now();
    int64_t first = t->progress.step;
    TU_TRY(t->multi_step.stepper ? run_multi_step(t, loader) : run_step(t, loader));
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
        .indices_only = t->multi_step.images || t->stepper.images, .bootstrap = t->config.settings.bootstrap,
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
    TU_TRY(train_loop(t));
    update_report(t);
    return result ? summarize(t, result) : TU_OK;
}

tu_status tu_train_with(const char *model, const char *data, tu_train_result *result,
                        const tu_train_options *options) {
    tu__trainer trainer;
    tu_train_result full = TU_SIZED(tu_train_result);
    if (result) TU_TRY(TU__CHECK_SIZED(tu_train_result, result));
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
