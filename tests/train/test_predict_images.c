/* tu_predict_images predicts images in memory like the same images in the data set. */
#include "train/fresh_run.h"

enum { PIXELS = SMALL_SIDE * SMALL_SIDE };

static int64_t most_probable(const float *probabilities, int64_t classes) {
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++)
        if (probabilities[k] > probabilities[best]) best = k;
    return best;
}

static void predictions_agree_with_the_evaluation(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run");
    train_small(set, NULL, .out = run.text, .epochs = 2);
    tu_evaluation evaluation = TU_SIZED(tu_evaluation);
    assert_int_equal(tu_evaluate(run.text, &evaluation, .set = set), TU_OK);
    tu_predictor *predictor;
    assert_int_equal(tu_predictor_new(run.text, &predictor), TU_OK);
    tu_type input = tu_predictor_input(predictor);
    assert_int_equal(input.dtype, TU_F32);
    assert_true(tu_shape_equal(input.shape, TU_SHAPE(SMALL_SIDE, SMALL_SIDE, 1)));

    float images[SMALL_TEST][PIXELS], all[SMALL_TEST][SMALL_CLASSES], one[SMALL_CLASSES];
    int32_t labels[SMALL_TEST];
    int64_t correct = 0;
    for (int i = 0; i < SMALL_TEST; i++)
        assert_int_equal(small_dataset_read(NULL, TU_TEST, i, images[i], &labels[i]), TU_OK);
    assert_int_equal(tu_predict_images(predictor, TU_F32, images, SMALL_TEST, all[0]), TU_OK);
    for (int i = 0; i < SMALL_TEST; i++) {
        float sum = 0;
        for (int k = 0; k < SMALL_CLASSES; k++) sum += all[i][k];
        assert_true(fabsf(sum - 1) < 1e-5f);
        correct += most_probable(all[i], SMALL_CLASSES) == labels[i];
        assert_int_equal(tu_predict_images(predictor, TU_F32, images[i], 1, one), TU_OK);
        assert_memory_equal(one, all[i], sizeof one);
    }
    assert_true(fabs((double)correct / SMALL_TEST - evaluation.accuracy) < 1e-9);
    tu_evaluation_free(&evaluation);
    tu_predictor_free(predictor);
}

/* u8 images are converted to [0, 1] if the run was trained on floats … */
static void u8_images_match_float_images(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run");
    train_small(set, NULL, .out = run.text, .epochs = 1);
    tu_predictor *predictor;
    assert_int_equal(tu_predictor_new(run.text, &predictor), TU_OK);
    uint8_t bytes[PIXELS];
    float floats[PIXELS], of_bytes[SMALL_CLASSES], of_floats[SMALL_CLASSES];
    for (int i = 0; i < PIXELS; i++) {
        bytes[i] = (uint8_t)(i * 37);
        floats[i] = (float)bytes[i] / 255;
    }
    assert_int_equal(tu_predict_images(predictor, TU_U8, bytes, 1, of_bytes), TU_OK);
    assert_int_equal(tu_predict_images(predictor, TU_F32, floats, 1, of_floats), TU_OK);
    assert_memory_equal(of_bytes, of_floats, sizeof of_bytes);
    assert_int_equal(tu_predict_images(predictor, TU_F32, NULL, 0, NULL), TU_OK);
    expect_error(tu_predict_images(predictor, TU_I32, bytes, 1, of_bytes), TU_INVALID,
                 "images have dtype i32: expected u8 or f32");
    expect_error(tu_predict_images(predictor, TU_F32, floats, -1, of_floats), TU_INVALID, "-1 images");
    expect_error(tu_predict_images(predictor, TU_F32, NULL, 1, of_floats), TU_INVALID, "1 images");
    tu_predictor_free(predictor);
}

/* … and floats are rounded to u8 if it was trained on u8. */
static void float_images_match_u8_images(void **state) {
    (void)state;
    struct scratch_path run = in_scratch("run");
    assert_int_equal(tu_train("mlp", "generated", NULL, .out = run.text, .devices = "cpu:0", .threads = 1,
                              .batch = 4, .base = 8, .steps = 2),
                     TU_OK);
    tu_predictor *predictor;
    assert_int_equal(tu_predictor_new(run.text, &predictor), TU_OK);
    tu_type input = tu_predictor_input(predictor);
    assert_int_equal(input.dtype, TU_U8);
    int64_t count = tu_shape_elements(input.shape), classes = tu_predictor_classes(predictor, NULL);
    uint8_t *bytes = malloc((size_t)count);
    float *floats = malloc((size_t)count * sizeof *floats), of_bytes[16], of_floats[16];
    assert_true(bytes && floats && classes <= 16);
    for (int64_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(i * 37);
        floats[i] = fminf((float)bytes[i] / 255 + 0.001f, 1); /* rounds to that byte */
    }
    assert_int_equal(tu_predict_images(predictor, TU_U8, bytes, 1, of_bytes), TU_OK);
    assert_int_equal(tu_predict_images(predictor, TU_F32, floats, 1, of_floats), TU_OK);
    assert_memory_equal(of_bytes, of_floats, (size_t)classes * sizeof *of_bytes);
    floats[5] = 128;
    expect_error(tu_predict_images(predictor, TU_F32, floats, 1, of_floats), TU_INVALID,
                 "image 0: pixel 5 is 128: expected 0 to 1");
    floats[5] = NAN;
    expect_error(tu_predict_images(predictor, TU_F32, floats, 1, of_floats), TU_INVALID, "pixel 5 is");
    free(bytes);
    free(floats);
    tu_predictor_free(predictor);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        fresh(predictions_agree_with_the_evaluation),
        fresh(u8_images_match_float_images),
        fresh(float_images_match_u8_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
