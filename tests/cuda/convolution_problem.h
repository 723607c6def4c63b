/* Convolutions on the CUDA device, compared with the reference: on the fake cuDNN, with and without engines; on a real GPU
 * (no TUTTI_CUDA_LIBRARIES) with the real cuDNN.
 *
 * Operands are small multiples of 1/8, so that sums of products are exact in f32, in any order and also in tf32:
 * every difference from the reference is an error.
 */
#ifndef TESTS_CUDA_CONVOLUTION_PROBLEM_H
#define TESTS_CUDA_CONVOLUTION_PROBLEM_H

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

/* ---- Shapes ---- */

/* More than one tile along every tiled axis, and not a multiple of the tile. */
static const geometry wide[] = {
    {2, 9, 10, 20, 70, {3, 3}, {0}},
    {3, 8, 9, 12, 18, {3, 2}, {.stride = {2, 1}, .groups = 2}},
    {2, 11, 9, 6, 6, {3, 3}, {.dilation = {2, 2}, .groups = 6}},
    {2, 7, 8, 5, 66, {2, 3}, {.padding = TU_EXPLICIT, .pad = {0, 2, 3, 1}, .stride = {2, 3}}},
};
enum { WIDE = 4 };

#endif
