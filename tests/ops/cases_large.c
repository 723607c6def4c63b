/* Cases of data movement and indexing that are large enough for the kernels devices use for many elements: tiled
 * transposes, vector loads, sorted indices. Only forward values are checked; the small cases check the gradients. */
#include <tutti/tutti.h>

#include "base/draw.h"
#include "graph/graph.h"
#include "ops/cases.h"

/* Returns a length of contiguous elements that is, or is not, a multiple of the vector widths devices use. */
static int64_t run_length(case_run *c) {
    static const int64_t lengths[] = {64, 24, 20, 6, 33};
    return lengths[case_pick(c, "run", 5)];
}

OP_CASE(large_transpose, CASE_NO_GRADIENT) {
    tu_shape shape = {.rank = 2 + case_pick(c, "batched", 3)};
    for (int64_t i = 0; i < shape.rank; i++)
        shape.dim[i] = case_size(c, 1, i == shape.rank - 1 || i == 0 ? 70 : 3);
    tu_value x = case_fixed(c, shape, -2, 2);
    case_output(c, tu_transpose_with(x, case_permutation(c, shape.rank)));
    case_output(c, tu_transpose_with(tu_cast(x, TU_U8), case_permutation(c, shape.rank)));
}

/* A transpose of a slice: the source has an offset and a row stride. */
OP_CASE(large_transposed_slice, CASE_NO_GRADIENT) {
    tu_value x = case_fixed(c, TU_SHAPE(case_size(c, 20, 50), case_size(c, 20, 80)), -2, 2);
    tu_value slice = tu_slice(x, case_pick(c, "axis", 2), 3, TU_END, 1 + case_pick(c, "step", 2));
    case_output(c, tu_transpose(slice, 1, 0));
}

/* Adds a random input [images, height, width, channels], the layout of preprocessing. */
static tu_value random_images(case_run *c) {
    tu_shape shape = TU_SHAPE(case_size(c, 1, 3), case_size(c, 2, 9), case_size(c, 2, 9), run_length(c));
    return case_fixed(c, shape, -2, 2);
}

OP_CASE(large_runs, CASE_NO_GRADIENT) {
    tu_value x = random_images(c);
    int axis = case_pick(c, "axis", 4);
    int64_t size = tu_value_shape(x).dim[axis], shift = case_pick(c, "shift", 2) ? size / 2 : 1;
    case_output(c, tu_flip(x, axis));
    case_output(c, tu_slice(x, axis, size > 1 ? size / 2 : 0, TU_END, 1));
    case_output(c, tu_slice(x, axis, 0, TU_END, 2));
    case_output(c, tu_roll(x, axis, shift));
    case_output(c, tu_pad(tu_pad(x, 1, 4, 4, 0), 2, case_size(c, 0, 4), case_size(c, 0, 4), 0.5));
    case_output(c, tu_pad(x, 3, 8 * case_pick(c, "before", 2), case_size(c, 0, 8), -1));
}

OP_CASE(large_pad_between, CASE_NO_GRADIENT) {
    struct tu__pad_attrs attrs = {.number = 0.25};
    for (int i = 1; i < 4; i++) {
        attrs.before[i] = case_size(c, 0, 4);
        attrs.after[i] = case_size(c, 0, 4);
        attrs.between[i] = i == case_pick(c, "gaps", 4) ? 2 : 0;
    }
    case_output(c, tu__apply(PAD, &attrs, random_images(c)));
}

OP_CASE(large_broadcast, CASE_NO_GRADIENT) {
    tu_shape shape = TU_SHAPE(case_size(c, 1, 5), case_size(c, 1, 9), run_length(c));
    case_output(c, tu_broadcast(case_fixed(c, case_broadcastable(c, shape), -2, 2), shape));
}

/* More inputs than one concat kernel accepts; sizes are multiples of 16, or any. */
OP_CASE(large_concat, CASE_NO_GRADIENT) {
    enum { INPUTS = 19, DISTINCT = 3 };
    tu_value distinct[DISTINCT], inputs[INPUTS];
    int64_t multiple = case_pick(c, "multiple_of_16", 2) ? 16 : 1, rows = case_size(c, 1, 5);
    int axis = case_pick(c, "axis", 2);
    for (int i = 0; i < DISTINCT; i++) {
        int64_t length = multiple * case_size(c, 1, 3);
        distinct[i] = case_fixed(c, axis ? TU_SHAPE(rows, length) : TU_SHAPE(length, rows), -2, 2);
    }
    for (int i = 0; i < INPUTS; i++) inputs[i] = distinct[i * i % DISTINCT];
    case_output(c, tu_concat(inputs, INPUTS, axis));
}

OP_CASE(large_gather, CASE_NO_GRADIENT) {
    tu_dtype type = case_pick(c, "index_type", 2) ? TU_I64 : TU_I32;
    tu_shape shape = TU_SHAPE(case_size(c, 1, 4), 40, run_length(c));
    tu_value x = case_fixed(c, shape, -2, 2);
    case_output(c, tu_gather(x, case_integers(c, type, TU_SHAPE(case_size(c, 1, 90)), -3, 43), 1));
    shape.dim[1] = case_size(c, 1, 60);
    case_output(c, tu_take_along(x, case_integers(c, type, shape, -3, 43), 1));
}

/* Many indices into 600 rows: all into the first row, into the first 7, or into all of them. */
OP_CASE(large_scatter_add, CASE_NO_GRADIENT) {
    static const int64_t index_ends[] = {1, 7, 620};
    int64_t count = case_size(c, 1100, 2500), outer = 1 + case_pick(c, "outer", 2);
    int64_t rows = 600, inner = case_pick(c, "inner", 2) ? 16 : case_size(c, 5, 9);
    tu_dtype type = case_pick(c, "index_type", 2) ? TU_I64 : TU_I32;
    tu_value base = case_fixed(c, TU_SHAPE(outer, rows, inner), -2, 2);
    tu_value indices = case_integers(c, type, TU_SHAPE(count), -5, index_ends[case_pick(c, "index_end", 3)]);
    tu_value updates = case_fixed(c, TU_SHAPE(outer, count, inner), -0.01, 0.01);
    case_output(c, tu_scatter_add(base, indices, updates, 1));
}

/* One value is both base and updates: the kernel must not overwrite the base before it has read the updates. */
OP_CASE(large_scatter_add_itself, CASE_NO_GRADIENT) {
    int64_t rows = case_size(c, 300, 400);
    tu_value x = tu_scale(case_fixed(c, TU_SHAPE(rows, 64), -2, 2), 0.5);
    tu_value indices = case_integers(c, TU_I32, TU_SHAPE(rows), 0, rows);
    case_output(c, tu_square(tu_scatter_add(x, indices, x, 0)));
}

OP_CASE(large_put_along, CASE_NO_GRADIENT) {
    int64_t size = 700, axis = case_pick(c, "axis", 2), lanes = case_size(c, 3, 9);
    int64_t count = case_size(c, 2000, 2500);
    tu_shape shape = axis ? TU_SHAPE(lanes, count) : TU_SHAPE(count, lanes);
    tu_dtype type = case_pick(c, "index_type", 2) ? TU_I64 : TU_I32;
    tu_value indices = case_integers(c, type, shape, -5, case_pick(c, "few_distinct", 2) ? 3 : size + 5);
    case_output(c, tu_put_along(indices, case_fixed(c, shape, -0.01, 0.01), (int)axis, size));
}

/* Builds a random node with a truncated normal distribution, which only initial values of variables use. */
static tu_value truncated_normal(case_run *c, tu_shape shape) {
    struct tu__random_attrs attrs = {.dtype = case_dtype(c),
                                     .shape = shape,
                                     .distribution = TU__TRUNCATED_NORMAL,
                                     .a = 0.5,
                                     .b = 2,
                                     .key = 77};
    return tu__apply(RANDOM, &attrs, tu_step(case_graph(c)));
}

OP_CASE(large_random, CASE_NO_GRADIENT) {
    tu_shape shape = TU_SHAPE(case_size(c, 1, 40), case_size(c, 1, 9), run_length(c));
    tu_graph *g = case_graph(c);
    bool per_sample = case_pick(c, "per_sample", 2);
    case_output(c, tu_random_uniform(g, case_dtype(c), shape, -2, 3, .per_sample = per_sample));
    case_output(c, tu_random_normal(g, case_dtype(c), shape, 1, 0.5, .per_sample = per_sample));
    case_output(c, tu_random_bernoulli(g, case_pick(c, "bool", 2) ? TU_BOOL : TU_I32, shape, 0.3,
                                       .per_sample = per_sample));
    case_output(c, truncated_normal(c, shape));
}
