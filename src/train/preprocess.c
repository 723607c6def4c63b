/* Preprocessing as operations of the graph: from images as they are stored to what a network wants.
 *
 * The order is what makes it cheap: everything that only moves pixels (pad, crop, flip) comes first, on bytes, a
 * quarter of the traffic of f32; then one conversion to f32; then what computes (brightness, contrast, cutout,
 * normalisation), which devices fuse. Resizing interpolates and so needs the conversion before it.
 *
 * Whether images are cropped or resized is read off the stored images' size alone, never off the padding: training and
 * inference fit an image in the same way, and differ in the draws only.
 *
 * Cutout comes after normalisation, where zero is the mean pixel (DeVries & Taylor 2017); padding comes before, as
 * black. The square's centre is uniform over the image, so it may reach over the border. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include <tutti/ops.h>
#include <tutti/train.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/graph.h"

/* ---- What is asked for ---- */

static tu_status refuse(tu_value images, const char *format, ...) TU_PRINTF(2, 3);
static tu_status refuse(tu_value images, const char *format, ...) {
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
        return refuse(x, "brightness is %g, expected a finite number of at least 0", o->brightness);
    if (!(o->contrast[0] >= 0 && o->contrast[1] >= o->contrast[0]) || !isfinite(o->contrast[1]))
        return refuse(x, "contrast is [%g, %g), expected finite numbers with 0 <= low <= high",
                      o->contrast[0], o->contrast[1]);
    for (int c = 0; c < TU_MAX_CHANNELS; c++)
        if (!isfinite(o->mean[c]) || !(o->deviation[c] >= 0) || !isfinite(o->deviation[c]))
            return refuse(
                x, "channel %d has mean %g and deviation %g, expected finite ones, the deviation at least 0",
                c, o->mean[c], o->deviation[c]);
    return TU_OK;
}

/* Zeros become the images' own size; refuses what cannot be done. */
static tu_status settle(tu_value x, tu_preprocess_options *o) {
    tu_type type = tu_value_type(x);
    const int64_t *size = type.shape.dim;
    if (type.shape.rank != 4 || (type.dtype != TU_U8 && type.dtype != TU_F32))
        return refuse(x, "expected images u8 or f32 [n,h,w,c]");
    if (o->height < 0 || o->width < 0 || o->channels < 0 || o->pad < 0 || o->cutout < 0)
        return refuse(x,
                      "height %" PRId64 ", width %" PRId64 ", channels %" PRId64 ", pad %" PRId64
                      ", cutout %" PRId64 ": expected none below 0",
                      o->height, o->width, o->channels, o->pad, o->cutout);
    if (!o->height) o->height = size[1];
    if (!o->width) o->width = size[2];
    if (!o->channels) o->channels = size[3];
    if (o->channels != size[3] && size[3] != 1)
        return refuse(x,
                      "%" PRId64 " channels are wanted, expected %" PRId64 ": only grey images become colour",
                      o->channels, size[3]);
    if (o->channels > TU_MAX_CHANNELS && !o->standardize)
        return refuse(x, "%" PRId64 " channels, expected at most %d", o->channels, TU_MAX_CHANNELS);
    const int64_t most = 1 << 20; /* sums with a side stay far from overflow */
    if (o->pad > most || o->cutout > most)
        return refuse(x, "pad %" PRId64 " and cutout %" PRId64 ": expected at most 2^20", o->pad, o->cutout);
    return check_numbers(x, o);
}

/* ---- The steps ---- */

static tu_value as_unit(tu_value x) {
    return tu_value_dtype(x) == TU_U8 ? tu_scale(tu_cast(x, TU_F32), 1.0 / 255) : x;
}

static bool has_size(tu_value x, const tu_preprocess_options *o) {
    tu_shape s = tu_value_shape(x);
    return s.dim[1] == o->height && s.dim[2] == o->width;
}

/* Resized to the size wanted, unless cropping will do. */
static tu_value resized(tu_value x, const tu_preprocess_options *o) {
    tu_shape s = tu_value_shape(x);
    bool smaller = s.dim[1] < o->height || s.dim[2] < o->width;
    if (has_size(x, o) || !(o->resize || smaller)) return x;
    return tu_resize(as_unit(x), o->height, o->width, TU_BILINEAR);
}

static tu_value padded(tu_value x, int64_t pad) {
    if (!pad || !tu_training(x.graph)) return x;
    return tu_pad(tu_pad(x, 1, pad, pad, 0), 2, pad, pad, 0);
}

/* A constant 0, 1, … along one axis of images, the other axes being 1. */
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

/* Where positions lie in the square, along one axis: start <= position < start + side, start being a sample's own. */
static tu_value within(tu_value centre, int64_t count, int64_t side, int axis) {
    int64_t before = side / 2; /* the centre of an even side is the place behind the middle */
    tu_value start = tu_shift(tu_floor(tu_scale(centre, (double)count)), -(double)before);
    tu_value from_start = tu_sub(positions(centre.graph, count, axis), start);
    return tu_and(tu_greater_equal(from_start, tu_number(from_start, 0)),
                  tu_less(from_start, tu_number(from_start, (double)side)));
}

static tu_value cut_out(tu_value x, int64_t side) {
    if (!side || !tu_training(x.graph)) return x;
    tu_shape s = tu_value_shape(x);
    tu_shape each = TU_SHAPE(s.dim[0], 1, 1, 1);
    tu_value y = x;
    tu_scope(x.graph, "cutout") {
        tu_value row = tu_random_uniform(x.graph, TU_F32, each, 0, 1, .per_sample = true, .name = "row");
        tu_value column =
            tu_random_uniform(x.graph, TU_F32, each, 0, 1, .per_sample = true, .name = "column");
        tu_value inside = tu_and(within(row, s.dim[1], side, 1), within(column, s.dim[2], side, 2));
        y = tu_select(inside, tu_number(x, 0), x);
    }
    return y;
}

/* (x - mean) / deviation, a channel each; nothing where that changes nothing. */
static tu_value normalized(tu_value x, const tu_preprocess_options *o) {
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

static tu_value build(tu_value x, const tu_preprocess_options *o) {
    x = padded(resized(x, o), o->pad);
    if (!has_size(x, o)) x = tu_random_crop(x, o->height, o->width);
    if (o->flip) x = tu_random_flip(x);
    x = as_unit(x);
    if (o->brightness > 0) x = tu_random_brightness(x, o->brightness);
    if (o->contrast[1] > 0) x = tu_random_contrast(x, o->contrast[0], o->contrast[1]);
    tu_shape s = tu_value_shape(x);
    if (s.rank == 4 && s.dim[3] != o->channels)
        x = tu_broadcast(x, TU_SHAPE(s.dim[0], s.dim[1], s.dim[2], o->channels));
    return cut_out(normalized(x, o), o->cutout);
}

tu_value tu_preprocess_with(tu_value images, const tu_preprocess_options *options) {
    TU__OPTIONS(tu_preprocess_options, o, options);
    if (!tu_ok(images)) return tu__invalid(images.graph);
    tu_status status = settle(images, &o);
    if (status != TU_OK) return tu__graph_fail(images.graph, status, "%s", tu_message());
    tu_value x = images;
    tu_scope(images.graph, "preprocess") x = build(images, &o);
    return x;
}
