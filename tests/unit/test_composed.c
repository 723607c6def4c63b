/* Functions composed of other operations (ops/composed.c) and comparisons with a number: results and error
 * messages. */
#include "unit/evaluate.h"
#include "unit/graph_error.h"

static tu_value three_by_four(void) {
    return counting_constant(new_graph(), TU_F32, TU_SHAPE(3, 4)); /* 0 1 2 3 / 4 5 6 7 / 8 9 10 11 */
}

static void eye_has_ones_on_the_diagonal(void **state) {
    (void)state;
    assert_computes(tu_eye(new_graph(), TU_F32, 2, 3), TU_SHAPE(2, 3), 1, 0, 0, 0, 1, 0);
    assert_computes(tu_eye(new_graph(), TU_I64, 3, 2), TU_SHAPE(3, 2), 1, 0, 0, 1, 0, 0);
    assert_computes(tu_eye(new_graph(), TU_BOOL, 1, 1), TU_SHAPE(1, 1), 1);
    first_input(TU_F32, TU_SCALAR);
    assert_graph_error(tu_eye(error_graph, TU_F32, 0, 3), "[0,3]");
}

static void diagonals_are_extracted(void **state) {
    (void)state;
    tu_value x = three_by_four();
    assert_computes(tu_diagonal(x, 0), TU_SHAPE(3), 0, 5, 10);
    assert_computes(tu_diagonal(x, 1), TU_SHAPE(3), 1, 6, 11);
    assert_computes(tu_diagonal(x, 3), TU_SHAPE(1), 3);
    assert_computes(tu_diagonal(x, -1), TU_SHAPE(2), 4, 9);
    assert_computes(tu_diagonal(x, -2), TU_SHAPE(1), 8);
    assert_computes(tu_diagonal(tu_transpose(x), 0), TU_SHAPE(3), 0, 5, 10);
    x = counting_constant(new_graph(), TU_I32, TU_SHAPE(2, 2, 2));
    assert_computes(tu_diagonal(x, 0), TU_SHAPE(2, 2), 0, 3, 4, 7);
    assert_computes(tu_diagonal(counting_constant(x.graph, TU_U8, TU_SHAPE(1, 1)), 0), TU_SHAPE(1), 0);
}

static void diagonals_become_matrices(void **state) {
    (void)state;
    tu_value x = counting_constant(new_graph(), TU_F32, TU_SHAPE(2, 2)); /* 0 1 / 2 3 */
    assert_computes(tu_diagonal_matrix(x, 0), TU_SHAPE(2, 2, 2), 0, 0, 0, 1, 2, 0, 0, 3);
    tu_value row = tu_shift(counting_constant(x.graph, TU_F32, TU_SHAPE(2)), 1);
    assert_computes(tu_diagonal_matrix(row, 1), TU_SHAPE(3, 3), 0, 1, 0, 0, 0, 2, 0, 0, 0);
    assert_computes(tu_diagonal_matrix(row, -1), TU_SHAPE(3, 3), 0, 0, 0, 1, 0, 0, 0, 2, 0);
    tu_value one = tu_fill(x.graph, TU_BOOL, TU_SHAPE(1), 1);
    assert_computes(tu_diagonal_matrix(one, 0), TU_SHAPE(1, 1), 1);
    assert_computes(tu_diagonal_matrix(one, -1), TU_SHAPE(2, 2), 0, 0, 1, 0);
    for (int64_t offset = -2; offset <= 2; offset++)
        assert_computes(tu_diagonal(tu_diagonal_matrix(row, offset), offset), TU_SHAPE(2), 1, 2);
}

static void out_of_range_diagonals_are_rejected(void **state) {
    (void)state;
    assert_graph_error(tu_diagonal(first_input(TU_F32, TU_SHAPE(3)), 0), "diagonal of 'in0' f32[3]",
                       "expected matrices [..., m, n]");
    assert_graph_error(tu_diagonal(first_input(TU_F32, TU_SHAPE(2, 3)), 3), "diagonal of 'in0' f32[2,3]",
                       "offset is 3", "expected -1 to 2");
    assert_graph_error(tu_diagonal(first_input(TU_F32, TU_SHAPE(2, 3)), -2), "offset is -2",
                       "expected -1 to 2");
    assert_graph_error(tu_diagonal(first_input(TU_F32, TU_SHAPE(2, 3)), INT64_MIN), "expected -1 to 2");
    assert_graph_error(tu_diagonal_matrix(first_input(TU_F32, TU_SCALAR), 0),
                       "diagonal_matrix of 'in0' f32[]", "diagonals [..., n]");
    assert_graph_error(tu_diagonal_matrix(first_input(TU_F32, TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 1)), 0),
                       "1 to 7 axes");
    assert_graph_error(tu_diagonal_matrix(first_input(TU_F32, TU_SHAPE(3)), INT64_MAX), "offset is",
                       "2^24 rows");
    assert_graph_error(tu_diagonal_matrix(first_input(TU_F32, TU_SHAPE(3)), INT64_MIN), "offset is",
                       "2^24 rows");
    assert_graph_error(tu_diagonal_matrix(first_input(TU_F32, TU_SHAPE(1 << 25)), 0), "2^24 rows");
}

static void stack_adds_an_axis(void **state) {
    (void)state;
    tu_value x = counting_constant(new_graph(), TU_F32, TU_SHAPE(2)), y = tu_shift(x, 5);
    tu_value parts[] = {x, y, x};
    assert_computes(tu_stack(parts, 3, 0), TU_SHAPE(3, 2), 0, 1, 5, 6, 0, 1);
    assert_computes(tu_stack(parts, 3, 1), TU_SHAPE(2, 3), 0, 5, 0, 1, 6, 1);
    assert_computes(tu_stack(parts, 3, -1), TU_SHAPE(2, 3), 0, 5, 0, 1, 6, 1);
    assert_computes(tu_stack(parts, 1, -2), TU_SHAPE(1, 2), 0, 1);
    tu_value scalar = tu_fill(x.graph, TU_I32, TU_SCALAR, 7);
    assert_computes(tu_stack((tu_value[]){scalar, scalar}, 2, 0), TU_SHAPE(2), 7, 7);
}

static void values_of_a_stack_must_have_equal_types(void **state) {
    (void)state;
    tu_value x = first_input(TU_F32, TU_SHAPE(2, 3)), y = next_input(TU_F32, TU_SHAPE(2, 4));
    assert_graph_error(tu_stack((tu_value[]){x, y}, 2, 0), "stack: value 1, 'in1', is f32[2,4]",
                       "value 0 is f32[2,3]", "equal types and shapes");
    x = first_input(TU_F32, TU_SHAPE(2)), y = next_input(TU_I32, TU_SHAPE(2));
    assert_graph_error(tu_stack((tu_value[]){x, y}, 2, 0), "i32[2]", "f32[2]");
    x = first_input(TU_F32, TU_SHAPE(2));
    assert_graph_error(tu_stack(&x, 1, 2), "stack of 'in0' f32[2]", "new axis 2: expected -2 to 1");
    x = first_input(TU_F32, TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 1));
    assert_graph_error(tu_stack(&x, 1, 0), "at most 8 axes");
    assert_false(tu_ok(tu_stack(NULL, 0, 0)));
    assert_non_null(strstr(tu_message(), "stack: count is 0"));
}

static void split_axis_returns_slices(void **state) {
    (void)state;
    tu_value x = three_by_four(), parts[4];
    assert_int_equal(tu_split_axis(x, 1, 2, NULL, parts), TU_OK);
    assert_computes(parts[0], TU_SHAPE(3, 2), 0, 1, 4, 5, 8, 9);
    assert_computes(parts[1], TU_SHAPE(3, 2), 2, 3, 6, 7, 10, 11);
    assert_int_equal(tu_split_axis(x, -2, 2, (const int64_t[]){1, 2}, parts), TU_OK);
    assert_computes(parts[0], TU_SHAPE(1, 4), 0, 1, 2, 3);
    assert_computes(parts[1], TU_SHAPE(2, 4), 4, 5, 6, 7, 8, 9, 10, 11);
}

/* Calls tu_split_axis, which must fail, and returns one of the invalid parts for assert_graph_error. */
static tu_value failed_split(tu_value x, int axis, size_t count, const int64_t *sizes) {
    tu_value parts[8];
    assert_int_equal(tu_split_axis(x, axis, count, sizes, parts), TU_INVALID);
    for (size_t i = 0; i < count; i++) assert_false(tu_ok(parts[i]));
    return (tu_value){.graph = error_graph, .node = TU_NO_NODE};
}
#define assert_split_error(x, axis, count, sizes, ...)                                                       \
    assert_graph_error(failed_split(x, axis, count, sizes), __VA_ARGS__)

static void sizes_of_a_split_must_sum_to_the_axis_size(void **state) {
    (void)state;
#define MATRIX first_input(TU_F32, TU_SHAPE(2, 6))
    assert_split_error(MATRIX, 2, 2, NULL, "split_axis of 'in0' f32[2,6]", "axis 2", "expected -2 to 1");
    assert_split_error(MATRIX, 1, 4, NULL, "split_axis of 'in0' f32[2,6]", "size 6", "4 equal parts");
    assert_split_error(MATRIX, 0, 4, NULL, "4 equal parts");
    assert_split_error(MATRIX, 1, 0, NULL, "count is 0, expected at least 1");
    assert_split_error(MATRIX, 1, 2, ((const int64_t[]){2, 3}), "the sum of the 2 sizes is 5", "expected 6");
    assert_split_error(MATRIX, 1, 2, ((const int64_t[]){5, 2}), "sizes[1] is 2",
                       "but 1 elements of axis 1 are left");
    assert_split_error(MATRIX, 1, 2, ((const int64_t[]){0, 6}), "sizes[0] is 0");
    assert_split_error(MATRIX, 1, 2, ((const int64_t[]){INT64_MAX, INT64_MAX}), "sizes[0] is");
    tu_value part;
    assert_int_equal(tu_split_axis((tu_value){0}, 0, 1, NULL, &part), TU_INVALID);
    assert_false(tu_ok(part));
#undef MATRIX
}

static void values_are_compared_with_numbers(void **state) {
    (void)state;
    tu_value x = counting_constant(new_graph(), TU_F32, TU_SHAPE(3));
    assert_computes(tu_equal_to(x, 1), TU_SHAPE(3), 0, 1, 0);
    assert_computes(tu_not_equal_to(x, 1), TU_SHAPE(3), 1, 0, 1);
    assert_computes(tu_less_than(x, 1), TU_SHAPE(3), 1, 0, 0);
    assert_computes(tu_at_most(x, 1), TU_SHAPE(3), 1, 1, 0);
    assert_computes(tu_greater_than(x, 0.5), TU_SHAPE(3), 0, 1, 1);
    assert_computes(tu_at_least(x, 1), TU_SHAPE(3), 0, 1, 1);
    assert_int_equal(tu_value_dtype(tu_at_least(x, 1)), TU_BOOL);
    assert_computes(tu_less_than(counting_constant(x.graph, TU_U8, TU_SHAPE(3)), 2), TU_SHAPE(3), 1, 1, 0);
    assert_computes(tu_equal_to(tu_fill(x.graph, TU_BOOL, TU_SHAPE(2), 1), 1), TU_SHAPE(2), 1, 1);
    /* The number 0.1 is rounded to f32 before the comparison. */
    assert_computes(tu_equal_to(tu_fill(x.graph, TU_F32, TU_SHAPE(1), 0.1), 0.1), TU_SHAPE(1), 1);
}

static void comparing_integers_with_unrepresentable_numbers_is_rejected(void **state) {
    (void)state;
    assert_graph_error(tu_less_than(first_input(TU_I32, TU_SHAPE(3)), 0.5), "less_than of 'in0' i32[3]",
                       "the number is 0.5", "which i32 cannot represent");
    assert_graph_error(tu_at_most(first_input(TU_U8, TU_SHAPE(3)), 256), "at_most", "256", "u8");
    assert_graph_error(tu_at_most(first_input(TU_U8, TU_SHAPE(3)), -1), "at_most", "-1", "u8");
    assert_graph_error(tu_equal_to(first_input(TU_I64, TU_SHAPE(3)), (double)NAN), "equal_to", "nan");
    assert_graph_error(tu_equal_to(first_input(TU_I64, TU_SHAPE(3)), 0x1p63), "equal_to", "i64");
    assert_graph_error(tu_equal_to(first_input(TU_BOOL, TU_SHAPE(3)), 2), "equal_to", "bool");
}

static int free_both(void **state) {
    tu_graph_free(error_graph);
    error_graph = NULL;
    return free_last_graph(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eye_has_ones_on_the_diagonal),
        cmocka_unit_test(diagonals_are_extracted),
        cmocka_unit_test(diagonals_become_matrices),
        cmocka_unit_test(out_of_range_diagonals_are_rejected),
        cmocka_unit_test(stack_adds_an_axis),
        cmocka_unit_test(values_of_a_stack_must_have_equal_types),
        cmocka_unit_test(split_axis_returns_slices),
        cmocka_unit_test(sizes_of_a_split_must_sum_to_the_axis_size),
        cmocka_unit_test(values_are_compared_with_numbers),
        cmocka_unit_test(comparing_integers_with_unrepresentable_numbers_is_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, free_both);
}
