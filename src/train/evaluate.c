/* tu_evaluate: evaluates a run's network on test images, with a confusion matrix; or all networks of an ensemble,
 * each separately and averaged: the class of an image is then the one with the highest mean probability. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "graph/graph.h"
#include "train/ensemble.h"
#include "train/ensemble_average.h"
#include "train/evaluator.h"
#include "train/trained_model.h"

typedef struct evaluation {    /* data behind a tu_evaluation */
    tu__arena arena;           /* holds the strings of `config` */
    tu__run_config config;     /* configuration of the run or the ensemble */
    tu__trained_model trained; /* network of the run or the current member */
    tu_dataset *opened;
    const tu_dataset *dataset;
    int64_t *confusion;
    tu_member_score *members;     /* scores of an ensemble's members */
    tu__ensemble_average average; /* average of an ensemble's members */
} evaluation;

static tu_status open_dataset(evaluation *e, const tu_trained_options *o) {
    const tu_dataset_info *trained = &e->config.dataset;
    const char *data = o->data ? o->data : e->config.data;
    e->dataset = o->set;
    if (e->dataset && !o->skip_bad && !o->ignore_label) return TU_OK;
    if (e->dataset)
        return tu_fail(
            TU_INVALID,
            "%s has no effect on an open data set (.set): pass the option to tu_dataset_open, or name the data set with .data",
            o->skip_bad ? "--skip-bad" : "--ignore-label");
    if (!*data)
        return tu_fail(TU_INVALID,
                       "the run was trained on a data set passed by a program: name a data set with --data");
    bool ignores, same = !o->data || strcmp(data, e->config.data) == 0;
    const char *ignored = o->ignore_label ? o->ignore_label : same ? e->config.settings.ignore_label : NULL;
    int64_t label;
    TU_TRY(tu__read_ignore_label(ignored, &ignores, &label));
    TU_TRY(tu_dataset_open(data, &e->opened, .height = trained->height, .width = trained->width,
                           .offline = o->offline, .validation = trained->validation > 0,
                           .skip_bad = o->skip_bad || (same && e->config.settings.skip_bad),
                           .ignore_label = ignores ? &label : NULL));
    e->dataset = e->opened;
    return TU_OK;
}

/* Checks that the data set has the image type and the classes that the network was trained on. */
static tu_status check_dataset(const tu_dataset_info *trained, const tu_dataset_info *dataset) {
    if (dataset->height != trained->height || dataset->width != trained->width ||
        dataset->channels != trained->channels || dataset->dtype != trained->dtype)
        return tu_fail(TU_INVALID,
                       "data set '%s' has images %s [%" PRId64 ",%" PRId64 ",%" PRId64
                       "]: expected %s [%" PRId64 ",%" PRId64 ",%" PRId64 "], on which the run was trained",
                       dataset->name, tu_dtype_name(dataset->dtype), dataset->height, dataset->width,
                       dataset->channels, tu_dtype_name(trained->dtype), trained->height, trained->width,
                       trained->channels);
    bool same = dataset->classes == trained->classes;
    for (int64_t i = 0; same && i < trained->classes; i++)
        same = strcmp(dataset->class_names[i], trained->class_names[i]) == 0;
    if (!same)
        return tu_fail(TU_INVALID,
                       "data set '%s' has other classes than '%s', on which the run was trained%s%s",
                       dataset->name, trained->name, dataset->notice ? "; " : "",
                       dataset->notice ? dataset->notice : "");
    if (dataset->count[TU_TEST] == 0)
        return tu_fail(TU_INVALID, "data set '%s' has no test images", dataset->name);
    return TU_OK;
}

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
    tu_status status = tu__evaluator_open(t->graph, &t->config, score->probabilities != NULL, &evaluator);
    if (status == TU_OK) status = tu__evaluator_run(&evaluator, t->state, e->dataset, 0, score);
    tu__evaluator_close(&evaluator);
    return status;
}

static tu_status evaluate_run(evaluation *e, tu_evaluation *result) {
    tu__score score = {.confusion = e->confusion};
    TU_TRY(score_network(e, &score));
    result->step = e->trained.progress.step;
    result->images = score.images;
    result->loss = score.loss;
    result->accuracy = (double)score.correct / (double)score.images;
    result->top5 = (double)score.top5 / (double)score.images;
    return TU_OK;
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
    TU_TRY(tu_dataset_describe(e->dataset, &info));
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
    return TU_OK;
}

/* ---- Run or ensemble ---- */

static tu_status evaluate(evaluation *e, const char *folder, const tu_trained_options *o,
                          tu_evaluation *result) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(tu__run_config_load(folder, &e->arena, &e->config));
    TU_TRY(open_network(e, folder, 0, o));
    TU_TRY(open_dataset(e, o));
    TU_TRY(tu_dataset_describe(e->dataset, &info));
    TU_TRY(check_dataset(&e->config.dataset, &info));
    size_t classes = (size_t)info.classes;
    e->confusion = tu__alloc_array(classes * classes, sizeof *e->confusion, "the confusion matrix");
    if (!e->confusion) return TU_NO_MEMORY;
    *result = (tu_evaluation){.set = tu__arena_string(&e->arena, info.name),
                              .classes = info.classes,
                              .class_names = e->config.dataset.class_names,
                              .confusion = e->confusion,
                              .internal = e,
                              .skipped = info.skipped,
                              .ignored = info.ignored};
    if (!result->set) return TU_NO_MEMORY;
    TU_TRY(e->config.members ? evaluate_ensemble(e, folder, o, result) : evaluate_run(e, result));
    result->largest_class = largest_fraction(result);
    return TU_OK;
}

static void free_evaluation(evaluation *e) {
    tu__trained_model_close(&e->trained);
    tu_dataset_free(e->opened);
    tu__ensemble_average_free(&e->average);
    tu__free(e->members);
    tu__free(e->confusion);
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
