/* Convolutions on the CUDA device with larger shapes than the case list has: several tiles, split sums, first layers
 * of networks, bias and relu, NaN and infinity. On the fake cuDNN, with and without engines; on a real GPU (no
 * TUTTI_CUDA_LIBRARIES) with the real cuDNN.
 *
 * Operands are small multiples of 1/8, so that sums of products are exact in f32, in any order and also in tf32:
 * every difference from the reference is an error.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/number.h"
#include "test.h"

typedef struct geometry {
    int64_t images, height, width, in, out, filter[2];
    tu_convolve_options options;
} geometry;

typedef enum computed { Y, Y_BIAS, Y_BIAS_RELU, Y_RELU, DX, DW } computed;

typedef struct problem {
    geometry g;
    computed target;
    tu_dtype dtype;
    const char *precision;
    int64_t special_index; /* index of an element of x that is replaced by `special_value`; -1: none */
    double special_value;
    bool tune;
} problem;

typedef struct result {
    int64_t count;
    double *numbers;
    char kernel[128]; /* of the convolution */
} result;

enum { MAX_INPUTS = 4 };

typedef struct test_graph {
    tu_graph *graph;
    tu_value inputs[MAX_INPUTS], expected;
    int input_count;
} test_graph;

static tu_value add_input(test_graph *s, tu_dtype dtype, tu_shape shape) {
    static const char *const names[MAX_INPUTS] = {"x", "filter", "bias", "dy"};
    tu_value v = tu_input(s->graph, names[s->input_count], dtype, shape);
    return s->inputs[s->input_count++] = v;
}

static void build_graph(test_graph *s, const problem *p) {
    const geometry *g = &p->g;
    int64_t groups = g->options.groups ? g->options.groups : 1;
    assert_int_equal(tu_graph_new(&s->graph), TU_OK);
    tu_value x = add_input(s, p->dtype, TU_SHAPE(g->images, g->height, g->width, g->in));
    tu_value w = add_input(s, p->dtype, TU_SHAPE(g->out, g->filter[0], g->filter[1], g->in / groups));
    tu_value b = add_input(s, p->dtype, TU_SHAPE(g->out));
    tu_convolve_options options = g->options;
    options.struct_size = sizeof options;
    tu_value y = tu_convolve_with(x, w, &options);
    if (p->target == Y_BIAS || p->target == Y_BIAS_RELU) y = tu_add(y, b);
    if (p->target == Y_RELU || p->target == Y_BIAS_RELU) y = tu_relu(y);
    s->expected = y;
    if (p->target == DX || p->target == DW) {
        tu_value dy = add_input(s, p->dtype, tu_value_shape(y));
        tu_gradients(tu_sum(tu_mul(y, dy)), 1, p->target == DX ? &x : &w, &s->expected);
    }
}

static void *new_numbers(tu_type type, int64_t special_index, double special_value) {
    static uint32_t random_state;
    void *data = malloc(tu_type_bytes(type));
    assert_non_null(data);
    random_state = 7; /* the same for every device */
    for (int64_t i = 0; i < tu_shape_elements(type.shape); i++) {
        random_state = random_state * 1664525 + 1013904223;
        tu__store(type.dtype, data, i,
                  i == special_index ? special_value : ((int)(random_state >> 16) % 17 - 8) / 8.0);
    }
    return data;
}

static void find_kernel(const tu_program *program, char *name, size_t capacity) {
    tu_kernel_report k = TU_SIZED(tu_kernel_report);
    *name = '\0';
    for (size_t i = 0; i < tu_program_kernel_count(program) && tu_program_kernel(program, i, &k) == TU_OK;
         i++)
        if (strncmp(k.kernel, "conv2d", 6) == 0) snprintf(name, capacity, "%s", k.kernel);
}

static result compute(const problem *p, const char *device) {
    test_graph s = {0};
    tu_program *program;
    tu_state *state;
    tu_feed feeds[MAX_INPUTS];
    void *data[MAX_INPUTS];
    build_graph(&s, p);
    tu_status status = tu_compile(s.graph, &program, .devices = device, .fetch = &s.expected,
                                  .fetch_count = 1, .precision = p->precision, .tune_kernels = p->tune);
    if (status != TU_OK) fail_msg("%s: %s", device, tu_message());
    assert_int_equal(tu_state_new(s.graph, &state), TU_OK);
    for (int i = 0; i < s.input_count; i++) {
        data[i] = new_numbers(tu_value_type(s.inputs[i]), i == 0 ? p->special_index : -1, p->special_value);
        feeds[i] = (tu_feed){s.inputs[i], data[i]};
    }
    tu_type type = tu_value_type(s.expected);
    void *out = malloc(tu_type_bytes(type));
    result r = {.count = tu_shape_elements(type.shape)};
    r.numbers = malloc((size_t)r.count * sizeof *r.numbers);
    if (tu_run(program, state, (size_t)s.input_count, feeds, &out) != TU_OK)
        fail_msg("%s: %s", device, tu_message());
    tu__load_array(type.dtype, out, r.count, r.numbers);
    find_kernel(program, r.kernel, sizeof r.kernel);
    for (int i = 0; i < s.input_count; i++) free(data[i]);
    free(out);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(s.graph);
    return r;
}

/* True if the difference is at most two units in the last place: a sum that is rounded before a bias is added may be
 * off by one. */
static bool almost_equal(double a, double b, tu_dtype dtype) {
    static const double units[] = {
        [TU_F32] = 0x1p-22, [TU_F64] = 0x1p-51, [TU_BF16] = 0x1p-6, [TU_F16] = 0x1p-9};
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    double size = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
    return fabs(a - b) <= units[dtype] * (size > 1 ? size : 1);
}

/* Writes a description: "bf16 dw of [2,9,10,20] by [70,3,3,20], stride 2,1, dilation 1,1, groups 2, pad 0,2,3,1" */
static void write_problem(const problem *p, char *text, size_t capacity) {
    static const char *const names[] = {"y", "y+bias", "y+bias+relu", "y+relu", "dx", "dw"};
    const geometry *g = &p->g;
    const tu_convolve_options *o = &g->options;
    int64_t groups = o->groups ? o->groups : 1;
    int length =
        snprintf(text, capacity, "%s%s%s %s of [%d,%d,%d,%d] by [%d,%d,%d,%d]", tu_dtype_name(p->dtype),
                 p->precision ? " as " : "", p->precision ? p->precision : "", names[p->target],
                 (int)g->images, (int)g->height, (int)g->width, (int)g->in, (int)g->out, (int)g->filter[0],
                 (int)g->filter[1], (int)(g->in / groups));
    snprintf(text + length, capacity - (size_t)length,
             ", stride %d,%d, dilation %d,%d, groups %d, pad %d,%d,%d,%d%s", (int)o->stride[0],
             (int)o->stride[1], (int)o->dilation[0], (int)o->dilation[1], (int)groups, (int)o->pad[0],
             (int)o->pad[1], (int)o->pad[2], (int)o->pad[3], p->tune ? ", tuned" : "");
}

/* Number of elements that differ, and the index and size of the largest difference. */
typedef struct difference {
    int64_t count, worst;
    double size;
} difference;

static difference compare(const result *expected, const result *actual, tu_dtype dtype) {
    difference d = {0};
    for (int64_t i = 0; i < expected->count; i++) {
        double size = fabs(expected->numbers[i] - actual->numbers[i]);
        if (almost_equal(expected->numbers[i], actual->numbers[i], dtype)) continue;
        if (!d.count++ || !(size <= d.size)) d.worst = i, d.size = size;
    }
    return d;
}

/* Compares with the reference and prints all errors; the test fails at its end. */
static bool matches_reference(const problem *p, const char *kernel) {
    char text[256];
    result expected = compute(p, "ref"), actual = compute(p, "gpu:0");
    difference d = compare(&expected, &actual, p->dtype);
    bool is_other_kernel = kernel && !strstr(actual.kernel, kernel);
    write_problem(p, text, sizeof text);
    if (d.count)
        print_error("%s: %s: %lld of %lld elements are wrong; element %lld is %.9g, expected %.9g\n", text,
                    actual.kernel, (long long)d.count, (long long)expected.count, (long long)d.worst,
                    actual.numbers[d.worst], expected.numbers[d.worst]);
    if (is_other_kernel) print_error("%s: computed by '%s', expected '%s'\n", text, actual.kernel, kernel);
    free(expected.numbers);
    free(actual.numbers);
    return !d.count && !is_other_kernel;
}

static int errors;

static void check_convolution(const problem *p, const char *kernel) {
    if (!matches_reference(p, kernel)) errors++;
}

/* Called at the end of every test. */
static void fail_on_errors(void) {
    int count = errors;
    errors = 0;
    if (count) fail_msg("%d convolutions are wrong", count);
}

static bool uses_fake_libraries(void) {
    return getenv("TUTTI_CUDA_LIBRARIES") != NULL;
}

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

/* More than one tile along every tiled axis, and not a multiple of the tile. */
static const geometry wide[] = {
    {2, 9, 10, 20, 70, {3, 3}, {0}},
    {3, 8, 9, 12, 18, {3, 2}, {.stride = {2, 1}, .groups = 2}},
    {2, 11, 9, 6, 6, {3, 3}, {.dilation = {2, 2}, .groups = 6}},
    {2, 7, 8, 5, 66, {2, 3}, {.padding = TU_EXPLICIT, .pad = {0, 2, 3, 1}, .stride = {2, 3}}},
};
enum { WIDE = 4 };

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
