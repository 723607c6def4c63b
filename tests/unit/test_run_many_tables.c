/* Tests of tables as feeds of tu_run_many: where their rows are gathered, and tables that do not fit the device. */
#include "multi_step_trainer.h"
#include "state_checks.h"

/* A device whose memory is the host's gathers rows directly into its inputs, with its threads. */
static void rows_are_gathered_directly_into_inputs_in_host_memory(void **unused) {
    (void)unused;
    static const struct {
        const char *devices;
        bool direct_copies;
    } cases[] = {{"cpu", true}, {"ref", true}, {"cpu:0/2", true}, {"cpu:0.0/2", true}, {"discrete", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trainer t;
        float losses[STEPS];
        tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
        begin(&t, "mlp", cases[i].devices);
        if (run_many_from_table(&t, 0, STEPS, losses) != TU_OK) fail_msg("%s", tu_message());
        assert_int_equal(tu_program_multi_step(t.step, &report), TU_OK);
        assert_int_equal(report.direct_copies, cases[i].direct_copies);
        if (cases[i].direct_copies) {
            assert_int_equal(report.table_bytes, 0);
            assert_int_equal(report.gathered_bytes, STEPS * BATCH * t.pixels * sizeof(float));
        }
        end(&t);
    }
}

static void invalid_tables_are_rejected(void **unused) {
    (void)unused;
    tu_table *table;
    assert_int_equal(tu_table_new(NULL, 4, 4, &table), TU_INVALID);
    assert_int_equal(tu_table_new("abcd", 0, 4, &table), TU_INVALID);
    assert_int_equal(tu_table_new("abcd", 4, 0, &table), TU_INVALID);
    assert_int_equal(tu_table_new("abcd", SIZE_MAX / 2, 4, &table), TU_INVALID);
    assert_null(table);
    tu_table_free(NULL);
}

/* ---- Tables that do not fit ---- */

/* Trains from a table on the discrete device, and expects that the table stays on the host, with the same results. */
static void expect_table_on_host(trainer *t) {
    trainer single_step;
    float expected[STEPS], got[STEPS];
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    if (run_many_from_table(t, 0, 1, got) != TU_OK) fail_msg("%s", tu_message());
    discrete.allocations_fail = false;
    if (run_many_from_table(t, 1, STEPS - 1, got) != TU_OK) fail_msg("%s", tu_message());
    assert_int_equal(discrete.rows_read, 0);
    assert_int_equal(tu_program_multi_step(t->step, &report), TU_OK);
    assert_true(report.in_one_call);
    assert_int_equal(report.table_bytes, 0);
    assert_int_equal(report.gathered_bytes, (STEPS - 1) * BATCH * t->pixels * sizeof(float));
    assert_non_null(report.notice);
    if (!strstr(report.notice, "does not fit on device 'discrete:0'")) fail_msg("%s", report.notice);
    begin(&single_step, "mlp", "cpu");
    run_step_by_step(&single_step, expected);
    assert_memory_equal(expected, got, sizeof expected);
    assert_same_state(single_step.state, t->state);
    end(&single_step);
}

static void a_table_that_exceeds_the_limit_stays_on_the_host(void **unused) {
    (void)unused;
    trainer t;
    tu_memory_report memory = TU_SIZED(tu_memory_report);
    begin(&t, "mlp", "discrete");
    assert_int_equal(tu_program_memory(t.step, 0, &memory), TU_OK);
    uint64_t need = memory.scratch_bytes + memory.constant_bytes + memory.variable_bytes;
    size_t bytes = ROWS * t.pixels * sizeof(float);
    end(&t);
    begin_with_limit(&t, "mlp", "discrete", need + bytes - 1);
    expect_table_on_host(&t);
    end(&t);
    begin_with_limit(&t, "mlp", "discrete", need + bytes);
    float losses[STEPS];
    assert_int_equal(run_many_from_table(&t, 0, STEPS, losses), TU_OK);
    assert_int_equal(discrete.rows_read, STEPS * BATCH);
    end(&t);
}

static void a_table_uses_at_most_half_of_the_remaining_memory(void **unused) {
    (void)unused;
    trainer t;
    tu_memory_report memory = TU_SIZED(tu_memory_report);
    begin(&t, "mlp", "discrete");
    assert_int_equal(tu_program_memory(t.step, 0, &memory), TU_OK);
    discrete.memory = memory.scratch_bytes + memory.constant_bytes + memory.variable_bytes +
                      2 * ROWS * t.pixels * sizeof(float) - 2;
    expect_table_on_host(&t);
    end(&t);
}

static void a_table_that_does_not_fit_is_not_tried_again(void **unused) {
    (void)unused;
    trainer t;
    begin(&t, "mlp", "discrete");
    float *all = batches(&t);
    tu_feed feeds[] = {{t.model.images, all}, {t.model.labels, labels}};
    float loss;
    tu_state *other;
    assert_int_equal(tu_state_new(t.graph, &other, .seed = 6), TU_OK);
    /* Allocates the device's memory. */
    assert_int_equal(tu_run(t.step, t.state, 2, feeds, (void *[]){&loss}), TU_OK);
    const char *name;
    tu_type type;
    for (size_t i = 0; i < tu_state_variable_count(other); i++) { /* undoes the step */
        assert_int_equal(tu_state_variable(other, i, &name, &type), TU_OK);
        void *value = test_malloc(tu_type_bytes(type));
        assert_int_equal(tu_state_get(other, name, value, tu_type_bytes(type)), TU_OK);
        assert_int_equal(tu_state_set(t.state, name, value, tu_type_bytes(type)), TU_OK);
        test_free(value);
    }
    tu_state_set_sample(t.state, tu_state_sample(other));
    discrete.allocations_fail = true;
    expect_table_on_host(&t);
    tu_state_free(other);
    test_free(all);
    end(&t);
}

/* Rows of 16 MiB are gathered on the host: six steps run in two calls, of four and two. */
static void rows_are_gathered_for_as_many_steps_as_fit(void **unused) {
    (void)unused;
    enum { WIDTH = 4 << 20 };
    static const int64_t order[6] = {0, 1, 1, 0, 1, 0};
    tu_graph *g;
    tu_program *program;
    tu_state *state;
    tu_table *table;
    tu_memory_report memory = TU_SIZED(tu_memory_report);
    register_discrete_device();
    float *data = test_malloc(2 * (size_t)WIDTH * sizeof *data), got[6];
    for (size_t i = 0; i < 2 * (size_t)WIDTH; i++) data[i] = i < WIDTH ? 1 : 2;
    assert_int_equal(tu_table_new(data, WIDTH * sizeof *data, 2, &table), TU_OK);
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(WIDTH)), y = tu_max(x);
    assert_int_equal(tu_compile(g, &program, .devices = "discrete", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    assert_int_equal(tu_program_memory(program, 0, &memory), TU_OK);
    discrete.memory = memory.scratch_bytes + memory.constant_bytes + 1;
    tu_feed_many feed = {.input = x, .table = table, .rows = order};
    if (tu_run_many(program, state, 6, 1, &feed, (void *[]){got}) != TU_OK) fail_msg("%s", tu_message());
    for (int i = 0; i < 6; i++) assert_true(got[i] == (float)(order[i] + 1));
    assert_int_equal(discrete.calls, 2);
    assert_int_equal(discrete.longest_call, 4);
    discrete.fails_in_call = 4;
    assert_int_equal(tu_run_many(program, state, 6, 1, &feed, (void *[]){got}), TU_INTERNAL);
    assert_non_null(strstr(tu_message(), "steps 5 to 6 of 6"));
    assert_non_null(strstr(tu_message(), "the 4 steps before them took effect"));
    tu_table_free(table);
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    test_free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_gathered_directly_into_inputs_in_host_memory),
        cmocka_unit_test(a_table_that_exceeds_the_limit_stays_on_the_host),
        cmocka_unit_test(a_table_uses_at_most_half_of_the_remaining_memory),
        cmocka_unit_test(a_table_that_does_not_fit_is_not_tried_again),
        cmocka_unit_test(rows_are_gathered_for_as_many_steps_as_fit),
        cmocka_unit_test(invalid_tables_are_rejected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
