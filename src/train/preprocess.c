/* Preprocessing as graph operations: from stored images to the input of a network.
 *
 * Operations that only move pixels (pad, crop, flip) come first, on bytes, which is a quarter of the memory traffic
 * of f32. Then images are converted to f32. Arithmetic operations (brightness, contrast, cutout, normalisation) come
 * last, and devices fuse them. Resizing interpolates, so the conversion comes before it.
 *
 * Whether images are cropped or resized depends only on the size of the stored images, not on the padding: training
 * and inference treat an image the same way, except for random numbers.
 *
 * Cutout comes after normalisation, where zero is the mean pixel (DeVries & Taylor 2017). Padding comes before it,
 * with black. The centre of the square is uniform over the image, so the square may extend over the border. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include <tutti/ops.h>
#include <tutti/train.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/graph.h"

/* ---- Options ---- */

static tu_status fail_preprocess(tu_value images, const char *format, ...) TU_PRINTF(2, 3);
static tu_status fail_preprocess(tu_value images, const char *format, ...) {
    char detail[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    return tu_fail(TU_INVALID, "preprocess of '%s' %s: %s", tu_value_name(images),
                   tu__type_string(tu_value_type(images)), detail);
}

static tu_status check_numbers(tu_value x, const tu_preprocess_options *o) {
    if (!(o->brightness >= 0) || !isfinite(o->brightness))
        return fail_preprocess(x, "brightness is %g: expected a finite number of at least 0", o->brightness);
    if (!(o->contrast[0] >= 0 && o->contrast[1] >= o->contrast[0]) || !isfinite(o->contrast[1]))
        return fail_preprocess(x, "contrast is [%g, %g): expected finite numbers with 0 <= low <= high",
                               o->contrast[0], o->contrast[1]);
    for (int c = 0; c < TU_MAX_CHANNELS; c++)
        if (!isfinite(o->mean[c]) || !(o->deviation[c] >= 0) || !isfinite(o->deviation[c]))
            return fail_preprocess(
                x,
                "channel %d has mean %g and standard deviation %g: expected finite numbers, the latter not negative",
                c, o->mean[c], o->deviation[c]);
    return TU_OK;
}

/* Replaces zeros by the size of the images and validates the options. */
static tu_status resolve_options(tu_value x, tu_preprocess_options *o) {
    tu_type type = tu_value_type(x);
    const int64_t *size = type.shape.dim;
    if (type.shape.rank != 4 || (type.dtype != TU_U8 && type.dtype != TU_F32))
        return fail_preprocess(x, "expected images u8 or f32 [n,h,w,c]");
    if (o->height < 0 || o->width < 0 || o->channels < 0 || o->pad < 0 || o->cutout < 0)
        return fail_preprocess(x,
                               "height %" PRId64 ", width %" PRId64 ", channels %" PRId64 ", pad %" PRId64
                               ", cutout %" PRId64 ": expected no negative number",
                               o->height, o->width, o->channels, o->pad, o->cutout);
    if (!o->height) o->height = size[1];
    if (!o->width) o->width = size[2];
    if (!o->channels) o->channels = size[3];
    if (o->channels != size[3] && size[3] != 1)
        return fail_preprocess(x,
                               "channels is %" PRId64 ": expected %" PRId64
                               ", because only grey images can be converted to colour",
                               o->channels, size[3]);
    if (o->channels > TU_MAX_CHANNELS && !o->standardize)
        return fail_preprocess(x, "channels is %" PRId64 ": expected at most %d", o->channels,
                               TU_MAX_CHANNELS);
    const int64_t limit = 1 << 20; /* so that sums with an image side cannot overflow */
    if (o->pad > limit || o->cutout > limit)
        return fail_preprocess(x, "pad %" PRId64 " and cutout %" PRId64 ": expected at most 2^20", o->pad,
                               o->cutout);
    return check_numbers(x, o);
}

/* ---- Operations ---- */

static tu_value to_unit_range(tu_value x) {
    return tu_value_dtype(x) == TU_U8 ? tu_scale(tu_cast(x, TU_F32), 1.0 / 255) : x;
}

static bool has_size(tu_value x, const tu_preprocess_options *o) {
    tu_shape s = tu_value_shape(x);
    return s.dim[1] == o->height && s.dim[2] == o->width;
}

/* Resizes the images, unless cropping is enough. */
static tu_value resize_images(tu_value x, const tu_preprocess_options *o) {
    tu_shape s = tu_value_shape(x);
    bool smaller = s.dim[1] < o->height || s.dim[2] < o->width;
    if (has_size(x, o) || !(o->resize || smaller)) return x;
    return tu_resize(to_unit_range(x), o->height, o->width, TU_BILINEAR);
}

static tu_value pad_images(tu_value x, int64_t pad) {
    if (!pad || !tu_training(x.graph)) return x;
    return tu_pad(tu_pad(x, 1, pad, pad, 0), 2, pad, pad, 0);
}

/* Returns the constant 0, 1, … along `axis` of a rank-4 value whose other axes are 1. */
static tu_value positions(tu_graph *graph, int64_t count, int axis) {
    float *numbers = tu__alloc_array((size_t)count, sizeof *numbers, "the positions of a cutout");
    if (!numbers) return tu__graph_fail(graph, TU_NO_MEMORY, "%s", tu_message());
    for (int64_t i = 0; i < count; i++) numbers[i] = (float)i;
    tu_shape shape = TU_SHAPE(1, 1, 1, 1);
    shape.dim[axis] = count;
    tu_value value = tu_constant(graph, TU_F32, shape, numbers);
    tu__free(numbers);
    return value;
}

/* Returns the mask start <= position < start + side along one axis; `start` differs per sample. */
static tu_value square_mask(tu_value centre, int64_t count, int64_t side, int axis) {
    int64_t before = side / 2; /* an even side extends one pixel further before the centre */
    tu_value start = tu_shift(tu_floor(tu_scale(centre, (double)count)), -(double)before);
    tu_value from_start = tu_sub(positions(centre.graph, count, axis), start);
    return tu_and(tu_greater_equal(from_start, tu_number(from_start, 0)),
                  tu_less(from_start, tu_number(from_start, (double)side)));
}

static tu_value apply_cutout(tu_value x, int64_t side) {
    if (!side || !tu_training(x.graph)) return x;
    tu_shape s = tu_value_shape(x);
    tu_shape per_sample = TU_SHAPE(s.dim[0], 1, 1, 1);
    tu_value y = x;
    tu_scope(x.graph, "cutout") {
        tu_value row =
            tu_random_uniform(x.graph, TU_F32, per_sample, 0, 1, .per_sample = true, .name = "row");
        tu_value column =
            tu_random_uniform(x.graph, TU_F32, per_sample, 0, 1, .per_sample = true, .name = "column");
        tu_value inside = tu_and(square_mask(row, s.dim[1], side, 1), square_mask(column, s.dim[2], side, 2));
        y = tu_select(inside, tu_number(x, 0), x);
    }
    return y;
}

/* Computes (x - mean) / standard deviation per channel. Returns x if that changes nothing. */
static tu_value normalize(tu_value x, const tu_preprocess_options *o) {
    if (o->standardize) return tu_standardize(x);
    float mean[TU_MAX_CHANNELS], factor[TU_MAX_CHANNELS];
    bool changes = false;
    for (int64_t c = 0; c < o->channels; c++) {
        mean[c] = (float)o->mean[c];
        factor[c] = (float)(o->deviation[c] == 0 ? 1 : 1 / o->deviation[c]);
        changes = changes || mean[c] != 0 || factor[c] != 1;
    }
    if (!changes) return x;
    tu_shape channels = TU_SHAPE(o->channels);
    return tu_mul(tu_sub(x, tu_constant(x.graph, TU_F32, channels, mean)),
                  tu_constant(x.graph, TU_F32, channels, factor));
}

static tu_value build_preprocess(tu_value x, const tu_preprocess_options *o) {
    x = pad_images(resize_images(x, o), o->pad);
    if (!has_size(x, o)) x = tu_random_crop(x, o->height, o->width);
    if (o->flip) x = tu_random_flip(x);
    x = to_unit_range(x);
    if (o->brightness > 0) x = tu_random_brightness(x, o->brightness);
    if (o->contrast[1] > 0) x = tu_random_contrast(x, o->contrast[0], o->contrast[1]);
    tu_shape s = tu_value_shape(x);
    if (s.rank == 4 && s.dim[3] != o->channels)
        x = tu_broadcast(x, TU_SHAPE(s.dim[0], s.dim[1], s.dim[2], o->channels));
    return apply_cutout(normalize(x, o), o->cutout);
}

tu_value tu_preprocess_with(tu_value images, const tu_preprocess_options *options) {
    TU__OPTIONS(tu_preprocess_options, o, options);
    if (!tu_ok(images)) return tu__invalid(images.graph);
    tu_status status = resolve_options(images, &o);
    if (status != TU_OK) return tu__graph_fail(images.graph, status, "%s", tu_message());
    tu_value x = images;
    tu_scope(images.graph, "preprocess") x = build_preprocess(images, &o);
    return x;
}
