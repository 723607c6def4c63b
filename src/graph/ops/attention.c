/* Attention (Vaswani et al. 2017), on queries, keys and values that are packed in one value x [b, t, 3, h, d].
 *
 *     s[i, j] = scale q[i] . k[j]          for j <= i if causal, else all j; per sample and head
 *     l[i]    = log(sum over j of exp(s[i, j]))
 *     y[i]    = sum over j of p[i, j] v[j]          p[i, j] = exp(s[i, j] - l[i])
 *
 * Outputs: y [b, t, h, d], l [b, h, t]. With dp[i, j] = dy[i] . v[j] and c[i] = dy[i] . y[i] the gradient is
 *
 *     dv[j] = sum over i of p[i, j] dy[i]           ds[i, j] = p[i, j] (dp[i, j] - c[i])
 *     dq[i] = scale sum over j of ds[i, j] k[j]     dk[j] = scale sum over i of ds[i, j] q[i]
 *
 * y and l are operands of the gradient so that kernels need not compute them again; both are functions of x, so its
 * definition does not use them. */
#include <math.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/number.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

enum { QUERY, KEY, VALUE };

static double scale_or_default(double scale, tu_shape x) {
    return scale != 0 ? scale : 1 / sqrt((double)x.dim[4]);
}

/* ---- Shape rules ---- */

static tu_type result_type(tu_type x) {
    return (tu_type){x.dtype, TU_SHAPE(x.shape.dim[0], x.shape.dim[1], x.shape.dim[3], x.shape.dim[4])};
}

static tu_type logarithms_type(tu_type x) {
    return (tu_type){tu__statistics_dtype(x.dtype), TU_SHAPE(x.shape.dim[0], x.shape.dim[3], x.shape.dim[1])};
}

static tu_status check_packed(const tu__rule *rule, double scale) {
    tu_type x = rule->in[0];
    if (!tu_dtype_is_float(x.dtype))
        return tu__rule_fail(rule, "x (input 0) has type %s, expected a float type (convert with tu_cast)",
                             tu_dtype_name(x.dtype));
    if (x.shape.rank != 5 || x.shape.dim[2] != 3)
        return tu__rule_fail(
            rule,
            "x (input 0) has shape %s, expected [batch, time, 3, heads, width]: queries, keys "
            "and values along axis 2",
            tu__shape_string(x.shape));
    if (!(scale >= 0 && scale <= 1e30))
        return tu__rule_fail(rule, "scale is %g, expected 0 (1/sqrt(width)) to 1e30", scale);
    return TU_OK;
}

tu_status tu__attention_shape(tu__rule *rule) {
    TU_TRY(check_packed(rule, ((const struct tu__attention_attrs *)rule->attrs)->scale));
    rule->out[0] = result_type(rule->in[0]);
    rule->out[1] = logarithms_type(rule->in[0]);
    return TU_OK;
}

static tu_status check_operand(const tu__rule *rule, uint32_t input, const char *what, tu_type expected) {
    tu_type type = rule->in[input];
    if (type.dtype == expected.dtype && tu_shape_equal(type.shape, expected.shape)) return TU_OK;
    return tu__rule_fail(rule, "%s (input %u) is %s, expected %s", what, (unsigned)input,
                         tu__type_string(type), tu__type_string(expected));
}

tu_status tu__attention_grad_shape(tu__rule *rule) {
    TU_TRY(check_packed(rule, ((const struct tu__attention_grad_attrs *)rule->attrs)->scale));
    TU_TRY(check_operand(rule, 1, "y", result_type(rule->in[0])));
    TU_TRY(check_operand(rule, 2, "l", logarithms_type(rule->in[0])));
    TU_TRY(check_operand(rule, 3, "dy", result_type(rule->in[0])));
    rule->out[0] = rule->in[0];
    return TU_OK;
}

/* ---- Reference kernels ---- */

/* One sample and head. Rows of queries, keys and values are `row` elements apart, those of y `row / 3`. */
typedef struct head {
    int64_t time, width, row;
    const double *part[3];
    double scale;
    bool causal;
} head;

static head head_of(const tu__tensor *x, int64_t sample, int64_t index, double scale, bool causal) {
    tu_shape s = x->type.shape;
    int64_t heads = s.dim[3], width = s.dim[4];
    head h = {.time = s.dim[1], .width = width, .row = 3 * heads * width, .causal = causal};
    h.scale = scale_or_default(scale, s);
    for (int i = 0; i < 3; i++) h.part[i] = x->data + sample * s.dim[1] * h.row + (i * heads + index) * width;
    return h;
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static int64_t visible_keys(const head *h, int64_t i) {
    return h->causal ? i + 1 : h->time;
}

/* Computes the probabilities of row i and returns the logarithm of their sum before normalisation. */
static double probabilities_of(const head *h, int64_t i, double *p) {
    int64_t keys = visible_keys(h, i);
    double maximum = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        p[j] = h->scale * dot(h->part[QUERY] + i * h->row, h->part[KEY] + j * h->row, h->width);
        maximum = p[j] > maximum || isnan(p[j]) ? p[j] : maximum;
    }
    for (int64_t j = 0; j < keys; j++) sum += exp(p[j] - maximum);
    double logarithm = isfinite(maximum) ? maximum + log(sum) : maximum;
    for (int64_t j = 0; j < keys; j++) p[j] = exp(p[j] - logarithm);
    return logarithm;
}

static void attend(const head *h, double *p, double *y, double *logarithms) {
    for (int64_t i = 0; i < h->time; i++) {
        double *row = y + i * h->row / 3;
        logarithms[i] = probabilities_of(h, i, p);
        for (int64_t c = 0; c < h->width; c++) row[c] = 0;
        for (int64_t j = 0; j < visible_keys(h, i); j++)
            for (int64_t c = 0; c < h->width; c++) row[c] += p[j] * h->part[VALUE][j * h->row + c];
    }
}

tu_status tu__attention_reference(const tu__reference_call *m) {
    const struct tu__attention_attrs *a = m->attrs;
    tu_shape x = m->in[0].type.shape;
    int64_t time = x.dim[1], heads = x.dim[3], width = x.dim[4];
    double *p = tu__alloc_array((size_t)time, sizeof *p, "the probabilities of an attention");
    if (!p) return TU_NO_MEMORY;
    for (int64_t n = 0; n < x.dim[0] * heads; n++) {
        int64_t sample = n / heads, index = n % heads;
        head h = head_of(&m->in[0], sample, index, a->scale, a->causal);
        attend(&h, p, m->out[0].data + (sample * time * heads + index) * width, m->out[1].data + n * time);
    }
    tu__free(p);
    return TU_OK;
}

/* Adds the gradients of row i to dx, which has the layout of x. `p`, `ds`: scratch of `time` numbers each. */
static void add_row_gradients(const head *h, int64_t i, const double *dy, double *p, double *ds, double *dx,
                              int64_t part) {
    int64_t keys = visible_keys(h, i);
    const double *q = h->part[QUERY] + i * h->row;
    double centre = 0;
    probabilities_of(h, i, p);
    for (int64_t j = 0; j < keys; j++) {
        ds[j] = dot(dy, h->part[VALUE] + j * h->row, h->width);
        centre += p[j] * ds[j];
    }
    for (int64_t j = 0; j < keys; j++) {
        double d = h->scale * p[j] * (ds[j] - centre);
        const double *k = h->part[KEY] + j * h->row;
        double *dq = dx + i * h->row, *dk = dx + j * h->row + part, *dv = dk + part;
        for (int64_t c = 0; c < h->width; c++) {
            dq[c] += d * k[c];
            dk[c] += d * q[c];
            dv[c] += p[j] * dy[c];
        }
    }
}

tu_status tu__attention_grad_reference(const tu__reference_call *m) {
    const struct tu__attention_grad_attrs *a = m->attrs;
    tu_shape x = m->in[0].type.shape;
    int64_t time = x.dim[1], heads = x.dim[3], width = x.dim[4], part = heads * width;
    double *p = tu__alloc_array(2 * (size_t)time, sizeof *p, "the probabilities of an attention");
    if (!p) return TU_NO_MEMORY;
    for (int64_t i = 0; i < tu_shape_elements(x); i++) m->out[0].data[i] = 0;
    for (int64_t n = 0; n < x.dim[0] * heads; n++) {
        int64_t sample = n / heads, index = n % heads;
        head h = head_of(&m->in[0], sample, index, a->scale, a->causal);
        const double *dy = m->in[3].data + sample * time * part + index * width;
        double *dx = m->out[0].data + sample * time * h.row + index * width;
        for (int64_t i = 0; i < time; i++) add_row_gradients(&h, i, dy + i * part, p, p + time, dx, part);
    }
    tu__free(p);
    return TU_OK;
}

/* ---- Expansions: computed in f32 if x is in half precision ---- */

typedef struct expanded {
    tu_value part[3];             /* [b, h, t, d] */
    tu_value logarithms, weights; /* [b, h, t, 1], [b, h, t, t] */
    double scale;
} expanded;

static tu_value heads_first(tu_value x) {
    return tu_transpose(x, 0, 2, 1, 3);
}

static expanded expand_scores(tu_value x, double scale, bool causal) {
    tu_shape s = tu_value_shape(x);
    int64_t time = s.dim[1];
    tu_dtype wide = tu__statistics_dtype(tu_value_dtype(x));
    expanded e = {.scale = scale_or_default(scale, s)};
    for (int i = 0; i < 3; i++) {
        tu_value part = tu_squeeze_axis(tu_slice(tu_cast(x, wide), 2, i, i + 1, 1), 2);
        e.part[i] = heads_first(part);
    }
    tu_value scores = tu_scale(tu_matmul(e.part[QUERY], e.part[KEY], .transpose_b = true), e.scale);
    if (causal) { /* exp(-1e30) is 0, and 0 times it is 0 as well */
        tu_value visible = tu_band(tu_fill(x.graph, wide, TU_SHAPE(time, time), 1), -1, 0);
        scores = tu_select(tu_greater_than(visible, 0), scores, tu_number(scores, -1e30));
    }
    e.logarithms = tu_logsumexp(scores, .axes = TU_AXES(-1), .keep = true);
    e.weights = tu_exp(tu_sub(scores, e.logarithms));
    return e;
}

void tu__attention_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    const struct tu__attention_attrs *a = node->attrs;
    expanded e = expand_scores(in[0], a->scale, a->causal);
    out[0] = tu_cast(heads_first(tu_matmul(e.weights, e.part[VALUE])), tu_value_dtype(in[0]));
    out[1] = tu_squeeze_axis(e.logarithms, -1);
}

/* Joins the gradients of queries, keys and values, [b, h, t, d] each. */
static tu_value pack_parts(const tu_value *parts, tu_dtype dtype) {
    tu_value packed[3];
    for (int i = 0; i < 3; i++) packed[i] = heads_first(parts[i]);
    return tu_cast(tu_stack(packed, 3, 2), dtype);
}

void tu__attention_grad_expand(tu_graph *graph, const tu__node *node, const tu_value *in, tu_value *out) {
    (void)graph;
    const struct tu__attention_grad_attrs *a = node->attrs;
    expanded e = expand_scores(in[0], a->scale, a->causal);
    tu_value dy = heads_first(tu_cast(in[3], tu_value_dtype(e.weights)));
    tu_value dp = tu_matmul(dy, e.part[VALUE], .transpose_b = true);
    tu_value centre = tu_sum(tu_mul(e.weights, dp), .axes = TU_AXES(-1), .keep = true);
    tu_value ds = tu_scale(tu_mul(e.weights, tu_sub(dp, centre)), e.scale);
    tu_value parts[3] = {tu_matmul(ds, e.part[KEY]), tu_matmul(ds, e.part[QUERY], .transpose_a = true),
                         tu_matmul(e.weights, dy, .transpose_a = true)};
    out[0] = pack_parts(parts, tu_value_dtype(in[0]));
}

/* ---- Gradients ---- */

/* Adds the gradient of x through the logarithms: dl[i] / ds[i, j] = p[i, j]. Rare, so built of other operations. */
static void accumulate_logarithms(tu__vjp *v, double scale, bool causal) {
    tu_value x = tu__vjp_input(v, 0);
    expanded e = expand_scores(x, scale, causal);
    tu_value ds = tu_scale(tu_mul(e.weights, tu_expand_axis(tu__vjp_gradient(v, 1), -1)), e.scale);
    tu_value parts[3] = {tu_matmul(ds, e.part[KEY]), tu_matmul(ds, e.part[QUERY], .transpose_a = true),
                         tu__zeros_like(e.part[VALUE])};
    tu__vjp_accumulate(v, 0, pack_parts(parts, tu_value_dtype(x)));
}

void tu__attention_gradient(tu__vjp *v) {
    const struct tu__attention_attrs *a = v->node->attrs;
    if (!tu__vjp_needs_gradient(v, 0)) return;
    if (tu__vjp_has_gradient(v, 0)) {
        tu_value x = tu__vjp_input(v, 0), y = tu__vjp_output(v, 0), l = tu__vjp_output(v, 1);
        struct tu__attention_grad_attrs same = {.causal = a->causal, .scale = a->scale};
        tu__vjp_accumulate(v, 0, tu__apply(ATTENTION_GRAD, &same, x, y, l, tu__vjp_gradient(v, 0)));
    }
    if (tu__vjp_has_gradient(v, 1)) accumulate_logarithms(v, a->scale, a->causal);
}

/* ---- Floating-point operations ---- */

/* Returns those of one product of [time, width] by [width, time] for all heads; half of it is needed if causal. */
static int64_t product_flops(tu_shape x, bool causal) {
    int64_t pairs = causal ? x.dim[1] * (x.dim[1] + 1) / 2 : x.dim[1] * x.dim[1];
    return 2 * x.dim[0] * x.dim[3] * x.dim[4] * pairs;
}

int64_t tu__attention_flops(const tu__node *node, const tu_type *in) {
    return 2 * product_flops(in[0].shape, tu__attrs(node, attention)->causal);
}

/* The scores, dp, dv, dk and dq. */
int64_t tu__attention_grad_flops(const tu__node *node, const tu_type *in) {
    return 5 * product_flops(in[0].shape, tu__attrs(node, attention_grad)->causal);
}

/* ---- Builder ---- */

tu_value tu_attention_with(tu_value x, const tu_attention_options *options) {
    TU__OPTIONS(tu_attention_options, o, options);
    struct tu__attention_attrs a = {.causal = o.causal, .scale = o.scale};
    return tu__apply(ATTENTION, &a, x);
}
