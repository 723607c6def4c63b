/* tu_evaluate: a run's network over test images, with the confusion matrix that training does not need; or all networks
 * of an ensemble, each by itself and together: the class of an image is then the one of the highest mean probability. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "graph/graph.h"
#include "train/average_answers.h"
#include "train/ensemble.h"
#include "train/evaluator.h"
#include "train/trained.h"

typedef struct evaluation { /* what a tu_evaluation stands on */
    tu__arena arena;        /* what the configuration's strings live in */
    tu__run_config config;  /* of the run, or of the ensemble */
    tu__trained trained;    /* the network of the run, or of the member at hand */
    tu_dataset *opened;
    const tu_dataset *set;
    int64_t *confusion;
    tu_member_score *members; /* of an ensemble */
    tu__answers answers;      /* likewise: the sum of all of theirs */
} evaluation;

static tu_status open_set(evaluation *e, const tu_trained_options *o) {
    const tu_dataset_info *own = &e->config.set;
    const char *data = o->data ? o->data : e->config.data;
    e->set = o->set;
    if (e->set && !o->skip_bad && !o->ignore_label) return TU_OK;
    if (e->set)
        return tu_fail(TU_INVALID, "%s with a set of the program's own: expected one that 'data' names",
                       o->skip_bad ? "--skip-bad" : "--ignore-label");
    if (!*data)
        return tu_fail(TU_INVALID,
                       "the run was trained on a set given by a program: expected --data with another");
    bool ignores, same = !o->data || strcmp(data, e->config.data) == 0;
    const char *ignored = o->ignore_label ? o->ignore_label : same ? e->config.settings.ignore_label : NULL;
    int64_t label;
    TU_TRY(tu__read_ignore_label(ignored, &ignores, &label));
    TU_TRY(tu_dataset_open(data, &e->opened, .height = own->height, .width = own->width,
                           .offline = o->offline, .validation = own->validation > 0,
                           .skip_bad = o->skip_bad || (same && e->config.settings.skip_bad),
                           .ignore_label = ignores ? &label : NULL));
    e->set = e->opened;
    return TU_OK;
}

/* Whether the network can be asked about the set's images, and its answers be compared with the labels. */
static tu_status check_set(const tu_dataset_info *own, const tu_dataset_info *set) {
    if (set->height != own->height || set->width != own->width || set->channels != own->channels ||
        set->dtype != own->dtype)
        return tu_fail(TU_INVALID,
                       "set '%s' has images %s [%" PRId64 ",%" PRId64 ",%" PRId64 "]: expected %s [%" PRId64
                       ",%" PRId64 ",%" PRId64 "] as the run was trained on",
                       set->name, tu_dtype_name(set->dtype), set->height, set->width, set->channels,
                       tu_dtype_name(own->dtype), own->height, own->width, own->channels);
    bool same = set->classes == own->classes;
    for (int64_t i = 0; same && i < own->classes; i++)
        same = strcmp(set->class_names[i], own->class_names[i]) == 0;
    if (!same)
        return tu_fail(TU_INVALID, "set '%s' has other classes than '%s', on which the run was trained%s%s",
                       set->name, own->name, set->notice ? "; " : "", set->notice ? set->notice : "");
    if (set->count[TU_TEST] == 0)
        return tu_fail(TU_INVALID, "set '%s' has no test images to evaluate on", set->name);
    return TU_OK;
}

/* ---- One network ---- */

/* The network of a run, or of one member: what can be wrong with its files is told before a set is opened. */
static tu_status open_network(evaluation *e, const char *folder, int64_t number,
                              const tu_trained_options *o) {
    tu__trained_close(&e->trained);
    if (!e->config.members) return tu__trained_open(folder, "evaluate", o, &e->trained);
    tu_status status = tu__trained_open(tu__member_folder(folder, number).text, "evaluate", o, &e->trained);
    return status == TU_OK ? TU_OK : tu_fail(status, "member %" PRId64 ": %s", number, tu_message());
}

static tu_status score_network(const evaluation *e, tu__score *score) {
    tu__evaluator evaluator = {0};
    const tu__trained *t = &e->trained;
    tu_status status = tu__evaluator_open(t->graph, &t->config, score->probabilities != NULL, &evaluator);
    if (status == TU_OK) status = tu__evaluator_run(&evaluator, t->state, e->set, 0, score);
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

/* The share of the largest class: every image stands in the row of its own. */
static double share_of_largest(const tu_evaluation *e) {
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
    tu__score score = {.probabilities = e->answers.latest, .labels = e->answers.labels};
    tu_member_score *member = &e->members[number];
    if (number > 0) TU_TRY(open_network(e, folder, number, o));
    tu_status status = score_network(e, &score);
    if (status != TU_OK) return tu_fail(status, "member %" PRId64 ": %s", number, tu_message());
    member->step = e->trained.progress.step;
    member->loss = score.loss;
    member->accuracy = (double)score.correct / (double)score.images;
    member->top5 = (double)score.top5 / (double)score.images;
    tu__answers_add(&e->answers);
    return TU_OK;
}

static tu_status evaluate_ensemble(evaluation *e, const char *folder, const tu_trained_options *o,
                                   tu_evaluation *result) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(tu_dataset_describe(e->set, &info));
    int64_t count = e->config.members;
    e->members = tu__alloc_array((size_t)count, sizeof *e->members, "the scores of an ensemble");
    if (!e->members) return TU_NO_MEMORY;
    TU_TRY(tu__answers_new(info.count[TU_TEST], info.classes, &e->answers));
    for (int64_t i = 0; i < count; i++) TU_TRY(add_member(e, folder, i, o));
    tu__score score = {.confusion = e->confusion};
    tu__answers_score(&e->answers, &score);
    result->step = e->members[0].step;
    result->images = score.images;
    result->loss = score.loss;
    result->accuracy = (double)score.correct / (double)score.images;
    result->top5 = (double)score.top5 / (double)score.images;
    result->member_count = count;
    return TU_OK;
}

/* ---- Either ---- */

static tu_status evaluate(evaluation *e, const char *folder, const tu_trained_options *o,
                          tu_evaluation *result) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(tu__run_config_load(folder, &e->arena, &e->config));
    TU_TRY(open_network(e, folder, 0, o));
    TU_TRY(open_set(e, o));
    TU_TRY(tu_dataset_describe(e->set, &info));
    TU_TRY(check_set(&e->config.set, &info));
    size_t classes = (size_t)info.classes;
    e->confusion = tu__alloc_array(classes * classes, sizeof *e->confusion, "the confusion matrix");
    if (!e->confusion) return TU_NO_MEMORY;
    *result = (tu_evaluation){.set = tu__arena_string(&e->arena, info.name),
                              .classes = info.classes,
                              .class_names = e->config.set.class_names,
                              .confusion = e->confusion,
                              .internal = e,
                              .skipped = info.skipped,
                              .ignored = info.ignored};
    if (!result->set) return TU_NO_MEMORY;
    TU_TRY(e->config.members ? evaluate_ensemble(e, folder, o, result) : evaluate_run(e, result));
    result->largest = share_of_largest(result);
    return TU_OK;
}

static void free_evaluation(evaluation *e) {
    tu__trained_close(&e->trained);
    tu_dataset_free(e->opened);
    tu__answers_free(&e->answers);
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
        TU__GIVE_SIZED(result, full);
    else
        free_evaluation(e);
    return status;
}

tu_status tu_evaluation_member(const tu_evaluation *result, int64_t index, tu_member_score *score) {
    const evaluation *e = result->internal;
    TU_TRY(TU__CHECK_SIZED(tu_member_score, score));
    if (index < 0 || index >= result->member_count)
        return tu_fail(TU_NOT_FOUND, "the evaluation has %" PRId64 " members: there is no number %" PRId64,
                       result->member_count, index);
    TU__GIVE_SIZED(score, e->members[index]);
    return TU_OK;
}

void tu_evaluation_free(tu_evaluation *result) {
    if (result->internal) free_evaluation(result->internal);
    tu__clear_sized(result);
}
