/* Detection of slow steps, with given durations instead of a clock. */
#include <string.h>

#include "test.h"
#include "train/slow_step.h"

static void add_steps(tu__step_times *times, int count, double seconds) {
    double usual;
    for (int i = 0; i < count; i++) assert_false(tu__step_is_slow(times, seconds, &usual));
}

static void a_step_of_many_times_the_usual_duration_is_slow(void **state) {
    (void)state;
    tu__step_times times = {0};
    double usual = 0;
    add_steps(&times, 100, 0.0024);
    assert_true(tu__step_is_slow(&times, 0.095, &usual));
    assert_true(usual == 0.0024);
}

static void only_one_slow_step_is_reported(void **state) {
    (void)state;
    tu__step_times times = {0};
    double usual;
    add_steps(&times, 100, 0.0024);
    assert_true(tu__step_is_slow(&times, 0.095, &usual));
    add_steps(&times, 100, 0.0024);
    add_steps(&times, 100, 5);
}

static void constantly_slow_steps_are_not_reported(void **state) {
    (void)state;
    tu__step_times times = {0};
    add_steps(&times, 500, 5);
}

static void the_first_steps_are_not_reported(void **state) {
    (void)state;
    tu__step_times times = {0};
    add_steps(&times, 1, 20);
    add_steps(&times, 10, 0.001);
    add_steps(&times, 1, 20);
    add_steps(&times, 10, 0.001);
}

static void single_slow_steps_do_not_change_the_usual_duration(void **state) {
    (void)state;
    tu__step_times times = {0};
    double usual = 0;
    add_steps(&times, 60, 0.01);
    add_steps(&times, 5, 0.09);
    assert_true(tu__step_is_slow(&times, 0.2, &usual));
    assert_true(usual == 0.01);
}

static void a_lasting_change_becomes_the_usual_duration(void **state) {
    (void)state;
    tu__step_times times = {0};
    double usual = 0;
    add_steps(&times, 100, 0.01);
    add_steps(&times, 100, 0.09);
    add_steps(&times, 1, 0.8);
    assert_true(tu__step_is_slow(&times, 0.95, &usual));
    assert_true(usual == 0.09);
}

static void less_than_ten_times_or_50_ms_is_not_slow(void **state) {
    (void)state;
    tu__step_times times = {0};
    add_steps(&times, 100, 0.0001);
    add_steps(&times, 10, 0.049); /* 490 times as long, but below 50 ms */
    times = (tu__step_times){0};
    add_steps(&times, 100, 1);
    add_steps(&times, 10, 9.9);
}

static void the_message_contains_the_step_and_its_duration(void **state) {
    (void)state;
    char text[256];
    tu__slow_step_message(text, sizeof text, 812, 0.0951, 0.0024);
    assert_non_null(strstr(text, "step 812 took 95 ms instead of the usual 2.4 ms: another process may be"));
    tu__slow_step_message(text, sizeof text, 7, 125.4, 9.87);
    assert_non_null(strstr(text, "step 7 took 125 s instead of the usual 9.9 s: "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_many_times_the_usual_duration_is_slow),
        cmocka_unit_test(only_one_slow_step_is_reported),
        cmocka_unit_test(constantly_slow_steps_are_not_reported),
        cmocka_unit_test(the_first_steps_are_not_reported),
        cmocka_unit_test(single_slow_steps_do_not_change_the_usual_duration),
        cmocka_unit_test(a_lasting_change_becomes_the_usual_duration),
        cmocka_unit_test(less_than_ten_times_or_50_ms_is_not_slow),
        cmocka_unit_test(the_message_contains_the_step_and_its_duration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
