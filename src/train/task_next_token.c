/* The task "next-token": the next token at every position of a window, from logits [n, context, vocabulary].
 *
 * The loss is the mean cross-entropy of the positions; perplexity is its exponential over all windows. */
#include <tutti/ops.h>

#include "graph/graph.h"
#include "train/task.h"

static tu_value loss(const tu_task_batch *b, tu_value logits) {
    tu_task_setting s = TU_SIZED(tu_task_setting);
    if (tu_task_describe(b, &s) != TU_OK) return tu__graph_fail(b->graph, TU_INTERNAL, "%s", tu_message());
    return tu_mean(tu_cross_entropy(logits, tu_task_target(b), .smoothing = s.label_smoothing),
                   .axes = TU_AXES(1));
}

static void measure(const tu_task_batch *b, tu_value logits) {
    tu_value correct = tu_equal(tu_argmax(logits, -1), tu_cast(tu_task_target(b), TU_I64));
    tu_task_sum(b, "correct", tu_mean(tu_cast(correct, TU_F32), .axes = TU_AXES(1)));
}

static void report(const tu_task_totals *t) {
    tu_task_metric(t, "perplexity", tu_exp(tu_task_loss(t)), TU_LOWER_IS_BETTER);
    tu_task_metric(t, "accuracy", tu_div(tu_task_total(t, "correct"), tu_task_samples(t)),
                   TU_HIGHER_IS_BETTER);
}

/* The probabilities of the token that follows the window. */
static tu_value predict(const tu_task_batch *b, tu_value logits) {
    (void)b;
    int64_t context = tu_value_shape(logits).dim[1];
    tu_value last = tu_squeeze_axis(tu_slice(logits, 1, context - 1, context, 1), 1);
    return tu_softmax(tu_cast(last, TU_F32), -1);
}

const tu_task tu__task_next_token = {.abi = TU_ABI,
                                     .struct_size = sizeof(tu_task),
                                     .name = "next-token",
                                     .summary = "the next token at every position of a window",
                                     .loss = loss,
                                     .measure = measure,
                                     .report = report,
                                     .predict = predict};
