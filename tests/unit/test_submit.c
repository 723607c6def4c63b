/* Tests of which programs run many steps in one device call: on one device, on several devices of a kind, and the
 * notice if that is not possible. */
#include "multi_step_trainer.h"
#include "state_checks.h"

/* ---- One device ---- */

static void a_device_with_submit_runs_all_steps_in_one_call(void **unused) {
    (void)unused;
    trainer t;
    float losses[STEPS];
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    begin(&t, "mlp", "discrete");
    assert_int_equal(tu_program_multi_step(t.step, &report), TU_OK);
    assert_true(report.in_one_call && !report.notice);
    assert_int_equal(run_many_from_table(&t, 0, STEPS, losses), TU_OK);
    assert_int_equal(discrete.calls, 1);
    assert_int_equal(discrete.launches, 0);
    assert_int_equal(discrete.rows_read, STEPS * BATCH);
    assert_int_equal(tu_program_multi_step(t.step, &report), TU_OK);
    assert_int_equal(report.table_bytes, ROWS * t.pixels * sizeof(float));
    assert_int_equal(report.gathered_bytes, 0);
    end(&t);
    assert_int_equal(discrete.live_allocations, 0);
}

static void a_program_of_one_device_is_one_launch(void **unused) {
    (void)unused;
    trainer t;
    float losses[STEPS];
    begin(&t, "mlp", "discrete");
    run_step_by_step(&t, losses);
    assert_int_equal(discrete.launches, STEPS);
    end(&t);
}

static void a_device_without_submit_has_a_notice(void **unused) {
    (void)unused;
    trainer t;
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    begin(&t, "mlp", "cpu");
    assert_int_equal(tu_program_multi_step(t.step, &report), TU_OK);
    assert_false(report.in_one_call);
    assert_string_equal(report.notice, "device 'cpu:0' runs one step per call");
    end(&t);
}

static void a_device_with_collectives_has_a_notice(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_sum(tu_tanh(tu_batch_input(g, "x", TU_F32, TU_SHAPE(4))));
    assert_int_equal(tu_compile(g, &program, .devices = "cpu", .invariant = 2, .fetch = &y, .fetch_count = 1),
                     TU_OK);
    assert_int_equal(tu_program_multi_step(program, &report), TU_OK);
    assert_string_equal(report.notice, "device 'cpu:0' runs one step per call");
    tu_program_free(program);
    tu_graph_free(g);
}

/* Compiles y = exp(tanh(x)) with exp on the device `second`. */
static void expect_in_one_call(const char *second, bool in_one_call, const char *notice) {
    tu_graph *g;
    tu_program *program;
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    register_discrete_device();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), y = x;
    tu_with_device(g, "discrete:0") y = tu_tanh(x);
    tu_with_device(g, second) y = tu_exp(y);
    assert_int_equal(tu_compile(g, &program, .devices = "discrete,cpu", .fetch = &y, .fetch_count = 1),
                     TU_OK);
    assert_int_equal(tu_program_multi_step(program, &report), TU_OK);
    assert_int_equal(report.in_one_call, in_one_call);
    if (notice) assert_string_equal(report.notice, notice);
    tu_program_free(program);
    tu_graph_free(g);
}

static void idle_devices_are_ignored(void **unused) {
    (void)unused;
    expect_in_one_call("discrete:0", true, NULL);
    expect_in_one_call("cpu:0", false, "the program has 2 devices, which exchange values in every step");
}

/* Two variables swap their values: neither can be written before the other has been read. */
static void updates_that_are_not_in_place_are_copies_of_the_list(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    register_discrete_device();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value a = tu_variable(g, "a", TU_F32, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 1});
    tu_value b = tu_variable(g, "b", TU_F32, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 2});
    tu_assign(a, b);
    tu_assign(b, a);
    assert_int_equal(tu_compile(g, &program, .devices = "discrete", .updates = true), TU_OK);
    assert_int_equal(tu_program_multi_step(program, &report), TU_OK);
    assert_true(report.in_one_call);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    assert_int_equal(tu_run_many(program, state, 3, 0, NULL, NULL), TU_OK);
    assert_int_equal(discrete.calls, 1);
    float value;
    assert_int_equal(tu_state_get(state, "a", &value, sizeof value), TU_OK);
    assert_true(value == 2);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

/* ---- Several devices ---- */

static uint32_t collectives_seen; /* by check_turns */

/* Counts the launches of both replicas before the last rank posts its values for a collective: they are the same, since
 * queues take turns. What one replica could compute meanwhile comes later. */
static tu_status check_turns(tu_device_instance *device, const tu_list_binding *binding,
                             tu_executable **executable) {
    const tu_command_list *list = binding->list;
    uint32_t next[8] = {0}, launches[2] = {0}, posted[16] = {0};
    (void)device;
    assert_null(executable);
    assert_true(list->queue_count <= 8 && list->collective_count <= 16);
    for (uint32_t i = 0; i < list->command_count; i++) {
        const tu_command_queue *q = &list->queues[list->order[i]];
        const tu_command *c = &q->commands[next[list->order[i]]++];
        if (c->kind == TU_COMMAND_LAUNCH) launches[q->partition]++;
        if (c->kind != TU_COMMAND_POST || ++posted[c->index] < 2) continue;
        assert_int_equal(launches[0], launches[1]);
        collectives_seen++;
    }
    return TU_OK;
}

static tu_status access_peer(tu_device_instance *device, tu_device_instance *other) {
    (void)device, (void)other;
    return TU_OK;
}

/* Never called: the program is not run. */
static tu_status build_no_collective(tu_device_instance *device, tu_queue *queue,
                                     const tu_collective *collective, tu_executable **executable) {
    (void)device, (void)queue, (void)collective, (void)executable;
    return tu_fail(TU_UNSUPPORTED, "the discrete devices cannot add up");
}

static void collectives_come_as_early_as_possible(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    register_discrete_device();
    collectives_seen = 0;
    discrete_api.peer_access = access_peer;
    discrete_api.build_collective = build_no_collective;
    discrete_api.build_list = check_turns;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 8));
    /* 1100 units: the gradient of the next layer's weights fills a bucket. */
    x = tu_dense(x, .units = 1100, .act = TU_TANH);
    tu_value loss = tu_mean(tu_dense(x, .units = 1100, .name = "second"));
    assert_int_equal(tu_add_sgd(loss, 0.1, 0.9), TU_OK);
    assert_int_equal(tu_compile(g, &program, .devices = "discrete:0/2", .strategy = "mirrored",
                                .updates = true, .fetch = &loss, .fetch_count = 1, .plan_only = true),
                     TU_OK);
    assert_true(collectives_seen > 1);
    tu_program_free(program);
    tu_graph_free(g);
}

enum { PAIR_STEPS = 7 };

/* A network whose halves are on two discrete devices; one reads a variable of the other. */
typedef struct device_pair {
    tu_graph *graph;
    tu_program *program;
    tu_state *state;
    tu_value x, fetches[2];
} device_pair;

static void begin_pair(device_pair *c) {
    assert_int_equal(tu_graph_new(&c->graph), TU_OK);
    tu_value y = {0}, rate = {0};
    tu_with_device(c->graph, "discrete:0.0") {
        c->x = tu_input(c->graph, "x", TU_F32, TU_SHAPE(3, 4));
        rate = tu_variable(c->graph, "rate", TU_F64, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 0.1},
                           .frozen = true);
        tu_assign(rate, tu_scale(rate, 0.9));
        y = tu_dense(c->x, .units = 5, .act = TU_TANH, .name = "first");
    }
    tu_with_device(c->graph, "discrete:0.1") y =
        tu_mean(tu_square(tu_dense(y, .units = 2, .name = "second")));
    c->fetches[0] = y;
    c->fetches[1] = rate;
    if (tu_add_optimizer(y, NULL, .name = "momentum", .momentum = 0.9, .rate = rate) != TU_OK)
        fail_msg("%s", tu_message());
    if (tu_compile(c->graph, &c->program, .devices = "discrete:0/2", .threads = 1, .fetch = c->fetches,
                   .fetch_count = 2, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(c->graph, &c->state, .seed = 9), TU_OK);
}

static void end_pair(device_pair *c) {
    tu_program_free(c->program);
    tu_state_free(c->state);
    tu_graph_free(c->graph);
}

typedef struct pair_results {
    float loss[PAIR_STEPS];
    double rate[PAIR_STEPS];
} pair_results;

static const float pair_data[PAIR_STEPS][12] = {{1, 2, 3}, {-1}, {0.5f}, {0, 0, 4}, {3}, {2, -2}, {7}};

static void run_pair(const device_pair *c, bool one_by_one, pair_results *r) {
    memset(r, 0, sizeof *r);
    if (!one_by_one) {
        tu_feed_many feed = {.input = c->x, .data = pair_data};
        if (tu_run_many(c->program, c->state, PAIR_STEPS, 1, &feed, (void *[]){r->loss, r->rate}) != TU_OK)
            fail_msg("%s", tu_message());
        return;
    }
    for (int s = 0; s < PAIR_STEPS; s++)
        assert_int_equal(tu_run(c->program, c->state, 1, (tu_feed[]){{c->x, pair_data[s]}},
                                (void *[]){&r->loss[s], &r->rate[s]}),
                         TU_OK);
}

static void expect_pair(const char *reason, const char *notice) {
    device_pair single_step, multi_step;
    pair_results expected, got;
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    register_discrete_device();
    discrete.list_error = reason;
    begin_pair(&single_step);
    begin_pair(&multi_step);
    assert_int_equal(tu_program_multi_step(multi_step.program, &report), TU_OK);
    assert_int_equal(report.in_one_call, !reason);
    if (notice) assert_string_equal(report.notice, notice);
    run_pair(&single_step, true, &expected);
    int launches = discrete.launches;
    run_pair(&multi_step, false, &got);
    assert_int_equal(discrete.calls, reason ? 0 : 1);
    assert_int_equal(discrete.launches == launches, !reason);
    assert_memory_equal(&expected, &got, sizeof got);
    assert_same_state(single_step.state, multi_step.state);
    end_pair(&single_step);
    end_pair(&multi_step);
    assert_int_equal(discrete.live_allocations, 0);
}

static void several_devices_run_all_steps_in_one_call(void **unused) {
    (void)unused;
    expect_pair(NULL, NULL);
}

static void devices_that_do_not_support_a_list_have_a_notice(void **unused) {
    (void)unused;
    expect_pair("one of them is asleep",
                "the program's devices run one step per call: one of them is asleep");
}

static void a_failing_call_of_several_devices_reports_its_steps(void **unused) {
    (void)unused;
    device_pair c;
    register_discrete_device();
    discrete.fails_in_call = 1;
    begin_pair(&c);
    tu_feed_many feed = {.input = c.x, .data = pair_data};
    assert_int_equal(tu_run_many(c.program, c.state, PAIR_STEPS, 1, &feed, NULL), TU_INTERNAL);
    assert_string_equal(
        tu_message(),
        "steps 1 to 7 of 7 failed in one call of all devices: the 0 steps before them took effect, "
        "and some of the failed ones may have: the discrete device has gone away");
    end_pair(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_with_submit_runs_all_steps_in_one_call),
        cmocka_unit_test(a_program_of_one_device_is_one_launch),
        cmocka_unit_test(a_device_without_submit_has_a_notice),
        cmocka_unit_test(a_device_with_collectives_has_a_notice),
        cmocka_unit_test(idle_devices_are_ignored),
        cmocka_unit_test(updates_that_are_not_in_place_are_copies_of_the_list),
        cmocka_unit_test(collectives_come_as_early_as_possible),
        cmocka_unit_test(several_devices_run_all_steps_in_one_call),
        cmocka_unit_test(devices_that_do_not_support_a_list_have_a_notice),
        cmocka_unit_test(a_failing_call_of_several_devices_reports_its_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
