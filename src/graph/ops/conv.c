/* Convolution: conv2d and the gradients of its input and filter.
 *
 * All three are partial derivatives of one trilinear form. With NHWC activations x and y and an OHWI filter f,
 *
 *     T(x, f, y) = sum over n, p, q, i, j, c, o of
 *                  x[n, p*s + i*d - pad, q*s + j*d - pad, c] * f[o, i, j, c] * y[n, p, q, o]
 *
 * where (p, q) is a pixel of y, (i, j) a tap (a pixel of the filter), s the stride and d the dilation. Terms whose
 * element of x lies in the padding are omitted. With groups, the sum contains only pairs of c and o of the same
 * group.
 *
 *     conv2d(x, f)     = dT/dy    the convolution (strictly speaking, a cross-correlation)
 *     conv2d_dx(y, f)  = dT/dx    the gradient of its input; also the transposed convolution
 *     conv2d_dw(x, y)  = dT/df    the gradient of its filter
 *
 * T is linear in each argument, so the gradients of each of the three are computed by the other two, for derivatives
 * of any order. The attribute `size` contains what the two input shapes do not determine: height and width of x for
 * conv2d_dx, of the filter for conv2d_dw.
 *
 * Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016, illustrates all of these.
 */
#include <inttypes.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/ops/conv.h"
#include "graph/ops/window.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* ---- Shape rules ---- */

static tu_status check_operands(const tu__rule *r, const char *first, const char *second) {
    const char *const what[2] = {first, second};
    for (int i = 0; i < 2; i++) {
        if (!tu_dtype_is_float(r->in[i].dtype))
            return tu__rule_fail(r, "the %s has type %s, expected a float type (convert with tu_cast)",
                                 what[i], tu_dtype_name(r->in[i].dtype));
        if (r->in[i].shape.rank != 4)
            return tu__rule_fail(
                r, "the %s has rank %" PRId64 ", expected 4: [n,h,w,c] images, [o,h,w,c] filters", what[i],
                r->in[i].shape.rank);
    }
    if (r->in[0].dtype != r->in[1].dtype)
        return tu__rule_fail(r,
                             "the %s has type %s and the %s %s, expected equal types (convert with tu_cast)",
                             first, tu_dtype_name(r->in[0].dtype), second, tu_dtype_name(r->in[1].dtype));
    return TU_OK;
}

static tu_status check_groups(const tu__rule *r, int64_t groups, const char *what, int64_t channels) {
    if (groups < 1) return tu__rule_fail(r, "groups is %" PRId64 ", expected at least 1", groups);
    if (channels % groups != 0)
        return tu__rule_fail(r, "%" PRId64 " %s are not divisible by %" PRId64 " groups", channels, what,
                             groups);
    return TU_OK;
}

static tu_status set_output_shape(tu__rule *r, int64_t a, int64_t b, int64_t c, int64_t d) {
    r->out[0].shape = TU_SHAPE(a, b, c, d);
    if (!tu__shape_valid(r->out[0].shape))
        return tu__rule_fail(r, "the result %s is too large: expected at most 2^48 elements",
                             tu__shape_string(r->out[0].shape));
    return TU_OK;
}

/* Checks that `count` can be divided into one block for each of the members. */
static tu_status check_members(const tu__rule *r, int64_t members, const char *what, int64_t count) {
    if (members < 0) return tu__rule_fail(r, "members is %" PRId64 ", expected at least 0", members);
    if (members > 0 && count % members != 0)
        return tu__rule_fail(r, "%" PRId64 " %s are not divisible by %" PRId64 " members", count, what,
                             members);
    return TU_OK;
}

static int64_t block_of(int64_t members, int64_t count) {
    return members ? count / members : count;
}

tu_status tu__conv2d_output_shape(tu__rule *r, int64_t members) {
    const struct tu__conv2d_attrs *a = r->attrs;
    const int64_t *x = r->in[0].shape.dim, *f = r->in[1].shape.dim;
    TU_TRY(check_members(r, members, "images", x[0]));
    TU_TRY(check_members(r, members, "filters", f[0]));
    int64_t filters = block_of(members, f[0]);
    TU_TRY(check_groups(r, a->groups, "filters", filters));
    TU_TRY(check_groups(r, a->groups, "input channels", x[3]));
    if (f[3] != x[3] / a->groups)
        return tu__rule_fail(r,
                             "the filter has %" PRId64 " input channels, expected %" PRId64
                             ": the input has %" PRId64 " in %" PRId64 " group%s",
                             f[3], x[3] / a->groups, x[3], a->groups, a->groups == 1 ? "" : "s");
    tu__windows windows = tu__windows_of(f + 1, a->stride, a->dilation, a->pad);
    int64_t output[2];
    TU_TRY(tu__window_outputs(r, &windows, x + 1, output));
    return set_output_shape(r, x[0], output[0], output[1], filters);
}

tu_status tu__conv2d_shape(tu__rule *r) {
    const struct tu__conv2d_attrs *a = r->attrs;
    TU_TRY(check_operands(r, "input", "filter"));
    r->out[0].dtype = r->in[0].dtype;
    return tu__conv2d_output_shape(r, a->members);
}

tu_status tu__conv2d_dx_shape(tu__rule *r) {
    const struct tu__conv2d_dx_attrs *a = r->attrs;
    TU_TRY(check_operands(r, "input", "filter"));
    r->out[0].dtype = r->in[0].dtype;
    const int64_t *y = r->in[0].shape.dim, *f = r->in[1].shape.dim;
    TU_TRY(check_members(r, a->members, "images", y[0]));
    TU_TRY(check_members(r, a->members, "filters", f[0]));
    int64_t filters = block_of(a->members, f[0]);
    TU_TRY(check_groups(r, a->groups, "filters", filters));
    if (y[3] != filters)
        return tu__rule_fail(
            r, "the input has %" PRId64 " channels, expected %" PRId64 ", the number of filters%s", y[3],
            filters, a->members ? " of a member" : "");
    int64_t channels;
    if (__builtin_mul_overflow(f[3], a->groups, &channels))
        return tu__rule_fail(
            r, "%" PRId64 " groups of %" PRId64 " channels are too many: their product overflows", a->groups,
            f[3]);
    tu__windows windows = tu__windows_of(f + 1, a->stride, a->dilation, a->pad);
    TU_TRY(tu__check_window_outputs(r, &windows, a->size, y + 1));
    return set_output_shape(r, y[0], a->size[0], a->size[1], channels);
}

tu_status tu__conv2d_dw_shape(tu__rule *r) {
    const struct tu__conv2d_dw_attrs *a = r->attrs;
    TU_TRY(check_operands(r, "input", "output gradient"));
    r->out[0].dtype = r->in[0].dtype;
    const int64_t *x = r->in[0].shape.dim, *y = r->in[1].shape.dim;
    TU_TRY(check_groups(r, a->groups, "filters", y[3]));
    TU_TRY(check_groups(r, a->groups, "input channels", x[3]));
    if (x[0] != y[0])
        return tu__rule_fail(r,
                             "the input has %" PRId64 " images, but the output gradient has %" PRId64
                             ": expected the same number",
                             x[0], y[0]);
    TU_TRY(check_members(r, a->members, "images", x[0]));
    tu__windows windows = tu__windows_of(a->size, a->stride, a->dilation, a->pad);
    TU_TRY(tu__check_window_outputs(r, &windows, x + 1, y + 1));
    int64_t filters;
    if (__builtin_mul_overflow(y[3], a->members ? a->members : 1, &filters))
        return tu__rule_fail(r, "%" PRId64 " members of %" PRId64 " filters are too many", a->members, y[3]);
    return set_output_shape(r, filters, a->size[0], a->size[1], x[3] / a->groups);
}

/* ---- Gradients: each by the other two operations ---- */

#define SAME_WINDOWS(a)                                                                                      \
    .stride = {(a)->stride[0], (a)->stride[1]}, .pad = {(a)->pad[0], (a)->pad[1], (a)->pad[2], (a)->pad[3]}, \
    .dilation = {(a)->dilation[0], (a)->dilation[1]}
void tu__conv2d_gradient(tu__vjp *v) {
    const struct tu__conv2d_attrs *a = v->node->attrs;
    const int64_t *x_size = tu__input_height_width(v, 0), *f_size = tu__input_height_width(v, 1);
    struct tu__conv2d_dx_attrs dx = {SAME_WINDOWS(a), .groups = a->groups, .members = a->members,
                                     .size = {x_size[0], x_size[1]}};
    struct tu__conv2d_dw_attrs dw = {SAME_WINDOWS(a), .groups = a->groups, .members = a->members,
                                     .size = {f_size[0], f_size[1]}};
    tu_value y = tu__vjp_gradient(v, 0);
    if (tu__vjp_needs_gradient(v, 0))
        tu__vjp_accumulate(v, 0, tu__apply(CONV2D_DX, &dx, y, tu__vjp_input(v, 1)));
    if (tu__vjp_needs_gradient(v, 1))
        tu__vjp_accumulate(v, 1, tu__apply(CONV2D_DW, &dw, tu__vjp_input(v, 0), y));
}

void tu__conv2d_dx_gradient(tu__vjp *v) {
    const struct tu__conv2d_dx_attrs *a = v->node->attrs;
    const int64_t *f_size = tu__input_height_width(v, 1);
    struct tu__conv2d_attrs dy = {SAME_WINDOWS(a), .groups = a->groups, .members = a->members};
    struct tu__conv2d_dw_attrs dw = {SAME_WINDOWS(a), .groups = a->groups, .members = a->members,
                                     .size = {f_size[0], f_size[1]}};
    tu_value x = tu__vjp_gradient(v, 0);
    if (tu__vjp_needs_gradient(v, 0))
        tu__vjp_accumulate(v, 0, tu__apply(CONV2D, &dy, x, tu__vjp_input(v, 1)));
    if (tu__vjp_needs_gradient(v, 1))
        tu__vjp_accumulate(v, 1, tu__apply(CONV2D_DW, &dw, x, tu__vjp_input(v, 0)));
}

void tu__conv2d_dw_gradient(tu__vjp *v) {
    const struct tu__conv2d_dw_attrs *a = v->node->attrs;
    const int64_t *x_size = tu__input_height_width(v, 0);
    struct tu__conv2d_dx_attrs dx = {SAME_WINDOWS(a), .groups = a->groups, .members = a->members,
                                     .size = {x_size[0], x_size[1]}};
    struct tu__conv2d_attrs dy = {SAME_WINDOWS(a), .groups = a->groups, .members = a->members};
    tu_value f = tu__vjp_gradient(v, 0);
    if (tu__vjp_needs_gradient(v, 0))
        tu__vjp_accumulate(v, 0, tu__apply(CONV2D_DX, &dx, tu__vjp_input(v, 1), f));
    if (tu__vjp_needs_gradient(v, 1))
        tu__vjp_accumulate(v, 1, tu__apply(CONV2D, &dy, tu__vjp_input(v, 0), f));
}

/* ---- Reference kernels ----
 *
 * All three use the same loop nest, which visits each combination of a pixel of x, a tap and a pixel of y, and adds
 * the product of two of them to the third. The filter is reordered to one matrix of channels per tap, so that the
 * innermost loop accesses memory contiguously. The loop over pixels is inside the loop over taps, so that the matrix
 * stays in the cache. */

typedef struct convolution {
    tu__windows windows;
    int64_t images;
    int64_t x_size[2], y_size[2];
    int64_t groups, x_channels, y_channels; /* channels of one group */
} convolution;

static convolution convolution_of(tu_type x, tu_type f, tu_type y, tu__windows windows, int64_t groups) {
    return (convolution){.windows = windows,
                         .images = x.shape.dim[0],
                         .x_size = {x.shape.dim[1], x.shape.dim[2]},
                         .y_size = {y.shape.dim[1], y.shape.dim[2]},
                         .groups = groups,
                         .x_channels = f.shape.dim[3],
                         .y_channels = f.shape.dim[0] / groups};
}

static int64_t filter_elements(const convolution *c) {
    return c->groups * c->windows.size[0] * c->windows.size[1] * c->x_channels * c->y_channels;
}

/* to[k] += sum over i of from[i] * matrix[i, k] */
static void add_matrix_product(int64_t rows, int64_t columns, const double *restrict from,
                               const double *restrict matrix, double *restrict to) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) to[k] += from[i] * matrix[i * columns + k];
}

/* Adds the product of two arguments to the third, for one pixel of x, one tap, one pixel of y and one group of
 * channels. */
typedef void tap_function(const convolution *c, double *x, double *tap, double *y);

static void add_to_y(const convolution *c, double *x, double *tap, double *y) { /* tap [c, o] */
    add_matrix_product(c->x_channels, c->y_channels, x, tap, y);
}

static void add_to_x(const convolution *c, double *x, double *tap, double *y) { /* tap [o, c] */
    add_matrix_product(c->y_channels, c->x_channels, y, tap, x);
}

static void add_to_tap(const convolution *c, double *x, double *tap, double *y) { /* tap [c, o] */
    for (int64_t i = 0; i < c->x_channels; i++) {
        double *restrict row = tap + i * c->y_channels;
        const double *restrict from = y;
        for (int64_t k = 0; k < c->y_channels; k++) row[k] += x[i] * from[k];
    }
}

/* Calls `add` for tap (i, j) and all pixels of one image. `taps` is [groups, h, w, …]. */
static void apply_tap(const convolution *c, int64_t i, int64_t j, double *x, double *taps, double *y,
                      tap_function *add) {
    const tu__windows *w = &c->windows;
    int64_t matrix = c->x_channels * c->y_channels, group_taps = w->size[0] * w->size[1];
    for (int64_t p = 0; p < c->y_size[0]; p++) {
        int64_t row = p * w->stride[0] + i * w->dilation[0] - w->pad[0];
        if (row < 0 || row >= c->x_size[0]) continue;
        for (int64_t q = 0; q < c->y_size[1]; q++) {
            int64_t column = q * w->stride[1] + j * w->dilation[1] - w->pad[2];
            if (column < 0 || column >= c->x_size[1]) continue;
            double *x_pixel = x + (row * c->x_size[1] + column) * c->groups * c->x_channels;
            double *y_pixel = y + (p * c->y_size[1] + q) * c->groups * c->y_channels;
            for (int64_t g = 0; g < c->groups; g++)
                add(c, x_pixel + g * c->x_channels, taps + (g * group_taps + i * w->size[1] + j) * matrix,
                    y_pixel + g * c->y_channels);
        }
    }
}

static void apply_all_taps(const convolution *c, double *x, double *taps, double *y, tap_function *add) {
    int64_t x_image = c->x_size[0] * c->x_size[1] * c->groups * c->x_channels;
    int64_t y_image = c->y_size[0] * c->y_size[1] * c->groups * c->y_channels;
    for (int64_t n = 0; n < c->images; n++)
        for (int64_t i = 0; i < c->windows.size[0]; i++)
            for (int64_t j = 0; j < c->windows.size[1]; j++)
                apply_tap(c, i, j, x + n * x_image, taps, y + n * y_image, add);
}

/* Converts between the filter [groups * o, taps, c] and [groups, taps, c, o], or [groups, taps, o, c] if
 * `outputs_first`. */
enum { FILTER_TO_TAPS, TAPS_TO_FILTER };
static void reorder_filter(const convolution *c, int direction, bool outputs_first, double *filter,
                           double *taps) {
    int64_t tap_count = c->windows.size[0] * c->windows.size[1];
    for (int64_t g = 0; g < c->groups; g++)
        for (int64_t o = 0; o < c->y_channels; o++)
            for (int64_t t = 0; t < tap_count; t++)
                for (int64_t i = 0; i < c->x_channels; i++) {
                    double *f = filter + ((g * c->y_channels + o) * tap_count + t) * c->x_channels + i;
                    double *matrix = taps + (g * tap_count + t) * c->x_channels * c->y_channels;
                    double *m = matrix + (outputs_first ? o * c->x_channels + i : i * c->y_channels + o);
                    if (direction == FILTER_TO_TAPS)
                        *m = *f;
                    else
                        *f = *m;
                }
}

static double *alloc_taps(const convolution *c) {
    return tu__alloc_array((size_t)filter_elements(c), sizeof(double), "a reordered filter");
}

tu_status tu__conv2d_compute(const struct tu__conv2d_attrs *a, const tu__tensor *x, const tu__tensor *f,
                             const tu__tensor *y) {
    tu__windows windows = tu__windows_of(f->type.shape.dim + 1, a->stride, a->dilation, a->pad);
    convolution c = convolution_of(x->type, f->type, y->type, windows, a->groups);
    double *taps = alloc_taps(&c);
    if (!taps) return TU_NO_MEMORY;
    reorder_filter(&c, FILTER_TO_TAPS, false, f->data, taps);
    tu__fill_zero(y);
    apply_all_taps(&c, x->data, taps, y->data, add_to_y);
    tu__free(taps);
    return TU_OK;
}

static tu_status compute_dx(const struct tu__conv2d_dx_attrs *a, const tu__tensor *y, const tu__tensor *f,
                            const tu__tensor *x) {
    tu__windows windows = tu__windows_of(f->type.shape.dim + 1, a->stride, a->dilation, a->pad);
    convolution c = convolution_of(x->type, f->type, y->type, windows, a->groups);
    double *taps = alloc_taps(&c);
    if (!taps) return TU_NO_MEMORY;
    reorder_filter(&c, FILTER_TO_TAPS, true, f->data, taps);
    tu__fill_zero(x);
    apply_all_taps(&c, x->data, taps, y->data, add_to_x);
    tu__free(taps);
    return TU_OK;
}

static tu_status compute_dw(const struct tu__conv2d_dw_attrs *a, const tu__tensor *x, const tu__tensor *y,
                            const tu__tensor *f) {
    tu__windows windows = tu__windows_of(a->size, a->stride, a->dilation, a->pad);
    convolution c = convolution_of(x->type, f->type, y->type, windows, a->groups);
    double *taps = alloc_taps(&c); /* zeros */
    if (!taps) return TU_NO_MEMORY;
    apply_all_taps(&c, x->data, taps, y->data, add_to_tap);
    reorder_filter(&c, TAPS_TO_FILTER, false, f->data, taps);
    tu__free(taps);
    return TU_OK;
}

/* Returns block `index` of `count` along the first axis; the whole tensor if count is 0. */
static tu__tensor block_at(const tu__tensor *t, int64_t count, int64_t index) {
    tu__tensor block = *t;
    if (!count) return block;
    block.type.shape.dim[0] /= count;
    block.data += index * tu_shape_elements(block.type.shape);
    return block;
}

tu_status tu__conv2d_reference(const tu__reference_call *m) {
    const struct tu__conv2d_attrs *a = m->attrs;
    for (int64_t i = 0; i == 0 || i < a->members; i++) {
        tu__tensor x = block_at(&m->in[0], a->members, i), f = block_at(&m->in[1], a->members, i);
        tu__tensor y = block_at(&m->out[0], a->members, i);
        TU_TRY(tu__conv2d_compute(a, &x, &f, &y));
    }
    return TU_OK;
}

tu_status tu__conv2d_dx_reference(const tu__reference_call *m) {
    const struct tu__conv2d_dx_attrs *a = m->attrs;
    for (int64_t i = 0; i == 0 || i < a->members; i++) {
        tu__tensor y = block_at(&m->in[0], a->members, i), f = block_at(&m->in[1], a->members, i);
        tu__tensor x = block_at(&m->out[0], a->members, i);
        TU_TRY(compute_dx(a, &y, &f, &x));
    }
    return TU_OK;
}

tu_status tu__conv2d_dw_reference(const tu__reference_call *m) {
    const struct tu__conv2d_dw_attrs *a = m->attrs;
    for (int64_t i = 0; i == 0 || i < a->members; i++) {
        tu__tensor x = block_at(&m->in[0], a->members, i), y = block_at(&m->in[1], a->members, i);
        tu__tensor f = block_at(&m->out[0], a->members, i);
        TU_TRY(compute_dw(a, &x, &y, &f));
    }
    return TU_OK;
}

/* ---- Floating-point operations: a multiplication and an addition per term of T, including padding ---- */

int64_t tu__conv_flops(tu_type f, tu_type y) {
    const int64_t *k = f.shape.dim;
    return tu__saturating_product(5, (int64_t[]){2, tu_shape_elements(y.shape), k[1], k[2], k[3]});
}

int64_t tu__conv2d_flops(const tu__node *node, const tu_type *in) {
    return tu__conv_flops(in[1], node->outputs[0]);
}

int64_t tu__conv2d_dx_flops(const tu__node *node, const tu_type *in) {
    (void)node;
    return tu__conv_flops(in[1], in[0]);
}

int64_t tu__conv2d_dw_flops(const tu__node *node, const tu_type *in) {
    return tu__conv_flops(node->outputs[0], in[1]);
}

/* ---- Builders ---- */

static int64_t default_to_one(int64_t option) {
    return option ? option : 1;
}

/* Returns the windows of a convolution without padding. Sizes are zero if the filter's rank is not 4, which the shape
 * rule rejects. */
static tu__windows filter_windows(tu_value filter, const int64_t stride[2], const int64_t dilation[2]) {
    tu_shape f = tu_value_shape(filter);
    tu__windows windows = {.stride = {default_to_one(stride[0]), default_to_one(stride[1])},
                           .dilation = {default_to_one(dilation[0]), default_to_one(dilation[1])}};
    if (f.rank == 4) memcpy(windows.size, f.dim + 1, sizeof windows.size);
    return windows;
}

bool tu__conv2d_attrs_of(const char *operation, tu_value x, tu_value filter,
                         const tu_convolve_options *options, struct tu__conv2d_attrs *attrs) {
    if (!tu_ok(x) || !tu_ok(filter)) return false;
    TU__OPTIONS(tu_convolve_options, o, options);
    tu__windows w = filter_windows(filter, o.stride, o.dilation);
    tu_shape s = tu_value_shape(x);
    int64_t size[2] = {s.rank == 4 ? s.dim[1] : 0, s.rank == 4 ? s.dim[2] : 0};
    if (!tu__resolve_padding(x, operation, size, o.padding, o.pad, &w)) return false;
    *attrs = (struct tu__conv2d_attrs){SAME_WINDOWS(&w), .groups = default_to_one(o.groups)};
    return true;
}

tu_value tu_convolve_with(tu_value x, tu_value filter, const tu_convolve_options *options) {
    struct tu__conv2d_attrs attrs;
    if (!tu__conv2d_attrs_of("convolve", x, filter, options, &attrs)) return tu__invalid(x.graph);
    return tu__apply(CONV2D, &attrs, x, filter);
}

/* Computes the default size of the result along one axis; false if it overflows. */
static bool transposed_size(const tu__windows *w, tu_padding padding, int axis, int64_t count,
                            int64_t *size) {
    if (padding == TU_SAME) return !__builtin_mul_overflow(count, w->stride[axis], size);
    return tu__window_input(w, axis, count, size);
}

tu_value tu_convolve_transpose_with(tu_value y, tu_value filter,
                                    const tu_convolve_transpose_options *options) {
    if (!tu_ok(y) || !tu_ok(filter)) return tu__invalid(y.graph);
    TU__OPTIONS(tu_convolve_transpose_options, o, options);
    tu__windows w = filter_windows(filter, o.stride, o.dilation);
    tu_shape s = tu_value_shape(y);
    int64_t size[2] = {o.size[0], o.size[1]};
    if (o.padding == TU_EXPLICIT) memcpy(w.pad, o.pad, sizeof w.pad);
    for (int axis = 0; axis < 2; axis++) /* the shape rule rejects a filter or input of another rank */
        if (size[axis] == 0 && s.rank == 4 && w.size[axis] != 0 &&
            !transposed_size(&w, o.padding, axis, s.dim[1 + axis], &size[axis]))
            return tu__graph_fail(
                y.graph, TU_INVALID,
                "convolve_transpose of '%s' %s: the result's size overflows with stride %" PRId64
                " and dilation %" PRId64 ", expected small numbers of at least 1",
                tu_value_name(y), tu__type_string(tu_value_type(y)), w.stride[axis], w.dilation[axis]);
    if (!tu__resolve_padding(y, "convolve_transpose", size, o.padding, o.pad, &w))
        return tu__invalid(y.graph);
    struct tu__conv2d_dx_attrs attrs = {SAME_WINDOWS(&w), .groups = default_to_one(o.groups),
                                        .size = {size[0], size[1]}};
    return tu__make(y.graph, &(tu__node_request){.op = TU__OP_CONV2D_DX,
                                                 .name = "convolve_transpose",
                                                 .attrs = &attrs,
                                                 .inputs = (const tu_value[]){y, filter},
                                                 .input_count = 2});
}
