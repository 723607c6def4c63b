/* Tests of sessions: threads that run one program over one state at once get the results of a single thread, updates
 * are exclusive, and sessions and programs may be freed in any order. */
#include "test.h"

#include <pthread.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"

enum { THREADS = 8, RUNS = 12, SIZE = 40 };

/* A network with convolutions, a normalisation and a matmul; for batches of one image. */
typedef struct network {
    tu_graph *graph;
    tu_value x, y;
    tu_program *program;
    tu_state *state;
} network;

static void begin_network(network *n, const char *devices) {
    assert_int_equal(tu_graph_new(&n->graph), TU_OK);
    n->x = tu_batch_input(n->graph, "x", TU_F32, TU_SHAPE(1, 12, 12, 3));
    tu_value y = tu_conv2d(n->x, .filters = 8, .size = 3, .act = TU_RELU, .name = "conv");
    y = tu_relu(tu_batch_norm(y, .name = "norm"));
    y = tu_dense(tu_flatten(y), .units = SIZE, .act = TU_TANH, .name = "hidden");
    n->y = tu_softmax(tu_cumsum(y, 1), 1);
    if (tu_compile(n->graph, &n->program, .devices = devices, .threads = 1, .fetch = &n->y,
                   .fetch_count = 1) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(n->graph, &n->state, .seed = 5), TU_OK);
}

static void end_network(network *n) {
    tu_program_free(n->program);
    tu_state_free(n->state);
    tu_graph_free(n->graph);
}

static void fill_image(float *image, int number) {
    for (int i = 0; i < 12 * 12 * 3; i++) image[i] = (float)((i * 7 + number * 13) % 31) / 31;
}

/* ---- Reading at once ---- */

typedef struct reader {
    pthread_t thread;
    const network *network;
    int number;
    float results[RUNS][SIZE];
    tu_status status;
} reader;

static void *read_in_session(void *argument) {
    reader *r = argument;
    tu_session *session;
    float image[12 * 12 * 3];
    r->status = tu_session_new(r->network->state, &session);
    for (int i = 0; i < RUNS && r->status == TU_OK; i++) {
        fill_image(image, r->number + i);
        r->status = tu_session_run(session, r->network->program, 1, &(tu_feed){r->network->x, image},
                                   (void *[]){r->results[i]});
    }
    tu_session_free(session);
    return NULL;
}

static void threads_get_the_results_of_one_thread(void **unused) {
    (void)unused;
    static const char *const devices[] = {"cpu", "ref", "cpu:0/2"};
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        static reader readers[THREADS];
        network n;
        begin_network(&n, devices[d]);
        for (int t = 0; t < THREADS; t++) {
            readers[t] = (reader){.network = &n, .number = t};
            pthread_create(&readers[t].thread, NULL, read_in_session, &readers[t]);
        }
        for (int t = 0; t < THREADS; t++) pthread_join(readers[t].thread, NULL);
        for (int t = 0; t < THREADS; t++)
            for (int i = 0; i < RUNS; i++) {
                float image[12 * 12 * 3], expected[SIZE];
                fill_image(image, t + i);
                assert_int_equal(readers[t].status, TU_OK);
                assert_int_equal(tu_run(n.program, n.state, 1, &(tu_feed){n.x, image}, (void *[]){expected}),
                                 TU_OK);
                assert_memory_equal(readers[t].results[i], expected, sizeof expected);
            }
        end_network(&n);
    }
}

/* ---- Updating ---- */

/* Two variables that a step increases together. */
typedef struct counters {
    tu_graph *graph;
    tu_program *update, *read;
    tu_state *state;
} counters;

static void begin_counters(counters *c) {
    assert_int_equal(tu_graph_new(&c->graph), TU_OK);
    tu_value a = tu_variable(c->graph, "a", TU_F32, TU_SHAPE(1000)),
             b = tu_variable(c->graph, "b", TU_F32, TU_SHAPE(1000));
    tu_value fetches[] = {tu_sum(a), tu_sum(b)};
    tu_assign(a, tu_shift(a, 1));
    tu_assign(b, tu_shift(b, 1));
    assert_int_equal(tu_compile(c->graph, &c->update, .devices = "cpu", .threads = 1, .updates = true),
                     TU_OK);
    assert_int_equal(tu_compile(c->graph, &c->read, .devices = "cpu", .threads = 1, .fetch = fetches,
                                .fetch_count = 2, .no_updates = true),
                     TU_OK);
    assert_int_equal(tu_state_new(c->graph, &c->state), TU_OK);
}

static void end_counters(counters *c) {
    tu_program_free(c->update);
    tu_program_free(c->read);
    tu_state_free(c->state);
    tu_graph_free(c->graph);
}

static void *update_in_session(void *argument) {
    const counters *c = argument;
    tu_session *session;
    bool ok = tu_session_new(c->state, &session) == TU_OK;
    for (int i = 0; i < 50; i++) ok = ok && tu_session_run(session, c->update, 0, NULL, NULL) == TU_OK;
    tu_session_free(session);
    return ok ? argument : NULL;
}

/* Both variables always have the same value: no update is half done. */
static void *compare_in_session(void *argument) {
    const counters *c = argument;
    tu_session *session;
    float a = 0, b = 0;
    bool ok = tu_session_new(c->state, &session) == TU_OK;
    for (int i = 0; i < 50; i++)
        ok = ok && tu_session_run(session, c->read, 0, NULL, (void *[]){&a, &b}) == TU_OK && a == b;
    tu_session_free(session);
    return ok ? argument : NULL;
}

static void updates_are_exclusive(void **unused) {
    (void)unused;
    counters c;
    pthread_t threads[THREADS];
    float a[1000];
    begin_counters(&c);
    for (int t = 0; t < THREADS; t++)
        pthread_create(&threads[t], NULL, t % 2 ? compare_in_session : update_in_session, &c);
    for (int t = 0; t < THREADS; t++) {
        void *result;
        pthread_join(threads[t], &result);
        assert_ptr_equal(result, &c);
    }
    assert_int_equal(tu_state_get(c.state, "a", a, sizeof a), TU_OK);
    for (int i = 0; i < 1000; i++) assert_int_equal((int)a[i], THREADS / 2 * 50);
    end_counters(&c);
}

/* ---- Lifetimes and memory ---- */

static void sessions_and_programs_are_freed_in_any_order(void **unused) {
    (void)unused;
    for (int session_first = 0; session_first < 2; session_first++) {
        int64_t live = tu__alloc_live();
        network n;
        tu_session *session;
        float image[12 * 12 * 3], result[SIZE];
        begin_network(&n, "cpu");
        fill_image(image, 0);
        assert_int_equal(tu_session_new(n.state, &session), TU_OK);
        assert_int_equal(tu_session_run(session, n.program, 1, &(tu_feed){n.x, image}, (void *[]){result}),
                         TU_OK);
        if (session_first) tu_session_free(session);
        tu_program_free(n.program);
        n.program = NULL;
        if (!session_first) tu_session_free(session);
        end_network(&n);
        assert_int_equal(tu__alloc_live(), live);
    }
}

static void running_without_memory_fails_and_leaks_nothing(void **unused) {
    (void)unused;
    network n;
    float image[12 * 12 * 3], result[SIZE];
    begin_network(&n, "cpu");
    fill_image(image, 0);
    assert_int_equal(tu_run(n.program, n.state, 1, &(tu_feed){n.x, image}, (void *[]){result}), TU_OK);
    int64_t live = tu__alloc_live(); /* after a run, which creates what all sessions share */
    tu_status status = TU_NO_MEMORY;
    for (uint64_t nth = 1; status != TU_OK; nth++) {
        tu_session *session = NULL;
        tu__alloc_fail_at(nth);
        status = tu_session_new(n.state, &session);
        if (status == TU_OK)
            status = tu_session_run(session, n.program, 1, &(tu_feed){n.x, image}, (void *[]){result});
        tu__alloc_fail_at(0);
        assert_true(status == TU_OK || status == TU_NO_MEMORY);
        tu_session_free(session);
        assert_int_equal(tu__alloc_live(), live);
    }
    end_network(&n);
}

/* Programs in a session share its scratch memory, as those of the default session do. */
static void programs_share_the_memory_of_a_session(void **unused) {
    (void)unused;
    network n;
    tu_session *session;
    tu_memory_report report = TU_SIZED(tu_memory_report);
    begin_network(&n, "cpu");
    assert_int_equal(tu_session_new(n.state, &session), TU_OK);
    assert_int_equal(tu_program_memory(n.program, 0, &report), TU_OK);
    assert_int_equal(report.allocated_bytes, 0);
    assert_int_equal(tu_session_warm_up(session, n.program), TU_OK);
    assert_int_equal(tu_program_memory(n.program, 0, &report), TU_OK);
    assert_int_equal(report.allocated_bytes, 0); /* of the default session */
    assert_int_equal(tu_warm_up(n.program, n.state), TU_OK);
    assert_int_equal(tu_program_memory(n.program, 0, &report), TU_OK);
    assert_true(report.allocated_bytes >= report.scratch_bytes && report.scratch_bytes > 0);
    tu_session_free(session);
    end_network(&n);
}

static void sessions_run_many_steps(void **unused) {
    (void)unused;
    counters c;
    tu_session *session;
    float a[1000];
    begin_counters(&c);
    assert_int_equal(tu_session_new(c.state, &session), TU_OK);
    assert_int_equal(tu_session_run_many(session, c.update, 7, 0, NULL, NULL), TU_OK);
    assert_int_equal(tu_state_get(c.state, "a", a, sizeof a), TU_OK);
    assert_true(a[0] == 7);
    assert_int_equal(tu_session_run(NULL, c.update, 0, NULL, NULL), TU_INVALID);
    assert_string_equal(tu_message(), "a run needs a session, but got NULL");
    tu_session_free(session);
    end_counters(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_get_the_results_of_one_thread),
        cmocka_unit_test(updates_are_exclusive),
        cmocka_unit_test(sessions_and_programs_are_freed_in_any_order),
        cmocka_unit_test(running_without_memory_fails_and_leaks_nothing),
        cmocka_unit_test(programs_share_the_memory_of_a_session),
        cmocka_unit_test(sessions_run_many_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
