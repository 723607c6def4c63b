/* Convolutions of models on the CUDA device: the kernels for few results and for many, their epilogues, and where NaN and
 * infinity go. */
#include "convolution_problem.h"

/* Of models. One tile and several, with fewer pixels than a tile; a depth of 1 step to 36, which several blocks share;
 * strides, dilations and paddings; 64 channels of y per tile, and 32. */
static const geometry few_results[] = {
    {1, 7, 7, 64, 64, {1, 1}, {0}},
    {1, 6, 7, 256, 64, {3, 3}, {0}},
    {2, 9, 10, 64, 96, {3, 3}, {.stride = {2, 2}}},
    {1, 12, 9, 128, 32, {3, 2}, {.padding = TU_EXPLICIT, .pad = {0, 2, 3, 1}, .dilation = {2, 1}}},
    {3, 5, 5, 192, 160, {1, 1}, {.stride = {2, 1}}},
};
static const computed model_results[] = {Y, Y_BIAS, Y_BIAS_RELU, Y_RELU, Y_ADD, Y_BIAS_ADD_RELU};
enum { MODEL_RESULTS = sizeof model_results / sizeof *model_results };

static void check_models(const geometry *g, size_t count, const char *kernel) {
    static const tu_dtype short_types[] = {TU_BF16, TU_F16};
    for (size_t i = 0; i < count; i++)
        for (int t = 0; t < 2; t++)
            for (int r = 0; r < MODEL_RESULTS; r++)
                check_convolution(&(problem){.g = g[i],
                                             .target = model_results[r],
                                             .dtype = short_types[t],
                                             .special_index = -1,
                                             .frozen = true},
                                  kernel);
}

/* Several blocks share the depth if the GPU has many multiprocessors. */
static void few_results_of_models_match_the_reference(void **state) {
    (void)state;
    setenv("FAKE_CUDA_MULTIPROCESSORS", "132", 1);
    check_models(few_results, sizeof few_results / sizeof *few_results, "small");
    unsetenv("FAKE_CUDA_MULTIPROCESSORS");
    if (uses_fake_libraries()) /* enough tiles for 4 multiprocessors: one block sums the whole depth */
        check_models(few_results, 3, "small");
    fail_on_errors();
}

static void nan_and_infinity_reach_few_results(void **state) {
    (void)state;
    const double special_values[] = {NAN, INFINITY};
    setenv("FAKE_CUDA_MULTIPROCESSORS", "132", 1);
    for (int i = 0; i < 2; i++) {
        problem p = {.g = few_results[1], .target = Y_BIAS_ADD_RELU, .dtype = TU_BF16, .frozen = true};
        p.special_index = (3 * p.g.width + 3) * p.g.in;
        p.special_value = special_values[i];
        check_convolution(&p, "small");
    }
    unsetenv("FAKE_CUDA_MULTIPROCESSORS");
    fail_on_errors();
}

/* cuDNN adds the residual of few results if an engine is good enough. That of many results is added by a pass over cuDNN's
 * result, or that of a plain kernel, and if the memory limits the convolution by our kernel. */
static void residuals_of_models_match_the_reference(void **state) {
    const size_t count = sizeof few_results / sizeof *few_results;
    (void)state;
    setenv("TUTTI_CONV", "cudnn", 1);
    check_models(few_results, count, "cudnn");
    setenv("FAKE_CUDA_MULTIPROCESSORS", "1", 1); /* which a single tile fills */
    check_models(few_results, count, "cudnn");
    problem p = {.g = few_results[1], .target = Y_BIAS_ADD_RELU, .dtype = TU_BF16, .frozen = true};
    p.special_index = -1;
    if (uses_fake_libraries()) check_convolution(&p, ", epilogue)");
    unsetenv("TUTTI_CONV");
    p.g = few_results[0];
    check_convolution(&p, "small");
    unsetenv("FAKE_CUDA_MULTIPROCESSORS");
    if (uses_fake_libraries()) {
        setenv("FAKE_CUDA_DNN_DECLINES", "1", 1);
        check_models(wide, WIDE, "direct");
        unsetenv("FAKE_CUDA_DNN_DECLINES");
    }
    fail_on_errors();
}

/* Engines of cuDNN whose relu turns NaN into 0: models restore it in the same kernel, if they use a fused engine, that is for
 * few results; other graphs do it in a pass. */
static void relu_keeps_nan_if_cudnn_loses_it(void **state) {
    (void)state;
    if (!uses_fake_libraries()) skip();
    setenv("FAKE_CUDA_DNN_LOSES_NAN", "1", 1);
    setenv("FAKE_CUDA_MULTIPROCESSORS", "132", 1);
    for (int frozen = 0; frozen < 2; frozen++) {
        const char *kernel = frozen ? "+relu (cudnn 2)" : "+relu (cudnn 2, epilogue)";
        problem p = {
            .g = wide[0], .target = Y_BIAS_RELU, .dtype = TU_BF16, .frozen = frozen, .special_value = NAN};
        p.special_index = (4 * p.g.width + 4) * p.g.in;
        check_convolution(&p, kernel);
        p.special_index = -1;
        check_convolution(&p, kernel);
        p.target = Y_BIAS_ADD_RELU;
        if (frozen) check_convolution(&p, "conv2d+bias+add+relu (cudnn 2)");
    }
    unsetenv("FAKE_CUDA_MULTIPROCESSORS");
    unsetenv("FAKE_CUDA_DNN_LOSES_NAN");
    fail_on_errors();
}

/* 1x1 convolutions of models with more than one tile, rows that do not fill the last one, and channels that fill no tile of a
 * library. */
static const geometry many_results[] = {
    {2, 16, 17, 64, 128, {1, 1}, {0}},
    {1, 23, 17, 40, 256, {1, 1}, {0}},
    {5, 9, 9, 136, 72, {1, 1}, {0}},
};
enum { MANY_RESULTS = sizeof many_results / sizeof *many_results };

/* Many results for the emulated GPU, which has few multiprocessors, or for a real one. */
static problem problem_with_many(int g, computed target, tu_dtype dtype) {
    problem p = {.g = many_results[g],
                 .target = target,
                 .dtype = dtype,
                 .special_index = -1,
                 .frozen = true,
                 .constant = true};
    if (!uses_fake_libraries()) p.g.images *= 64;
    return p;
}

static bool has_relu(computed target) {
    return target == Y_RELU || target == Y_BIAS_RELU || target == Y_BIAS_ADD_RELU;
}

static void many_results_of_models_match_the_reference(void **state) {
    static const tu_dtype short_types[] = {TU_BF16, TU_F16};
    static const computed targets[] = {Y, Y_BIAS, Y_BIAS_RELU, Y_RELU, Y_ADD, Y_BIAS_ADD_RELU};
    const bool is_fake = uses_fake_libraries();
    (void)state;
    for (int keeps_nan = 0; keeps_nan < 1 + is_fake; keeps_nan++) {
        setenv("FAKE_CUDA_BLAS_KEEPS_NAN", keeps_nan ? "1" : "0", 1);
        for (int g = 0; g < MANY_RESULTS; g++)
            for (int t = 0; t < 2; t++)
                for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
                    problem p = problem_with_many(g, targets[i], short_types[t]);
                    bool restores = is_fake && has_relu(p.target) && !keeps_nan;
                    check_convolution(&p, restores  ? "(cuBLASLt, restores NaN)"
                                          : is_fake ? "(cuBLASLt)"
                                                    : "(cuBLASLt");
                }
    }
    unsetenv("FAKE_CUDA_BLAS_KEEPS_NAN");
    fail_on_errors();
}

/* Of one pixel, in the first tile and in the last; then of one element of the residual. */
static void nan_and_infinity_reach_many_results(void **state) {
    static const tu_dtype short_types[] = {TU_BF16, TU_F16};
    static const computed targets[] = {Y_BIAS, Y_RELU, Y_BIAS_ADD_RELU};
    const double special_values[] = {NAN, INFINITY, -INFINITY};
    (void)state;
    for (int keeps_nan = 0; keeps_nan < 1 + uses_fake_libraries(); keeps_nan++) {
        setenv("FAKE_CUDA_BLAS_KEEPS_NAN", keeps_nan ? "1" : "0", 1);
        for (int i = 0; i < 3; i++)
            for (int t = 0; t < 2; t++)
                for (int r = 0; r < 3; r++) {
                    problem p = problem_with_many(2, targets[r], short_types[t]);
                    const int64_t pixels = p.g.images * p.g.height * p.g.width;
                    p.special_value = special_values[i];
                    p.special_index = 3 * p.g.in + 5, check_convolution(&p, "(cuBLASLt");
                    p.special_index = pixels * p.g.in - 1, check_convolution(&p, "(cuBLASLt");
                    if (targets[r] != Y_BIAS_ADD_RELU) continue;
                    p.special_operand = 3;
                    p.special_index = 70 * p.g.out + 9, check_convolution(&p, "(cuBLASLt");
                    p.special_index = pixels * p.g.out - 1, check_convolution(&p, "(cuBLASLt");
                }
    }
    unsetenv("FAKE_CUDA_BLAS_KEEPS_NAN");
    fail_on_errors();
}

/* NaN is only restored if filter and bias are constants without NaN, and if that costs less than a pass: others keep the kernel
 * that they had, and NaN. Without a relu there is nothing to restore. */
static void nan_that_cannot_be_restored_stays(void **state) {
    (void)state;
    if (!uses_fake_libraries()) skip();
    problem p = problem_with_many(0, Y_BIAS_RELU, TU_BF16);
    p.constant = false, check_convolution(&p, "(small)");
    p.special_index = 7, p.special_value = NAN;
    for (p.special_operand = 1; p.special_operand <= 2; p.special_operand++) {
        p.constant = false, check_convolution(&p, "(small)");
        p.constant = true, check_convolution(&p, "(small)");
    }
    p.target = Y_BIAS;
    for (p.special_operand = 0; p.special_operand <= 2; p.special_operand++) {
        p.constant = false, check_convolution(&p, "conv2d+bias (cuBLASLt)");
        p.constant = true, check_convolution(&p, "conv2d+bias (cuBLASLt)");
    }
    p = problem_with_many(0, Y_BIAS_RELU, TU_BF16);
    p.g.in = 256, check_convolution(&p, "(small)"); /* a row of x is as long as two of y */
    p.target = Y_BIAS, check_convolution(&p, "(cuBLASLt)");
    fail_on_errors();
}

/* Two convolutions, of which the second adds the first one's result. Their x are independent, so NaN in the second result comes
 * from the residual. */
static result compute_chain(int64_t nan_index, const char *device, bool keeps_x_finite) {
    const problem p = {.dtype = TU_BF16,
                       .special_index = nan_index,
                       .special_value = NAN,
                       .special_operand = 3,
                       .constant = true};
    const problem second = {
        .dtype = TU_BF16, .special_index = keeps_x_finite ? -1 : 2, .special_value = NAN, .constant = true};
    const tu_shape x = TU_SHAPE(2, 16, 17, 64), y = TU_SHAPE(2, 16, 17, 128),
                   filter = TU_SHAPE(128, 1, 1, 64);
    const problem *const problems[3] = {&p, &second, &p};
    const int operands[3] = {0, 0, 3};
    test_graph s = {0};
    tu_program *program;
    tu_state *state;
    tu_feed feeds[3];
    void *data[3];
    assert_int_equal(tu_graph_new(&s.graph), TU_OK);
    for (int i = 0; i < 2; i++) add_input(&s, TU_BF16, x);
    tu_value sum = add_input(&s, TU_BF16, y);
    for (int i = 0; i < 2; i++) {
        tu_value product =
            tu_convolve_with(s.inputs[i], add_weights(&s, &p, 1, filter),
                             &(tu_convolve_options){.struct_size = sizeof(tu_convolve_options)});
        sum = tu_relu(tu_add(tu_add(product, add_weights(&s, &p, 2, TU_SHAPE(128))), sum));
    }
    s.graph->is_frozen = true;
    assert_int_equal(tu_compile(s.graph, &program, .devices = device, .fetch = &sum, .fetch_count = 1),
                     TU_OK);
    assert_int_equal(tu_state_new(s.graph, &state), TU_OK);
    for (int i = 0; i < 3; i++) {
        data[i] = new_operand(problems[i], operands[i], tu_value_type(s.inputs[i]));
        feeds[i] = (tu_feed){s.inputs[i], data[i]};
    }
    tu_type type = tu_value_type(sum);
    void *out = malloc(tu_type_bytes(type));
    result r = {.count = tu_shape_elements(type.shape)};
    r.numbers = malloc((size_t)r.count * sizeof *r.numbers);
    for (int run = 0; run < 2; run++) assert_int_equal(tu_run(program, state, 3, feeds, &out), TU_OK);
    tu__load_array(type.dtype, out, r.count, r.numbers);
    find_kernel(program, r.kernel, sizeof r.kernel);
    for (int i = 0; i < 3; i++) free(data[i]);
    free(out);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(s.graph);
    return r;
}

/* The first kernel notes in which tiles its result has NaN; the second restores NaN of the residual only there. */
static void nan_of_a_residual_is_noted(void **state) {
    const int64_t indices[] = {-1, 0, 70 * 128 + 9, 2 * 16 * 17 * 128 - 1};
    (void)state;
    if (!uses_fake_libraries()) skip();
    for (int i = 0; i < 4; i++)
        for (int finite = 0; finite < 2; finite++) {
            result expected = compute_chain(indices[i], "ref", finite),
                   actual = compute_chain(indices[i], "gpu:0", finite);
            difference d = compare(&expected, &actual, TU_BF16);
            if (d.count)
                fail_msg("NaN at %d: %d elements are wrong, the first %d", (int)indices[i], (int)d.count,
                         (int)d.worst);
            assert_non_null(strstr(actual.kernel, "conv2d+bias+add+relu (cuBLASLt, restores NaN)"));
            free(expected.numbers);
            free(actual.numbers);
        }
}

/* Few results, up to 64 channels of y, strides, larger filters and f32 have other kernels. */
static void other_convolutions_of_models_keep_their_kernels(void **state) {
    const geometry one_image = {1, 14, 14, 64, 256, {1, 1}, {0}};
    (void)state;
    if (!uses_fake_libraries()) skip();
    setenv("FAKE_CUDA_MULTIPROCESSORS", "132", 1);
    problem p = problem_with_many(0, Y_BIAS_ADD_RELU, TU_BF16);
    p.g = one_image, check_convolution(&p, "conv2d+bias+add+relu (small)");
    unsetenv("FAKE_CUDA_MULTIPROCESSORS");
    p = problem_with_many(0, Y_BIAS_ADD_RELU, TU_BF16);
    p.g.out = 64, p.g.images = 4, check_convolution(&p, "(small)");
    p = problem_with_many(0, Y_BIAS, TU_BF16);
    p.g.images = 8, p.g.options.stride[0] = p.g.options.stride[1] = 2, check_convolution(&p, "(small)");
    p = problem_with_many(0, Y_BIAS_RELU, TU_BF16);
    p.g.filter[0] = 3, check_convolution(&p, "(small)");
    p = problem_with_many(0, Y_BIAS_RELU, TU_F32), check_convolution(&p, "(f32)");
    p.precision = "tf32", check_convolution(&p, "cudnn");
    p = problem_with_many(0, Y_BIAS_RELU, TU_F16);
    setenv("TUTTI_CONV", "own", 1), check_convolution(&p, "(small)");
    setenv("TUTTI_CONV", "cudnn", 1), check_convolution(&p, "cudnn");
    fail_on_errors();
}

/* cuBLASLt is for models: other graphs use cuDNN as before. */
static void other_graphs_keep_their_kernels(void **state) {
    static const computed targets[] = {Y, Y_BIAS, Y_BIAS_RELU, Y_RELU, DX, DW};
    (void)state;
    for (int constant = 0; constant < 2; constant++)
        for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
            problem p = problem_with_many(0, targets[i], TU_BF16);
            if (constant && (targets[i] == DX || targets[i] == DW)) continue;
            p.frozen = false, p.constant = constant, check_convolution(&p, "cudnn");
        }
    fail_on_errors();
}

/* Twice: first timed, then read from the tuning cache. */
static void tuned_products_of_models_match_the_reference(void **state) {
    (void)state;
    for (int time = 0; time < 2; time++) {
        problem p = problem_with_many(0, Y_BIAS_ADD_RELU, TU_BF16);
        p.tune = true, check_convolution(&p, "(cuBLASLt");
        p.target = Y_BIAS, check_convolution(&p, "(cuBLASLt)");
    }
    fail_on_errors();
}

/* ---- Wide tiles ---- */

/* For the tiles of conv_wide.cu: rows that fill no tile and several; 64 channels of y, 128 and more; a depth of 1 step to 32, which
 * is less than the slots of a block, and not divided evenly; filters with 1 tap to 32. */
static const geometry wide_tiles[] = {
    {1, 7, 5, 64, 64, {1, 1}, {0}},
    {3, 13, 11, 128, 192, {1, 1}, {0}},
    {2, 9, 10, 64, 128, {3, 3}, {.stride = {2, 2}}},
    {1, 15, 14, 64, 64, {3, 3}, {0}},
    {1, 12, 23, 128, 128, {3, 2}, {.padding = TU_EXPLICIT, .pad = {0, 2, 3, 1}, .dilation = {2, 1}}},
    {3, 5, 5, 320, 64, {1, 1}, {.stride = {2, 1}}},
    {2, 9, 8, 192, 128, {3, 3}, {0}},
    {1, 11, 9, 64, 64, {4, 8}, {.padding = TU_EXPLICIT, .pad = {3, 1, 9, 0}, .stride = {1, 2}}},
};
enum { WIDE_TILES = sizeof wide_tiles / sizeof *wide_tiles };

static int64_t steps_of(const geometry *g) {
    return g->filter[0] * g->filter[1] * g->in / 64;
}

static const struct {
    int rows, columns;
} tile_sizes[] = {{64, 64}, {64, 128}, {128, 64}, {128, 128}, {256, 64}, {256, 128}};
enum { TILE_SIZES = sizeof tile_sizes / sizeof *tile_sizes };

/* Checks a third of the results of models with one of the types; the next calls check the others. */
static void check_wide_tile(const geometry *g, int size, int splits) {
    static int turn;
    char setting[32];
    bool is_possible = g->out % tile_sizes[size].columns == 0 && splits <= steps_of(g);
    if (!is_possible) return;
    snprintf(setting, sizeof setting, "wide %dx%d/%d", tile_sizes[size].rows, tile_sizes[size].columns,
             splits);
    setenv("TUTTI_CONV", setting, 1);
    for (int r = turn % 3; r < MODEL_RESULTS; r += 3)
        check_convolution(&(problem){.g = *g,
                                     .target = model_results[r],
                                     .dtype = turn % 2 ? TU_F16 : TU_BF16,
                                     .special_index = -1,
                                     .frozen = true},
                          setting);
    turn++;
}

/* Every size of a tile, and every number of blocks that share its depth, where that is possible. */
static void wide_tiles_match_the_reference(void **state) {
    (void)state;
    for (int g = 0; g < WIDE_TILES; g++)
        for (int size = 0; size < TILE_SIZES; size++)
            for (int splits = 1; splits <= 8; splits *= 2) check_wide_tile(&wide_tiles[g], size, splits);
    fail_on_errors();
}

static int random_below(uint32_t *random, int n) {
    *random = *random * 1664525 + 1013904223;
    return (int)((*random >> 16) % (uint32_t)n);
}

static geometry random_geometry(uint32_t *random) {
    geometry g = {.images = 1 + random_below(random, 3),
                  .height = 1 + random_below(random, 14),
                  .width = 1 + random_below(random, 14),
                  .in = 64 * (1 + random_below(random, 3)),
                  .out = 64 * (1 + random_below(random, 3)),
                  .options.padding = TU_EXPLICIT};
    const bool is_strided =
        random_below(random, 2); /* or dilated: both together have another kernel (cudnn_known_bugs.def) */
    for (int i = 0; i < 2; i++) {
        g.filter[i] = 1 + random_below(random, 4);
        g.options.stride[i] = is_strided ? 1 + random_below(random, 3) : 1;
        g.options.dilation[i] = is_strided ? 1 : 1 + random_below(random, 2);
    }
    for (int i = 0; i < 4; i++) /* a window is no larger than the padded axis */
        g.options.pad[i] =
            random_below(random, 4) + (i % 2 ? 0 : (g.filter[i / 2] - 1) * g.options.dilation[i / 2]);
    return g;
}

/* What TUTTI_WIDE_CASES says, or a few. */
static void random_wide_convolutions_match_the_reference(void **state) {
    const char *cases = getenv("TUTTI_WIDE_CASES");
    uint32_t random = 1;
    (void)state;
    for (int i = 0; i < (cases ? atoi(cases) : 16); i++) {
        const geometry g = random_geometry(&random);
        check_wide_tile(&g, random_below(&random, TILE_SIZES), 1 << random_below(&random, 4));
    }
    fail_on_errors();
}

/* Of one pixel, of the residual and of the bias; with one block per tile and several. */
static void nan_and_infinity_reach_wide_tiles(void **state) {
    static const char *const settings[] = {"wide 128x64/1", "wide 128x128/1", "wide 128x128/4"};
    static const double special_values[] = {NAN, INFINITY, -INFINITY};
    const geometry *g = &wide_tiles[6];
    const struct {
        int operand;
        int64_t index;
    } elements[] = {{0, (3 * g->width + 3) * g->in}, {2, 65}, {3, 70 * g->out + 9}};
    (void)state;
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < 9; i++) {
            problem p = {
                .g = *g, .target = Y_BIAS_ADD_RELU, .dtype = i % 2 ? TU_BF16 : TU_F16, .frozen = true};
            p.special_operand = elements[i / 3].operand, p.special_index = elements[i / 3].index;
            p.special_value = special_values[i % 3];
            setenv("TUTTI_CONV", settings[s], 1);
            check_convolution(&p, settings[s]);
        }
    fail_on_errors();
}

/* One of them goes through its tiles backwards. */
static void wide_convolutions_follow_each_other(void **state) {
    (void)state;
    setenv("TUTTI_CONV", "wide 64x64/1", 1);
    for (int i = 0; i < 2; i++) {
        result expected = compute_chain(i - 1, "ref", true), actual = compute_chain(i - 1, "gpu:0", true);
        difference d = compare(&expected, &actual, TU_BF16);
        if (d.count) fail_msg("%d elements are wrong, the first %d", (int)d.count, (int)d.worst);
        assert_non_null(strstr(actual.kernel, "(wide 64x64/1)"));
        free(expected.numbers);
        free(actual.numbers);
    }
}

/* On request; few results have smaller tiles, and so have other GPUs, which lack the instructions. */
static void wide_tiles_are_chosen_for_many_results(void **state) {
    static const geometry few[] = {{1, 14, 14, 64, 256, {1, 1}, {0}}, {1, 7, 7, 64, 64, {3, 3}, {0}}},
                          many[] = {{2, 14, 14, 128, 128, {3, 3}, {0}}, {2, 14, 14, 64, 128, {3, 3}, {0}}};
    problem p = {.target = Y_BIAS_ADD_RELU, .dtype = TU_BF16, .special_index = -1, .frozen = true};
    (void)state;
    if (!uses_fake_libraries()) skip();
    setenv("FAKE_CUDA_MULTIPROCESSORS", "8", 1);
    p.g = many[1], check_convolution(&p, "(small)");
    setenv("TUTTI_CONV", "wide", 1);
    for (int i = 0; i < 2; i++) p.g = few[i], check_convolution(&p, "(small)");
    for (int i = 0; i < 2; i++) p.g = many[i], check_convolution(&p, "(wide ");
    setenv("FAKE_CUDA_CAPABILITY", "100", 1);
    p.g = few[0], check_convolution(&p, "(small)");
    unsetenv("FAKE_CUDA_CAPABILITY");
    unsetenv("FAKE_CUDA_MULTIPROCESSORS");
    fail_on_errors();
}

/* Before every test. */
static int use_no_preference(void **state) {
    (void)state;
    unsetenv("TUTTI_CONV");
    return 0;
}

#define TEST(function) cmocka_unit_test_setup(function, use_no_preference)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(few_results_of_models_match_the_reference),
        TEST(nan_and_infinity_reach_few_results),
        TEST(wide_tiles_match_the_reference),
        TEST(random_wide_convolutions_match_the_reference),
        TEST(nan_and_infinity_reach_wide_tiles),
        TEST(wide_convolutions_follow_each_other),
        TEST(wide_tiles_are_chosen_for_many_results),
        TEST(residuals_of_models_match_the_reference),
        TEST(relu_keeps_nan_if_cudnn_loses_it),
        TEST(many_results_of_models_match_the_reference),
        TEST(nan_and_infinity_reach_many_results),
        TEST(nan_that_cannot_be_restored_stays),
        TEST(nan_of_a_residual_is_noted),
        TEST(other_convolutions_of_models_keep_their_kernels),
        TEST(other_graphs_keep_their_kernels),
        TEST(tuned_products_of_models_match_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
