/* Operations that only rearrange elements: reshape, broadcast, transpose, slice, pad, concat, flip.
 *
 * They support every element type. Each is linear; its gradient is:
 *
 *     reshape    reshape back
 *     broadcast  sum
 *     transpose  the inverse permutation
 *     slice      pad, with `between` = step - 1 zeros between two elements
 *     pad        slice
 *     concat     slices
 *     flip       flip
 *
 * Attributes have a canonical form, so that equal operations have equal attributes: axes are not negative; slices
 * have 0 <= begin < end <= size and step >= 1 on every axis; arrays are zero beyond the rank. The shape rules check
 * this form for files too.
 *
 * All reference kernels except concat's are one strided copy with different offsets and strides.
 */
#include <inttypes.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/text.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* Sets the output type to input 0's element type and `shape`. Checks the shape, since sizes may come from a file. */
static tu_status set_output_shape(tu__rule *r, tu_shape shape) {
    if (!tu__shape_valid(shape))
        return tu__rule_fail(r, "the result %s is too large: expected at most 2^48 elements",
                             tu__shape_string(shape));
    r->out[0] = (tu_type){r->in[0].dtype, tu_shape_of((size_t)shape.rank, shape.dim)};
    return TU_OK;
}

static bool is_zero_beyond(const int64_t list[TU_MAX_RANK], int64_t rank) {
    for (int64_t i = rank; i < TU_MAX_RANK; i++)
        if (list[i] != 0) return false;
    return true;
}

/* Copies elements of the given shape between strided arrays. The last axis is the inner loop. */
static void copy_strided(tu_shape shape, const double *from, const int64_t *from_strides, double *to,
                         const int64_t *to_strides) {
    if (shape.rank == 0) {
        *to = *from;
        return;
    }
    int64_t last = shape.rank - 1, count = shape.dim[last];
    int64_t from_step = from_strides[last], to_step = to_strides[last];
    tu_shape rows = tu_shape_of((size_t)last, shape.dim);
    tu__walk walk = tu__walk_begin(rows, 2, (const int64_t *[]){from_strides, to_strides});
    do {
        const double *source = from + walk.offset[0];
        double *target = to + walk.offset[1];
        for (int64_t i = 0; i < count; i++) target[i * to_step] = source[i * from_step];
    } while (tu__walk_next(&walk));
}

/* Copies from a strided array to a dense output. */
static void copy_to_dense(tu__tensor *out, const double *from, const int64_t *from_strides) {
    int64_t strides[TU_MAX_RANK] = {0};
    tu__strides(out->type.shape, strides);
    copy_strided(out->type.shape, from, from_strides, out->data, strides);
}

/* For the functions that build nodes: converts a negative axis. Records an error in the graph and returns -1 if
 * it is out of range. */
static int64_t normalize_axis_or_fail(tu_value x, const char *operation, int axis) {
    tu_type type = tu_value_type(x);
    int64_t normalized = tu__normalize_axis(axis, type.shape.rank);
    if (normalized < 0) tu__graph_fail_axis(operation, x, axis);
    return normalized;
}

static tu_shape input_shape(const tu__vjp *v, uint32_t index) {
    return tu_value_shape(tu__input_of(v->graph, v->node, index));
}

/* ---- reshape ---- */

tu_status tu__reshape_shape(tu__rule *r) {
    tu_shape shape = ((const struct tu__reshape_attrs *)r->attrs)->shape;
    int64_t elements = tu_shape_elements(r->in[0].shape);
    if (!tu__shape_valid(shape) || tu_shape_elements(shape) != elements)
        return tu__rule_fail(r,
                             "the new shape %s has another number of elements: expected %" PRId64
                             " elements in at most %d dimensions, each at least 1, or one of them -1 "
                             "to be inferred",
                             tu__shape_string(shape), elements, TU_MAX_RANK);
    return set_output_shape(r, shape);
}

void tu__reshape_gradient(tu__vjp *v) {
    tu__vjp_accumulate(v, 0, tu_reshape(tu__vjp_gradient(v, 0), input_shape(v, 0)));
}

tu_status tu__reshape_reference(const tu__reference_call *m) {
    size_t count = (size_t)tu_shape_elements(m->out[0].type.shape);
    memcpy(m->out[0].data, m->in[0].data, count * sizeof(double));
    return TU_OK;
}

/* Replaces a single -1 by the size that gives `elements` elements. Keeps the -1 if no size does; the shape rule
 * rejects it. */
static tu_shape infer_dimension(tu_shape shape, int64_t elements) {
    int64_t unknown = -1, known = 1;
    for (int64_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] == -1 && unknown < 0)
            unknown = i;
        else if (shape.dim[i] < 1 || __builtin_mul_overflow(known, shape.dim[i], &known))
            return shape;
    }
    if (unknown >= 0 && elements % known == 0) shape.dim[unknown] = elements / known;
    return shape;
}

tu_value tu_reshape(tu_value x, tu_shape shape) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    int64_t elements = tu_shape_elements(tu_value_shape(x));
    struct tu__reshape_attrs attrs = {infer_dimension(shape, elements)};
    return tu__apply(RESHAPE, &attrs, x);
}

tu_value tu_flatten(tu_value x) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_type type = tu_value_type(x);
    if (type.shape.rank == 0)
        return tu__graph_fail(x.graph, TU_INVALID,
                              "flatten of '%s' %s: expected at least one axis, the batch axis",
                              tu_value_name(x), tu__type_string(type));
    return tu_reshape(x, TU_SHAPE(type.shape.dim[0], -1));
}

tu_value tu_expand_axis(tu_value x, int axis) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_type type = tu_value_type(x);
    int64_t rank = type.shape.rank, position = tu__normalize_axis(axis, rank + 1);
    if (position < 0 || rank == TU_MAX_RANK)
        return tu__graph_fail(x.graph, TU_INVALID,
                              "expand_axis of '%s' %s: new axis %d: expected %" PRId64 " to %" PRId64
                              " and a result of at most %d axes",
                              tu_value_name(x), tu__type_string(type), axis, -rank - 1, rank, TU_MAX_RANK);
    tu_shape shape = {.rank = rank + 1};
    for (int64_t i = 0; i <= rank; i++)
        shape.dim[i] = i < position ? type.shape.dim[i] : i == position ? 1 : type.shape.dim[i - 1];
    return tu_reshape(x, shape);
}

tu_value tu_squeeze_axis(tu_value x, int axis) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    int64_t normalized = normalize_axis_or_fail(x, "squeeze_axis", axis);
    if (normalized < 0) return tu__invalid(x.graph);
    tu_type type = tu_value_type(x);
    if (type.shape.dim[normalized] != 1)
        return tu__graph_fail(x.graph, TU_INVALID,
                              "squeeze_axis of '%s' %s: axis %d has size %" PRId64 ", expected 1",
                              tu_value_name(x), tu__type_string(type), axis, type.shape.dim[normalized]);
    tu_shape shape = {.rank = type.shape.rank - 1};
    for (int64_t i = 0; i < shape.rank; i++) shape.dim[i] = type.shape.dim[i < normalized ? i : i + 1];
    return tu_reshape(x, shape);
}

/* ---- broadcast ---- */

tu_status tu__broadcast_shape(tu__rule *r) {
    tu_shape shape = ((const struct tu__broadcast_attrs *)r->attrs)->shape, common;
    if (!tu__shape_valid(shape) || !tu__broadcast_shapes(r->in[0].shape, shape, &common) ||
        !tu_shape_equal(common, shape))
        return tu__rule_fail(
            r,
            "cannot broadcast to %s: expected dimensions that, aligned at the last axis, are equal to the "
            "input's or replace a 1",
            tu__shape_string(shape));
    return set_output_shape(r, shape);
}

void tu__broadcast_gradient(tu__vjp *v) {
    tu__vjp_accumulate(v, 0, tu__vjp_gradient(v, 0)); /* sums over the broadcast axes */
}

tu_status tu__broadcast_reference(const tu__reference_call *m) {
    int64_t strides[TU_MAX_RANK];
    tu__broadcast_strides(m->in[0].type.shape, m->out[0].type.shape, strides);
    copy_to_dense(&m->out[0], m->in[0].data, strides);
    return TU_OK;
}

tu_value tu_broadcast(tu_value x, tu_shape shape) {
    struct tu__broadcast_attrs attrs = {shape};
    return tu__apply(BROADCAST, &attrs, x);
}

/* ---- transpose ---- */

/* True if `list` contains each of the first `rank` axes once, and then zeros. */
static bool is_permutation(const int64_t list[TU_MAX_RANK], int64_t rank) {
    unsigned seen = 0;
    for (int64_t i = 0; i < rank; i++) {
        if (list[i] < 0 || list[i] >= rank) return false;
        seen |= 1u << list[i];
    }
    return seen == (1u << rank) - 1 && is_zero_beyond(list, rank);
}

tu_status tu__transpose_shape(tu__rule *r) {
    const struct tu__transpose_attrs *attrs = r->attrs;
    tu_shape from = r->in[0].shape, to = {.rank = from.rank};
    if (!is_permutation(attrs->permutation, from.rank)) {
        tu_shape list = tu_shape_of((size_t)from.rank, attrs->permutation);
        return tu__rule_fail(r, "%s is not a permutation: expected each axis from 0 to %" PRId64 " once",
                             tu__shape_string(list), from.rank - 1);
    }
    for (int64_t i = 0; i < to.rank; i++) to.dim[i] = from.dim[attrs->permutation[i]];
    return set_output_shape(r, to);
}

void tu__transpose_gradient(tu__vjp *v) {
    const struct tu__transpose_attrs *forward = tu__attrs(v->node, transpose);
    struct tu__transpose_attrs back = {{0}};
    int64_t rank = input_shape(v, 0).rank;
    for (int64_t i = 0; i < rank; i++) back.permutation[forward->permutation[i]] = i;
    tu__vjp_accumulate(v, 0, tu__apply(TRANSPOSE, &back, tu__vjp_gradient(v, 0)));
}

tu_status tu__transpose_reference(const tu__reference_call *m) {
    const struct tu__transpose_attrs *attrs = m->attrs;
    int64_t dense[TU_MAX_RANK] = {0}, strides[TU_MAX_RANK] = {0};
    tu__strides(m->in[0].type.shape, dense);
    for (int64_t i = 0; i < m->out[0].type.shape.rank; i++) strides[i] = dense[attrs->permutation[i]];
    copy_to_dense(&m->out[0], m->in[0].data, strides);
    return TU_OK;
}

tu_value tu_transpose_with(tu_value x, tu_axes permutation) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_type type = tu_value_type(x);
    int64_t rank = type.shape.rank;
    if (permutation.count ? permutation.count != rank : rank < 2)
        return tu__graph_fail(x.graph, TU_INVALID,
                              "transpose of '%s' %s: %u axes are listed, expected all %" PRId64
                              ", or none to swap the last two of at least 2 axes",
                              tu_value_name(x), tu__type_string(type), permutation.count, rank);
    struct tu__transpose_attrs attrs = {{0}};
    for (int64_t i = 0; i < rank; i++) {
        int64_t axis = permutation.count ? tu__normalize_axis(permutation.axis[i], rank) : i;
        attrs.permutation[i] =
            axis < 0 ? permutation.axis[i] : axis; /* the shape rule reports one out of range */
    }
    if (!permutation.count) {
        attrs.permutation[rank - 2] = rank - 1;
        attrs.permutation[rank - 1] = rank - 2;
    }
    return tu__apply(TRANSPOSE, &attrs, x);
}

/* ---- slice ---- */

/* Returns the number of elements begin, begin + step, … below end. */
static int64_t slice_size(int64_t begin, int64_t end, int64_t step) {
    return 1 + (end - begin - 1) / step;
}

tu_status tu__slice_shape(tu__rule *r) {
    const struct tu__slice_attrs *attrs = r->attrs;
    tu_shape from = r->in[0].shape, to = {.rank = from.rank};
    for (int64_t i = 0; i < from.rank; i++) {
        int64_t begin = attrs->begin[i], end = attrs->end[i], step = attrs->step[i];
        if (begin < 0 || end <= begin || end > from.dim[i] || step < 1)
            return tu__rule_fail(r,
                                 "axis %" PRId64 ": begin %" PRId64 ", end %" PRId64 ", step %" PRId64
                                 ": expected 0 <= begin < end <= %" PRId64 " and step >= 1",
                                 i, begin, end, step, from.dim[i]);
        to.dim[i] = slice_size(begin, end, step);
    }
    if (!is_zero_beyond(attrs->begin, from.rank) || !is_zero_beyond(attrs->end, from.rank) ||
        !is_zero_beyond(attrs->step, from.rank))
        return tu__rule_fail(r, "begin, end and step must be zero beyond the %" PRId64 " axes", from.rank);
    return set_output_shape(r, to);
}

/* The gradient has zeros at the elements that the slice skipped. */
void tu__slice_gradient(tu__vjp *v) {
    const struct tu__slice_attrs *attrs = tu__attrs(v->node, slice);
    struct tu__pad_attrs pad = {.number = 0};
    tu_shape full = input_shape(v, 0), sliced = v->node->outputs[0].shape;
    for (int64_t i = 0; i < full.rank; i++) {
        int64_t last = attrs->begin[i] + (sliced.dim[i] - 1) * attrs->step[i];
        pad.before[i] = attrs->begin[i];
        pad.between[i] =
            sliced.dim[i] > 1 ? attrs->step[i] - 1 : 0; /* canonical form: zero for one element */
        pad.after[i] = full.dim[i] - 1 - last;
    }
    tu__vjp_accumulate(v, 0, tu__apply(PAD, &pad, tu__vjp_gradient(v, 0)));
}

tu_status tu__slice_reference(const tu__reference_call *m) {
    const struct tu__slice_attrs *attrs = m->attrs;
    int64_t strides[TU_MAX_RANK] = {0}, start = 0;
    tu__strides(m->in[0].type.shape, strides);
    for (int64_t i = 0; i < m->in[0].type.shape.rank; i++) {
        start += attrs->begin[i] * strides[i];
        strides[i] *= attrs->step[i];
    }
    copy_to_dense(&m->out[0], m->in[0].data + start, strides);
    return TU_OK;
}

static struct tu__slice_attrs full_slice(tu_shape shape) {
    struct tu__slice_attrs attrs = {{0}, {0}, {0}};
    for (int64_t i = 0; i < shape.rank; i++) {
        attrs.end[i] = shape.dim[i];
        attrs.step[i] = 1;
    }
    return attrs;
}

tu_value tu_slice(tu_value x, int axis, int64_t begin, int64_t end, int64_t step) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    int64_t normalized = normalize_axis_or_fail(x, "slice", axis);
    if (normalized < 0) return tu__invalid(x.graph);
    tu_type type = tu_value_type(x);
    int64_t size = type.shape.dim[normalized];
    int64_t first = begin < 0 ? begin + size : begin;
    int64_t limit = end == TU_END ? size : end < 0 ? end + size : end;
    if (first < 0 || limit <= first || limit > size || step < 1)
        return tu__graph_fail(x.graph, TU_INVALID,
                              "slice of '%s' %s: axis %d: begin %" PRId64 ", end %" PRId64 ", step %" PRId64
                              ": expected 0 <= begin < end <= %" PRId64
                              " (negative numbers count from the end) and step >= 1",
                              tu_value_name(x), tu__type_string(type), axis, begin, limit, step, size);
    struct tu__slice_attrs attrs = full_slice(type.shape);
    attrs.begin[normalized] = first;
    attrs.end[normalized] = limit;
    attrs.step[normalized] = step;
    return tu__apply(SLICE, &attrs, x);
}

/* ---- pad ---- */

static bool padded_size(const struct tu__pad_attrs *attrs, int64_t axis, int64_t size, int64_t *padded) {
    if (attrs->before[axis] < 0 || attrs->after[axis] < 0 || attrs->between[axis] < 0) return false;
    int64_t gaps;
    return !__builtin_mul_overflow(size - 1, attrs->between[axis], &gaps) &&
           !__builtin_add_overflow(size, gaps, padded) &&
           !__builtin_add_overflow(*padded, attrs->before[axis], padded) &&
           !__builtin_add_overflow(*padded, attrs->after[axis], padded);
}

tu_status tu__pad_shape(tu__rule *r) {
    const struct tu__pad_attrs *attrs = r->attrs;
    tu_shape from = r->in[0].shape, to = {.rank = from.rank};
    for (int64_t i = 0; i < from.rank; i++)
        if (!padded_size(attrs, i, from.dim[i], &to.dim[i]))
            return tu__rule_fail(r,
                                 "axis %" PRId64 ": before %" PRId64 ", after %" PRId64 ", between %" PRId64
                                 ": expected values of at least 0 and a padded size below 2^48",
                                 i, attrs->before[i], attrs->after[i], attrs->between[i]);
    if (!is_zero_beyond(attrs->before, from.rank) || !is_zero_beyond(attrs->after, from.rank) ||
        !is_zero_beyond(attrs->between, from.rank))
        return tu__rule_fail(r, "before, after and between must be zero beyond the %" PRId64 " axes",
                             from.rank);
    return set_output_shape(r, to);
}

/* The padding is constant: the gradient of x is the slice at the elements of x. */
void tu__pad_gradient(tu__vjp *v) {
    const struct tu__pad_attrs *attrs = tu__attrs(v->node, pad);
    tu_shape shape = input_shape(v, 0);
    struct tu__slice_attrs slice = full_slice(shape);
    for (int64_t i = 0; i < shape.rank; i++) {
        slice.begin[i] = attrs->before[i];
        slice.step[i] = shape.dim[i] > 1 ? attrs->between[i] + 1 : 1;
        slice.end[i] = attrs->before[i] + (shape.dim[i] - 1) * slice.step[i] + 1;
    }
    tu__vjp_accumulate(v, 0, tu__apply(SLICE, &slice, tu__vjp_gradient(v, 0)));
}

tu_status tu__pad_reference(const tu__reference_call *m) {
    const struct tu__pad_attrs *attrs = m->attrs;
    tu_shape from = m->in[0].type.shape, to = m->out[0].type.shape;
    int64_t from_strides[TU_MAX_RANK] = {0}, to_strides[TU_MAX_RANK] = {0}, start = 0;
    tu__strides(from, from_strides);
    tu__strides(to, to_strides);
    for (int64_t i = 0; i < from.rank; i++) {
        start += attrs->before[i] * to_strides[i];
        /* A single element needs no stride, and a large `between` could overflow. */
        to_strides[i] = from.dim[i] > 1 ? to_strides[i] * (attrs->between[i] + 1) : 0;
    }
    int64_t count = tu_shape_elements(to);
    for (int64_t i = 0; i < count; i++) m->out[0].data[i] = attrs->number;
    copy_strided(from, m->in[0].data, from_strides, m->out[0].data + start, to_strides);
    return TU_OK;
}

tu_value tu_pad(tu_value x, int axis, int64_t before, int64_t after, double number) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    int64_t normalized = normalize_axis_or_fail(x, "pad", axis);
    if (normalized < 0) return tu__invalid(x.graph);
    struct tu__pad_attrs attrs = {.number = number};
    attrs.before[normalized] = before;
    attrs.after[normalized] = after;
    return tu__apply(PAD, &attrs, x);
}

/* ---- concat ---- */

/* True if the types are equal except for the size of `axis`. */
static bool can_concatenate(tu_type a, tu_type b, int64_t axis) {
    if (a.dtype != b.dtype || a.shape.rank != b.shape.rank) return false;
    a.shape.dim[axis] = b.shape.dim[axis];
    return tu_shape_equal(a.shape, b.shape);
}

tu_status tu__concat_shape(tu__rule *r) {
    int64_t axis = ((const struct tu__concat_attrs *)r->attrs)->axis;
    tu_shape shape = r->in[0].shape;
    if (axis < 0 || axis >= shape.rank) return tu__rule_fail_axis(r, axis);
    for (uint32_t i = 1; i < r->input_count; i++) {
        if (!can_concatenate(r->in[0], r->in[i], axis))
            return tu__rule_fail(
                r,
                "input %u is %s, but input 0 is %s: expected equal element types and shapes except at axis "
                "%" PRId64,
                i, tu__type_string(r->in[i]), tu__type_string(r->in[0]), axis);
        shape.dim[axis] += r->in[i].shape.dim[axis]; /* at most 65536 sizes of at most 2^48: no overflow */
    }
    return set_output_shape(r, shape);
}

void tu__concat_gradient(tu__vjp *v) {
    int64_t axis = tu__attrs(v->node, concat)->axis, start = 0;
    for (uint32_t i = 0; i < v->node->input_count; i++) {
        int64_t size = input_shape(v, i).dim[axis];
        if (tu__vjp_needs_gradient(v, i))
            tu__vjp_accumulate(v, i, tu_slice(tu__vjp_gradient(v, 0), (int)axis, start, start + size, 1));
        start += size;
    }
}

tu_status tu__concat_reference(const tu__reference_call *m) {
    int64_t axis = ((const struct tu__concat_attrs *)m->attrs)->axis, start = 0;
    tu__lanes joined = tu__lanes_of(m->out[0].type.shape, axis);
    for (uint32_t i = 0; i < m->node->input_count; i++) {
        tu__lanes part = tu__lanes_of(m->in[i].type.shape, axis);
        int64_t run = part.size * part.inner;
        for (int64_t o = 0; o < part.outer; o++)
            memcpy(m->out[0].data + (o * joined.size + start) * joined.inner, m->in[i].data + o * run,
                   (size_t)run * sizeof(double));
        start += part.size;
    }
    return TU_OK;
}

tu_value tu_concat(const tu_value *parts, size_t count, int axis) {
    if (count == 0) {
        tu_fail(TU_INVALID, "concat: count is 0, expected at least one value");
        return tu__invalid(NULL);
    }
    int64_t normalized = tu_ok(parts[0]) ? tu__normalize_axis(axis, tu_value_shape(parts[0]).rank) : -1;
    struct tu__concat_attrs attrs = {
        normalized < 0 ? axis : normalized}; /* the shape rule reports one out of range */
    return tu__apply_list(TU__OP_CONCAT, &attrs, count, parts);
}

/* ---- flip ---- */

tu_status tu__flip_shape(tu__rule *r) {
    int64_t axes = ((const struct tu__flip_attrs *)r->attrs)->axes, rank = r->in[0].shape.rank;
    if (axes < 0 || axes >> rank)
        return tu__rule_fail(
            r, "the axes are the bit mask %#" PRIx64 ", expected only bits below the rank %" PRId64,
            (uint64_t)axes, rank);
    return set_output_shape(r, r->in[0].shape);
}

void tu__flip_gradient(tu__vjp *v) {
    tu__vjp_accumulate(v, 0, tu__apply(FLIP, v->node->attrs, tu__vjp_gradient(v, 0)));
}

tu_status tu__flip_reference(const tu__reference_call *m) {
    int64_t axes = ((const struct tu__flip_attrs *)m->attrs)->axes;
    tu_shape shape = m->in[0].type.shape;
    int64_t strides[TU_MAX_RANK] = {0}, start = 0;
    tu__strides(shape, strides);
    for (int64_t i = 0; i < shape.rank; i++)
        if (axes >> i & 1) {
            start += (shape.dim[i] - 1) * strides[i];
            strides[i] = -strides[i];
        }
    copy_to_dense(&m->out[0], m->in[0].data + start, strides);
    return TU_OK;
}

tu_value tu_flip_with(tu_value x, tu_axes axes) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_type type = tu_value_type(x);
    struct tu__flip_attrs attrs = {axes.count ? 0 : ((int64_t)1 << type.shape.rank) - 1};
    for (uint32_t i = 0; i < axes.count && i < TU_MAX_RANK; i++) {
        int64_t axis = normalize_axis_or_fail(x, "flip", axes.axis[i]);
        if (axis < 0) return tu__invalid(x.graph);
        if (attrs.axes >> axis & 1)
            return tu__graph_fail(x.graph, TU_INVALID,
                                  "flip of '%s' %s: axis %d is listed twice, expected each once",
                                  tu_value_name(x), tu__type_string(type), axes.axis[i]);
        attrs.axes |= (int64_t)1 << axis;
    }
    return tu__apply(FLIP, &attrs, x);
}
