/* Tests of learning-rate schedules: the rate at every step equals the schedule's formula, computed in doubles. */
#include "test.h"

#include <math.h>
#include <string.h>

#include <tutti/tutti.h>

#define SCHEDULE(...) (&(const tu_schedule_options){.struct_size = sizeof(tu_schedule_options), __VA_ARGS__})

/* Asserts that the learning rate is `expected` at some steps, on both devices. */
static void assert_follows(const tu_schedule_options *options, double (*expected)(int64_t step)) {
    static const int64_t steps[] = {0,  1,  2,  3,  8,  9,  10, 11,  28,  29,  30,   31,     49,      50,
                                    51, 70, 89, 90, 91, 98, 99, 100, 101, 150, 1000, 123456, 40000000};
    static const char *const devices[] = {"ref", "cpu"};
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    tu_value rate = tu_schedule_with(g, options);
    if (!tu_ok(rate)) {
        tu_graph_status(g);
        fail_msg("%s", tu_message());
    }
    for (int d = 0; d < 2; d++) {
        tu_program *program;
        tu_state *state;
        assert_int_equal(
            tu_compile(g, &program, .devices = devices[d], .threads = 1, .fetch = &rate, .fetch_count = 1),
            TU_OK);
        assert_int_equal(tu_state_new(g, &state), TU_OK);
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            float got;
            double rate_expected = expected(steps[i]);
            assert_int_equal(tu_state_set(state, "step", &steps[i], sizeof steps[i]), TU_OK);
            assert_int_equal(tu_run(program, state, 0, NULL, (void *[]){&got}), TU_OK);
            if (!(fabs((double)got - rate_expected) <= 1e-7 * fabs(rate_expected) + 1e-16))
                fail_msg("%s on %s at step %lld: %.9g, expected %.9g", options->kind, devices[d],
                         (long long)steps[i], (double)got, rate_expected);
        }
        tu_state_free(state);
        tu_program_free(program);
    }
    tu_graph_free(g);
}

static double minimum(double a, double b) {
    return a < b ? a : b;
}

static double constant(int64_t step) {
    (void)step;
    return 0.25;
}

static double warm_constant(int64_t step) {
    return step < 10 ? 0.25 * (double)(step + 1) / 10 : 0.25;
}

static double step_decay(int64_t step) {
    int64_t drops = step / 30;
    return 0.5 * pow(0.1, (double)drops);
}

static double warm_step_decay(int64_t step) {
    int64_t drops = (step - 10) / 20;
    return step < 10 ? 0.5 * (double)(step + 1) / 10 : 0.5 * pow(0.5, (double)drops);
}

static double step_to_zero(int64_t step) {
    return step < 30 ? 0.5 : 0;
}

static double exponential_to_zero(int64_t step) {
    return step == 0 ? 0.5 : 0;
}

static double exponential(int64_t step) {
    return 0.5 * pow(0.9, (double)step / 50);
}

static double cosine(int64_t step) {
    return 0.1 * (1 + cos(3.14159265358979323846 * minimum((double)step / 100, 1))) / 2;
}

static double warm_cosine(int64_t step) {
    if (step < 10) return 0.1 * (double)(step + 1) / 10;
    double wave = (1 + cos(3.14159265358979323846 * minimum((double)(step - 10) / 90, 1))) / 2;
    return 0.1 * (0.02 + 0.98 * wave);
}

static double one_cycle(int64_t step) {
    return step < 30 ? 0.4 * (double)(step + 1) / 30 : 0.4 * (1 - minimum((double)(step - 30) / 70, 1));
}

static double early_cycle(int64_t step) {
    return step < 10 ? 0.4 * (double)(step + 1) / 10
                     : 0.4 * (1 - 0.75 * minimum((double)(step - 10) / 90, 1));
}

static void learning_rates_follow_their_formulas(void **state) {
    (void)state;
    assert_follows(SCHEDULE(.rate = 0.25), constant);
    assert_follows(SCHEDULE(.kind = "constant", .rate = 0.25, .warmup = 10), warm_constant);
    assert_follows(SCHEDULE(.kind = "step", .rate = 0.5, .every = 30), step_decay);
    assert_follows(SCHEDULE(.kind = "step", .rate = 0.5, .every = 20, .factor = 0.5, .warmup = 10),
                   warm_step_decay);
    assert_follows(SCHEDULE(.kind = "step", .rate = 0.5, .every = 30, .factor = -1), step_to_zero);
    assert_follows(SCHEDULE(.kind = "exponential", .rate = 0.5, .every = 30, .factor = -1),
                   exponential_to_zero);
    assert_follows(SCHEDULE(.kind = "exponential", .rate = 0.5, .every = 50, .factor = 0.9), exponential);
    assert_follows(SCHEDULE(.kind = "cosine", .rate = 0.1, .steps = 100), cosine);
    assert_follows(SCHEDULE(.kind = "cosine", .rate = 0.1, .steps = 100, .warmup = 10, .end = 0.02),
                   warm_cosine);
    assert_follows(SCHEDULE(.kind = "one-cycle", .rate = 0.4, .steps = 100), one_cycle);
    assert_follows(SCHEDULE(.kind = "one-cycle", .rate = 0.4, .steps = 100, .peak_at = 0.1, .end = 0.25),
                   early_cycle);
}

static void expect_error(const tu_schedule_options *options, const char *text) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    assert_false(tu_ok(tu_schedule_with(g, options)));
    assert_int_equal(tu_graph_status(g), TU_INVALID);
    if (!strstr(tu_message(), text)) fail_msg("\"%s\" does not say \"%s\"", tu_message(), text);
    tu_graph_free(g);
}

static void invalid_schedules_are_rejected(void **state) {
    (void)state;
    expect_error(SCHEDULE(.kind = "cosin", .rate = 1),
                 "schedule 'cosin': expected constant, step, exponential, cosine or "
                 "one-cycle; did you mean 'cosine'?");
    expect_error(SCHEDULE(.rate = -1),
                 "schedule 'constant': rate is -1, expected a finite number of at least 0");
    expect_error(SCHEDULE(.rate = NAN), "rate is ");
    expect_error(SCHEDULE(.rate = 1, .warmup = -2), "warmup is -2");
    expect_error(SCHEDULE(.kind = "step", .rate = 1), "every is 0, expected at least 1");
    expect_error(SCHEDULE(.kind = "exponential", .rate = 1, .every = 2, .factor = INFINITY), "factor is inf");
    expect_error(SCHEDULE(.kind = "cosine", .rate = 1),
                 ".steps is 0 with a warm-up of 0: expected the total number of steps");
    expect_error(SCHEDULE(.kind = "cosine", .rate = 1, .steps = 5, .warmup = 5),
                 ".steps is 5 with a warm-up of 5");
    expect_error(SCHEDULE(.kind = "cosine", .rate = 1, .steps = 5, .end = 2),
                 "end is 2, expected a fraction");
    expect_error(SCHEDULE(.kind = "one-cycle", .rate = 1, .steps = 5, .warmup = 2),
                 "warmup is 2, expected 0, because .peak_at");
    expect_error(SCHEDULE(.kind = "one-cycle", .rate = 1, .steps = 5, .peak_at = 1), "peak_at is 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(learning_rates_follow_their_formulas),
                                       cmocka_unit_test(invalid_schedules_are_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
