/* The task "regression": one or several numbers.
 *
 * The network learns the targets minus their mean, divided by their standard deviation, with the mean squared error; so
 * the learning rate does not depend on their unit. Metrics are in the unit of the targets: errors are summed in units of the
 * deviation, since squares of very large or small numbers do not fit into f32, and converted in f64. R2 is averaged over
 * the targets; it is 0, as in scikit-learn, for a target that is the same in all rows. */
#include <tutti/ops.h>

#include "base/alloc.h"
#include "graph/graph.h"
#include "train/task.h"

static tu_value numbers(const tu_task_batch *b, bool means) {
    const tu__column *target = tu__columns_target(&b->config->columns);
    int64_t count = target ? tu_shape_elements(target->type.shape) : 1;
    float *values = tu__alloc_array((size_t)count, sizeof *values, "the targets of a table");
    if (!values) return tu__graph_fail(b->graph, TU_NO_MEMORY, "%s", tu_message());
    for (int64_t i = 0; i < count; i++) {
        const tu__field *f = target && target->field_count ? &target->fields[i] : NULL;
        double deviation = f && f->deviation > 0 ? f->deviation : 1;
        values[i] = (float)(means ? f ? f->mean : 0 : deviation);
    }
    tu_value value = tu_constant(b->graph, TU_F32, TU_SHAPE(count), values);
    tu__free(values);
    return value;
}

/* A constant [targets] that meets x [n] or [n, targets]. */
static tu_value along(const tu_task_batch *b, bool means, tu_value x) {
    tu_value constant = numbers(b, means);
    tu_shape s = tu_value_shape(constant);
    if (tu_value_shape(x).rank == 1 && s.dim[0] == 1) return tu_reshape(constant, TU_SCALAR);
    return constant;
}

tu_value tu_task_standardize(const tu_task_batch *b, tu_value x) {
    return tu_div(tu_sub(x, along(b, true, x)), along(b, false, x));
}

tu_value tu_task_unstandardize(const tu_task_batch *b, tu_value x) {
    return tu_add(tu_mul(x, along(b, false, x)), along(b, true, x));
}

/* [n] or [n, …] -> [n, targets] */
static tu_value targets(const tu_task_batch *b) {
    tu_value target = tu_task_target(b);
    if (tu_value_dtype(target) != TU_F32) target = tu_cast(target, TU_F32);
    return tu_value_shape(target).rank == 1 ? tu_expand_axis(target, 1) : tu_flatten(target);
}

static tu_value in_unit(const tu_task_batch *b, tu_value output) {
    return tu_task_unstandardize(b, tu_cast(output, TU_F32));
}

static tu_value loss(const tu_task_batch *b, tu_value output) {
    tu_value wanted = tu_task_standardize(b, targets(b));
    return tu_mean(tu_square(tu_sub(tu_cast(output, TU_F32), wanted)), .axes = TU_AXES(1));
}

static void measure(const tu_task_batch *b, tu_value output) {
    tu_value distance = tu_task_standardize(b, targets(b));
    tu_value error = tu_sub(tu_cast(output, TU_F32), distance);
    tu_task_sum(b, "absolute_error", tu_abs(error));
    tu_task_sum(b, "squared_error", tu_square(error));
    tu_task_sum(b, "distance", distance);
    tu_task_sum(b, "squared_distance", tu_square(distance));
}

/* The deviations that numbers() divides by, f64 [targets]. */
static tu_value deviations(const tu_task_totals *t) {
    const tu_task_batch batch = {.graph = t->graph, .config = t->config};
    return tu_cast(numbers(&batch, false), TU_F64);
}

static void report(const tu_task_totals *t) {
    tu_value n = tu_task_samples(t), unit = deviations(t), squared = tu_task_total(t, "squared_error");
    tu_value distance = tu_task_total(t, "distance");
    tu_value all = tu_task_total(t, "squared_distance");
    tu_value spread = tu_sub(all, tu_div(tu_square(distance), n));
    tu_value r2 = tu_shift(tu_neg(tu_div(squared, spread)), 1);
    /* Of rows with one and the same target the spread is a rounding error. */
    r2 = tu_select(tu_greater(spread, tu_scale(all, 1e-6)), r2, tu_number(r2, 0));
    tu_value absolute = tu_mul(tu_task_total(t, "absolute_error"), unit);
    tu_value in_unit_squared = tu_mul(tu_mul(squared, unit), unit);
    tu_task_metric(t, "rmse", tu_sqrt(tu_mean(tu_div(in_unit_squared, n))), TU_LOWER_IS_BETTER);
    tu_task_metric(t, "mae", tu_mean(tu_div(absolute, n)), TU_LOWER_IS_BETTER);
    tu_task_metric(t, "r2", tu_mean(r2), TU_HIGHER_IS_BETTER);
}

const tu_task tu__task_regression = {.abi = TU_ABI,
                                     .struct_size = sizeof(tu_task),
                                     .name = "regression",
                                     .summary = "one or several numbers",
                                     .loss = loss,
                                     .measure = measure,
                                     .report = report,
                                     .predict = in_unit};
