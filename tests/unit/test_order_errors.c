/* Mistakes with cumsum, top_k, argmax and argmin are refused by name, type and expectation. */
#include "unit/refused_call.h"

#include "graph/graph.h"

#define MATRIX TENSOR(TU_F32, 2, 3)
#define SCALAR tu_input(g, "x", TU_F32, TU_SCALAR)

static void the_axis_must_exist(void **state) {
    (void)state;
    static const int wrong[] = {2, -3, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char axis[48];
        snprintf(axis, sizeof axis, "axis %d does not exist", wrong[i]);
        REFUSED(tu_cumsum(MATRIX, wrong[i]), "cumsum 'cumsum' of f32[2,3]", axis, "expected one in [-2, 2)");
        REFUSED(tu_top_k(MATRIX, 1, wrong[i]), "top_k 'top_k' of f32[2,3]", axis, "expected one in [-2, 2)");
        REFUSED(tu_argmax(MATRIX, wrong[i]), "argmax 'argmax' of f32[2,3]", axis, "expected one in [-2, 2)");
        REFUSED(tu_argmin(MATRIX, wrong[i]), "argmin 'argmin' of f32[2,3]", axis, "expected one in [-2, 2)");
    }
}

static void a_scalar_has_no_order(void **state) {
    (void)state;
    REFUSED(tu_cumsum(SCALAR, 0), "cumsum", "f32[]", "axis 0 does not exist", "[0, 0)");
    REFUSED(tu_cumsum(SCALAR, -1), "cumsum", "f32[]", "axis -1 does not exist", "[0, 0)");
    REFUSED(tu_top_k(SCALAR, 1, 0), "top_k", "f32[]", "axis 0 does not exist", "[0, 0)");
    REFUSED(tu_argmax(SCALAR, 0), "argmax", "f32[]", "axis 0 does not exist", "[0, 0)");
    REFUSED(tu_argmin(SCALAR, -1), "argmin", "f32[]", "axis -1 does not exist", "[0, 0)");
}

static void truth_values_have_no_order(void **state) {
    (void)state;
    const char *reason = "the elements are bool, expected numbers: convert with tu_cast";
    REFUSED(tu_cumsum(TENSOR(TU_BOOL, 4), 0), "cumsum 'cumsum' of bool[4]", reason);
    REFUSED(tu_top_k(TENSOR(TU_BOOL, 4), 1, 0), "top_k 'top_k' of bool[4]", reason);
    REFUSED(tu_argmax(TENSOR(TU_BOOL, 4), 0), "argmax 'argmax' of bool[4]", reason);
    REFUSED(tu_argmin(TENSOR(TU_BOOL, 4), 0), "argmin 'argmin' of bool[4]", reason);
}

static void k_must_fit_the_axis(void **state) {
    (void)state;
    const char *expected = "expected 1 to 3, the size of axis 1";
    REFUSED(tu_top_k(MATRIX, 0, 1), "top_k 'top_k' of f32[2,3]", "k is 0", expected);
    REFUSED(tu_top_k(MATRIX, -1, 1), "k is -1", expected);
    REFUSED(tu_top_k(MATRIX, 4, -1), "k is 4", expected);
    REFUSED(tu_top_k(MATRIX, INT64_MAX, 1), "k is 9223372036854775807", expected);
    REFUSED(tu_top_k(MATRIX, INT64_MIN, 1), "k is -9223372036854775808", expected);
    REFUSED(tu_top_k(MATRIX, 3, 0), "k is 3", "expected 1 to 2, the size of axis 0");
}

/* What no builder makes but a file may hold. */
#define RAW(op, name, ...) tu__apply(op, (&(struct tu__##name##_attrs){__VA_ARGS__}), MATRIX)

static void attributes_are_checked(void **state) {
    (void)state;
    REFUSED(RAW(CUMSUM, cumsum, .axis = -1), "cumsum", "f32[2,3]", "axis -1 does not exist");
    REFUSED(RAW(CUMSUM, cumsum, .axis = INT64_MAX), "axis 9223372036854775807 does not exist");
    REFUSED(RAW(CUMSUM, cumsum, .exclusive = 2), "exclusive is 2, expected 0 or 1");
    REFUSED(RAW(CUMSUM, cumsum, .exclusive = -1), "exclusive is -1, expected 0 or 1");
    REFUSED(RAW(CUMSUM, cumsum, .reverse = INT64_MIN), "reverse is -9223372036854775808, expected 0 or 1");
    REFUSED(RAW(TOP_K, top_k, .axis = INT64_MIN, .k = 1), "top_k", "axis -9223372036854775808");
    REFUSED(RAW(TOP_K, top_k, 0), "top_k", "k is 0", "expected 1 to 2, the size of axis 0");
    REFUSED(RAW(ARGMAX, argmax, .axis = INT64_MAX), "argmax", "axis 9223372036854775807 does not exist");
    REFUSED(RAW(ARGMAX, argmax, .keep = 2), "argmax", "keep is 2, expected 0 or 1");
    REFUSED(RAW(ARGMIN, argmin, .axis = -1), "argmin", "axis -1 does not exist");
    REFUSED(RAW(ARGMIN, argmin, .keep = -1), "argmin", "keep is -1, expected 0 or 1");
}

static void an_invalid_operand_stays_silent(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value bad = tu_cumsum(MATRIX, 5), none = {0};
    assert_false(tu_ok(tu_cumsum(bad, 0)));
    assert_false(tu_ok(tu_top_k(bad, 1, 0)));
    assert_false(tu_ok(tu_output_of(tu_top_k(bad, 1, 0), 1)));
    assert_false(tu_ok(tu_argmax(bad, 0)));
    assert_false(tu_ok(tu_argmin(bad, 0)));
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
        cmocka_unit_test(the_axis_must_exist),        cmocka_unit_test(a_scalar_has_no_order),
        cmocka_unit_test(truth_values_have_no_order), cmocka_unit_test(k_must_fit_the_axis),
        cmocka_unit_test(attributes_are_checked),     cmocka_unit_test(an_invalid_operand_stays_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
