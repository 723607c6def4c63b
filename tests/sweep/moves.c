/* Indexing, operations that move elements, and single pointwise operations: simple arithmetic, but many indices. */
#include "sweep/sweep.h"

static void note_shape(sweep *s, tu_shape shape) {
    for (int i = 0; i < shape.rank; i++) sweep_note(s, "%s%lld", i ? "x" : " ", (long long)shape.dim[i]);
}

static tu_shape random_shape(sweep *s) {
    for (;;) {
        tu_shape shape = sweep_shape(s, sweep_random_int(s, 1, 4), 67);
        if (tu_shape_elements(shape) <= 30000) return shape;
    }
}

/* Replaces the size of an axis: the shape of gather's result and of scatter_add's updates. */
static tu_shape replace_axis(tu_shape shape, int axis, int64_t size) {
    shape.dim[axis] = size;
    return shape;
}

/* Indices repeat, and some are out of range. */
void sweep_scatter(sweep *s) {
    tu_shape shape = random_shape(s);
    int axis = (int)sweep_random_int(s, 0, shape.rank - 1);
    int64_t count = sweep_size(s, 97), outside = sweep_one_in(s, 3) ? 1 : 0;
    bool along = sweep_one_in(s, 3);
    tu_shape updates = replace_axis(shape, axis, count);
    note_shape(s, shape);
    sweep_note(s, " %s %lld along %d", along ? "put_along" : "scatter_add", (long long)count, axis);
    tu_value indices =
        sweep_input_integers(s, along ? updates : TU_SHAPE(count), -outside, shape.dim[axis] + outside);
    tu_value u = sweep_input(s, updates), base = sweep_input(s, shape), y, magnitude = {0};
    y = along ? tu_put_along(indices, u, axis, shape.dim[axis]) : tu_scatter_add(base, indices, u, axis);
    if (sweep_is_oracle(s))
        magnitude = along ? tu_put_along(indices, tu_abs(u), axis, shape.dim[axis])
                          : tu_scatter_add(tu_abs(base), indices, tu_abs(u), axis);
    /* An element may be added to once per index, and a 16-bit type rounds each time. */
    sweep_expect_dot_products(s, "scatter", y, count + 1, sweep_is_16_bit(s), &magnitude);
}

void sweep_gather(sweep *s) {
    tu_shape shape = random_shape(s);
    int axis = (int)sweep_random_int(s, 0, shape.rank - 1);
    int64_t count = sweep_size(s, 97);
    bool along = sweep_one_in(s, 3);
    note_shape(s, shape);
    sweep_note(s, " %s %lld along %d", along ? "take_along" : "gather", (long long)count, axis);
    tu_value indices = sweep_input_integers(s, along ? replace_axis(shape, axis, count) : TU_SHAPE(count), -1,
                                            shape.dim[axis] + 1);
    tu_value x = sweep_input(s, shape);
    tu_value y = along ? tu_take_along(x, indices, axis) : tu_gather(x, indices, axis);
    sweep_expect(s, "gather", y, 0, NULL);
    sweep_expect(s, "one hot", tu_one_hot(indices, sweep_size(s, 19), sweep_dtype(s)), 0, NULL);
}

static tu_axes random_permutation(sweep *s, int64_t rank) {
    tu_axes axes = {.count = (uint32_t)rank};
    for (int32_t i = 0; i < rank; i++) axes.axis[i] = i;
    for (int64_t i = rank - 1; i > 0; i--) {
        int64_t other = sweep_random_int(s, 0, i);
        int32_t saved = axes.axis[i];
        axes.axis[i] = axes.axis[other];
        axes.axis[other] = saved;
    }
    return axes;
}

void sweep_data_movement(sweep *s) {
    static const char *const names[] = {"transpose", "slice", "pad",       "concat",
                                        "flip",      "roll",  "broadcast", "band"};
    tu_shape shape = random_shape(s);
    int64_t kind = sweep_random_int(s, 0, shape.rank > 1 ? 7 : 6);
    int axis = (int)sweep_random_int(s, 0, shape.rank - 1);
    note_shape(s, shape);
    sweep_note(s, " %s, axis %d", names[kind], axis);
    tu_value x = sweep_input(s, shape), y;
    switch (kind) {
    case 0: y = tu_transpose_with(x, random_permutation(s, shape.rank)); break;
    case 1: {
        int64_t begin = sweep_random_int(s, 0, shape.dim[axis] - 1);
        y = tu_slice(x, axis, begin, sweep_random_int(s, begin + 1, shape.dim[axis]),
                     sweep_random_int(s, 1, 3));
        break;
    }
    case 2: {
        int64_t before = sweep_random_int(s, 0, 9);
        y = tu_pad(x, axis, before, sweep_random_int(s, 0, 9), 0.5);
        break;
    }
    case 3: {
        tu_shape other = replace_axis(shape, axis, sweep_size(s, 40));
        tu_value parts[3] = {x, sweep_input(s, other), x};
        y = tu_concat(parts, 3, axis);
        break;
    }
    case 4: y = tu_flip_with(x, (tu_axes){1, {axis}}); break;
    case 5: y = tu_roll(x, axis, sweep_random_int(s, -70, 70)); break;
    case 6: {
        tu_shape broadcast_shape = replace_axis(shape, axis, 1);
        y = tu_broadcast(sweep_input(s, broadcast_shape), shape);
        break;
    }
    default: {
        int64_t below = sweep_random_int(s, -1, 20);
        y = tu_band(x, below, sweep_random_int(s, -1, 20));
        break;
    }
    }
    sweep_expect(s, names[kind], y, 0, NULL);
}

/* One operation at a time, since 16-bit types are rounded between two. Broadcasts either operand. */
void sweep_pointwise(sweep *s) {
    static const char *const names[] = {"add",     "sub",  "mul",    "div", "maximum",
                                        "minimum", "sqrt", "select", "relu"};
    tu_shape shape = random_shape(s), broadcast_shape = shape;
    int64_t kind = sweep_random_int(s, 0, 8);
    for (int i = 0; i < shape.rank; i++)
        if (sweep_one_in(s, 4)) broadcast_shape.dim[i] = 1;
    note_shape(s, shape);
    sweep_note(s, " %s", names[kind]);
    bool swap = sweep_one_in(s, 2);
    tu_value x = sweep_input(s, swap ? broadcast_shape : shape),
             y = sweep_input_between(s, swap ? shape : broadcast_shape, 0.5, 2);
    tu_value result, magnitude = {0};
    switch (kind) {
    case 0: result = tu_add(x, y); break;
    case 1: result = tu_sub(x, y); break;
    case 2: result = tu_mul(x, y); break;
    case 3: result = tu_div(x, y); break;
    case 4: result = tu_maximum(x, y); break;
    case 5: result = tu_minimum(x, y); break;
    case 6: result = tu_sqrt(y); break;
    case 7: result = tu_select(tu_less(x, tu_shift(y, -1)), x, y); break;
    default: result = tu_relu(x); break;
    }
    bool is_sum = kind < 2;
    if (is_sum && sweep_is_oracle(s)) magnitude = tu_add(tu_abs(x), y);
    if (kind == 7 && sweep_is_16_bit(s))
        result = tu_maximum(x, y); /* y - 1 would be rounded before the comparison */
    sweep_expect(s, names[kind], result, is_sum ? 2 : 0, is_sum ? &magnitude : NULL);
}
