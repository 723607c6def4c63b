/* A user-defined task, with a network: predicts an interval instead of a number. Train it with
 *
 *     tutti train examples/quantiles.c --data houses.csv --target price
 *
 * The network has two outputs per row, the 10% and the 90% quantile of the target: one price in ten is below the first, and
 * one in ten above the second. The task's loss is the pinball loss, of which quantiles are the minimum; its metrics are the
 * fraction of targets inside the interval, which should be 0.8, and the mean width of the interval.
 *
 * `tutti predict` writes both numbers, in the unit of the target. docs/tasks.md explains the functions. */
#include <tutti/tutti.h>

static const double quantiles[] = {0.1, 0.9};

static tu_value build(tu_value x, const tu_network_options *o) {
    x = tu_dense(x, .units = o->base, .act = TU_RELU, .name = "hidden1");
    x = tu_dense(x, .units = o->base, .act = TU_RELU, .name = "hidden2");
    return tu_dense(x, .units = o->classes, .name = "quantiles"); /* [n, 2] */
}

TU_NETWORK(.name = "quantile-net", .summary = "two dense layers and two quantiles",
           .defaults = TU_OPTIONS(tu_network_options, .features = 1, .classes = 2, .base = 64),
           .input = TU_TAKES_ROWS, .build = build);

static int64_t outputs(const tu_task_batch *b) {
    (void)b;
    return 2;
}

/* The pinball loss of a quantile q: q (t - y) if the target t is above the output y, else (1 - q) (y - t). */
static tu_value pinball(tu_value difference, double quantile) {
    return tu_maximum(tu_scale(difference, quantile), tu_scale(difference, quantile - 1));
}

static tu_value output_of(tu_value output, int64_t index) {
    return tu_squeeze_axis(tu_slice(output, 1, index, index + 1, 1), 1); /* [n, 2] -> [n] */
}

/* A network learns numbers around 0 of size 1 best, whatever the unit of the target is. */
static tu_value target(const tu_task_batch *b) {
    return tu_task_standardize(b, tu_task_target(b));
}

static tu_value loss(const tu_task_batch *b, tu_value output) {
    tu_value low = tu_sub(target(b), output_of(output, 0)), high = tu_sub(target(b), output_of(output, 1));
    return tu_add(pinball(low, quantiles[0]), pinball(high, quantiles[1]));
}

static void measure(const tu_task_batch *b, tu_value output) {
    tu_value low = output_of(output, 0), high = output_of(output, 1), t = target(b);
    tu_task_sum(b, "inside", tu_cast(tu_and(tu_greater_equal(t, low), tu_less_equal(t, high)), TU_F32));
    tu_task_sum(b, "width", tu_sub(tu_task_unstandardize(b, high), tu_task_unstandardize(b, low)));
}

static void report(const tu_task_totals *t) {
    tu_value n = tu_task_samples(t);
    tu_task_metric(t, "pinball", tu_task_loss(t), TU_LOWER_IS_BETTER); /* selects the best state */
    tu_task_metric(t, "inside", tu_div(tu_task_total(t, "inside"), n), TU_HIGHER_IS_BETTER);
    tu_task_metric(t, "width", tu_div(tu_task_total(t, "width"), n), TU_LOWER_IS_BETTER);
}

static tu_value predict(const tu_task_batch *b, tu_value output) {
    return tu_task_unstandardize(b, output);
}

TU_TASK(.name = "quantiles", .summary = "the 10% and 90% quantiles of a number", .outputs = outputs,
        .loss = loss, .measure = measure, .report = report, .predict = predict);
