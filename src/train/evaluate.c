/* tu_evaluate: a run's network over test images, with the confusion matrix that training does not need. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "graph/graph.h"
#include "train/evaluator.h"
#include "train/trained.h"

typedef struct evaluation { /* what a tu_evaluation stands on */
    tu__trained trained;
    tu__evaluator evaluator;
    tu_dataset *opened;
    int64_t *confusion;
} evaluation;

static tu_status open_set(evaluation *e, const tu_trained_options *o, const tu_dataset **set) {
    const tu_dataset_info *own = &e->trained.config.set;
    const char *data = o->data ? o->data : e->trained.config.data;
    *set = o->set;
    if (*set) return TU_OK;
    if (!*data)
        return tu_fail(TU_INVALID,
                       "the run was trained on a set given by a program: expected --data with another");
    TU_TRY(
        tu_dataset_open(data, &e->opened, .height = own->height, .width = own->width, .offline = o->offline));
    *set = e->opened;
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
        return tu_fail(TU_INVALID, "set '%s' has other classes than '%s', on which the run was trained",
                       set->name, own->name);
    if (set->count[TU_TEST] == 0)
        return tu_fail(TU_INVALID, "set '%s' has no test images to evaluate on", set->name);
    return TU_OK;
}

static tu_status evaluate(evaluation *e, const char *folder, const tu_trained_options *o,
                          tu_evaluation *result) {
    tu__trained *trained = &e->trained;
    const tu_dataset *set;
    tu_dataset_info info;
    TU_TRY(tu__trained_open(folder, "evaluate", o, trained));
    TU_TRY(open_set(e, o, &set));
    tu_dataset_describe(set, &info);
    TU_TRY(check_set(&trained->config.set, &info));
    TU_TRY(tu__evaluator_open(trained->graph, &trained->config, &e->evaluator));
    size_t classes = (size_t)info.classes;
    e->confusion = tu__alloc_array(classes * classes, sizeof *e->confusion, "the confusion matrix");
    if (!e->confusion) return TU_NO_MEMORY;
    tu__score score = {.confusion = e->confusion};
    TU_TRY(tu__evaluator_run(&e->evaluator, trained->state, set, &score));
    *result = (tu_evaluation){.step = trained->progress.step,
                              .set = tu__arena_string(&trained->arena, info.name),
                              .images = score.images,
                              .classes = info.classes,
                              .loss = score.loss,
                              .accuracy = (double)score.correct / (double)score.images,
                              .top5 = (double)score.top5 / (double)score.images,
                              .class_names = trained->config.set.class_names,
                              .confusion = e->confusion,
                              .own = e};
    return result->set ? TU_OK : TU_NO_MEMORY;
}

static void free_evaluation(evaluation *e) {
    tu__evaluator_close(&e->evaluator);
    tu__trained_close(&e->trained);
    tu_dataset_free(e->opened);
    tu__free(e->confusion);
    tu__free(e);
}

tu_status tu_evaluate_with(const char *folder, tu_evaluation *result, const tu_trained_options *options) {
    TU__OPTIONS(tu_trained_options, o, options);
    *result = (tu_evaluation){0};
    evaluation *e = tu__alloc(sizeof *e, "an evaluation");
    if (!e) return TU_NO_MEMORY;
    tu_status status = evaluate(e, folder, &o, result);
    if (status == TU_OK) return TU_OK;
    free_evaluation(e);
    *result = (tu_evaluation){0};
    return status;
}

void tu_evaluation_free(tu_evaluation *result) {
    if (result->own) free_evaluation(result->own);
    *result = (tu_evaluation){0};
}
