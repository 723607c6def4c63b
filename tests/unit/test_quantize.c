/* Tests quantization: which operations become int8, how far results are from f32, and that every device computes the
 * same bits. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "device/cpu/packed_weights.h"
#include "graph/graph.h"
#include "infer/freeze.h"
#include "infer/quantizer.h"
#include "infer/rebatch.h"

enum { SAMPLES = 6 };

/* ---- Graphs ---- */

typedef struct subject {
    tu_graph *graph;  /* as built */
    tu_graph *frozen; /* for SAMPLES samples */
    tu__quantizer *quantizer;
    float *images;
    int64_t pixels; /* of an image */
} subject;

static tu_graph *new_graph(void) {
    tu_graph *graph;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_set_training(graph, false);
    return graph;
}

/* Freezes a graph with initial variables. Variances are not one and means not zero, so that folding them matters. */
static void freeze(subject *s) {
    tu__named_tensor tensors[512];
    size_t count = 0;
    tu_state *state;
    assert_int_equal(tu_graph_status(s->graph), TU_OK);
    assert_int_equal(tu_state_new(s->graph, &state, .seed = 3), TU_OK);
    const char *name;
    tu_type type;
    for (; tu_state_variable(state, count, &name, &type) == TU_OK; count++) {
        void *data = malloc(tu_type_bytes(type));
        assert_int_equal(tu_state_get(state, name, data, tu_type_bytes(type)), TU_OK);
        if (strstr(name, "mean") || strstr(name, "variance") || strstr(name, "beta"))
            for (int64_t i = 0; i < tu_shape_elements(type.shape); i++)
                ((float *)data)[i] += 0.05f * (float)(i % 5);
        tensors[count] = (tu__named_tensor){name, type, data};
    }
    if (tu__freeze(s->graph, count, tensors, TU__PRECISION_AS_BUILT, &s->frozen) != TU_OK)
        fail_msg("%s", tu_message());
    for (size_t i = 0; i < count; i++) free((void *)tensors[i].data);
    tu_state_free(state);
}

static const tu__node *input_of(const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->op->code == TU__OP_INPUT) return graph->nodes[i];
    return NULL;
}

/* Makes smooth images, and calibrates with them. `graph` is consumed. */
static subject new_subject(tu_graph *graph) {
    subject s = {.graph = graph};
    freeze(&s);
    const tu__node *input = input_of(s.frozen);
    s.pixels = tu_shape_elements(input->outputs[0].shape) / SAMPLES;
    s.images = malloc((size_t)(SAMPLES * s.pixels) * sizeof *s.images);
    for (int64_t i = 0; i < SAMPLES * s.pixels; i++)
        s.images[i] = (float)(sin(0.013 * (double)i) + 0.4 * sin(1.7 * (double)i));
    if (tu__quantizer_new(s.frozen, &s.quantizer) != TU_OK) fail_msg("%s", tu_message());
    const tu_feed feed = {tu__value(s.frozen, input->id, 0), s.images};
    assert_int_equal(tu__quantizer_calibrate(s.quantizer, 1, &feed), TU_OK);
    return s;
}

static void free_subject(subject *s) {
    tu__quantizer_free(s->quantizer);
    tu_graph_free(s->frozen);
    tu_graph_free(s->graph);
    free(s->images);
}

static tu_graph *quantized(const subject *s, const bool *keep) {
    tu_graph *graph;
    if (tu__quantizer_build(s->quantizer, TU__MIN_MAX, keep, &graph) != TU_OK) fail_msg("%s", tu_message());
    return graph;
}

static subject network(const char *name, int64_t size, int64_t channels, int64_t base) {
    tu_graph *graph = new_graph();
    tu_value logits, x = tu_batch_input(graph, "images", TU_F32, TU_SHAPE(SAMPLES, size, size, channels));
    if (tu_network_logits(x, name, &logits, .base = base) != TU_OK) fail_msg("%s", tu_message());
    tu_output(logits, "logits");
    return new_subject(graph);
}

/* Returns the first named result for the first `samples` images. */
static float *run(const tu_graph *graph, const subject *s, const char *device, int threads, int64_t samples) {
    tu_graph *copy;
    tu_program *program;
    tu_state *state;
    if (tu__rebatch(graph, samples, &copy) != TU_OK) fail_msg("%s", tu_message());
    const tu__edge edge = copy->results[0].value;
    tu_value fetch = tu__value(copy, edge.node, edge.output);
    if (tu_compile(copy, &program, .devices = device, .threads = threads, .fetch = &fetch,
                   .fetch_count = 1) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(copy, &state), TU_OK);
    void *result = malloc(tu_type_bytes(tu_value_type(fetch)));
    const tu_feed feed = {tu__value(copy, input_of(copy)->id, 0), s->images};
    if (tu_run(program, state, 1, &feed, &result) != TU_OK) fail_msg("%s", tu_message());
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(copy);
    return result;
}

static int count_of(const tu_graph *graph, tu__opcode op) {
    int count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) count += graph->nodes[i]->op->code == op;
    return count;
}

static int64_t result_elements(const tu_graph *graph) {
    const tu__edge edge = graph->results[0].value;
    return tu_shape_elements(graph->nodes[edge.node]->outputs[edge.output].shape);
}

/* Returns |a - b| / |b|, in the Euclidean norm around the mean of b. */
static double relative_error(const float *a, const float *b, int64_t count) {
    double difference = 0, magnitude = 0, mean = 0;
    for (int64_t i = 0; i < count; i++) mean += (double)b[i] / (double)count;
    for (int64_t i = 0; i < count; i++) {
        difference += pow((double)a[i] - (double)b[i], 2);
        magnitude += pow((double)b[i] - mean, 2);
    }
    return sqrt(difference / magnitude);
}

/* ---- Networks ---- */

typedef struct expectation {
    const char *name;
    int64_t size, channels, base;
    int convolutions, products, adds, means;
    double error;
    bool same_bits; /* on ref and cpu: no f32 operation adds in another order */
} expectation;

static const expectation networks[] = {
    {"mlp", 28, 1, 64, 0, 3, 0, 0, 0.03, true},
    {"tutorial-cnn", 24, 3, 32, 2, 3, 0, 0, 0.03, false},
    {"resnet20", 32, 3, 16, 21, 1, 9, 1, 0.04, true},
    {"resnet50", 64, 3, 16, 53, 1, 16, 1, 0.05, true},
};

static void assert_same_bits(const subject *s, const tu_graph *graph) {
    const int64_t row = result_elements(graph) / SAMPLES;
    float *expected = run(graph, s, "ref", 1, SAMPLES);
    for (int threads = 1; threads <= 3; threads += 2)
        for (int64_t samples = 1; samples <= SAMPLES; samples += SAMPLES - 1) {
            float *got = run(graph, s, "cpu:0", threads, samples);
            assert_memory_equal(got, expected, (size_t)(row * samples) * sizeof *got);
            free(got);
        }
    free(expected);
}

static void networks_are_quantized(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        const expectation *e = &networks[i];
        subject s = network(e->name, e->size, e->channels, e->base);
        tu_graph *graph = quantized(&s, NULL);
        assert_int_equal(tu__quantizer_layer_count(s.quantizer), e->convolutions + e->products);
        assert_int_equal(count_of(graph, TU__OP_CONV2D_INT8), e->convolutions);
        assert_int_equal(count_of(graph, TU__OP_MATMUL_INT8), e->products);
        assert_int_equal(count_of(graph, TU__OP_REQUANTIZE_ADD), e->adds);
        assert_int_equal(count_of(graph, TU__OP_MEAN_INT8), e->means);
        assert_int_equal(count_of(graph, TU__OP_CONV2D) + count_of(graph, TU__OP_MATMUL), 0);
        float *expected = run(s.frozen, &s, "cpu:0", 2, SAMPLES), *got = run(graph, &s, "cpu:0", 2, SAMPLES);
        const double error = relative_error(got, expected, result_elements(graph));
        if (!(error < e->error)) fail_msg("%s: relative error %g, expected < %g", e->name, error, e->error);
        print_message("%s: relative error %g\n", e->name, error);
        if (e->same_bits) assert_same_bits(&s, graph);
        free(expected);
        free(got);
        tu_graph_free(graph);
        free_subject(&s);
    }
}

static void kept_layers_stay_in_f32(void **unused) {
    (void)unused;
    subject s = network("resnet20", 32, 3, 8);
    const size_t count = tu__quantizer_layer_count(s.quantizer);
    bool *keep = calloc(count, sizeof *keep);
    for (size_t i = 0; i < count; i++) keep[i] = i == 0 || i == 5 || i == count - 1;
    assert_string_equal(tu__quantizer_layer_name(s.quantizer, 0), "conv1/conv2d");
    assert_null(tu__quantizer_layer_name(s.quantizer, count));
    tu_graph *graph = quantized(&s, keep);
    assert_int_equal(count_of(graph, TU__OP_CONV2D), 2);
    assert_int_equal(count_of(graph, TU__OP_CONV2D_INT8), (int)count - 3);
    assert_int_equal(count_of(graph, TU__OP_MATMUL), 1);
    for (size_t i = 0; i < count; i++) keep[i] = true;
    tu_graph *all = quantized(&s, keep);
    float *expected = run(s.frozen, &s, "ref", 1, SAMPLES), *got = run(all, &s, "ref", 1, SAMPLES);
    assert_memory_equal(got, expected, (size_t)result_elements(all) * sizeof *got);
    free(expected);
    free(got);
    tu_graph_free(graph);
    tu_graph_free(all);
    free(keep);
    free_subject(&s);
}

/* ---- Additions outside of layers, and values that both f32 and u8 operations read ---- */

static tu_value layer(tu_value x, int64_t filters, const char *name) {
    return tu_conv2d(x, .filters = filters, .size = 3, .act = TU_RELU, .name = name);
}

/* Both operands of the addition have another reader. */
static void additions_of_quantized_values_are_quantized(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(SAMPLES, 9, 7, 5));
    tu_value a = layer(x, 12, "a"), b = layer(a, 12, "b");
    tu_value c = layer(tu_relu(tu_add(tu_max_pool(a), tu_max_pool(b))), 4, "c");
    tu_output(tu_add(tu_sum(c, .axes = TU_AXES(1, 2, 3), .keep = false),
                     tu_mean(b, .axes = TU_AXES(1, 2, 3), .keep = false)),
              "y");
    subject s = new_subject(g);
    tu_graph *graph = quantized(&s, NULL);
    assert_int_equal(count_of(graph, TU__OP_ADD_INT8), 1);
    assert_int_equal(count_of(graph, TU__OP_RELU), 0);
    float *expected = run(s.frozen, &s, "ref", 1, SAMPLES), *got = run(graph, &s, "cpu:0", 2, SAMPLES);
    assert_true(relative_error(got, expected, SAMPLES) < 0.1);
    free(expected);
    free(got);
    tu_graph_free(graph);
    free_subject(&s);
}

/* ---- Weights ---- */

static void a_channel_of_zeros_keeps_its_bias(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    float weights[3 * 4] = {1, 0, 2, -3, 4, 0, 5, 6, 0.5f, 0, 9, 1}, bias[4] = {0.5f, -40, 1000, 0};
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(SAMPLES, 3));
    tu_value y = tu_matmul(x, tu_constant(g, TU_F32, TU_SHAPE(3, 4), weights));
    tu_output(tu_add(y, tu_constant(g, TU_F32, TU_SHAPE(4), bias)), "y");
    subject s = new_subject(g);
    tu__quantized_weights w;
    tu__arena arena = {.purpose = "a test"};
    assert_int_equal(tu__quantize_weights(s.frozen, &s.quantizer->layers[0], 0.01, &arena, &w), TU_OK);
    assert_int_equal(w.channels, 4);
    for (int c = 0; c < 4; c++) {
        const double unit = 0.01 * w.scales[c];
        assert_true(fabs(w.bias[c] * unit - (double)bias[c]) <= unit);
        for (int k = 0; k < 3; k++)
            assert_true(fabs(w.weights[4 * k + c] * w.scales[c] - (double)weights[4 * k + c]) <=
                        w.scales[c] / 2);
    }
    assert_true(fabs(w.scales[2] - 9.0 / 127) < 1e-12);
    tu__arena_free(&arena);
    free_subject(&s);
}

/* ---- Histograms ---- */

static tu__histogram *new_histogram(void) {
    return calloc(1, sizeof(tu__histogram));
}

static void the_range_contains_all_values_or_a_percentile(void **unused) {
    (void)unused;
    tu__histogram *h = new_histogram();
    float values[10000];
    for (int i = 0; i < 10000; i++) values[i] = (float)(i % 1000) / 1000 - 0.25f;
    tu__histogram_add(h, values, 10000);
    values[17] = 60; /* an outlier, in another batch: the histogram grows */
    values[18] = NAN;
    values[19] = -INFINITY;
    tu__histogram_add(h, values, 10000);
    double low, high;
    tu__histogram_range(h, 1, &low, &high);
    assert_true(low == -0.25 && high == 60);
    tu__histogram_range(h, 0.999, &low, &high);
    assert_true(low <= -0.25 + 0.06 && low >= -0.25);
    assert_true(high >= 0.7 && high < 0.8);
    assert_int_equal(h->count, 2 * 10000 - 2);
    free(h);
}

static void the_range_contains_zero(void **unused) {
    (void)unused;
    tu__histogram *h = new_histogram();
    double low, high;
    tu__histogram_range(h, 1, &low, &high);
    assert_true(low == 0 && high == 0);
    const float positive[3] = {3, 4, 5};
    tu__histogram_add(h, positive, 3);
    tu__histogram_range(h, 1, &low, &high);
    assert_true(low == 0 && high == 5);
    free(h);
}

/* ---- The form of a model file ---- */

static void thawing_and_freezing_changes_nothing(void **unused) {
    (void)unused;
    subject s = network("resnet20", 32, 3, 8);
    tu_graph *graph = quantized(&s, NULL), *thawed, *again;
    size_t count;
    tu__named_tensor *variables;
    assert_int_equal(tu__thaw(graph, 2, &thawed, &count, &variables), TU_OK);
    assert_int_equal(count, 22 * 2 + 21 + 1); /* weights, factors, integer biases, the bias of the logits */
    assert_int_equal(count_of(thawed, TU__OP_VARIABLE), (int)count);
    if (tu__freeze(thawed, count, variables, TU__PRECISION_AS_BUILT, &again) != TU_OK)
        fail_msg("%s", tu_message());
    float *expected = run(graph, &s, "cpu:0", 1, SAMPLES), *got = run(again, &s, "cpu:0", 1, SAMPLES);
    assert_memory_equal(got, expected, (size_t)result_elements(graph) * sizeof *got);
    free(expected);
    free(got);
    tu__free(variables);
    tu_graph_free(again);
    tu_graph_free(thawed);
    tu_graph_free(graph);
    free_subject(&s);
}

static tu_program *compile(tu_graph *graph) {
    tu_program *program;
    const tu__edge edge = graph->results[0].value;
    tu_value fetch = tu__value(graph, edge.node, edge.output);
    assert_int_equal(tu_compile(graph, &program, .devices = "cpu:0", .fetch = &fetch, .fetch_count = 1),
                     TU_OK);
    return program;
}

static void programs_share_packed_weights(void **unused) {
    (void)unused;
    subject s = network("mlp", 28, 1, 16);
    tu_graph *graph = quantized(&s, NULL), *other;
    const size_t before = cpu_packed_weights_count();
    tu_program *programs[2] = {compile(graph), NULL};
    assert_int_equal(cpu_packed_weights_count(), before + 3);
    assert_int_equal(tu__rebatch(graph, 2, &other), TU_OK);
    programs[1] = compile(other);
    assert_int_equal(cpu_packed_weights_count(), before + 3);
    tu_program_free(programs[0]);
    assert_int_equal(cpu_packed_weights_count(), before + 3);
    tu_program_free(programs[1]);
    assert_int_equal(cpu_packed_weights_count(), before);
    tu_graph_free(other);
    tu_graph_free(graph);
    free_subject(&s);
}

/* ---- Failures ---- */

static void a_graph_without_layers_is_refused(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_output(tu_relu(tu_batch_input(g, "x", TU_F32, TU_SHAPE(2, 3))), "y");
    tu__quantizer *q;
    assert_int_equal(tu__quantizer_new(g, &q), TU_UNSUPPORTED);
    assert_non_null(strstr(tu_message(), "no layer that can be quantized"));
    assert_null(q);
    tu_graph_free(g);
}

static void building_needs_a_calibration(void **unused) {
    (void)unused;
    subject s = network("mlp", 28, 1, 16);
    tu__quantizer *q;
    tu_graph *graph;
    assert_int_equal(tu__quantizer_new(s.frozen, &q), TU_OK);
    assert_int_equal(tu__quantizer_build(q, TU__MIN_MAX, NULL, &graph), TU_INVALID);
    assert_non_null(strstr(tu_message(), "calibrate it"));
    assert_null(graph);
    tu__quantizer_free(q);
    free_subject(&s);
}

static void failing_allocations_are_reported(void **unused) {
    (void)unused;
    subject s = network("resnet20", 32, 3, 4);
    const int64_t live = tu__alloc_live();
    tu_status status = TU_NO_MEMORY;
    for (uint64_t nth = 1; status != TU_OK; nth += 1 + nth / 8) {
        tu_graph *graph = NULL, *thawed = NULL;
        size_t count;
        tu__named_tensor *variables = NULL;
        tu__alloc_fail_at(nth);
        status = tu__quantizer_build(s.quantizer, TU__PERCENTILE, NULL, &graph);
        if (status == TU_OK) status = tu__thaw(graph, 2, &thawed, &count, &variables);
        tu__alloc_fail_at(0);
        if (status != TU_OK) assert_int_equal(status, TU_NO_MEMORY);
        tu__free(variables);
        tu_graph_free(thawed);
        tu_graph_free(graph);
        assert_int_equal(tu__alloc_live(), live);
    }
    free_subject(&s);
}

/* A layer with as many terms as a sum may have, all equal, and a bias that fills i32 if its unit follows the weights. */
static void sums_with_a_large_bias_do_not_overflow(void **state) {
    (void)state;
    enum { TERMS = 1 << 16 };
    static float ones[TERMS], weights[TERMS];
    const float bias[1] = {30000};
    tu_graph *graph = new_graph(), *frozen, *quantized_graph;
    tu__quantizer *quantizer;
    for (int i = 0; i < TERMS; i++) ones[i] = weights[i] = 1;
    const tu_value x = tu_batch_input(graph, "x", TU_F32, TU_SHAPE(1, TERMS));
    const tu_value w = tu_constant(graph, TU_F32, TU_SHAPE(TERMS, 1), weights);
    tu_output(tu_add(tu_matmul(x, w), tu_constant(graph, TU_F32, TU_SHAPE(1), bias)), "y");
    assert_int_equal(tu_graph_status(graph), TU_OK);
    assert_int_equal(tu__freeze(graph, 0, NULL, TU__PRECISION_AS_BUILT, &frozen), TU_OK);
    assert_int_equal(tu__quantizer_new(frozen, &quantizer), TU_OK);
    const tu_feed feed = {tu__value(frozen, input_of(frozen)->id, 0), ones};
    assert_int_equal(tu__quantizer_calibrate(quantizer, 1, &feed), TU_OK);
    const tu__node *product = NULL;
    for (uint32_t i = 0; i < frozen->node_count; i++)
        if (frozen->nodes[i]->op->code == TU__OP_MATMUL) product = frozen->nodes[i];
    assert_non_null(product);
    tu__quantized_weights q;
    tu__arena arena = {.purpose = "a test"};
    assert_int_equal(tu__quantize_weights(frozen, &quantizer->layers[0], 1.0 / 255, &arena, &q), TU_OK);
    int64_t sum = q.bias[0];
    for (int i = 0; i < TERMS; i++) sum += (int64_t)UINT8_MAX * q.weights[i];
    assert_true(sum <= INT32_MAX);
    assert_true(fabs((double)sum * q.scales[0] / 255 / (TERMS + 30000.0) - 1) < 0.1);
    assert_int_equal(tu__quantizer_build(quantizer, TU__MIN_MAX, NULL, &quantized_graph), TU_OK);
    tu__arena_free(&arena);
    tu_graph_free(quantized_graph);
    tu__quantizer_free(quantizer);
    tu_graph_free(frozen);
    tu_graph_free(graph);
}

/* Returns the status of quantizing a layer with this weight and bias. */
static tu_status quantize_numbers(float weight, float bias) {
    const float weights[2] = {1, weight}, biases[1] = {bias}, images[2] = {1, 2};
    tu_graph *graph = new_graph(), *frozen, *result = NULL;
    tu__quantizer *quantizer;
    const tu_value x = tu_batch_input(graph, "x", TU_F32, TU_SHAPE(1, 2));
    const tu_value w = tu_constant(graph, TU_F32, TU_SHAPE(2, 1), weights);
    tu_output(tu_relu(tu_add(tu_matmul(x, w), tu_constant(graph, TU_F32, TU_SHAPE(1), biases))), "y");
    assert_int_equal(tu__freeze(graph, 0, NULL, TU__PRECISION_AS_BUILT, &frozen), TU_OK);
    assert_int_equal(tu__quantizer_new(frozen, &quantizer), TU_OK);
    const tu_feed feed = {tu__value(frozen, input_of(frozen)->id, 0), images};
    assert_int_equal(tu__quantizer_calibrate(quantizer, 1, &feed), TU_OK);
    const tu_status status = tu__quantizer_build(quantizer, TU__MIN_MAX, NULL, &result);
    tu_graph_free(result);
    tu__quantizer_free(quantizer);
    tu_graph_free(frozen);
    tu_graph_free(graph);
    return status;
}

static void numbers_that_are_not_finite_are_refused(void **state) {
    (void)state;
    const int64_t live = tu__alloc_live();
    assert_int_equal(quantize_numbers(1, 1), TU_OK);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(quantize_numbers(bad[i], 1), TU_NUMERIC);
        assert_int_equal(quantize_numbers(1, bad[i]), TU_NUMERIC);
        assert_non_null(strstr(tu_message(), "cannot be quantized: a weight or the bias of channel 0"));
    }
    assert_int_equal(tu__alloc_live(), live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_are_quantized),
        cmocka_unit_test(kept_layers_stay_in_f32),
        cmocka_unit_test(additions_of_quantized_values_are_quantized),
        cmocka_unit_test(a_channel_of_zeros_keeps_its_bias),
        cmocka_unit_test(the_range_contains_all_values_or_a_percentile),
        cmocka_unit_test(the_range_contains_zero),
        cmocka_unit_test(thawing_and_freezing_changes_nothing),
        cmocka_unit_test(programs_share_packed_weights),
        cmocka_unit_test(sums_with_a_large_bias_do_not_overflow),
        cmocka_unit_test(numbers_that_are_not_finite_are_refused),
        cmocka_unit_test(a_graph_without_layers_is_refused),
        cmocka_unit_test(building_needs_a_calibration),
        cmocka_unit_test(failing_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
