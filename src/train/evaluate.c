/* tu_evaluate: evaluates a run's network on test images, with a confusion matrix; or all networks of an ensemble,
 * each separately and averaged: the class of an image is then the one with the highest mean probability. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "graph/graph.h"
#include "train/classification_report.h"
#include "train/ensemble.h"
#include "train/ensemble_average.h"
#include "train/evaluator.h"
#include "train/run_graphs.h"
#include "train/task.h"
#include "train/test_data.h"
#include "train/trained_model.h"

typedef struct evaluation {    /* data behind a tu_evaluation */
    tu__arena arena;           /* holds the strings of `config` */
    tu__run_config config;     /* configuration of the run or the ensemble */
    tu__trained_model trained; /* network of the run or the current member */
    tu__test_data data;
    int64_t *confusion;
    tu_member_score *members;     /* scores of an ensemble's members */
    tu__ensemble_average average; /* average of an ensemble's members */
    float *probabilities;         /* of a run: [samples, classes] */
    int32_t *labels;
    tu_metric metrics[TU_MAX_METRICS + 3];
} evaluation;

enum { MAX_PROBABILITIES = 1 << 30 }; /* of which F1, AUC and calibration are computed */

/* ---- One network ---- */

/* Loads the network of a run, or of one member. Called before the data set is opened, so that errors in its files are
 * reported first. */
static tu_status open_network(evaluation *e, const char *folder, int64_t number,
                              const tu_trained_options *o) {
    tu__trained_model_close(&e->trained);
    if (!e->config.members) return tu__trained_model_open(folder, "evaluate", o, &e->trained);
    tu_status status =
        tu__trained_model_open(tu__member_folder(folder, number).text, "evaluate", o, &e->trained);
    return status == TU_OK ? TU_OK : tu_fail(status, "member %" PRId64 ": %s", number, tu_message());
}

static tu_status score_network(const evaluation *e, tu__score *score) {
    tu__evaluator evaluator = {0};
    const tu__trained_model *t = &e->trained;
    tu_status status =
        tu__evaluator_open(t->graph, t->metrics, &t->config, score->probabilities != NULL, &evaluator);
    if (status == TU_OK) status = tu__evaluator_run(&evaluator, t->state, e->data.set, 0, score);
    tu__evaluator_close(&evaluator);
    return status;
}

/* ---- Metrics ---- */

static void add_metric(evaluation *e, tu_evaluation *result, const char *name, double value) {
    tu_metric *m = &e->metrics[result->metric_count++];
    snprintf(m->name, sizeof m->name, "%s", name);
    m->value = value;
    result->metrics = e->metrics;
}

static tu_status add_classification(evaluation *e, tu_evaluation *result, const float *probabilities,
                                    const int32_t *labels) {
    tu__classification_report report;
    if (!probabilities) return TU_OK;
    TU_TRY(tu__report_classification(result->images, result->classes, e->confusion, probabilities, labels,
                                     &report));
    add_metric(e, result, "f1", report.f1);
    add_metric(e, result, "auc", report.auc);
    add_metric(e, result, "calibration_error", report.calibration_error);
    return TU_OK;
}

/* Allocates probabilities, unless the graph of an earlier version does not compute them. */
static tu_status prepare_probabilities(evaluation *e, const tu_dataset_info *info) {
    int64_t count;
    if (!tu__is_classification(&e->config) || !tu__has_output(e->trained.graph, "probability") ||
        __builtin_mul_overflow(info->count[TU_TEST], info->classes, &count) || count > MAX_PROBABILITIES)
        return TU_OK;
    e->probabilities =
        tu__alloc_array((size_t)count, sizeof *e->probabilities, "the probabilities of classes");
    e->labels = tu__alloc_array((size_t)info->count[TU_TEST], sizeof *e->labels, "the labels of samples");
    return e->probabilities && e->labels ? TU_OK : TU_NO_MEMORY;
}

static tu_status evaluate_run(evaluation *e, const tu_dataset_info *info, tu_evaluation *result) {
    TU_TRY(prepare_probabilities(e, info));
    tu__score score = {.confusion = e->confusion, .probabilities = e->probabilities, .labels = e->labels};
    TU_TRY(score_network(e, &score));
    result->step = e->trained.progress.step;
    result->images = score.images;
    result->loss = score.loss;
    result->accuracy = (double)score.correct / (double)score.images;
    result->top5 = (double)score.top5 / (double)score.images;
    for (size_t i = 0; i < e->config.metric_count; i++)
        add_metric(e, result, e->config.metrics[i].name, score.metrics[i]);
    return add_classification(e, result, e->probabilities, e->labels);
}

/* Returns the fraction of the images in the largest class. Row i of the confusion matrix contains the images of class
 * i. */
static double largest_fraction(const tu_evaluation *e) {
    int64_t largest = 0;
    for (int64_t i = 0; i < e->classes; i++) {
        int64_t images = 0;
        for (int64_t j = 0; j < e->classes; j++) images += e->confusion[i * e->classes + j];
        if (images > largest) largest = images;
    }
    return (double)largest / (double)e->images;
}

/* ---- An ensemble ---- */

static tu_status add_member(evaluation *e, const char *folder, int64_t number, const tu_trained_options *o) {
    tu__score score = {.probabilities = e->average.latest, .labels = e->average.labels};
    tu_member_score *member = &e->members[number];
    if (number > 0) TU_TRY(open_network(e, folder, number, o));
    tu_status status = score_network(e, &score);
    if (status != TU_OK) return tu_fail(status, "member %" PRId64 ": %s", number, tu_message());
    member->step = e->trained.progress.step;
    member->loss = score.loss;
    member->accuracy = (double)score.correct / (double)score.images;
    member->top5 = (double)score.top5 / (double)score.images;
    tu__ensemble_average_add(&e->average);
    return TU_OK;
}

static tu_status evaluate_ensemble(evaluation *e, const char *folder, const tu_trained_options *o,
                                   tu_evaluation *result) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(tu_dataset_describe(e->data.set, &info));
    int64_t count = e->config.members;
    e->members = tu__alloc_array((size_t)count, sizeof *e->members, "the scores of an ensemble");
    if (!e->members) return TU_NO_MEMORY;
    TU_TRY(tu__ensemble_average_new(info.count[TU_TEST], info.classes, &e->average));
    for (int64_t i = 0; i < count; i++) TU_TRY(add_member(e, folder, i, o));
    tu__score score = {.confusion = e->confusion};
    tu__ensemble_average_score(&e->average, &score);
    result->step = e->members[0].step;
    result->images = score.images;
    result->loss = score.loss;
    result->accuracy = (double)score.correct / (double)score.images;
    result->top5 = (double)score.top5 / (double)score.images;
    result->member_count = count;
    add_metric(e, result, "accuracy", result->accuracy);
    add_metric(e, result, "top5", result->top5);
    const double *sums = e->average.sums;
    for (int64_t i = 0; i < score.images * info.classes; i++)
        e->average.latest[i] = (float)(sums[i] / (double)count);
    result->disagreement = tu__ensemble_average_disagreement(&e->average);
    result->calibration_error = tu__ensemble_average_calibration_error(&e->average);
    return add_classification(e, result, e->average.latest, e->average.labels);
}

/* ---- Run or ensemble ---- */

static tu_status evaluate(evaluation *e, const char *folder, const tu_trained_options *o,
                          tu_evaluation *result) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(tu__run_config_load(folder, &e->arena, &e->config));
    TU_TRY(open_network(e, folder, 0, o));
    TU_TRY(tu__test_data_open(&e->config, o, &e->data));
    TU_TRY(tu_dataset_describe(e->data.set, &info));
    size_t classes = tu__is_classification(&e->config) ? (size_t)info.classes : 0;
    if (classes) {
        e->confusion = tu__alloc_array(classes * classes, sizeof *e->confusion, "the confusion matrix");
        if (!e->confusion) return TU_NO_MEMORY;
    } else if (e->config.members) {
        return tu_fail(TU_UNSUPPORTED,
                       "an ensemble of the task '%s' cannot be evaluated: expected classification",
                       e->config.task);
    }
    *result = (tu_evaluation){.set = tu__arena_string(&e->arena, info.name),
                              .classes = (int64_t)classes,
                              .task = e->config.task,
                              .samples = tu__samples_name(&e->config),
                              .class_names = e->config.dataset.class_names,
                              .confusion = e->confusion,
                              .internal = e,
                              .skipped = info.skipped,
                              .ignored = info.ignored};
    if (!result->set) return TU_NO_MEMORY;
    TU_TRY(e->config.members ? evaluate_ensemble(e, folder, o, result) : evaluate_run(e, &info, result));
    if (classes) result->largest_class = largest_fraction(result);
    return TU_OK;
}

static void free_evaluation(evaluation *e) {
    tu__trained_model_close(&e->trained);
    tu__test_data_close(&e->data);
    tu__ensemble_average_free(&e->average);
    tu__free(e->members);
    tu__free(e->confusion);
    tu__free(e->probabilities);
    tu__free(e->labels);
    tu__arena_free(&e->arena);
    tu__free(e);
}

tu_status tu_evaluate_with(const char *folder, tu_evaluation *result, const tu_trained_options *options) {
    TU__OPTIONS(tu_trained_options, o, options);
    TU_TRY(TU__CHECK_SIZED(tu_evaluation, result));
    tu__clear_sized(result);
    tu_evaluation full = TU_SIZED(tu_evaluation);
    evaluation *e = tu__alloc(sizeof *e, "an evaluation");
    if (!e) return TU_NO_MEMORY;
    e->arena.purpose = "a run's configuration";
    tu_status status = evaluate(e, folder, &o, &full);
    if (status == TU_OK)
        TU__COPY_SIZED(result, full);
    else
        free_evaluation(e);
    return status;
}

tu_status tu_evaluation_member(const tu_evaluation *result, int64_t index, tu_member_score *score) {
    const evaluation *e = result->internal;
    TU_TRY(TU__CHECK_SIZED(tu_member_score, score));
    if (index < 0 || index >= result->member_count)
        return tu_fail(TU_NOT_FOUND,
                       "member index %" PRId64 " is out of range: the evaluation has %" PRId64
                       " members, counted from 0",
                       index, result->member_count);
    TU__COPY_SIZED(score, e->members[index]);
    return TU_OK;
}

void tu_evaluation_free(tu_evaluation *result) {
    if (result->internal) free_evaluation(result->internal);
    tu__clear_sized(result);
}
