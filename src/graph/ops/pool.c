/* Pooling: the maximum or mean of each window, and the gradients of both.
 *
 * Maximum. The argmax of a window is its largest element, the first in row-major order among equal ones (NaN is
 * larger than all numbers). Three operations use the argmax of x:
 *
 *     max_pool(x)           y[window] = x[argmax]
 *     max_pool_pick(x, u)   y[window] = u[argmax]         so max_pool(x) = max_pool_pick(x, x)
 *     max_pool_grad(x, dy)  dx[argmax] += dy[window]
 *
 * The last two are linear in u and dy and each other's transpose, hence each other's gradient. They are piecewise
 * constant in x, so x gets no gradient from them. max_pool's gradient is max_pool_grad.
 *
 * Average. avg_pool divides the sum over a window's pixels within the input by their count, or by the window's size
 * if count_padding is set. It is linear, and avg_pool_grad is its transpose; the attribute `size` is height and width
 * of the input.
 *
 * Padding must be smaller than the window, so that every window contains at least one pixel of the input. So the
 * maximum exists and no divisor is zero.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/text.h"
#include "graph/graph.h"
#include "graph/ops/window.h"
#include "graph/rules.h"
#include "graph/walk.h"

static const int64_t no_dilation[2] = {1, 1};

#define WINDOWS_OF(a) tu__windows_of((a)->window, (a)->stride, no_dilation, (a)->pad)
#define SAME_WINDOWS(a)                                                                                      \
    .window = {(a)->window[0], (a)->window[1]}, .stride = {(a)->stride[0], (a)->stride[1]},                  \
    .pad = {(a)->pad[0], (a)->pad[1], (a)->pad[2], (a)->pad[3]}

/* ---- Shape rules ---- */

static tu_status check_images(const tu__rule *r, uint32_t index) {
    tu_shape shape = r->in[index].shape;
    if (shape.rank != 4)
        return tu__rule_fail(r, "operand %" PRIu32 " has rank %" PRId64 ", expected 4: [n,h,w,c]", index,
                             shape.rank);
    return TU_OK;
}

static tu_status check_float(const tu__rule *r, uint32_t index) {
    if (!tu_dtype_is_float(r->in[index].dtype))
        return tu__rule_fail(r,
                             "operand %" PRIu32 " has type %s, expected a float type (convert with tu_cast)",
                             index, tu_dtype_name(r->in[index].dtype));
    return TU_OK;
}

static tu_status check_number(const tu__rule *r) {
    if (r->in[0].dtype == TU_BOOL)
        return tu__rule_fail(r, "the input has type bool, expected numbers (convert with tu_cast)");
    return TU_OK;
}

static tu_status check_padding(const tu__rule *r, const tu__windows *w) {
    for (int i = 0; i < 4; i++)
        if (w->pad[i] >= w->size[i / 2])
            return tu__rule_fail(r,
                                 "pad[%d] is %" PRId64 ", expected less than the window size %" PRId64
                                 ", so that no window contains only padding",
                                 i, w->pad[i], w->size[i / 2]);
    return TU_OK;
}

/* Computes the shape with one element per window; fails for an input of another rank and for invalid windows. */
static tu_status pooled_shape(const tu__rule *r, const tu__windows *w, tu_shape *pooled) {
    TU_TRY(check_images(r, 0));
    *pooled = r->in[0].shape;
    TU_TRY(tu__window_outputs(r, w, r->in[0].shape.dim + 1, pooled->dim + 1));
    TU_TRY(check_padding(r, w));
    if (!tu__shape_valid(*pooled))
        return tu__rule_fail(r, "the result %s is too large: expected at most 2^48 elements",
                             tu__shape_string(*pooled));
    return TU_OK;
}

static tu_status check_operand_1(const tu__rule *r, tu_shape expected) {
    if (r->in[1].dtype != r->in[0].dtype || !tu_shape_equal(r->in[1].shape, expected))
        return tu__rule_fail(r, "operand 1 is %s, expected %s", tu__type_string(r->in[1]),
                             tu__type_string((tu_type){r->in[0].dtype, expected}));
    return TU_OK;
}

tu_status tu__max_pool_shape(tu__rule *r) {
    const struct tu__max_pool_attrs *a = r->attrs;
    tu__windows windows = WINDOWS_OF(a);
    TU_TRY(check_number(r));
    r->out[0].dtype = r->in[0].dtype;
    return pooled_shape(r, &windows, &r->out[0].shape);
}

tu_status tu__max_pool_pick_shape(tu__rule *r) {
    const struct tu__max_pool_pick_attrs *a = r->attrs;
    tu__windows windows = WINDOWS_OF(a);
    TU_TRY(check_number(r));
    TU_TRY(check_operand_1(r, r->in[0].shape));
    r->out[0].dtype = r->in[0].dtype;
    return pooled_shape(r, &windows, &r->out[0].shape);
}

tu_status tu__max_pool_grad_shape(tu__rule *r) {
    const struct tu__max_pool_grad_attrs *a = r->attrs;
    tu__windows windows = WINDOWS_OF(a);
    tu_shape pooled;
    TU_TRY(check_float(r, 0));
    TU_TRY(pooled_shape(r, &windows, &pooled));
    TU_TRY(check_operand_1(r, pooled));
    r->out[0] = r->in[0];
    return TU_OK;
}

tu_status tu__avg_pool_shape(tu__rule *r) {
    const struct tu__avg_pool_attrs *a = r->attrs;
    tu__windows windows = WINDOWS_OF(a);
    TU_TRY(check_float(r, 0));
    r->out[0].dtype = r->in[0].dtype;
    return pooled_shape(r, &windows, &r->out[0].shape);
}

tu_status tu__avg_pool_grad_shape(tu__rule *r) {
    const struct tu__avg_pool_grad_attrs *a = r->attrs;
    tu__windows windows = WINDOWS_OF(a);
    TU_TRY(check_float(r, 0));
    TU_TRY(check_images(r, 0));
    TU_TRY(tu__check_window_outputs(r, &windows, a->size, r->in[0].shape.dim + 1));
    TU_TRY(check_padding(r, &windows));
    const int64_t *y = r->in[0].shape.dim;
    r->out[0] = (tu_type){r->in[0].dtype, TU_SHAPE(y[0], a->size[0], a->size[1], y[3])};
    if (!tu__shape_valid(r->out[0].shape))
        return tu__rule_fail(r, "the result %s is too large: expected at most 2^48 elements",
                             tu__shape_string(r->out[0].shape));
    return TU_OK;
}

/* ---- Gradients ---- */

void tu__max_pool_gradient(tu__vjp *v) {
    const struct tu__max_pool_attrs *a = v->node->attrs;
    struct tu__max_pool_grad_attrs grad = {SAME_WINDOWS(a)};
    tu__vjp_accumulate(v, 0, tu__apply(MAX_POOL_GRAD, &grad, tu__vjp_input(v, 0), tu__vjp_gradient(v, 0)));
}

void tu__max_pool_pick_gradient(tu__vjp *v) {
    if (!tu__vjp_needs_gradient(v, 1)) return;
    const struct tu__max_pool_pick_attrs *a = v->node->attrs;
    struct tu__max_pool_grad_attrs grad = {SAME_WINDOWS(a)};
    tu__vjp_accumulate(v, 1, tu__apply(MAX_POOL_GRAD, &grad, tu__vjp_input(v, 0), tu__vjp_gradient(v, 0)));
}

void tu__max_pool_grad_gradient(tu__vjp *v) {
    if (!tu__vjp_needs_gradient(v, 1)) return;
    const struct tu__max_pool_grad_attrs *a = v->node->attrs;
    struct tu__max_pool_pick_attrs pick = {SAME_WINDOWS(a)};
    tu__vjp_accumulate(v, 1, tu__apply(MAX_POOL_PICK, &pick, tu__vjp_input(v, 0), tu__vjp_gradient(v, 0)));
}

void tu__avg_pool_gradient(tu__vjp *v) {
    const struct tu__avg_pool_attrs *a = v->node->attrs;
    const int64_t *size = tu__input_height_width(v, 0);
    struct tu__avg_pool_grad_attrs grad = {SAME_WINDOWS(a), .count_padding = a->count_padding,
                                           .size = {size[0], size[1]}};
    tu__vjp_accumulate(v, 0, tu__apply(AVG_POOL_GRAD, &grad, tu__vjp_gradient(v, 0)));
}

void tu__avg_pool_grad_gradient(tu__vjp *v) {
    const struct tu__avg_pool_grad_attrs *a = v->node->attrs;
    struct tu__avg_pool_attrs pool = {SAME_WINDOWS(a), .count_padding = a->count_padding};
    tu__vjp_accumulate(v, 0, tu__apply(AVG_POOL, &pool, tu__vjp_gradient(v, 0)));
}

/* ---- Reference kernels ---- */

typedef struct pooling {
    tu__windows windows;
    int64_t images, channels;
    int64_t x_size[2], y_size[2];
} pooling;

static pooling pooling_of(tu_type x, tu_type y, tu__windows windows) {
    return (pooling){.windows = windows,
                     .images = x.shape.dim[0],
                     .channels = x.shape.dim[3],
                     .x_size = {x.shape.dim[1], x.shape.dim[2]},
                     .y_size = {y.shape.dim[1], y.shape.dim[2]}};
}

/* The part of one window that is within the image: rows and columns [begin, end). Never empty. */
typedef struct window_bounds {
    int64_t begin[2], end[2];
} window_bounds;

static window_bounds window_bounds_of(const pooling *p, int64_t row, int64_t column) {
    const int64_t position[2] = {row, column};
    window_bounds b;
    for (int axis = 0; axis < 2; axis++) {
        int64_t begin = position[axis] * p->windows.stride[axis] - p->windows.pad[2 * axis];
        int64_t end = begin + p->windows.size[axis];
        b.begin[axis] = begin < 0 ? 0 : begin;
        b.end[axis] = end > p->x_size[axis] ? p->x_size[axis] : end;
    }
    return b;
}

/* Returns the offset of an element within an image. */
static int64_t offset_of(const pooling *p, int64_t row, int64_t column, int64_t channel) {
    return (row * p->x_size[1] + column) * p->channels + channel;
}

static int64_t argmax_of(const pooling *p, window_bounds b, int64_t channel, const double *x) {
    int64_t best = offset_of(p, b.begin[0], b.begin[1], channel);
    for (int64_t i = b.begin[0]; i < b.end[0]; i++)
        for (int64_t j = b.begin[1]; j < b.end[1]; j++) {
            int64_t k = offset_of(p, i, j, channel);
            if (x[k] > x[best] || (isnan(x[k]) && !isnan(x[best]))) best = k;
        }
    return best;
}

/* Copies from each argmax to `pick_to` (one element per window), or adds from each window to `route_to` (the shape of
 * x). One of the two is NULL. */
static void copy_at_argmax(const pooling *p, const double *x, const double *from, double *pick_to,
                           double *route_to) {
    int64_t image = p->x_size[0] * p->x_size[1] * p->channels, window = 0;
    for (int64_t n = 0; n < p->images; n++)
        for (int64_t row = 0; row < p->y_size[0]; row++)
            for (int64_t column = 0; column < p->y_size[1]; column++) {
                window_bounds b = window_bounds_of(p, row, column);
                for (int64_t c = 0; c < p->channels; c++, window++) {
                    int64_t argmax = n * image + argmax_of(p, b, c, x + n * image);
                    if (pick_to)
                        pick_to[window] = from[argmax];
                    else
                        route_to[argmax] += from[window];
                }
            }
}

tu_status tu__max_pool_reference(const tu__reference_call *m) {
    const struct tu__max_pool_attrs *a = m->attrs;
    pooling p = pooling_of(m->in[0].type, m->out[0].type, WINDOWS_OF(a));
    copy_at_argmax(&p, m->in[0].data, m->in[0].data, m->out[0].data, NULL);
    return TU_OK;
}

tu_status tu__max_pool_pick_reference(const tu__reference_call *m) {
    const struct tu__max_pool_pick_attrs *a = m->attrs;
    pooling p = pooling_of(m->in[0].type, m->out[0].type, WINDOWS_OF(a));
    copy_at_argmax(&p, m->in[0].data, m->in[1].data, m->out[0].data, NULL);
    return TU_OK;
}

tu_status tu__max_pool_grad_reference(const tu__reference_call *m) {
    const struct tu__max_pool_grad_attrs *a = m->attrs;
    pooling p = pooling_of(m->in[0].type, m->in[1].type, WINDOWS_OF(a));
    tu__fill_zero(&m->out[0]);
    copy_at_argmax(&p, m->in[0].data, m->in[1].data, NULL, m->out[0].data);
    return TU_OK;
}

static double divisor_of(const pooling *p, window_bounds b, bool count_padding) {
    if (count_padding) return (double)p->windows.size[0] * (double)p->windows.size[1];
    return (double)(b.end[0] - b.begin[0]) * (double)(b.end[1] - b.begin[1]);
}

/* Computes y [c] as the mean over one window of x. */
static void average(const pooling *p, window_bounds b, double divisor, const double *x, double *y) {
    for (int64_t c = 0; c < p->channels; c++) y[c] = 0;
    for (int64_t i = b.begin[0]; i < b.end[0]; i++)
        for (int64_t j = b.begin[1]; j < b.end[1]; j++)
            for (int64_t c = 0; c < p->channels; c++) y[c] += x[offset_of(p, i, j, c)];
    for (int64_t c = 0; c < p->channels; c++) y[c] /= divisor;
}

static void distribute(const pooling *p, window_bounds b, double divisor, double *x, const double *y) {
    for (int64_t i = b.begin[0]; i < b.end[0]; i++)
        for (int64_t j = b.begin[1]; j < b.end[1]; j++)
            for (int64_t c = 0; c < p->channels; c++) x[offset_of(p, i, j, c)] += y[c] / divisor;
}

tu_status tu__avg_pool_reference(const tu__reference_call *m) {
    const struct tu__avg_pool_attrs *a = m->attrs;
    pooling p = pooling_of(m->in[0].type, m->out[0].type, WINDOWS_OF(a));
    const double *x = m->in[0].data;
    double *y = m->out[0].data;
    for (int64_t n = 0; n < p.images; n++, x += p.x_size[0] * p.x_size[1] * p.channels)
        for (int64_t row = 0; row < p.y_size[0]; row++)
            for (int64_t column = 0; column < p.y_size[1]; column++, y += p.channels) {
                window_bounds b = window_bounds_of(&p, row, column);
                average(&p, b, divisor_of(&p, b, a->count_padding), x, y);
            }
    return TU_OK;
}

tu_status tu__avg_pool_grad_reference(const tu__reference_call *m) {
    const struct tu__avg_pool_grad_attrs *a = m->attrs;
    pooling p = pooling_of(m->out[0].type, m->in[0].type, WINDOWS_OF(a));
    const double *y = m->in[0].data;
    double *x = m->out[0].data;
    tu__fill_zero(&m->out[0]);
    for (int64_t n = 0; n < p.images; n++, x += p.x_size[0] * p.x_size[1] * p.channels)
        for (int64_t row = 0; row < p.y_size[0]; row++)
            for (int64_t column = 0; column < p.y_size[1]; column++, y += p.channels) {
                window_bounds b = window_bounds_of(&p, row, column);
                distribute(&p, b, divisor_of(&p, b, a->count_padding), x, y);
            }
    return TU_OK;
}

/* ---- Floating-point operations: one per pixel of every window, including padding ---- */

static int64_t pool_flops(tu_type pooled, const int64_t window[2]) {
    return tu__saturating_product(3, (int64_t[]){tu_shape_elements(pooled.shape), window[0], window[1]});
}

int64_t tu__max_pool_flops(const tu__node *node, const tu_type *in) {
    (void)in;
    return pool_flops(node->outputs[0], tu__attrs(node, max_pool)->window);
}

int64_t tu__max_pool_pick_flops(const tu__node *node, const tu_type *in) {
    (void)in;
    return pool_flops(node->outputs[0], tu__attrs(node, max_pool_pick)->window);
}

int64_t tu__max_pool_grad_flops(const tu__node *node, const tu_type *in) {
    return pool_flops(in[1], tu__attrs(node, max_pool_grad)->window);
}

int64_t tu__avg_pool_flops(const tu__node *node, const tu_type *in) {
    (void)in;
    return pool_flops(node->outputs[0], tu__attrs(node, avg_pool)->window);
}

int64_t tu__avg_pool_grad_flops(const tu__node *node, const tu_type *in) {
    return pool_flops(in[0], tu__attrs(node, avg_pool_grad)->window);
}

/* ---- Builders ---- */

/* Sets the windows from the options. The default window is 2 x 2, the default stride the window's size. */
static bool windows_of_options(tu_value x, const char *operation, const tu_pool_options *o, tu__windows *w) {
    for (int axis = 0; axis < 2; axis++) {
        w->size[axis] = o->window[axis] ? o->window[axis] : 2;
        w->stride[axis] = o->stride[axis] ? o->stride[axis] : w->size[axis];
        w->dilation[axis] = 1;
    }
    tu_shape s = tu_value_shape(x);
    int64_t size[2] = {s.rank == 4 ? s.dim[1] : 0, s.rank == 4 ? s.dim[2] : 0};
    return tu__resolve_padding(x, operation, size, o->padding, o->pad, w);
}

#define WINDOW_ATTRS(w)                                                                                      \
    .window = {(w).size[0], (w).size[1]}, .stride = {(w).stride[0], (w).stride[1]},                          \
    .pad = {(w).pad[0], (w).pad[1], (w).pad[2], (w).pad[3]}

tu_value tu_max_pool_with(tu_value x, const tu_pool_options *options) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    TU__OPTIONS(tu_pool_options, o, options);
    tu__windows w;
    if (!windows_of_options(x, "max_pool", &o, &w)) return tu__invalid(x.graph);
    struct tu__max_pool_attrs attrs = {WINDOW_ATTRS(w)};
    return tu__apply(MAX_POOL, &attrs, x);
}

tu_value tu_avg_pool_with(tu_value x, const tu_pool_options *options) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    TU__OPTIONS(tu_pool_options, o, options);
    tu__windows w;
    if (!windows_of_options(x, "avg_pool", &o, &w)) return tu__invalid(x.graph);
    struct tu__avg_pool_attrs attrs = {WINDOW_ATTRS(w), .count_padding = o.count_padding};
    return tu__apply(AVG_POOL, &attrs, x);
}

tu_value tu_global_avg_pool(tu_value x) {
    return tu__check_nhwc(x, "global_avg_pool") ? tu_mean(x, .axes = TU_AXES(1, 2)) : tu__invalid(x.graph);
}

tu_value tu_global_max_pool(tu_value x) {
    return tu__check_nhwc(x, "global_max_pool") ? tu_max(x, .axes = TU_AXES(1, 2)) : tu__invalid(x.graph);
}
