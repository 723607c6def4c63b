/* Functions composed of operations (ops/composed.c, comparisons with a number) compute what they say, and refuse mistakes
 * with a message that helps. */
#include "unit/evaluate.h"
#include "unit/refusal.h"

static tu_value three_by_four(void) {
    return counting(new_graph(), TU_F32, TU_SHAPE(3, 4)); /* 0 1 2 3 / 4 5 6 7 / 8 9 10 11 */
}

static void eye_has_ones_on_the_diagonal(void **state) {
    (void)state;
    assert_computes(tu_eye(new_graph(), TU_F32, 2, 3), TU_SHAPE(2, 3), 1, 0, 0, 0, 1, 0);
    assert_computes(tu_eye(new_graph(), TU_I64, 3, 2), TU_SHAPE(3, 2), 1, 0, 0, 1, 0, 0);
    assert_computes(tu_eye(new_graph(), TU_BOOL, 1, 1), TU_SHAPE(1, 1), 1);
    first_input(TU_F32, TU_SCALAR);
    assert_refused(tu_eye(refusal_graph, TU_F32, 0, 3), "[0,3]");
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
    x = counting(new_graph(), TU_I32, TU_SHAPE(2, 2, 2));
    assert_computes(tu_diagonal(x, 0), TU_SHAPE(2, 2), 0, 3, 4, 7);
    assert_computes(tu_diagonal(counting(x.graph, TU_U8, TU_SHAPE(1, 1)), 0), TU_SHAPE(1), 0);
}

static void diagonals_become_matrices(void **state) {
    (void)state;
    tu_value x = counting(new_graph(), TU_F32, TU_SHAPE(2, 2)); /* 0 1 / 2 3 */
    assert_computes(tu_diagonal_matrix(x, 0), TU_SHAPE(2, 2, 2), 0, 0, 0, 1, 2, 0, 0, 3);
    tu_value row = tu_shift(counting(x.graph, TU_F32, TU_SHAPE(2)), 1);
    assert_computes(tu_diagonal_matrix(row, 1), TU_SHAPE(3, 3), 0, 1, 0, 0, 0, 2, 0, 0, 0);
    assert_computes(tu_diagonal_matrix(row, -1), TU_SHAPE(3, 3), 0, 0, 0, 1, 0, 0, 0, 2, 0);
    tu_value one = tu_fill(x.graph, TU_BOOL, TU_SHAPE(1), 1);
    assert_computes(tu_diagonal_matrix(one, 0), TU_SHAPE(1, 1), 1);
    assert_computes(tu_diagonal_matrix(one, -1), TU_SHAPE(2, 2), 0, 0, 1, 0);
    for (int64_t offset = -2; offset <= 2; offset++)
        assert_computes(tu_diagonal(tu_diagonal_matrix(row, offset), offset), TU_SHAPE(2), 1, 2);
}

static void diagonals_must_exist(void **state) {
    (void)state;
    assert_refused(tu_diagonal(first_input(TU_F32, TU_SHAPE(3)), 0), "diagonal of 'in0' f32[3]",
                   "expected matrices [..., m, n]");
    assert_refused(tu_diagonal(first_input(TU_F32, TU_SHAPE(2, 3)), 3), "diagonal of 'in0' f32[2,3]",
                   "offset is 3", "[-1, 2]");
    assert_refused(tu_diagonal(first_input(TU_F32, TU_SHAPE(2, 3)), -2), "offset is -2", "[-1, 2]");
    assert_refused(tu_diagonal(first_input(TU_F32, TU_SHAPE(2, 3)), INT64_MIN), "[-1, 2]");
    assert_refused(tu_diagonal_matrix(first_input(TU_F32, TU_SCALAR), 0), "diagonal_matrix of 'in0' f32[]",
                   "diagonals [..., n]");
    assert_refused(tu_diagonal_matrix(first_input(TU_F32, TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 1)), 0),
                   "1 to 7 axes");
    assert_refused(tu_diagonal_matrix(first_input(TU_F32, TU_SHAPE(3)), INT64_MAX), "offset is", "2^24 rows");
    assert_refused(tu_diagonal_matrix(first_input(TU_F32, TU_SHAPE(3)), INT64_MIN), "offset is", "2^24 rows");
    assert_refused(tu_diagonal_matrix(first_input(TU_F32, TU_SHAPE(1 << 25)), 0), "2^24 rows");
}

static void stack_makes_an_axis(void **state) {
    (void)state;
    tu_value x = counting(new_graph(), TU_F32, TU_SHAPE(2)), y = tu_shift(x, 5);
    tu_value parts[] = {x, y, x};
    assert_computes(tu_stack(parts, 3, 0), TU_SHAPE(3, 2), 0, 1, 5, 6, 0, 1);
    assert_computes(tu_stack(parts, 3, 1), TU_SHAPE(2, 3), 0, 5, 0, 1, 6, 1);
    assert_computes(tu_stack(parts, 3, -1), TU_SHAPE(2, 3), 0, 5, 0, 1, 6, 1);
    assert_computes(tu_stack(parts, 1, -2), TU_SHAPE(1, 2), 0, 1);
    tu_value scalar = tu_fill(x.graph, TU_I32, TU_SCALAR, 7);
    assert_computes(tu_stack((tu_value[]){scalar, scalar}, 2, 0), TU_SHAPE(2), 7, 7);
}

static void parts_of_a_stack_agree(void **state) {
    (void)state;
    tu_value x = first_input(TU_F32, TU_SHAPE(2, 3)), y = next_input(TU_F32, TU_SHAPE(2, 4));
    assert_refused(tu_stack((tu_value[]){x, y}, 2, 0), "stack: part 1, 'in1', is f32[2,4]",
                   "part 0 is f32[2,3]", "same element type and shape");
    x = first_input(TU_F32, TU_SHAPE(2)), y = next_input(TU_I32, TU_SHAPE(2));
    assert_refused(tu_stack((tu_value[]){x, y}, 2, 0), "i32[2]", "f32[2]");
    x = first_input(TU_F32, TU_SHAPE(2));
    assert_refused(tu_stack(&x, 1, 2), "stack of 'in0' f32[2]", "axis 2", "[-2, 1]");
    x = first_input(TU_F32, TU_SHAPE(1, 1, 1, 1, 1, 1, 1, 1));
    assert_refused(tu_stack(&x, 1, 0), "at most 8 axes");
    assert_false(tu_ok(tu_stack(NULL, 0, 0)));
    assert_non_null(strstr(tu_message(), "stack of no parts"));
}

static void split_makes_slices(void **state) {
    (void)state;
    tu_value x = three_by_four(), parts[4];
    assert_int_equal(tu_split_axis(x, 1, 2, NULL, parts), TU_OK);
    assert_computes(parts[0], TU_SHAPE(3, 2), 0, 1, 4, 5, 8, 9);
    assert_computes(parts[1], TU_SHAPE(3, 2), 2, 3, 6, 7, 10, 11);
    assert_int_equal(tu_split_axis(x, -2, 2, (const int64_t[]){1, 2}, parts), TU_OK);
    assert_computes(parts[0], TU_SHAPE(1, 4), 0, 1, 2, 3);
    assert_computes(parts[1], TU_SHAPE(2, 4), 4, 5, 6, 7, 8, 9, 10, 11);
}

/* Splits, which must fail and leave all parts invalid; returns such a value, for assert_refused. */
static tu_value failed_split(tu_value x, int axis, size_t count, const int64_t *sizes) {
    tu_value parts[8];
    assert_int_equal(tu_split_axis(x, axis, count, sizes, parts), TU_INVALID);
    for (size_t i = 0; i < count; i++) assert_false(tu_ok(parts[i]));
    return (tu_value){.graph = refusal_graph, .node = TU_NO_NODE};
}
#define assert_split_refused(x, axis, count, sizes, ...)                                                     \
    assert_refused(failed_split(x, axis, count, sizes), __VA_ARGS__)

static void parts_of_a_split_fill_the_axis(void **state) {
    (void)state;
#define MATRIX first_input(TU_F32, TU_SHAPE(2, 6))
    assert_split_refused(MATRIX, 2, 2, NULL, "split_axis of 'in0' f32[2,6]", "axis 2", "[-2, 2)");
    assert_split_refused(MATRIX, 1, 4, NULL, "split_axis of 'in0' f32[2,6]", "size 6", "4 equal parts");
    assert_split_refused(MATRIX, 0, 4, NULL, "4 equal parts");
    assert_split_refused(MATRIX, 1, 0, NULL, "at least one part");
    assert_split_refused(MATRIX, 1, 2, ((const int64_t[]){2, 3}), "2 sizes add up to 5", "expected 6");
    assert_split_refused(MATRIX, 1, 2, ((const int64_t[]){5, 2}), "part 1 has size 2",
                         "where 1 of axis 1 are left");
    assert_split_refused(MATRIX, 1, 2, ((const int64_t[]){0, 6}), "part 0 has size 0");
    assert_split_refused(MATRIX, 1, 2, ((const int64_t[]){INT64_MAX, INT64_MAX}), "part 0 has size");
    tu_value part;
    assert_int_equal(tu_split_axis((tu_value){0}, 0, 1, NULL, &part), TU_INVALID);
    assert_false(tu_ok(part));
#undef MATRIX
}

static void numbers_are_compared_with(void **state) {
    (void)state;
    tu_value x = counting(new_graph(), TU_F32, TU_SHAPE(3));
    assert_computes(tu_equal_to(x, 1), TU_SHAPE(3), 0, 1, 0);
    assert_computes(tu_not_equal_to(x, 1), TU_SHAPE(3), 1, 0, 1);
    assert_computes(tu_less_than(x, 1), TU_SHAPE(3), 1, 0, 0);
    assert_computes(tu_at_most(x, 1), TU_SHAPE(3), 1, 1, 0);
    assert_computes(tu_greater_than(x, 0.5), TU_SHAPE(3), 0, 1, 1);
    assert_computes(tu_at_least(x, 1), TU_SHAPE(3), 0, 1, 1);
    assert_int_equal(tu_value_dtype(tu_at_least(x, 1)), TU_BOOL);
    assert_computes(tu_less_than(counting(x.graph, TU_U8, TU_SHAPE(3)), 2), TU_SHAPE(3), 1, 1, 0);
    assert_computes(tu_equal_to(tu_fill(x.graph, TU_BOOL, TU_SHAPE(2), 1), 1), TU_SHAPE(2), 1, 1);
    /* As a float, 0.1 is not the double; as one of x's own values it is. */
    assert_computes(tu_equal_to(tu_fill(x.graph, TU_F32, TU_SHAPE(1), 0.1), 0.1), TU_SHAPE(1), 1);
}

/* Truncated, x < 0.5 would be x < 0. */
static void integers_are_compared_with_integers(void **state) {
    (void)state;
    assert_refused(tu_less_than(first_input(TU_I32, TU_SHAPE(3)), 0.5), "less_than of 'in0' i32[3]",
                   "the number is 0.5", "one that i32 has");
    assert_refused(tu_at_most(first_input(TU_U8, TU_SHAPE(3)), 256), "at_most", "256", "u8");
    assert_refused(tu_at_most(first_input(TU_U8, TU_SHAPE(3)), -1), "at_most", "-1", "u8");
    assert_refused(tu_equal_to(first_input(TU_I64, TU_SHAPE(3)), (double)NAN), "equal_to", "nan");
    assert_refused(tu_equal_to(first_input(TU_I64, TU_SHAPE(3)), 0x1p63), "equal_to", "i64");
    assert_refused(tu_equal_to(first_input(TU_BOOL, TU_SHAPE(3)), 2), "equal_to", "bool");
}

static int free_both(void **state) {
    tu_graph_free(refusal_graph);
    refusal_graph = NULL;
    return free_last_graph(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eye_has_ones_on_the_diagonal), cmocka_unit_test(diagonals_are_extracted),
        cmocka_unit_test(diagonals_become_matrices),    cmocka_unit_test(diagonals_must_exist),
        cmocka_unit_test(stack_makes_an_axis),          cmocka_unit_test(parts_of_a_stack_agree),
        cmocka_unit_test(split_makes_slices),           cmocka_unit_test(parts_of_a_split_fill_the_axis),
        cmocka_unit_test(numbers_are_compared_with),    cmocka_unit_test(integers_are_compared_with_integers),
    };
    return cmocka_run_group_tests(tests, NULL, free_both);
}
