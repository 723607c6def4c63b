/* A GPU whose kernels never end, in one process: multi-step calls end at their timeout and report their progress; the
 * GPU is not used any more, and nothing that is freed later waits for it. Other GPUs are not affected. */
#include "test.h"

#include <tutti/tutti.h>

#include "cuda/emulated.h"

/* Resources that an abandoned GPU may still use are never freed, so leaks are not checked. */
const char *__lsan_default_options(void);  // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
const char *__lsan_default_options(void) { // NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)
    return "detect_leaks=0";
}

enum { STEPS = 64, STEPS_PER_GRAPH = 16 };

/* w += x, and y the sum of x. */
typedef struct adder {
    tu_graph *graph;
    tu_value x, y;
    tu_program *program;
    tu_state *state;
} adder;

static void build_adder(adder *a, const char *devices, double timeout) {
    assert_int_equal(tu_graph_new(&a->graph), TU_OK);
    a->x = tu_input(a->graph, "x", TU_F32, TU_SHAPE(3));
    tu_value w = tu_variable(a->graph, "w", TU_F32, TU_SHAPE(3));
    tu_value sum = tu_add(w, a->x);
    a->y = tu_sum(a->x);
    tu_assign(w, sum);
    if (tu_compile(a->graph, &a->program, .devices = devices, .fetch = &a->y, .fetch_count = 1,
                   .updates = true, .timeout = timeout) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(a->graph, &a->state, .seed = 1), TU_OK);
}

static void free_adder(adder *a) {
    tu_program_free(a->program);
    tu_state_free(a->state);
    tu_graph_free(a->graph);
}

static tu_status run(adder *a, float y[STEPS][3]) {
    static const float x[3] = {1, 2, 3};
    const tu_feed_many feed = {.input = a->x, .data = x, .same_batch = true};
    return tu_run_many(a->program, a->state, STEPS, 1, &feed, (void *[]){y});
}

static void expect_message(const char *text) {
    if (!strstr(tu_message(), text)) fail_msg("'%s' is not in: %s", text, tu_message());
}

static void expect_not_opened(const char *devices) {
    tu_graph *graph;
    tu_program *program;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_value y = tu_sum(tu_input(graph, "x", TU_F32, TU_SHAPE(3)));
    assert_int_equal(tu_compile(graph, &program, .devices = devices, .fetch = &y, .fetch_count = 1),
                     TU_DEVICE);
    expect_message("was abandoned after a timeout");
    tu_graph_free(graph);
}

/* The first step is enqueued kernel by kernel; the next ones are a graph, which hangs half way. */
static void a_hanging_multi_step_call_times_out_and_abandons_the_gpu(void **unused) {
    (void)unused;
    adder hung, other;
    float y[STEPS][3];
    char done[64];
    build_adder(&hung, "gpu:0", 0.5);
    setenv("FAKE_CUDA_HANG", "1", 1);
    assert_int_equal(run(&hung, y), TU_DEVICE);
    unsetenv("FAKE_CUDA_HANG");
    snprintf(done, sizeof done, "gpu:0: no step has ended for 0.5 s: %d of these %d are done",
             1 + STEPS_PER_GRAPH / 2, STEPS);
    expect_message("steps 1 to 64 of 64 failed in one call of device 'gpu:0'");
    expect_message(done);

    assert_int_equal(run(&hung, y), TU_DEVICE);
    expect_message("gpu:0 was abandoned after a timeout");
    float w[3];
    assert_int_equal(tu_state_get(hung.state, "w", w, sizeof w), TU_DEVICE);
    expect_message("gpu:0 was abandoned");
    free_adder(&hung);
    expect_not_opened("gpu:0");

    build_adder(&other, "gpu:1", 60);
    if (run(&other, y) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(tu_state_get(other.state, "w", w, sizeof w), TU_OK);
    assert_true(w[2] == 3 * STEPS);
    free_adder(&other);
}

static void a_hanging_single_run_times_out(void **unused) {
    (void)unused;
    static const float x[3] = {1, 2, 3};
    adder hung;
    float y[3];
    build_adder(&hung, "gpu:2", 0.5);
    setenv("FAKE_CUDA_HANG", "3", 1);
    for (int step = 1; step <= 4; step++)
        assert_int_equal(tu_run(hung.program, hung.state, 1, (tu_feed[]){{hung.x, x}}, (void *[]){y}),
                         step < 4 ? TU_OK : TU_DEVICE);
    unsetenv("FAKE_CUDA_HANG");
    expect_message("device 'gpu:2' failed: gpu:2: its kernels have not ended after 0.5 s");
    free_adder(&hung);
}

/* The CPU's thread polls for what a GPU sends: it must time out, name the device it waited for, and stay usable. */
static void a_cpu_times_out_waiting_for_a_hung_gpu(void **unused) {
    (void)unused;
    adder other;
    float y[STEPS][3];
    tu_graph *graph;
    tu_program *program;
    tu_state *state;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_value x = tu_input(graph, "x", TU_F32, TU_SHAPE(64, 512));
    tu_value on_gpu = tu_tanh(x), on_cpu = tu_exp(on_gpu); /* 128 KB: large enough to be pinned */
    assert_int_equal(tu_state_new(graph, &state), TU_OK);
    if (tu_compile(graph, &program, .devices = "gpu:3,cpu:0", .place = "tanh*=gpu:3,exp*=cpu:0",
                   .fetch = &on_cpu, .fetch_count = 1, .timeout = 0.5) != TU_OK)
        fail_msg("%s", tu_message());
    static float data[64 * 512], result[64 * 512];
    void *const results[] = {result};
    for (int i = 0; i < 2; i++) /* the second run is captured */
        if (tu_run(program, state, 1, (tu_feed[]){{x, data}}, results) != TU_OK) fail_msg("%s", tu_message());
    assert_true(result[0] == 1);
    setenv("FAKE_CUDA_HANG", "1", 1);
    assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, data}}, results), TU_DEVICE);
    unsetenv("FAKE_CUDA_HANG");
    expect_message("device 'cpu:0' waited 0.5 s for 'tanh' from device 'gpu:3', which is late");
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(graph);
    build_adder(&other, "cpu:0", 60);
    if (run(&other, y) != TU_OK) fail_msg("%s", tu_message());
    free_adder(&other);
}

int main(void) {
    use_emulated_gpu();
    setenv("FAKE_CUDA_COUNT", "4", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hanging_multi_step_call_times_out_and_abandons_the_gpu),
        cmocka_unit_test(a_hanging_single_run_times_out),
        cmocka_unit_test(a_cpu_times_out_waiting_for_a_hung_gpu),
    };
    return cmocka_run_group_tests_name("hung_gpu", tests, NULL, NULL);
}
