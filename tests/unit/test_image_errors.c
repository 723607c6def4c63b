/* Invalid arguments of image operations fail with a message that contains the operation, the input types and the
 * expected value. */
#include "unit/expect_error.h"

#include <math.h>

#include "graph/graph.h"

/* `g` is declared by EXPECT_ERROR. */
#define IMAGES TENSOR(TU_F32, 2, 7, 6, 3)
#define BYTES TENSOR(TU_U8, 2, 7, 6, 3)
#define FLAT TENSOR(TU_F32, 7, 6)

static tu_value offsets(tu_graph *g, tu_dtype dtype, tu_shape shape) {
    return tu_input(g, "offsets", dtype, shape);
}

static void operands_of_the_wrong_rank_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_resize(FLAT, 2, 2, TU_BILINEAR), "resize", "f32[7,6]", "rank 2, expected 4: [n,h,w,c]");
    EXPECT_ERROR(tu_crop(FLAT, offsets(g, TU_I32, TU_SHAPE(7, 2)), 2, 2), "crop", "f32[7,6]",
                 "rank 2, expected 4");
    EXPECT_ERROR(tu_standardize(FLAT), "standardize of 'x' f32[7,6]", "rank is 2, expected 4: [n,h,w,c]");
    EXPECT_ERROR(tu_random_crop(FLAT, 2, 2), "random_crop of 'x' f32[7,6]", "rank is 2, expected 4");
    EXPECT_ERROR(tu_random_flip(FLAT), "random_flip of 'x' f32[7,6]", "rank is 2, expected 4");
    EXPECT_ERROR(tu_random_brightness(FLAT, 1), "random_brightness of 'x' f32[7,6]", "rank is 2, expected 4");
    EXPECT_ERROR(tu_random_contrast(FLAT, 0, 1), "random_contrast of 'x' f32[7,6]", "rank is 2, expected 4");
}

static void arithmetic_on_integer_images_is_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_resize(BYTES, 2, 2, TU_BILINEAR), "resize", "u8[2,7,6,3]", "expected a float type",
                 "tu_cast");
    EXPECT_ERROR(tu_standardize(BYTES), "standardize of 'x' u8[2,7,6,3]", "type is u8, expected a float type",
                 "tu_cast");
    EXPECT_ERROR(tu_random_brightness(BYTES, 1), "random_brightness of 'x' u8[2,7,6,3]", "expected a float",
                 "tu_cast");
    EXPECT_ERROR(tu_random_contrast(BYTES, 0, 1), "random_contrast of 'x' u8[2,7,6,3]", "expected a float",
                 "tu_cast");
}

static void crop_flip_and_nearest_resize_support_any_type(void **state) {
    (void)state;
    for (int dtype = 0; dtype < TU_DTYPE_COUNT; dtype++) {
        tu_graph *g;
        assert_int_equal(tu_graph_new(&g), TU_OK);
        tu_value x = TENSOR((tu_dtype)dtype, 2, 7, 6, 3);
        assert_int_equal(tu_value_dtype(tu_crop(x, offsets(g, TU_I32, TU_SHAPE(2, 2)), 2, 2)), dtype);
        assert_int_equal(tu_value_dtype(tu_random_crop(x, 2, 2)), dtype);
        assert_int_equal(tu_value_dtype(tu_random_flip(x)), dtype);
        assert_int_equal(tu_value_dtype(tu_resize(x, 3, 9, TU_NEAREST)), dtype);
        assert_int_equal(tu_graph_status(g), TU_OK);
        tu_graph_free(g);
    }
}

static void invalid_sizes_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_resize(IMAGES, 0, 2, TU_BILINEAR), "size is 0 x 2, expected at least 1 x 1");
    EXPECT_ERROR(tu_resize(IMAGES, 2, -4, TU_NEAREST), "size is 2 x -4, expected at least 1 x 1");
    EXPECT_ERROR(tu_resize(IMAGES, (int64_t)1 << 31, 1, TU_NEAREST), "2147483648 x 1",
                 "expected height and width below 2^31");
    EXPECT_ERROR(tu_resize(IMAGES, INT32_MAX, INT32_MAX, TU_NEAREST), "too large");
    EXPECT_ERROR(tu_random_crop(IMAGES, 8, 6), "random_crop of 'x' f32[2,7,6,3]", "size is 8 x 6",
                 "image's 7 x 6");
    EXPECT_ERROR(tu_random_crop(IMAGES, 7, 7), "size is 7 x 7", "image's 7 x 6");
    EXPECT_ERROR(tu_random_crop(IMAGES, 0, 6), "size is 0 x 6, expected 1 x 1");
    EXPECT_ERROR(tu_crop(IMAGES, offsets(g, TU_I32, TU_SHAPE(2, 2)), 8, 2), "size is 8 x 2, expected at most",
                 "7 x 6");
    EXPECT_ERROR(tu_crop(IMAGES, offsets(g, TU_I32, TU_SHAPE(2, 2)), 2, 0),
                 "size is 2 x 0, expected at least 1 x 1");
}

static void offsets_must_be_two_integers_per_image(void **state) {
    (void)state;
    EXPECT_ERROR(tu_crop(IMAGES, offsets(g, TU_F32, TU_SHAPE(2, 2)), 2, 2),
                 "f32[2,2], expected i32 or i64 [2,2]");
    EXPECT_ERROR(tu_crop(IMAGES, offsets(g, TU_I64, TU_SHAPE(3, 2)), 2, 2),
                 "i64[3,2], expected i32 or i64 [2,2]");
    EXPECT_ERROR(tu_crop(IMAGES, offsets(g, TU_I64, TU_SHAPE(2)), 2, 2), "i64[2], expected i32 or i64 [2,2]");
    EXPECT_ERROR(tu_crop(IMAGES, offsets(g, TU_I32, TU_SHAPE(2, 3)), 2, 2),
                 "i32[2,3], expected i32 or i64 [2,2]");
}

static void invalid_options_are_rejected(void **state) {
    (void)state;
    EXPECT_ERROR(tu_resize(IMAGES, 2, 2, (tu_resize_method)5),
                 "method is 5, expected TU_BILINEAR or TU_NEAREST");
    EXPECT_ERROR(tu_random_brightness(IMAGES, -1), "delta is -1, expected a finite number of at least 0");
    EXPECT_ERROR(tu_random_brightness(IMAGES, (double)NAN), "delta is", "expected a finite number");
    EXPECT_ERROR(tu_random_brightness(IMAGES, (double)INFINITY), "delta is inf");
    EXPECT_ERROR(tu_random_contrast(IMAGES, -0.5, 1), "low is -0.5 and high is 1", "0 <= low <= high");
    EXPECT_ERROR(tu_random_contrast(IMAGES, 2, 1), "low is 2 and high is 1", "0 <= low <= high");
    EXPECT_ERROR(tu_random_contrast(IMAGES, (double)NAN, 1), "0 <= low <= high");
    EXPECT_ERROR(tu_random_contrast(IMAGES, 0, (double)INFINITY), "expected finite numbers");
}

/* Inference mode rejects the same arguments, although it does not use them. */
static void inference_mode_checks_arguments_like_training(void **state) {
    (void)state;
#define INFERENCE(call) (tu_set_training(g, false), call)
    EXPECT_ERROR(INFERENCE(tu_random_flip(FLAT)), "random_flip of 'x'");
    EXPECT_ERROR(INFERENCE(tu_random_crop(IMAGES, 8, 8)), "random_crop of 'x'");
    EXPECT_ERROR(INFERENCE(tu_random_brightness(BYTES, 1)), "random_brightness of 'x'");
    EXPECT_ERROR(INFERENCE(tu_random_contrast(IMAGES, 2, 1)), "random_contrast of 'x'");
}

/* Attribute values that builders never set but a graph file may contain. */
static tu_value raw_resize_grad(tu_graph *g, tu_dtype dtype, struct tu__resize_grad_attrs attrs) {
    return tu__apply(RESIZE_GRAD, &attrs, TENSOR(dtype, 2, 7, 6, 3));
}

static tu_value raw_crop_grad(tu_graph *g, tu_dtype dtype, struct tu__crop_grad_attrs attrs) {
    return tu__apply(CROP_GRAD, &attrs, TENSOR(dtype, 2, 7, 6, 3), offsets(g, TU_I32, TU_SHAPE(2, 2)));
}

static void attributes_of_gradient_operations_are_checked(void **state) {
    (void)state;
    EXPECT_ERROR(raw_resize_grad(g, TU_F32, (struct tu__resize_grad_attrs){0}), "resize_grad",
                 "size is 0 x 0");
    EXPECT_ERROR(raw_resize_grad(g, TU_F32, (struct tu__resize_grad_attrs){{2, 2}, -1}), "method is -1");
    EXPECT_ERROR(raw_resize_grad(g, TU_F32, (struct tu__resize_grad_attrs){{INT64_MAX, 2}, 0}), "below 2^31");
    EXPECT_ERROR(raw_resize_grad(g, TU_U8, (struct tu__resize_grad_attrs){{2, 2}, TU_NEAREST}),
                 "expected a float type");
    EXPECT_ERROR(raw_crop_grad(g, TU_F32, (struct tu__crop_grad_attrs){{7, 5}}), "crop_grad",
                 "size is 7 x 5, expected at least");
    EXPECT_ERROR(raw_crop_grad(g, TU_F32, (struct tu__crop_grad_attrs){{INT64_MAX, INT64_MAX}}), "too large");
    EXPECT_ERROR(raw_crop_grad(g, TU_U8, (struct tu__crop_grad_attrs){{8, 8}}), "expected a float type");
}

static void operations_on_invalid_values_keep_the_first_error(void **state) {
    (void)state;
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value invalid = tu_standardize(FLAT), valid = tu_input(g, "good", TU_F32, TU_SHAPE(2, 2, 2, 1));
    assert_false(tu_ok(tu_resize(invalid, 1, 1, TU_NEAREST)));
    assert_false(tu_ok(tu_crop(invalid, invalid, 1, 1)));
    assert_false(tu_ok(tu_crop(valid, invalid, 1, 1)));
    assert_false(tu_ok(tu_standardize(invalid)));
    assert_false(tu_ok(tu_random_crop(invalid, 1, 1)));
    assert_false(tu_ok(tu_random_flip(invalid)));
    assert_false(tu_ok(tu_random_brightness(invalid, 1)));
    assert_false(tu_ok(tu_random_contrast(invalid, 0, 1)));
    assert_false(tu_ok(tu_random_flip((tu_value){0})));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    assert_non_null(strstr(tu_message(), "standardize"));
    tu_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_of_the_wrong_rank_are_rejected),
        cmocka_unit_test(arithmetic_on_integer_images_is_rejected),
        cmocka_unit_test(crop_flip_and_nearest_resize_support_any_type),
        cmocka_unit_test(invalid_sizes_are_rejected),
        cmocka_unit_test(offsets_must_be_two_integers_per_image),
        cmocka_unit_test(invalid_options_are_rejected),
        cmocka_unit_test(inference_mode_checks_arguments_like_training),
        cmocka_unit_test(attributes_of_gradient_operations_are_checked),
        cmocka_unit_test(operations_on_invalid_values_keep_the_first_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
