/* Tests which process of a run is called slow. */
#include "test.h"

#include <stdlib.h>

#include "train/rank_waits.h"

enum { RANKS = 4, STEP_MS = 20 };

static tu__rank_waits *w;

static int begin(void **state) {
    (void)state;
    w = calloc(1, sizeof *w);
    return w ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    free(w);
    return 0;
}

/* Adds a sample in which one rank waits 1 ms, and the others `ms`. */
static void add(uint32_t slow, double ms) {
    double seconds[RANKS];
    for (uint32_t r = 0; r < RANKS; r++) seconds[r] = 1e-3 * (r == slow ? 1 : ms);
    tu__rank_waits_add(w, RANKS, seconds, 1);
}

static int64_t slowest(void) {
    tu__rank_waits_update(w);
    return tu__rank_waits_slowest(w, STEP_MS);
}

static void the_rank_that_waits_least_is_slow(void **state) {
    (void)state;
    for (int i = 0; i < 101; i++) add(i % 10 ? 2 : 1, 9);
    assert_int_equal(slowest(), 2);
    assert_int_equal(w->least[2], 90);
    assert_int_equal(w->steps, 100);
}

static void a_short_run_does_not_tell(void **state) {
    (void)state;
    for (int i = 0; i < TU__MIN_WAIT_SAMPLES; i++) add(2, 9); /* the first one is left out */
    assert_int_equal(slowest(), -1);
    add(2, 9);
    assert_int_equal(slowest(), 2);
}

static void the_first_sample_is_left_out(void **state) {
    (void)state;
    add(0, 5000);
    assert_int_equal(w->steps, 0);
    for (int i = 0; i < 60; i++) add(0, 3);
    tu__rank_waits_update(w);
    assert_float_equal(w->worst_ms[1], 3, 1e-6);
    assert_float_equal(w->median_ms[1], 3, 1e-6);
    assert_float_equal(w->median_ms[0], 1, 1e-6);
}

static void equal_ranks_are_not_slow(void **state) {
    (void)state;
    for (int i = 0; i < 200; i++) add((uint32_t)i % RANKS, 9);
    assert_int_equal(slowest(), -1);
}

/* One rank has the lowest median, but waits least in a minority of the steps. */
static void a_difference_without_most_steps_is_not_enough(void **state) {
    (void)state;
    for (int i = 0; i < 201; i++) add(i % 5 < 2 ? 0 : 1 + (uint32_t)i % 3, i % 5 < 2 ? 9 : 8);
    assert_int_equal(slowest(), -1);
}

static void small_differences_do_not_matter(void **state) {
    (void)state;
    for (int i = 0; i < 101; i++) add(3, 2.9); /* 1.9 ms longer than rank 3 */
    assert_int_equal(slowest(), -1);
    for (int i = 0; i < 101; i++) add(3, 4);
    assert_int_equal(slowest(), 3);
    assert_int_equal(tu__rank_waits_slowest(w, 100), -1); /* less than 5% of a step */
}

static void the_steps_of_a_call_count(void **state) {
    (void)state;
    for (int i = 0; i < 61; i++) tu__rank_waits_add(w, 2, (double[]){1e-3, 9e-3}, 10);
    assert_int_equal(slowest(), 0);
    assert_int_equal(w->least[0], 600);
    assert_int_equal(w->steps, 600);
}

static void the_longest_wait_names_the_rank_that_caused_it(void **state) {
    (void)state;
    for (int i = 0; i < 20; i++) add(2, 5);
    add(1, 700);
    for (int i = 0; i < 20; i++) add(2, 5);
    assert_int_equal(w->longest_for, 1);
    assert_float_equal(w->longest_ms, 700, 1e-6);
    assert_float_equal(w->worst_ms[1], 5, 1e-6);
    tu__rank_waits_add(w, RANKS, (double[]){0.9, 0.8, 0.7, 0.6}, 1); /* all waited for the network */
    assert_int_equal(w->longest_for, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_rank_that_waits_least_is_slow, begin, end),
        cmocka_unit_test_setup_teardown(a_short_run_does_not_tell, begin, end),
        cmocka_unit_test_setup_teardown(the_first_sample_is_left_out, begin, end),
        cmocka_unit_test_setup_teardown(equal_ranks_are_not_slow, begin, end),
        cmocka_unit_test_setup_teardown(a_difference_without_most_steps_is_not_enough, begin, end),
        cmocka_unit_test_setup_teardown(small_differences_do_not_matter, begin, end),
        cmocka_unit_test_setup_teardown(the_steps_of_a_call_count, begin, end),
        cmocka_unit_test_setup_teardown(the_longest_wait_names_the_rank_that_caused_it, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
