/* Cases of indexing. Indices range from -2 to size + 1: out-of-range indices read zeros and write nothing. Results
 * are also output squared, because indexing is linear and the second derivatives would be zero. */
#include "ops/cases.h"

static void output_with_square(case_run *c, tu_value y) {
    case_output(c, y);
    case_output(c, tu_square(y));
}

static tu_dtype index_type(case_run *c) {
    return case_pick(c, "index_type", 2) ? TU_I64 : TU_I32;
}

static int axis_from_either_end(case_run *c, int64_t axis, int64_t rank) {
    return (int)(case_pick(c, "negative_axis", 2) ? axis - rank : axis);
}

/* Adds a random table [.., n, ..] with n at `axis`, and indices of any shape into that axis. */
static tu_value random_table(case_run *c, tu_value *indices, int64_t *axis) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 4);
    *axis = case_size(c, 0, shape.rank - 1);
    int64_t size = shape.dim[*axis];
    *indices = case_integers(c, index_type(c), case_shape(c, case_size(c, 0, 2), 1, 4), -2, size + 2);
    return case_input(c, shape, -2, 2);
}

OP_CASE(gather, CASE_ALL_CHECKS) {
    tu_value indices;
    int64_t axis;
    tu_value table = random_table(c, &indices, &axis);
    output_with_square(c,
                       tu_gather(table, indices, axis_from_either_end(c, axis, tu_value_shape(table).rank)));
}

OP_CASE(scatter_add, CASE_ALL_CHECKS) {
    tu_value indices;
    int64_t axis;
    tu_value base = random_table(c, &indices, &axis);
    tu_shape updates = tu_value_shape(tu_gather(base, indices, (int)axis));
    output_with_square(c, tu_scatter_add(base, indices, case_input(c, updates, -2, 2),
                                         axis_from_either_end(c, axis, tu_value_shape(base).rank)));
}

OP_CASE(take_along, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 4);
    int64_t axis = case_size(c, 0, shape.rank - 1), size = shape.dim[axis];
    tu_value x = case_input(c, shape, -2, 2);
    shape.dim[axis] = case_size(c, 1, 5);
    tu_value indices = case_integers(c, index_type(c), shape, -2, size + 2);
    output_with_square(c, tu_take_along(x, indices, axis_from_either_end(c, axis, shape.rank)));
}

/* put_along adds, like scatter_add into zeros: repeated indices are summed. */
OP_CASE(put_along, CASE_ALL_CHECKS) {
    tu_shape shape = case_shape(c, case_size(c, 1, 3), 1, 4);
    int64_t axis = case_size(c, 0, shape.rank - 1), size = case_size(c, 1, 5);
    tu_value indices = case_integers(c, index_type(c), shape, -2, size + 2);
    output_with_square(c, tu_put_along(indices, case_input(c, shape, -2, 2),
                                       axis_from_either_end(c, axis, shape.rank), size));
}

OP_CASE(one_hot, CASE_NO_GRADIENT) {
    int64_t classes = case_size(c, 1, 6);
    tu_value indices =
        case_integers(c, index_type(c), case_shape(c, case_size(c, 0, 3), 1, 4), -2, classes + 2);
    int pick = case_pick(c, "dtype", TU_DTYPE_COUNT + 1);
    tu_dtype dtype = pick < TU_DTYPE_COUNT ? (tu_dtype)pick : case_dtype(c);
    case_output(c, tu_one_hot(indices, classes, dtype));
}

/* Reading supports every element type; adding supports all but bool. */
OP_CASE(index_integers, CASE_NO_GRADIENT) {
    static const tu_dtype types[] = {TU_I32, TU_I64, TU_U8, TU_BOOL, TU_I8};
    tu_dtype dtype = types[case_pick(c, "type", 5)];
    tu_shape shape = case_shape(c, 2, 1, 5);
    tu_value x = case_integers(c, dtype, shape, 0, dtype == TU_BOOL ? 2 : 50);
    tu_value indices = case_integers(c, index_type(c), shape, -1, shape.dim[1] + 1);
    case_output(c, tu_gather(x, indices, 1));
    case_output(c, tu_take_along(x, indices, 1));
    if (dtype == TU_BOOL) return;
    case_output(c, tu_put_along(indices, x, 1, 4));
    case_output(c, tu_scatter_add(x, indices, tu_gather(x, indices, 0), 0));
}
