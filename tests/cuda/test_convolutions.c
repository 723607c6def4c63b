/* Convolutions on the CUDA device with larger shapes than the case list has: several tiles, split sums, first layers
 * of networks, bias and relu, NaN and infinity. test_model_convolutions.c has those of models. */
#include "convolution_problem.h"

static const tu_dtype dtypes[] = {TU_F32, TU_F64, TU_BF16, TU_F16};
enum { DTYPES = 4 };

/* Cases that libraries computed wrong (src/device/cuda/ops/cudnn_known_bugs.def), in every type, each with similar
 * ones: padding at the other ends or even, shorter strides, fewer channels. */
static const geometry known_bugs[] = {
    {3, 30, 34, 4, 70, {4, 4}, {.padding = TU_EXPLICIT, .pad = {0, 2, 1, 1}, .stride = {3, 3}}},
    {3, 30, 34, 4, 70, {4, 4}, {.padding = TU_EXPLICIT, .pad = {1, 1, 0, 2}, .stride = {3, 3}}},
    {3, 30, 34, 4, 70, {4, 4}, {.padding = TU_EXPLICIT, .pad = {0, 1, 2, 1}, .stride = {3, 3}}},
    {3, 30, 34, 4, 70, {4, 4}, {.padding = TU_EXPLICIT, .pad = {1, 1, 1, 1}, .stride = {3, 3}}},
    {3, 30, 34, 4, 70, {4, 4}, {.padding = TU_EXPLICIT, .pad = {0, 2, 1, 1}, .stride = {2, 2}}},
    {3, 30, 34, 4, 70, {4, 4}, {.padding = TU_EXPLICIT, .pad = {0, 2, 1, 1}}},
    {3, 30, 34, 4, 12, {4, 4}, {.padding = TU_EXPLICIT, .pad = {0, 2, 1, 1}, .stride = {3, 3}}},
    {30, 34, 3, 4, 70, {4, 4}, {.padding = TU_EXPLICIT, .pad = {0, 2, 1, 1}, .stride = {3, 3}}},
    {2, 9, 8, 4, 6, {3, 3}, {.padding = TU_EXPLICIT, .pad = {2, 1, 0, 1}, .dilation = {2, 1}, .groups = 2}},
};

/* Filter gradients in f64 never use cuDNN. */
static void known_library_bugs_are_avoided(void **state) {
    static const computed results[] = {Y, DX, DW};
    (void)state;
    for (size_t g = 0; g < sizeof known_bugs / sizeof *known_bugs; g++)
        for (int t = 0; t < DTYPES; t++)
            for (int r = 0; r < 3; r++)
                check_convolution(
                    &(problem){
                        .g = known_bugs[g], .target = results[r], .dtype = dtypes[t], .special_index = -1},
                    dtypes[t] == TU_F64 && results[r] == DW ? "direct" : NULL);
    fail_on_errors();
}

/* `kernel` is the expected kernel of cases that the f32 kernel does not handle; NULL: any. */
static void check_wide(const char *kernel) {
    for (int g = 0; g < WIDE; g++)
        for (int t = 0; t < DTYPES; t++)
            for (computed a = Y; a <= DW; a++) {
                bool f32_kernel = kernel && dtypes[t] == TU_F32 && a == DW && !wide[g].options.groups;
                check_convolution(
                    &(problem){.g = wide[g], .target = a, .dtype = dtypes[t], .special_index = -1},
                    f32_kernel ? "f32" : kernel);
            }
}

static void results_and_gradients_match_the_reference(void **state) {
    (void)state;
    check_wide(NULL);
    fail_on_errors();
}

static void results_and_gradients_match_without_cudnn_engines(void **state) {
    (void)state;
    if (!uses_fake_libraries()) skip();
    setenv("FAKE_CUDA_DNN_DECLINES", "1", 1);
    check_wide("direct");
    unsetenv("FAKE_CUDA_DNN_DECLINES");
    fail_on_errors();
}

/* Windows whose rows need one product or several, windows in one part, three and five, strides, more bands than
 * blocks with a smaller last one, rows of full words and with a half word left, 128 filters. */
static const geometry first_layers[] = {
    {2, 9, 24, 3, 64, {5, 5}, {0}},
    {1, 21, 19, 3, 64, {7, 7}, {.stride = {2, 2}}},
    {1, 5, 7, 4, 128, {3, 3}, {0}},
    {2, 6, 5, 1, 64, {3, 3}, {.padding = TU_VALID}},
    {1, 6, 9, 2, 64, {2, 3}, {.padding = TU_EXPLICIT, .pad = {1, 0, 2, 3}, .stride = {1, 3}}},
    {19, 4, 6, 3, 64, {3, 3}, {0}},
    {1, 9, 70, 4, 64, {7, 7}, {.stride = {3, 2}}},
    {1, 13, 12, 3, 64, {11, 11}, {.stride = {4, 4}}},
};
enum { FIRST_LAYERS = sizeof first_layers / sizeof *first_layers };

static void first_layers_match_the_reference(void **state) {
    (void)state;
    for (int g = 0; g < FIRST_LAYERS; g++)
        for (computed a = Y; a <= Y_RELU; a++) {
            problem p = {.g = first_layers[g], .target = a, .special_index = -1};
            p.dtype = TU_BF16, check_convolution(&p, "few channels");
            p.dtype = TU_F16, check_convolution(&p, "few channels");
            bool is_large = p.g.filter[0] > 7; /* too large for shared memory in f32 */
            p.dtype = TU_F32, p.precision = "tf32", check_convolution(&p, is_large ? NULL : "few channels");
            p.precision = NULL,
            check_convolution(&p, p.g.in % 4 ? "cudnn" : "f32"); /* tensor cores would round */
        }
    fail_on_errors();
}

/* In f32 for any number of channels; loads single elements if it is not a multiple of 4. */
static void f32_filter_gradients_use_the_f32_kernel(void **state) {
    (void)state;
    for (int g = 0; g < FIRST_LAYERS; g++)
        check_convolution(
            &(problem){.g = first_layers[g], .target = DW, .dtype = TU_F32, .special_index = -1}, "f32");
    for (int g = 0; g < WIDE; g++)
        if (!wide[g].options.groups)
            check_convolution(&(problem){.g = wide[g], .target = DW, .dtype = TU_F32, .special_index = -1},
                              "f32");
    fail_on_errors();
}

static void first_layer_filter_gradients_match_the_reference(void **state) {
    (void)state;
    for (int g = 0; g < FIRST_LAYERS; g++) {
        problem p = {.g = first_layers[g], .target = DW, .special_index = -1};
        p.dtype = TU_BF16, check_convolution(&p, "few channels");
        p.dtype = TU_F16, check_convolution(&p, "few channels");
        p.dtype = TU_F32, p.precision = "tf32", check_convolution(&p, "few channels");
    }
    fail_on_errors();
}

/* Channels divisible by 4, in f32 without tf32: tiles of 64, 48 and 32 rows, split sums, strides, dilations
 * and paddings. The last two are 1 by 1: a plain matrix product whose depth is not a multiple of a stage. */
static const geometry unrounded[] = {
    {2, 9, 10, 20, 72, {3, 3}, {0}},
    {1, 12, 24, 8, 64, {5, 5}, {0}},
    {3, 8, 9, 12, 132, {3, 2}, {.stride = {2, 1}}},
    {1, 23, 17, 8, 4, {4, 2}, {.dilation = {2, 3}}},
    {2, 7, 8, 4, 68, {2, 3}, {.padding = TU_EXPLICIT, .pad = {0, 2, 3, 1}}},
    {1, 5, 8, 36, 8, {1, 1}, {0}},
    {4, 6, 24, 4, 64, {1, 1}, {0}},
};

static void f32_does_not_use_tf32(void **state) {
    (void)state;
    for (size_t g = 0; g < sizeof unrounded / sizeof *unrounded; g++)
        for (computed a = Y; a <= DW; a++) {
            problem p = {.g = unrounded[g], .target = a, .dtype = TU_F32, .special_index = -1};
            bool has_stride = p.g.options.stride[0] > 1;
            check_convolution(&p, a == DX && has_stride ? "cudnn" : "f32");
        }
    fail_on_errors();
}

/* A window padded with zeros must not be affected by NaN or infinity under the padding. */
static void nan_and_infinity_affect_only_their_windows(void **state) {
    (void)state;
    static const tu_dtype short_types[] = {TU_BF16, TU_F16, TU_F32};
    const double special_values[] = {NAN, INFINITY};
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 2; i++)
            for (int g = 0; g < 3; g++) {
                problem p = {.g = g == 2 ? wide[0] : first_layers[0],
                             .target = g == 1 ? DW : Y_BIAS_RELU,
                             .dtype = short_types[t],
                             .precision = "tf32",
                             .special_value = special_values[i]};
                p.special_index = (4 * p.g.width + 4) * p.g.in;
                check_convolution(&p, g == 2 ? "cudnn" : "few channels");
            }
    fail_on_errors();
}

/* Rows of an odd number of pixels, and a number of pixels that does not fill the last product: padding pixels must be
 * zero. */
static void infinity_does_not_reach_padding_pixels(void **state) {
    (void)state;
    const geometry odd = {1, 5, 7, 3, 64, {3, 3}, {0}};
    const int64_t last = odd.height * odd.width * odd.in - 1, indices[] = {0, odd.width * odd.in - 1, last};
    for (int i = 0; i < 3; i++) {
        problem p = {
            .g = odd, .target = DW, .dtype = TU_BF16, .special_index = indices[i], .special_value = INFINITY};
        check_convolution(&p, "few channels");
        p.dtype = TU_F32, p.precision = "tf32", check_convolution(&p, "few channels");
    }
    fail_on_errors();
}

/* Twice: first timed, then read from the tuning cache. */
static void tuned_convolutions_match_the_reference(void **state) {
    (void)state;
    const geometry full = {2, 9, 10, 16, 80, {3, 3}, {0}}; /* channels that use tensor cores in tf32 too */
    for (int t = 0; t < DTYPES; t++)
        for (computed a = Y; a <= DW; a++)
            for (int time = 0; time < 2; time++)
                check_convolution(&(problem){.g = full,
                                             .target = a,
                                             .dtype = dtypes[t],
                                             .precision = dtypes[t] == TU_F32 ? "tf32" : NULL,
                                             .special_index = -1,
                                             .tune = true},
                                  dtypes[t] == TU_F64 && a == DW ? "direct" : "cudnn");
    fail_on_errors();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_library_bugs_are_avoided),
        cmocka_unit_test(results_and_gradients_match_the_reference),
        cmocka_unit_test(results_and_gradients_match_without_cudnn_engines),
        cmocka_unit_test(first_layers_match_the_reference),
        cmocka_unit_test(f32_filter_gradients_use_the_f32_kernel),
        cmocka_unit_test(first_layer_filter_gradients_match_the_reference),
        cmocka_unit_test(f32_does_not_use_tf32),
        cmocka_unit_test(nan_and_infinity_affect_only_their_windows),
        cmocka_unit_test(infinity_does_not_reach_padding_pixels),
        cmocka_unit_test(tuned_convolutions_match_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
