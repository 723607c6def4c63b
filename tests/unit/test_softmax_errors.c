/* Mistakes with softmax, log_softmax and cross_entropy are refused by name, type and expectation. */
#include "unit/refused_call.h"

#include <math.h>

#include "graph/graph.h"

#define LOGITS TENSOR(TU_F32, 4, 5, 10)
#define SCALAR tu_input(g, "x", TU_F32, TU_SCALAR)
#define LABELS(dtype, ...) tu_input(g, "labels", dtype, TU_SHAPE(__VA_ARGS__))

static void the_axis_must_exist(void **state) {
    (void)state;
    REFUSED(tu_softmax(LOGITS, 3), "softmax of 'x' f32[4,5,10]",
            "axis 3 does not exist, expected one in [-3, 3)");
    REFUSED(tu_softmax(LOGITS, -4), "softmax of 'x' f32[4,5,10]", "axis -4", "[-3, 3)");
    REFUSED(tu_softmax(LOGITS, INT32_MIN), "axis -2147483648 does not exist");
    REFUSED(tu_softmax(SCALAR, 0), "softmax of 'x' f32[]", "axis 0 does not exist, expected one in [0, 0)");
    REFUSED(tu_softmax(SCALAR, -1), "softmax of 'x' f32[]", "axis -1", "[0, 0)");
    REFUSED(tu_log_softmax(LOGITS, 3), "log_softmax of 'x' f32[4,5,10]",
            "axis 3 does not exist, expected one in [-3, 3)");
    REFUSED(tu_log_softmax(LOGITS, -4), "log_softmax of 'x'", "axis -4", "[-3, 3)");
    REFUSED(tu_log_softmax(LOGITS, INT32_MAX), "axis 2147483647 does not exist");
    REFUSED(tu_log_softmax(SCALAR, -1), "log_softmax of 'x' f32[]", "axis -1", "[0, 0)");
}

/* What no builder makes but a file may hold. */
static void axes_from_files_are_checked(void **state) {
    (void)state;
    REFUSED(tu__apply(SOFTMAX, (&(struct tu__softmax_attrs){3}), LOGITS), "softmax 'softmax' of f32[4,5,10]",
            "axis 3 does not exist, expected one in [0, 3)");
    REFUSED(tu__apply(SOFTMAX, (&(struct tu__softmax_attrs){INT64_MIN}), LOGITS),
            "axis -9223372036854775808 does not exist");
    REFUSED(tu__apply(LOG_SOFTMAX, (&(struct tu__log_softmax_attrs){-1}), LOGITS),
            "log_softmax 'log_softmax' of f32[4,5,10]", "axis -1 does not exist, expected one in [0, 3)");
    REFUSED(tu__apply(LOG_SOFTMAX, (&(struct tu__log_softmax_attrs){0}), SCALAR), "log_softmax", "f32[]",
            "axis 0 does not exist");
}

static void elements_of_the_wrong_type_are_refused(void **state) {
    (void)state;
    static const tu_dtype wrong[] = {TU_I32, TU_I64, TU_U8, TU_BOOL};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *name = tu_dtype_name(wrong[i]);
        REFUSED(tu_softmax(TENSOR(wrong[i], 4, 10), -1), "softmax 'softmax' of", "x (input 0) is of type",
                name, "expected a float type (convert with tu_cast)");
        REFUSED(tu_log_softmax(TENSOR(wrong[i], 4, 10), -1), "log_softmax 'log_softmax' of",
                "x (input 0) is of type", name, "expected a float type (convert with tu_cast)");
        REFUSED(tu_cross_entropy(TENSOR(wrong[i], 4, 10), LABELS(TU_I32, 4)),
                "cross_entropy 'cross_entropy' of", "i32[4]", "the logits (input 0) are", name,
                "expected a float type (convert with tu_cast)");
    }
}

static void logits_have_a_row_of_classes(void **state) {
    (void)state;
    REFUSED(tu_cross_entropy(SCALAR, LABELS(TU_I32, 4)), "cross_entropy 'cross_entropy' of f32[] and i32[4]",
            "the logits (input 0) are a scalar", "expected at least 1 axis: [..., classes]");
    REFUSED(tu_cross_entropy(SCALAR, tu_input(g, "labels", TU_F32, TU_SCALAR)), "f32[] and f32[]",
            "the logits (input 0) are a scalar");
}

static void class_numbers_are_one_for_each_row(void **state) {
    (void)state;
    const char *expected = "expected [4,5], one for each row of logits";
    REFUSED(tu_cross_entropy(LOGITS, LABELS(TU_I32, 4)),
            "cross_entropy 'cross_entropy' of f32[4,5,10] and i32[4]",
            "the class numbers (input 1) have shape [4]", expected);
    REFUSED(tu_cross_entropy(LOGITS, LABELS(TU_I64, 5, 4)), "have shape [5,4]", expected);
    REFUSED(tu_cross_entropy(LOGITS, LABELS(TU_I64, 4, 5, 10)), "have shape [4,5,10]", expected);
    REFUSED(tu_cross_entropy(LOGITS, LABELS(TU_I32, 4, 5, 1)), "have shape [4,5,1]", expected);
    REFUSED(tu_cross_entropy(TENSOR(TU_F32, 10), LABELS(TU_I32, 1)), "f32[10] and i32[1]", "have shape [1]",
            "expected [], one for each row");
}

static void labels_are_class_numbers_or_probabilities(void **state) {
    (void)state;
    const char *expected = "expected class numbers i32[4,5] or i64[4,5], or probabilities f32[4,5,10]";
    REFUSED(tu_cross_entropy(LOGITS, LABELS(TU_U8, 4, 5)), "the labels (input 1) are u8[4,5]", expected);
    REFUSED(tu_cross_entropy(LOGITS, LABELS(TU_BOOL, 4, 5, 10)), "are bool[4,5,10]", expected);
    REFUSED(tu_cross_entropy(LOGITS, LABELS(TU_F64, 4, 5, 10)), "are f64[4,5,10]", expected);
    REFUSED(tu_cross_entropy(LOGITS, LABELS(TU_F32, 4, 5)), "are f32[4,5]", expected);
    REFUSED(tu_cross_entropy(LOGITS, LABELS(TU_F32, 4, 5, 9)), "are f32[4,5,9]", expected);
    REFUSED(tu_cross_entropy(LOGITS, LABELS(TU_F32, 1, 1, 10)), "are f32[1,1,10]", expected);
    REFUSED(tu_cross_entropy(TENSOR(TU_BF16, 4, 10), LABELS(TU_F32, 4, 10)), "are f32[4,10]",
            "expected class numbers i32[4] or i64[4], or probabilities bf16[4,10]");
}

static void smoothing_is_a_share(void **state) {
    (void)state;
#define SMOOTHED(s) tu_cross_entropy(LOGITS, LABELS(TU_I32, 4, 5), .smoothing = (s))
    const char *expected = "expected a number in [0, 1)";
    REFUSED(SMOOTHED(1), "cross_entropy 'cross_entropy' of f32[4,5,10] and i32[4,5]", "smoothing is 1",
            expected);
    REFUSED(SMOOTHED(1.5), "smoothing is 1.5", expected);
    REFUSED(SMOOTHED(-0.25), "smoothing is -0.25", expected);
    REFUSED(SMOOTHED(INFINITY), "smoothing is inf", expected);
    REFUSED(SMOOTHED(-INFINITY), "smoothing is -inf", expected);
    REFUSED(SMOOTHED(NAN), "smoothing is", "nan", expected);
#undef SMOOTHED
}

static void labels_that_were_never_set_are_refused(void **state) {
    (void)state;
    REFUSED(tu_cross_entropy(LOGITS, (tu_value){0}), "cross_entropy", "input 1 is not a value");
}

static void an_invalid_operand_stays_silent(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value good = LOGITS, bad = tu_softmax(good, 9), none = {0};
    assert_false(tu_ok(tu_softmax(bad, 0)));
    assert_false(tu_ok(tu_log_softmax(bad, 0)));
    assert_false(tu_ok(tu_cross_entropy(bad, good)));
    assert_false(tu_ok(tu_cross_entropy(good, bad)));
    assert_false(tu_ok(tu_softmax(none, 0)));
    assert_false(tu_ok(tu_log_softmax(none, 0)));
    assert_false(tu_ok(tu_cross_entropy(none, none)));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "axis 9"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_axis_must_exist),
        cmocka_unit_test(axes_from_files_are_checked),
        cmocka_unit_test(elements_of_the_wrong_type_are_refused),
        cmocka_unit_test(logits_have_a_row_of_classes),
        cmocka_unit_test(class_numbers_are_one_for_each_row),
        cmocka_unit_test(labels_are_class_numbers_or_probabilities),
        cmocka_unit_test(smoothing_is_a_share),
        cmocka_unit_test(labels_that_were_never_set_are_refused),
        cmocka_unit_test(an_invalid_operand_stays_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
