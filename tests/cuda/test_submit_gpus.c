/* Many steps in one call of several devices of one kind: the same bits as one step at a time, whatever the partitions
 * exchange and wherever inputs are fed. A failure of any call returns a message and leaks nothing. Devices of
 * different kinds run one step at a time and report that.
 *
 * A plain run fails a few of the calls; with TUTTI_EVERY_CALL many more.
 */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "cuda/failing_calls.h"
#include "state_checks.h"

enum { ROWS = 8, COLUMNS = 6, MAX_INPUTS = 4, MAX_FETCHES = 6 };
enum { STEPS = 42 }; /* half of them are more than the maximum of one graph */

/* A program, its inputs and its fetched values. Input i of step s is the same in every program. */
typedef struct work {
    tu_graph *graph;
    tu_program *program;
    tu_state *state;
    tu_value inputs[MAX_INPUTS], fetches[MAX_FETCHES];
    size_t input_count, fetch_count;
    float data[MAX_INPUTS][STEPS][ROWS][COLUMNS];
    float results[MAX_FETCHES][STEPS];
} work;

typedef void builder(work *w, const char *const devices[]);

static tu_value add_input(work *w) {
    char name[16];
    snprintf(name, sizeof name, "x%zu", w->input_count);
    tu_value x = tu_batch_input(w->graph, name, TU_F32, TU_SHAPE(ROWS, COLUMNS));
    float *data = &w->data[w->input_count][0][0][0];
    for (int i = 0; i < STEPS * ROWS * COLUMNS; i++) data[i] = (float)sin(0.37 * i + (double)w->input_count);
    w->inputs[w->input_count++] = x;
    return x;
}

/* ---- Programs ---- */

static tu_value small_network(tu_value x, const char *scope) {
    tu_value y = x;
    tu_scope(x.graph, scope) {
        y = tu_dense(y, .units = 5, .act = TU_TANH, .name = "hidden");
        y = tu_dropout(y, 0.25);
        y = tu_mean(tu_square(tu_dense(y, .units = 3, .name = "out")));
    }
    return y;
}

/* Four networks that share only the input. */
static void build_independent(work *w, const char *const devices[]) {
    tu_value x = {0}, sum = {0};
    for (int i = 0; i < 4; i++) tu_with_device(w->graph, devices[i]) {
            if (i == 0) x = add_input(w);
            char scope[16];
            snprintf(scope, sizeof scope, "net%d", i);
            tu_value loss = small_network(x, scope);
            sum = i ? tu_add(sum, loss) : loss;
        }
    w->fetches[w->fetch_count++] = sum;
    assert_int_equal(tu_add_sgd(sum, 0.1, 0.9), TU_OK);
}

/* Each has a separate input and result; nothing is exchanged. */
static void build_separate(work *w, const char *const devices[]) {
    tu_value sum = {0};
    for (int i = 0; i < 4; i++) tu_with_device(w->graph, devices[i]) {
            char name[16];
            snprintf(name, sizeof name, "a%d", i);
            tu_value x = add_input(w), a = tu_variable(w->graph, name, TU_F32, TU_SHAPE(ROWS, COLUMNS));
            tu_value next = tu_tanh(tu_add(a, x));
            tu_assign(a, next);
            sum = tu_sum(tu_mul(a, x));
            w->fetches[w->fetch_count++] = sum;
        }
}

/* One network whose layers alternate between devices. The optimizer's variables are read on both devices and change
 * every step. */
static void build_layers(work *w, const char *const devices[]) {
    tu_value x = {0}, loss = {0};
    tu_with_device(w->graph, devices[0]) {
        x = add_input(w);
        x = tu_dense(x, .units = 8, .act = TU_TANH, .name = "first");
    }
    tu_with_device(w->graph, devices[1]) x = tu_dense(x, .units = 8, .act = TU_TANH, .name = "second");
    tu_with_device(w->graph, devices[0]) x = tu_dense(x, .units = 8, .act = TU_TANH, .name = "third");
    tu_with_device(w->graph, devices[1]) loss = tu_mean(tu_square(tu_dense(x, .units = 2, .name = "fourth")));
    w->fetches[w->fetch_count++] = loss;
    assert_int_equal(tu_add_optimizer(loss, NULL, .name = "adam", .stop_at_nonfinite = true,
                                      .rate = tu_fill(w->graph, TU_F64, TU_SCALAR, 0.05)),
                     TU_OK);
}

/* Two variables swap their values; the other device reads the old ones late. */
static void build_exchange(work *w, const char *const devices[]) {
    tu_value a = {0}, b = {0}, x = {0}, old = {0};
    tu_with_device(w->graph, devices[0]) {
        x = add_input(w);
        a = tu_variable(w->graph, "a", TU_F32, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 1});
        b = tu_variable(w->graph, "b", TU_F32, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 2});
        tu_value c = tu_variable(w->graph, "c", TU_F32, TU_SCALAR);
        tu_assign(a, b);
        tu_assign(b, a);
        tu_assign(c, tu_add(c, tu_mean(x)));
        w->fetches[w->fetch_count++] = c;
    }
    tu_with_device(w->graph, devices[1]) {
        old = tu_sum(tu_square(x));
        for (int i = 0; i < 3; i++) old = tu_sub(tu_mul(a, tu_tanh(old)), b);
        w->fetches[w->fetch_count++] = old;
    }
    w->fetches[w->fetch_count++] = a;
}

/* One network for all replicas: dropout, batch normalisation and clipping depend on the whole batch. */
static void build_replicated(work *w, const char *const devices[]) {
    (void)devices;
    tu_value y = tu_dense(add_input(w), .units = 8, .name = "first");
    y = tu_relu(tu_batch_norm(y, .name = "normal"));
    y = tu_dropout(tu_dense(y, .units = 8, .act = TU_TANH, .name = "second"), 0.25);
    tu_value loss = tu_mean(tu_square(tu_dense(y, .units = 2, .name = "third")));
    w->fetches[w->fetch_count++] = loss;
    assert_int_equal(tu_add_optimizer(loss, NULL, .name = "momentum", .momentum = 0.9, .clip_norm = 0.5,
                                      .rate = tu_fill(w->graph, TU_F64, TU_SCALAR, 0.05)),
                     TU_OK);
}

/* ---- Running ---- */

static const char *strategy, *central; /* of the next programs */
static int invariant;

static tu_status build_work(work *w, builder *build, const char *const devices[], const char *list) {
    *w = (work){0};
    TU_TRY(tu_graph_new(&w->graph));
    tu_set_training(w->graph, true);
    build(w, devices);
    TU_TRY(tu_compile(w->graph, &w->program, .devices = list, .strategy = strategy, .central = central,
                      .invariant = invariant, .fetch = w->fetch_count ? w->fetches : NULL,
                      .fetch_count = w->fetch_count, .updates = true));
    return tu_state_new(w->graph, &w->state, .seed = 11);
}

static void free_work(work *w) {
    tu_program_free(w->program);
    tu_state_free(w->state);
    tu_graph_free(w->graph);
}

static void run_one_by_one(work *w) {
    for (int s = 0; s < STEPS; s++) {
        tu_feed feeds[MAX_INPUTS];
        void *results[MAX_FETCHES];
        for (size_t i = 0; i < w->input_count; i++) feeds[i] = (tu_feed){w->inputs[i], w->data[i][s]};
        for (size_t i = 0; i < w->fetch_count; i++) results[i] = &w->results[i][s];
        if (tu_run(w->program, w->state, w->input_count, feeds, results) != TU_OK)
            fail_msg("%s", tu_message());
    }
}

/* Runs steps first … first+count-1. With a table, the first input's rows are in another order. */
static tu_status run_many(work *w, int first, int count, bool from_table) {
    float rows[STEPS * ROWS][COLUMNS];
    int64_t numbers[STEPS * ROWS];
    tu_table *table = NULL;
    for (int i = 0; i < STEPS * ROWS; i++) {
        numbers[i] = STEPS * ROWS - 1 - i;
        memcpy(rows[numbers[i]], w->data[0][i / ROWS][i % ROWS], sizeof rows[0]);
    }
    tu_feed_many feeds[MAX_INPUTS];
    void *results[MAX_FETCHES];
    for (size_t i = 0; i < w->input_count; i++)
        feeds[i] = (tu_feed_many){.input = w->inputs[i], .data = w->data[i][first]};
    for (size_t i = 0; i < w->fetch_count; i++) results[i] = &w->results[i][first];
    if (from_table) {
        TU_TRY(tu_table_new(rows, sizeof rows[0], STEPS * ROWS, &table));
        feeds[0] = (tu_feed_many){.input = w->inputs[0], .table = table, .rows = numbers + first * ROWS};
    }
    tu_status status = tu_run_many(w->program, w->state, (size_t)count, w->input_count, feeds, results);
    tu_table_free(table);
    return status;
}

static void assert_same_results(const work *a, const work *b) {
    for (size_t i = 0; i < a->fetch_count; i++)
        for (int s = 0; s < STEPS; s++)
            if (memcmp(&a->results[i][s], &b->results[i][s], sizeof(float)) != 0)
                fail_msg("fetch %zu of step %d is %.9g, but %.9g in a multi-step call", i, s,
                         (double)a->results[i][s], (double)b->results[i][s]);
}

static void assert_multi_step(const work *w, bool in_one_call) {
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    assert_int_equal(tu_program_multi_step(w->program, &report), TU_OK);
    if (report.in_one_call != in_one_call)
        fail_msg("multi-step calls are%s used: %s", in_one_call ? " not" : "", report.notice);
}

static void expect_same_bits(builder *build, const char *const devices[], const char *list,
                             bool in_one_call) {
    for (int from_table = 0; from_table < 2; from_table++) {
        static work one, multi;
        assert_int_equal(build_work(&one, build, devices, list), TU_OK);
        if (build_work(&multi, build, devices, list) != TU_OK) fail_msg("%s", tu_message());
        assert_multi_step(&multi, in_one_call);
        run_one_by_one(&one);
        if (run_many(&multi, 0, 2, from_table) != TU_OK) fail_msg("%s", tu_message());
        if (run_many(&multi, 2, STEPS - 2, from_table) != TU_OK) fail_msg("%s", tu_message());
        assert_same_results(&one, &multi);
        assert_same_state(one.state, multi.state);
        free_work(&one);
        free_work(&multi);
    }
}

static const char *const quarters[] = {"gpu:0.0", "gpu:0.1", "gpu:0.2", "gpu:0.3"};
static const char *const halves[] = {"gpu:0.0", "gpu:0.1"};

static void independent_networks_keep_their_bits(void **unused) {
    (void)unused;
    expect_same_bits(build_independent, quarters, "gpu:0/4", true);
}

static void partitions_may_have_separate_inputs_and_results(void **unused) {
    (void)unused;
    expect_same_bits(build_separate, quarters, "gpu:0/4", true);
}

static void a_network_split_by_layers_keeps_its_bits(void **unused) {
    (void)unused;
    expect_same_bits(build_layers, halves, "gpu:0/2", true);
}

static void variables_change_at_the_end_of_a_step(void **unused) {
    (void)unused;
    expect_same_bits(build_exchange, halves, "gpu:0/2", true);
}

/* Counters without inputs and fetched results: such steps need no rings. */
static void build_counters(work *w, const char *const devices[]) {
    static const char *const names[] = {"count0", "count1"};
    for (int i = 0; i < 2; i++) tu_with_device(w->graph, devices[i]) {
            tu_value count = tu_variable(w->graph, names[i], TU_F32, TU_SCALAR);
            tu_assign(count, tu_shift(count, 1));
        }
}

static void steps_may_have_no_inputs_and_results(void **unused) {
    (void)unused;
    static const char *const lists[] = {"gpu:0", "gpu:0/2"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        static const char *const no_devices[] = {NULL, NULL};
        static work w;
        float count;
        assert_int_equal(build_work(&w, build_counters, i ? halves : no_devices, lists[i]), TU_OK);
        assert_multi_step(&w, true);
        for (int calls = 1; calls <= 3; calls++) assert_int_equal(run_many(&w, 0, 1, false), TU_OK);
        assert_int_equal(run_many(&w, 0, STEPS, false), TU_OK);
        assert_int_equal(tu_state_get(w.state, "count1", &count, sizeof count), TU_OK);
        assert_int_equal((int)count, STEPS + 3);
        free_work(&w);
    }
}

/* All replicas read rows of one table. */
static void a_gpu_keeps_one_copy_of_a_table(void **unused) {
    (void)unused;
    static work w;
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    strategy = "mirrored";
    assert_int_equal(build_work(&w, build_replicated, NULL, "gpu:0/4"), TU_OK);
    assert_int_equal(run_many(&w, 0, STEPS, true), TU_OK);
    assert_int_equal(tu_program_multi_step(w.program, &report), TU_OK);
    assert_int_equal(report.table_bytes, sizeof w.data[0]);
    assert_int_equal(report.gathered_bytes, 0);
    free_work(&w);
    strategy = NULL;
}

static void replicas_keep_their_bits(void **unused) {
    (void)unused;
    strategy = "mirrored";
    expect_same_bits(build_replicated, NULL, "gpu:0/4", true);
    expect_same_bits(build_replicated, NULL, "gpu:0/3", true);
    invariant = 4;
    expect_same_bits(build_replicated, NULL, "gpu:0/2", true);
    expect_same_bits(build_replicated, NULL, "gpu:0", true);
    invariant = 0;
    strategy = NULL;
}

static const char *const gpus[] = {"gpu:0", "gpu:1"};

/* GPUs without peer access, and parameters on the CPU, need the engine in every step. */
static void replicas_that_need_the_host_run_single_steps(void **unused) {
    (void)unused;
    strategy = "mirrored";
    setenv("FAKE_CUDA_PEERS", "0", 1);
    expect_same_bits(build_replicated, NULL, "gpu:0,gpu:1", false);
    unsetenv("FAKE_CUDA_PEERS");
    strategy = "central";
    expect_same_bits(build_replicated, NULL, "gpu:0/2,cpu:0", false);
    strategy = NULL;
}

/* Replicas on two GPUs, with one or two logical devices each. */
static void replicas_with_peer_access_keep_their_bits(void **unused) {
    (void)unused;
    strategy = "mirrored";
    expect_same_bits(build_replicated, NULL, "gpu:0,gpu:1", true);
    expect_same_bits(build_replicated, NULL, "gpu:0/2,gpu:1/2", true);
    strategy = "central";
    central = "gpu:1";
    expect_same_bits(build_replicated, NULL, "gpu:0,gpu:1", true);
    central = NULL;
    strategy = NULL;
}

/* Copies between GPUs without peer access are enqueued, not captured. */
static void two_gpus_keep_their_bits(void **unused) {
    (void)unused;
    expect_same_bits(build_layers, gpus, "gpu:0,gpu:1", true);
    expect_same_bits(build_exchange, gpus, "gpu:0,gpu:1", true);
    setenv("FAKE_CUDA_PEERS", "0", 1);
    expect_same_bits(build_layers, gpus, "gpu:0,gpu:1", true);
    expect_same_bits(build_exchange, gpus, "gpu:0,gpu:1", true);
    unsetenv("FAKE_CUDA_PEERS");
}

static void a_gpu_and_a_cpu_run_single_steps(void **unused) {
    (void)unused;
    static const char *const mixed[] = {"gpu:0", "cpu:0"};
    static work w;
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    expect_same_bits(build_layers, mixed, "gpu:0,cpu:0", false);
    assert_int_equal(build_work(&w, build_layers, mixed, "gpu:0,cpu:0"), TU_OK);
    assert_int_equal(tu_program_multi_step(w.program, &report), TU_OK);
    assert_string_equal(report.notice, "the program has 2 devices, which exchange values in every step");
    free_work(&w);
}

/* A trace shows single steps; afterwards multi-step calls are used again. */
static void a_traced_call_runs_single_steps(void **unused) {
    (void)unused;
    static work one, multi;
    assert_int_equal(build_work(&one, build_layers, halves, "gpu:0/2"), TU_OK);
    assert_int_equal(build_work(&multi, build_layers, halves, "gpu:0/2"), TU_OK);
    run_one_by_one(&one);
    assert_int_equal(run_many(&multi, 0, 3, false), TU_OK);
    assert_int_equal(tu_program_trace_begin(multi.program), TU_OK);
    assert_int_equal(run_many(&multi, 3, 3, false), TU_OK);
    tu_program_trace_end(multi.program);
    assert_int_equal(run_many(&multi, 6, STEPS - 6, false), TU_OK);
    assert_same_results(&one, &multi);
    assert_same_state(one.state, multi.state);
    free_work(&one);
    free_work(&multi);
}

/* ---- Failing ---- */

typedef struct failing_work {
    builder *build;
    const char *list;
} failing_work;

static tu_status run_all_steps(const void *context, unsigned trial) {
    (void)trial;
    static work w;
    const failing_work *what = context;
    tu_status status = build_work(&w, what->build, halves, what->list);
    if (status == TU_OK) status = run_many(&w, 0, STEPS - 3, true);
    if (status == TU_OK) status = run_many(&w, STEPS - 3, 3, true);
    free_work(&w);
    return status;
}

/* Thousands of calls, many of them similar: one in `stride` fails. */
static void fail_calls_of(builder *build, const char *list, unsigned stride) {
    const failing_work what = {build, list};
    fail_calls(&(failing_calls){.work = run_all_steps,
                                .context = &what,
                                .stride = stride,
                                .max_ineffective = 8,
                                .min_failures = 2500 / stride});
}

static void any_call_may_fail(void **unused) {
    (void)unused;
    const unsigned stride = getenv("TUTTI_EVERY_CALL") ? 7 : 83;
    fail_calls_of(build_layers, "gpu:0/2", stride);
    strategy = "mirrored";
    fail_calls_of(build_replicated, "gpu:0/2", stride);
    fail_calls_of(build_replicated, "gpu:0,gpu:1", stride);
    strategy = NULL;
}

int main(int argc, char **argv) {
    bool is_real_gpu = use_real_gpu(argc, argv);
    setenv("FAKE_CUDA_COUNT", "2", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(independent_networks_keep_their_bits),
        cmocka_unit_test(partitions_may_have_separate_inputs_and_results),
        cmocka_unit_test(a_network_split_by_layers_keeps_its_bits),
        cmocka_unit_test(variables_change_at_the_end_of_a_step),
        cmocka_unit_test(steps_may_have_no_inputs_and_results),
        cmocka_unit_test(replicas_keep_their_bits),
        cmocka_unit_test(a_gpu_keeps_one_copy_of_a_table),
        cmocka_unit_test(a_gpu_and_a_cpu_run_single_steps),
        cmocka_unit_test(a_traced_call_runs_single_steps),
    };
    const struct CMUnitTest emulated[] = {
        /* tests that need two GPUs or failing calls */
        cmocka_unit_test(replicas_that_need_the_host_run_single_steps),
        cmocka_unit_test(replicas_with_peer_access_keep_their_bits),
        cmocka_unit_test(two_gpus_keep_their_bits),
        cmocka_unit_test(any_call_may_fail),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return is_real_gpu ? failed : failed + cmocka_run_group_tests(emulated, NULL, NULL);
}
