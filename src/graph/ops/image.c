/* Images: resizing and cropping, and the augmentations composed of them.
 *
 * Resizing is linear. Along each axis, an output pixel is a weighted sum of the two input pixels next to its
 * position:
 *
 *     bilinear   position = max((pixel + 1/2) * input / output - 1/2, 0): half-pixel centres like PyTorch's
 *                align_corners=False and TensorFlow 2, without antialiasing
 *     nearest    position = floor(pixel * input / output), like PyTorch's mode='nearest', in exact arithmetic
 *
 * resize_grad is its transpose; its attribute `size` is height and width of the original image. Each is the other's
 * gradient.
 *
 * crop copies a window of each image. The window's corner is an input of the operation; offsets out of range are
 * clamped. crop_grad copies such a window into an image of zeros; its `size` is that of the original image.
 *
 * The augmentations use one or two random numbers per sample, so that the result for a sample does not depend on the
 * device. Each has a scope with its name, which is part of the random numbers' key.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/number.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/ops/resize.h"
#include "graph/ops/window.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* ---- Shape rules ---- */

static tu_status check_images(const tu__rule *r) {
    if (r->in[0].shape.rank != 4)
        return tu__rule_fail(r, "the image has rank %" PRId64 ", expected 4: [n,h,w,c]", r->in[0].shape.rank);
    return TU_OK;
}

static tu_status check_float(const tu__rule *r) {
    if (!tu_dtype_is_float(r->in[0].dtype))
        return tu__rule_fail(r, "the image has type %s, expected a float type (convert with tu_cast)",
                             tu_dtype_name(r->in[0].dtype));
    return TU_OK;
}

/* Sets the output type: images of the given size. */
static tu_status set_output_size(tu__rule *r, const int64_t size[2]) {
    const int64_t *x = r->in[0].shape.dim;
    if (size[0] < 1 || size[1] < 1)
        return tu__rule_fail(r, "the size is %" PRId64 " x %" PRId64 ", expected at least 1 x 1", size[0],
                             size[1]);
    r->out[0] = (tu_type){r->in[0].dtype, TU_SHAPE(x[0], size[0], size[1], x[3])};
    if (!tu__shape_valid(r->out[0].shape))
        return tu__rule_fail(r, "the result %s is too large: expected at most 2^48 elements",
                             tu__shape_string(r->out[0].shape));
    return TU_OK;
}

/* Checks that height and width are below 2^31, so that positions do not overflow. */
static tu_status check_sides(const tu__rule *r, const int64_t size[2]) {
    if (size[0] > INT32_MAX || size[1] > INT32_MAX)
        return tu__rule_fail(
            r, "the image size is %" PRId64 " x %" PRId64 ", expected height and width below 2^31", size[0],
            size[1]);
    return TU_OK;
}

static tu_status infer_resized(tu__rule *r, const int64_t size[2], int64_t method) {
    TU_TRY(check_images(r));
    if (method != TU_BILINEAR && method != TU_NEAREST)
        return tu__rule_fail(r, "the method is %" PRId64 ", expected TU_BILINEAR or TU_NEAREST", method);
    TU_TRY(check_sides(r, r->in[0].shape.dim + 1));
    TU_TRY(check_sides(r, size));
    return set_output_size(r, size);
}

tu_status tu__resize_shape(tu__rule *r) {
    const struct tu__resize_attrs *a = r->attrs;
    if (a->method != TU_NEAREST) TU_TRY(check_float(r)); /* nearest only copies, so it supports any type */
    return infer_resized(r, a->size, a->method);
}

tu_status tu__resize_grad_shape(tu__rule *r) {
    const struct tu__resize_grad_attrs *a = r->attrs;
    TU_TRY(check_float(r));
    return infer_resized(r, a->size, a->method);
}

static tu_status check_offsets(const tu__rule *r) {
    tu_type offsets = r->in[1];
    bool are_integers = offsets.dtype == TU_I32 || offsets.dtype == TU_I64;
    if (!are_integers || offsets.shape.rank != 2 || offsets.shape.dim[0] != r->in[0].shape.dim[0] ||
        offsets.shape.dim[1] != 2)
        return tu__rule_fail(r,
                             "the offsets are %s, expected i32 or i64 [%" PRId64
                             ",2]: top row and left column of each window",
                             tu__type_string(offsets), r->in[0].shape.dim[0]);
    return TU_OK;
}

tu_status tu__crop_shape(tu__rule *r) {
    const struct tu__crop_attrs *a = r->attrs;
    TU_TRY(check_images(r));
    TU_TRY(check_offsets(r));
    TU_TRY(set_output_size(r, a->size));
    const int64_t *x = r->in[0].shape.dim;
    if (a->size[0] > x[1] || a->size[1] > x[2])
        return tu__rule_fail(
            r, "the size is %" PRId64 " x %" PRId64 ", expected at most the image's %" PRId64 " x %" PRId64,
            a->size[0], a->size[1], x[1], x[2]);
    return TU_OK;
}

tu_status tu__crop_grad_shape(tu__rule *r) {
    const struct tu__crop_grad_attrs *a = r->attrs;
    TU_TRY(check_images(r));
    TU_TRY(check_float(r));
    TU_TRY(check_offsets(r));
    TU_TRY(set_output_size(r, a->size));
    const int64_t *y = r->in[0].shape.dim;
    if (a->size[0] < y[1] || a->size[1] < y[2])
        return tu__rule_fail(
            r, "the size is %" PRId64 " x %" PRId64 ", expected at least the window's %" PRId64 " x %" PRId64,
            a->size[0], a->size[1], y[1], y[2]);
    return TU_OK;
}

/* ---- Gradients: all four are linear in the image ---- */

void tu__resize_gradient(tu__vjp *v) {
    const int64_t *size = tu__input_height_width(v, 0);
    struct tu__resize_grad_attrs attrs = {.size = {size[0], size[1]},
                                          .method = tu__attrs(v->node, resize)->method};
    tu__vjp_accumulate(v, 0, tu__apply(RESIZE_GRAD, &attrs, tu__vjp_gradient(v, 0)));
}

void tu__resize_grad_gradient(tu__vjp *v) {
    const int64_t *size = tu__input_height_width(v, 0);
    struct tu__resize_attrs attrs = {.size = {size[0], size[1]},
                                     .method = tu__attrs(v->node, resize_grad)->method};
    tu__vjp_accumulate(v, 0, tu__apply(RESIZE, &attrs, tu__vjp_gradient(v, 0)));
}

void tu__crop_gradient(tu__vjp *v) {
    const int64_t *size = tu__input_height_width(v, 0);
    struct tu__crop_grad_attrs attrs = {.size = {size[0], size[1]}};
    tu__vjp_accumulate(v, 0, tu__apply(CROP_GRAD, &attrs, tu__vjp_gradient(v, 0), tu__vjp_input(v, 1)));
}

void tu__crop_grad_gradient(tu__vjp *v) {
    const int64_t *size = tu__input_height_width(v, 0);
    struct tu__crop_attrs attrs = {.size = {size[0], size[1]}};
    tu__vjp_accumulate(v, 0, tu__apply(CROP, &attrs, tu__vjp_gradient(v, 0), tu__vjp_input(v, 1)));
}

/* ---- Reference kernels of resizing ---- */

tu__neighbours tu__neighbours_of(int64_t output_index, int64_t input, int64_t output, int64_t method) {
    if (method == TU_NEAREST) {
        int64_t index = output_index * input / output;
        return (tu__neighbours){{index, index}, {1, 0}};
    }
    double position = ((double)output_index + 0.5) * (double)input / (double)output - 0.5;
    if (position < 0) position = 0;
    int64_t low = (int64_t)position;
    if (low >= input - 1) return (tu__neighbours){{input - 1, input - 1}, {1, 0}};
    double fraction = position - (double)low;
    return (tu__neighbours){{low, low + 1}, {1 - fraction, fraction}};
}

typedef struct resizing {
    int64_t images, channels, method;
    int64_t original[2], resized[2];
} resizing;

static resizing resizing_of(tu_type original, tu_type resized, int64_t method) {
    const int64_t *x = original.shape.dim, *y = resized.shape.dim;
    return (resizing){x[0], x[3], method, {x[1], x[2]}, {y[1], y[2]}};
}

/* Adds weight * from to one pixel. Skips a weight of 0: 0 times an infinity would be NaN. */
static void add_weighted(double weight, int64_t channels, const double *from, double *to) {
    if (weight == 0) return;
    for (int64_t c = 0; c < channels; c++) to[c] += weight * from[c];
}

/* Adds the original image to the resized one; if `transpose`, adds the resized image to the original. */
static void resize_image(const resizing *s, bool transpose, double *original, double *resized) {
    for (int64_t row = 0; row < s->resized[0]; row++) {
        tu__neighbours r = tu__neighbours_of(row, s->original[0], s->resized[0], s->method);
        for (int64_t column = 0; column < s->resized[1]; column++, resized += s->channels) {
            tu__neighbours c = tu__neighbours_of(column, s->original[1], s->resized[1], s->method);
            for (int corner = 0; corner < 4; corner++) {
                int i = corner / 2, j = corner % 2;
                double *pixel = original + (r.index[i] * s->original[1] + c.index[j]) * s->channels;
                double weight = r.weight[i] * c.weight[j];
                if (transpose)
                    add_weighted(weight, s->channels, resized, pixel);
                else
                    add_weighted(weight, s->channels, pixel, resized);
            }
        }
    }
}

static void resize_images(const resizing *s, bool transpose, double *original, double *resized) {
    int64_t original_image = s->original[0] * s->original[1] * s->channels;
    int64_t resized_image = s->resized[0] * s->resized[1] * s->channels;
    for (int64_t n = 0; n < s->images; n++)
        resize_image(s, transpose, original + n * original_image, resized + n * resized_image);
}

tu_status tu__resize_reference(const tu__reference_call *m) {
    const struct tu__resize_attrs *a = m->attrs;
    resizing s = resizing_of(m->in[0].type, m->out[0].type, a->method);
    tu__fill_zero(&m->out[0]);
    resize_images(&s, false, m->in[0].data, m->out[0].data);
    return TU_OK;
}

tu_status tu__resize_grad_reference(const tu__reference_call *m) {
    const struct tu__resize_grad_attrs *a = m->attrs;
    resizing s = resizing_of(m->out[0].type, m->in[0].type, a->method);
    tu__fill_zero(&m->out[0]);
    resize_images(&s, true, m->out[0].data, m->in[0].data);
    return TU_OK;
}

/* Bilinear: a multiplication and an addition for each of four neighbours per element of the resized image. */
static int64_t resize_flops(tu_type resized, int64_t method) {
    int64_t flops_per_element = method == TU_NEAREST ? 1 : 8;
    return tu__saturating_product(2, (int64_t[]){flops_per_element, tu_shape_elements(resized.shape)});
}

int64_t tu__resize_flops(const tu__node *node, const tu_type *in) {
    (void)in;
    return resize_flops(node->outputs[0], tu__attrs(node, resize)->method);
}

int64_t tu__resize_grad_flops(const tu__node *node, const tu_type *in) {
    return resize_flops(in[0], tu__attrs(node, resize_grad)->method);
}

/* ---- Reference kernels of cropping ---- */

static int64_t clamp_offset(double offset, int64_t size, int64_t window) {
    if (offset < 0) return 0;
    return offset > (double)(size - window) ? size - window : (int64_t)offset;
}

/* Copies rows between each image and its window. */
static void copy_windows(tu_shape image, tu_shape window, const double *offsets, bool into_image,
                         double *images, double *windows) {
    const int64_t *s = image.dim, *w = window.dim;
    int64_t row_elements = w[2] * w[3];
    for (int64_t n = 0; n < s[0]; n++) {
        int64_t top = clamp_offset(offsets[2 * n], s[1], w[1]),
                left = clamp_offset(offsets[2 * n + 1], s[2], w[2]);
        for (int64_t row = 0; row < w[1]; row++) {
            double *in_image = images + ((n * s[1] + top + row) * s[2] + left) * s[3];
            double *in_window = windows + (n * w[1] + row) * row_elements;
            if (into_image)
                memcpy(in_image, in_window, (size_t)row_elements * sizeof(double));
            else
                memcpy(in_window, in_image, (size_t)row_elements * sizeof(double));
        }
    }
}

tu_status tu__crop_reference(const tu__reference_call *m) {
    copy_windows(m->in[0].type.shape, m->out[0].type.shape, m->in[1].data, false, m->in[0].data,
                 m->out[0].data);
    return TU_OK;
}

tu_status tu__crop_grad_reference(const tu__reference_call *m) {
    tu__fill_zero(&m->out[0]);
    copy_windows(m->out[0].type.shape, m->in[0].type.shape, m->in[1].data, true, m->out[0].data,
                 m->in[0].data);
    return TU_OK;
}

/* ---- Builders ---- */

tu_value tu_resize(tu_value x, int64_t height, int64_t width, tu_resize_method method) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    struct tu__resize_attrs attrs = {.size = {height, width}, .method = (int64_t)method};
    return tu__apply(RESIZE, &attrs, x);
}

tu_value tu_crop(tu_value x, tu_value offsets, int64_t height, int64_t width) {
    if (!tu_ok(x) || !tu_ok(offsets)) return tu__invalid(x.graph);
    struct tu__crop_attrs attrs = {.size = {height, width}};
    return tu__apply(CROP, &attrs, x, offsets);
}

/* ---- Builders composed of other operations ---- */

static bool check_float_images(tu_value x, const char *operation) {
    if (!tu__check_nhwc(x, operation)) return false;
    if (tu_dtype_is_float(tu_value_dtype(x))) return true;
    tu__graph_fail(x.graph, TU_INVALID,
                   "%s of '%s' %s: the type is %s, expected a float type: convert with tu_cast(x, TU_F32)",
                   operation, tu_value_name(x), tu__type_string(tu_value_type(x)),
                   tu_dtype_name(tu_value_dtype(x)));
    return false;
}

/* Returns the shape of one number per sample: [n,1,1,1]. */
static tu_shape per_sample_shape(tu_value x) {
    return TU_SHAPE(tu_value_shape(x).dim[0], 1, 1, 1);
}

tu_value tu_standardize(tu_value x) {
    if (!check_float_images(x, "standardize")) return tu__invalid(x.graph);
    tu_shape s = tu_value_shape(x);
    double count = (double)s.dim[1] * (double)s.dim[2] * (double)s.dim[3];
    tu_value y = tu__invalid(x.graph);
    tu_scope(x.graph, "standardize") {
        tu_value wide = tu_cast(x, tu__statistics_dtype(tu_value_dtype(x)));
        tu_value mean = tu_mean(wide, .axes = TU_AXES(1, 2, 3), .keep = true);
        tu_value variance = tu_variance(wide, .axes = TU_AXES(1, 2, 3), .keep = true);
        /* Limit the variance, not the standard deviation, whose derivative at a variance of zero is infinite. */
        tu_value bounded = tu_maximum(variance, tu_number(wide, 1 / count));
        y = tu_cast(tu_div(tu_sub(wide, mean), tu_sqrt(bounded)), tu_value_dtype(x));
    }
    return y;
}

static tu_value centre_crop(tu_value x, int64_t height, int64_t width) {
    tu_shape s = tu_value_shape(x);
    int64_t top = (s.dim[1] - height) / 2, left = (s.dim[2] - width) / 2;
    return tu_slice(tu_slice(x, 1, top, top + height, 1), 2, left, left + width, 1);
}

/* Returns uniformly distributed integers, the corners of the windows: a random number in [0, 1) times the number of
 * possible corners, truncated. */
static tu_value random_corners(tu_value x, int64_t height, int64_t width) {
    tu_shape s = tu_value_shape(x);
    float corners[2] = {(float)(s.dim[1] - height + 1), (float)(s.dim[2] - width + 1)};
    tu_value uniform = tu_random_uniform(x.graph, TU_F32, TU_SHAPE(s.dim[0], 2), 0, 1, .per_sample = true);
    return tu_cast(tu_mul(uniform, tu_constant(x.graph, TU_F32, TU_SHAPE(2), corners)), TU_I32);
}

tu_value tu_random_crop(tu_value x, int64_t height, int64_t width) {
    if (!tu__check_nhwc(x, "random_crop")) return tu__invalid(x.graph);
    tu_shape s = tu_value_shape(x);
    if (height < 1 || width < 1 || height > s.dim[1] || width > s.dim[2])
        return tu__graph_fail(x.graph, TU_INVALID,
                              "random_crop of '%s' %s: the size is %" PRId64 " x %" PRId64
                              ", expected 1 x 1 to the image's %" PRId64 " x %" PRId64,
                              tu_value_name(x), tu__type_string(tu_value_type(x)), height, width, s.dim[1],
                              s.dim[2]);
    tu_value y = tu__invalid(x.graph);
    tu_scope(x.graph, "random_crop") {
        if (tu_training(x.graph))
            y = tu_crop(x, random_corners(x, height, width), height, width);
        else
            y = centre_crop(x, height, width);
    }
    return y;
}

tu_value tu_random_flip(tu_value x) {
    if (!tu__check_nhwc(x, "random_flip")) return tu__invalid(x.graph);
    if (!tu_training(x.graph)) return x;
    tu_value y = tu__invalid(x.graph);
    tu_scope(x.graph, "random_flip") {
        tu_value flipped =
            tu_random_bernoulli(x.graph, TU_BOOL, per_sample_shape(x), 0.5, .per_sample = true);
        y = tu_select(flipped, tu_flip(x, 2), x);
    }
    return y;
}

tu_value tu_random_brightness(tu_value x, double delta) {
    if (!check_float_images(x, "random_brightness")) return tu__invalid(x.graph);
    if (!(delta >= 0) || !isfinite(delta))
        return tu__graph_fail(
            x.graph, TU_INVALID,
            "random_brightness of '%s' %s: delta is %g, expected a finite number of at least 0",
            tu_value_name(x), tu__type_string(tu_value_type(x)), delta);
    if (!tu_training(x.graph)) return x;
    tu_value y = tu__invalid(x.graph);
    tu_scope(x.graph, "random_brightness") y =
        tu_add(x, tu_random_uniform(x.graph, tu_value_dtype(x), per_sample_shape(x), -delta, delta,
                                    .per_sample = true));
    return y;
}

tu_value tu_random_contrast(tu_value x, double low, double high) {
    if (!check_float_images(x, "random_contrast")) return tu__invalid(x.graph);
    if (!(low >= 0 && high >= low) || !isfinite(high))
        return tu__graph_fail(
            x.graph, TU_INVALID,
            "random_contrast of '%s' %s: low is %g and high is %g, expected finite numbers with "
            "0 <= low <= high",
            tu_value_name(x), tu__type_string(tu_value_type(x)), low, high);
    if (!tu_training(x.graph)) return x;
    tu_value y = tu__invalid(x.graph);
    tu_scope(x.graph, "random_contrast") {
        tu_value wide = tu_cast(x, tu__statistics_dtype(tu_value_dtype(x)));
        tu_value mean = tu_mean(wide, .axes = TU_AXES(1, 2), .keep = true); /* [n,1,1,c] */
        tu_value factor =
            tu_random_uniform(x.graph, tu_value_dtype(x), per_sample_shape(x), low, high, .per_sample = true);
        factor = tu_cast(factor, tu_value_dtype(wide));
        y = tu_cast(tu_add(tu_mul(tu_sub(wide, mean), factor), mean), tu_value_dtype(x));
    }
    return y;
}
