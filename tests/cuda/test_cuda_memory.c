/* GPU memory options: a limit for GPUs only, and a reserve that is allocated at once, serves what programs need, is
 * shared by the GPU's logical devices and freed at the end. Memory used by another process is simulated by a GPU that
 * becomes smaller. */
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "cuda/emulated.h"

enum { ROWS = 16, COLUMNS = 64, STEPS = 3, KIB = 1 << 10, MIB = 1 << 20 };

typedef struct network {
    tu_graph *graph;
    tu_value x, loss;
    tu_state *state;
} network;

static void build_network(network *n) {
    assert_int_equal(tu_graph_new(&n->graph), TU_OK);
    n->x = tu_batch_input(n->graph, "x", TU_F32, TU_SHAPE(ROWS, COLUMNS));
    tu_value y = tu_dense(n->x, .units = COLUMNS, .act = TU_TANH, .name = "hidden");
    n->loss = tu_mean(tu_square(tu_dense(y, .units = 3, .name = "out")));
    assert_int_equal(tu_add_sgd(n->loss, 0.1, 0.9), TU_OK);
    assert_int_equal(tu_state_new(n->graph, &n->state, .seed = 1), TU_OK);
}

static void free_network(network *n) {
    tu_state_free(n->state);
    tu_graph_free(n->graph);
}

#define compile(n, program, ...)                                                                             \
    tu_compile((n)->graph, program, .fetch = &(n)->loss, .fetch_count = 1, __VA_ARGS__)

static float batches[STEPS * ROWS * COLUMNS];

static void fill_batches(void) {
    for (int i = 0; i < STEPS * ROWS * COLUMNS; i++) batches[i] = (float)(i % 13) / 13;
}

static tu_status run(network *n, tu_program *program, float *loss) {
    return tu_run(program, n->state, 1, &(tu_feed){n->x, batches}, (void *[]){loss});
}

static tu_status run_many(network *n, tu_program *program, float loss[STEPS]) {
    return tu_run_many(program, n->state, STEPS, 1, &(tu_feed_many){.input = n->x, .data = batches},
                       (void *[]){loss});
}

static void set_gpu_memory(size_t bytes) {
    char text[32];
    snprintf(text, sizeof text, "%zu", bytes);
    setenv("FAKE_CUDA_MEMORY", text, 1);
}

static void reset_gpu_memory(void) {
    unsetenv("FAKE_CUDA_MEMORY");
}

static void expect_error(tu_status status, tu_status expected, const char *const *substrings) {
    assert_int_equal(status, expected);
    for (; *substrings; substrings++)
        if (!strstr(tu_message(), *substrings)) fail_msg("expected '%s' in '%s'", *substrings, tu_message());
}
#define CONTAINS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- The limit ---- */

static uint64_t limit_of(const tu_program *program, size_t device) {
    tu_memory_report report = TU_SIZED(tu_memory_report);
    assert_int_equal(tu_program_memory(program, device, &report), TU_OK);
    return report.limit_bytes;
}

static void gpu_memory_limit_applies_only_to_gpus(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    build_network(&n);
    expect_error(compile(&n, &program, .devices = "gpu:0", .gpu_memory_limit = 4 * KIB, .no_updates = true),
                 TU_NO_MEMORY, CONTAINS("device 'gpu:0' would need", "the limit is 0.003906 MiB"));
    assert_int_equal(
        compile(&n, &program, .devices = "cpu:0", .gpu_memory_limit = 4 * KIB, .no_updates = true), TU_OK);
    tu_program_free(program);
    assert_int_equal(
        compile(&n, &program, .devices = "cpu:0,gpu:0", .gpu_memory_limit = 4 * MIB, .no_updates = true),
        TU_OK);
    assert_true(limit_of(program, 0) > 4 * MIB);
    assert_int_equal(limit_of(program, 1), 4 * MIB);
    tu_program_free(program);
    free_network(&n);
}

static void the_smaller_limit_applies_on_a_gpu(void **unused) {
    (void)unused;
    static const struct {
        uint64_t all, gpu, on_cpu, on_gpu;
    } cases[] = {{4 * MIB, 2 * MIB, 4 * MIB, 2 * MIB}, {2 * MIB, 4 * MIB, 2 * MIB, 2 * MIB}};
    network n;
    build_network(&n);
    for (int i = 0; i < 2; i++) {
        tu_program *program;
        assert_int_equal(compile(&n, &program, .devices = "cpu:0,gpu:0", .memory_limit = cases[i].all,
                                 .gpu_memory_limit = cases[i].gpu, .no_updates = true),
                         TU_OK);
        assert_int_equal(limit_of(program, 0), cases[i].on_cpu);
        assert_int_equal(limit_of(program, 1), cases[i].on_gpu);
        tu_program_free(program);
    }
    free_network(&n);
}

/* ---- The reserve ---- */

static void a_reserve_is_allocated_at_once_and_serves_all_blocks(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    float loss, losses[STEPS];
    build_network(&n);
    assert_int_equal(
        compile(&n, &program, .devices = "gpu:0", .updates = true, .gpu_memory_reserve = 4 * MIB), TU_OK);
    assert_int_equal(emulated_used(), 4 * MIB);
    assert_int_equal(run(&n, program, &loss), TU_OK);
    assert_int_equal(run_many(&n, program, losses), TU_OK);
    assert_int_equal(emulated_used(), 4 * MIB);
    tu_program_free(program);
    assert_int_equal(emulated_used(), 4 * MIB); /* the state's variables are still allocated */
    free_network(&n);
    assert_int_equal(emulated_used(), 0);
}

static void plan_only_allocates_no_reserve(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    build_network(&n);
    assert_int_equal(compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = 4 * MIB,
                             .plan_only = true, .no_updates = true),
                     TU_OK);
    assert_int_equal(emulated_used(), 0);
    tu_program_free(program);
    free_network(&n);
}

/* Trains, then evaluates after another process has filled the GPU. */
static tu_status evaluate_on_full_gpu(uint64_t reserve, float *loss) {
    network n;
    tu_program *training, *evaluation = NULL;
    float losses[STEPS];
    build_network(&n);
    assert_int_equal(
        compile(&n, &training, .devices = "gpu:0", .updates = true, .gpu_memory_reserve = reserve), TU_OK);
    assert_int_equal(run_many(&n, training, losses), TU_OK);
    set_gpu_memory(emulated_used());
    tu_value twice = tu_add(n.loss, n.loss);
    tu_status status = tu_compile(n.graph, &evaluation, .devices = "gpu:0", .fetch = &twice, .fetch_count = 1,
                                  .gpu_memory_reserve = reserve, .no_updates = true);
    if (status == TU_OK) status = run_many(&n, evaluation, losses);
    *loss = losses[STEPS - 1];
    reset_gpu_memory();
    tu_program_free(evaluation);
    tu_program_free(training);
    free_network(&n);
    return status;
}

static void a_later_program_uses_the_reserve_of_a_full_gpu(void **unused) {
    (void)unused;
    float loss;
    expect_error(evaluate_on_full_gpu(0, &loss), TU_NO_MEMORY,
                 CONTAINS("MiB of memory", "0.0 of its", "are free"));
    assert_int_equal(evaluate_on_full_gpu(4 * MIB, &loss), TU_OK);
    assert_int_equal(emulated_used(), 0);
}

/* Returns the loss of the last step. */
static float train(const char *devices, uint64_t reserve) {
    network n;
    tu_program *program;
    float losses[STEPS];
    build_network(&n);
    assert_int_equal(
        compile(&n, &program, .devices = devices, .updates = true, .gpu_memory_reserve = reserve), TU_OK);
    assert_int_equal(run_many(&n, program, losses), TU_OK);
    assert_true(emulated_used() > reserve || reserve >= MIB);
    tu_program_free(program);
    free_network(&n);
    assert_int_equal(emulated_used(), 0);
    return losses[STEPS - 1];
}

static void memory_grows_beyond_a_full_reserve(void **unused) {
    (void)unused;
    float expected = train("gpu:0", 0);
    static const uint64_t reserves[] = {1, 512, 4 * KIB, 20 * KIB, 40 * KIB, 4 * MIB};
    for (size_t i = 0; i < sizeof reserves / sizeof *reserves; i++)
        assert_true(train("gpu:0", reserves[i]) == expected);
}

static void logical_devices_share_a_reserve(void **unused) {
    (void)unused;
    network n;
    tu_program *program, *another;
    float loss;
    build_network(&n);
    assert_int_equal(compile(&n, &program, .devices = "gpu:0/2", .strategy = "mirrored", .updates = true,
                             .gpu_memory_reserve = 4 * MIB),
                     TU_OK);
    assert_int_equal(emulated_used(), 4 * MIB);
    assert_int_equal(run(&n, program, &loss), TU_OK);
    assert_int_equal(emulated_used(), 4 * MIB);
    assert_int_equal(
        compile(&n, &another, .devices = "gpu:0.1/2", .gpu_memory_reserve = 6 * MIB, .no_updates = true),
        TU_OK);
    assert_int_equal(emulated_used(), 6 * MIB); /* it grows to the requested size while it is in use */
    tu_program_free(another);
    assert_int_equal(
        compile(&n, &another, .devices = "gpu:0.1/2", .gpu_memory_reserve = 5 * MIB, .no_updates = true),
        TU_OK);
    assert_int_equal(emulated_used(), 6 * MIB);
    tu_program_free(another);
    tu_program_free(program);
    free_network(&n);
}

/* The fake libraries use no memory, so the overhead must be 0. */
static void a_reserve_is_not_overhead(void **unused) {
    (void)unused;
    network n;
    tu_program *program, *another;
    tu_memory_report report = TU_SIZED(tu_memory_report);
    float loss;
    build_network(&n);
    assert_int_equal(
        compile(&n, &program, .devices = "gpu:0.0/2", .gpu_memory_reserve = 4 * MIB, .no_updates = true),
        TU_OK);
    assert_int_equal(run(&n, program, &loss), TU_OK);
    assert_int_equal(
        compile(&n, &another, .devices = "gpu:0.1/2", .gpu_memory_reserve = 4 * MIB, .no_updates = true),
        TU_OK);
    assert_int_equal(tu_program_memory(another, 0, &report), TU_OK);
    assert_int_equal(report.overhead_bytes, 0);
    tu_program_free(another);
    tu_program_free(program);
    free_network(&n);
}

static void a_large_block_may_replace_an_unused_reserve(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    tu_memory_report report = TU_SIZED(tu_memory_report);
    float loss;
    build_network(&n);
    assert_int_equal(compile(&n, &program, .devices = "gpu:0", .plan_only = true, .no_updates = true), TU_OK);
    assert_int_equal(tu_program_memory(program, 0, &report), TU_OK);
    tu_program_free(program);
    size_t reserve = report.scratch_bytes / 4 * 3;
    set_gpu_memory(report.need_bytes + 4 * KIB);
    assert_int_equal(
        compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = reserve, .no_updates = true), TU_OK);
    tu_status status = run(&n, program, &loss);
    if (status != TU_OK) fail_msg("%s", tu_message());
    reset_gpu_memory();
    tu_program_free(program);
    free_network(&n);
    assert_int_equal(emulated_used(), 0);
}

/* Freed memory may still be in use: it is reused only after a synchronisation, whose failure is reported. */
static void freed_memory_is_reused_after_synchronization(void **unused) {
    (void)unused;
    network n, other;
    tu_program *program, *another;
    float loss;
    build_network(&n);
    build_network(&other);
    assert_int_equal(
        compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = 4 * MIB, .no_updates = true), TU_OK);
    assert_int_equal(run(&n, program, &loss), TU_OK);
    assert_int_equal(
        compile(&other, &another, .devices = "gpu:0", .gpu_memory_reserve = 4 * MIB, .no_updates = true),
        TU_OK);
    tu_program_free(program);
    free_network(&n);
    setenv("FAKE_CUDA_FAIL", "cuCtxSynchronize:1", 1);
    expect_error(run(&other, another, &loss), TU_DEVICE, CONTAINS("cuCtxSynchronize"));
    unsetenv("FAKE_CUDA_FAIL");
    assert_int_equal(run(&other, another, &loss), TU_OK);
    tu_program_free(another);
    free_network(&other);
}

/* Repeatedly creates a program: allocates memory, captures its step, frees the memory. */
static void *create_and_free_programs(void *device) {
    enum { ROUNDS = 12, RUNS = 3 };
    for (int i = 0; i < ROUNDS; i++) {
        network n;
        tu_program *program;
        float loss;
        build_network(&n);
        tu_status status =
            compile(&n, &program, .devices = device, .gpu_memory_reserve = 4 * MIB, .no_updates = true);
        for (int k = 0; k < RUNS && status == TU_OK; k++) status = run(&n, program, &loss);
        char *message = status == TU_OK ? NULL : strdup(tu_message());
        tu_program_free(program);
        free_network(&n);
        if (message) return message;
    }
    return NULL;
}

/* A GPU cannot be synchronised while a step is captured on it. */
static void logical_devices_allocate_and_capture_in_parallel(void **unused) {
    (void)unused;
    char devices[2][16] = {"gpu:0.0/2", "gpu:0.1/2"};
    pthread_t threads[2];
    void *messages[2];
    setenv("FAKE_CUDA_CAPTURE_PAUSE", "20", 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, create_and_free_programs, devices[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &messages[i]);
    unsetenv("FAKE_CUDA_CAPTURE_PAUSE");
    for (int i = 0; i < 2; i++)
        if (messages[i]) fail_msg("%s: %s", devices[i], (const char *)messages[i]);
    assert_int_equal(emulated_used(), 0);
}

/* ---- Errors ---- */

static void a_reserve_beyond_gpu_memory_fails_with_the_free_size(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    char text[256];
    size_t before = emulated_live(text, sizeof text);
    build_network(&n);
    set_gpu_memory(8 * MIB);
    expect_error(
        compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = 9 * MIB, .no_updates = true),
        TU_NO_MEMORY,
        CONTAINS("gpu:0: cannot allocate a reserve of 9.0 MiB", "8.0 of its 8.0 MiB are free", "cuMemAlloc"));
    assert_int_equal(emulated_used(), 0);
    assert_int_equal(emulated_live(text, sizeof text), before);
    reset_gpu_memory();
    free_network(&n);
}

static void a_reserve_beyond_the_limit_fails_before_allocation(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    build_network(&n);
    set_gpu_memory(1); /* any allocation would fail */
    expect_error(compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = 4 * MIB + 1,
                         .gpu_memory_limit = 4 * MIB, .no_updates = true),
                 TU_INVALID,
                 CONTAINS("the reserve of 4 MiB on gpu:0 exceeds the memory limit of 4 MiB",
                          "lower the reserve or raise the limit"));
    reset_gpu_memory();
    expect_error(compile(&n, &program, .devices = "gpu:0/2", .strategy = "mirrored",
                         .gpu_memory_reserve = 9 * MIB, .memory_limit = 4 * MIB, .no_updates = true),
                 TU_INVALID, CONTAINS("the reserve of 9 MiB", "on gpu:0 exceeds the memory limit of 8 MiB"));
    assert_int_equal(emulated_used(), 0);
    assert_int_equal(compile(&n, &program, .devices = "gpu:0/2", .strategy = "mirrored",
                             .gpu_memory_reserve = 8 * MIB, .memory_limit = 4 * MIB, .no_updates = true),
                     TU_OK);
    tu_program_free(program);
    free_network(&n);
}

static void one_logical_device_may_reserve_for_all(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    build_network(&n);
    expect_error(compile(&n, &program, .devices = "gpu:0.0/2", .gpu_memory_reserve = 9 * MIB,
                         .gpu_memory_limit = 4 * MIB, .no_updates = true),
                 TU_INVALID, CONTAINS("the reserve of 9 MiB", "on gpu:0 exceeds the memory limit of 8 MiB"));
    assert_int_equal(compile(&n, &program, .devices = "gpu:0.0/2", .gpu_memory_reserve = 8 * MIB,
                             .gpu_memory_limit = 4 * MIB, .no_updates = true),
                     TU_OK);
    assert_int_equal(emulated_used(), 8 * MIB);
    tu_program_free(program);
    free_network(&n);
}

static void running_out_of_memory_reports_gpu_and_reserve(void **unused) {
    (void)unused;
    network n, other;
    tu_program *program, *another;
    float loss;
    build_network(&n);
    build_network(&other);
    assert_int_equal(
        compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = 60 * KIB, .no_updates = true), TU_OK);
    assert_int_equal(run(&n, program, &loss), TU_OK);
    assert_int_equal(
        compile(&other, &another, .devices = "gpu:0.0/2", .updates = true, .gpu_memory_reserve = 60 * KIB),
        TU_OK);
    set_gpu_memory(emulated_used());
    expect_error(run(&other, another, &loss), TU_NO_MEMORY,
                 CONTAINS("gpu:0.0: cannot allocate ", "0.0 of its", "are free, and",
                          "of the 0.1 MiB of its reserve"));
    reset_gpu_memory();
    tu_program_free(another);
    tu_program_free(program);
    free_network(&other);
    free_network(&n);
}

int main(void) {
    use_emulated_gpu();
    fill_batches();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpu_memory_limit_applies_only_to_gpus),
        cmocka_unit_test(the_smaller_limit_applies_on_a_gpu),
        cmocka_unit_test(a_reserve_is_allocated_at_once_and_serves_all_blocks),
        cmocka_unit_test(plan_only_allocates_no_reserve),
        cmocka_unit_test(a_later_program_uses_the_reserve_of_a_full_gpu),
        cmocka_unit_test(memory_grows_beyond_a_full_reserve),
        cmocka_unit_test(logical_devices_share_a_reserve),
        cmocka_unit_test(a_reserve_is_not_overhead),
        cmocka_unit_test(a_large_block_may_replace_an_unused_reserve),
        cmocka_unit_test(freed_memory_is_reused_after_synchronization),
        cmocka_unit_test(logical_devices_allocate_and_capture_in_parallel),
        cmocka_unit_test(a_reserve_beyond_gpu_memory_fails_with_the_free_size),
        cmocka_unit_test(a_reserve_beyond_the_limit_fails_before_allocation),
        cmocka_unit_test(one_logical_device_may_reserve_for_all),
        cmocka_unit_test(running_out_of_memory_reports_gpu_and_reserve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
