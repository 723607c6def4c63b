/* Local response normalisation across channels (Krizhevsky et al. 2012), with TensorFlow's parameters:
 *
 *     s = bias + alpha W(x^2)        W(x)[c] is the sum of x over the existing channels c - radius … c + radius
 *     y = x s^-beta
 *
 * W is symmetric. With g the gradient of y:
 *
 *     dx = g s^-beta - 2 alpha beta x W(g x s^(-beta-1))
 */
#include <inttypes.h>
#include <math.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

typedef struct tu__lrn_attrs attributes; /* lrn_grad has the same */

#define MAX_RADIUS (1 << 20)

/* A positive bias and a non-negative alpha make s positive for every x, so that its powers exist. */
static tu_status check_attributes(const tu__rule *rule, const attributes *a) {
    if (a->radius < 0 || a->radius > MAX_RADIUS)
        return tu__rule_fail(rule, "radius is %" PRId64 ", expected 0 to %d channels on each side", a->radius,
                             MAX_RADIUS);
    if (!(a->bias > 0) || !isfinite(a->bias))
        return tu__rule_fail(rule, "bias is %g, expected a finite number above 0", a->bias);
    if (!(a->alpha >= 0) || !isfinite(a->alpha))
        return tu__rule_fail(rule, "alpha is %g, expected a finite number of at least 0", a->alpha);
    if (!isfinite(a->beta)) return tu__rule_fail(rule, "beta is %g, expected a finite number", a->beta);
    return TU_OK;
}

static tu_status lrn_shape(tu__rule *rule) {
    tu_type x = rule->in[0];
    if (!tu_dtype_is_float(x.dtype))
        return tu__rule_fail(rule, "x (input 0) has type %s, expected a float type (convert with tu_cast)",
                             tu_dtype_name(x.dtype));
    if (x.shape.rank < 1)
        return tu__rule_fail(rule, "x (input 0) is a scalar, expected at least 1 axis: [..., channels]");
    TU_TRY(check_attributes(rule, rule->attrs));
    rule->out[0] = x;
    return TU_OK;
}

tu_status tu__lrn_shape(tu__rule *rule) {
    return lrn_shape(rule);
}

tu_status tu__lrn_grad_shape(tu__rule *rule) {
    tu_type x = rule->in[0], dy = rule->in[1];
    if (x.dtype != dy.dtype || !tu_shape_equal(x.shape, dy.shape))
        return tu__rule_fail(rule, "the gradient (input 1) is %s, expected %s, the type of x",
                             tu__type_string(dy), tu__type_string(x));
    return lrn_shape(rule);
}

/* Computes out = W(x). */
static void window_sum(const double *x, int64_t channels, int64_t radius, double *out) {
    for (int64_t c = 0; c < channels; c++) {
        int64_t first = c > radius ? c - radius : 0, last = c + radius < channels ? c + radius : channels - 1;
        out[c] = 0;
        for (int64_t d = first; d <= last; d++) out[c] += x[d];
    }
}

/* Computes s for one row. `scratch` receives the squares of x. */
static void compute_scales(const attributes *a, const double *x, int64_t channels, double *scratch,
                           double *s) {
    for (int64_t c = 0; c < channels; c++) scratch[c] = x[c] * x[c];
    window_sum(scratch, channels, a->radius, s);
    for (int64_t c = 0; c < channels; c++) s[c] = a->bias + a->alpha * s[c];
}

static void forward_row(const attributes *a, const double *x, int64_t channels, double *scratch, double *y) {
    double *s = scratch + channels;
    compute_scales(a, x, channels, scratch, s);
    for (int64_t c = 0; c < channels; c++) y[c] = x[c] * pow(s[c], -a->beta);
}

static void backward_row(const attributes *a, const double *x, const double *g, int64_t channels,
                         double *scratch, double *dx) {
    double *s = scratch + channels, *t = scratch + 2 * channels;
    compute_scales(a, x, channels, scratch, s);
    for (int64_t c = 0; c < channels; c++) scratch[c] = g[c] * x[c] * pow(s[c], -a->beta - 1);
    window_sum(scratch, channels, a->radius, t);
    for (int64_t c = 0; c < channels; c++)
        dx[c] = g[c] * pow(s[c], -a->beta) - 2 * a->alpha * a->beta * x[c] * t[c];
}

static tu_status lrn_reference(const tu__reference_call *m, bool backward) {
    tu_shape shape = m->in[0].type.shape;
    int64_t channels = shape.dim[shape.rank - 1], rows = tu_shape_elements(shape) / channels;
    double *scratch = tu__alloc_array((size_t)channels * 3, sizeof *scratch, "a row of channels");
    if (!scratch) return TU_NO_MEMORY;
    for (int64_t row = 0; row < rows; row++) {
        const double *x = m->in[0].data + row * channels;
        double *out = m->out[0].data + row * channels;
        if (backward)
            backward_row(m->attrs, x, m->in[1].data + row * channels, channels, scratch, out);
        else
            forward_row(m->attrs, x, channels, scratch, out);
    }
    tu__free(scratch);
    return TU_OK;
}

tu_status tu__lrn_reference(const tu__reference_call *m) {
    return lrn_reference(m, false);
}

tu_status tu__lrn_grad_reference(const tu__reference_call *m) {
    return lrn_reference(m, true);
}

void tu__lrn_gradient(tu__vjp *v) {
    tu__vjp_accumulate(v, 0,
                       tu__apply(LRN_GRAD, v->node->attrs, tu__vjp_input(v, 0), tu__vjp_gradient(v, 0)));
}

/* ---- Expansions ---- */

/* Builds W as a sum of shifted slices of the padded channels. */
static tu_value expand_window(tu_value x, int64_t radius) {
    tu_shape shape = tu_value_shape(x);
    int64_t channels = shape.dim[shape.rank - 1];
    if (radius > channels - 1) radius = channels - 1;
    tu_value padded = radius ? tu_pad(x, -1, radius, radius, 0) : x, sum = x;
    for (int64_t d = 0; d <= 2 * radius; d++)
        if (d != radius) sum = tu_add(sum, tu_slice(padded, -1, d, d + channels, 1));
    return sum;
}

static tu_value expand_scales(const attributes *a, tu_value x) {
    return tu_shift(tu_scale(expand_window(tu_square(x), a->radius), a->alpha), a->bias);
}

static tu_value power(tu_value s, double exponent) {
    return tu_pow(s, tu_number(s, exponent));
}

void tu__lrn_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    const attributes *a = node->attrs;
    out[0] = tu_mul(in[0], power(expand_scales(a, in[0]), -a->beta));
}

void tu__lrn_grad_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    const attributes *a = node->attrs;
    tu_value x = in[0], g = in[1], s = expand_scales(a, x);
    tu_value t = expand_window(tu_mul(tu_mul(g, x), power(s, -a->beta - 1)), a->radius);
    out[0] = tu_sub(tu_mul(g, power(s, -a->beta)), tu_mul(tu_scale(x, 2 * a->alpha * a->beta), t));
}

/* Per element and pass: a square, one addition per channel of the window, a power and a multiplication. Saturates:
 * the result can exceed 64 bits. */
static int64_t flops(const attributes *a, tu_shape shape, int64_t passes) {
    int64_t channels = shape.dim[shape.rank - 1], window = 2 * a->radius + 1, total;
    if (window > channels) window = channels;
    bool overflows = __builtin_mul_overflow(passes * tu_shape_elements(shape), window + 5, &total);
    return overflows ? INT64_MAX : total;
}

int64_t tu__lrn_flops(const tu__node *node, const tu_type *in) {
    return flops(node->attrs, in[0].shape, 1);
}

int64_t tu__lrn_grad_flops(const tu__node *node, const tu_type *in) {
    return flops(node->attrs, in[0].shape, 2);
}

tu_value tu_lrn_with(tu_value x, const tu_lrn_options *options) {
    TU__OPTIONS(tu_lrn_options, o, options);
    attributes a = {.radius = o.radius == 0         ? 5
                              : o.radius == TU_ZERO ? 0
                                                    : o.radius,
                    .bias = o.bias != 0 ? o.bias : 1,
                    .alpha = tu__given_or(o.alpha, 1),
                    .beta = tu__given_or(o.beta, 0.5)};
    return tu__apply(LRN, &a, x);
}
