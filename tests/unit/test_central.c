/* Tests of the strategy `central`, in which one device owns the variables and others read them. Variables are updated
 * in place after all devices have read them. Variables that a GPU reads in every run are pinned for it, as long as
 * they stay in host memory. GPUs send values to the host in parallel. Asynchronous copies are complete before their
 * value is read. */
#include "discrete_device.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include <tutti/tutti.h>

#include "count_copy_threads.h"
#include "run/state.h"

/* ---- A device that pins host memory ---- */

enum { MAX_PINNED = 8 };

static struct {
    void *host[MAX_PINNED];
    size_t bytes[MAX_PINNED];
    int count;
    bool fails;
} pinned;

static tu_status allocate_pinned(tu_device_instance *device, bool on_host, size_t bytes, void **address) {
    if (!on_host) return allocate_discrete(device, false, bytes, address);
    if (pinned.fails) return tu_fail(TU_NO_MEMORY, "no more can be pinned");
    assert_true(pinned.count < MAX_PINNED);
    TU_TRY(tu__cpu_api.allocate(device, true, bytes, address));
    pinned.host[pinned.count] = *address;
    pinned.bytes[pinned.count++] = bytes;
    return TU_OK;
}

static void release_pinned(tu_device_instance *device, void *address) {
    int index = 0;
    while (index < pinned.count && pinned.host[index] != address) index++;
    if (index == pinned.count) {
        release_discrete(device, address);
        return;
    }
    pinned.count--;
    pinned.host[index] = pinned.host[pinned.count];
    pinned.bytes[index] = pinned.bytes[pinned.count];
    tu__cpu_api.release(device, address);
}

static bool is_pinned(const tu_state *state, const char *name) {
    const tu__variable *v = NULL;
    for (size_t i = 0; i < state->count; i++)
        if (strcmp(state->variables[i].name, name) == 0) v = &state->variables[i];
    assert_non_null(v);
    for (int i = 0; i < pinned.count; i++)
        if (pinned.host[i] == v->data) return pinned.bytes[i] == tu_type_bytes(v->type);
    return false;
}

static void register_pinning_discrete_device(void) {
    register_discrete_device();
    memset(&pinned, 0, sizeof pinned);
    discrete_api.allocate = allocate_pinned;
    discrete_api.release = release_pinned;
}

/* ---- A network whose weights are large enough to pin, and whose biases are not ---- */

enum { BATCH = 4, IN = 16, OUT = 1500, STEPS = 3 };

typedef struct trainer {
    tu_graph *graph;
    tu_value x, loss;
    tu_program *step;
    tu_state *state;
} trainer;

static tu_program *compile_trainer(const trainer *t, const char *devices, const char *strategy) {
    tu_program *program;
    if (tu_compile(t->graph, &program, .devices = devices, .strategy = strategy, .threads = 1,
                   .fetch = &t->loss, .fetch_count = 1, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    return program;
}

static void create_trainer(trainer *t, const char *devices, const char *strategy) {
    assert_int_equal(tu_graph_new(&t->graph), TU_OK);
    t->x = tu_batch_input(t->graph, "x", TU_F32, TU_SHAPE(BATCH, IN));
    tu_value w =
        tu_variable(t->graph, "w", TU_F32, TU_SHAPE(IN, OUT), .init = {.kind = TU_INIT_NORMAL, .b = 0.1});
    tu_value b = tu_variable(t->graph, "b", TU_F32, TU_SHAPE(OUT));
    t->loss = tu_mean(
        tu_square(tu_sub(tu_tanh(tu_add(tu_matmul(t->x, w), b)), tu_fill(t->graph, TU_F32, TU_SCALAR, 0.5))));
    assert_int_equal(tu_add_sgd(t->loss, 0.5, 0.9), TU_OK);
    t->step = compile_trainer(t, devices, strategy);
    assert_int_equal(tu_state_new(t->graph, &t->state, .seed = 4), TU_OK);
}

static void free_trainer(trainer *t) {
    tu_program_free(t->step);
    tu_state_free(t->state);
    tu_graph_free(t->graph);
}

static float run_step(const trainer *t, tu_program *program, int step) {
    float x[BATCH * IN], loss = 0;
    for (int i = 0; i < BATCH * IN; i++) x[i] = (float)sin(i * 0.7 + step);
    if (tu_run(program, t->state, 1, (tu_feed[]){{t->x, x}}, (void *[]){&loss}) != TU_OK)
        fail_msg("%s", tu_message());
    return loss;
}

/* ---- Updates ---- */

static void expect_update(const tu_program *program, const char *variable, bool in_place) {
    bool found = false;
    for (size_t i = 0; i < program->device_count; i++)
        for (uint32_t k = 0; k < program->partitions[i].update_count; k++) {
            const tu__update *u = &program->partitions[i].updates[k];
            if (strcmp(program->unit.graph->nodes[u->variable]->name, variable) != 0) continue;
            assert_int_equal(u->in_place, in_place);
            found = true;
        }
    assert_true(found);
}

static void assert_close(const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++) assert_true(fabsf(a[i] - b[i]) < 1e-5f);
}

static void variables_that_replicas_read_are_updated_in_place(void **unused) {
    (void)unused;
    static const char *const lists[] = {"cpu:0/2", "discrete:0/2"};
    static float single[IN * OUT], replicated[IN * OUT];
    register_discrete_device();
    for (int l = 0; l < 2; l++) {
        trainer single_trainer, central_trainer;
        create_trainer(&single_trainer, "cpu:0", NULL);
        create_trainer(&central_trainer, lists[l], "central");
        expect_update(central_trainer.step, "w", true);
        expect_update(central_trainer.step, "b", true);
        for (int i = 0; i < STEPS; i++) {
            float loss = run_step(&single_trainer, single_trainer.step, i);
            assert_true(fabsf(loss - run_step(&central_trainer, central_trainer.step, i)) < 1e-5f);
        }
        assert_int_equal(tu_state_get(single_trainer.state, "w", single, sizeof single), TU_OK);
        assert_int_equal(tu_state_get(central_trainer.state, "w", replicated, sizeof replicated), TU_OK);
        assert_close(single, replicated, IN * OUT);
        free_trainer(&single_trainer);
        free_trainer(&central_trainer);
    }
}

/* Swaps two variables, one of which needs a staging buffer. Another device reads both old values. */
static void variables_that_another_device_reads_can_be_swapped(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_value both = {0}, a, b;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_with_device(g, "cpu:0.0") {
        a = tu_variable(g, "a", TU_F32, TU_SHAPE(8), .init = {.kind = TU_INIT_CONSTANT, .a = 1});
        b = tu_variable(g, "b", TU_F32, TU_SHAPE(8), .init = {.kind = TU_INIT_CONSTANT, .a = 2});
        tu_assign(a, b);
        tu_assign(b, tu_add(a, tu_fill(g, TU_F32, TU_SCALAR, 10)));
    }
    tu_with_device(g, "cpu:0.1") both = tu_add(tu_scale(a, 100), b);
    tu_program *program;
    tu_state *state;
    if (tu_compile(g, &program, .devices = "cpu:0/2", .fetch = &both, .fetch_count = 1, .updates = true) !=
        TU_OK)
        fail_msg("%s", tu_message());
    expect_update(program, "a", false);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    float expected_a = 1, expected_b = 2, seen[8];
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(tu_run(program, state, 0, NULL, (void *[]){seen}), TU_OK);
        for (int k = 0; k < 8; k++) assert_true(seen[k] == 100 * expected_a + expected_b);
        float old = expected_a;
        expected_a = expected_b;
        expected_b = old + 10;
    }
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

/* ---- Pinning ---- */

static void variables_are_pinned_while_they_are_in_host_memory(void **unused) {
    (void)unused;
    trainer t;
    static float w[IN * OUT], after[IN * OUT];
    register_pinning_discrete_device();
    create_trainer(&t, "discrete:0/2", "central");
    assert_int_equal(pinned.count, 0);
    run_step(&t, t.step, 0);
    assert_true(is_pinned(t.state, "w"));
    assert_false(is_pinned(t.state, "b")); /* too small */
    int count = pinned.count;

    assert_int_equal(tu_state_set(t.state, "w", w, sizeof w), TU_OK); /* same memory, other contents */
    run_step(&t, t.step, 1);
    assert_int_equal(pinned.count, count);
    assert_true(is_pinned(t.state, "w"));
    assert_int_equal(tu_state_get(t.state, "w", after, sizeof after), TU_OK);
    for (int i = 0; i < IN * OUT; i++) assert_true(after[i] != 0 && fabsf(after[i]) < 0.1f);

    /* Moves the variables to the device; the next run moves them back. */
    tu_program *on_discrete = compile_trainer(&t, "discrete:0", NULL);
    run_step(&t, on_discrete, 2);
    assert_false(is_pinned(t.state, "w"));
    assert_true(pinned.count < count);
    run_step(&t, t.step, 3);
    assert_true(is_pinned(t.state, "w"));
    tu_program_free(on_discrete);
    free_trainer(&t);
    assert_int_equal(pinned.count, 0);
}

static void a_state_may_outlive_the_program_that_pinned_it(void **unused) {
    (void)unused;
    trainer t;
    register_pinning_discrete_device();
    create_trainer(&t, "discrete:0/2", "central");
    run_step(&t, t.step, 0);
    tu_program_free(t.step);
    assert_true(is_pinned(t.state, "w"));
    t.step = compile_trainer(&t, "cpu:0", NULL);
    run_step(&t, t.step, 1);
    free_trainer(&t);
    assert_int_equal(pinned.count, 0);
}

static void variables_that_cannot_be_pinned_are_still_copied(void **unused) {
    (void)unused;
    float losses[2][STEPS];
    for (int fails = 0; fails < 2; fails++) {
        trainer t;
        register_pinning_discrete_device();
        pinned.fails = fails;
        create_trainer(&t, "discrete:0/2", "central");
        for (int i = 0; i < STEPS; i++) losses[fails][i] = run_step(&t, t.step, i);
        assert_int_equal(is_pinned(t.state, "w"), !fails);
        free_trainer(&t);
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
}

/* ---- Asynchronous copies ---- */

static int count_begun_copies(void) {
    return discrete.uploads + discrete.downloads;
}

/* Adds the discrete device with copies that are performed as late as possible. `by_compute_threads`: with pinned
 * memory, so that compute threads begin the copies, not copy threads. */
static void register_discrete_device_with_async_copies(bool by_compute_threads) {
    if (by_compute_threads)
        register_pinning_discrete_device();
    else
        register_discrete_device();
    discrete.copies_are_late = true;
}

static void asynchronous_copies_complete_before_their_value_is_used(void **unused) {
    (void)unused;
    enum { SYNCHRONOUS, BY_COPY_THREADS, UNPINNED, BY_COMPUTE_THREADS, MODES };
    float losses[MODES][STEPS];
    static float w[MODES][IN * OUT];
    for (int mode = 0; mode < MODES; mode++) {
        trainer t;
        register_discrete_device_with_async_copies(mode >= UNPINNED);
        if (mode == SYNCHRONOUS) remove_discrete_queues();
        pinned.fails = mode == UNPINNED; /* then copy threads begin the copies, except small ones */
        create_trainer(&t, "discrete:0/2", "central");
        for (int i = 0; i < STEPS; i++) losses[mode][i] = run_step(&t, t.step, i);
        assert_int_equal(tu_state_get(t.state, "w", w[mode], sizeof w[mode]), TU_OK);
        assert_int_equal(count_copy_threads(t.step), mode == BY_COMPUTE_THREADS ? 0 : 2);
        free_trainer(&t);
        assert_memory_equal(losses[0], losses[mode], sizeof losses[0]);
        assert_memory_equal(w[0], w[mode], sizeof w[0]);
        bool is_async = mode != SYNCHRONOUS;
        assert_int_equal(discrete.uploads, is_async ? 2 * 2 * STEPS : 0);   /* two variables to two devices */
        assert_int_equal(discrete.downloads, is_async ? 2 * 3 * STEPS : 0); /* two gradients and the loss */
        assert_int_equal(discrete.completed, count_begun_copies());
    }
}

static void no_copy_is_in_progress_after_a_failed_run(void **unused) {
    (void)unused;
    for (int trial = 0; trial < 8; trial++) {
        trainer t;
        float x[BATCH * IN] = {0};
        register_discrete_device_with_async_copies(trial % 2);
        create_trainer(&t, "discrete:0/2", "central");
        discrete.fails_in_launch = 1 + trial / 2;
        assert_int_equal(tu_run(t.step, t.state, 1, (tu_feed[]){{t.x, x}}, NULL), TU_DEVICE);
        assert_true(strstr(tu_message(), "the discrete device has gone away"));
        assert_int_equal(discrete.completed, count_begun_copies());
        free_trainer(&t);
    }
}

/* ---- Sending in parallel ---- */

/* A download from one discrete device blocks until the other one downloads, too, or fails after a timeout. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tu_device_instance *seen[2];
    int count;
} downloads = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void note_download(tu_device_instance *device) {
    for (int i = 0; i < downloads.count; i++)
        if (downloads.seen[i] == device) return;
    assert_true(downloads.count < 2);
    downloads.seen[downloads.count++] = device;
    pthread_cond_broadcast(&downloads.changed);
}

static tu_status wait_for_both_downloads(tu_device_instance *device) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    bool in_time = true;
    pthread_mutex_lock(&downloads.lock);
    note_download(device);
    while (downloads.count < 2 && in_time)
        in_time = pthread_cond_timedwait(&downloads.changed, &downloads.lock, &until) == 0;
    pthread_mutex_unlock(&downloads.lock);
    return in_time ? TU_OK : tu_fail(TU_DEVICE, "nothing leaves the other device");
}

static tu_status copy_in_parallel(tu_device_instance *device, tu_queue *queue, tu_memory to, tu_memory from,
                                  size_t bytes) {
    if (!to.device) TU_TRY(wait_for_both_downloads(device));
    return copy_discrete(device, queue, to, from, bytes);
}

/* With and without queues. */
static void devices_send_to_the_host_in_parallel(void **unused) {
    (void)unused;
    for (int has_queues = 0; has_queues < 2; has_queues++) {
        trainer t;
        register_discrete_device();
        if (!has_queues) remove_discrete_queues();
        create_trainer(&t, "discrete:0/2", "central");
        discrete_api.copy = copy_in_parallel;
        downloads.count = 0;
        run_step(&t, t.step, 0);
        assert_int_equal(downloads.count, 2);
        assert_int_equal(discrete.downloads > 0, has_queues);
        free_trainer(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_that_replicas_read_are_updated_in_place),
        cmocka_unit_test(variables_that_another_device_reads_can_be_swapped),
        cmocka_unit_test(variables_are_pinned_while_they_are_in_host_memory),
        cmocka_unit_test(a_state_may_outlive_the_program_that_pinned_it),
        cmocka_unit_test(variables_that_cannot_be_pinned_are_still_copied),
        cmocka_unit_test(asynchronous_copies_complete_before_their_value_is_used),
        cmocka_unit_test(no_copy_is_in_progress_after_a_failed_run),
        cmocka_unit_test(devices_send_to_the_host_in_parallel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
