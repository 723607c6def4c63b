/* Invalid arguments of gather, scatter_add, take_along, put_along and one_hot fail with a message that contains the
 * operation, the input types and the expected value. */
#include "unit/graph_error.h"

#include "graph/graph.h"

static tu_value table(void) {
    return first_input(TU_F32, TU_SHAPE(5, 3));
}

static tu_value indices(void) {
    return first_input(TU_I32, TU_SHAPE(2, 3));
}

static tu_value next_indices(void) {
    return next_input(TU_I32, TU_SHAPE(2, 3));
}

static void non_integer_indices_are_rejected(void **state) {
    (void)state;
    tu_value x = table();
    assert_graph_error(tu_gather(x, next_input(TU_F32, TU_SHAPE(2)), 0),
                       "gather node 'gather' (inputs f32[5,3], f32[2]", "indices (input 1) are f32",
                       "expected i32 or i64");
    x = table();
    assert_graph_error(tu_take_along(x, next_input(TU_U8, TU_SHAPE(2, 3)), 0), "take_along", "u8[2,3]",
                       "i32 or i64");
    x = table();
    tu_value positions = next_input(TU_BOOL, TU_SHAPE(2));
    assert_graph_error(tu_scatter_add(x, positions, next_input(TU_F32, TU_SHAPE(2, 3)), 0), "scatter_add",
                       "bool[2]", "i32 or i64");
    x = table();
    assert_graph_error(tu_put_along(x, next_input(TU_F32, TU_SHAPE(5, 3)), 0, 4), "put_along",
                       "indices (input 0) are f32", "i32 or i64");
    assert_graph_error(tu_one_hot(table(), 4, TU_F32), "one_hot", "f32[5,3]", "i32 or i64");
}

static void out_of_range_axes_are_rejected(void **state) {
    (void)state;
    tu_value x = table();
    assert_graph_error(tu_gather(x, next_indices(), 2), "gather", "f32[5,3]", "axis 2", "expected -2 to 1");
    x = table();
    assert_graph_error(tu_gather(x, next_indices(), -3), "gather", "axis -3", "expected -2 to 1");
    x = first_input(TU_F32, TU_SCALAR);
    assert_graph_error(tu_gather(x, next_indices(), 0), "gather", "f32[]", "axis 0");
    x = table();
    tu_value positions = next_indices();
    assert_graph_error(tu_scatter_add(x, positions, x, 2), "scatter_add", "axis 2");
    x = table();
    assert_graph_error(tu_take_along(x, next_indices(), -3), "take_along", "axis -3");
    x = indices();
    assert_graph_error(tu_put_along(x, next_input(TU_F32, TU_SHAPE(2, 3)), 2, 4), "put_along", "axis 2");
    x = first_input(TU_I32, TU_SCALAR);
    assert_graph_error(tu_put_along(x, next_input(TU_F32, TU_SCALAR), 0, 4), "put_along", "axis 0");
}

static void results_with_more_than_eight_axes_are_rejected(void **state) {
    (void)state;
    tu_value x = first_input(TU_F32, TU_SHAPE(1, 1, 1, 1, 1));
    assert_graph_error(tu_gather(x, next_input(TU_I32, TU_SHAPE(1, 1, 1, 1, 1)), 0), "gather",
                       "at most 8 dimensions");
    x = first_input(TU_I32, TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 1));
    assert_graph_error(tu_one_hot(x, 2, TU_F32), "one_hot", "at most 7 axes");
}

static void updates_must_match_base_and_indices(void **state) {
    (void)state;
    tu_value x = table(), positions = next_indices();
    assert_graph_error(tu_scatter_add(x, positions, next_input(TU_F32, TU_SHAPE(2, 3)), 0), "scatter_add",
                       "f32[5,3], i32[2,3], f32[2,3]", "updates (input 2) are f32[2,3]",
                       "expected f32[2,3,3]");
    x = table(), positions = next_indices();
    assert_graph_error(tu_scatter_add(x, positions, next_input(TU_F64, TU_SHAPE(2, 3, 3)), 0), "scatter_add",
                       "f64[2,3,3]", "expected f32[2,3,3]");
    x = indices();
    assert_graph_error(tu_put_along(x, next_input(TU_F32, TU_SHAPE(2, 4)), 0, 4), "put_along",
                       "i32[2,3], f32[2,4]", "expected [2,3], the shape of the indices");
}

static void take_along_indices_must_match_x_except_at_the_axis(void **state) {
    (void)state;
    tu_value x = table();
    assert_graph_error(tu_take_along(x, next_input(TU_I64, TU_SHAPE(2, 4)), 0), "take_along",
                       "f32[5,3], i64[2,4]", "expected the shape of x except at axis 0");
    x = table();
    assert_graph_error(tu_take_along(x, next_input(TU_I64, TU_SHAPE(5)), 0), "take_along", "i64[5]");
    x = table();
    assert_graph_error(tu_take_along(x, next_input(TU_I64, TU_SCALAR), 1), "take_along", "i64[]");
}

static void adding_bools_is_rejected(void **state) {
    (void)state;
    tu_value x = first_input(TU_BOOL, TU_SHAPE(5, 3)), positions = next_indices();
    assert_graph_error(tu_scatter_add(x, positions, next_input(TU_BOOL, TU_SHAPE(2, 3, 3)), 0), "scatter_add",
                       "bool", "tu_cast");
    x = indices();
    assert_graph_error(tu_put_along(x, next_input(TU_BOOL, TU_SHAPE(2, 3)), 0, 4), "put_along", "bool",
                       "tu_cast");
}

static void invalid_sizes_are_rejected(void **state) {
    (void)state;
    tu_value x = indices();
    assert_graph_error(tu_put_along(x, next_input(TU_F32, TU_SHAPE(2, 3)), 1, 0), "put_along", "size is 0",
                       "at least 1");
    x = indices();
    assert_graph_error(tu_put_along(x, next_input(TU_F32, TU_SHAPE(2, 3)), 1, INT64_MAX), "put_along",
                       "too large");
    assert_graph_error(tu_one_hot(indices(), 0, TU_F32), "one_hot", "i32[2,3]", "classes is 0", "at least 1");
    assert_graph_error(tu_one_hot(indices(), -5, TU_F32), "one_hot", "classes is -5");
    assert_graph_error(tu_one_hot(indices(), INT64_MAX, TU_F32), "one_hot", "too large");
}

static void unknown_element_types_are_rejected(void **state) {
    (void)state;
    assert_graph_error(tu_one_hot(indices(), 4, (tu_dtype)99), "one_hot", "unknown element type 99");
    assert_graph_error(tu__apply(ONE_HOT, (&(struct tu__one_hot_attrs){4, INT64_MIN}), indices()), "one_hot",
                       "element type");
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    tu_value x = table(), positions = next_indices(), invalid = tu_gather(x, positions, 9);
    assert_false(tu_ok(tu_gather(invalid, positions, 0)));
    assert_false(tu_ok(tu_gather(x, invalid, 0)));
    assert_false(tu_ok(tu_scatter_add(invalid, positions, invalid, 0)));
    assert_false(tu_ok(tu_take_along(invalid, positions, 0)));
    assert_false(tu_ok(tu_put_along(invalid, x, 0, 1)));
    assert_false(tu_ok(tu_one_hot(invalid, 1, TU_F32)));
    assert_graph_error(invalid, "axis 9");
    x = table();
    assert_graph_error(tu_gather(x, (tu_value){0}, 0), "gather", "input 1 is an uninitialised tu_value");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(non_integer_indices_are_rejected),
        cmocka_unit_test(out_of_range_axes_are_rejected),
        cmocka_unit_test(results_with_more_than_eight_axes_are_rejected),
        cmocka_unit_test(updates_must_match_base_and_indices),
        cmocka_unit_test(take_along_indices_must_match_x_except_at_the_axis),
        cmocka_unit_test(adding_bools_is_rejected),
        cmocka_unit_test(invalid_sizes_are_rejected),
        cmocka_unit_test(unknown_element_types_are_rejected),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
