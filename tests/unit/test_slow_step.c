/* Statements about the notice of a slow step: fed with durations, no clock is looked at. */
#include <string.h>

#include "test.h"
#include "train/slow_step.h"

static void add(tu__step_times *times, int count, double seconds) {
    double usual;
    for (int i = 0; i < count; i++) assert_false(tu__step_is_slow(times, seconds, &usual));
}

static void a_step_of_many_times_its_usual_is_told(void **state) {
    (void)state;
    tu__step_times times = {0};
    double usual = 0;
    add(&times, 100, 0.0024);
    assert_true(tu__step_is_slow(&times, 0.095, &usual));
    assert_true(usual == 0.0024);
}

static void it_is_told_once(void **state) {
    (void)state;
    tu__step_times times = {0};
    double usual;
    add(&times, 100, 0.0024);
    assert_true(tu__step_is_slow(&times, 0.095, &usual));
    add(&times, 100, 0.0024);
    add(&times, 100, 5);
}

static void a_run_that_is_slow_from_its_beginning_is_not(void **state) {
    (void)state;
    tu__step_times times = {0};
    add(&times, 500, 5);
}

static void the_first_steps_may_take_as_long_as_they_like(void **state) {
    (void)state;
    tu__step_times times = {0};
    add(&times, 1, 20);
    add(&times, 10, 0.001);
    add(&times, 1, 20);
    add(&times, 10, 0.001);
}

static void one_slow_step_does_not_change_what_is_usual(void **state) {
    (void)state;
    tu__step_times times = {0};
    double usual = 0;
    add(&times, 60, 0.01);
    add(&times, 5, 0.09);
    assert_true(tu__step_is_slow(&times, 0.2, &usual));
    assert_true(usual == 0.01);
}

static void a_change_that_lasts_becomes_the_usual(void **state) {
    (void)state;
    tu__step_times times = {0};
    double usual = 0;
    add(&times, 100, 0.01);
    add(&times, 100, 0.09);
    add(&times, 1, 0.8);
    assert_true(tu__step_is_slow(&times, 0.95, &usual));
    assert_true(usual == 0.09);
}

static void less_than_ten_times_or_50_ms_is_no_news(void **state) {
    (void)state;
    tu__step_times times = {0};
    add(&times, 100, 0.0001);
    add(&times, 10, 0.049); /* 490 times, but who would notice */
    times = (tu__step_times){0};
    add(&times, 100, 1);
    add(&times, 10, 9.9);
}

static void the_message_says_which_step_and_how_long(void **state) {
    (void)state;
    char text[256];
    tu__slow_step_message(text, sizeof text, 812, 0.0951, 0.0024);
    assert_non_null(strstr(text, "step 812 took 95 ms instead of the usual 2.4 ms: another program may be"));
    tu__slow_step_message(text, sizeof text, 7, 125.4, 9.87);
    assert_non_null(strstr(text, "step 7 took 125 s instead of the usual 9.9 s: "));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_of_many_times_its_usual_is_told),
        cmocka_unit_test(it_is_told_once),
        cmocka_unit_test(a_run_that_is_slow_from_its_beginning_is_not),
        cmocka_unit_test(the_first_steps_may_take_as_long_as_they_like),
        cmocka_unit_test(one_slow_step_does_not_change_what_is_usual),
        cmocka_unit_test(a_change_that_lasts_becomes_the_usual),
        cmocka_unit_test(less_than_ten_times_or_50_ms_is_no_news),
        cmocka_unit_test(the_message_says_which_step_and_how_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
