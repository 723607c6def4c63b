/* Softmax and cross-entropy.
 *
 * All subtract the largest element of the row first, so that no exponential overflows. Cross-entropy computes the
 * log-softmax of the logits; its gradient is softmax minus target distribution: the operation cross_entropy_grad for
 * class indices without smoothing, composed of other operations for all other labels.
 *
 * With label smoothing s over k classes the target is (1 - s) t + s / k (Szegedy et al. 2016). A class index outside
 * [0, k) masks its row: loss and gradient are zero. */
#include <inttypes.h>
#include <math.h>

#include <tutti/ops.h>

#include "base/number.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* ---- Softmax and log-softmax ---- */

static tu_status softmax_shape(tu__rule *rule, int64_t axis) {
    tu_type in = rule->in[0];
    if (!tu_dtype_is_float(in.dtype))
        return tu__rule_fail(rule, "x (input 0) has type %s, expected a float type (convert with tu_cast)",
                             tu_dtype_name(in.dtype));
    if (axis < 0 || axis >= in.shape.rank) return tu__rule_fail_axis(rule, axis);
    rule->out[0] = in;
    return TU_OK;
}

tu_status tu__softmax_shape(tu__rule *rule) {
    return softmax_shape(rule, ((const struct tu__softmax_attrs *)rule->attrs)->axis);
}

tu_status tu__log_softmax_shape(tu__rule *rule) {
    return softmax_shape(rule, ((const struct tu__log_softmax_attrs *)rule->attrs)->axis);
}

/* Returns max + log(sum(exp(x - max))) of `count` numbers, `stride` apart. */
static double log_sum_exp(const double *x, int64_t count, int64_t stride) {
    double maximum = -INFINITY, sum = 0;
    for (int64_t i = 0; i < count; i++) maximum = fmax(maximum, x[i * stride]);
    if (!isfinite(maximum)) return maximum;
    for (int64_t i = 0; i < count; i++) sum += exp(x[i * stride] - maximum);
    return maximum + log(sum);
}

static tu_status softmax_reference(const tu__reference_call *m, int64_t axis, bool logarithm) {
    tu__lanes lanes = tu__lanes_of(m->in[0].type.shape, axis);
    for (int64_t o = 0; o < lanes.outer; o++)
        for (int64_t k = 0; k < lanes.inner; k++) {
            int64_t start = o * lanes.size * lanes.inner + k;
            const double *x = m->in[0].data + start;
            double *y = m->out[0].data + start, log_sum = log_sum_exp(x, lanes.size, lanes.inner);
            for (int64_t i = 0; i < lanes.size; i++) {
                double log_y = x[i * lanes.inner] - log_sum;
                y[i * lanes.inner] = logarithm ? log_y : exp(log_y);
            }
        }
    return TU_OK;
}

tu_status tu__softmax_reference(const tu__reference_call *m) {
    return softmax_reference(m, ((const struct tu__softmax_attrs *)m->attrs)->axis, false);
}

tu_status tu__log_softmax_reference(const tu__reference_call *m) {
    return softmax_reference(m, ((const struct tu__log_softmax_attrs *)m->attrs)->axis, true);
}

static tu_value sum_along(tu_value x, int64_t axis) {
    return tu_sum(x, .axes = TU_AXES((int32_t)axis), .keep = true);
}

void tu__softmax_gradient(tu__vjp *v) { /* y (g - sum(g y)) */
    tu_value y = tu__vjp_output(v, 0), g = tu__vjp_gradient(v, 0);
    tu_value inner = sum_along(tu_mul(g, y), tu__attrs(v->node, softmax)->axis);
    tu__vjp_accumulate(v, 0, tu_mul(y, tu_sub(g, inner)));
}

void tu__log_softmax_gradient(tu__vjp *v) { /* g - exp(y) sum(g) */
    tu_value y = tu__vjp_output(v, 0), g = tu__vjp_gradient(v, 0);
    tu__vjp_accumulate(v, 0,
                       tu_sub(g, tu_mul(tu_exp(y), sum_along(g, tu__attrs(v->node, log_softmax)->axis))));
}

static tu_value expand_log_softmax(tu_value x, int64_t axis) {
    return tu_sub(x, tu_logsumexp(x, .axes = TU_AXES((int32_t)axis), .keep = true));
}

void tu__softmax_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    out[0] = tu_exp(expand_log_softmax(in[0], tu__attrs(node, softmax)->axis));
}

void tu__log_softmax_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    out[0] = expand_log_softmax(in[0], tu__attrs(node, log_softmax)->axis);
}

/* Maximum, difference, exponential, sum, quotient. */
int64_t tu__softmax_flops(const tu__node *node, const tu_type *in) {
    (void)node;
    return 5 * tu_shape_elements(in[0].shape);
}

int64_t tu__log_softmax_flops(const tu__node *node, const tu_type *in) {
    return tu__softmax_flops(node, in);
}

static tu_value build_softmax(tu_value x, int axis, tu__opcode op, const char *name) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_type type = tu_value_type(x);
    int64_t normalized = tu__normalize_axis(axis, type.shape.rank);
    if (normalized < 0) return tu__graph_fail_axis(name, x, axis);
    struct tu__softmax_attrs a = {.axis = normalized}; /* log_softmax has the same attributes */
    return tu__apply_list(op, &a, 1, &x);
}

tu_value tu_softmax(tu_value x, int axis) {
    return build_softmax(x, axis, TU__OP_SOFTMAX, "softmax");
}

tu_value tu_log_softmax(tu_value x, int axis) {
    return build_softmax(x, axis, TU__OP_LOG_SOFTMAX, "log_softmax");
}

/* ---- Cross-entropy: logits [..., k], labels [...] or [..., k] -> losses [...] ---- */

static bool is_sparse(tu_dtype labels) {
    return labels == TU_I32 || labels == TU_I64;
}

/* Checks the logits; sets `*rows` to their shape without the classes. */
static tu_status check_logits(const tu__rule *rule, tu_shape *rows) {
    tu_type logits = rule->in[0];
    if (!tu_dtype_is_float(logits.dtype))
        return tu__rule_fail(rule,
                             "the logits (input 0) are %s, expected a float type (convert with tu_cast)",
                             tu_dtype_name(logits.dtype));
    if (logits.shape.rank < 1)
        return tu__rule_fail(rule,
                             "the logits (input 0) are a scalar, expected at least 1 axis: [..., classes]");
    *rows = logits.shape;
    rows->dim[--rows->rank] = 0;
    return TU_OK;
}

static tu_status check_class_indices(const tu__rule *rule, tu_shape rows) {
    if (tu_shape_equal(rule->in[1].shape, rows)) return TU_OK;
    return tu__rule_fail(rule,
                         "the class indices (input 1) have shape %s, expected %s, one per row of logits",
                         tu__shape_string(rule->in[1].shape), tu__shape_string(rows));
}

tu_status tu__cross_entropy_shape(tu__rule *rule) {
    const struct tu__cross_entropy_attrs *a = rule->attrs;
    tu_type logits = rule->in[0], labels = rule->in[1];
    tu_shape rows = {0};
    TU_TRY(check_logits(rule, &rows));
    if (!(a->smoothing >= 0 && a->smoothing < 1))
        return tu__rule_fail(rule, "smoothing is %g, expected a number in [0, 1)", a->smoothing);
    if (is_sparse(labels.dtype))
        TU_TRY(check_class_indices(rule, rows));
    else if (labels.dtype != logits.dtype || !tu_shape_equal(labels.shape, logits.shape))
        return tu__rule_fail(
            rule, "the labels (input 1) are %s, expected class indices i32%s or i64%s, or probabilities %s",
            tu__type_string(labels), tu__shape_string(rows), tu__shape_string(rows), tu__type_string(logits));
    rule->out[0] = (tu_type){.dtype = logits.dtype, .shape = rows};
    return TU_OK;
}

/* Returns the target probability of class `i` of row `row`, before smoothing; -1 if the row is masked. */
static double target_of(const tu__tensor *labels, int64_t row, int64_t i, int64_t k) {
    if (!is_sparse(labels->type.dtype)) return labels->data[row * k + i];
    double label = labels->data[row];
    return label < 0 || label >= (double)k ? -1 : label == (double)i;
}

tu_status tu__cross_entropy_reference(const tu__reference_call *m) {
    double s = ((const struct tu__cross_entropy_attrs *)m->attrs)->smoothing;
    tu_shape shape = m->in[0].type.shape;
    int64_t k = shape.dim[shape.rank - 1], rows = tu_shape_elements(shape) / k;
    for (int64_t row = 0; row < rows; row++) {
        const double *x = m->in[0].data + row * k;
        double log_sum = log_sum_exp(x, k, 1), loss = 0;
        bool is_masked = is_sparse(m->in[1].type.dtype) && target_of(&m->in[1], row, 0, k) < 0;
        for (int64_t i = 0; i < k && !is_masked; i++) {
            double target = (1 - s) * target_of(&m->in[1], row, i, k) + s / (double)k;
            if (target != 0) loss -= target * (x[i] - log_sum);
        }
        m->out[0].data[row] = loss;
    }
    return TU_OK;
}

/* Builds the smoothed target distribution [..., k] in the type of the logits; zero in masked rows. */
static tu_value smoothed_target(tu_value logits, tu_value labels, double s) {
    tu_shape shape = tu_value_shape(logits);
    int64_t k = shape.dim[shape.rank - 1];
    tu_dtype dtype = tu_value_dtype(logits);
    bool sparse = is_sparse(tu_value_dtype(labels));
    tu_value target = sparse ? tu_one_hot(labels, k, dtype) : labels;
    if (s == 0) return target;
    target = tu_shift(tu_scale(target, 1 - s), s / (double)k);
    if (!sparse) return target;
    tu_value inside =
        tu_and(tu_greater_equal(labels, tu_number(labels, 0)), tu_less(labels, tu_number(labels, (double)k)));
    return tu_mul(target, tu_expand_axis(tu_cast(inside, dtype), -1));
}

/* softmax sum(target) - target */
static tu_value softmax_minus_target(tu_value logits, tu_value target) {
    tu_value target_sum = tu_sum(target, .axes = TU_AXES(-1), .keep = true);
    return tu_sub(tu_mul(tu_softmax(logits, -1), target_sum), target);
}

void tu__cross_entropy_gradient(tu__vjp *v) {
    double s = tu__attrs(v->node, cross_entropy)->smoothing;
    tu_value logits = tu__vjp_input(v, 0), labels = tu__vjp_input(v, 1);
    tu_value g = tu_expand_axis(tu__vjp_gradient(v, 0), -1);
    if (tu__vjp_needs_gradient(v, 0)) {
        bool is_plain = s == 0 && is_sparse(tu_value_dtype(labels));
        tu__vjp_accumulate(v, 0,
                           tu_mul(g, is_plain
                                         ? tu__apply(CROSS_ENTROPY_GRAD, NULL, logits, labels)
                                         : softmax_minus_target(logits, smoothed_target(logits, labels, s))));
    }
    if (tu__vjp_needs_gradient(v, 1))
        tu__vjp_accumulate(v, 1, tu_mul(tu_scale(g, s - 1), tu_log_softmax(logits, -1)));
}

void tu__cross_entropy_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    tu_value target = smoothed_target(in[0], in[1], tu__attrs(node, cross_entropy)->smoothing);
    out[0] = tu_neg(tu_sum(tu_mul(target, tu_log_softmax(in[0], -1)), .axes = TU_AXES(-1)));
}

int64_t tu__cross_entropy_flops(const tu__node *node, const tu_type *in) {
    return tu__softmax_flops(node, in) + 2 * tu_shape_elements(in[0].shape);
}

tu_value tu_cross_entropy_with(tu_value logits, tu_value labels, const tu_cross_entropy_options *options) {
    TU__OPTIONS(tu_cross_entropy_options, o, options);
    struct tu__cross_entropy_attrs a = {.smoothing = o.smoothing};
    return tu__apply(CROSS_ENTROPY, &a, logits, labels);
}

/* ---- The gradient of the cross-entropy with class indices, without smoothing ---- */

tu_status tu__cross_entropy_grad_shape(tu__rule *rule) {
    tu_shape rows = {0};
    TU_TRY(check_logits(rule, &rows));
    if (!is_sparse(rule->in[1].dtype))
        return tu__rule_fail(rule, "the labels (input 1) are %s, expected class indices i32%s or i64%s",
                             tu__type_string(rule->in[1]), tu__shape_string(rows), tu__shape_string(rows));
    TU_TRY(check_class_indices(rule, rows));
    rule->out[0] = rule->in[0];
    return TU_OK;
}

/* Rounds the softmax as the operation softmax does. Multiplies masked rows by 0, which keeps NaN. */
tu_status tu__cross_entropy_grad_reference(const tu__reference_call *m) {
    tu_type type = m->in[0].type;
    int64_t k = type.shape.dim[type.shape.rank - 1], rows = tu_shape_elements(type.shape) / k;
    for (int64_t row = 0; row < rows; row++) {
        const double *x = m->in[0].data + row * k;
        double log_sum = log_sum_exp(x, k, 1), target_sum = target_of(&m->in[1], row, 0, k) < 0 ? 0 : 1;
        for (int64_t i = 0; i < k; i++) {
            double target = target_sum != 0 ? target_of(&m->in[1], row, i, k) : 0;
            m->out[0].data[row * k + i] = tu__round_to(type.dtype, exp(x[i] - log_sum)) * target_sum - target;
        }
    }
    return TU_OK;
}

void tu__cross_entropy_grad_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph, (void)node;
    out[0] = softmax_minus_target(in[0], smoothed_target(in[0], in[1], 0));
}

int64_t tu__cross_entropy_grad_flops(const tu__node *node, const tu_type *in) {
    return tu__softmax_flops(node, in) + tu_shape_elements(in[0].shape);
}

/* ---- Mean cross-entropy ---- */

static tu_value i64_scalar(tu_graph *graph, int64_t value) {
    return tu_constant(graph, TU_I64, TU_SCALAR, &value);
}

/* Builds the mean of the losses for which `counted` is true, 0 if there are none. Sums bf16 and f16 losses in
 * f32, because f16 would overflow. */
static tu_value mean_of_counted(tu_value losses, tu_value counted) {
    tu_dtype dtype = tu_value_dtype(losses), wide = tu__statistics_dtype(dtype);
    tu_value zero = tu_fill(losses.graph, wide, TU_SCALAR, 0),
             one = tu_fill(losses.graph, wide, TU_SCALAR, 1);
    tu_value sum = tu_sum(tu_select(counted, tu_cast(losses, wide), zero));
    return tu_cast(tu_div(sum, tu_maximum(tu_sum(tu_cast(counted, wide)), one)), dtype);
}

static tu_value scalar_like_losses(tu_value losses, double number) {
    return tu_fill(losses.graph, tu_value_type(losses).dtype, TU_SCALAR, number);
}

/* Composed of other operations, so that devices and graph files need no new operation. */
tu_value tu_mean_cross_entropy_with(tu_value logits, tu_value labels,
                                    const tu_mean_cross_entropy_options *options) {
    TU__OPTIONS(tu_mean_cross_entropy_options, o, options);
    tu_value losses = tu_cross_entropy(logits, labels, .smoothing = o.smoothing);
    if (!tu_ok(losses)) return losses;
    if (!is_sparse(tu_value_type(labels).dtype))
        return tu__graph_fail(losses.graph, TU_INVALID,
                              "mean_cross_entropy with labels '%s' %s: expected class indices, i32 or i64",
                              tu_value_name(labels), tu__type_string(tu_value_type(labels)));
    if (o.ignore_label != 0 && !o.ignore)
        return tu__graph_fail(losses.graph, TU_INVALID,
                              "mean_cross_entropy: .ignore_label is %" PRId64
                              ", but .ignore is not set: expected .ignore = true",
                              o.ignore_label);
    tu_shape shape = tu_value_shape(logits);
    tu_graph *graph = losses.graph;
    tu_value label = tu_cast(labels, TU_I64);
    tu_value inside = tu_and(tu_greater_equal(label, i64_scalar(graph, 0)),
                             tu_less(label, i64_scalar(graph, shape.dim[shape.rank - 1])));
    losses = tu_select(inside, losses, scalar_like_losses(losses, NAN));
    if (!o.ignore) return tu_mean(losses);
    return mean_of_counted(losses, tu_not_equal(label, i64_scalar(graph, o.ignore_label)));
}
