/* Invalid arguments of convolutions fail with a message that contains the operation, the input types and the expected
 * value. */
#include "unit/expect_error.h"

#include "graph/graph.h"

/* `g` is declared by EXPECT_ERROR. */
#define IMAGES TENSOR(TU_F32, 2, 7, 6, 4)
#define FILTER WEIGHTS(TU_F32, 8, 3, 3, 4)
#define WEIGHTS(dtype, ...) tu_input(g, "weights", dtype, TU_SHAPE(__VA_ARGS__))

static void operands_of_the_wrong_rank_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_convolve(TENSOR(TU_F32, 7, 6, 4), FILTER), "conv2d", "f32[7,6,4]", "rank 3", "expected 4",
                 "[n,h,w,c]");
    EXPECT_ERROR(tu_convolve(IMAGES, WEIGHTS(TU_F32, 8, 3)), "conv2d", "f32[8,3]", "filter", "rank 2",
                 "expected 4");
    EXPECT_ERROR(tu_convolve_transpose(TENSOR(TU_F32, 3), FILTER), "conv2d_dx node 'convolve_transpose'",
                 "rank 1");
    EXPECT_ERROR(tu_convolve_transpose(IMAGES, WEIGHTS(TU_F32, 8)), "conv2d_dx", "filter", "rank 1");
}

static void operands_of_the_wrong_type_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_convolve(TENSOR(TU_U8, 2, 7, 6, 4), FILTER), "u8[2,7,6,4]", "expected a float type",
                 "tu_cast");
    EXPECT_ERROR(tu_convolve(IMAGES, WEIGHTS(TU_I32, 8, 3, 3, 4)), "filter has type i32",
                 "expected a float type");
    EXPECT_ERROR(tu_convolve(IMAGES, WEIGHTS(TU_F64, 8, 3, 3, 4)), "f32", "f64", "expected equal types");
    EXPECT_ERROR(tu_convolve_transpose(TENSOR(TU_BOOL, 1, 2, 2, 8), FILTER), "bool", "expected a float type");
}

static void channels_and_groups_must_agree(void **state) {
    (void)state;
    EXPECT_ERROR(tu_convolve(IMAGES, WEIGHTS(TU_F32, 8, 3, 3, 5)), "has 5 input channels, expected 4");
    EXPECT_ERROR(tu_convolve(IMAGES, WEIGHTS(TU_F32, 8, 3, 3, 4), .groups = 2),
                 "has 4 input channels, expected 2", "2 groups");
    EXPECT_ERROR(tu_convolve(IMAGES, WEIGHTS(TU_F32, 9, 3, 3, 2), .groups = 2), "9 filters", "2 groups");
    EXPECT_ERROR(tu_convolve(IMAGES, WEIGHTS(TU_F32, 9, 3, 3, 1), .groups = 3), "4 input channels",
                 "3 groups");
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .groups = -1), "groups is -1, expected at least 1");
    EXPECT_ERROR(tu_convolve_transpose(IMAGES, FILTER), "4 channels, expected 8");
    EXPECT_ERROR(tu_convolve_transpose(TENSOR(TU_F32, 1, 2, 2, 8), FILTER, .groups = INT64_MAX), "8 filters",
                 "groups");
    EXPECT_ERROR(tu_convolve_transpose(TENSOR(TU_F32, 1, 2, 2, 8), FILTER, .groups = 3), "8 filters",
                 "3 groups");
}

static void strides_and_dilations_must_be_positive(void **state) {
    (void)state;
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .stride = {-1, 1}), "stride[0] is -1, expected at least 1");
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .stride = {1, INT64_MIN}), "stride[1] is -9223372036854775808");
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .dilation = {1, -2}), "dilation[1] is -2, expected at least 1");
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .dilation = {INT64_MAX, 1}), "too large");
    EXPECT_ERROR(tu_convolve_transpose(TENSOR(TU_F32, 1, 2, 2, 8), FILTER, .stride = {-1, 1}),
                 "stride[0] is -1");
    EXPECT_ERROR(
        tu_convolve_transpose(TENSOR(TU_F32, 1, 2, 2, 8), FILTER, .dilation = {-1, 1}, .padding = TU_VALID),
        "convolve_transpose of 'x' f32[1,2,2,8]", "dilation -1", "at least 1");
    EXPECT_ERROR(tu_convolve_transpose(TENSOR(TU_F32, 1, 2, 2, 8), FILTER, .stride = {INT64_MAX, 1}),
                 "convolve_transpose of 'x' f32[1,2,2,8]", "stride 9223372036854775807");
}

static void unknown_or_contradictory_padding_is_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .padding = (tu_padding)7), "convolve of 'x' f32[2,7,6,4]",
                 "padding is 7", "TU_SAME, TU_VALID or TU_EXPLICIT");
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .pad = {0, 0, 2, 0}), "pad[2] is 2", "TU_EXPLICIT");
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .padding = TU_EXPLICIT, .pad = {0, 0, 0, -1}),
                 "pad[3] is -1, expected at least 0");
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .padding = TU_EXPLICIT, .pad = {INT64_MAX, INT64_MAX, 0, 0}),
                 "too large");
    EXPECT_ERROR(tu_convolve_transpose(TENSOR(TU_F32, 1, 2, 2, 8), FILTER, .padding = (tu_padding)-1),
                 "padding is -1");
}

static void windows_must_fit_the_input(void **state) {
    (void)state;
    EXPECT_ERROR(tu_convolve(TENSOR(TU_F32, 1, 2, 6, 4), FILTER, .padding = TU_VALID),
                 "the window's height of 3 is larger than the input's 2");
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .padding = TU_VALID, .dilation = {1, 4}),
                 "the window's width of 9 is larger than the input's 6");
    EXPECT_ERROR(tu_convolve(IMAGES, FILTER, .padding = TU_EXPLICIT, .pad = {(int64_t)1 << 50, 0, 0, 0}),
                 "too large");
}

static void the_size_of_a_transposed_convolution_must_match(void **state) {
    (void)state;
    EXPECT_ERROR(tu_convolve_transpose(TENSOR(TU_F32, 1, 2, 2, 8), FILTER, .stride = {2, 2}, .size = {9, 4}),
                 "an input of 9 x 4 gives an output of 5 x 2", "but y is 2 x 2");
    EXPECT_ERROR(tu_convolve_transpose(TENSOR(TU_F32, 1, 2, 2, 8), FILTER, .size = {-3, 2}), "height is -3");
    EXPECT_ERROR(tu_convolve_transpose(TENSOR(TU_F32, 1, 1, 1, 8), FILTER, .padding = TU_EXPLICIT,
                                       .pad = {2, 2, 0, 0}),
                 "height is -1, expected at least 1");
}

/* Attribute values that builders never set but a graph file may contain. */
static tu_value raw_dx(tu_graph *g, struct tu__conv2d_dx_attrs attrs) {
    return tu__apply(CONV2D_DX, &attrs, TENSOR(TU_F32, 1, 2, 2, 8), FILTER);
}

static tu_value raw_dw(tu_graph *g, tu_shape x, tu_shape y, struct tu__conv2d_dw_attrs attrs) {
    return tu__apply(CONV2D_DW, &attrs, tu_input(g, "x", TU_F32, x), tu_input(g, "y", TU_F32, y));
}

#define DX(...) raw_dx(g, (struct tu__conv2d_dx_attrs){__VA_ARGS__})
#define DW(x, y, ...) raw_dw(g, x, y, (struct tu__conv2d_dw_attrs){__VA_ARGS__})
#define ONES .stride = {1, 1}, .dilation = {1, 1}, .groups = 1
#define BIG INT64_MAX

static void attributes_of_gradient_operations_are_checked(void **state) {
    (void)state;
    EXPECT_ERROR(DX(0), "conv2d_dx", "groups is 0");
    EXPECT_ERROR(DX(.groups = 1), "stride[0] is 0");
    EXPECT_ERROR(DX(ONES), "height is 0");
    EXPECT_ERROR(DX(ONES, .size = {BIG, BIG}), "gives an output of", "but y is 2 x 2");
    EXPECT_ERROR(DX(ONES, .size = {BIG, BIG}, .pad = {BIG, BIG, 0, 0}), "too large");
    tu_shape x = TU_SHAPE(2, 5, 5, 4), y = TU_SHAPE(2, 3, 3, 8);
    EXPECT_ERROR(DW(x, y, ONES), "conv2d_dw", "window size[0] is 0");
    EXPECT_ERROR(DW(x, y, ONES, .size = {BIG, 3}), "is larger than the input's");
    EXPECT_ERROR(DW(x, y, ONES, .size = {3, 2}), "gives an output of 3 x 4", "but y is 3 x 3");
    EXPECT_ERROR(DW(x, TU_SHAPE(3, 3, 3, 8), ONES, .size = {3, 3}),
                 "2 images, but the output gradient has 3: expected the same number");
    EXPECT_ERROR(DW(x, TU_SHAPE(3, 3), ONES, .size = {3, 3}), "output gradient has rank 2");
    EXPECT_ERROR(DW(x, y, .stride = {1, 1}, .dilation = {1, 1}, .groups = 3, .size = {3, 3}),
                 "are not divisible by 3");
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value invalid = tu_convolve(TENSOR(TU_F32, 3), FILTER),
             valid = tu_input(g, "good", TU_F32, TU_SHAPE(1, 2, 2, 8));
    assert_false(tu_ok(tu_convolve(invalid, valid)));
    assert_false(tu_ok(tu_convolve(valid, invalid)));
    assert_false(tu_ok(tu_convolve_transpose(invalid, invalid)));
    assert_false(tu_ok(tu_convolve((tu_value){0}, (tu_value){0})));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "rank 1"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_of_the_wrong_rank_are_rejected),
        cmocka_unit_test(operands_of_the_wrong_type_are_rejected),
        cmocka_unit_test(channels_and_groups_must_agree),
        cmocka_unit_test(strides_and_dilations_must_be_positive),
        cmocka_unit_test(unknown_or_contradictory_padding_is_rejected),
        cmocka_unit_test(windows_must_fit_the_input),
        cmocka_unit_test(the_size_of_a_transposed_convolution_must_match),
        cmocka_unit_test(attributes_of_gradient_operations_are_checked),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
