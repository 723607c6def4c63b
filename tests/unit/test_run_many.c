/* Tests of tu_run_many: results are bit-identical to single steps on every device; invalid feeds fail; an error
 * message says which steps took effect. */
#include "base/alloc.h"
#include "multi_step_trainer.h"
#include "state_checks.h"

/* ---- Bit-identical results ---- */

typedef struct setting {
    const char *model, *single, *multi_step; /* device lists */
} setting;

static const setting settings[] = {
    {"mlp", "cpu", "cpu"},          {"mlp", "cpu:0/2", "cpu:0/2"},          {"mlp", "ref", "ref"},
    {"mlp", "cpu", "discrete"},     {"mlp", "cpu:0.0/2", "discrete:0.0/2"}, {"mlp", "null", "null"},
    {"tutorial-cnn", "cpu", "cpu"}, {"tutorial-cnn", "cpu", "discrete"},    {"mlp", "cpu", "discrete,null"}};

static void multi_step_calls_are_bit_identical_to_single_steps(void **unused) {
    (void)unused;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        trainer single_step, multi_step;
        float expected[STEPS], got[STEPS];
        begin(&single_step, settings[i].model, settings[i].single);
        begin(&multi_step, settings[i].model, settings[i].multi_step);
        run_step_by_step(&single_step, expected);
        if (run_many_from_table(&multi_step, 0, STEPS, got) != TU_OK) fail_msg("%s", tu_message());
        assert_memory_equal(expected, got, sizeof expected);
        assert_same_state(single_step.state, multi_step.state);
        end(&single_step);
        end(&multi_step);
    }
}

static void consecutive_batches_equal_a_table(void **unused) {
    (void)unused;
    static const char *const devices[] = {"cpu", "discrete"};
    for (int i = 0; i < 2; i++) {
        trainer a, b;
        float expected[STEPS], got[STEPS];
        begin(&a, "mlp", devices[i]);
        begin(&b, "mlp", devices[i]);
        assert_int_equal(run_many_from_table(&a, 0, STEPS, expected), TU_OK);
        float *all = batches(&b);
        tu_feed_many feeds[] = {{.input = b.model.images, .data = all},
                                {.input = b.model.labels, .data = labels}};
        assert_int_equal(tu_run_many(b.step, b.state, STEPS, 2, feeds, (void *[]){got}), TU_OK);
        assert_memory_equal(expected, got, sizeof expected);
        assert_same_state(a.state, b.state);
        test_free(all);
        end(&a);
        end(&b);
    }
}

static void one_batch_can_serve_all_steps(void **unused) {
    (void)unused;
    static const char *const devices[] = {"cpu", "discrete"};
    for (int i = 0; i < 2; i++) {
        trainer a, b, c;
        float expected[STEPS], got[STEPS], from_rows[STEPS];
        begin(&a, "mlp", devices[i]);
        begin(&b, "mlp", devices[i]);
        begin(&c, "mlp", devices[i]);
        tu_feed feeds[] = {{a.model.images, a.images}, {a.model.labels, labels}};
        for (int s = 0; s < STEPS; s++)
            assert_int_equal(tu_run(a.step, a.state, 2, feeds, (void *[]){&expected[s]}), TU_OK);
        tu_feed_many same[] = {{.input = b.model.images, .data = b.images, .same_batch = true},
                               {.input = b.model.labels, .data = labels, .same_batch = true}};
        assert_int_equal(tu_run_many(b.step, b.state, STEPS, 2, same, (void *[]){got}), TU_OK);
        assert_memory_equal(expected, got, sizeof expected);
        assert_same_state(a.state, b.state);
        static const int64_t first[BATCH] = {0, 1};
        tu_feed_many same_rows[] = {
            {.input = c.model.images, .table = c.table, .rows = first, .same_batch = true},
            {.input = c.model.labels, .data = labels, .same_batch = true}};
        assert_int_equal(tu_run_many(c.step, c.state, STEPS, 2, same_rows, (void *[]){from_rows}), TU_OK);
        assert_memory_equal(expected, from_rows, sizeof expected);
        end(&a);
        end(&b);
        end(&c);
    }
}

/* Random numbers per sample: the engine generates the sample ordinals, which advance with every step, or stay the
 * same in a program without updates. */
static void sample_ordinals_advance_with_every_step(void **unused) {
    (void)unused;
    static const char *const devices[] = {"ref", "discrete"};
    for (int updates = 0; updates < 2; updates++)
        for (int i = 0; i < 2; i++) {
            tu_graph *g;
            tu_program *program;
            tu_state *state;
            register_discrete_device();
            assert_int_equal(tu_graph_new(&g), TU_OK);
            tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(3, 2)), y = tu_dropout(x, 0.5);
            tu_value count = tu_variable(g, "count", TU_F32, TU_SCALAR);
            tu_assign(count, tu_add(count, tu_fill(g, TU_F32, TU_SCALAR, 1)));
            if (tu_compile(g, &program, .devices = devices[i], .fetch = &y, .fetch_count = 1,
                           .updates = updates, .no_updates = !updates) != TU_OK)
                fail_msg("%s", tu_message());
            static const float ones[6] = {1, 1, 1, 1, 1, 1};
            float expected[5][6], got[5][6];
            assert_int_equal(tu_state_new(g, &state, .seed = 3), TU_OK);
            for (int s = 0; s < 5; s++)
                assert_int_equal(tu_run(program, state, 1, (tu_feed[]){{x, ones}}, (void *[]){expected[s]}),
                                 TU_OK);
            tu_state_free(state);
            assert_int_equal(tu_state_new(g, &state, .seed = 3), TU_OK);
            tu_feed_many feed = {.input = x, .data = ones, .same_batch = true};
            assert_int_equal(tu_run_many(program, state, 5, 1, &feed, (void *[]){got}), TU_OK);
            assert_memory_equal(expected, got, sizeof expected);
            assert_int_equal(tu_state_sample(state), updates ? 15 : 0);
            assert_int_equal(memcmp(got[0], got[1], sizeof got[0]) == 0, !updates);
            tu_program_free(program);
            tu_state_free(state);
            tu_graph_free(g);
        }
}

static void later_calls_allocate_nothing(void **unused) {
    (void)unused;
    static const char *const devices[] = {"cpu", "discrete"};
    for (int i = 0; i < 2; i++) {
        trainer t;
        float losses[STEPS];
        begin(&t, "mlp", devices[i]);
        assert_int_equal(run_many_from_table(&t, 0, STEPS, losses), TU_OK);
        uint64_t before = tu__alloc_count();
        assert_int_equal(run_many_from_table(&t, 0, STEPS, losses), TU_OK);
        assert_int_equal(tu__alloc_count(), before);
        end(&t);
    }
}

/* ---- Invalid feeds ---- */

static void expect_error(trainer *t, tu_feed_many images, const char *words) {
    tu_feed_many feeds[] = {images, {.input = t->model.labels, .data = labels}};
    float losses[STEPS];
    assert_int_equal(tu_run_many(t->step, t->state, STEPS, 2, feeds, (void *[]){losses}), TU_INVALID);
    if (!strstr(tu_message(), words)) fail_msg("'%s' is not in: %s", words, tu_message());
}

static void invalid_feeds_are_rejected(void **unused) {
    (void)unused;
    static const char *const devices[] = {"cpu", "discrete"};
    for (int i = 0; i < 2; i++) {
        trainer t;
        begin(&t, "mlp", devices[i]);
        tu_value x = t.model.images;
        int64_t wrong[STEPS * BATCH] = {0};
        wrong[5] = ROWS;
        expect_error(&t, (tu_feed_many){.input = x, .table = t.table, .rows = wrong},
                     "has row index 7 at position 5 of .rows: expected 0 to 6");
        wrong[5] = -1;
        expect_error(&t, (tu_feed_many){.input = x, .table = t.table, .rows = wrong}, "has row index -1");
        expect_error(&t, (tu_feed_many){.input = x, .table = t.table}, "no row indices (.rows)");
        expect_error(&t, (tu_feed_many){.input = x}, "neither data nor a table");
        expect_error(&t, (tu_feed_many){.input = x, .data = t.images, .table = t.table, .rows = rows},
                     "both data and a table");
        expect_error(&t, (tu_feed_many){.input = t.model.loss, .data = t.images}, "only inputs can be fed");
        const tu_feed_many only_labels = {.input = t.model.labels, .data = labels};
        expect_error(&t, only_labels, "feeds 0 and 1 are both for input 'labels'");
        float losses[STEPS];
        assert_int_equal(tu_run_many(t.step, t.state, STEPS, 1, &only_labels, (void *[]){losses}),
                         TU_INVALID);
        assert_non_null(strstr(tu_message(), "was not fed"));
        tu_table *odd;
        assert_int_equal(tu_table_new(t.images, 1000, 3, &odd), TU_OK);
        expect_error(&t, (tu_feed_many){.input = x, .table = odd, .rows = rows},
                     "not a multiple of its table's row size, 1000 bytes");
        tu_table_free(odd);
        end(&t);
    }
}

/* ---- Failing ---- */

static void steps_before_a_failing_step_take_effect(void **unused) {
    (void)unused;
    trainer single_step, t;
    float expected[STEPS], losses[STEPS];
    begin(&single_step, "mlp", "cpu");
    run_step_by_step(&single_step, expected);
    end(&single_step);
    discrete_has_no_submit = true;
    begin(&t, "mlp", "discrete");
    discrete.fails_in_launch = 2 + 1;
    assert_int_equal(run_many_from_table(&t, 0, STEPS, losses), TU_DEVICE);
    assert_non_null(strstr(tu_message(), "step 3 of 4 failed, the 2 before it took effect: "));
    assert_non_null(strstr(tu_message(), "device 'discrete:0' failed at its "));
    assert_non_null(strstr(tu_message(), ": the discrete device has gone away"));
    if (run_many_from_table(&t, 2, 2, losses) != TU_OK) fail_msg("%s", tu_message());
    assert_memory_equal(expected, losses, sizeof losses);
    end(&t);
}

static void a_failing_call_reports_all_its_steps(void **unused) {
    (void)unused;
    trainer t;
    float losses[STEPS];
    begin(&t, "mlp", "discrete");
    discrete.fails_in_call = 1;
    assert_int_equal(run_many_from_table(&t, 0, STEPS, losses), TU_INTERNAL);
    assert_string_equal(
        tu_message(),
        "steps 1 to 4 of 4 failed in one call of device 'discrete:0': the 0 steps before them took effect, "
        "and some of the failed ones may have: the discrete device has gone away");
    end(&t);
}

static void running_out_of_memory_loses_no_step(void **unused) {
    (void)unused;
    trainer single_step, t;
    float expected[STEPS], got[STEPS];
    begin(&single_step, "mlp", "cpu");
    begin(&t, "mlp", "discrete");
    run_step_by_step(&single_step, expected);
    int failures = 0;
    tu_status status;
    do {
        tu__alloc_fail_at(1 + (uint64_t)failures);
        status = run_many_from_table(&t, 0, STEPS, got);
        tu__alloc_fail_at(0);
        assert_true(status == TU_OK || status == TU_NO_MEMORY);
        failures += status != TU_OK;
    } while (status != TU_OK);
    assert_true(failures > 3);
    assert_memory_equal(expected, got, sizeof expected);
    assert_same_state(single_step.state, t.state);
    end(&single_step);
    end(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(multi_step_calls_are_bit_identical_to_single_steps),
        cmocka_unit_test(consecutive_batches_equal_a_table),
        cmocka_unit_test(one_batch_can_serve_all_steps),
        cmocka_unit_test(sample_ordinals_advance_with_every_step),
        cmocka_unit_test(later_calls_allocate_nothing),
        cmocka_unit_test(invalid_feeds_are_rejected),
        cmocka_unit_test(steps_before_a_failing_step_take_effect),
        cmocka_unit_test(a_failing_call_reports_all_its_steps),
        cmocka_unit_test(running_out_of_memory_loses_no_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
