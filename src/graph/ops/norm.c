/* Batch normalisation (Ioffe & Szegedy 2015) and layer normalisation (Ba et al. 2016).
 *
 * Both normalise sets of numbers to mean 0 and variance 1, then scale and shift them. With n numbers in a set:
 *
 *     x^ = (x - mean) r        r = 1 / sqrt(variance + epsilon), the inverse standard deviation,
 *                              with the biased variance (divided by n)
 *     y  = gamma x^ + beta
 *
 * Batch-norm views x as [rows, c]; each channel is a set (with `members`, each channel of each block of rows). Layer-norm views x as [rows, n]; each row is a set. With h
 * = gamma dy, and the means taken over the set:
 *
 *     dx = r (h - mean(h) - x^ mean(h x^))        dgamma = sum(dy x^)        dbeta = sum(dy)
 *
 * The saved statistics are inputs of the gradient operations, for the fast kernels. The gradients also depend on x
 * through the statistics; therefore the expansions compute the statistics from x, so that second derivatives are
 * complete, and the saved ones are treated as constants.
 *
 * The statistics of a bf16 or f16 x are f32: the rounding error of a large mean in bf16 or f16 can exceed the set's
 * standard deviation. They have the type of gamma and beta, so the builders cast these to f32. Graph files of an
 * earlier version contain parameters and statistics in half precision. For these, expansions and reference kernels,
 * which the CPU uses too, compute the statistics from x; GPU kernels use the saved ones. */
#include <inttypes.h>
#include <math.h>

#include <tutti/ops.h>

#include "base/number.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* ---- Shape rules ---- */

static bool is_half(tu_dtype dtype) {
    return dtype == TU_BF16 || dtype == TU_F16;
}

/* Gamma and beta have the type of x, or f32 for a half-precision x. */
static bool is_parameter_type_allowed(tu_dtype x, tu_dtype parameter) {
    return parameter == x || (is_half(x) && parameter == TU_F32);
}

static tu_status expect_float(const tu__rule *rule) {
    if (tu_dtype_is_float(rule->in[0].dtype)) return TU_OK;
    return tu__rule_fail(rule, "x (input 0) has type %s, expected a float type (convert with tu_cast)",
                         tu_dtype_name(rule->in[0].dtype));
}

/* Checks epsilon and gamma. `reason` explains the expected shape in the message. */
static tu_status check_common(const tu__rule *rule, double epsilon, tu_shape parameter_shape,
                              const char *reason) {
    tu_type x = rule->in[0], gamma = rule->in[1];
    if (!(epsilon > 0) || !isfinite(epsilon))
        return tu__rule_fail(rule, "epsilon is %g, expected a finite number above 0", epsilon);
    if (!is_parameter_type_allowed(x.dtype, gamma.dtype))
        return tu__rule_fail(
            rule, "gamma (input 1) has type %s, expected %s, the type of x%s (convert with tu_cast)",
            tu_dtype_name(gamma.dtype), tu_dtype_name(x.dtype), is_half(x.dtype) ? ", or f32" : "");
    if (!tu_shape_equal(gamma.shape, parameter_shape))
        return tu__rule_fail(rule, "gamma (input 1) has shape %s, expected %s, %s",
                             tu__shape_string(gamma.shape), tu__shape_string(parameter_shape), reason);
    return TU_OK;
}

static bool same_type(tu_type a, tu_type b) {
    return a.dtype == b.dtype && tu_shape_equal(a.shape, b.shape);
}

/* Checks that input `index`, called `name`, has the expected type. `like` explains that type in the message. */
static tu_status expect_type(const tu__rule *rule, uint32_t index, const char *name, tu_type expected,
                             const char *like) {
    if (same_type(rule->in[index], expected)) return TU_OK;
    return tu__rule_fail(rule, "%s (input %" PRIu32 ") is %s, expected %s, %s", name, index,
                         tu__type_string(rule->in[index]), tu__type_string(expected), like);
}

/* With `members`, x has as many blocks along its first axis, and gamma one block of channels for each of them. */
static tu_status batch_shape(const tu__rule *rule, double epsilon, int64_t scope, int64_t members) {
    tu_type x = rule->in[0];
    TU_TRY(expect_float(rule));
    if (x.shape.rank < 2)
        return tu__rule_fail(rule, "x (input 0) has rank %" PRId64 ", expected at least 2: [..., channels]",
                             x.shape.rank);
    if (scope < TU_SCOPE_GLOBAL || scope > TU_SCOPE_SHARD)
        return tu__rule_fail(
            rule, "scope is %" PRId64 ", expected TU_SCOPE_GLOBAL, TU_SCOPE_REPLICA or TU_SCOPE_SHARD",
            scope);
    int64_t channels = x.shape.dim[x.shape.rank - 1];
    if (members < 0 || (members > 0 && x.shape.dim[0] % members != 0))
        return tu__rule_fail(rule, "members is %" PRId64 ", expected 0 or a divisor of %" PRId64, members,
                             x.shape.dim[0]);
    if (members > 0 && __builtin_mul_overflow(channels, members, &channels))
        return tu__rule_fail(rule, "%" PRId64 " members are too many", members);
    return check_common(rule, epsilon, TU_SHAPE(channels), "one element per channel");
}

tu_status tu__batch_norm_shape(tu__rule *rule) {
    const struct tu__batch_norm_attrs *a = rule->attrs;
    TU_TRY(batch_shape(rule, a->epsilon, a->scope, a->members));
    TU_TRY(expect_type(rule, 2, "beta", rule->in[1], "the type of gamma"));
    rule->out[0] = rule->in[0];
    rule->out[1] = rule->out[2] = rule->in[1];
    return TU_OK;
}

tu_status tu__batch_norm_grad_shape(tu__rule *rule) {
    const struct tu__batch_norm_grad_attrs *a = rule->attrs;
    TU_TRY(batch_shape(rule, a->epsilon, a->scope, a->members));
    TU_TRY(expect_type(rule, 2, "the mean", rule->in[1], "the type of gamma"));
    TU_TRY(expect_type(rule, 3, "the variance", rule->in[1], "the type of gamma"));
    TU_TRY(expect_type(rule, 4, "the gradient", rule->in[0], "the type of x"));
    rule->out[0] = rule->in[0];
    rule->out[1] = rule->out[2] = rule->in[1];
    return TU_OK;
}

/* Return the axes before the normalised ones, and the normalised ones. */
static tu_shape leading(tu_shape shape, int64_t axes) {
    return tu_shape_of((size_t)(shape.rank - axes), shape.dim);
}

static tu_shape trailing(tu_shape shape, int64_t axes) {
    return tu_shape_of((size_t)axes, shape.dim + shape.rank - axes);
}

static tu_status layer_shape(const tu__rule *rule, double epsilon, int64_t axes) {
    tu_type x = rule->in[0];
    TU_TRY(expect_float(rule));
    if (x.shape.rank < 1) return tu__rule_fail(rule, "x (input 0) is a scalar, expected at least 1 axis");
    if (axes < 1 || axes > x.shape.rank)
        return tu__rule_fail(rule, "axes is %" PRId64 ", expected 1 to %" PRId64 ", the rank of x", axes,
                             x.shape.rank);
    return check_common(rule, epsilon, trailing(x.shape, axes), "the shape of the normalised axes");
}

tu_status tu__layer_norm_shape(tu__rule *rule) {
    const struct tu__layer_norm_attrs *a = rule->attrs;
    TU_TRY(layer_shape(rule, a->epsilon, a->axes));
    TU_TRY(expect_type(rule, 2, "beta", rule->in[1], "the type of gamma"));
    rule->out[0] = rule->in[0];
    rule->out[1] = rule->out[2] =
        (tu_type){.dtype = rule->in[1].dtype, .shape = leading(rule->in[0].shape, a->axes)};
    return TU_OK;
}

tu_status tu__layer_norm_grad_shape(tu__rule *rule) {
    const struct tu__layer_norm_grad_attrs *a = rule->attrs;
    TU_TRY(layer_shape(rule, a->epsilon, a->axes));
    tu_type statistics = {.dtype = rule->in[1].dtype, .shape = leading(rule->in[0].shape, a->axes)};
    TU_TRY(expect_type(rule, 2, "the mean", statistics, "the shape of x without the normalised axes"));
    TU_TRY(expect_type(rule, 3, "the inverse standard deviation", statistics,
                       "the shape of x without the normalised axes"));
    TU_TRY(expect_type(rule, 4, "the gradient", rule->in[0], "the type of x"));
    rule->out[0] = rule->in[0];
    rule->out[1] = rule->out[2] = rule->in[1];
    return TU_OK;
}

/* ---- Reference kernels. A set is `n` numbers, `stride` apart. ---- */

static void moments(const double *x, int64_t n, int64_t stride, double *mean, double *variance) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i * stride];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++) squares += (x[i * stride] - *mean) * (x[i * stride] - *mean);
    *variance = squares / (double)n;
}

/* Returns the saved statistics; computes them from x if the saved ones are in half precision. */
static void saved_moments(const tu__reference_call *m, const double *x, int64_t n, int64_t stride,
                          int64_t set, double *mean, double *variance) {
    if (is_half(m->in[2].type.dtype)) {
        moments(x, n, stride, mean, variance);
    } else {
        *mean = m->in[2].data[set];
        *variance = m->in[3].data[set];
    }
}

/* The sets of one member: `rows` rows of `c` channels. */
static void normalize_member(const tu__reference_call *m, double epsilon, int64_t member, int64_t rows,
                             int64_t c) {
    for (int64_t k = 0; k < c; k++) {
        int64_t set = member * c + k, first = member * rows * c + k;
        const double *x = m->in[0].data + first, gamma = m->in[1].data[set], beta = m->in[2].data[set];
        double *y = m->out[0].data + first, mean, variance;
        moments(x, rows, c, &mean, &variance);
        double r = 1 / sqrt(variance + epsilon);
        for (int64_t i = 0; i < rows; i++) y[i * c] = (x[i * c] - mean) * r * gamma + beta;
        m->out[1].data[set] = mean;
        m->out[2].data[set] = variance;
    }
}

static int64_t at_least_one(int64_t members) {
    return members ? members : 1;
}

tu_status tu__batch_norm_reference(const tu__reference_call *m) {
    const struct tu__batch_norm_attrs *a = m->attrs;
    tu_shape shape = m->in[0].type.shape;
    int64_t members = at_least_one(a->members), c = shape.dim[shape.rank - 1];
    int64_t rows = tu_shape_elements(shape) / c / members;
    for (int64_t i = 0; i < members; i++) normalize_member(m, a->epsilon, i, rows, c);
    return TU_OK;
}

static void member_gradient(const tu__reference_call *m, double epsilon, int64_t member, int64_t rows,
                            int64_t c) {
    for (int64_t k = 0; k < c; k++) {
        int64_t set = member * c + k, first = member * rows * c + k;
        const double *x = m->in[0].data + first, *dy = m->in[4].data + first;
        double gamma = m->in[1].data[set], mean, variance;
        double *dx = m->out[0].data + first, dgamma = 0, dbeta = 0;
        saved_moments(m, x, rows, c, set, &mean, &variance);
        double r = 1 / sqrt(variance + epsilon);
        for (int64_t i = 0; i < rows; i++) {
            dbeta += dy[i * c];
            dgamma += dy[i * c] * (x[i * c] - mean) * r;
        }
        for (int64_t i = 0; i < rows; i++) {
            double x_hat = (x[i * c] - mean) * r;
            dx[i * c] = gamma * r * (dy[i * c] - (dbeta + x_hat * dgamma) / (double)rows);
        }
        m->out[1].data[set] = dgamma;
        m->out[2].data[set] = dbeta;
    }
}

tu_status tu__batch_norm_grad_reference(const tu__reference_call *m) {
    const struct tu__batch_norm_grad_attrs *a = m->attrs;
    tu_shape shape = m->in[0].type.shape;
    int64_t members = at_least_one(a->members), c = shape.dim[shape.rank - 1];
    int64_t rows = tu_shape_elements(shape) / c / members;
    for (int64_t i = 0; i < members; i++) member_gradient(m, a->epsilon, i, rows, c);
    return TU_OK;
}

tu_status tu__layer_norm_reference(const tu__reference_call *m) {
    const struct tu__layer_norm_attrs *a = m->attrs;
    int64_t n = tu_shape_elements(m->in[1].type.shape), rows = tu_shape_elements(m->in[0].type.shape) / n;
    for (int64_t row = 0; row < rows; row++) {
        const double *x = m->in[0].data + row * n;
        double *y = m->out[0].data + row * n, mean, variance;
        moments(x, n, 1, &mean, &variance);
        double r = 1 / sqrt(variance + a->epsilon);
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * r * m->in[1].data[i] + m->in[2].data[i];
        m->out[1].data[row] = mean;
        m->out[2].data[row] = r;
    }
    return TU_OK;
}

/* Computes the gradients of one row. Input 3, the second statistic of layer-norm, is r. */
static void layer_row_gradient(const tu__reference_call *m, int64_t row, int64_t n) {
    const struct tu__layer_norm_grad_attrs *a = m->attrs;
    const double *x = m->in[0].data + row * n, *gamma = m->in[1].data, *dy = m->in[4].data + row * n;
    double mean, r, h_mean = 0, hx_mean = 0, *dx = m->out[0].data + row * n;
    saved_moments(m, x, n, 1, row, &mean, &r);
    if (is_half(m->in[2].type.dtype)) r = 1 / sqrt(r + a->epsilon);
    for (int64_t i = 0; i < n; i++) {
        double x_hat = (x[i] - mean) * r, h = gamma[i] * dy[i];
        h_mean += h / (double)n;
        hx_mean += h * x_hat / (double)n;
        m->out[1].data[i] += dy[i] * x_hat;
        m->out[2].data[i] += dy[i];
    }
    for (int64_t i = 0; i < n; i++) dx[i] = r * (gamma[i] * dy[i] - h_mean - (x[i] - mean) * r * hx_mean);
}

tu_status tu__layer_norm_grad_reference(const tu__reference_call *m) {
    int64_t n = tu_shape_elements(m->in[1].type.shape), rows = tu_shape_elements(m->in[0].type.shape) / n;
    for (int64_t i = 0; i < n; i++) m->out[1].data[i] = m->out[2].data[i] = 0;
    for (int64_t row = 0; row < rows; row++) layer_row_gradient(m, row, n);
    return TU_OK;
}

/* ---- Expansions: computed in f32 if the statistics are in half precision ---- */

typedef struct standardized {
    tu_axes axes;                      /* the axes of x that form a set */
    tu_value centred;                  /* x - mean */
    tu_value mean, variance, r, x_hat; /* in mean, variance and r the set's axes have size 1 */
} standardized;

static tu_value mean_over(tu_value x, tu_axes axes) {
    return tu_mean_with(
        x, &(tu_reduce_options){.struct_size = sizeof(tu_reduce_options), .axes = axes, .keep = true});
}

static standardized standardize(tu_value x, tu_axes axes, double epsilon) {
    standardized s = {.axes = axes};
    s.mean = mean_over(x, axes);
    s.centred = tu_sub(x, s.mean);
    s.variance = mean_over(tu_square(s.centred), axes);
    s.r = tu_rsqrt(tu_shift(s.variance, epsilon));
    s.x_hat = tu_mul(s.centred, s.r);
    return s;
}

/* Returns the axes first … first + count - 1. */
static tu_axes axes_range(int64_t first, int64_t count) {
    tu_axes axes = {.count = (uint32_t)count};
    for (int64_t i = 0; i < count; i++) axes.axis[i] = (int32_t)(first + i);
    return axes;
}

static tu_axes batch_axes(tu_value x) {
    return axes_range(0, tu_value_shape(x).rank - 1);
}

static tu_axes layer_axes(tu_value x, int64_t count) {
    return axes_range(tu_value_shape(x).rank - count, count);
}

static void expand_forward(const tu_value *in, tu_axes axes, double epsilon, bool returns_r, tu_value *out) {
    tu_dtype dtype = tu_value_dtype(in[1]), wide = tu__statistics_dtype(dtype);
    tu_value x = tu_cast(in[0], wide);
    standardized s = standardize(x, axes, epsilon);
    tu_shape statistics = {0};
    tu_shape shape = tu_value_shape(x);
    for (int64_t i = 0; i < shape.rank; i++) {
        bool in_set = i >= axes.axis[0] && i < axes.axis[0] + (int64_t)axes.count;
        if (!in_set) statistics.dim[statistics.rank++] = shape.dim[i];
    }
    tu_value y = tu_add(tu_mul(s.x_hat, tu_cast(in[1], wide)), tu_cast(in[2], wide));
    out[0] = tu_cast(y, tu_value_dtype(in[0]));
    out[1] = tu_cast(tu_reshape(s.mean, statistics), dtype);
    out[2] = tu_cast(tu_reshape(returns_r ? s.r : s.variance, statistics), dtype);
}

/* Builds dx, dgamma and dbeta. Gamma broadcasts against x for both kinds of normalisation. */
static void expand_backward(const tu_value *in, tu_axes axes, double epsilon, tu_value *out) {
    tu_dtype dtype = tu_value_dtype(in[1]), wide = tu__statistics_dtype(dtype);
    tu_value dy = tu_cast(in[4], wide);
    standardized s = standardize(tu_cast(in[0], wide), axes, epsilon);
    tu_value h = tu_mul(dy, tu_cast(in[1], wide));
    tu_value inner = tu_add(mean_over(h, axes), tu_mul(s.x_hat, mean_over(tu_mul(h, s.x_hat), axes)));
    out[0] = tu_cast(tu_mul(s.r, tu_sub(h, inner)), tu_value_dtype(in[0]));
    out[1] = tu_cast(tu__sum_to_shape(tu_mul(dy, s.x_hat), tu_value_shape(in[1])), dtype);
    out[2] = tu_cast(tu__sum_to_shape(dy, tu_value_shape(in[1])), dtype);
}

/* Returns x [members * n, ..., c] as [members, n, ..., c]. */
static tu_value split_members(tu_value x, int64_t members) {
    tu_shape shape = tu_value_shape(x), split = {.rank = shape.rank + 1};
    for (int64_t i = 0; i < shape.rank && i + 1 < TU_MAX_RANK; i++) split.dim[i + 1] = shape.dim[i];
    split.dim[0] = members;
    split.dim[1] = shape.dim[0] / members;
    return tu_reshape(x, split);
}

/* Returns one number per member and channel, of rank 1, so that it broadcasts to x after split_members. */
static tu_value member_channels(tu_value v, tu_value x, int64_t members) {
    tu_shape shape = tu_value_shape(x), channels = {.rank = shape.rank};
    for (int64_t i = 0; i < channels.rank; i++) channels.dim[i] = 1;
    channels.dim[0] = members;
    channels.dim[channels.rank - 1] = shape.dim[shape.rank - 1];
    return tu_reshape(v, channels);
}

/* Builds the expansion of a normalisation with members: of five inputs or three, all outputs in their shapes. */
static void expand_members(const tu__node *node, double epsilon, int64_t members, const tu_value *in,
                           tu_value *out) {
    bool backward = node->input_count == 5;
    tu_value x = split_members(in[0], members), operands[5] = {x};
    for (uint32_t i = 1; i < node->input_count; i++)
        operands[i] = i == 4 ? split_members(in[i], members) : member_channels(in[i], x, members);
    tu_axes axes = axes_range(1, tu_value_shape(x).rank - 2);
    if (backward)
        expand_backward(operands, axes, epsilon, out);
    else
        expand_forward(operands, axes, epsilon, false, out);
    out[0] = tu_reshape(out[0], tu_value_shape(in[0]));
    for (int i = 1; i < 3; i++) out[i] = tu_reshape(out[i], tu_value_shape(in[1]));
}

void tu__batch_norm_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    const struct tu__batch_norm_attrs *a = node->attrs;
    if (a->members)
        expand_members(node, a->epsilon, a->members, in, out);
    else
        expand_forward(in, batch_axes(in[0]), a->epsilon, false, out);
}

void tu__batch_norm_grad_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    const struct tu__batch_norm_grad_attrs *a = node->attrs;
    if (a->members)
        expand_members(node, a->epsilon, a->members, in, out);
    else
        expand_backward(in, batch_axes(in[0]), a->epsilon, out);
}

void tu__layer_norm_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    const struct tu__layer_norm_attrs *a = node->attrs;
    expand_forward(in, layer_axes(in[0], a->axes), a->epsilon, true, out);
}

void tu__layer_norm_grad_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    const struct tu__layer_norm_grad_attrs *a = node->attrs;
    expand_backward(in, layer_axes(in[0], a->axes), a->epsilon, out);
}

/* ---- Gradients ---- */

static tu_value with_shape(tu_value x, tu_shape shape) {
    return tu_shape_equal(tu_value_shape(x), shape) ? x : tu_reshape(x, shape);
}

/* Adds the gradient of x through the statistics, which are outputs 1 and 2. Their gradients are reshaped to
 * `broadcast_shape` so that they broadcast against x. `output_is_r`: output 2 is r instead of the variance. */
static void accumulate_statistics(tu__vjp *v, tu_value x, tu_shape broadcast_shape, bool output_is_r) {
    if (!tu__vjp_needs_gradient(v, 0)) return;
    tu_shape shape = tu_value_shape(tu__input_of(v->graph, v->node, 0));
    tu_value mean = tu_reshape(tu__vjp_output(v, 1), broadcast_shape);
    tu_dtype dtype = tu_value_dtype(mean);
    double n = (double)tu_shape_elements(tu_value_shape(x)) / (double)tu_shape_elements(broadcast_shape);
    tu_value wide = tu_cast(x, dtype), zero = tu__zeros_like(wide);
    if (tu__vjp_has_gradient(v, 1)) {
        tu_value g = tu_scale(tu_reshape(tu__vjp_gradient(v, 1), broadcast_shape), 1 / n);
        tu__vjp_accumulate(v, 0, with_shape(tu_cast(tu_add(zero, g), tu_value_dtype(x)), shape));
    }
    if (tu__vjp_has_gradient(v, 2)) { /* d variance = 2 (x - mean) / n; d r = -r^3 / 2 d variance */
        tu_value g = tu_scale(tu_reshape(tu__vjp_gradient(v, 2), broadcast_shape), 2 / n);
        tu_value r = tu_reshape(tu__vjp_output(v, 2), broadcast_shape);
        if (output_is_r) g = tu_mul(tu_scale(g, -0.5), tu_mul(r, tu_square(r)));
        tu__vjp_accumulate(v, 0,
                           with_shape(tu_cast(tu_mul(g, tu_sub(wide, mean)), tu_value_dtype(x)), shape));
    }
}

static void accumulate_normalized(tu__vjp *v, tu__opcode op) {
    if (!tu__vjp_has_gradient(v, 0)) return;
    tu_value in[] = {tu__vjp_input(v, 0), tu__vjp_input(v, 1), tu__vjp_output(v, 1), tu__vjp_output(v, 2),
                     tu__vjp_gradient(v, 0)};
    tu_value d = tu__apply_list(op, v->node->attrs, 5, in);
    for (uint32_t i = 0; i < 3; i++) tu__vjp_accumulate(v, i, tu_output_of(d, i));
}

void tu__batch_norm_gradient(tu__vjp *v) {
    int64_t members = tu__attrs(v->node, batch_norm)->members;
    accumulate_normalized(v, TU__OP_BATCH_NORM_GRAD);
    tu_value x = tu__vjp_input(v, 0), mean = tu__vjp_output(v, 1);
    if (members) x = split_members(x, members), mean = member_channels(mean, x, members);
    accumulate_statistics(v, x, tu_value_shape(mean), false);
}

void tu__layer_norm_gradient(tu__vjp *v) {
    tu_value x = tu__vjp_input(v, 0);
    int64_t axes = tu__attrs(v->node, layer_norm)->axes;
    tu_shape broadcast_shape = tu_value_shape(x);
    for (int64_t i = broadcast_shape.rank - axes; i < broadcast_shape.rank && i >= 0; i++)
        broadcast_shape.dim[i] = 1;
    accumulate_normalized(v, TU__OP_LAYER_NORM_GRAD);
    accumulate_statistics(v, x, broadcast_shape, true);
}

/* ---- Floating-point operations per element of x ---- */

int64_t tu__batch_norm_flops(const tu__node *node, const tu_type *in) {
    (void)node;
    return 8 * tu_shape_elements(in[0].shape);
}

int64_t tu__batch_norm_grad_flops(const tu__node *node, const tu_type *in) {
    (void)node;
    return 11 * tu_shape_elements(in[0].shape);
}

int64_t tu__layer_norm_flops(const tu__node *node, const tu_type *in) {
    return tu__batch_norm_flops(node, in);
}

int64_t tu__layer_norm_grad_flops(const tu__node *node, const tu_type *in) {
    return tu__batch_norm_grad_flops(node, in);
}

/* ---- Builders ---- */

/* Casts parameters in half precision to the type of the statistics. The shape rule rejects parameters of a type other
 * than that of x. */
static void widen_parameters(tu_value x, tu_value *gamma, tu_value *beta) {
    if (!tu_ok(x) || !tu_ok(*gamma) || !tu_ok(*beta)) return;
    tu_dtype dtype = tu_value_dtype(x);
    if (tu_value_dtype(*gamma) != dtype || tu_value_dtype(*beta) != dtype) return;
    *gamma = tu_cast(*gamma, tu__statistics_dtype(dtype));
    *beta = tu_cast(*beta, tu__statistics_dtype(dtype));
}

tu_value tu_batch_normalize_with(tu_value x, tu_value gamma, tu_value beta,
                                 const tu_normalize_options *options) {
    TU__OPTIONS(tu_normalize_options, o, options);
    struct tu__batch_norm_attrs a = {.epsilon = o.epsilon != 0 ? o.epsilon : 1e-5, .scope = o.scope};
    widen_parameters(x, &gamma, &beta);
    return tu__apply(BATCH_NORM, &a, x, gamma, beta);
}

tu_value tu_layer_normalize_with(tu_value x, tu_value gamma, tu_value beta,
                                 const tu_normalize_options *options) {
    TU__OPTIONS(tu_normalize_options, o, options);
    struct tu__layer_norm_attrs a = {.epsilon = o.epsilon != 0 ? o.epsilon : 1e-5,
                                     .axes = o.axes ? o.axes : 1};
    widen_parameters(x, &gamma, &beta);
    return tu__apply(LAYER_NORM, &a, x, gamma, beta);
}
