/* Tests of models: they compute what their graph computes, for any number of samples, with the same bits in any batch and on
 * any number of threads; and wrong use fails with a message. */
#include "test.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "discrete_device.h"
#include "graph/graph.h"
#include "infer/freeze.h"
#include "infer/rebatch.h"

enum { SAMPLES = 13, PIXELS = 12 * 12 * 3, CLASSES = 10 };

/* ---- The tested network: convolutions, normalisations, a residual addition, pooling, dense layers ---- */

typedef struct network {
    tu_graph *graph;
    tu_state *state;
    tu_value x, probability;
} network;

static void begin_network(network *n, int64_t batch) {
    assert_int_equal(tu_graph_new(&n->graph), TU_OK);
    tu_set_training(n->graph, false);
    n->x = tu_batch_input(n->graph, "x", TU_U8, TU_SHAPE(batch, 12, 12, 3));
    tu_value x = tu_mul(tu_cast(n->x, TU_F32), tu_fill(n->graph, TU_F32, TU_SCALAR, 1.0 / 255));
    tu_value y =
        tu_relu(tu_batch_norm(tu_conv2d(x, .filters = 32, .size = 3, .name = "conv1"), .name = "norm1"));
    tu_value z = tu_batch_norm(tu_conv2d(y, .filters = 32, .size = 3, .name = "conv2"), .name = "norm2");
    y = tu_relu(tu_add(z, y));
    y = tu_max_pool(tu_lrn(y, .radius = 2));
    tu_value pooled = tu_mean(y, .axes = TU_AXES(1, 2));
    y = tu_concat((tu_value[]){tu_flatten(y), pooled}, 2, 1);
    y = tu_dense(y, .units = 24, .act = TU_TANH, .name = "hidden");
    y = tu_output(tu_dense(y, .units = CLASSES, .name = "logits"), "logits");
    n->probability = tu_output(tu_softmax(y, -1), "probability");
    if (tu_graph_status(n->graph) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(n->graph, &n->state, .seed = 5), TU_OK);
}

/* Gives the running statistics values other than 0 and 1. */
static void set_statistics(network *n) {
    static const char *const names[] = {"norm1/moving_mean",     "norm1/moving_variance", "norm2/moving_mean",
                                        "norm2/moving_variance", "norm1/gamma",           "norm2/beta"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        float values[32];
        for (int i = 0; i < 32; i++) values[i] = 0.3F + 0.02F * (float)((i * 7 + (int)k * 5) % 31);
        assert_int_equal(tu_state_set(n->state, names[k], values, sizeof values), TU_OK);
    }
}

static void end_network(network *n) {
    tu_state_free(n->state);
    tu_graph_free(n->graph);
}

static void fill_images(uint8_t *images) {
    for (int i = 0; i < SAMPLES * PIXELS; i++) images[i] = (uint8_t)((i * 37 + i / 7 * 11) % 251);
}

static tu_model *make_model(const network *n, const tu_model_options *options) {
    tu_model *model;
    if (tu_model_new_with(n->graph, n->state, &model, options) != TU_OK) fail_msg("%s", tu_message());
    return model;
}

static void run_model(tu_model *model, int64_t count, const uint8_t *images, float *probabilities) {
    const tu_model_feed feed = {"x", {TU_U8, TU_SHAPE(count, 12, 12, 3)}, images};
    const tu_model_fetch fetch = {"probability", {TU_F32, TU_SHAPE(count, CLASSES)}, probabilities};
    if (tu_model_run_named(model, count, 1, &feed, 1, &fetch) != TU_OK) fail_msg("%s", tu_message());
}

/* ---- Results ---- */

static void a_model_computes_what_its_graph_computes(void **unused) {
    (void)unused;
    static const char *const devices[] = {"ref", "cpu:0"};
    static uint8_t images[SAMPLES * PIXELS];
    fill_images(images);
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        network n;
        float expected[CLASSES], actual[SAMPLES * CLASSES];
        tu_program *program;
        begin_network(&n, 1);
        set_statistics(&n);
        assert_int_equal(
            tu_compile(n.graph, &program, .devices = "ref", .fetch = &n.probability, .fetch_count = 1),
            TU_OK);
        tu_model *model = make_model(&n, TU_OPTIONS(tu_model_options, .devices = devices[d], .max_batch = 8));
        run_model(model, SAMPLES, images, actual);
        for (int i = 0; i < SAMPLES; i++) {
            assert_int_equal(
                tu_run(program, n.state, 1, &(tu_feed){n.x, images + i * PIXELS}, (void *[]){expected}),
                TU_OK);
            for (int k = 0; k < CLASSES; k++)
                assert_true(fabs((double)expected[k] - (double)actual[i * CLASSES + k]) < 2e-6);
        }
        tu_model_free(model);
        tu_program_free(program);
        end_network(&n);
    }
}

static void bits_depend_neither_on_the_batch_nor_on_threads(void **unused) {
    (void)unused;
    static const int64_t batches[] = {1, 2, 3, 5, 8, 13, 32};
    static uint8_t images[SAMPLES * PIXELS];
    float expected[SAMPLES * CLASSES], actual[SAMPLES * CLASSES];
    network n;
    fill_images(images);
    begin_network(&n, 1);
    set_statistics(&n);
    tu_model *one =
        make_model(&n, TU_OPTIONS(tu_model_options, .devices = "cpu:0", .threads = 1, .max_batch = 1));
    run_model(one, SAMPLES, images, expected);
    tu_model_free(one);
    for (int threads = 1; threads <= 3; threads++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            tu_model *model = make_model(&n, TU_OPTIONS(tu_model_options, .devices = "cpu:0",
                                                        .threads = threads, .max_batch = batches[b]));
            memset(actual, 0, sizeof actual);
            run_model(model, SAMPLES, images, actual);
            assert_memory_equal(actual, expected, sizeof expected);
            tu_model_free(model);
        }
    end_network(&n);
}

static void half_precision_is_close(void **unused) {
    (void)unused;
    static uint8_t images[SAMPLES * PIXELS];
    float expected[SAMPLES * CLASSES], actual[SAMPLES * CLASSES];
    network n;
    fill_images(images);
    begin_network(&n, 1);
    set_statistics(&n);
    tu_model *f32 = make_model(&n, TU_OPTIONS(tu_model_options, .devices = "cpu:0"));
    tu_model *bf16 = make_model(&n, TU_OPTIONS(tu_model_options, .devices = "cpu:0", .precision = "bf16"));
    run_model(f32, SAMPLES, images, expected);
    run_model(bf16, SAMPLES, images, actual);
    double largest = 0;
    for (int i = 0; i < SAMPLES * CLASSES; i++)
        largest = fmax(largest, fabs((double)(actual[i] - expected[i])));
    assert_true(largest > 0 && largest < 0.05);
    tu_model_free(f32);
    tu_model_free(bf16);
    end_network(&n);
}

/* Sums are large enough to be divided among threads in training. */
static void sums_add_in_one_order(void **unused) {
    (void)unused;
    enum { H = 9, C = 2048, COUNT = 3 };
    static float x[COUNT * H * H * C], expected[COUNT * C], actual[COUNT * C];
    tu_graph *graph;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_value input = tu_batch_input(graph, "x", TU_F32, TU_SHAPE(1, H, H, C));
    tu_output(tu_mean(tu_tanh(input), .axes = TU_AXES(1, 2)), "mean");
    for (int i = 0; i < COUNT * H * H * C; i++) x[i] = (float)(i * 193 % 1009) / 500 - 1;
    for (int threads = 1; threads <= 8; threads += 3)
        for (int64_t batch = 1; batch <= 4; batch *= 2) {
            tu_model *model;
            assert_int_equal(
                tu_model_new(graph, NULL, &model, .devices = "cpu:0", .threads = threads, .max_batch = batch),
                TU_OK);
            bool is_first = threads == 1 && batch == 1;
            assert_int_equal(tu_model_run(model, COUNT, x, is_first ? expected : actual), TU_OK);
            if (!is_first) assert_memory_equal(actual, expected, sizeof expected);
            tu_model_free(model);
        }
    tu_graph_free(graph);
}

/* ---- Frozen graphs ---- */

static const tu__node *find_operation(const tu_graph *graph, tu__opcode op) {
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->op->code == op) return graph->nodes[i];
    return NULL;
}

static void freezing_folds_normalisation_and_shares_weights(void **unused) {
    (void)unused;
    network n;
    tu_graph *frozen, *larger;
    begin_network(&n, 1);
    tu__named_tensor variables[32];
    static float values[32][1 << 16];
    size_t count = tu_state_variable_count(n.state);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tu_state_variable(n.state, i, &variables[i].name, &variables[i].type), TU_OK);
        size_t bytes = tu_type_bytes(variables[i].type);
        assert_true(bytes <= sizeof *values);
        assert_int_equal(tu_state_get(n.state, variables[i].name, values[i], bytes), TU_OK);
        variables[i].data = values[i];
    }
    assert_int_equal(tu__freeze(n.graph, count, variables, TU__PRECISION_AS_BUILT, &frozen), TU_OK);
    assert_null(find_operation(frozen, TU__OP_VARIABLE));
    assert_null(find_operation(frozen, TU__OP_RSQRT));
    assert_null(find_operation(frozen, TU__OP_SUB));
    assert_int_equal(tu__rebatch(frozen, 4, &larger), TU_OK);
    assert_true(larger->is_frozen);
    const tu__node *conv = find_operation(frozen, TU__OP_CONV2D),
                   *same = find_operation(larger, TU__OP_CONV2D);
    assert_non_null(frozen->nodes[conv->inputs[1].node]->shared);
    assert_ptr_equal(frozen->nodes[conv->inputs[1].node]->data, larger->nodes[same->inputs[1].node]->data);
    assert_int_equal(same->outputs[0].shape.dim[0], 4);
    assert_int_equal(tu_graph_verify(larger), TU_OK);
    tu_graph_free(frozen); /* the other graph keeps the data */
    assert_non_null(larger->nodes[same->inputs[1].node]->data);
    tu_graph_free(larger);
    assert_int_equal(tu__freeze(n.graph, count - 1, variables, TU__PRECISION_AS_BUILT, &frozen),
                     TU_NOT_FOUND);
    assert_non_null(strstr(tu_message(), "there is no value for variable 'logits/bias' f32[10]"));
    end_network(&n);
}

static void expect_refused(tu_value result, const char *message) {
    tu_model *model;
    tu_graph *graph = result.graph;
    tu_state *state;
    tu_output(result, "result");
    if (tu_graph_status(graph) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(graph, &state), TU_OK);
    assert_int_equal(tu_model_new(graph, state, &model, .devices = "ref"), TU_UNSUPPORTED);
    if (!strstr(tu_message(), message)) fail_msg("%s", tu_message());
    assert_null(model);
    tu_state_free(state);
    tu_graph_free(graph);
}

static tu_value new_input(int64_t batch) {
    tu_graph *graph;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    return tu_batch_input(graph, "x", TU_F32, TU_SHAPE(batch, 6));
}

static void graphs_that_mix_samples_are_refused(void **unused) {
    (void)unused;
    tu_value x = new_input(4);
    expect_refused(tu_sum(x, .axes = TU_AXES(0)), "sum 'sum' combines all samples");
    x = new_input(4);
    expect_refused(tu_softmax(x, 0), "softmax 'softmax' normalises over samples");
    x = new_input(4);
    expect_refused(tu_flip(x, 0), "reverses the samples");
    x = new_input(4);
    const float rows[4 * 6] = {1, 2, 3};
    expect_refused(tu_add(x, tu_constant(x.graph, TU_F32, TU_SHAPE(4, 6), rows)),
                   "a row for each of 4 samples");
    x = new_input(4);
    expect_refused(tu_transpose(x, 1, 0), "has no row per sample");
    x = new_input(4);
    expect_refused(tu_dropout(x, 0.5), "cannot be part of a model");
    x = new_input(4);
    expect_refused(tu_batch_norm(x), "build the graph with tu_set_training(graph, false)");
}

/* ---- Wrong use ---- */

static void wrong_calls_say_what_was_expected(void **unused) {
    (void)unused;
    network n;
    uint8_t images[2 * PIXELS] = {0};
    float probabilities[2 * CLASSES];
    begin_network(&n, 1);
    tu_model *model = make_model(&n, TU_OPTIONS(tu_model_options, .devices = "ref", .max_batch = 2));
    tu_type x = {TU_U8, TU_SHAPE(2, 12, 12, 3)}, y = {TU_F32, TU_SHAPE(2, CLASSES)};
    const struct {
        tu_model_feed feed;
        tu_model_fetch fetch;
        int64_t count;
        tu_status status;
        const char *message;
    } cases[] = {
        {{"y", x, images}, {"logits", y, probabilities}, 2, TU_NOT_FOUND, "no input 'y': expected x"},
        {{"x", x, images},
         {"loss", y, probabilities},
         2,
         TU_NOT_FOUND,
         "no output 'loss': expected logits, probability"},
        {{"x", x, images},
         {"logits", y, probabilities},
         1,
         TU_INVALID,
         "has type u8[2,12,12,3]: expected u8[1,12,12,3]"},
        {{"x", {TU_F32, x.shape}, images},
         {"logits", y, probabilities},
         2,
         TU_INVALID,
         "expected u8[2,12,12,3]"},
        {{"x", x, images}, {"logits", x, probabilities}, 2, TU_INVALID, "output 'logits' has type u8"},
        {{"x", x, NULL}, {"logits", y, probabilities}, 2, TU_INVALID, "input 'x' is NULL"},
        {{"x", x, images}, {"logits", y, NULL}, 2, TU_INVALID, "output 'logits' is NULL"},
        {{"x", x, images}, {"logits", y, probabilities}, -1, TU_INVALID, "cannot run -1 samples"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tu_model_run_named(model, cases[i].count, 1, &cases[i].feed, 1, &cases[i].fetch),
                         cases[i].status);
        if (!strstr(tu_message(), cases[i].message)) fail_msg("%s", tu_message());
    }
    assert_int_equal(tu_model_run_named(model, 2, 0, NULL, 0, NULL), TU_INVALID);
    assert_non_null(strstr(tu_message(), "input 'x' is missing"));
    assert_int_equal(tu_model_run(model, 0, NULL, NULL), TU_OK);
    tu_model_free(model);
    assert_int_equal(tu_model_new(n.graph, n.state, &model, .devices = "cpu:0,ref"), TU_INVALID);
    assert_int_equal(tu_model_new(n.graph, n.state, &model, .max_batch = -1), TU_INVALID);
    assert_int_equal(tu_model_new(n.graph, n.state, &model, .precision = "f33"), TU_INVALID);
    end_network(&n);
}

static void a_model_describes_itself(void **unused) {
    (void)unused;
    network n;
    const char *name;
    tu_type type;
    begin_network(&n, 1);
    tu_model *model =
        make_model(&n, TU_OPTIONS(tu_model_options, .devices = "cpu:0", .max_batch = 12, .sessions = 3));
    assert_int_equal(tu_model_input_count(model), 1);
    assert_int_equal(tu_model_input(model, 0, &name, &type), TU_OK);
    assert_string_equal(name, "x");
    assert_true(type.dtype == TU_U8 && tu_shape_equal(type.shape, TU_SHAPE(12, 12, 3)));
    assert_int_equal(tu_model_output_count(model), 2);
    assert_int_equal(tu_model_output(model, 1, &name, &type), TU_OK);
    assert_string_equal(name, "probability");
    assert_int_equal(tu_model_output(model, 2, &name, &type), TU_NOT_FOUND);
    assert_int_equal(tu_model_program_count(model), 4); /* 8, 4, 2, 1 */
    assert_int_equal(tu_model_program_batch(model, 0), 8);
    assert_int_equal(tu_model_program_batch(model, 3), 1);
    tu_model_memory_report memory = TU_SIZED(tu_model_memory_report);
    assert_int_equal(tu_model_memory(model, &memory), TU_OK);
    assert_int_equal(memory.total_bytes, memory.weight_bytes + 3 * memory.scratch_bytes);
    assert_true(memory.scratch_bytes > 0 && memory.weight_bytes > 32 * 32 * 9 * 4);
    tu_model_free(model);
    end_network(&n);
}

/* ---- Threads ---- */

enum { THREADS = 8, RUNS = 20 };

typedef struct caller {
    pthread_t thread;
    tu_model *model;
    const uint8_t *images;
    float results[SAMPLES * CLASSES];
} caller;

static void *call_often(void *argument) {
    caller *c = argument;
    for (int i = 0; i < RUNS; i++) {
        memset(c->results, 0, sizeof c->results);
        run_model(c->model, SAMPLES, c->images, c->results);
    }
    return NULL;
}

static void threads_get_the_bits_of_one_thread(void **unused) {
    (void)unused;
    static uint8_t images[SAMPLES * PIXELS];
    static caller callers[THREADS];
    float expected[SAMPLES * CLASSES];
    network n;
    fill_images(images);
    begin_network(&n, 1);
    for (int sessions = 1; sessions <= THREADS; sessions += 3) {
        tu_model *model = make_model(&n, TU_OPTIONS(tu_model_options, .devices = "cpu:0", .threads = 1,
                                                    .max_batch = 4, .sessions = sessions));
        run_model(model, SAMPLES, images, expected);
        for (int t = 0; t < THREADS; t++) {
            callers[t].model = model;
            callers[t].images = images;
            pthread_create(&callers[t].thread, NULL, call_often, &callers[t]);
        }
        for (int t = 0; t < THREADS; t++) {
            pthread_join(callers[t].thread, NULL);
            assert_memory_equal(callers[t].results, expected, sizeof expected);
        }
        tu_model_free(model);
    }
    end_network(&n);
}

/* ---- A device with memory of its own ---- */

static void device_memory_has_weights_once(void **unused) {
    (void)unused;
    static uint8_t images[SAMPLES * PIXELS];
    float expected[SAMPLES * CLASSES], actual[SAMPLES * CLASSES];
    network n;
    fill_images(images);
    register_discrete_device();
    begin_network(&n, 1);
    set_statistics(&n);
    tu_model *cpu = make_model(&n, TU_OPTIONS(tu_model_options, .devices = "cpu:0", .threads = 1));
    run_model(cpu, SAMPLES, images, expected);
    uint64_t allocations[2];
    for (int i = 0; i < 2; i++) {
        tu_model *model = make_model(&n, TU_OPTIONS(tu_model_options, .devices = "discrete", .threads = 1,
                                                    .max_batch = i ? 8 : 1, .sessions = 2));
        memset(actual, 0, sizeof actual);
        run_model(model, SAMPLES, images, actual);
        for (int k = 0; k < SAMPLES * CLASSES; k++) assert_true(fabsf(actual[k] - expected[k]) < 2e-6F);
        allocations[i] = discrete.live_allocations;
        tu_model_free(model);
        assert_int_equal(discrete.live_allocations, 0);
    }
    /* Three more programs: each has a block of small constants, but no weights of its own. */
    assert_in_range(allocations[1], allocations[0], allocations[0] + 3);
    tu_model_free(cpu);
    end_network(&n);
}

/* ---- Memory ---- */

static void every_failed_allocation_is_reported(void **unused) {
    (void)unused;
    uint8_t image[PIXELS] = {0};
    float probabilities[CLASSES];
    network n;
    uint64_t failed = 0;
    bool is_done = false;
    begin_network(&n, 1);
    tu_model_free(make_model(&n, TU_OPTIONS(tu_model_options, .devices = "cpu:0", .max_batch = 2)));
    for (uint64_t nth = 1; !is_done;
         nth += 1 + nth / 40) { /* neighbouring allocations have the same caller */
        tu_model *model = NULL;
        int64_t live = tu__alloc_live();
        tu__alloc_fail_at(nth);
        tu_status status =
            tu_model_new(n.graph, n.state, &model, .devices = "cpu:0", .max_batch = 2, .sessions = 2);
        const tu_model_feed feed = {"x", {TU_U8, TU_SHAPE(1, 12, 12, 3)}, image};
        const tu_model_fetch fetch = {"probability", {TU_F32, TU_SHAPE(1, CLASSES)}, probabilities};
        if (status == TU_OK) status = tu_model_run_named(model, 1, 1, &feed, 1, &fetch);
        tu__alloc_fail_at(0);
        assert_true(status == TU_OK || status == TU_NO_MEMORY);
        is_done = status == TU_OK;
        failed += !is_done;
        tu_model_free(model);
        assert_int_equal(tu__alloc_live(), live);
    }
    assert_true(failed > 100);
    end_network(&n);
}

static void running_allocates_nothing(void **unused) {
    (void)unused;
    static uint8_t images[(SAMPLES + 2) * PIXELS];
    float probabilities[(SAMPLES + 2) * CLASSES];
    network n;
    begin_network(&n, 1);
    tu_model *model = make_model(&n, TU_OPTIONS(tu_model_options, .devices = "cpu:0", .max_batch = 8));
    uint64_t count = tu__alloc_count();
    for (int i = 0; i < 50; i++) run_model(model, 15 - i % 15, images, probabilities);
    assert_int_equal(tu__alloc_count(), count);
    tu_model_free(model);
    end_network(&n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_computes_what_its_graph_computes),
        cmocka_unit_test(bits_depend_neither_on_the_batch_nor_on_threads),
        cmocka_unit_test(sums_add_in_one_order),
        cmocka_unit_test(half_precision_is_close),
        cmocka_unit_test(freezing_folds_normalisation_and_shares_weights),
        cmocka_unit_test(graphs_that_mix_samples_are_refused),
        cmocka_unit_test(wrong_calls_say_what_was_expected),
        cmocka_unit_test(a_model_describes_itself),
        cmocka_unit_test(threads_get_the_bits_of_one_thread),
        cmocka_unit_test(device_memory_has_weights_once),
        cmocka_unit_test(every_failed_allocation_is_reported),
        cmocka_unit_test(running_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
