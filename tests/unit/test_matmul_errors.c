/* Mistakes with the matrix product are refused with a message that helps. */
#include "unit/refusal.h"

static void both_have_two_axes(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(3));
    assert_refused(tu_matmul(a, next_input(TU_F32, TU_SHAPE(3, 2))), "matmul 'matmul' of f32[3] and f32[3,2]",
                   "at least 2 axes");
    a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_refused(tu_matmul(a, next_input(TU_F32, TU_SHAPE(3))), "matmul", "f32[2,3] and f32[3]",
                   "at least 2 axes");
    a = first_input(TU_F32, TU_SCALAR);
    assert_refused(tu_matmul(a, a), "matmul", "f32[] and f32[]", "at least 2 axes");
}

static void inner_sizes_meet(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_refused(tu_matmul(a, a), "matmul", "f32[2,3] and f32[2,3]", "3 columns of the first meet 2 rows");
    a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_refused(tu_matmul(a, next_input(TU_F32, TU_SHAPE(3, 2)), .transpose_a = true), "matmul",
                   "2 columns of the first (transposed) meet 3 rows of the second");
    a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_refused(tu_matmul(a, next_input(TU_F32, TU_SHAPE(3, 2)), .transpose_b = true), "matmul",
                   "3 columns of the first meet 2 rows of the second (transposed)");
}

static void batches_broadcast(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(2, 4, 2, 3));
    assert_refused(tu_matmul(a, next_input(TU_F32, TU_SHAPE(3, 3, 2))), "matmul",
                   "f32[2,4,2,3] and f32[3,3,2]", "[2,4] and [3] do not broadcast");
}

static void types_agree_and_are_numbers(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(2, 2));
    assert_refused(tu_matmul(a, next_input(TU_F64, TU_SHAPE(2, 2))), "matmul", "f32[2,2] and f64[2,2]",
                   "tu_cast");
    a = first_input(TU_BOOL, TU_SHAPE(2, 2));
    assert_refused(tu_matmul(a, a), "matmul", "bool[2,2]", "numeric element type");
}

static void results_are_bounded(void **state) {
    (void)state;
    tu_value a = first_input(TU_U8, TU_SHAPE(INT64_C(1) << 30, 1));
    assert_refused(tu_matmul(a, a, .transpose_b = true), "matmul", "[1073741824,1073741824] is too large");
}

static void invalid_values_stay_invalid(void **state) {
    (void)state;
    tu_value a = first_input(TU_F32, TU_SHAPE(2, 3)), bad = tu_matmul(a, a);
    assert_false(tu_ok(tu_matmul(a, bad)));
    assert_false(tu_ok(tu_matmul(bad, a)));
    assert_refused(bad, "3 columns");
    a = first_input(TU_F32, TU_SHAPE(2, 3));
    assert_refused(tu_matmul(a, (tu_value){0}), "matmul", "input 1 is not a value");
    assert_false(tu_ok(tu_matmul((tu_value){0}, (tu_value){0})));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_have_two_axes),  cmocka_unit_test(inner_sizes_meet),
        cmocka_unit_test(batches_broadcast),   cmocka_unit_test(types_agree_and_are_numbers),
        cmocka_unit_test(results_are_bounded), cmocka_unit_test(invalid_values_stay_invalid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
