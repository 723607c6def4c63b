/* Messages of the operations of quantized networks for wrong operands and attributes. */
#include "test.h"

#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

#include "graph/graph.h"
#include "unit/expect_error.h"

#define BYTES(...) TENSOR(TU_U8, __VA_ARGS__)
#define WEIGHTS(...) tu_input(g, "weights", TU_I8, TU_SHAPE(__VA_ARGS__))
#define OTHER(dtype, ...) tu_input(g, "other", dtype, TU_SHAPE(__VA_ARGS__))
#define BIAS(dtype, ...) tu_input(g, "bias", dtype, TU_SHAPE(__VA_ARGS__))

static void operands_of_the_wrong_type_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_quantize(TENSOR(TU_F64, 3), 1, 0), "quantize node", "f64[3]",
                 "operand 0 has type f64, expected f32");
    EXPECT_ERROR(tu_dequantize(TENSOR(TU_I8, 3), 1, 0), "dequantize", "operand 0 has type i8, expected u8");
    EXPECT_ERROR(tu_convolve_int8(TENSOR(TU_F32, 2, 7, 6, 4), WEIGHTS(3, 3, 3, 4), 0), "conv2d_int8",
                 "operand 0 has type f32, expected u8");
    EXPECT_ERROR(tu_convolve_int8(BYTES(2, 7, 6, 4), OTHER(TU_U8, 3, 3, 3, 4), 0),
                 "operand 1 has type u8, expected i8");
    EXPECT_ERROR(tu_matmul_int8(BYTES(2, 4), OTHER(TU_F32, 4, 3), 0), "matmul_int8",
                 "operand 1 has type f32, expected i8");
    EXPECT_ERROR(tu_requantize(TENSOR(TU_F32, 2, 3), OTHER(TU_F32, 3), BIAS(TU_I32, 3)), "requantize",
                 "operand 0 has type f32, expected i32");
    EXPECT_ERROR(tu_requantize(TENSOR(TU_I32, 2, 3), OTHER(TU_F64, 3), BIAS(TU_I32, 3)),
                 "operand 1 is f64[3], expected f32[3], a number per channel");
    EXPECT_ERROR(tu_requantize(TENSOR(TU_I32, 2, 3), OTHER(TU_F32, 3), BIAS(TU_F32, 3)),
                 "operand 2 is f32[3], expected i32[3]");
    EXPECT_ERROR(tu_add_int8(BYTES(2, 3), OTHER(TU_I8, 2, 3), .factor = {1, 1}), "add_int8",
                 "operand 1 has type i8, expected u8");
    EXPECT_ERROR(tu_mean_int8(TENSOR(TU_I32, 2, 3, 3, 4), 1, 0, 0), "mean_int8",
                 "operand 0 has type i32, expected u8");
}

static void operands_of_the_wrong_shape_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_convolve_int8(BYTES(7, 6, 4), WEIGHTS(3, 3, 3, 4), 0),
                 "operand 0 has rank 3, expected 4: [n,h,w,c]");
    EXPECT_ERROR(tu_convolve_int8(BYTES(2, 7, 6, 4), WEIGHTS(3, 3, 4), 0),
                 "operand 1 has rank 3, expected 4: [o,h,w,c]");
    EXPECT_ERROR(tu_convolve_int8(BYTES(2, 7, 6, 4), WEIGHTS(3, 3, 3, 5), 0), "5 input channels, expected 4");
    EXPECT_ERROR(tu_matmul_int8(BYTES(4), WEIGHTS(4, 3), 0), "operand 0 has rank 1, expected 2: [m,k]");
    EXPECT_ERROR(tu_matmul_int8(BYTES(2, 4), WEIGHTS(5, 3), 0),
                 "operand 0 has 4 columns, but operand 1 has 5 rows");
    EXPECT_ERROR(tu_requantize(TENSOR(TU_I32, 2, 3), OTHER(TU_F32, 2), BIAS(TU_I32, 3)), "expected f32[3]");
    EXPECT_ERROR(tu_requantize(TENSOR(TU_I32, 2, 3), OTHER(TU_F32, 3), BIAS(TU_I32, 3),
                               .residual = tu_input(g, "residual", TU_U8, TU_SHAPE(2, 4)),
                               .residual_factor = 1),
                 "requantize_add", "operand 3 has the shape [2,4], expected [2,3]");
    EXPECT_ERROR(tu_requantize(tu_input(g, "x", TU_I32, TU_SCALAR), OTHER(TU_F32, 1), BIAS(TU_I32, 1)),
                 "the sums are a scalar, expected [...,channels]");
    EXPECT_ERROR(tu_add_int8(BYTES(2, 3), OTHER(TU_U8, 3), .factor = {1, 1}),
                 "operand 1 has the shape [3], expected [2,3]");
    EXPECT_ERROR(tu_mean_int8(BYTES(2, 3, 4), 1, 0, 0), "operand 0 has rank 3, expected 4: [n,h,w,c]");
}

/* Sums of more terms would not fit in i32. */
static void too_long_sums_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_convolve_int8(BYTES(1, 9, 9, 7282), WEIGHTS(1, 3, 3, 7282), 0),
                 "a sum has 65538 terms, expected at most 65536, so that it fits in i32");
    EXPECT_ERROR(tu_matmul_int8(BYTES(1, 65537), WEIGHTS(65537, 2), 0), "a sum has 65537 terms");
    EXPECT_ERROR(tu_mean_int8(BYTES(1, 4096, 4096, 1), 1, 0, 0),
                 "a sum has 16777216 terms, expected at most 8388608");
}

static void numbers_out_of_range_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_quantize(TENSOR(TU_F32, 3), 1, 256), "zero is 256, expected 0 to 255");
    EXPECT_ERROR(tu_quantize(TENSOR(TU_F32, 3), 0, 0),
                 "factor is inf, expected an f32 number between 2^-100 and 2^100");
    EXPECT_ERROR(tu_quantize(TENSOR(TU_F32, 3), NAN, 0), "factor is");
    EXPECT_ERROR(tu_dequantize(BYTES(3), 0, 0), "factor is 0, expected");
    EXPECT_ERROR(tu_dequantize(BYTES(3), 1e-35, 0), "factor is 1e-35, expected");
    EXPECT_ERROR(tu_convolve_int8(BYTES(2, 7, 6, 4), WEIGHTS(3, 3, 3, 4), -1),
                 "zero is -1, expected 0 to 255");
    EXPECT_ERROR(tu_matmul_int8(BYTES(2, 4), WEIGHTS(4, 3), 300), "zero is 300");
    EXPECT_ERROR(tu_requantize(TENSOR(TU_I32, 2, 3), OTHER(TU_F32, 3), BIAS(TU_I32, 3), .low = 9, .high = 8),
                 "low is 9 and high 8, expected low <= high");
    EXPECT_ERROR(tu_requantize(TENSOR(TU_I32, 2, 3), OTHER(TU_F32, 3), BIAS(TU_I32, 3), .high = 256),
                 "high is 256, expected 0 to 255");
    EXPECT_ERROR(tu_add_int8(BYTES(2, 3), OTHER(TU_U8, 2, 3), .factor = {1, 0}), "factor is 0");
    EXPECT_ERROR(tu_add_int8(BYTES(2, 3), OTHER(TU_U8, 2, 3), .factor = {1, 1}, .input_zero = {0, 999}),
                 "input_zero is 999");
}

/* There are no gradients: the message says what to do. */
static void differentiating_fails(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), dx;
    tu_value stopped = tu_stop_gradient(tu_dequantize(tu_quantize(x, 0.1, 0), 0.1, 0));
    assert_int_equal(tu_gradients(tu_sum(tu_mul(stopped, x)), 1, &x, &dx), TU_OK);
    tu_value y = tu_sum(tu_dequantize(tu_quantize(x, 0.1, 0), 0.1, 0));
    assert_int_equal(tu_gradients(y, 1, &x, &dx), TU_UNSUPPORTED);
    assert_non_null(strstr(tu_message(),
                           "quantize 'quantize_1' has no gradient: pass its value through tu_stop_gradient"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_of_the_wrong_type_are_rejected),
        cmocka_unit_test(operands_of_the_wrong_shape_are_rejected),
        cmocka_unit_test(too_long_sums_are_rejected),
        cmocka_unit_test(numbers_out_of_range_are_rejected),
        cmocka_unit_test(differentiating_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
