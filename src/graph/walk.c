/* Index arithmetic for shape rules and reference kernels. */
#include "graph/walk.h"

#include <string.h>

#include <tutti/ops.h>

bool tu__shape_valid(tu_shape shape) {
    if (shape.rank < 0 || shape.rank > TU_MAX_RANK) return false;
    int64_t count = 1;
    for (int64_t i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < 1) return false;
        if (__builtin_mul_overflow(count, shape.dim[i], &count) || count > (int64_t)1 << 48) return false;
    }
    return true;
}

int64_t tu__normalize_axis(int64_t axis, int64_t rank) {
    if (axis < -rank || axis >= rank) return -1;
    return axis < 0 ? axis + rank : axis;
}

bool tu__broadcast_shapes(tu_shape a, tu_shape b, tu_shape *out) {
    if (a.rank < b.rank) {
        tu_shape swap = a;
        a = b;
        b = swap;
    }
    int64_t lead = a.rank - b.rank;
    for (int64_t i = 0; i < b.rank; i++) {
        int64_t *wide = &a.dim[lead + i], narrow = b.dim[i];
        if (*wide == 1)
            *wide = narrow;
        else if (narrow != 1 && narrow != *wide)
            return false;
    }
    *out = a;
    return true;
}

void tu__strides(tu_shape shape, int64_t strides[TU_MAX_RANK]) {
    int64_t step = 1;
    for (int64_t i = shape.rank - 1; i >= 0; i--) {
        strides[i] = step;
        step *= shape.dim[i];
    }
}

void tu__broadcast_strides(tu_shape from, tu_shape to, int64_t strides[TU_MAX_RANK]) {
    int64_t dense[TU_MAX_RANK], lead = to.rank - from.rank;
    tu__strides(from, dense);
    memset(strides, 0, TU_MAX_RANK * sizeof *strides);
    for (int64_t i = 0; i < from.rank; i++) strides[lead + i] = from.dim[i] == 1 ? 0 : dense[i];
}

tu__lanes tu__lanes_of(tu_shape shape, int64_t axis) {
    tu__lanes lanes = {1, shape.dim[axis], 1};
    for (int64_t i = 0; i < axis; i++) lanes.outer *= shape.dim[i];
    for (int64_t i = axis + 1; i < shape.rank; i++) lanes.inner *= shape.dim[i];
    return lanes;
}

tu__walk tu__walk_begin(tu_shape shape, int count, const int64_t *const *strides) {
    tu__walk walk = {.shape = shape, .count = count};
    for (int i = 0; i < count; i++) memcpy(walk.stride[i], strides[i], (size_t)shape.rank * sizeof(int64_t));
    return walk;
}

bool tu__walk_next(tu__walk *walk) {
    for (int64_t axis = walk->shape.rank - 1; axis >= 0; axis--) {
        bool wraps = ++walk->index[axis] == walk->shape.dim[axis];
        for (int i = 0; i < walk->count; i++)
            walk->offset[i] +=
                wraps ? -walk->stride[i][axis] * (walk->shape.dim[axis] - 1) : walk->stride[i][axis];
        if (!wraps) return true;
        walk->index[axis] = 0;
    }
    return false;
}

tu_value tu__sum_to_shape(tu_value gradient, tu_shape shape) {
    if (!tu_ok(gradient)) return gradient;
    tu_shape have = tu_value_shape(gradient);
    if (tu_shape_equal(have, shape)) return gradient;
    tu_reduce_options options = {.struct_size = sizeof options, .keep = true};
    int64_t lead = have.rank - shape.rank;
    for (int64_t i = 0; i < have.rank; i++)
        if (i < lead || (shape.dim[i - lead] == 1 && have.dim[i] != 1))
            options.axes.axis[options.axes.count++] = (int32_t)i;
    tu_value sum = options.axes.count ? tu_sum_with(gradient, &options) : gradient;
    return tu_reshape(sum, shape);
}

static tu_value full_like(tu_value like, double number) {
    if (!tu_ok(like)) return like;
    return tu_fill(like.graph, tu_value_dtype(like), tu_value_shape(like), number);
}

tu_value tu__zeros_like(tu_value like) {
    return full_like(like, 0);
}

tu_value tu__ones_like(tu_value like) {
    return full_like(like, 1);
}
