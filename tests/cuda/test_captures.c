/* Captures of CUDA graphs that other threads disturb. On logical devices of one GPU, which share a context, trainings begin
 * and end while others capture: opening and closing a device synchronises the context, which invalidates captures. A
 * capture that was invalidated nevertheless is repeated. Results are bitwise those of an undisturbed training. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "cuda/emulated.h"
#include "state_checks.h"

enum { ROWS = 4, SIDE = 4, CHANNELS = 16, STEPS = 5, CALL_STEPS = 3 /* of the last steps, in one call */ };

static float images[STEPS][ROWS][SIDE][SIDE][CHANNELS];

typedef struct training {
    tu_graph *graph;
    tu_program *program;
    tu_state *state;
    tu_value x, loss;
    float losses[STEPS];
} training;

static tu_value branch(tu_value x, const char *name) {
    return tu_mean(tu_square(tu_dense(x, .units = 3, .act = TU_TANH, .name = name)));
}

/* A convolution of cuDNN, products of cuBLASLt, and branches that may be captured on several streams. */
static void build_graph(training *t) {
    t->x = tu_batch_input(t->graph, "x", TU_F32, TU_SHAPE(ROWS, SIDE, SIDE, CHANNELS));
    tu_value y = tu_flatten(tu_conv2d(t->x, .filters = CHANNELS, .size = 3, .act = TU_TANH, .name = "conv"));
    t->loss = tu_add(branch(tu_dropout(y, 0.25), "left"), branch(y, "right"));
}

/* After a failure, free the training too. */
static tu_status begin(training *t, const char *devices, const char *strategy) {
    *t = (training){0};
    TU_TRY(tu_graph_new(&t->graph));
    tu_set_training(t->graph, true);
    build_graph(t);
    TU_TRY(tu_add_sgd(t->loss, 0.1, 0.9));
    TU_TRY(tu_compile(t->graph, &t->program, .devices = devices, .strategy = strategy, .precision = "tf32",
                      .fetch = &t->loss, .fetch_count = 1, .updates = true));
    return tu_state_new(t->graph, &t->state, .seed = 3);
}

static void end(training *t) {
    tu_program_free(t->program);
    tu_state_free(t->state);
    tu_graph_free(t->graph);
}

static tu_status run_step(training *t, int step) {
    return tu_run(t->program, t->state, 1, &(tu_feed){t->x, images[step]}, (void *[]){&t->losses[step]});
}

static tu_status run_many(training *t, int first, int count) {
    return tu_run_many(t->program, t->state, (size_t)count, 1,
                       &(tu_feed_many){.input = t->x, .data = images[first]}, (void *[]){&t->losses[first]});
}

/* The second run and the second step of the call are captured. */
static tu_status run_all(training *t) {
    for (int i = 0; i < STEPS - CALL_STEPS; i++) TU_TRY(run_step(t, i));
    return run_many(t, STEPS - CALL_STEPS, CALL_STEPS);
}

static void run_undisturbed(training *t, const char *devices, const char *strategy) {
    if (begin(t, devices, strategy) != TU_OK || run_all(t) != TU_OK) fail_msg("%s", tu_message());
}

static void expect_message(const char *text) {
    if (!strstr(tu_message(), text)) fail_msg("'%s' is not in: %s", text, tu_message());
}

/* ---- Threads ---- */

typedef struct worker {
    pthread_t thread;
    int index;
    const float *expected;
    char problem[1024]; /* "" */
} worker;

static void note_problem(worker *w, tu_status status) {
    if (status != TU_OK) snprintf(w->problem, sizeof w->problem, "%s", tu_message());
}

static void note_result(worker *w, const float *got, size_t count) {
    if (!*w->problem && memcmp(got, w->expected, count * sizeof *got) != 0)
        snprintf(w->problem, sizeof w->problem, "the results differ from those of a single thread");
}

static void start(worker *w, void *(*function)(void *worker), int index, const float *expected) {
    *w = (worker){.index = index, .expected = expected};
    assert_int_equal(pthread_create(&w->thread, NULL, function, w), 0);
}

static void check(const worker *w) {
    if (*w->problem) fail_msg("gpu:0.%d: %s", w->index, w->problem);
}

/* A program that runs with one state and the other in turns. Each time it is bound to another state, its second run is
 * captured. */
enum { RUNS = 2 /* with a state */ };

typedef struct capturer {
    tu_graph *graph;
    tu_program *program;
    tu_state *states[2];
    tu_value x, y;
} capturer;

static tu_status begin_capturer(capturer *c, int logical_index) {
    char device[16];
    *c = (capturer){0};
    snprintf(device, sizeof device, "gpu:0.%d/8", logical_index);
    TU_TRY(tu_graph_new(&c->graph));
    tu_set_training(c->graph, true);
    c->x = tu_input(c->graph, "x", TU_F32, TU_SHAPE(ROWS, SIDE, SIDE, CHANNELS));
    c->y = tu_sum(tu_dropout(tu_tanh(c->x), 0.25));
    TU_TRY(tu_compile(c->graph, &c->program, .devices = device, .fetch = &c->y, .fetch_count = 1));
    for (int i = 0; i < 2; i++) TU_TRY(tu_state_new(c->graph, &c->states[i], .seed = (uint64_t)i + 1));
    return TU_OK;
}

static void end_capturer(capturer *c) {
    tu_program_free(c->program);
    for (int i = 0; i < 2; i++) tu_state_free(c->states[i]);
    tu_graph_free(c->graph);
}

static tu_status run_capturer(capturer *c, float y[2]) {
    for (int i = 0; i < 2 * RUNS; i++)
        TU_TRY(tu_run(c->program, c->states[i / RUNS], 1, &(tu_feed){c->x, images[0]},
                      (void *[]){&y[i / RUNS]}));
    return TU_OK;
}

static atomic_bool others_are_done;

static void *capture_until_others_are_done(void *argument) {
    worker *w = argument;
    capturer c;
    float y[2];
    note_problem(w, begin_capturer(&c, w->index));
    while (!*w->problem && !others_are_done) {
        note_problem(w, run_capturer(&c, y));
        note_result(w, y, 2);
    }
    end_capturer(&c);
    return NULL;
}

/* ---- Programs that open and close devices ---- */

/* With a handle of cuDNN. */
static tu_status train_once(const char *device, float losses[STEPS]) {
    training t;
    tu_status status = begin(&t, device, NULL);
    if (status == TU_OK) status = run_all(&t);
    memcpy(losses, t.losses, sizeof t.losses);
    end(&t);
    return status;
}

/* Compiles a graph, runs it once and frees it. */
static tu_status compute_once(tu_graph *graph, tu_value x, tu_value y, const char *devices,
                              const char *place) {
    static const float data[64 * 512];
    tu_program *program = NULL;
    size_t bytes = tu_type_bytes(tu_value_type(y));
    float *result = malloc(bytes);
    tu_status status =
        tu_compile(graph, &program, .devices = devices, .place = place, .fetch = &y, .fetch_count = 1);
    if (status == TU_OK) status = tu_run(program, NULL, 1, &(tu_feed){x, data}, (void *[]){result});
    free(result);
    tu_program_free(program);
    return status;
}

/* With a handle of cuSOLVER. */
static tu_status solve_once(tu_graph *graph, const char *device) {
    enum { SIZE = 65 }; /* more than Tutti's kernels solve */
    tu_value a = tu_input(graph, "a", TU_F32, TU_SHAPE(SIZE, SIZE));
    return compute_once(graph, a, tu_cholesky(a), device, NULL);
}

/* With memory that is pinned for the device, and peer access between two GPUs. */
static tu_status copy_once(tu_graph *graph, const char *device) {
    char devices[64], place[64];
    snprintf(devices, sizeof devices, "gpu:1,%s,cpu:0", device);
    snprintf(place, sizeof place, "tanh*=gpu:1,exp*=%.7s,sin*=cpu:0", device);
    tu_value x = tu_input(graph, "x", TU_F32, TU_SHAPE(64, 512)); /* large enough to be pinned */
    return compute_once(graph, x, tu_sin(tu_exp(tu_tanh(x))), devices, place);
}

static tu_status with_graph(tu_status (*function)(tu_graph *graph, const char *device), const char *device) {
    tu_graph *graph = NULL;
    TU_TRY(tu_graph_new(&graph));
    tu_status status = function(graph, device);
    tu_graph_free(graph);
    return status;
}

static void *open_and_close_devices(void *argument) {
    enum { ROUNDS = 2 };
    worker *w = argument;
    char device[16];
    snprintf(device, sizeof device, "gpu:0.%d/8", w->index);
    for (int i = 0; i < ROUNDS && !*w->problem; i++) {
        float losses[STEPS];
        note_problem(w, train_once(device, losses));
        note_result(w, losses, STEPS);
        if (!*w->problem) note_problem(w, with_graph(solve_once, device));
        if (!*w->problem) note_problem(w, with_graph(copy_once, device));
    }
    return NULL;
}

enum { CAPTURERS = 2, OTHERS = 2 };

/* The pause makes it likely that a call of another thread meets a capture. */
static void devices_are_opened_and_closed_while_others_capture(void **unused) {
    (void)unused;
    worker capturers[CAPTURERS], others[OTHERS];
    training alone;
    capturer alone_captured;
    float y[2];
    run_undisturbed(&alone, "gpu:0.0/8", NULL);
    assert_int_equal(begin_capturer(&alone_captured, 0), TU_OK);
    assert_int_equal(run_capturer(&alone_captured, y), TU_OK);
    end(&alone);
    setenv("FAKE_CUDA_CAPTURE_PAUSE", "2", 1);
    for (int i = 0; i < CAPTURERS; i++) start(&capturers[i], capture_until_others_are_done, i, y);
    for (int i = 0; i < OTHERS; i++) start(&others[i], open_and_close_devices, CAPTURERS + i, alone.losses);
    for (int i = 0; i < OTHERS; i++) pthread_join(others[i].thread, NULL);
    others_are_done = true;
    for (int i = 0; i < CAPTURERS; i++) pthread_join(capturers[i].thread, NULL);
    unsetenv("FAKE_CUDA_CAPTURE_PAUSE");
    for (int i = 0; i < CAPTURERS; i++) check(&capturers[i]);
    for (int i = 0; i < OTHERS; i++) check(&others[i]);
    end_capturer(&alone_captured);
    assert_int_equal(emulated_used(), 0);
}

/* ---- Repeated captures ---- */

static const struct placement {
    const char *devices, *strategy;
} placements[] = {{"gpu:0", NULL}, {"gpu:0/2", "mirrored"}, {"gpu:0,gpu:1", "mirrored"}};
enum { PLACEMENTS = sizeof placements / sizeof *placements };

static void set_invalid_captures(int count) {
    char text[16];
    snprintf(text, sizeof text, "%d", count);
    setenv("FAKE_CUDA_INVALIDATE", text, 1);
}

/* Runs all steps of which the first captures are invalid: those of single runs, or those of a call. */
static void run_disturbed(training *t, int invalid, bool in_a_call) {
    int first = in_a_call ? STEPS - CALL_STEPS : 1;
    for (int i = 0; i < STEPS - CALL_STEPS; i++) {
        if (i == first) set_invalid_captures(invalid);
        assert_int_equal(run_step(t, i), TU_OK);
    }
    if (in_a_call) set_invalid_captures(invalid);
    if (run_many(t, STEPS - CALL_STEPS, CALL_STEPS) != TU_OK)
        fail_msg("%d invalid captures: %s", invalid, tu_message());
    unsetenv("FAKE_CUDA_INVALIDATE");
}

static void an_invalidated_capture_is_repeated(void **unused) {
    (void)unused;
    for (int i = 0; i < PLACEMENTS; i++) {
        training plain;
        run_undisturbed(&plain, placements[i].devices, placements[i].strategy);
        for (int invalid = 1; invalid <= 2; invalid++)
            for (int in_a_call = 0; in_a_call < 2; in_a_call++) {
                training t;
                if (begin(&t, placements[i].devices, placements[i].strategy) != TU_OK)
                    fail_msg("%s", tu_message());
                run_disturbed(&t, invalid, in_a_call);
                assert_memory_equal(t.losses, plain.losses, sizeof t.losses);
                assert_same_state(t.state, plain.state);
                end(&t);
            }
        end(&plain);
    }
}

/* A traced step is captured with events between its kernels. */
static void an_invalidated_capture_of_a_traced_step_is_repeated(void **unused) {
    (void)unused;
    training plain, t;
    tu_trace_report report = TU_SIZED(tu_trace_report);
    run_undisturbed(&plain, "gpu:0", NULL);
    assert_int_equal(begin(&t, "gpu:0", NULL), TU_OK);
    assert_int_equal(run_step(&t, 0), TU_OK);
    assert_int_equal(tu_program_trace_begin(t.program), TU_OK);
    set_invalid_captures(2);
    for (int i = 1; i < STEPS; i++)
        if (run_step(&t, i) != TU_OK) fail_msg("%s", tu_message());
    unsetenv("FAKE_CUDA_INVALIDATE");
    tu_program_trace_end(t.program);
    assert_int_equal(tu_trace_device(t.program, 0, &report), TU_OK);
    assert_memory_equal(t.losses, plain.losses, sizeof t.losses);
    end(&t);
    end(&plain);
}

/* The program can be run again, and the failed step has changed nothing. */
static void a_capture_that_is_always_invalidated_fails(void **unused) {
    (void)unused;
    training plain, t;
    run_undisturbed(&plain, "gpu:0", NULL);
    assert_int_equal(begin(&t, "gpu:0", NULL), TU_OK);
    assert_int_equal(run_step(&t, 0), TU_OK);
    set_invalid_captures(3);
    assert_int_equal(run_step(&t, 1), TU_DEVICE);
    expect_message("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED");
    unsetenv("FAKE_CUDA_INVALIDATE");
    for (int i = 1; i < STEPS; i++)
        if (run_step(&t, i) != TU_OK) fail_msg("%s", tu_message());
    assert_memory_equal(t.losses, plain.losses, sizeof t.losses);
    end(&t);
    end(&plain);
}

int main(void) {
    use_emulated_gpu();
    setenv("FAKE_CUDA_COUNT", "2", 1);
    float *pixels = &images[0][0][0][0][0];
    for (size_t i = 0; i < sizeof images / sizeof *pixels; i++) pixels[i] = (float)(i % 23) / 23 - 0.5F;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_opened_and_closed_while_others_capture),
        cmocka_unit_test(an_invalidated_capture_is_repeated),
        cmocka_unit_test(an_invalidated_capture_of_a_traced_step_is_repeated),
        cmocka_unit_test(a_capture_that_is_always_invalidated_fails),
    };
    return cmocka_run_group_tests_name("captures", tests, NULL, NULL);
}
