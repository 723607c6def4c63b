/* Invalid arguments of cumsum, top_k, argmax and argmin fail with a message that contains the operation, the input
 * types and the expected value. */
#include "unit/expect_error.h"

#include "graph/graph.h"

/* `g` is declared by EXPECT_ERROR. */
#define MATRIX TENSOR(TU_F32, 2, 3)
#define SCALAR tu_input(g, "x", TU_F32, TU_SCALAR)

static void out_of_range_axes_are_rejected(void **state) {
    (void)state;
    static const int wrong[] = {2, -3, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char axis[48];
        snprintf(axis, sizeof axis, "axis %d is out of range", wrong[i]);
        EXPECT_ERROR(tu_cumsum(MATRIX, wrong[i]), "cumsum node 'cumsum' (input f32[2,3]", axis,
                     "expected -2 to 1");
        EXPECT_ERROR(tu_top_k(MATRIX, 1, wrong[i]), "top_k node 'top_k' (input f32[2,3]", axis,
                     "expected -2 to 1");
        EXPECT_ERROR(tu_argmax(MATRIX, wrong[i]), "argmax node 'argmax' (input f32[2,3]", axis,
                     "expected -2 to 1");
        EXPECT_ERROR(tu_argmin(MATRIX, wrong[i]), "argmin node 'argmin' (input f32[2,3]", axis,
                     "expected -2 to 1");
    }
}

static void scalars_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_cumsum(SCALAR, 0), "cumsum", "f32[]", "axis 0 is out of range", "a scalar has no axes");
    EXPECT_ERROR(tu_cumsum(SCALAR, -1), "cumsum", "f32[]", "axis -1 is out of range", "a scalar has no axes");
    EXPECT_ERROR(tu_top_k(SCALAR, 1, 0), "top_k", "f32[]", "axis 0 is out of range", "a scalar has no axes");
    EXPECT_ERROR(tu_argmax(SCALAR, 0), "argmax", "f32[]", "axis 0 is out of range", "a scalar has no axes");
    EXPECT_ERROR(tu_argmin(SCALAR, -1), "argmin", "f32[]", "axis -1 is out of range", "a scalar has no axes");
}

static void bools_are_rejected(void **state) {
    (void)state;
    const char *reason = "the elements are bool, expected numbers: convert with tu_cast";
    EXPECT_ERROR(tu_cumsum(TENSOR(TU_BOOL, 4), 0), "cumsum node 'cumsum' (input bool[4]", reason);
    EXPECT_ERROR(tu_top_k(TENSOR(TU_BOOL, 4), 1, 0), "top_k node 'top_k' (input bool[4]", reason);
    EXPECT_ERROR(tu_argmax(TENSOR(TU_BOOL, 4), 0), "argmax node 'argmax' (input bool[4]", reason);
    EXPECT_ERROR(tu_argmin(TENSOR(TU_BOOL, 4), 0), "argmin node 'argmin' (input bool[4]", reason);
}

static void k_must_be_at_most_the_axis_size(void **state) {
    (void)state;
    const char *expected = "expected 1 to 3, the size of axis 1";
    EXPECT_ERROR(tu_top_k(MATRIX, 0, 1), "top_k node 'top_k' (input f32[2,3]", "k is 0", expected);
    EXPECT_ERROR(tu_top_k(MATRIX, -1, 1), "k is -1", expected);
    EXPECT_ERROR(tu_top_k(MATRIX, 4, -1), "k is 4", expected);
    EXPECT_ERROR(tu_top_k(MATRIX, INT64_MAX, 1), "k is 9223372036854775807", expected);
    EXPECT_ERROR(tu_top_k(MATRIX, INT64_MIN, 1), "k is -9223372036854775808", expected);
    EXPECT_ERROR(tu_top_k(MATRIX, 3, 0), "k is 3", "expected 1 to 2, the size of axis 0");
}

/* Attribute values that builders never set but a graph file may contain. */
#define RAW(op, name, ...) tu__apply(op, (&(struct tu__##name##_attrs){__VA_ARGS__}), MATRIX)

static void invalid_attributes_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(RAW(CUMSUM, cumsum, .axis = -1), "cumsum", "f32[2,3]", "axis -1 is out of range");
    EXPECT_ERROR(RAW(CUMSUM, cumsum, .axis = INT64_MAX), "axis 9223372036854775807 is out of range");
    EXPECT_ERROR(RAW(CUMSUM, cumsum, .exclusive = 2), "exclusive is 2, expected 0 or 1");
    EXPECT_ERROR(RAW(CUMSUM, cumsum, .exclusive = -1), "exclusive is -1, expected 0 or 1");
    EXPECT_ERROR(RAW(CUMSUM, cumsum, .reverse = INT64_MIN),
                 "reverse is -9223372036854775808, expected 0 or 1");
    EXPECT_ERROR(RAW(TOP_K, top_k, .axis = INT64_MIN, .k = 1), "top_k", "axis -9223372036854775808");
    EXPECT_ERROR(RAW(TOP_K, top_k, 0), "top_k", "k is 0", "expected 1 to 2, the size of axis 0");
    EXPECT_ERROR(RAW(ARGMAX, argmax, .axis = INT64_MAX), "argmax",
                 "axis 9223372036854775807 is out of range");
    EXPECT_ERROR(RAW(ARGMAX, argmax, .keep = 2), "argmax", "keep is 2, expected 0 or 1");
    EXPECT_ERROR(RAW(ARGMIN, argmin, .axis = -1), "argmin", "axis -1 is out of range");
    EXPECT_ERROR(RAW(ARGMIN, argmin, .keep = -1), "argmin", "keep is -1, expected 0 or 1");
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value invalid = tu_cumsum(MATRIX, 5), none = {0};
    assert_false(tu_ok(tu_cumsum(invalid, 0)));
    assert_false(tu_ok(tu_top_k(invalid, 1, 0)));
    assert_false(tu_ok(tu_output_of(tu_top_k(invalid, 1, 0), 1)));
    assert_false(tu_ok(tu_argmax(invalid, 0)));
    assert_false(tu_ok(tu_argmin(invalid, 0)));
    assert_false(tu_ok(tu_cumsum(none, 0)));
    assert_false(tu_ok(tu_top_k(none, 1, 0)));
    assert_false(tu_ok(tu_argmax(none, 0)));
    assert_false(tu_ok(tu_argmin(none, 0)));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "axis 5"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_range_axes_are_rejected),
        cmocka_unit_test(scalars_are_rejected),
        cmocka_unit_test(bools_are_rejected),
        cmocka_unit_test(k_must_be_at_most_the_axis_size),
        cmocka_unit_test(invalid_attributes_are_rejected),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
