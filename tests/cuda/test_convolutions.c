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
#include "graph/graph.h"
#include "test.h"

typedef struct geometry {
    int64_t images, height, width, in, out, filter[2];
    tu_convolve_options options;
} geometry;

typedef enum computed { Y, Y_BIAS, Y_BIAS_RELU, Y_RELU, DX, DW, Y_ADD, Y_BIAS_ADD_RELU } computed;

typedef struct problem {
    geometry g;
    computed target;
    tu_dtype dtype;
    const char *precision;
    int64_t special_index; /* index of an element of x that is replaced by `special_value`; -1: none */
    double special_value;
    int special_operand; /* the operand with the special element: 0: x, 1: filter, 2: bias, 3: dy or residual */
    bool tune, frozen;   /* frozen: the graph of a model */
    bool constant;       /* filter and bias are constants, as in models */
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
    static const char *const names[MAX_INPUTS] = {"x", "filter", "bias", "other"}; /* dy or the residual */
    tu_value v = tu_input(s->graph, names[s->input_count], dtype, shape);
    return s->inputs[s->input_count++] = v;
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

static void *new_operand(const problem *p, int operand, tu_type type) {
    return new_numbers(type, operand == p->special_operand ? p->special_index : -1, p->special_value);
}

/* Adds the filter or the bias; as an input in the order of the operands. */
static tu_value add_weights(test_graph *s, const problem *p, int operand, tu_shape shape) {
    if (!p->constant) return add_input(s, p->dtype, shape);
    void *data = new_operand(p, operand, (tu_type){.dtype = p->dtype, .shape = shape});
    tu_value v = tu_constant(s->graph, p->dtype, shape, data);
    free(data);
    return v;
}

static void build_graph(test_graph *s, const problem *p) {
    const geometry *g = &p->g;
    int64_t groups = g->options.groups ? g->options.groups : 1;
    assert_int_equal(tu_graph_new(&s->graph), TU_OK);
    tu_value x = add_input(s, p->dtype, TU_SHAPE(g->images, g->height, g->width, g->in));
    tu_value w = add_weights(s, p, 1, TU_SHAPE(g->out, g->filter[0], g->filter[1], g->in / groups));
    tu_value b = add_weights(s, p, 2, TU_SHAPE(g->out));
    tu_convolve_options options = g->options;
    options.struct_size = sizeof options;
    tu_value y = tu_convolve_with(x, w, &options);
    if (p->target == Y_BIAS || p->target == Y_BIAS_RELU || p->target == Y_BIAS_ADD_RELU) y = tu_add(y, b);
    if (p->target == Y_ADD || p->target == Y_BIAS_ADD_RELU)
        y = tu_add(add_input(s, p->dtype, tu_value_shape(y)), y);
    if (p->target == Y_RELU || p->target == Y_BIAS_RELU || p->target == Y_BIAS_ADD_RELU) y = tu_relu(y);
    s->expected = y;
    if (p->target == DX || p->target == DW) {
        tu_value dy = add_input(s, p->dtype, tu_value_shape(y));
        tu_gradients(tu_sum(tu_mul(y, dy)), 1, p->target == DX ? &x : &w, &s->expected);
    }
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
    s.graph->is_frozen = p->frozen;
    tu_status status = tu_compile(s.graph, &program, .devices = device, .fetch = &s.expected,
                                  .fetch_count = 1, .precision = p->precision, .tune_kernels = p->tune);
    if (status != TU_OK) fail_msg("%s: %s", device, tu_message());
    assert_int_equal(tu_state_new(s.graph, &state), TU_OK);
    for (int i = 0; i < s.input_count; i++) {
        data[i] = new_operand(p, i > 0 && p->constant ? i + 2 : i, tu_value_type(s.inputs[i]));
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
    static const char *const names[] = {"y",  "y+bias", "y+bias+relu", "y+relu",
                                        "dx", "dw",     "y+add",       "y+bias+add+relu"};
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

/* Of models. One tile and several, with fewer pixels than a tile; a depth of 1 step to 36, which several blocks share;
 * strides, dilations and paddings; 64 channels of y per tile, and 32. */
static const geometry few_results[] = {
    {1, 7, 7, 64, 64, {1, 1}, {0}},
    {1, 6, 7, 256, 64, {3, 3}, {0}},
    {2, 9, 10, 64, 96, {3, 3}, {.stride = {2, 2}}},
    {1, 12, 9, 128, 32, {3, 2}, {.padding = TU_EXPLICIT, .pad = {0, 2, 3, 1}, .dilation = {2, 1}}},
    {3, 5, 5, 192, 160, {1, 1}, {.stride = {2, 1}}},
};
static const computed model_results[] = {Y, Y_BIAS, Y_BIAS_RELU, Y_ADD, Y_BIAS_ADD_RELU};
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
    if (uses_fake_libraries()) { /* enough tiles for 4 multiprocessors: one block sums the whole depth */
        setenv("TUTTI_CONV", "own", 1);
        check_models(few_results, 3, "small");
        unsetenv("TUTTI_CONV");
    }
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
    unsetenv("TUTTI_CONV");
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
        cmocka_unit_test(few_results_of_models_match_the_reference),
        cmocka_unit_test(nan_and_infinity_reach_few_results),
        cmocka_unit_test(residuals_of_models_match_the_reference),
        cmocka_unit_test(relu_keeps_nan_if_cudnn_loses_it),
        cmocka_unit_test(many_results_of_models_match_the_reference),
        cmocka_unit_test(nan_and_infinity_reach_many_results),
        cmocka_unit_test(nan_that_cannot_be_restored_stays),
        cmocka_unit_test(nan_of_a_residual_is_noted),
        cmocka_unit_test(other_convolutions_of_models_keep_their_kernels),
        cmocka_unit_test(other_graphs_keep_their_kernels),
        cmocka_unit_test(tuned_products_of_models_match_the_reference),
        cmocka_unit_test(tuned_convolutions_match_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
