/* Two GPUs: replicas on them have the same bits as replicas on one, with and without peer access; a plan reports how
 * values are copied; failures while peer access is enabled are reported with their cause. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"
#include "cuda/emulated.h"
#include "state_checks.h"

enum { BATCH = 8, WIDTH = 6, STEPS = 5 };

static const char no_peers[] = "0", peers[] = "1", too_many_peers[] = "2"; /* values of FAKE_CUDA_PEERS */

typedef struct setup { /* how devices share a batch */
    const char *devices, *strategy, *central;
    const char *peer_setting;
} setup;

typedef struct trainer {
    tu_graph *graph;
    tu_value x, loss;
    tu_program *step;
    tu_state *state;
} trainer;

static tu_status build_trainer(trainer *t, const setup *s, bool plan_only) {
    *t = (trainer){0};
    setenv("FAKE_CUDA_PEERS", s->peer_setting, 1);
    TU_TRY(tu_graph_new(&t->graph));
    tu_set_training(t->graph, true);
    t->x = tu_batch_input(t->graph, "x", TU_F32, TU_SHAPE(BATCH, WIDTH));
    tu_value y = tu_relu(tu_batch_norm(tu_dense(t->x, .units = 8, .name = "first"), .name = "normal"));
    t->loss = tu_mean(tu_square(tu_dense(y, .units = 3, .name = "second")));
    TU_TRY(tu_add_sgd(t->loss, 0.1, 0.9));
    TU_TRY(tu_compile(t->graph, &t->step, .devices = s->devices, .strategy = s->strategy,
                      .central = s->central, .invariant = 2, .fetch = &t->loss, .fetch_count = 1,
                      .updates = true, .plan_only = plan_only));
    return tu_state_new(t->graph, &t->state, .seed = 3);
}

static void free_trainer(trainer *t) {
    tu_program_free(t->step);
    tu_state_free(t->state);
    tu_graph_free(t->graph);
    unsetenv("FAKE_CUDA_PEERS");
}

/* Runs one step by itself, the others in one multi-step call. */
static void train(trainer *t, const setup *s) {
    float x[STEPS * BATCH * WIDTH], losses[STEPS];
    for (int i = 0; i < STEPS * BATCH * WIDTH; i++) x[i] = (float)sin(0.3 * i);
    if (build_trainer(t, s, false) != TU_OK) fail_msg("%s", tu_message());
    if (tu_run(t->step, t->state, 1, (tu_feed[]){{t->x, x}}, (void *[]){losses}) != TU_OK)
        fail_msg("%s", tu_message());
    const tu_feed_many others[] = {{.input = t->x, .data = x + BATCH * WIDTH}};
    if (tu_run_many(t->step, t->state, STEPS - 1, 1, others, (void *[]){losses + 1}) != TU_OK)
        fail_msg("%s", tu_message());
}

static void replicas_have_the_same_bits_on_any_path(void **unused) {
    (void)unused;
    static const setup setups[] = {
        {"gpu:0,gpu:1", "mirrored", NULL, peers},          {"gpu:0,gpu:1", "mirrored", NULL, no_peers},
        {"gpu:0,gpu:1", "mirrored", NULL, too_many_peers}, {"gpu:0,gpu:1", "central", "gpu:1", peers},
        {"gpu:0,gpu:1", "central", "gpu:1", no_peers},     {"gpu:0/2", "central", "gpu:0.0", peers},
    };
    trainer one, other;
    train(&one, &(setup){"gpu:0/2", "mirrored", NULL, peers});
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        train(&other, &setups[i]);
        assert_same_state(one.state, other.state);
        free_trainer(&other);
    }
    free_trainer(&one);
}

/* ---- Plans ---- */

static void assert_collective_path(const setup *s, bool peer_to_peer, bool through_host) {
    trainer t;
    tu_collective_report report = TU_SIZED(tu_collective_report);
    if (build_trainer(&t, s, true) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(tu_program_collective(t.step, 0, &report), TU_OK);
    assert_int_equal(report.peer_to_peer, peer_to_peer);
    assert_int_equal(report.through_host, through_host);
    free_trainer(&t);
}

static void plans_report_collective_paths(void **unused) {
    (void)unused;
    assert_collective_path(&(setup){"gpu:0,gpu:1", "mirrored", NULL, peers}, true, false);
    assert_collective_path(&(setup){"gpu:0,gpu:1", "mirrored", NULL, no_peers}, false, true);
    assert_collective_path(&(setup){"gpu:0,gpu:1", "mirrored", NULL, too_many_peers}, false, true);
    assert_collective_path(&(setup){"gpu:0/2", "mirrored", NULL, no_peers}, false, false);
}

/* Checks the path of all copies; NULL: no path is reported. */
static void assert_copy_path(const setup *s, const char *way) {
    trainer t;
    tu_placement p = TU_SIZED(tu_placement);
    size_t copies = 0;
    if (build_trainer(&t, s, true) != TU_OK) fail_msg("%s", tu_message());
    for (size_t i = 0; i < tu_program_placement_count(t.step) && tu_program_placement(t.step, i, &p) == TU_OK;
         i++) {
        copies += p.from != NULL;
        if (!p.from || !way) assert_null(p.copy_path);
        if (p.from && way) assert_string_equal(p.copy_path, way);
    }
    assert_true(copies > 0);
    free_trainer(&t);
}

static void plans_report_copy_paths(void **unused) {
    (void)unused;
    assert_copy_path(&(setup){"gpu:0,gpu:1", "central", "gpu:0", peers}, "peer to peer");
    assert_copy_path(&(setup){"gpu:0,gpu:1", "central", "gpu:0", no_peers}, "through the host");
    assert_copy_path(&(setup){"gpu:0/2", "central", "gpu:0.0", no_peers}, NULL);
    assert_copy_path(&(setup){"gpu:0,gpu:1", "central", "cpu:0", no_peers}, NULL);
}

/* ---- Failing ---- */

typedef struct failure {
    const char *call; /* value of FAKE_CUDA_FAIL */
    const char *devices;
    tu_status status;
    const char *message; /* without the error text, which is the same for all */
} failure;

/* A failed compilation must leak nothing. */
static void assert_failure(const failure *f) {
    static const char error[] = "CUDA_ERROR_LAUNCH_FAILED (unspecified launch failure)";
    char text[256], message[256];
    trainer t;
    int64_t blocks = tu__alloc_live();
    snprintf(message, sizeof message, "%s: %s", f->message, error);
    setenv("FAKE_CUDA_FAIL", f->call, 1);
    assert_int_equal(build_trainer(&t, &(setup){f->devices, "mirrored", NULL, peers}, false), f->status);
    unsetenv("FAKE_CUDA_FAIL");
    assert_string_equal(tu_message(), message);
    free_trainer(&t);
    assert_int_equal(tu__alloc_live(), blocks);
    assert_int_equal(emulated_live(text, sizeof text), 0);
}

static void peer_access_failures_are_named(void **unused) {
    (void)unused;
    static const failure failures[] = {
        {"cuDeviceCanAccessPeer:1", "gpu:0,gpu:1", TU_DEVICE,
         "gpu:0 cannot access the memory of gpu:1: cuDeviceCanAccessPeer"},
        {"cuDeviceCanAccessPeer:2", "gpu:0,gpu:1", TU_DEVICE,
         "gpu:1 cannot access the memory of gpu:0: cuDeviceCanAccessPeer"},
        {"cuCtxEnablePeerAccess:1", "gpu:0,gpu:1", TU_DEVICE,
         "gpu:0 cannot access the memory of gpu:1: cuCtxEnablePeerAccess"},
        {"cuCtxEnablePeerAccess:2", "gpu:0,gpu:1", TU_DEVICE,
         "gpu:1 cannot access the memory of gpu:0: cuCtxEnablePeerAccess"},
    };
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) assert_failure(&failures[i]);
}

/* A GPU whose query fails must not be reported as missing. */
static void a_failing_query_of_a_second_gpu_is_reported(void **unused) {
    (void)unused;
    assert_failure(&(failure){"cuDeviceGetName:1", "gpu:1", TU_UNSUPPORTED,
                              "device 'gpu:1' cannot be used: cuDeviceGetName"});
    assert_failure(&(failure){"cuDeviceGetCount:1", "gpu:1", TU_DEVICE,
                              "device 'gpu:1' cannot be used: cuDeviceGetCount"});
}

int main(void) {
    use_emulated_gpu();
    setenv("FAKE_CUDA_COUNT", "2", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_have_the_same_bits_on_any_path),
        cmocka_unit_test(plans_report_collective_paths),
        cmocka_unit_test(plans_report_copy_paths),
        cmocka_unit_test(peer_access_failures_are_named),
        cmocka_unit_test(a_failing_query_of_a_second_gpu_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
