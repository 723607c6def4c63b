/* Invalid arguments of softmax, log_softmax and cross_entropy fail with a message that contains the operation, the
 * input types and the expected value. */
#include "unit/expect_error.h"

#include <math.h>

#include "graph/graph.h"

/* `g` is declared by EXPECT_ERROR. */
#define LOGITS TENSOR(TU_F32, 4, 5, 10)
#define SCALAR tu_input(g, "x", TU_F32, TU_SCALAR)
#define LABELS(dtype, ...) tu_input(g, "labels", dtype, TU_SHAPE(__VA_ARGS__))

static void out_of_range_axes_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_softmax(LOGITS, 3), "softmax of 'x' f32[4,5,10]",
                 "axis 3 is out of range: expected -3 to 2");
    EXPECT_ERROR(tu_softmax(LOGITS, -4), "softmax of 'x' f32[4,5,10]", "axis -4", "expected -3 to 2");
    EXPECT_ERROR(tu_softmax(LOGITS, INT32_MIN), "axis -2147483648 is out of range");
    EXPECT_ERROR(tu_softmax(SCALAR, 0), "softmax of 'x' f32[]",
                 "axis 0 is out of range: a scalar has no axes");
    EXPECT_ERROR(tu_softmax(SCALAR, -1), "softmax of 'x' f32[]", "axis -1", "a scalar has no axes");
    EXPECT_ERROR(tu_log_softmax(LOGITS, 3), "log_softmax of 'x' f32[4,5,10]",
                 "axis 3 is out of range: expected -3 to 2");
    EXPECT_ERROR(tu_log_softmax(LOGITS, -4), "log_softmax of 'x'", "axis -4", "expected -3 to 2");
    EXPECT_ERROR(tu_log_softmax(LOGITS, INT32_MAX), "axis 2147483647 is out of range");
    EXPECT_ERROR(tu_log_softmax(SCALAR, -1), "log_softmax of 'x' f32[]", "axis -1", "a scalar has no axes");
}

/* Attribute values that tu_softmax() never sets but a graph file may contain. */
static void out_of_range_axis_attributes_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu__apply(SOFTMAX, (&(struct tu__softmax_attrs){3}), LOGITS),
                 "softmax node 'softmax' (input f32[4,5,10]", "axis 3 is out of range: expected -3 to 2");
    EXPECT_ERROR(tu__apply(SOFTMAX, (&(struct tu__softmax_attrs){INT64_MIN}), LOGITS),
                 "axis -9223372036854775808 is out of range");
    EXPECT_ERROR(tu__apply(LOG_SOFTMAX, (&(struct tu__log_softmax_attrs){-1}), LOGITS),
                 "log_softmax node 'log_softmax' (input f32[4,5,10]",
                 "axis -1 is out of range: expected 0 to 2");
    EXPECT_ERROR(tu__apply(LOG_SOFTMAX, (&(struct tu__log_softmax_attrs){0}), SCALAR), "log_softmax", "f32[]",
                 "axis 0 is out of range");
}

static void non_float_elements_are_rejected(void **state) {
    (void)state;
    static const tu_dtype wrong[] = {TU_I32, TU_I64, TU_U8, TU_I8, TU_BOOL};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *name = tu_dtype_name(wrong[i]);
        EXPECT_ERROR(tu_softmax(TENSOR(wrong[i], 4, 10), -1), "softmax node 'softmax' (input",
                     "x (input 0) has type", name, "expected a float type (convert with tu_cast)");
        EXPECT_ERROR(tu_log_softmax(TENSOR(wrong[i], 4, 10), -1), "log_softmax node 'log_softmax' (input",
                     "x (input 0) has type", name, "expected a float type (convert with tu_cast)");
        EXPECT_ERROR(tu_cross_entropy(TENSOR(wrong[i], 4, 10), LABELS(TU_I32, 4)),
                     "cross_entropy node 'cross_entropy' (inputs", "i32[4]", "the logits (input 0) are", name,
                     "expected a float type (convert with tu_cast)");
    }
}

static void scalar_logits_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_cross_entropy(SCALAR, LABELS(TU_I32, 4)),
                 "cross_entropy node 'cross_entropy' (inputs f32[], i32[4]",
                 "the logits (input 0) are a scalar", "expected at least 1 axis: [..., classes]");
    EXPECT_ERROR(tu_cross_entropy(SCALAR, tu_input(g, "labels", TU_F32, TU_SCALAR)), "f32[], f32[]",
                 "the logits (input 0) are a scalar");
}

static void class_indices_must_match_the_batch_shape(void **state) {
    (void)state;
    const char *expected = "expected [4,5], one per row of logits";
    EXPECT_ERROR(tu_cross_entropy(LOGITS, LABELS(TU_I32, 4)),
                 "cross_entropy node 'cross_entropy' (inputs f32[4,5,10], i32[4]",
                 "the class indices (input 1) have shape [4]", expected);
    EXPECT_ERROR(tu_cross_entropy(LOGITS, LABELS(TU_I64, 5, 4)), "have shape [5,4]", expected);
    EXPECT_ERROR(tu_cross_entropy(LOGITS, LABELS(TU_I64, 4, 5, 10)), "have shape [4,5,10]", expected);
    EXPECT_ERROR(tu_cross_entropy(LOGITS, LABELS(TU_I32, 4, 5, 1)), "have shape [4,5,1]", expected);
    EXPECT_ERROR(tu_cross_entropy(TENSOR(TU_F32, 10), LABELS(TU_I32, 1)), "f32[10], i32[1]", "have shape [1]",
                 "expected [], one per row");
}

static void labels_must_be_class_indices_or_probabilities(void **state) {
    (void)state;
    const char *expected = "expected class indices i32[4,5] or i64[4,5], or probabilities f32[4,5,10]";
    EXPECT_ERROR(tu_cross_entropy(LOGITS, LABELS(TU_U8, 4, 5)), "the labels (input 1) are u8[4,5]", expected);
    EXPECT_ERROR(tu_cross_entropy(LOGITS, LABELS(TU_BOOL, 4, 5, 10)), "are bool[4,5,10]", expected);
    EXPECT_ERROR(tu_cross_entropy(LOGITS, LABELS(TU_F64, 4, 5, 10)), "are f64[4,5,10]", expected);
    EXPECT_ERROR(tu_cross_entropy(LOGITS, LABELS(TU_F32, 4, 5)), "are f32[4,5]", expected);
    EXPECT_ERROR(tu_cross_entropy(LOGITS, LABELS(TU_F32, 4, 5, 9)), "are f32[4,5,9]", expected);
    EXPECT_ERROR(tu_cross_entropy(LOGITS, LABELS(TU_F32, 1, 1, 10)), "are f32[1,1,10]", expected);
    EXPECT_ERROR(tu_cross_entropy(TENSOR(TU_BF16, 4, 10), LABELS(TU_F32, 4, 10)), "are f32[4,10]",
                 "expected class indices i32[4] or i64[4], or probabilities bf16[4,10]");
}

static void the_gradient_of_cross_entropy_needs_class_indices(void **state) {
    (void)state;
    EXPECT_ERROR(tu__apply(CROSS_ENTROPY_GRAD, NULL, LOGITS, LABELS(TU_F32, 4, 5, 10)),
                 "cross_entropy_grad node 'cross_entropy_grad' (inputs f32[4,5,10], f32[4,5,10]",
                 "the labels (input 1) are f32[4,5,10], expected class indices i32[4,5] or i64[4,5]");
    EXPECT_ERROR(tu__apply(CROSS_ENTROPY_GRAD, NULL, LOGITS, LABELS(TU_I64, 5, 4)),
                 "the class indices (input 1) have shape [5,4]", "expected [4,5], one per row of logits");
    EXPECT_ERROR(tu__apply(CROSS_ENTROPY_GRAD, NULL, SCALAR, LABELS(TU_I64, 4)), "cross_entropy_grad",
                 "the logits (input 0) are a scalar");
    EXPECT_ERROR(tu__apply(CROSS_ENTROPY_GRAD, NULL, TENSOR(TU_I32, 4, 10), LABELS(TU_I32, 4)),
                 "cross_entropy_grad", "the logits (input 0) are i32");
}

static void smoothing_must_be_in_0_1(void **state) {
    (void)state;
#define SMOOTHED(s) tu_cross_entropy(LOGITS, LABELS(TU_I32, 4, 5), .smoothing = (s))
    const char *expected = "expected a number in [0, 1)";
    EXPECT_ERROR(SMOOTHED(1), "cross_entropy node 'cross_entropy' (inputs f32[4,5,10], i32[4,5]",
                 "smoothing is 1", expected);
    EXPECT_ERROR(SMOOTHED(1.5), "smoothing is 1.5", expected);
    EXPECT_ERROR(SMOOTHED(-0.25), "smoothing is -0.25", expected);
    EXPECT_ERROR(SMOOTHED(INFINITY), "smoothing is inf", expected);
    EXPECT_ERROR(SMOOTHED(-INFINITY), "smoothing is -inf", expected);
    EXPECT_ERROR(SMOOTHED(NAN), "smoothing is", "nan", expected);
#undef SMOOTHED
}

static void uninitialised_labels_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_cross_entropy(LOGITS, (tu_value){0}), "cross_entropy",
                 "input 1 is an uninitialised tu_value");
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value valid = LOGITS, invalid = tu_softmax(valid, 9), none = {0};
    assert_false(tu_ok(tu_softmax(invalid, 0)));
    assert_false(tu_ok(tu_log_softmax(invalid, 0)));
    assert_false(tu_ok(tu_cross_entropy(invalid, valid)));
    assert_false(tu_ok(tu_cross_entropy(valid, invalid)));
    assert_false(tu_ok(tu_softmax(none, 0)));
    assert_false(tu_ok(tu_log_softmax(none, 0)));
    assert_false(tu_ok(tu_cross_entropy(none, none)));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "axis 9"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_range_axes_are_rejected),
        cmocka_unit_test(out_of_range_axis_attributes_are_rejected),
        cmocka_unit_test(non_float_elements_are_rejected),
        cmocka_unit_test(scalar_logits_are_rejected),
        cmocka_unit_test(class_indices_must_match_the_batch_shape),
        cmocka_unit_test(labels_must_be_class_indices_or_probabilities),
        cmocka_unit_test(the_gradient_of_cross_entropy_needs_class_indices),
        cmocka_unit_test(smoothing_must_be_in_0_1),
        cmocka_unit_test(uninitialised_labels_are_rejected),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
