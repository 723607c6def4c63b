/* The task "classification": one class of several, of a picture or a row.
 *
 * The loss is the cross-entropy, times the weight of the class with --class-weights. The evaluation graph returns more
 * than sums (step_graphs.c): classes and probabilities, from which `tutti eval` computes F1, AUC and calibration. */
#include <tutti/ops.h>

#include "base/alloc.h"
#include "graph/graph.h"
#include "train/task.h"

static tu_value class_weights(const tu_task_batch *b, tu_value labels) {
    const tu__run_config *c = b->config;
    int64_t classes = c->dataset.classes;
    float *weights = tu__alloc_array((size_t)classes, sizeof *weights, "the weights of classes");
    if (!weights) return tu__graph_fail(b->graph, TU_NO_MEMORY, "%s", tu_message());
    for (int64_t i = 0; i < classes; i++) weights[i] = (float)c->class_weights[i];
    tu_value table = tu_constant(b->graph, TU_F32, TU_SHAPE(classes), weights);
    tu__free(weights);
    return tu_gather(table, labels, 0);
}

static tu_value loss(const tu_task_batch *b, tu_value logits) {
    tu_task_setting s = TU_SIZED(tu_task_setting);
    if (tu_task_describe(b, &s) != TU_OK) return tu__graph_fail(b->graph, TU_INTERNAL, "%s", tu_message());
    tu_value labels = tu_task_target(b);
    tu_value entropy = tu_cross_entropy(logits, labels, .smoothing = s.label_smoothing);
    bool weighted = b->use == TU__TASK_STEP && b->config->class_weights;
    return weighted ? tu_mul(entropy, class_weights(b, labels)) : entropy;
}

static tu_value predict(const tu_task_batch *b, tu_value logits) {
    (void)b;
    return tu_softmax(tu_cast(logits, TU_F32), -1);
}

const tu_task tu__task_classification = {.abi = TU_ABI,
                                         .struct_size = sizeof(tu_task),
                                         .name = "classification",
                                         .summary = "one class of several, of pictures or rows",
                                         .loss = loss,
                                         .predict = predict};
