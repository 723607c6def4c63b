/* Convolution, pooling and image operations (ops/window.c, conv.c, pool.c, image.c) compute the right values:
 * small examples that can be checked by hand. Larger ones are compared with PyTorch in
 * test_known_values.c. */
#include "unit/evaluate.h"

#include <string.h>

#include "graph/graph.h"

static tu_value image(tu_graph *g, int64_t height, int64_t width) {
    return counting_constant(g, TU_F32, TU_SHAPE(1, height, width, 1));
}

/* ---- Windows ---- */

/* Three windows of size 3 with stride 2 over 6 pixels need one pixel of padding, which is at the end. */
static void odd_same_padding_is_added_at_the_end_as_in_tensorflow(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = image(g, 1, 6), ones = tu_fill(g, TU_F32, TU_SHAPE(1, 1, 3, 1), 1);
    assert_computes(tu_convolve(x, ones, .stride = {1, 2}), TU_SHAPE(1, 1, 3, 1), 0 + 1 + 2, 2 + 3 + 4,
                    4 + 5);
    assert_computes(tu_convolve(x, ones), TU_SHAPE(1, 1, 6, 1), 1, 3, 6, 9, 12, 9);
    tu_value even = tu_fill(g, TU_F32, TU_SHAPE(1, 1, 2, 1), 1);
    assert_computes(tu_convolve(x, even), TU_SHAPE(1, 1, 6, 1), 1, 3, 5, 7, 9, 5);
    assert_computes(tu_convolve(x, even, .stride = {1, 4}), TU_SHAPE(1, 1, 2, 1), 1, 9);
    assert_computes(tu_convolve(x, ones, .dilation = {1, 2}), TU_SHAPE(1, 1, 6, 1), 2, 4, 6, 9, 6, 8);
}

static void same_output_is_the_input_over_the_stride_rounded_up(void **state) {
    (void)state;
    for (int64_t size = 1; size <= 12; size++)
        for (int64_t stride = 1; stride <= 5; stride++)
            for (int64_t window = 1; window <= 6; window++) {
                tu_graph *g = new_graph();
                tu_value x = image(g, size, 1), f = tu_fill(g, TU_F32, TU_SHAPE(1, window, 1, 1), 1);
                tu_value y = tu_convolve(x, f, .stride = {stride, 1});
                tu_value pooled = tu_max_pool(x, .window = {window, 1}, .stride = {stride, 1});
                assert_int_equal(tu_value_shape(y).dim[1], (size + stride - 1) / stride);
                assert_int_equal(tu_value_shape(pooled).dim[1], (size + stride - 1) / stride);
            }
}

/* ---- Convolution ---- */

static void groups_separate_channels(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = constant_of(g, TU_F32, TU_SHAPE(1, 1, 1, 4), (double[]){1, 2, 3, 4});
    tu_value f = constant_of(g, TU_F32, TU_SHAPE(2, 1, 1, 2), (double[]){1, 10, 100, 1000});
    assert_computes(tu_convolve(x, f, .groups = 2), TU_SHAPE(1, 1, 1, 2), 21, 4300);
    tu_value depthwise = constant_of(g, TU_F32, TU_SHAPE(4, 1, 1, 1), (double[]){1, 2, 3, 4});
    assert_computes(tu_convolve(x, depthwise, .groups = 4), TU_SHAPE(1, 1, 1, 4), 1, 4, 9, 16);
}

static void transposed_convolution_distributes_pixels(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value y = constant_of(g, TU_F32, TU_SHAPE(1, 1, 2, 1), (double[]){1, 2});
    tu_value f = constant_of(g, TU_F32, TU_SHAPE(1, 1, 3, 1), (double[]){1, 10, 100});
    assert_computes(tu_convolve_transpose(y, f, .stride = {1, 2}, .padding = TU_VALID), TU_SHAPE(1, 1, 5, 1),
                    1, 10, 102, 20, 200);
    assert_computes(tu_convolve_transpose(y, f, .stride = {1, 2}, .padding = TU_VALID, .size = {0, 6}),
                    TU_SHAPE(1, 1, 6, 1), 1, 10, 102, 20, 200, 0);
    assert_computes(tu_convolve_transpose(y, f, .stride = {1, 2}), TU_SHAPE(1, 1, 4, 1), 1, 10, 102, 20);
}

static void flops_saturate_and_count_multiplications_and_additions(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value y =
        tu_convolve(image(g, 5, 5), tu_fill(g, TU_F32, TU_SHAPE(2, 3, 3, 1), 1), .padding = TU_VALID);
    const tu__node *node = tu__node_of(y);
    tu_type in[2] = {{TU_F32, TU_SHAPE(1, 5, 5, 1)}, {TU_F32, TU_SHAPE(2, 3, 3, 1)}};
    assert_int_equal(node->op->flops(node, in), 2 * 3 * 3 * 2 * 9);
    in[1].shape = TU_SHAPE(1, (int64_t)1 << 31, (int64_t)1 << 31, 1);
    assert_int_equal(node->op->flops(node, in), INT64_MAX);
}

/* ---- Pooling ---- */

static void max_pool_gradient_goes_to_the_first_of_equal_elements(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = constant_of(g, TU_F32, TU_SHAPE(1, 2, 3, 1), (double[]){1, 7, 7, 7, 0, 7}), dx;
    tu_value y = tu_max_pool(x, .window = {2, 3}, .padding = TU_VALID);
    assert_computes(y, TU_SHAPE(1, 1, 1, 1), 7);
    tu_gradients(tu_sum(y), 1, &x, &dx);
    assert_computes(dx, TU_SHAPE(1, 2, 3, 1), 0, 1, 0, 0, 0, 0);
}

static void gradients_of_overlapping_windows_are_added(void **state) {
    (void)state;
    tu_value x = constant_of(new_graph(), TU_F32, TU_SHAPE(1, 1, 4, 1), (double[]){1, 9, 2, 3}), dx;
    tu_value y = tu_max_pool(x, .window = {1, 2}, .stride = {1, 1}, .padding = TU_VALID);
    assert_computes(y, TU_SHAPE(1, 1, 3, 1), 9, 9, 3);
    tu_gradients(tu_sum(y), 1, &x, &dx);
    assert_computes(dx, TU_SHAPE(1, 1, 4, 1), 0, 2, 0, 1);
}

static void padding_is_never_the_maximum(void **state) {
    (void)state;
    tu_value x = constant_of(new_graph(), TU_F32, TU_SHAPE(1, 1, 3, 1), (double[]){-5, -6, -7});
    assert_computes(tu_max_pool(x, .window = {3, 3}, .stride = {1, 1}), TU_SHAPE(1, 1, 3, 1), -5, -5, -6);
}

static void nan_is_the_maximum(void **state) {
    (void)state;
    tu_value x = constant_of(new_graph(), TU_F32, TU_SHAPE(1, 1, 4, 1), (double[]){1, NAN, 9, 2});
    double *y = computed(tu_max_pool(x, .window = {1, 4}, .padding = TU_VALID));
    assert_true(isnan(y[0]));
    free(y);
}

static void averages_include_padding_only_with_count_padding(void **state) {
    (void)state;
    tu_value x = constant_of(new_graph(), TU_F32, TU_SHAPE(1, 1, 3, 1), (double[]){6, 12, 18});
    assert_computes(tu_avg_pool(x, .window = {1, 3}, .stride = {1, 1}), TU_SHAPE(1, 1, 3, 1), 9, 12, 15);
    assert_computes(tu_avg_pool(x, .window = {1, 3}, .stride = {1, 1}, .count_padding = true),
                    TU_SHAPE(1, 1, 3, 1), 6, 12, 10);
}

static void global_pools_keep_batch_and_channels(void **state) {
    (void)state;
    tu_value x = counting_constant(new_graph(), TU_F32, TU_SHAPE(2, 1, 2, 2));
    assert_computes(tu_global_avg_pool(x), TU_SHAPE(2, 2), 1, 2, 5, 6);
    assert_computes(tu_global_max_pool(x), TU_SHAPE(2, 2), 2, 3, 6, 7);
}

/* ---- Resizing and cropping ---- */

static void nearest_copies_pixels(void **state) {
    (void)state;
    tu_value x = constant_of(new_graph(), TU_F32, TU_SHAPE(1, 1, 2, 1), (double[]){INFINITY, 5});
    double *y = computed(tu_resize(x, 1, 4, TU_NEAREST));
    assert_true(isinf(y[0]) && isinf(y[1]) && y[2] == 5 && y[3] == 5);
    free(y);
    tu_value bytes = counting_constant(new_graph(), TU_U8, TU_SHAPE(1, 3, 3, 1));
    assert_computes(tu_resize(bytes, 2, 2, TU_NEAREST), TU_SHAPE(1, 2, 2, 1), 0, 1, 3, 4);
}

static void bilinear_uses_half_pixel_centres(void **state) {
    (void)state;
    tu_value x = constant_of(new_graph(), TU_F32, TU_SHAPE(1, 1, 2, 1), (double[]){0, 4});
    assert_computes(tu_resize(x, 1, 4, TU_BILINEAR), TU_SHAPE(1, 1, 4, 1), 0, 1, 3, 4);
    assert_computes(tu_resize(x, 3, 1, TU_BILINEAR), TU_SHAPE(1, 3, 1, 1), 2, 2, 2);
    assert_computes(tu_resize(x, 1, 2, TU_BILINEAR), TU_SHAPE(1, 1, 2, 1), 0, 4);
}

static void crop_offsets_are_clamped(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = counting_constant(g, TU_U8, TU_SHAPE(3, 3, 3, 1));
    tu_value corners = constant_of(g, TU_I64, TU_SHAPE(3, 2), (double[]){1, 0, -4, 9, 0x1p40, -0x1p40});
    assert_computes(tu_crop(x, corners, 2, 2), TU_SHAPE(3, 2, 2, 1), 3, 4, 6, 7, 10, 11, 13, 14, 21, 22, 24,
                    25);
}

static void standardised_images_have_mean_0_and_standard_deviation_1(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = counting_constant(g, TU_F64, TU_SHAPE(2, 2, 3, 2)), y = tu_standardize(x);
    assert_computes_within(1e-14, tu_mean(y, .axes = TU_AXES(1, 2, 3)), TU_SHAPE(2), 0, 0);
    assert_computes_within(1e-14, tu_variance(y, .axes = TU_AXES(1, 2, 3)), TU_SHAPE(2), 1, 1);
    tu_value flat = tu_fill(g, TU_F64, TU_SHAPE(1, 2, 2, 1), 3), gradient;
    assert_computes(tu_standardize(flat), TU_SHAPE(1, 2, 2, 1), 0, 0, 0, 0);
    tu_gradients(tu_sum(tu_standardize(flat)), 1, &flat, &gradient);
    assert_computes(gradient, TU_SHAPE(1, 2, 2, 1), 0, 0, 0, 0); /* not NaN */
}

/* ---- Augmentation ---- */

static void inference_mode_does_not_augment(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_set_training(g, false);
    tu_value x = counting_constant(g, TU_F32, TU_SHAPE(1, 4, 5, 1));
    assert_int_equal(tu_random_flip(x).node, x.node);
    assert_int_equal(tu_random_brightness(x, 1).node, x.node);
    assert_int_equal(tu_random_contrast(x, 0, 1).node, x.node);
    assert_computes(tu_random_crop(x, 2, 3), TU_SHAPE(1, 2, 3, 1), 6, 7, 8, 11, 12, 13);
}

enum { SAMPLES = 400 };

/* All corners are about equally frequent, and each crop is a window of its image. */
static void random_crops_are_uniform_over_the_corners(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value one = counting_constant(g, TU_F32, TU_SHAPE(1, 3, 4, 1)); /* a pixel's value is its index */
    tu_value x = tu_broadcast(one, TU_SHAPE(SAMPLES, 3, 4, 1));
    double *y = computed(tu_random_crop(x, 2, 3));
    int seen[4] = {0};
    for (int n = 0; n < SAMPLES; n++) {
        const double *w = y + (ptrdiff_t)n * 6;
        int top = (int)w[0] / 4, left = (int)w[0] % 4;
        assert_true(top < 2 && left < 2);
        for (int i = 0; i < 6; i++) {
            int pixel = (top + i / 3) * 4 + left + i % 3;
            assert_true(w[i] == pixel);
        }
        seen[top * 2 + left]++;
    }
    for (int i = 0; i < 4; i++) assert_in_range(seen[i], SAMPLES / 4 - 40, SAMPLES / 4 + 40);
    free(y);
}

static void random_flips_mirror_half_of_the_images(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value one = counting_constant(g, TU_U8, TU_SHAPE(1, 1, 3, 1));
    double *y = computed(tu_random_flip(tu_broadcast(one, TU_SHAPE(SAMPLES, 1, 3, 1))));
    int flipped = 0;
    for (int n = 0; n < SAMPLES; n++) {
        assert_true(y[3 * n + 1] == 1 && y[3 * n] + y[3 * n + 2] == 2);
        flipped += y[3 * n] == 2;
    }
    assert_in_range(flipped, SAMPLES / 2 - 50, SAMPLES / 2 + 50);
    free(y);
}

static void brightness_and_contrast_stay_within_their_bounds(void **state) {
    (void)state;
    tu_graph *g = new_graph();
    tu_value x = tu_broadcast(counting_constant(g, TU_F64, TU_SHAPE(1, 1, 2, 2)), TU_SHAPE(SAMPLES, 1, 2, 2));
    double *bright = computed(tu_random_brightness(x, 0.5)),
           *contrast = computed(tu_random_contrast(x, 0.25, 2));
    double min_factor = 9, max_factor = -9;
    for (int n = 0; n < SAMPLES; n++) {
        const double *b = bright + (ptrdiff_t)n * 4, *c = contrast + (ptrdiff_t)n * 4;
        assert_true(b[0] >= -0.5 && b[0] < 0.5);
        for (int i = 0; i < 4; i++) assert_true(fabs(b[i] - b[0] - i) < 1e-12); /* one number per sample */
        double factor = 1 - c[0]; /* the channels' means are 1 and 2, their pixels 1 away from them */
        for (int i = 0; i < 4; i++)
            assert_true(fabs(c[i] - (1 + i % 2 + (i < 2 ? -factor : factor))) < 1e-12);
        assert_true(factor >= 0.25 && factor < 2);
        min_factor = fmin(min_factor, factor);
        max_factor = fmax(max_factor, factor);
    }
    assert_true(min_factor < 0.4 && max_factor > 1.8);
    free(bright);
    free(contrast);
}

/* The same samples, split over two batches. */
static void augmentation_depends_only_on_the_sample(void **state) {
    (void)state;
    double *full_batch = NULL, *halves[2];
    for (int part = -1; part < 2; part++) {
        tu_graph *g = new_graph();
        int64_t n = part < 0 ? 8 : 4;
        tu_value x = tu_broadcast(counting_constant(g, TU_F32, TU_SHAPE(1, 5, 5, 1)), TU_SHAPE(n, 5, 5, 1));
        tu_value y = tu_random_flip(tu_random_crop(x, 3, 3));
        tu_program *program;
        tu_state *s;
        float out[8 * 9];
        assert_int_equal(tu_compile(g, &program, .devices = "ref", .fetch = &y, .fetch_count = 1), TU_OK);
        assert_int_equal(tu_state_new(g, &s, .seed = 3), TU_OK);
        tu_state_set_sample(s, part > 0 ? 4 : 0);
        assert_int_equal(tu_run(program, s, 0, NULL, (void *[]){out}), TU_OK);
        double *list = malloc((size_t)n * 9 * sizeof *list);
        assert_non_null(list);
        for (int64_t i = 0; i < n * 9; i++) list[i] = out[i];
        if (part < 0)
            full_batch = list;
        else
            halves[part] = list;
        tu_program_free(program);
        tu_state_free(s);
    }
    assert_memory_equal(full_batch, halves[0], 4 * 9 * sizeof(double));
    assert_memory_equal(full_batch + 4 * 9, halves[1], 4 * 9 * sizeof(double));
    free(full_batch);
    free(halves[0]);
    free(halves[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_same_padding_is_added_at_the_end_as_in_tensorflow),
        cmocka_unit_test(same_output_is_the_input_over_the_stride_rounded_up),
        cmocka_unit_test(groups_separate_channels),
        cmocka_unit_test(transposed_convolution_distributes_pixels),
        cmocka_unit_test(flops_saturate_and_count_multiplications_and_additions),
        cmocka_unit_test(max_pool_gradient_goes_to_the_first_of_equal_elements),
        cmocka_unit_test(gradients_of_overlapping_windows_are_added),
        cmocka_unit_test(padding_is_never_the_maximum),
        cmocka_unit_test(nan_is_the_maximum),
        cmocka_unit_test(averages_include_padding_only_with_count_padding),
        cmocka_unit_test(global_pools_keep_batch_and_channels),
        cmocka_unit_test(nearest_copies_pixels),
        cmocka_unit_test(bilinear_uses_half_pixel_centres),
        cmocka_unit_test(crop_offsets_are_clamped),
        cmocka_unit_test(standardised_images_have_mean_0_and_standard_deviation_1),
        cmocka_unit_test(inference_mode_does_not_augment),
        cmocka_unit_test(random_crops_are_uniform_over_the_corners),
        cmocka_unit_test(random_flips_mirror_half_of_the_images),
        cmocka_unit_test(brightness_and_contrast_stay_within_their_bounds),
        cmocka_unit_test(augmentation_depends_only_on_the_sample),
    };
    return cmocka_run_group_tests(tests, NULL, free_last_graph);
}
