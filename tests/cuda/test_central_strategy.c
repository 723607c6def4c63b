/* A CPU that holds the variables of two logical devices of a GPU (strategy "central"). Checks that copies need no
 * threads unless each is traced, that kernels are the same as on a GPU that holds the variables itself, and that
 * whichever call fails, a failing run has changed no variable, has no work in flight and leaks nothing, including
 * pinned memory. */
#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "count_copy_threads.h"
#include "cuda/failing_calls.h"

enum { BATCH = 4, IN = 16, OUT = 1500, STEPS = 3 }; /* weights of 96 KB: large enough to be pinned */

typedef struct trainer {
    tu_graph *graph;
    tu_value x;
    tu_program *step;
    tu_state *state;
} trainer;

static tu_status start_trainer(trainer *t) {
    memset(t, 0, sizeof *t);
    TU_TRY(tu_graph_new(&t->graph));
    t->x = tu_batch_input(t->graph, "x", TU_F32, TU_SHAPE(BATCH, IN));
    tu_value w =
        tu_variable(t->graph, "w", TU_F32, TU_SHAPE(IN, OUT), .init = {.kind = TU_INIT_CONSTANT, .a = 0.01});
    tu_value loss = tu_mean(tu_square(tu_tanh(tu_matmul(t->x, w))));
    TU_TRY(tu_add_sgd(loss, 0.5, 0));
    TU_TRY(tu_state_new(t->graph, &t->state));
    return tu_compile(t->graph, &t->step, .devices = "gpu:0/2", .strategy = "central", .threads = 1,
                      .updates = true);
}

static void free_trainer(trainer *t) {
    tu_program_free(t->step);
    tu_state_free(t->state);
    tu_graph_free(t->graph);
}

static tu_status run(const trainer *t, int step) {
    float x[BATCH * IN];
    for (int i = 0; i < BATCH * IN; i++) x[i] = (float)sin(i * 0.7 + step);
    return tu_run(t->step, t->state, 1, (tu_feed[]){{t->x, x}}, NULL);
}

static void read_weights(const trainer *t, float *w) {
    assert_int_equal(tu_state_get(t->state, "w", w, sizeof(float) * IN * OUT), TU_OK);
}

/* The weights after every step of a run without failures. */
static float expected[STEPS + 1][IN * OUT];

static void train_without_failure(void) {
    trainer t;
    if (start_trainer(&t) != TU_OK) fail_msg("%s", tu_message());
    read_weights(&t, expected[0]);
    for (int i = 0; i < STEPS; i++) {
        if (run(&t, i) != TU_OK) fail_msg("%s", tu_message());
        read_weights(&t, expected[i + 1]);
        assert_memory_not_equal(expected[i], expected[i + 1], sizeof expected[i]);
    }
    free_trainer(&t);
}

static void only_traced_copies_have_threads(void **unused) {
    (void)unused;
    trainer t;
    if (start_trainer(&t) != TU_OK || run(&t, 0) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(count_copy_threads(t.step), 0);
    if (tu_program_trace_begin(t.step) != TU_OK || run(&t, 1) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(count_copy_threads(t.step), 2);
    free_trainer(&t);
}

/* A traced run reads its times after the step, and fails if they are unavailable: then the variables are updated. */
static bool has_updated(const float *w, int step, bool traced) {
    return traced && memcmp(w, expected[step + 1], sizeof expected[step]) == 0;
}

/* Runs steps until one fails; a failed step must not change the weights. */
static tu_status train(const void *context, unsigned trial) {
    (void)trial;
    const bool *traced = context;
    static float w[IN * OUT];
    trainer t;
    tu_status status = start_trainer(&t);
    if (status == TU_OK && *traced) status = tu_program_trace_begin(t.step);
    for (int i = 0; i < STEPS && status == TU_OK; i++) {
        status = run(&t, i);
        read_weights(&t, w);
        if (status != TU_OK && has_updated(w, i, *traced)) continue;
        assert_memory_equal(w, expected[status == TU_OK ? i + 1 : i], sizeof w);
    }
    free_trainer(&t);
    return status;
}

static void any_call_may_fail(void **unused) {
    (void)unused;
    train_without_failure();
    for (int traced = 0; traced < 2; traced++)
        fail_calls(&(failing_calls){.work = train,
                                    .context = &(bool){traced},
                                    .stride = 1,
                                    .max_ineffective = 100,
                                    .min_failures = 300});
}

/* Labels arrive before the weights do: the loss must still fuse its gradient. */
static void a_loss_fuses_its_gradient_before_its_weights_arrive(void **unused) {
    (void)unused;
    tu_graph *graph;
    tu_program *step;
    tu_kernel_report kernel = TU_SIZED(tu_kernel_report);
    int losses = 0, softmaxes = 0;
    assert_int_equal(tu_graph_new(&graph), TU_OK);
    tu_value x = tu_batch_input(graph, "x", TU_F32, TU_SHAPE(BATCH, IN));
    tu_value labels = tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(BATCH));
    tu_value w = tu_variable(graph, "w", TU_F32, TU_SHAPE(IN, 10));
    tu_value loss = tu_mean(tu_cross_entropy(tu_matmul(x, w), labels));
    if (tu_add_sgd(loss, 0.5, 0) != TU_OK ||
        tu_compile(graph, &step, .devices = "gpu:0/2", .strategy = "central", .threads = 1, .fetch = &loss,
                   .fetch_count = 1, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    for (size_t i = 0; i < tu_program_kernel_count(step) && tu_program_kernel(step, i, &kernel) == TU_OK;
         i++) {
        losses += strstr(kernel.kernel, "cross_entropy") && strstr(kernel.kernel, "gradient");
        softmaxes += strcmp(kernel.kernel, "softmax") == 0;
    }
    assert_int_equal(losses, 2);
    assert_int_equal(softmaxes, 0);
    tu_program_free(step);
    tu_graph_free(graph);
}

int main(void) {
    use_emulated_gpu();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_traced_copies_have_threads),
        cmocka_unit_test(a_loss_fuses_its_gradient_before_its_weights_arrive),
        cmocka_unit_test(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
