/* Invalid arguments of matmul fail with a message that contains the operation, the input types and the expected
 * value. */
#include "unit/graph_error.h"

static void operands_must_have_at_least_two_axes(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(3));
    assert_graph_error(tu_matmul(a, next_input(TU_F32, TU_SHAPE(3, 2))),
                       "matmul node 'matmul' (inputs f32[3], f32[3,2]", "at least 2 axes");
    a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_graph_error(tu_matmul(a, next_input(TU_F32, TU_SHAPE(3))), "matmul", "f32[2,3], f32[3]",
                       "at least 2 axes");
    a = first_input(TU_F32, TU_SCALAR);
    assert_graph_error(tu_matmul(a, a), "matmul", "f32[], f32[]", "at least 2 axes");
}

static void inner_sizes_must_be_equal(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_graph_error(tu_matmul(a, a), "matmul", "f32[2,3], f32[2,3]",
                       "operand 0 has 3 columns, but operand 1 has 2 rows: expected the same number");
    a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_graph_error(tu_matmul(a, next_input(TU_F32, TU_SHAPE(3, 2)), .transpose_a = true), "matmul",
                       "operand 0 (transposed) has 2 columns, but operand 1 has 3 rows");
    a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_graph_error(tu_matmul(a, next_input(TU_F32, TU_SHAPE(3, 2)), .transpose_b = true), "matmul",
                       "operand 0 has 3 columns, but operand 1 (transposed) has 2 rows");
}

static void batch_axes_must_broadcast(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(2, 4, 2, 3));
    assert_graph_error(tu_matmul(a, next_input(TU_F32, TU_SHAPE(3, 3, 2))), "matmul",
                       "f32[2,4,2,3], f32[3,3,2]", "[2,4] and [3] do not broadcast");
}

static void operands_must_have_the_same_numeric_type(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(2, 2));
    assert_graph_error(tu_matmul(a, next_input(TU_F64, TU_SHAPE(2, 2))), "matmul", "f32[2,2], f64[2,2]",
                       "tu_cast");
    a = first_input(TU_BOOL, TU_SHAPE(2, 2));
    assert_graph_error(tu_matmul(a, a), "matmul", "bool[2,2]", "numeric type");
}

static void results_that_are_too_large_are_rejected(void **state) {
    (void)state;
    tu_value a = first_input(TU_U8, TU_SHAPE(INT64_C(1) << 30, 1));
    assert_graph_error(tu_matmul(a, a, .transpose_b = true), "matmul",
                       "[1073741824,1073741824] is too large");
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(2, 3)), invalid = tu_matmul(a, a);
    assert_false(tu_ok(tu_matmul(a, invalid)));
    assert_false(tu_ok(tu_matmul(invalid, a)));
    assert_graph_error(invalid, "3 columns");
    a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_graph_error(tu_matmul(a, (tu_value){0}), "matmul", "input 1 is an uninitialised tu_value");
    assert_false(tu_ok(tu_matmul((tu_value){0}, (tu_value){0})));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_must_have_at_least_two_axes),
        cmocka_unit_test(inner_sizes_must_be_equal),
        cmocka_unit_test(batch_axes_must_broadcast),
        cmocka_unit_test(operands_must_have_the_same_numeric_type),
        cmocka_unit_test(results_that_are_too_large_are_rejected),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
