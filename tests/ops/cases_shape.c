/* Cases of operations that move elements. They are linear, so each result is also output squared: otherwise the
 * second derivatives would all be zero. */
#include <tutti/tutti.h>

#include "graph/graph.h"
#include "ops/cases.h"

static void output_with_square(case_run *c, tu_value y) {
    case_output(c, y);
    case_output(c, tu_square(y));
}

/* Returns `axis`, or the same axis counted from the end. */
static int axis_from_either_end(case_run *c, int64_t axis, int64_t rank) {
    return (int)(case_pick(c, "negative_axis", 2) ? axis - rank : axis);
}

/* Returns another shape with the same number of elements: merges adjacent axes and may append an axis of size 1. */
static tu_shape other_shape(case_run *c, tu_shape shape) {
    tu_shape out = {0};
    for (int64_t i = 0; i < shape.rank; i++) {
        if (out.rank && case_size(c, 0, 2) == 0)
            out.dim[out.rank - 1] *= shape.dim[i];
        else
            out.dim[out.rank++] = shape.dim[i];
    }
    if (case_size(c, 0, 1)) out.dim[out.rank++] = 1;
    return out;
}

OP_CASE(reshape, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 0, 4), 1, 4);
    tu_shape other = other_shape(c, shape);
    if (case_pick(c, "inferred_dimension", 2) && other.rank) other.dim[case_size(c, 0, other.rank - 1)] = -1;
    output_with_square(c, tu_reshape(case_input(c, shape, -2, 2), other));
}

OP_CASE(flatten, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 4), 1, 4);
    output_with_square(c, tu_flatten(case_input(c, shape, -2, 2)));
}

OP_CASE(expand_axis, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 0, 3), 1, 4);
    int64_t axis = case_size(c, 0, shape.rank);
    output_with_square(
        c, tu_expand_axis(case_input(c, shape, -2, 2), axis_from_either_end(c, axis, shape.rank + 1)));
}

OP_CASE(squeeze_axis, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 4), 1, 4);
    int64_t axis = case_size(c, 0, shape.rank - 1);
    shape.dim[axis] = 1;
    output_with_square(
        c, tu_squeeze_axis(case_input(c, shape, -2, 2), axis_from_either_end(c, axis, shape.rank)));
}

OP_CASE(broadcast, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 0, 4), 1, 4);
    output_with_square(c, tu_broadcast(case_input(c, case_broadcastable(c, shape), -2, 2), shape));
}

OP_CASE(transpose, CASE_ALL_CHECKS) {
    bool swap = case_pick(c, "swap_last_two", 2);
    tu_shape shape = case_shape(c, case_size(c, swap ? 2 : 1, 5), 1, 3);
    tu_axes axes = case_permutation(c, shape.rank);
    int32_t shift = case_pick(c, "negative_axes", 2) ? (int32_t)shape.rank : 0;
    for (uint32_t i = 0; i < axes.count; i++) axes.axis[i] -= shift;
    if (swap) axes.count = 0;
    output_with_square(c, tu_transpose_with(case_input(c, shape, -2, 2), axes));
}

OP_CASE(slice, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 5);
    int64_t axis = case_size(c, 0, shape.rank - 1), size = shape.dim[axis] = case_size(c, 1, 9);
    int64_t begin = case_size(c, 0, size - 1), end = case_size(c, begin + 1, size);
    int64_t step = 1 + case_pick(c, "step", 3);
    if (case_pick(c, "negative_begin", 2)) begin -= size;
    switch (case_pick(c, "end", 3)) {
    case 0: end = TU_END; break;
    case 1: end = end < size ? end - size : TU_END; break;
    default: break;
    }
    output_with_square(c, tu_slice(case_input(c, shape, -2, 2), axis_from_either_end(c, axis, shape.rank),
                                   begin, end, step));
}

OP_CASE(pad, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 4);
    int64_t axis = case_size(c, 0, shape.rank - 1);
    double number = case_pick(c, "number", 2) ? 1.5 : 0;
    output_with_square(c, tu_pad(case_input(c, shape, -2, 2), axis_from_either_end(c, axis, shape.rank),
                                 case_size(c, 0, 3), case_size(c, 0, 3), number));
}

/* Padding of several axes and between elements: only gradients create such nodes. */
OP_CASE(pad_between, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 3);
    struct tu__pad_attrs attrs = {.number = case_pick(c, "number", 2) ? -0.5 : 0};
    int between = case_pick(c, "between", 3);
    for (int64_t i = 0; i < shape.rank; i++) {
        attrs.before[i] = case_size(c, 0, 2);
        attrs.after[i] = case_size(c, 0, 2);
        attrs.between[i] = between;
    }
    output_with_square(c, tu__apply(PAD, &attrs, case_input(c, shape, -2, 2)));
}

OP_CASE(concat, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 3);
    int64_t axis = case_size(c, 0, shape.rank - 1);
    int count = 1 + case_pick(c, "parts", 4), negative = axis_from_either_end(c, axis, shape.rank);
    tu_value parts[4];
    for (int i = 0; i < count; i++) {
        shape.dim[axis] = case_size(c, 1, 4);
        parts[i] = case_input(c, shape, -2, 2);
    }
    output_with_square(c, tu_concat(parts, (size_t)count, negative));
}

/* One value is an input twice: its gradients are added. */
OP_CASE(concat_twice, CASE_ALL_CHECKS) {
    tu_value x = case_input(c, case_shape(c, 2, 1, 4), -2, 2);
    output_with_square(c, tu_concat((tu_value[]){x, tu_scale(x, 3), x}, 3, case_pick(c, "axis", 2)));
}

OP_CASE(stack, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 0, 3), 1, 3);
    int64_t axis = case_size(c, 0, shape.rank);
    int count = 1 + case_pick(c, "parts", 3);
    tu_value parts[3];
    for (int i = 0; i < count; i++) parts[i] = case_input(c, shape, -2, 2);
    output_with_square(c, tu_stack(parts, (size_t)count, axis_from_either_end(c, axis, shape.rank + 1)));
}

OP_CASE(split, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 3);
    int64_t axis = case_size(c, 0, shape.rank - 1), sizes[3], sum = 0;
    size_t count = 1 + (size_t)case_pick(c, "parts", 3);
    bool equal = case_pick(c, "equal", 2);
    for (size_t i = 0; i < count; i++) sum += sizes[i] = equal && i ? sizes[0] : case_size(c, 1, 3);
    shape.dim[axis] = sum;
    tu_value parts[3];
    tu_split_axis(case_input(c, shape, -2, 2), axis_from_either_end(c, axis, shape.rank), count,
                  equal ? NULL : sizes, parts);
    for (size_t i = 0; i < count; i++) output_with_square(c, parts[i]);
}

OP_CASE(flip, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 4), 1, 4);
    tu_axes axes = case_permutation(c, shape.rank);
    axes.count = case_pick(c, "all_axes", 2) ? 0 : (uint32_t)case_size(c, 1, shape.rank);
    output_with_square(c, tu_flip_with(case_input(c, shape, -2, 2), axes));
}

/* Element types other than floats. */
OP_CASE(shape_integers, CASE_NO_GRADIENT) {
    static const tu_dtype types[] = {TU_I32, TU_I64, TU_U8, TU_BOOL, TU_I8};
    tu_dtype dtype = types[case_pick(c, "type", 5)];
    tu_shape shape = case_shape(c, 3, 1, 4);
    tu_value x = case_integers(c, dtype, shape, 0, dtype == TU_BOOL ? 2 : dtype == TU_I8 ? 120 : 200);
    case_output(c, tu_flatten(x));
    case_output(c, tu_broadcast(x, TU_SHAPE(2, shape.dim[0], shape.dim[1], shape.dim[2])));
    case_output(c, tu_transpose(x, 2, 0, 1));
    case_output(c, tu_slice(x, 1, 0, TU_END, 2));
    case_output(c, tu_pad(x, 2, 1, 2, 1));
    case_output(c, tu_concat((tu_value[]){x, x}, 2, 0));
    case_output(c, tu_flip(x, 0, 2));
}

OP_CASE(composed_integers, CASE_NO_GRADIENT) {
    static const tu_dtype types[] = {TU_I32, TU_I64, TU_U8, TU_BOOL, TU_I8};
    tu_dtype dtype = types[case_pick(c, "type", 5)];
    tu_value x = case_integers(c, dtype, case_shape(c, 3, 1, 4), 0,
                               dtype == TU_BOOL ? 2
                               : dtype == TU_I8 ? 120
                                                : 200);
    case_output(c, tu_stack((tu_value[]){x, x}, 2, -1));
    case_output(c, tu_diagonal(x, 0));
    case_output(c, tu_diagonal_matrix(x, 1));
}
