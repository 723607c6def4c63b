/* Every call of NVIDIA's functions may fail: the Nth does, for every N, while a network is compiled for the card, trained
 * for a few steps and read back. What comes of it is a status with a message that names the function, whatever the
 * engine was doing, and nothing stays behind: no host memory, no object of the driver or the libraries.
 *
 * A plain run fails some of the calls; with TUTTI_EVERY_CALL each of them. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "cuda/emulated.h"

enum { BATCH = 2, MOST_SIDE = 24, CHANNELS = 3, STEPS = 3 };

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
    TU_TRY(tu_model_build(w->graph, "tutorial-cnn", &w->model, .batch = BATCH, .height = w->images.height,
                          .width = w->images.width, .base = 4, .classes = 3));
    return tu_add_sgd(w->model.loss, 0.1, 0.9);
}

static tu_status train(work *w) {
    static const float images[STEPS * BATCH * MOST_SIDE * MOST_SIDE * CHANNELS] = {1, 2, 3};
    static const int labels[STEPS * BATCH] = {0, 2, 1, 1, 0, 2};
    float loss[STEPS];
    TU_TRY(tu_run(w->program, w->state, 2, (tu_feed[]){{w->model.images, images}, {w->model.labels, labels}},
                  (void *[]){loss}));
    const tu_feed_many feeds[] = {{.input = w->model.images, .data = images},
                                  {.input = w->model.labels, .data = labels}};
    return tu_run_many(w->program, w->state, STEPS, 2, feeds, (void *[]){loss});
}

static tu_status read_variables(const work *w) {
    for (size_t i = 0; i < tu_state_count(w->state); i++) {
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

typedef struct wish {
    bool tune;
    uint64_t reserve; /* bytes of the card */
} wish;

static tu_status everything(wish wanted, shape images) {
    work w = {.images = images};
    tu_status status = build(&w);
    if (status == TU_OK)
        status =
            tu_compile(w.graph, &w.program, .devices = "gpu", .fetch = &w.model.loss, .fetch_count = 1,
                       .updates = true, .tune_kernels = wanted.tune, .gpu_memory_reserve = wanted.reserve);
    if (status == TU_OK) status = tu_state_new(w.graph, &w.state, .seed = 1);
    if (status == TU_OK) status = train(&w);
    if (status == TU_OK) status = read_variables(&w);
    tu_program_free(w.program);
    tu_state_free(w.state);
    tu_graph_free(w.graph);
    return status;
}

/* "cudnnCreate" is a function, "cudnn 3" a word. */
static bool has_function(const char *message, const char *beginning) {
    size_t length = strlen(beginning);
    for (const char *at = message; (at = strstr(at, beginning)); at += length)
        if (at[length] >= 'A' && at[length] <= 'Z') return true;
    return false;
}

static bool names_a_function(const char *message) {
    return has_function(message, "cu") || has_function(message, "nvrtc") ||
           has_function(message, "cublasLt") || has_function(message, "cudnn") ||
           has_function(message, "cusolverDn");
}

static void set_failure(unsigned nth) {
    char text[16];
    snprintf(text, sizeof text, "%u", nth);
    setenv("TUTTI_CUDA_FAIL", text, 1);
}

/* What a shape's best kernels are is remembered for good, so a trial that is to time them takes a shape of its own. */
static shape shape_of(bool tune, unsigned nth) {
    enum { LEAST = 12, COUNT = MOST_SIDE - LEAST + 1 };
    return tune ? (shape){LEAST + nth % COUNT, LEAST + nth / COUNT % COUNT} : (shape){LEAST, LEAST};
}

/* The last call is behind us when so many in a row may fail without any effect. A few of them may also fail unharmed
 * before: those that only ask. */
enum { BEYOND_THE_LAST = 40, UNHARMED = 4 };

static void fail_calls(wish wanted, unsigned step) {
    char text[256];
    unsigned failures = 0, since = 0, trial = 0;
    assert_int_equal(everything(wanted, shape_of(wanted.tune, trial)),
                     TU_OK); /* what libraries keep is taken here */
    int64_t blocks = tu__alloc_live();
    size_t objects = emulated_live(text, sizeof text);
    for (unsigned nth = 1; since < BEYOND_THE_LAST / step + UNHARMED; nth += step) {
        set_failure(nth);
        tu_status status = everything(wanted, shape_of(wanted.tune, ++trial));
        unsetenv("TUTTI_CUDA_FAIL");
        since = status == TU_OK ? since + 1 : 0;
        failures += status != TU_OK;
        if (status != TU_OK && !names_a_function(tu_message()))
            fail_msg("call %u failed, and the message does not say which it was: '%s'", nth, tu_message());
        if (tu__alloc_live() != blocks)
            fail_msg("call %u failed ('%s'): %ld blocks of memory were lost", nth, tu_message(),
                     (long)(tu__alloc_live() - blocks));
        if (emulated_live(text, sizeof text) != objects)
            fail_msg("call %u failed ('%s'): not given back: %s", nth, tu_message(), text);
    }
    assert_int_equal(everything(wanted, shape_of(wanted.tune, 0)), TU_OK);
    assert_true(failures > 200 / step);
    print_message("%u calls failed, each once\n", failures);
}

static bool is_thorough(void) {
    return getenv("TUTTI_EVERY_CALL") != NULL;
}

static void every_call_may_fail(void **unused) {
    (void)unused;
    fail_calls((wish){0}, is_thorough() ? 1 : 5);
}

/* Thousands of calls that are much the same: some of them. */
static void calls_may_fail_while_kernels_are_timed(void **unused) {
    (void)unused;
    fail_calls((wish){.tune = true}, is_thorough() ? 7 : 37);
}

/* A reserve for most of what is wanted; the rest is the driver's. */
static void calls_may_fail_on_a_card_with_a_reserve(void **unused) {
    (void)unused;
    fail_calls((wish){.reserve = 64 << 10}, is_thorough() ? 1 : 11);
}

int main(void) {
    use_emulated_card();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(calls_may_fail_while_kernels_are_timed),
        cmocka_unit_test(calls_may_fail_on_a_card_with_a_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
