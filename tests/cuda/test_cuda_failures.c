/* Makes the Nth call of NVIDIA's functions fail, for every N, while a network is compiled for the GPU, trained for a
 * few steps and read back. Each failure must return a status with a message that names the function, and must leak
 * nothing: no host memory, no object of the driver or the libraries.
 *
 * A plain run fails some of the calls; with TUTTI_EVERY_CALL each of them.
 */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "cuda/failing_calls.h"

enum { BATCH = 2, MAX_SIDE = 24, CHANNELS = 3, STEPS = 3 };

typedef struct shape {
    int64_t height, width;
} shape;

typedef struct work {
    shape images;
    tu_graph *graph;
    tu_model_graph model;
    tu_program *program;
    tu_state *state;
} work;

static tu_status build(work *w) {
    TU_TRY(tu_graph_new(&w->graph));
    w->model = TU_SIZED(tu_model_graph);
    TU_TRY(tu_model_build(w->graph, "tutorial-cnn", &w->model, .batch = BATCH, .height = w->images.height,
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

int main(void) {
    use_emulated_gpu();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(calls_may_fail_while_kernels_are_timed),
        cmocka_unit_test(calls_may_fail_with_a_memory_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
