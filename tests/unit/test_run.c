/* Tests of programs and states: feeds, fetches, updates, failed runs, and several programs with one state. */
#include "test.h"

#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/alloc.h"

static tu_graph *new_graph(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    return g;
}

static void assignments_take_effect_together_at_the_end(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value a = tu_variable(g, "a", TU_F64, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 1});
    tu_value b = tu_variable(g, "b", TU_F64, TU_SCALAR, .init = {TU_INIT_CONSTANT, .a = 2});
    tu_assign(a, b); /* a swap: both read the old values */
    tu_assign(b, a);
    tu_program *forward, *step;
    tu_state *state;
    tu_value fetch[] = {a, b};
    assert_int_equal(
        tu_compile(g, &step, .devices = "ref", .fetch = fetch, .fetch_count = 2, .updates = true), TU_OK);
    assert_int_equal(
        tu_compile(g, &forward, .devices = "ref", .fetch = fetch, .fetch_count = 2, .no_updates = true),
        TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    double x, y;
    assert_int_equal(tu_run(step, state, 0, NULL, (void *[]){&x, &y}), TU_OK);
    assert_true(x == 1 && y == 2);
    assert_int_equal(tu_run(forward, state, 0, NULL, (void *[]){&x, &y}), TU_OK);
    assert_true(x == 2 && y == 1);
    assert_int_equal(tu_run(forward, state, 0, NULL, (void *[]){&x, NULL}),
                     TU_OK); /* no updates, one result not fetched */
    assert_true(x == 2);
    tu_program_free(step);
    tu_program_free(forward);
    tu_state_free(state);
    tu_graph_free(g);
}

static void one_value_may_be_assigned_to_several_variables(void **unused) {
    (void)unused;
    const char *const devices[] = {"ref", "cpu:0"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        tu_graph *g = new_graph();
        tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(3));
        tu_value doubled = tu_scale(x, 2);
        const char *const names[] = {"a", "b", "c"};
        for (int k = 0; k < 3; k++) tu_assign(tu_variable(g, names[k], TU_F32, TU_SHAPE(3)), doubled);
        tu_program *step;
        tu_state *state;
        assert_int_equal(tu_compile(g, &step, .devices = devices[i], .updates = true), TU_OK);
        assert_int_equal(tu_state_new(g, &state), TU_OK);
        const float fed[] = {1, 2, 3};
        assert_int_equal(tu_run(step, state, 1, (tu_feed[]){{x, fed}}, NULL), TU_OK);
        for (int k = 0; k < 3; k++) {
            float values[3];
            assert_int_equal(tu_state_get(state, names[k], values, sizeof values), TU_OK);
            assert_true(values[0] == 2 && values[1] == 4 && values[2] == 6);
        }
        tu_program_free(step);
        tu_state_free(state);
        tu_graph_free(g);
    }
}

static void a_run_that_fails_changes_nothing(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value m = tu_input(g, "m", TU_F64, TU_SHAPE(2, 2));
    tu_value a = tu_variable(g, "a", TU_F64, TU_SCALAR);
    tu_assign(a, tu_shift(a, 1));
    tu_value inverse = tu_name(tu_inverse(m), "the_inverse");
    tu_program *step;
    tu_state *state;
    assert_int_equal(
        tu_compile(g, &step, .devices = "ref", .fetch = &inverse, .fetch_count = 1, .updates = true), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    double singular[4] = {1, 2, 2, 4}, out[4], now;
    assert_int_equal(tu_run(step, state, 1, (tu_feed[]){{m, singular}}, (void *[]){out}), TU_NUMERIC);
    assert_non_null(strstr(tu_message(), "the_inverse"));
    assert_int_equal(tu_state_get(state, "a", &now, sizeof now), TU_OK);
    assert_true(now == 0);
    tu_program_free(step);
    tu_state_free(state);
    tu_graph_free(g);
}

static tu_status failing_shape(const tu_custom_call *call, tu_type *outputs) {
    outputs[0] = call->inputs[0];
    return TU_OK;
}
static tu_status failing_run(const tu_custom_call *call, const void *const *in, void *const *out) {
    (void)call, (void)in, (void)out;
    return tu_fail(TU_NUMERIC, "it will not");
}

/* A variable's next value is read by an operation that fails: the variable must keep its old value. */
static void a_failure_after_reading_the_next_value_keeps_the_old_one(void **unused) {
    (void)unused;
    static const tu_custom_op stubborn = {.struct_size = sizeof stubborn,
                                          .name = "stubborn",
                                          .outputs = 1,
                                          .shape = failing_shape,
                                          .run = failing_run};
    assert_int_equal(tu_custom_register(&stubborn), TU_OK);
    for (int device = 0; device < 2; device++) {
        tu_graph *g = new_graph();
        tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(3)), next = tu_shift(w, 1);
        tu_assign(w, next);
        tu_value bad = tu_custom("stubborn", 1, &next);
        tu_program *step;
        tu_state *state;
        assert_int_equal(tu_compile(g, &step, .devices = device ? "cpu" : "ref", .fetch = &bad,
                                    .fetch_count = 1, .updates = true),
                         TU_OK);
        assert_int_equal(tu_state_new(g, &state), TU_OK);
        float out[3], now[3];
        assert_int_equal(tu_run(step, state, 0, NULL, (void *[]){out}), TU_NUMERIC);
        assert_int_equal(tu_state_get(state, "w", now, sizeof now), TU_OK);
        assert_true(now[0] == 0 && now[2] == 0);
        tu_program_free(step);
        tu_state_free(state);
        tu_graph_free(g);
    }
}

/* A state is freed and another one created, probably at the same address: the program must bind again. */
static void a_program_runs_with_several_states(void **unused) {
    (void)unused;
    tu_graph *g = new_graph();
    tu_value w = tu_variable(g, "w", TU_F32, TU_SHAPE(1000), .init = {.kind = TU_INIT_CONSTANT, .a = 1});
    tu_assign(w, tu_shift(w, 1));
    tu_program *step;
    assert_int_equal(tu_compile(g, &step, .devices = "ref", .updates = true), TU_OK);
    for (int i = 0; i < 20; i++) {
        tu_state *state;
        float values[1000];
        assert_int_equal(tu_state_new(g, &state), TU_OK);
        assert_int_equal(tu_run(step, state, 0, NULL, NULL), TU_OK);
        assert_int_equal(tu_state_get(state, "w", values, sizeof values), TU_OK);
        assert_true(values[0] == 2 && values[999] == 2);
        tu_state_free(state);
    }
    tu_program_free(step);
    tu_graph_free(g);
}

static void invalid_feeds_and_fetches_are_rejected(void **unused) {
    (void)unused;
    tu_graph *g = new_graph(), *other = new_graph();
    tu_value x = tu_input(g, "x", TU_F32, TU_SHAPE(2)), y = tu_neg(x),
             foreign = tu_input(other, "z", TU_F32, TU_SHAPE(2));
    tu_program *p;
    tu_state *state;
    float data[2] = {1, 2}, out[2];
    assert_int_equal(tu_compile(g, &p, .devices = "ref", .fetch = &foreign, .fetch_count = 1), TU_INVALID);
    assert_int_equal(tu_compile(g, &p, .fetch = &y, .fetch_count = 1, .devices = "gpu:7"), TU_NOT_FOUND);
    assert_non_null(strstr(tu_message(), "gpu:7"));
    assert_non_null(strstr(tu_message(), "ref"));
    assert_int_equal(tu_compile(g, &p, .devices = "ref", .fetch = &y, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    tu_program *none;
    assert_int_equal(tu_compile(g, &none, .devices = "ref", .fetch_count = 1), TU_INVALID);
    assert_int_equal(tu_run(p, state, 1, NULL, (void *[]){out}), TU_INVALID);
    assert_int_equal(tu_run(p, state, 0, NULL, (void *[]){out}), TU_INVALID);
    assert_non_null(strstr(tu_message(), "'x' f32[2] was not fed"));
    assert_int_equal(tu_run(p, state, 1, (tu_feed[]){{y, data}}, (void *[]){out}), TU_INVALID);
    assert_non_null(strstr(tu_message(), "only inputs can be fed"));
    assert_int_equal(tu_run(p, state, 1, (tu_feed[]){{foreign, data}}, (void *[]){out}), TU_INVALID);
    assert_int_equal(tu_run(p, state, 1, (tu_feed[]){{x, NULL}}, (void *[]){out}), TU_INVALID);
    assert_int_equal(tu_run(p, state, 1, (tu_feed[]){{x, data}}, (void *[]){out}), TU_OK);
    assert_true(out[1] == -2);
    tu_program_free(p);
    tu_state_free(state);
    tu_graph_free(g);
    tu_graph_free(other);
}

static void two_graphs_share_a_state_by_name(void **unused) {
    (void)unused;
    tu_graph *small = new_graph(), *large = new_graph(), *odd = new_graph();
    tu_dense(tu_input(small, "x", TU_F32, TU_SHAPE(2, 3)), .units = 4);
    tu_dense(tu_input(large, "x", TU_F32, TU_SHAPE(8, 3)), .units = 4);
    tu_variable(large, "more", TU_F32, TU_SHAPE(5), .init = {TU_INIT_CONSTANT, .a = 3});
    tu_dense(tu_input(odd, "x", TU_F32, TU_SHAPE(8, 7)), .units = 4);
    tu_variable(odd, "extra", TU_F32, TU_SHAPE(5));
    tu_state *state;
    float before[12], after[12], more[5];
    assert_int_equal(tu_state_new(small, &state, .seed = 9), TU_OK);
    assert_int_equal(tu_state_get(state, "dense/weights", before, sizeof before), TU_OK);
    assert_int_equal(tu_state_extend(state, large), TU_OK);
    assert_int_equal(tu_state_get(state, "dense/weights", after, sizeof after), TU_OK);
    assert_int_equal(tu_state_get(state, "more", more, sizeof more), TU_OK);
    assert_memory_equal(before, after, sizeof before);
    assert_true(more[4] == 3);
    size_t count = tu_state_variable_count(state);
    assert_int_equal(tu_state_extend(state, odd), TU_INVALID);
    assert_non_null(strstr(tu_message(), "dense/weights"));
    assert_non_null(strstr(tu_message(), "f32[4,3]"));
    assert_non_null(strstr(tu_message(), "f32[4,7]"));
    assert_int_equal(tu_state_variable_count(state), count);
    assert_int_equal(tu_state_get(state, "nothing", more, sizeof more), TU_NOT_FOUND);
    assert_int_equal(tu_state_set(state, "more", more, 3), TU_INVALID);
    tu_state_free(state);
    tu_graph_free(small);
    tu_graph_free(large);
    tu_graph_free(odd);
}

/* Computes mean and standard deviation of a variable's elements. */
static void moments(tu_state *state, const char *name, int count, double *mean, double *deviation) {
    static double data[20000];
    assert_int_equal(tu_state_get(state, name, data, (size_t)count * sizeof *data), TU_OK);
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++) sum += data[i], squares += data[i] * data[i];
    *mean = sum / count;
    *deviation = sqrt(squares / count - *mean * *mean);
}

static void initializers_have_the_expected_moments(void **unused) {
    (void)unused;
    static const struct {
        tu_init init;
        double mean, deviation;
    } rows[] = {
        {{.kind = TU_INIT_ZEROS}, 0, 0},
        {{.kind = TU_INIT_CONSTANT, .a = 2.5}, 2.5, 0},
        {{.kind = TU_INIT_UNIFORM, .a = -1, .b = 3}, 1, 1.1547},
        {{.kind = TU_INIT_NORMAL, .a = 1, .b = 2}, 1, 2},
        {{.kind = TU_INIT_TRUNCATED_NORMAL, .a = 1, .b = 2},
         1,
         /* A normal distribution truncated at two standard deviations. */
         2 * 0.8796},
        {{.kind = TU_INIT_XAVIER_UNIFORM}, 0, 0.081650}, /* sqrt(2 / (100 + 200)) */
        {{.kind = TU_INIT_XAVIER_NORMAL}, 0, 0.081650},
        {{.kind = TU_INIT_HE_UNIFORM}, 0, 0.141421}, /* sqrt(2 / 100) */
        {{.kind = TU_INIT_HE_NORMAL}, 0, 0.141421},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tu_graph *g = new_graph();
        tu_state *state;
        tu_variable(g, "w", TU_F64, TU_SHAPE(200, 100), .init = rows[i].init);
        assert_int_equal(tu_state_new(g, &state, .seed = 3), TU_OK);
        double mean, deviation, slack = 0.03 * (rows[i].deviation + 1e-12);
        moments(state, "w", 20000, &mean, &deviation);
        if (fabs(mean - rows[i].mean) > slack || fabs(deviation - rows[i].deviation) > slack)
            fail_msg("initialiser %d: mean %g, deviation %g; expected %g and %g", rows[i].init.kind, mean,
                     deviation, rows[i].mean, rows[i].deviation);
        tu_state_free(state);
        tu_graph_free(g);
    }
}

static void initial_values_depend_only_on_seed_and_name(void **unused) {
    (void)unused;
    float first[3][6];
    for (int k = 0; k < 3; k++) {
        tu_graph *g = new_graph();
        tu_state *state;
        const tu_init init = {TU_INIT_NORMAL, .b = 1};
        if (k == 1)
            tu_variable(g, "before", TU_F32, TU_SHAPE(3), .init = init); /* another order of creation */
        tu_variable(g, "w", TU_F32, TU_SHAPE(6), .init = init);
        assert_int_equal(tu_state_new(g, &state, .seed = k == 2 ? 8 : 7), TU_OK);
        assert_int_equal(tu_state_get(state, "w", first[k], sizeof first[k]), TU_OK);
        tu_state_free(state);
        tu_graph_free(g);
    }
    assert_memory_equal(first[0], first[1], sizeof first[0]);
    assert_memory_not_equal(first[0], first[2], sizeof first[0]);
}

static void batch_norm_keeps_running_statistics(void **unused) {
    (void)unused;
    tu_graph *g = new_graph(), *inference = new_graph();
    tu_value x = tu_batch_input(g, "x", TU_F64, TU_SHAPE(4, 1));
    tu_batch_norm(x, .momentum = 0.75, .name = "bn");
    tu_set_training(inference, false);
    tu_value xi = tu_batch_input(inference, "x", TU_F64, TU_SHAPE(1, 1)),
             yi = tu_batch_norm(xi, .name = "bn");
    tu_program *step, *eval;
    tu_state *state;
    assert_int_equal(tu_compile(g, &step, .devices = "ref", .updates = true), TU_OK);
    assert_int_equal(tu_compile(inference, &eval, .devices = "ref", .fetch = &yi, .fetch_count = 1), TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    double data[4] = {1, 3, 5, 7}, mean, variance, one = 10, y;
    assert_int_equal(tu_run(step, state, 1, (tu_feed[]){{x, data}}, NULL), TU_OK);
    tu_state_get(state, "bn/moving_mean", &mean, sizeof mean);
    tu_state_get(state, "bn/moving_variance", &variance, sizeof variance);
    assert_true(mean == 1); /* 0.75 * 0 + 0.25 * 4 */
    assert_true(variance == 0.75 + 0.25 * 5);
    assert_int_equal(tu_run(eval, state, 1, (tu_feed[]){{xi, &one}}, (void *[]){&y}), TU_OK);
    assert_true(fabs(y - 9 / sqrt(2 + 1e-5)) < 1e-12);
    tu_program_free(step);
    tu_program_free(eval);
    tu_state_free(state);
    tu_graph_free(g);
    tu_graph_free(inference);
}

static void everything_allocated_is_freed(void **unused) {
    (void)unused;
    int64_t before = tu__alloc_live();
    tu_graph *g = new_graph();
    tu_network_graph model = TU_SIZED(tu_network_graph);
    assert_int_equal(tu_network_build(g, "mlp", &model, .batch = 2), TU_OK);
    assert_int_equal(tu_add_sgd(model.loss, 0.1, 0.9), TU_OK);
    tu_program *step;
    tu_state *state;
    assert_int_equal(
        tu_compile(g, &step, .devices = "ref", .fetch = &model.loss, .fetch_count = 1, .updates = true),
        TU_OK);
    assert_int_equal(tu_state_new(g, &state), TU_OK);
    static float images[2 * 784];
    int labels[2] = {1, 2};
    float loss;
    assert_int_equal(tu_run(step, state, 2, (tu_feed[]){{model.images, images}, {model.labels, labels}},
                            (void *[]){&loss}),
                     TU_OK);
    tu_program_free(step);
    tu_state_free(state);
    tu_graph_free(g);
    assert_int_equal(tu__alloc_live(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(assignments_take_effect_together_at_the_end),
        cmocka_unit_test(one_value_may_be_assigned_to_several_variables),
        cmocka_unit_test(a_run_that_fails_changes_nothing),
        cmocka_unit_test(a_failure_after_reading_the_next_value_keeps_the_old_one),
        cmocka_unit_test(a_program_runs_with_several_states),
        cmocka_unit_test(invalid_feeds_and_fetches_are_rejected),
        cmocka_unit_test(two_graphs_share_a_state_by_name),
        cmocka_unit_test(initializers_have_the_expected_moments),
        cmocka_unit_test(initial_values_depend_only_on_seed_and_name),
        cmocka_unit_test(batch_norm_keeps_running_statistics),
        cmocka_unit_test(everything_allocated_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
