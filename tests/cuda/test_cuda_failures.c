/* Makes the Nth call of NVIDIA's functions fail, for every N, while a network is compiled for the GPU, trained for a
 * few steps and read back, and while a model is compiled and run. Each failure must return a status with a message that names the function, and must leak
 * nothing: no host memory, no object of the driver or the libraries.
 *
 * A plain run fails some of the calls; with TUTTI_EVERY_CALL each of them.
 */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "cuda/failing_calls.h"
#include "graph/graph.h"

enum { BATCH = 2, MAX_SIDE = 24, CHANNELS = 3, STEPS = 3 };

typedef struct shape {
    int64_t height, width;
} shape;

typedef struct work {
    shape images;
    tu_graph *graph;
    tu_network_graph model;
    tu_program *program;
    tu_state *state;
} work;

static tu_status build(work *w) {
    TU_TRY(tu_graph_new(&w->graph));
    w->model = TU_SIZED(tu_network_graph);
    TU_TRY(tu_network_build(w->graph, "tutorial-cnn", &w->model, .batch = BATCH, .height = w->images.height,
                            .width = w->images.width, .base = 4, .classes = 3));
    return tu_add_sgd(w->model.loss, 0.1, 0.9);
}

static tu_status train(work *w) {
    static const float images[STEPS * BATCH * MAX_SIDE * MAX_SIDE * CHANNELS] = {1, 2, 3};
    static const int labels[STEPS * BATCH] = {0, 2, 1, 1, 0, 2};
    float loss[STEPS];
    TU_TRY(tu_run(w->program, w->state, 2, (tu_feed[]){{w->model.images, images}, {w->model.labels, labels}},
                  (void *[]){loss}));
    const tu_feed_many feeds[] = {{.input = w->model.images, .data = images},
                                  {.input = w->model.labels, .data = labels}};
    return tu_run_many(w->program, w->state, STEPS, 2, feeds, (void *[]){loss});
}

static tu_status read_variables(const work *w) {
    for (size_t i = 0; i < tu_state_variable_count(w->state); i++) {
        const char *name;
        tu_type type;
        TU_TRY(tu_state_variable(w->state, i, &name, &type));
        void *data = malloc(tu_type_bytes(type));
        assert_non_null(data);
        tu_status status = tu_state_get(w->state, name, data, tu_type_bytes(type));
        free(data);
        TU_TRY(status);
    }
    return TU_OK;
}

typedef struct options {
    bool tune;
    uint64_t reserve; /* bytes of GPU memory */
} options;

static tu_status compile_and_train(options chosen, shape images) {
    work w = {.images = images};
    tu_status status = build(&w);
    if (status == TU_OK)
        status =
            tu_compile(w.graph, &w.program, .devices = "gpu", .fetch = &w.model.loss, .fetch_count = 1,
                       .updates = true, .tune_kernels = chosen.tune, .gpu_memory_reserve = chosen.reserve);
    if (status == TU_OK) status = tu_state_new(w.graph, &w.state, .seed = 1);
    if (status == TU_OK) status = train(&w);
    if (status == TU_OK) status = read_variables(&w);
    tu_program_free(w.program);
    tu_state_free(w.state);
    tu_graph_free(w.graph);
    return status;
}

/* Tuning results of a shape are stored, so each trial that is to time kernels uses another shape. */
static shape shape_of_trial(bool tune, unsigned nth) {
    enum { MIN_SIDE = 12, COUNT = MAX_SIDE - MIN_SIDE + 1 };
    return tune ? (shape){MIN_SIDE + nth % COUNT, MIN_SIDE + nth / COUNT % COUNT}
                : (shape){MIN_SIDE, MIN_SIDE};
}

static tu_status run_trial(const void *context, unsigned trial) {
    const options *chosen = context;
    return compile_and_train(*chosen, shape_of_trial(chosen->tune, trial));
}

static void fail_calls_of(options chosen, unsigned stride) {
    fail_calls(&(failing_calls){.work = run_trial,
                                .context = &chosen,
                                .stride = stride,
                                .max_ineffective = 40 / stride + 4,
                                .min_failures = 200 / stride});
}

static bool fails_every_call(void) {
    return getenv("TUTTI_EVERY_CALL") != NULL;
}

static void every_call_may_fail(void **unused) {
    (void)unused;
    fail_calls_of((options){0}, fails_every_call() ? 1 : 5);
}

/* Thousands of similar calls: only some are made to fail. */
static void calls_may_fail_while_kernels_are_timed(void **unused) {
    (void)unused;
    fail_calls_of((options){.tune = true}, fails_every_call() ? 7 : 37);
}

/* The reserve holds most of the memory; the rest comes from the driver. */
static void calls_may_fail_with_a_memory_reserve(void **unused) {
    (void)unused;
    fail_calls_of((options){.reserve = 64 << 10}, fails_every_call() ? 1 : 11);
}

/* ---- A model with a convolution that cuBLASLt computes ---- */

enum { PIXELS = 24, IN = 64, OUT = 128 }; /* enough tiles for the emulated GPU */

static tu_value add_weights(tu_graph *graph, tu_shape dimensions) {
    static uint16_t data[OUT * IN];
    for (size_t i = 0; i < OUT * IN; i++) data[i] = (uint16_t)(0x3f80 + i % 8); /* bf16: near 1 */
    return tu_constant(graph, TU_BF16, dimensions, data);
}

static tu_status run_model(const void *context, unsigned trial) {
    static uint16_t x[PIXELS * PIXELS * IN], residual[PIXELS * PIXELS * OUT], y[PIXELS * PIXELS * OUT];
    tu_graph *graph = NULL;
    tu_program *program = NULL;
    tu_state *state = NULL;
    (void)context;
    (void)trial;
    TU_TRY(tu_graph_new(&graph));
    tu_feed feeds[] = {{tu_input(graph, "x", TU_BF16, TU_SHAPE(1, PIXELS, PIXELS, IN)), x},
                       {tu_input(graph, "residual", TU_BF16, TU_SHAPE(1, PIXELS, PIXELS, OUT)), residual}};
    tu_value product = tu_convolve_with(feeds[0].input, add_weights(graph, TU_SHAPE(OUT, 1, 1, IN)),
                                        &(tu_convolve_options){.struct_size = sizeof(tu_convolve_options)});
    tu_value sum = tu_add(tu_add(product, add_weights(graph, TU_SHAPE(OUT))), feeds[1].input),
             result = tu_relu(sum);
    tu_status status = tu_graph_status(graph);
    graph->is_frozen = true;
    if (status == TU_OK)
        status = tu_compile(graph, &program, .devices = "gpu", .fetch = &result, .fetch_count = 1);
    if (status == TU_OK) status = tu_state_new(graph, &state);
    if (status == TU_OK) status = tu_run(program, state, 2, feeds, (void *[]){y});
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(graph);
    return status;
}

static void calls_may_fail_in_a_model(void **unused) {
    (void)unused;
    fail_calls(&(failing_calls){.work = run_model, .stride = 1, .max_ineffective = 40, .min_failures = 40});
}

int main(void) {
    use_emulated_gpu();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(calls_may_fail_while_kernels_are_timed),
        cmocka_unit_test(calls_may_fail_with_a_memory_reserve),
        cmocka_unit_test(calls_may_fail_in_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
