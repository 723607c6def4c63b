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

static void begin(network *n) {
    assert_int_equal(tu_graph_new(&n->graph), TU_OK);
    n->x = tu_batch_input(n->graph, "x", TU_F32, TU_SHAPE(ROWS, COLUMNS));
    tu_value y = tu_dense(n->x, .units = COLUMNS, .act = TU_TANH, .name = "hidden");
    n->loss = tu_mean(tu_square(tu_dense(y, .units = 3, .name = "out")));
    assert_int_equal(tu_add_sgd(n->loss, 0.1, 0.9), TU_OK);
    assert_int_equal(tu_state_new(n->graph, &n->state, .seed = 1), TU_OK);
}

static void end(network *n) {
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

static void give_card(size_t bytes) {
    char text[32];
    snprintf(text, sizeof text, "%zu", bytes);
    setenv("FAKE_CUDA_MEMORY", text, 1);
}

static void give_whole_card(void) {
    unsetenv("FAKE_CUDA_MEMORY");
}

static void expect_refusal(tu_status status, tu_status expected, const char *const *said) {
    assert_int_equal(status, expected);
    for (; *said; said++)
        if (!strstr(tu_message(), *said)) fail_msg("expected '%s' in '%s'", *said, tu_message());
}
#define SAID(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- The limit ---- */

static uint64_t limit_of(const tu_program *program, size_t device) {
    tu_memory_report report;
    assert_int_equal(tu_program_memory(program, device, &report), TU_OK);
    return report.limit_bytes;
}

static void a_limit_for_gpus_is_for_them_alone(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    begin(&n);
    expect_refusal(compile(&n, &program, .devices = "gpu:0", .gpu_memory_limit = 4 * KIB, .no_updates = true),
                   TU_NO_MEMORY, SAID("device 'gpu:0' would need", "the limit is 0.003906 MiB"));
    assert_int_equal(
        compile(&n, &program, .devices = "cpu:0", .gpu_memory_limit = 4 * KIB, .no_updates = true), TU_OK);
    tu_program_free(program);
    assert_int_equal(
        compile(&n, &program, .devices = "cpu:0,gpu:0", .gpu_memory_limit = 4 * MIB, .no_updates = true),
        TU_OK);
    assert_true(limit_of(program, 0) > 4 * MIB);
    assert_int_equal(limit_of(program, 1), 4 * MIB);
    tu_program_free(program);
    end(&n);
}

static void of_two_limits_the_smaller_counts_on_a_gpu(void **unused) {
    (void)unused;
    static const struct {
        uint64_t all, gpu, on_cpu, on_gpu;
    } cases[] = {{4 * MIB, 2 * MIB, 4 * MIB, 2 * MIB}, {2 * MIB, 4 * MIB, 2 * MIB, 2 * MIB}};
    network n;
    begin(&n);
    for (int i = 0; i < 2; i++) {
        tu_program *program;
        assert_int_equal(compile(&n, &program, .devices = "cpu:0,gpu:0", .memory_limit = cases[i].all,
                                 .gpu_memory_limit = cases[i].gpu, .no_updates = true),
                         TU_OK);
        assert_int_equal(limit_of(program, 0), cases[i].on_cpu);
        assert_int_equal(limit_of(program, 1), cases[i].on_gpu);
        tu_program_free(program);
    }
    end(&n);
}

/* ---- The reserve ---- */

static void a_reserve_is_taken_at_once_and_serves_everything(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    float loss, losses[STEPS];
    begin(&n);
    assert_int_equal(
        compile(&n, &program, .devices = "gpu:0", .updates = true, .gpu_memory_reserve = 4 * MIB), TU_OK);
    assert_int_equal(emulated_used(), 4 * MIB);
    assert_int_equal(run(&n, program, &loss), TU_OK);
    assert_int_equal(run_many(&n, program, losses), TU_OK);
    assert_int_equal(emulated_used(), 4 * MIB);
    tu_program_free(program);
    assert_int_equal(emulated_used(), 4 * MIB); /* the state's variables are still allocated */
    end(&n);
    assert_int_equal(emulated_used(), 0);
}

static void what_is_only_planned_reserves_nothing(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    begin(&n);
    assert_int_equal(compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = 4 * MIB,
                             .plan_only = true, .no_updates = true),
                     TU_OK);
    assert_int_equal(emulated_used(), 0);
    tu_program_free(program);
    end(&n);
}

/* Trains, then evaluates after another process has filled the GPU. */
static tu_status evaluate_on_full_card(uint64_t reserve, float *loss) {
    network n;
    tu_program *training, *evaluation = NULL;
    float losses[STEPS];
    begin(&n);
    assert_int_equal(
        compile(&n, &training, .devices = "gpu:0", .updates = true, .gpu_memory_reserve = reserve), TU_OK);
    assert_int_equal(run_many(&n, training, losses), TU_OK);
    give_card(emulated_used());
    tu_value twice = tu_add(n.loss, n.loss);
    tu_status status = tu_compile(n.graph, &evaluation, .devices = "gpu:0", .fetch = &twice, .fetch_count = 1,
                                  .gpu_memory_reserve = reserve, .no_updates = true);
    if (status == TU_OK) status = run_many(&n, evaluation, losses);
    *loss = losses[STEPS - 1];
    give_whole_card();
    tu_program_free(evaluation);
    tu_program_free(training);
    end(&n);
    return status;
}

static void a_later_program_has_the_reserve_when_the_card_is_full(void **unused) {
    (void)unused;
    float loss;
    expect_refusal(evaluate_on_full_card(0, &loss), TU_NO_MEMORY,
                   SAID("MiB of memory", "0.0 of its", "are free"));
    assert_int_equal(evaluate_on_full_card(4 * MIB, &loss), TU_OK);
    assert_int_equal(emulated_used(), 0);
}

/* Returns the loss of the last step. */
static float train(const char *devices, uint64_t reserve) {
    network n;
    tu_program *program;
    float losses[STEPS];
    begin(&n);
    assert_int_equal(
        compile(&n, &program, .devices = devices, .updates = true, .gpu_memory_reserve = reserve), TU_OK);
    assert_int_equal(run_many(&n, program, losses), TU_OK);
    assert_true(emulated_used() > reserve || reserve >= MIB);
    tu_program_free(program);
    end(&n);
    assert_int_equal(emulated_used(), 0);
    return losses[STEPS - 1];
}

static void memory_grows_beyond_a_reserve_that_is_used_up(void **unused) {
    (void)unused;
    float expected = train("gpu:0", 0);
    static const uint64_t reserves[] = {1, 512, 4 * KIB, 20 * KIB, 40 * KIB, 4 * MIB};
    for (size_t i = 0; i < sizeof reserves / sizeof *reserves; i++)
        assert_true(train("gpu:0", reserves[i]) == expected);
}

static void parts_of_a_card_share_its_reserve(void **unused) {
    (void)unused;
    network n;
    tu_program *program, *another;
    float loss;
    begin(&n);
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
    end(&n);
}

/* The fake libraries use no memory, so the overhead must be 0. */
static void a_reserve_is_not_overhead(void **unused) {
    (void)unused;
    network n;
    tu_program *program, *another;
    tu_memory_report report;
    float loss;
    begin(&n);
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
    end(&n);
}

static void a_block_may_take_the_place_of_an_idle_reserve(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    tu_memory_report report;
    float loss;
    begin(&n);
    assert_int_equal(compile(&n, &program, .devices = "gpu:0", .plan_only = true, .no_updates = true), TU_OK);
    assert_int_equal(tu_program_memory(program, 0, &report), TU_OK);
    tu_program_free(program);
    size_t reserve = report.scratch_bytes / 4 * 3;
    give_card(report.need_bytes + 4 * KIB);
    assert_int_equal(
        compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = reserve, .no_updates = true), TU_OK);
    tu_status status = run(&n, program, &loss);
    if (status != TU_OK) fail_msg("%s", tu_message());
    give_whole_card();
    tu_program_free(program);
    end(&n);
    assert_int_equal(emulated_used(), 0);
}

/* Freed memory may still be in use: it is reused only after a synchronisation, whose failure is reported. */
static void given_memory_is_waited_for(void **unused) {
    (void)unused;
    network n, other;
    tu_program *program, *another;
    float loss;
    begin(&n);
    begin(&other);
    assert_int_equal(
        compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = 4 * MIB, .no_updates = true), TU_OK);
    assert_int_equal(run(&n, program, &loss), TU_OK);
    assert_int_equal(
        compile(&other, &another, .devices = "gpu:0", .gpu_memory_reserve = 4 * MIB, .no_updates = true),
        TU_OK);
    tu_program_free(program);
    end(&n);
    setenv("TUTTI_CUDA_FAIL", "cuCtxSynchronize:1", 1);
    expect_refusal(run(&other, another, &loss), TU_DEVICE, SAID("cuCtxSynchronize"));
    unsetenv("TUTTI_CUDA_FAIL");
    assert_int_equal(run(&other, another, &loss), TU_OK);
    tu_program_free(another);
    end(&other);
}

/* Repeatedly creates a program: allocates memory, captures its step, frees the memory. */
static void *come_and_go(void *device) {
    enum { ROUNDS = 12, RUNS = 3 };
    for (int i = 0; i < ROUNDS; i++) {
        network n;
        tu_program *program;
        float loss;
        begin(&n);
        tu_status status =
            compile(&n, &program, .devices = device, .gpu_memory_reserve = 4 * MIB, .no_updates = true);
        for (int k = 0; k < RUNS && status == TU_OK; k++) status = run(&n, program, &loss);
        char *message = status == TU_OK ? NULL : strdup(tu_message());
        tu_program_free(program);
        end(&n);
        if (message) return message;
    }
    return NULL;
}

/* A GPU cannot be synchronised while a step is captured on it. */
static void parts_take_and_capture_beside_each_other(void **unused) {
    (void)unused;
    char devices[2][16] = {"gpu:0.0/2", "gpu:0.1/2"};
    pthread_t threads[2];
    void *messages[2];
    setenv("FAKE_CUDA_CAPTURE_PAUSE", "20", 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, come_and_go, devices[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], &messages[i]);
    unsetenv("FAKE_CUDA_CAPTURE_PAUSE");
    for (int i = 0; i < 2; i++)
        if (messages[i]) fail_msg("%s: %s", devices[i], (const char *)messages[i]);
    assert_int_equal(emulated_used(), 0);
}

/* ---- Errors ---- */

static void a_reserve_beyond_the_card_is_refused_with_what_is_free(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    char text[256];
    size_t before = emulated_live(text, sizeof text);
    begin(&n);
    give_card(8 * MIB);
    expect_refusal(
        compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = 9 * MIB, .no_updates = true),
        TU_NO_MEMORY, SAID("gpu:0: cannot allocate a reserve of 9.0 MiB", "8.0 of its 8.0 MiB are free", "cuMemAlloc"));
    assert_int_equal(emulated_used(), 0);
    assert_int_equal(emulated_live(text, sizeof text), before);
    give_whole_card();
    end(&n);
}

static void a_reserve_beyond_the_limit_is_refused_before_it_is_taken(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    begin(&n);
    give_card(1); /* any allocation would fail */
    expect_refusal(compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = 4 * MIB + 1,
                           .gpu_memory_limit = 4 * MIB, .no_updates = true),
                   TU_INVALID,
                   SAID("a reserve of 4 MiB on gpu:0, where the program may take 4 MiB", "expected"));
    give_whole_card();
    expect_refusal(compile(&n, &program, .devices = "gpu:0/2", .strategy = "mirrored",
                           .gpu_memory_reserve = 9 * MIB, .memory_limit = 4 * MIB, .no_updates = true),
                   TU_INVALID, SAID("a reserve of 9 MiB", "on gpu:0, where the program may take 8 MiB"));
    assert_int_equal(emulated_used(), 0);
    assert_int_equal(compile(&n, &program, .devices = "gpu:0/2", .strategy = "mirrored",
                             .gpu_memory_reserve = 8 * MIB, .memory_limit = 4 * MIB, .no_updates = true),
                     TU_OK);
    tu_program_free(program);
    end(&n);
}

static void a_part_alone_may_reserve_what_all_parts_may_take(void **unused) {
    (void)unused;
    network n;
    tu_program *program;
    begin(&n);
    expect_refusal(compile(&n, &program, .devices = "gpu:0.0/2", .gpu_memory_reserve = 9 * MIB,
                           .gpu_memory_limit = 4 * MIB, .no_updates = true),
                   TU_INVALID, SAID("a reserve of 9 MiB", "on gpu:0, where the program may take 8 MiB"));
    assert_int_equal(compile(&n, &program, .devices = "gpu:0.0/2", .gpu_memory_reserve = 8 * MIB,
                             .gpu_memory_limit = 4 * MIB, .no_updates = true),
                     TU_OK);
    assert_int_equal(emulated_used(), 8 * MIB);
    tu_program_free(program);
    end(&n);
}

static void what_neither_card_nor_reserve_has_is_told(void **unused) {
    (void)unused;
    network n, other;
    tu_program *program, *another;
    float loss;
    begin(&n);
    begin(&other);
    assert_int_equal(
        compile(&n, &program, .devices = "gpu:0", .gpu_memory_reserve = 60 * KIB, .no_updates = true), TU_OK);
    assert_int_equal(run(&n, program, &loss), TU_OK);
    assert_int_equal(
        compile(&other, &another, .devices = "gpu:0.0/2", .updates = true, .gpu_memory_reserve = 60 * KIB),
        TU_OK);
    give_card(emulated_used());
    expect_refusal(run(&other, another, &loss), TU_NO_MEMORY,
                   SAID("gpu:0.0: cannot allocate ", "0.0 of its", "are free, and", "of the 0.1 MiB of its reserve"));
    give_whole_card();
    tu_program_free(another);
    tu_program_free(program);
    end(&other);
    end(&n);
}

int main(void) {
    use_emulated_card();
    fill_batches();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_limit_for_gpus_is_for_them_alone),
        cmocka_unit_test(of_two_limits_the_smaller_counts_on_a_gpu),
        cmocka_unit_test(a_reserve_is_taken_at_once_and_serves_everything),
        cmocka_unit_test(what_is_only_planned_reserves_nothing),
        cmocka_unit_test(a_later_program_has_the_reserve_when_the_card_is_full),
        cmocka_unit_test(memory_grows_beyond_a_reserve_that_is_used_up),
        cmocka_unit_test(parts_of_a_card_share_its_reserve),
        cmocka_unit_test(a_reserve_is_not_overhead),
        cmocka_unit_test(a_block_may_take_the_place_of_an_idle_reserve),
        cmocka_unit_test(given_memory_is_waited_for),
        cmocka_unit_test(parts_take_and_capture_beside_each_other),
        cmocka_unit_test(a_reserve_beyond_the_card_is_refused_with_what_is_free),
        cmocka_unit_test(a_reserve_beyond_the_limit_is_refused_before_it_is_taken),
        cmocka_unit_test(a_part_alone_may_reserve_what_all_parts_may_take),
        cmocka_unit_test(what_neither_card_nor_reserve_has_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
