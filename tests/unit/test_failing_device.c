/* A device fails or does not return during a run: the run fails with a message that names the device and the
 * operation, no variable has changed, and later runs succeed once the device works again.
 *
 * Only runs that must fail have a timeout. Other processes may keep a thread from reaching, within it, what the message is to
 * name; so a test of a timeout is repeated with longer ones until the message is the expected one. */
#include "faulty_device.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include <tutti/tutti.h>

/* w += exp(tanh(x)): tanh and the sum on the CPU, exp on the faulty device. */
typedef struct pair {
    tu_graph *graph;
    tu_value x, y;
    tu_program *program, *hasty; /* the same program without and with a timeout */
    tu_state *state;
} pair;

static const float input[3] = {0.5f, -1, 2};

static tu_program *compile(const pair *p, double timeout) {
    tu_program *program;
    if (tu_compile(p->graph, &program, .devices = "cpu,faulty", .fetch = &p->y, .fetch_count = 1,
                   .updates = true, .timeout = timeout) != TU_OK)
        fail_msg("%s", tu_message());
    return program;
}

/* `timeout`: of the hasty program; 0: none needed. */
static void compile_pair(pair *p, double timeout) {
    p->program = compile(p, 0);
    p->hasty = timeout > 0 ? compile(p, timeout) : NULL;
    assert_int_equal(tu_state_new(p->graph, &p->state, .seed = 1), TU_OK);
}

static void create_pair(pair *p, double timeout) {
    *p = (pair){0};
    register_faulty_device();
    assert_int_equal(tu_graph_new(&p->graph), TU_OK);
    tu_value h, e;
    p->x = tu_input(p->graph, "x", TU_F32, TU_SHAPE(3));
    tu_value w = tu_variable(p->graph, "w", TU_F32, TU_SHAPE(3));
    tu_with_device(p->graph, "cpu:0") {
        h = tu_tanh(p->x);
    }
    tu_with_device(p->graph, "faulty:0") e = tu_exp(h);
    tu_with_device(p->graph, "cpu:0") {
        p->y = tu_add(e, w);
        tu_assign(w, p->y);
    }
    compile_pair(p, timeout);
}

static void free_pair(pair *p) {
    tu_program_free(p->hasty);
    tu_program_free(p->program);
    tu_state_free(p->state);
    tu_graph_free(p->graph);
}

static tu_status run_pair(pair *p) {
    float y[3];
    return tu_run(p->program, p->state, 1, (tu_feed[]){{p->x, input}}, (void *[]){y});
}

static tu_status run_hastily(pair *p) {
    float y[3];
    return tu_run(p->hasty, p->state, 1, (tu_feed[]){{p->x, input}}, (void *[]){y});
}

static void get_variable(const pair *p, float w[3]) {
    assert_int_equal(tu_state_get(p->state, "w", w, 3 * sizeof *w), TU_OK);
}

static void expect_message(const char *text) {
    if (!strstr(tu_message(), text)) fail_msg("'%s' is not in: %s", text, tu_message());
}

/* ---- Timeouts ---- */

static const double timeouts[] = {0.2, 2, 20};
enum { TIMEOUTS = sizeof timeouts / sizeof *timeouts };

static char other_message[1024]; /* the one that was found instead */

static bool has_message(const char *format, ...) {
    char expected[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(expected, sizeof expected, format, arguments);
    va_end(arguments);
    if (strstr(tu_message(), expected)) return true;
    snprintf(other_message, sizeof other_message, "'%.400s' is not in: %.500s", expected, tu_message());
    return false;
}

/* `test` returns whether the messages were the expected ones. */
static void test_with_timeouts(bool (*test)(double timeout)) {
    for (int i = 0; i < TIMEOUTS; i++)
        if (test(timeouts[i])) return;
    fail_msg("%s", other_message);
}

/* ---- Failures ---- */

static void a_failure_names_device_and_operation_and_changes_nothing(void **unused) {
    (void)unused;
    pair p;
    float before[3], after[3];
    create_pair(&p, 0);
    if (run_pair(&p) != TU_OK) fail_msg("%s", tu_message());
    get_variable(&p, before);
    faulty.failing_launch = faulty.launches + 1;
    assert_int_equal(run_pair(&p), TU_DEVICE);
    assert_string_equal(tu_message(), "device 'faulty:0' failed at exp 'exp': its fan has stopped");
    get_variable(&p, after);
    assert_memory_equal(before, after, sizeof before);
    if (run_pair(&p) != TU_OK) fail_msg("%s", tu_message()); /* it has recovered */
    free_pair(&p);
}

/* Like a lost GPU: later calls fail, too, but the message is about the first failure. */
static void the_first_failure_is_reported(void **unused) {
    (void)unused;
    pair p;
    create_pair(&p, 0);
    add_faulty_queues();
    if (run_pair(&p) != TU_OK) fail_msg("%s", tu_message());
    faulty.failing_launch = faulty.launches + 1;
    faulty.synchronize_fails = true;
    assert_int_equal(run_pair(&p), TU_DEVICE);
    assert_string_equal(tu_message(), "device 'faulty:0' failed at exp 'exp': its fan has stopped");
    clear_faults();
    free_pair(&p);
}

static void a_failing_copy_names_value_and_devices(void **unused) {
    (void)unused;
    pair p;
    create_pair(&p, 0);
    faulty.copies_fail = true;
    assert_int_equal(run_pair(&p), TU_IO);
    assert_string_equal(tu_message(),
                        "copying 'tanh' from device 'cpu:0' to 'faulty:0' failed: the cable is loose");
    free_pair(&p);
}

/* y = tanh(x) on the faulty device only, with tu_run and tu_run_many. */
static void failing_uploads_and_downloads_name_the_value(void **unused) {
    (void)unused;
    pair p = {0};
    float y[3];
    register_faulty_device();
    faulty_api.host_memory = false;
    assert_int_equal(tu_graph_new(&p.graph), TU_OK);
    p.x = tu_input(p.graph, "x", TU_F32, TU_SHAPE(3));
    p.y = tu_name(tu_tanh(p.x), "y");
    assert_int_equal(tu_compile(p.graph, &p.program, .devices = "faulty", .fetch = &p.y, .fetch_count = 1),
                     TU_OK);
    assert_int_equal(tu_state_new(p.graph, &p.state, .seed = 1), TU_OK);
    faulty.uploads_fail = true;
    assert_int_equal(run_pair(&p), TU_IO);
    assert_string_equal(tu_message(), "device 'faulty:0' failed at uploading 'x': the line is dead");
    faulty.uploads_fail = false;
    faulty.downloads_fail = true;
    assert_int_equal(run_pair(&p), TU_IO);
    assert_string_equal(tu_message(), "device 'faulty:0' failed at downloading 'y': the line is dead");
    const tu_feed_many feed = {.input = p.x, .data = input};
    assert_int_equal(tu_run_many(p.program, p.state, 1, 1, &feed, (void *[]){y}), TU_IO);
    expect_message("device 'faulty:0' failed at downloading 'y': the line is dead");
    free_pair(&p);
}

static bool is_idle_soon(pair *p) {
    for (int i = 0; i < 10000; i++) {
        tu_status status = run_pair(p);
        if (status == TU_OK) return true;
        expect_message("is still busy with an abandoned run");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

/* Lets the device go on, and waits until it is idle. */
static bool recovers(pair *p) {
    faulty.blocking_launch = 0;
    unblock_faulty_device();
    return is_idle_soon(p);
}

static bool times_out(double timeout) {
    pair p;
    float before[3], after[3];
    create_pair(&p, timeout);
    if (run_pair(&p) != TU_OK) fail_msg("%s", tu_message());
    get_variable(&p, before);
    faulty.blocking_launch = faulty.launches + 1;
    assert_int_equal(run_hastily(&p), TU_DEVICE);
    bool found =
        has_message("device 'cpu:0' waited %g s for 'exp' from device 'faulty:0', which is late: it is "
                    "executing exp 'exp'",
                    timeout);
    get_variable(&p, after);
    assert_memory_equal(before, after, sizeof before);
    if (found) {
        assert_int_equal(run_hastily(&p), TU_DEVICE);
        expect_message(
            "device 'faulty:0' is still busy with an abandoned run: wait until that run ends, or restart "
            "the process");
    }
    assert_true(recovers(&p));
    free_pair(&p);
    return found;
}

static void a_device_that_does_not_return_is_a_timeout(void **unused) {
    (void)unused;
    test_with_timeouts(times_out);
}

static bool is_kept_until_its_call_returns(double timeout) {
    pair p;
    tu_session *session;
    float y[3];
    create_pair(&p, timeout);
    assert_int_equal(tu_session_new(p.state, &session), TU_OK);
    faulty.blocking_launch = faulty.launches + 1;
    assert_int_equal(tu_session_run(session, p.hasty, 1, (tu_feed[]){{p.x, input}}, (void *[]){y}),
                     TU_DEVICE);
    bool found = has_message("which is late: it is executing exp 'exp'");
    if (found) {
        tu_session_free(session);              /* returns at once */
        assert_int_equal(run_pair(&p), TU_OK); /* the default session has threads of its own */
    }
    faulty.blocking_launch = 0;
    unblock_faulty_device();
    tu_status status = TU_DEVICE;
    for (int i = 0; i < 10000 && status != TU_OK; i++) {
        status = tu_session_run(session, p.program, 1, (tu_feed[]){{p.x, input}}, (void *[]){y});
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_int_equal(status, TU_OK);
    tu_session_free(session);
    free_pair(&p);
    return found;
}

/* A session whose device call has not returned is kept, and can be freed when it has. */
static void an_abandoned_session_is_kept_until_its_call_returns(void **unused) {
    (void)unused;
    test_with_timeouts(is_kept_until_its_call_returns);
}

/* ---- Collectives ---- */

/* w += the sum of exp(x) over both devices, on both. The faulty device has a mirror of w. */
static tu_value replica(pair *p, tu_value w, int rank, const char *device) {
    struct tu__all_reduce_attrs attrs = {.collective = 3, .rank = rank, .ranks = 2};
    tu_value sum = {0};
    tu_with_device(p->graph, device) {
        tu_value value = tu_exp(p->x);
        sum = tu__make(p->graph, &(tu__node_request){.op = TU__OP_ALL_REDUCE,
                                                     .name = rank ? "faulty_sum" : "sum",
                                                     .attrs = &attrs,
                                                     .inputs = &value,
                                                     .input_count = 1,
                                                     .device = device});
        tu_assign(w, tu_add(w, sum));
    }
    return sum;
}

/* `own_memory`: the faulty device's memory is not host memory, so the collective goes through the host. */
static void begin_collective(pair *p, double timeout, bool own_memory) {
    *p = (pair){0};
    register_faulty_device();
    faulty_api.host_memory = !own_memory;
    assert_int_equal(tu_graph_new(&p->graph), TU_OK);
    p->x = tu_input(p->graph, "x", TU_F32, TU_SHAPE(3));
    tu_value w = tu_variable(p->graph, "w", TU_F32, TU_SHAPE(3));
    tu_value mirror = tu__make(p->graph, &(tu__node_request){.op = TU__OP_VARIABLE,
                                                             .name = "w/faulty",
                                                             .exact_name = true,
                                                             .attrs = p->graph->nodes[w.node]->attrs,
                                                             .device = "faulty:0",
                                                             .stands_for = "w"});
    p->y = replica(p, w, 0, "cpu:0");
    replica(p, mirror, 1, "faulty:0");
    compile_pair(p, timeout);
}

static void expect_runs(pair *p, int runs) {
    float w[3];
    get_variable(p, w);
    for (int i = 0; i < 3; i++)
        if (fabsf(w[i] - (float)runs * 2 * expf(input[i])) > 1e-3f)
            fail_msg("w is %g after %d runs that succeeded", w[i], runs);
}

static void a_failing_rank_aborts_the_collective_and_changes_nothing(void **unused) {
    (void)unused;
    pair p;
    begin_collective(&p, 0, false);
    if (run_pair(&p) != TU_OK) fail_msg("%s", tu_message());
    faulty.failing_launch = faulty.launches + 1;
    assert_int_equal(run_pair(&p), TU_DEVICE);
    expect_message("device 'faulty:0' failed at exp 'exp_1': its fan has stopped");
    expect_runs(&p, 1);
    if (run_pair(&p) != TU_OK) fail_msg("%s", tu_message()); /* its mirror is up to date again */
    expect_runs(&p, 2);
    free_pair(&p);
}

/* Either rank may report the failure first. */
static void a_rank_whose_download_fails_is_named(void **unused) {
    (void)unused;
    pair p;
    begin_collective(&p, 0, true);
    if (run_pair(&p) != TU_OK) fail_msg("%s", tu_message());
    faulty.downloads_fail = true;
    assert_int_equal(run_pair(&p), TU_IO);
    assert_string_equal(tu_message(), "collective 3, 'sum': device 'faulty:0' failed: the line is dead");
    expect_runs(&p, 1);
    faulty.downloads_fail = false;
    if (run_pair(&p) != TU_OK) fail_msg("%s", tu_message());
    expect_runs(&p, 2);
    free_pair(&p);
}

static bool names_a_late_rank(double timeout) {
    pair p;
    begin_collective(&p, timeout, false);
    if (run_pair(&p) != TU_OK) fail_msg("%s", tu_message());
    faulty.blocking_launch = faulty.launches + 1;
    assert_int_equal(run_hastily(&p), TU_DEVICE);
    bool found =
        has_message("device 'cpu:0' waited %g s for device 'faulty:0' (rank 1 of 2 of collective 3) to post "
                    "'faulty_sum'; 'faulty:0' is late: it is executing exp 'exp_1'",
                    timeout);
    expect_runs(&p, 1);
    assert_true(recovers(&p));
    expect_runs(&p, 2);
    free_pair(&p);
    return found;
}

static void a_late_rank_is_named(void **unused) {
    (void)unused;
    test_with_timeouts(names_a_late_rank);
}

/* y = tanh(x) on the CPU and z = exp(u) on the faulty device, whose upload of u does not return. */
static bool names_a_blocked_upload(double timeout) {
    pair p = {0};
    register_faulty_device();
    faulty_api.host_memory = false;
    assert_int_equal(tu_graph_new(&p.graph), TU_OK);
    tu_value u = {0}, results[2];
    tu_with_device(p.graph, "cpu:0") {
        p.x = tu_input(p.graph, "x", TU_F32, TU_SHAPE(3));
        results[0] = tu_tanh(p.x);
    }
    tu_with_device(p.graph, "faulty:0") {
        u = tu_input(p.graph, "u", TU_F32, TU_SHAPE(3));
        results[1] = tu_exp(u);
    }
    if (tu_compile(p.graph, &p.program, .devices = "cpu,faulty", .fetch = results, .fetch_count = 2,
                   .timeout = timeout) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(p.graph, &p.state, .seed = 1), TU_OK);
    faulty.uploads_block = true;
    const tu_feed feeds[] = {{p.x, input}, {u, input}};
    float y[3], z[3];
    assert_int_equal(tu_run(p.program, p.state, 2, feeds, (void *[]){y, z}), TU_DEVICE);
    /* Either the barrier or the join reports first. */
    bool found =
        has_message("device 'faulty:0' has not ") && has_message("after %g s: it is uploading 'u'", timeout);
    faulty.uploads_block = false;
    unblock_faulty_device();
    free_pair(&p);
    return found;
}

static void a_device_whose_upload_does_not_return_is_named(void **unused) {
    (void)unused;
    test_with_timeouts(names_a_blocked_upload);
}

static bool names_a_blocked_event(double timeout) {
    pair p;
    begin_collective(&p, timeout, false);
    add_faulty_queues();
    if (run_pair(&p) != TU_OK) fail_msg("%s", tu_message());
    faulty.events_block = true;
    assert_int_equal(run_hastily(&p), TU_DEVICE);
    bool found = has_message(
        "a call to device 'faulty:0' has not returned after %g s: it is executing collective 3", timeout);
    faulty.events_block = false;
    assert_true(recovers(&p));
    expect_runs(&p, 2);
    free_pair(&p);
    return found;
}

/* Its threads have reached the same step as the other device's, but its kernels have not finished. */
static void a_device_whose_event_does_not_complete_is_named(void **unused) {
    (void)unused;
    test_with_timeouts(names_a_blocked_event);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_names_device_and_operation_and_changes_nothing),
        cmocka_unit_test(the_first_failure_is_reported),
        cmocka_unit_test(a_failing_copy_names_value_and_devices),
        cmocka_unit_test(failing_uploads_and_downloads_name_the_value),
        cmocka_unit_test(a_device_that_does_not_return_is_a_timeout),
        cmocka_unit_test(an_abandoned_session_is_kept_until_its_call_returns),
        cmocka_unit_test(a_failing_rank_aborts_the_collective_and_changes_nothing),
        cmocka_unit_test(a_rank_whose_download_fails_is_named),
        cmocka_unit_test(a_late_rank_is_named),
        cmocka_unit_test(a_device_whose_event_does_not_complete_is_named),
        cmocka_unit_test(a_device_whose_upload_does_not_return_is_named),
    };
    return cmocka_run_group_tests_name("failing_device", tests, NULL, NULL);
}
