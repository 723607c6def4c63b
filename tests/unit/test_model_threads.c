/* Tests of models and threads: eight threads with eight sessions get the bits of one thread; memory stays the same over many
 * runs; a forked child can use a model; and a model whose threads cannot be started is refused. */
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "base/thread_pool.h"

enum { CALLERS = 8, CALLS = 12, SAMPLES = 11, PIXELS = 16 * 16 * 3, CLASSES = 10 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { IS_SANITIZED = 1 }; /* a sanitizer allocates memory of its own */
#else
enum { IS_SANITIZED = 0 };
#endif

/* Returns a model with a first layer of `units`, large enough that loops are divided among threads. */
static tu_model *new_model(int64_t units, int threads, int sessions, int64_t max_batch) {
    tu_graph *graph;
    tu_state *state;
    tu_model *model = NULL;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_set_training(graph, false);
    tu_value x = tu_batch_input(graph, "images", TU_F32, TU_SHAPE(1, 16, 16, 3));
    x = tu_relu(tu_add(tu_pad(x, 1, 1, 1, 0), tu_fill(graph, TU_F32, TU_SCALAR, 0.25)));
    tu_value y = tu_dense(tu_flatten(tu_max_pool(x)), .units = units, .act = TU_TANH, .name = "hidden");
    tu_output(tu_softmax(tu_dense(y, .units = CLASSES, .name = "logits"), -1), "probability");
    assert_int_equal(tu_graph_status(graph), TU_OK);
    assert_int_equal(tu_state_new(graph, &state, .seed = 3), TU_OK);
    tu_status status = tu_model_new(graph, state, &model, .devices = "cpu:0", .threads = threads,
                                    .sessions = sessions, .max_batch = max_batch);
    tu_state_free(state);
    tu_graph_free(graph);
    if (status != TU_OK) assert_null(model);
    return model;
}

static void fill_images(float *images, int samples) {
    for (int i = 0; i < samples * PIXELS; i++) images[i] = (float)((i * 37 + i / 7 * 11) % 251) / 251;
}

static void run_model(tu_model *model, int64_t count, const float *images, float *probabilities) {
    if (tu_model_run(model, count, images, probabilities) != TU_OK) fail_msg("%s", tu_message());
}

/* ---- Bits ---- */

typedef struct caller {
    pthread_t thread;
    tu_model *model;
    const float *images, *expected;
    int number, wrong;
} caller;

/* Calls with changing numbers of samples, and compares each answer. */
static void *call_often(void *argument) {
    caller *c = argument;
    float results[SAMPLES * CLASSES];
    for (int i = 0; i < CALLS; i++) {
        int count = 1 + (c->number + i) % SAMPLES;
        c->wrong += tu_model_run(c->model, count, c->images, results) != TU_OK ||
                    memcmp(results, c->expected, (size_t)count * CLASSES * sizeof *results) != 0;
    }
    return NULL;
}

static void check_callers(tu_model *model, const float *images, const float *expected) {
    caller callers[CALLERS];
    for (int t = 0; t < CALLERS; t++) {
        callers[t] = (caller){.model = model, .images = images, .expected = expected, .number = t};
        pthread_create(&callers[t].thread, NULL, call_often, &callers[t]);
    }
    for (int t = 0; t < CALLERS; t++) {
        pthread_join(callers[t].thread, NULL);
        assert_int_equal(callers[t].wrong, 0);
    }
}

static void eight_threads_get_the_bits_of_one(void **state) {
    (void)state;
    static float images[SAMPLES * PIXELS];
    float expected[SAMPLES * CLASSES];
    fill_images(images, SAMPLES);
    tu_model *alone = new_model(256, 1, 1, 1);
    assert_non_null(alone);
    run_model(alone, SAMPLES, images, expected);
    tu_model_free(alone);
    static const int cores[] = {0, 1, 3 * CALLERS}; /* as many as there are; one for each call; three */
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++) {
        tu__thread_pool_set_cores(cores[i]);
        tu_model *model = new_model(256, 3, CALLERS, 4);
        assert_non_null(model);
        check_callers(model, images, expected);
        tu_model_free(model);
    }
    tu__thread_pool_set_cores(0);
}

/* ---- Memory ---- */

static long resident_kilobytes(void) {
    unsigned long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &size, &resident), 2);
    fclose(file);
    return (long)resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Returns the number of runs; TUTTI_RUNS sets a larger one. */
static long number_of_runs(void) {
    const char *text = getenv("TUTTI_RUNS");
    return text ? atol(text) : 20000;
}

static void memory_stays_the_same_over_many_runs(void **state) {
    (void)state;
    enum { WARM_UP = 1000, ALLOWED_KILOBYTES = 64 };
    static float images[3 * PIXELS];
    float results[3 * CLASSES];
    fill_images(images, 3);
    tu_model *model = new_model(8, 2, 2, 2);
    assert_non_null(model);
    for (long i = 0; i < WARM_UP; i++) run_model(model, 1 + i % 3, images, results);
    uint64_t allocations = tu__alloc_count();
    int64_t live = tu__alloc_live();
    long before = resident_kilobytes(), runs = number_of_runs();
    for (long i = 0; i < runs; i++) run_model(model, 1 + i % 3, images, results);
    assert_int_equal(tu__alloc_count(), allocations);
    assert_int_equal(tu__alloc_live(), live);
    if (!IS_SANITIZED) assert_true(resident_kilobytes() <= before + ALLOWED_KILOBYTES);
    tu_model_free(model);
}

/* ---- Processes ---- */

static void a_forked_child_can_use_a_model(void **state) {
    (void)state;
    static float images[SAMPLES * PIXELS];
    float expected[SAMPLES * CLASSES], results[SAMPLES * CLASSES];
    fill_images(images, SAMPLES);
    tu_model *model = new_model(256, 3, 1, 4);
    assert_non_null(model);
    run_model(model, SAMPLES, images, expected);
    pid_t child = fork();
    if (child == 0) {
        tu_status status = tu_model_run(model, SAMPLES, images, results);
        bool is_same = status == TU_OK && memcmp(results, expected, sizeof results) == 0;
        tu_model_free(model);
        _exit(is_same ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    run_model(model, SAMPLES, images, results);
    assert_memory_equal(results, expected, sizeof expected);
    tu_model_free(model);
}

/* In a child, because the limit of address space stays. */
static void a_model_whose_threads_cannot_start_is_refused(void **state) {
    (void)state;
    if (IS_SANITIZED) skip(); /* sanitizers reserve more address space than the limit */
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {400 << 20, 400 << 20}; /* 8 MiB of stack for each thread */
        setrlimit(RLIMIT_AS, &limit);
        int64_t live = tu__alloc_live();
        tu_model *model = new_model(8, 100, 2, 1);
        bool is_reported = !model && strstr(tu_message(), "of 100 for parallel loops");
        _exit(is_reported && tu__alloc_live() == live ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_threads_get_the_bits_of_one),
        cmocka_unit_test(memory_stays_the_same_over_many_runs),
        cmocka_unit_test(a_forked_child_can_use_a_model),
        cmocka_unit_test(a_model_whose_threads_cannot_start_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
