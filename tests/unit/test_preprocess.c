/* Preprocessing: inference uses the centre crop or a resize and no random numbers; random numbers in training depend on
 * the sample, not on how the batch is split; every option works as documented; the CPU agrees with the reference
 * device. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { N = 6, SIDE = 8, C = 3, IMAGE = SIDE * SIDE * C };

#define PREPROCESS(...)                                                                                      \
    (&(const tu_preprocess_options){.struct_size = sizeof(tu_preprocess_options), __VA_ARGS__})

typedef struct setting {
    bool training;
    tu_dtype dtype;
    int64_t height, width, channels; /* size of the images; 0: SIDE, SIDE, C */
    int64_t first, count;            /* range of samples; 0: all N */
    const char *devices;
    const tu_preprocess_options *options;
} setting;

/* Returns byte i of the stored images. */
static unsigned char stored_byte(int64_t i) {
    return (unsigned char)(i * 2654435761u >> 13);
}

/* Returns the preprocessed images in f32, to be freed by the caller, and their shape. */
static float *run_preprocess(setting s, tu_shape *shape) {
    int64_t height = s.height ? s.height : SIDE, width = s.width ? s.width : SIDE,
            channels = s.channels ? s.channels : C;
    int64_t count = s.count ? s.count : N, size = height * width * channels;
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_set_training(g, s.training);
    tu_value images = tu_batch_input(g, "images", s.dtype, TU_SHAPE(count, height, width, channels));
    tu_value x = tu_preprocess_with(images, s.options);
    if (tu_compile(g, &program, .devices = s.devices ? s.devices : "ref", .threads = 2, .fetch = &x,
                   .fetch_count = 1) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(g, &state, .seed = 3), TU_OK);
    tu_state_set_sample(state, 1000 + s.first);
    float *numbers = malloc((size_t)(count * size) * sizeof *numbers);
    unsigned char *bytes = malloc((size_t)(count * size));
    *shape = tu_value_shape(x);
    assert_int_equal(tu_value_dtype(x), TU_F32);
    float *out = malloc(tu_type_bytes(tu_value_type(x)));
    assert_true(numbers && bytes && out);
    for (int64_t i = 0; i < count * size; i++) {
        bytes[i] = stored_byte(s.first * size + i);
        numbers[i] = (float)bytes[i] / 255;
    }
    tu_feed feed = {images, s.dtype == TU_U8 ? (void *)bytes : (void *)numbers};
    if (tu_run(program, state, 1, &feed, (void *[]){out}) != TU_OK) fail_msg("%s", tu_message());
    free(numbers);
    free(bytes);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    return out;
}

static float pixel(int64_t image, int64_t row, int64_t column, int64_t channel) {
    return (float)stored_byte(image * IMAGE + (row * SIDE + column) * C + channel) / 255;
}

static void assert_close(float got, double expected) {
    if (!(fabs((double)got - expected) <= 2e-6)) fail_msg("%.9g, expected %.9g", (double)got, expected);
}

static void assert_same(setting a, setting b, double tolerance) {
    tu_shape shape, other;
    float *x = run_preprocess(a, &shape), *y = run_preprocess(b, &other);
    assert_true(tu_shape_equal(shape, other));
    for (int64_t i = 0; i < tu_shape_elements(shape); i++)
        if (!(fabs((double)(x[i] - y[i])) <= tolerance))
            fail_msg("element %lld: %.9g and %.9g", (long long)i, (double)x[i], (double)y[i]);
    free(x);
    free(y);
}

/* ---- Inference ---- */

static void inference_crops_the_centre(void **state) {
    (void)state;
    tu_shape shape;
    float *x = run_preprocess(
        (setting){.dtype = TU_U8,
                  .options = PREPROCESS(.height = 4, .width = 6, .flip = true, .pad = 2, .cutout = 3,
                                        .brightness = 0.3, .contrast = {0.2, 1.8})},
        &shape);
    assert_true(tu_shape_equal(shape, TU_SHAPE(N, 4, 6, C)));
    for (int64_t i = 0; i < N; i++)
        for (int64_t row = 0; row < 4; row++)
            for (int64_t column = 0; column < 6; column++)
                for (int64_t c = 0; c < C; c++)
                    assert_close(x[((i * 4 + row) * 6 + column) * C + c], pixel(i, row + 2, column + 1, c));
    free(x);
}

/* Twice the size, bilinear, with half-pixel centres like PyTorch's align_corners=False. */
static void small_images_are_resized(void **state) {
    (void)state;
    tu_shape shape;
    float *x =
        run_preprocess((setting){.dtype = TU_U8, .options = PREPROCESS(.height = 16, .width = 16)}, &shape);
    assert_true(tu_shape_equal(shape, TU_SHAPE(N, 16, 16, C)));
    assert_close(x[0], pixel(0, 0, 0, 0));
    double between = 0.75 * 0.75 * pixel(0, 0, 0, 0) + 0.75 * 0.25 * (pixel(0, 0, 1, 0) + pixel(0, 1, 0, 0)) +
                     0.25 * 0.25 * pixel(0, 1, 1, 0);
    assert_close(x[(16 + 1) * C], between);
    free(x);
}

static void large_images_can_be_resized(void **state) {
    (void)state;
    tu_shape shape;
    float *x = run_preprocess(
        (setting){.dtype = TU_U8, .options = PREPROCESS(.height = 4, .width = 4, .resize = true)}, &shape);
    double mean = (pixel(0, 0, 0, 0) + pixel(0, 0, 1, 0) + pixel(0, 1, 0, 0) + pixel(0, 1, 1, 0)) / 4;
    assert_close(x[0], mean);
    free(x);
}

static void without_options_pixels_are_only_converted(void **state) {
    (void)state;
    tu_shape shape;
    float *x =
        run_preprocess((setting){.dtype = TU_U8, .training = true, .options = PREPROCESS(.pad = 0)}, &shape);
    for (int64_t i = 0; i < N * IMAGE; i++) assert_close(x[i], (double)stored_byte(i) / 255);
    free(x);
}

/* ---- Normalisation and conversion ---- */

static void images_are_normalised_with_the_given_statistics(void **state) {
    (void)state;
    tu_shape shape;
    float *x = run_preprocess(
        (setting){.dtype = TU_U8, .options = PREPROCESS(.mean = {0.4, 0.5, 0.1}, .deviation = {0.25, 0, 2})},
        &shape);
    static const double mean[] = {0.4, 0.5, 0.1}, deviation[] = {0.25, 1, 2};
    for (int64_t i = 0; i < N * IMAGE; i++)
        assert_close(x[i], ((double)stored_byte(i) / 255 - mean[i % C]) / deviation[i % C]);
    free(x);
}

static void each_image_is_standardised_with_its_statistics(void **state) {
    (void)state;
    tu_shape shape;
    float *x = run_preprocess((setting){.dtype = TU_F32, .options = PREPROCESS(.standardize = true)}, &shape);
    for (int64_t i = 0; i < N; i++) {
        double sum = 0, squares = 0;
        for (int64_t k = 0; k < IMAGE; k++) {
            sum += (double)x[i * IMAGE + k];
            squares += pow((double)x[i * IMAGE + k], 2);
        }
        assert_true(fabs(sum / IMAGE) < 1e-6 && fabs(squares / IMAGE - 1) < 1e-5);
    }
    free(x);
}

static void grey_is_converted_to_colour(void **state) {
    (void)state;
    tu_shape shape;
    float *x = run_preprocess(
        (setting){.dtype = TU_U8,
                  .channels = 1,
                  .options = PREPROCESS(.channels = 3, .mean = {0, 0.5, 0}, .deviation = {1, 1, 2})},
        &shape);
    assert_true(tu_shape_equal(shape, TU_SHAPE(N, SIDE, SIDE, 3)));
    for (int64_t i = 0; i < N * SIDE * SIDE; i++) {
        double grey = (double)stored_byte(i) / 255;
        assert_close(x[3 * i], grey);
        assert_close(x[3 * i + 1], grey - 0.5);
        assert_close(x[3 * i + 2], grey / 2);
    }
    free(x);
}

static void u8_and_f32_images_give_the_same_result(void **state) {
    (void)state;
    const tu_preprocess_options *all_options =
        PREPROCESS(.height = 6, .width = 6, .pad = 1, .flip = true, .brightness = 0.2, .contrast = {0.5, 1.5},
                   .cutout = 2, .standardize = true);
    assert_same((setting){.training = true, .dtype = TU_U8, .options = all_options},
                (setting){.training = true, .dtype = TU_F32, .options = all_options}, 1e-5);
}

/* ---- Random operations ---- */

static void random_numbers_do_not_depend_on_the_batch(void **state) {
    (void)state;
    const tu_preprocess_options *all_options =
        PREPROCESS(.height = 6, .width = 5, .pad = 2, .flip = true, .brightness = 0.2, .contrast = {0.5, 1.5},
                   .cutout = 3, .mean = {0.5, 0.5, 0.5});
    tu_shape shape, slice_shape;
    float *batch =
        run_preprocess((setting){.training = true, .dtype = TU_U8, .options = all_options}, &shape);
    int64_t image_elements = 6 * 5 * C;
    static const struct { int64_t first, count; } slices[] = {{0, 1}, {0, 4}, {2, 3}, {4, 2}};
    for (int i = 0; i < 4; i++) {
        float *slice = run_preprocess((setting){.training = true,
                                                .dtype = TU_U8,
                                                .first = slices[i].first,
                                                .count = slices[i].count,
                                                .options = all_options},
                                      &slice_shape);
        assert_memory_equal(slice, batch + slices[i].first * image_elements,
                            (size_t)(slices[i].count * image_elements) * sizeof *slice);
        free(slice);
    }
    free(batch);
}

/* True if the result is one of the windows of the padded image, flipped or not. */
static bool is_window(const float *x, int64_t image, int64_t pad) {
    for (int64_t top = -pad; top <= pad; top++)
        for (int64_t left = -pad; left <= pad; left++)
            for (int flipped = 0; flipped < 2; flipped++) {
                bool same = true;
                for (int64_t k = 0; k < IMAGE && same; k++) {
                    int64_t row = k / C / SIDE + top, column = k / C % SIDE;
                    column = (flipped ? SIDE - 1 - column : column) + left;
                    bool inside = row >= 0 && row < SIDE && column >= 0 && column < SIDE;
                    same = fabsf(x[k] - (inside ? pixel(image, row, column, k % C) : 0)) < 1e-6f;
                }
                if (same) return true;
            }
    return false;
}

static void training_crops_from_the_padded_image_and_flips(void **state) {
    (void)state;
    tu_shape shape;
    float *x = run_preprocess(
        (setting){.training = true, .dtype = TU_U8, .options = PREPROCESS(.pad = 2, .flip = true)}, &shape);
    assert_true(tu_shape_equal(shape, TU_SHAPE(N, SIDE, SIDE, C)));
    for (int64_t i = 0; i < N; i++) assert_true(is_window(x + i * IMAGE, i, 2));
    free(x);
}

static void brightness_shifts_all_pixels_equally(void **state) {
    (void)state;
    tu_shape shape;
    bool differ = false;
    float *x = run_preprocess(
        (setting){.training = true, .dtype = TU_U8, .options = PREPROCESS(.brightness = 0.25)}, &shape);
    for (int64_t i = 0; i < N; i++) {
        float shift = x[i * IMAGE] - pixel(i, 0, 0, 0);
        assert_true(fabsf(shift) <= 0.25f);
        differ = differ || fabsf(shift - (x[0] - pixel(0, 0, 0, 0))) > 0.01f;
        for (int64_t k = 0; k < IMAGE; k++)
            assert_close(x[i * IMAGE + k], (double)stored_byte(i * IMAGE + k) / 255 + (double)shift);
    }
    assert_true(differ);
    free(x);
}

static void contrast_preserves_the_mean_of_each_channel(void **state) {
    (void)state;
    tu_shape shape;
    float *x = run_preprocess(
        (setting){.training = true, .dtype = TU_U8, .options = PREPROCESS(.contrast = {0.2, 1.8})}, &shape);
    for (int64_t i = 0; i < N; i++)
        for (int64_t c = 0; c < C; c++) {
            double before = 0, after = 0;
            for (int64_t k = c; k < IMAGE; k += C) {
                before += (double)stored_byte(i * IMAGE + k) / 255;
                after += (double)x[i * IMAGE + k];
            }
            assert_true(fabs(before - after) < 1e-3);
        }
    free(x);
}

/* A square of side 4 with its centre in the image: between 2 x 2 and 4 x 4 pixels of it are inside; the others are
 * unchanged. */
static void cutout_zeroes_a_square(void **state) {
    (void)state;
    tu_shape shape;
    float *x = run_preprocess(
        (setting){.training = true, .dtype = TU_U8, .options = PREPROCESS(.mean = {5, 5, 5}, .cutout = 4)},
        &shape);
    for (int64_t i = 0; i < N; i++) {
        int64_t zeros = 0, rows = 0, columns = 0;
        bool in_row[SIDE] = {0}, in_column[SIDE] = {0};
        for (int64_t k = 0; k < SIDE * SIDE; k++) {
            bool zero = x[i * IMAGE + k * C] == 0;
            zeros += zero;
            in_row[k / SIDE] |= zero;
            in_column[k % SIDE] |= zero;
            for (int64_t c = 0; c < C; c++)
                assert_close(x[i * IMAGE + k * C + c],
                             zero ? 0 : (double)pixel(i, k / SIDE, k % SIDE, c) - 5);
        }
        for (int k = 0; k < SIDE; k++) rows += in_row[k], columns += in_column[k];
        assert_true(rows >= 2 && rows <= 4 && columns >= 2 && columns <= 4);
        assert_int_equal(zeros, rows * columns);
    }
    free(x);
}

/* ---- Devices ---- */

static void the_cpu_agrees_with_the_reference_device(void **state) {
    (void)state;
    static const tu_preprocess_options option_sets[] = {
        {.struct_size = sizeof(tu_preprocess_options),
         .height = 6,
         .width = 5,
         .pad = 2,
         .flip = true,
         .brightness = 0.2,
         .contrast = {0.5, 1.5},
         .cutout = 3,
         .standardize = true},
        {.struct_size = sizeof(tu_preprocess_options),
         .height = 11,
         .width = 9,
         .flip = true,
         .mean = {0.1, 0.2, 0.3}},
    };
    for (int i = 0; i < 2; i++)
        for (int training = 0; training < 2; training++)
            for (int64_t channels = 1; channels <= 3; channels += 2)
                assert_same((setting){.training = training,
                                      .dtype = TU_U8,
                                      .channels = channels,
                                      .options = &option_sets[i]},
                            (setting){.training = training,
                                      .dtype = TU_U8,
                                      .channels = channels,
                                      .devices = "cpu",
                                      .options = &option_sets[i]},
                            1e-5);
}

/* ---- Errors ---- */

static void assert_fails(tu_dtype dtype, tu_shape shape, const tu_preprocess_options *options,
                         const char *part) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_false(tu_ok(tu_preprocess_with(tu_input(g, "images", dtype, shape), options)));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    if (!strstr(tu_message(), part)) fail_msg("\"%s\" does not say \"%s\"", tu_message(), part);
    tu_graph_free(g);
}

static void invalid_options_fail(void **state) {
    (void)state;
    tu_shape colour = TU_SHAPE(2, 8, 8, 3);
    assert_fails(TU_U8, TU_SHAPE(8, 8), PREPROCESS(.pad = 1),
                 "preprocess of 'images' u8[8,8]: expected images u8 or f32 [n,h,w,c]");
    assert_fails(TU_I32, colour, PREPROCESS(.pad = 1), "expected images u8 or f32");
    assert_fails(TU_U8, colour, PREPROCESS(.pad = -1), "pad -1");
    assert_fails(TU_U8, colour, PREPROCESS(.height = -4), "height -4");
    assert_fails(TU_U8, colour, PREPROCESS(.channels = 1),
                 "channels is 1: expected 3, because only grey images can be converted to colour");
    assert_fails(TU_U8, TU_SHAPE(2, 8, 8, 5), PREPROCESS(.pad = 1), "channels is 5: expected at most 4");
    assert_fails(TU_U8, colour, PREPROCESS(.brightness = -1), "brightness is -1");
    assert_fails(TU_U8, colour, PREPROCESS(.contrast = {2, 1}), "contrast is [2, 1)");
    assert_fails(TU_U8, colour, PREPROCESS(.deviation = {1, -1}),
                 "channel 1 has mean 0 and standard deviation -1");
    assert_fails(TU_U8, colour, PREPROCESS(.mean = {NAN}), "channel 0 has mean ");
    assert_fails(TU_U8, colour, PREPROCESS(.cutout = (int64_t)1 << 40), "expected at most 2^20");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inference_crops_the_centre),
        cmocka_unit_test(small_images_are_resized),
        cmocka_unit_test(large_images_can_be_resized),
        cmocka_unit_test(without_options_pixels_are_only_converted),
        cmocka_unit_test(images_are_normalised_with_the_given_statistics),
        cmocka_unit_test(each_image_is_standardised_with_its_statistics),
        cmocka_unit_test(grey_is_converted_to_colour),
        cmocka_unit_test(u8_and_f32_images_give_the_same_result),
        cmocka_unit_test(random_numbers_do_not_depend_on_the_batch),
        cmocka_unit_test(training_crops_from_the_padded_image_and_flips),
        cmocka_unit_test(brightness_shifts_all_pixels_equally),
        cmocka_unit_test(contrast_preserves_the_mean_of_each_channel),
        cmocka_unit_test(cutout_zeroes_a_square),
        cmocka_unit_test(the_cpu_agrees_with_the_reference_device),
        cmocka_unit_test(invalid_options_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
