/* The task "labels": several targets that are 0 or 1, such as the topics of an article.
 *
 * The network computes a logit for each label; the loss is the mean of their cross-entropies. A label is predicted if
 * its probability is above one half. */
#include <tutti/ops.h>

#include "graph/graph.h"
#include "train/task.h"

static tu_value targets(const tu_task_batch *b) {
    tu_value target = tu_task_target(b);
    if (tu_value_dtype(target) != TU_F32) target = tu_cast(target, TU_F32);
    return tu_value_shape(target).rank == 1 ? tu_expand_axis(target, 1) : tu_flatten(target);
}

/* -log(p) for the labels, -log(1 - p) for the others: softplus(z) - z t. */
static tu_value loss(const tu_task_batch *b, tu_value output) {
    tu_value logits = tu_cast(output, TU_F32);
    return tu_mean(tu_sub(tu_softplus(logits), tu_mul(logits, targets(b))), .axes = TU_AXES(1));
}

static void measure(const tu_task_batch *b, tu_value output) {
    tu_value wanted = targets(b), predicted = tu_cast(tu_greater_than(tu_cast(output, TU_F32), 0), TU_F32);
    tu_value correct = tu_cast(tu_equal(predicted, wanted), TU_F32);
    tu_task_sum(b, "correct", correct);
    tu_task_sum(b, "exact", tu_min(correct, .axes = TU_AXES(1)));
    tu_task_sum(b, "both", tu_mul(predicted, wanted));
    tu_task_sum(b, "predicted", predicted);
    tu_task_sum(b, "wanted", wanted);
}

/* F1 of a label is 2 both / (predicted + wanted); it is 0 for a label that is neither predicted nor wanted. */
static void report(const tu_task_totals *t) {
    tu_value n = tu_task_samples(t);
    tu_value both = tu_scale(tu_task_total(t, "both"), 2);
    tu_value all = tu_add(tu_task_total(t, "predicted"), tu_task_total(t, "wanted"));
    tu_task_metric(t, "f1", tu_mean(tu_div(both, tu_maximum(all, tu_number(all, 1)))), TU_HIGHER_IS_BETTER);
    tu_task_metric(t, "exact", tu_div(tu_task_total(t, "exact"), n), TU_HIGHER_IS_BETTER);
    tu_task_metric(t, "accuracy", tu_mean(tu_div(tu_task_total(t, "correct"), n)), TU_HIGHER_IS_BETTER);
}

static tu_value predict(const tu_task_batch *b, tu_value output) {
    (void)b;
    return tu_sigmoid(tu_cast(output, TU_F32));
}

const tu_task tu__task_labels = {.abi = TU_ABI,
                                 .struct_size = sizeof(tu_task),
                                 .name = "labels",
                                 .summary = "several targets that are 0 or 1",
                                 .loss = loss,
                                 .measure = measure,
                                 .report = report,
                                 .predict = predict};
