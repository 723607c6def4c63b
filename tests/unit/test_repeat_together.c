/* Statements about who takes many steps at once: a device that can, several together, and who says why it does not. */
#include "many_steps.h"
#include "state_checks.h"

/* ---- Who takes the steps ---- */

static void a_device_that_can_takes_all_steps_in_one_call(void **unused) {
    (void)unused;
    trainer t;
    float losses[STEPS];
    tu_many_report report = TU_SIZED(tu_many_report);
    begin(&t, "mlp", "far");
    assert_int_equal(tu_program_many(t.step, &report), TU_OK);
    assert_true(report.at_once && !report.notice);
    assert_int_equal(take_from_table(&t, 0, STEPS, losses), TU_OK);
    assert_int_equal(far.calls, 1);
    assert_int_equal(far.launches, 0);
    assert_int_equal(far.rows_read, STEPS * BATCH);
    assert_int_equal(tu_program_many(t.step, &report), TU_OK);
    assert_int_equal(report.table_bytes, ROWS * t.pixels * sizeof(float));
    assert_int_equal(report.gathered_bytes, 0);
    end(&t);
    assert_int_equal(far.held, 0);
}

static void a_program_of_one_device_is_launched_in_one_piece(void **unused) {
    (void)unused;
    trainer t;
    float losses[STEPS];
    begin(&t, "mlp", "far");
    take_by_hand(&t, losses);
    assert_int_equal(far.launches, STEPS);
    end(&t);
}

static void who_takes_one_step_at_a_time_says_why(void **unused) {
    (void)unused;
    trainer t;
    tu_many_report report = TU_SIZED(tu_many_report);
    begin(&t, "mlp", "cpu");
    assert_int_equal(tu_program_many(t.step, &report), TU_OK);
    assert_false(report.at_once);
    assert_string_equal(report.notice, "device 'cpu:0' takes one step at a time");
    end(&t);
}

static void a_device_that_meets_itself_says_so_too(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    tu_many_report report = TU_SIZED(tu_many_report);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value y = tu_sum(tu_tanh(tu_batch_input(g, "x", TU_F32, TU_SHAPE(4))));
    assert_int_equal(tu_compile(g, &program, .devices = "cpu", .invariant = 2, .fetch = &y, .fetch_count = 1),
                     TU_OK);
    assert_int_equal(tu_program_many(program, &report), TU_OK);
    assert_string_equal(report.notice, "device 'cpu:0' takes one step at a time");
    tu_program_free(program);
    tu_graph_free(g);
}

/* y = exp(tanh(x)), the second half where `second` says. */
static void expect_at_once(const char *second, bool at_once, const char *notice) {
    tu_graph *g;
    tu_program *program;
    tu_many_report report = TU_SIZED(tu_many_report);
    plug_in_far();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3)), y = x;
    tu_with_device(g, "far:0") y = tu_tanh(x);
    tu_with_device(g, second) y = tu_exp(y);
    assert_int_equal(tu_compile(g, &program, .devices = "far,cpu", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_program_many(program, &report), TU_OK);
    assert_int_equal(report.at_once, at_once);
    if (notice) assert_string_equal(report.notice, notice);
    tu_program_free(program);
    tu_graph_free(g);
}

static void a_device_with_nothing_to_do_is_not_in_the_way(void **unused) {
    (void)unused;
    expect_at_once("far:0", true, NULL);
    expect_at_once("cpu:0", false, "the program has 2 devices, which meet in every step");
}

/* Two variables exchange their values: neither can be written before the other was read. */
static void an_update_out_of_place_keeps_to_one_step_at_a_time(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    tu_many_report report = TU_SIZED(tu_many_report);
    plug_in_far();
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value a = tu_variable(g, "a", TU_F32, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 1});
    tu_value b = tu_variable(g, "b", TU_F32, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 2});
    tu_assign(a, b);
    tu_assign(b, a);
    assert_int_equal(tu_compile(g, &program, .devices = "far", .updates = true), TU_OK);
    assert_int_equal(tu_program_many(program, &report), TU_OK);
    assert_false(report.at_once);
    assert_non_null(strstr(report.notice, "is not updated in its own memory"));
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    assert_int_equal(tu_run_many(program, state, 3, 0, NULL, NULL), TU_OK);
    float value;
    assert_int_equal(tu_state_get(state, "a", &value, sizeof value), TU_OK);
    assert_true(value == 2);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
}

/* ---- Several devices together ---- */

enum { MAX_MOVES = 256 };
static struct {
    uint32_t count;
    tu_joint_move list[MAX_MOVES];
} noted;

static tu_status note_moves(uint32_t part_count, const tu_joint_part *parts, uint32_t move_count,
                            const tu_joint_move *moves, uint32_t steps) {
    (void)part_count, (void)parts, (void)steps;
    assert_true(move_count <= MAX_MOVES);
    memcpy(noted.list, moves, move_count * sizeof *moves);
    noted.count = move_count;
    return TU_OK;
}

static tu_status add_nothing(tu_device_instance *device, const tu_combination *what) {
    (void)device, (void)what;
    return TU_OK;
}

/* Replicas have as many launches each in front of a collective: what one of them could compute meanwhile stands behind it. */
static void nothing_is_put_in_front_of_a_collective_that_need_not_be(void **unused) {
    (void)unused;
    tu_graph *g;
    tu_program *program;
    uint32_t collectives = 0, launches[2] = {0};
    plug_in_far();
    far_api.combine = add_nothing;
    far_api.repeat_joint = note_moves;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(4, 8));
    x = tu_dense(x, .units = 1100,
                 .act = TU_TANH); /* of the next one's weights the gradient fills a bucket */
    tu_value loss = tu_mean(tu_dense(x, .units = 1100, .name = "second"));
    assert_int_equal(tu_add_sgd(loss, 0.1, 0.9), TU_OK);
    assert_int_equal(tu_compile(g, &program, .devices = "far:0/2", .strategy = "mirrored", .updates = true,
                                .fetch = &loss, .fetch_count = 1, .plan_only = true),
                     TU_OK);
    for (uint32_t i = 0; i < noted.count; i++) {
        const tu_joint_move *m = &noted.list[i];
        if (m->kind == TU_JOINT_LAUNCH) launches[m->part]++;
        if (m->kind != TU_JOINT_COLLECTIVE) continue;
        assert_int_equal(launches[0], launches[1]);
        collectives++;
    }
    assert_true(collectives > 1);
    tu_program_free(program);
    tu_graph_free(g);
    far_api.combine = NULL;
}

enum { TOGETHER = 7 };

/* A network whose halves are on two far devices, and variables that one reads of the other. */
typedef struct couple {
    tu_graph *graph;
    tu_program *program;
    tu_state *state;
    tu_value x, fetches[2];
} couple;

static void begin_couple(couple *c) {
    assert_int_equal(tu_graph_new(&c->graph), TU_OK);
    tu_value y = {0}, rate = {0};
    tu_with_device(c->graph, "far:0.0") {
        c->x = tu_input(c->graph, "x", TU_F32, TU_SHAPE(3, 4));
        rate = tu_variable(c->graph, "rate", TU_F64, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 0.1},
                           .frozen = true);
        tu_assign(rate, tu_scale(rate, 0.9));
        y = tu_dense(c->x, .units = 5, .act = TU_TANH, .name = "first");
    }
    tu_with_device(c->graph, "far:0.1") y = tu_mean(tu_square(tu_dense(y, .units = 2, .name = "second")));
    c->fetches[0] = y;
    c->fetches[1] = rate;
    if (tu_add_optimizer(y, NULL, .name = "momentum", .momentum = 0.9, .rate = rate) != TU_OK)
        fail_msg("%s", tu_message());
    if (tu_compile(c->graph, &c->program, .devices = "far:0/2", .threads = 1, .fetch = c->fetches,
                   .fetch_count = 2, .updates = true) != TU_OK)
        fail_msg("%s", tu_message());
    assert_int_equal(tu_state_new(c->graph, &c->state, .seed = 9), TU_OK);
}

static void end_couple(couple *c) {
    tu_program_free(c->program);
    tu_state_free(c->state);
    tu_graph_free(c->graph);
}

typedef struct couple_results {
    float loss[TOGETHER];
    double rate[TOGETHER];
} couple_results;

static const float couple_data[TOGETHER][12] = {{1, 2, 3}, {-1}, {0.5f}, {0, 0, 4}, {3}, {2, -2}, {7}};

static void run_couple(const couple *c, bool one_by_one, couple_results *r) {
    memset(r, 0, sizeof *r);
    if (!one_by_one) {
        tu_feed_many feed = {.input = c->x, .data = couple_data};
        if (tu_run_many(c->program, c->state, TOGETHER, 1, &feed, (void *[]){r->loss, r->rate}) != TU_OK)
            fail_msg("%s", tu_message());
        return;
    }
    for (int s = 0; s < TOGETHER; s++)
        assert_int_equal(tu_run(c->program, c->state, 1, (tu_feed[]){{c->x, couple_data[s]}},
                                (void *[]){&r->loss[s], &r->rate[s]}),
                         TU_OK);
}

static void expect_couple(const char *refusal, const char *notice) {
    couple one, many;
    couple_results expected, got;
    tu_many_report report = TU_SIZED(tu_many_report);
    plug_in_far();
    far.refuses_to_join = refusal;
    begin_couple(&one);
    begin_couple(&many);
    assert_int_equal(tu_program_many(many.program, &report), TU_OK);
    assert_int_equal(report.at_once, !refusal);
    if (notice) assert_string_equal(report.notice, notice);
    run_couple(&one, true, &expected);
    int launches = far.launches;
    run_couple(&many, false, &got);
    assert_int_equal(far.calls, refusal ? 0 : 1);
    assert_int_equal(far.launches == launches, !refusal);
    assert_memory_equal(&expected, &got, sizeof got);
    assert_same_state(one.state, many.state);
    end_couple(&one);
    end_couple(&many);
    assert_int_equal(far.held, 0);
}

static void devices_that_can_be_joined_take_all_steps_together(void **unused) {
    (void)unused;
    expect_couple(NULL, NULL);
}

static void devices_that_refuse_to_be_joined_say_why(void **unused) {
    (void)unused;
    expect_couple("one of them is asleep",
                  "the program's devices take one step at a time: one of them is asleep");
}

static void a_failure_together_says_which_steps_may_have_taken_effect(void **unused) {
    (void)unused;
    couple c;
    plug_in_far();
    far.fails_in_call = 1;
    begin_couple(&c);
    tu_feed_many feed = {.input = c.x, .data = couple_data};
    assert_int_equal(tu_run_many(c.program, c.state, TOGETHER, 1, &feed, NULL), TU_INTERNAL);
    assert_string_equal(tu_message(),
                        "steps 1 to 7 of 7, which all devices took at once, failed; the 0 before them took "
                        "effect, of these some may have: the far devices have gone away");
    end_couple(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_that_can_takes_all_steps_in_one_call),
        cmocka_unit_test(a_program_of_one_device_is_launched_in_one_piece),
        cmocka_unit_test(who_takes_one_step_at_a_time_says_why),
        cmocka_unit_test(a_device_that_meets_itself_says_so_too),
        cmocka_unit_test(a_device_with_nothing_to_do_is_not_in_the_way),
        cmocka_unit_test(an_update_out_of_place_keeps_to_one_step_at_a_time),
        cmocka_unit_test(nothing_is_put_in_front_of_a_collective_that_need_not_be),
        cmocka_unit_test(devices_that_can_be_joined_take_all_steps_together),
        cmocka_unit_test(devices_that_refuse_to_be_joined_say_why),
        cmocka_unit_test(a_failure_together_says_which_steps_may_have_taken_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
