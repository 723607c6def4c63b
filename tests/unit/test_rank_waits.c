/* Which rank of a run is called slow. */
#include "train/rank_waits.h"

#include <stdlib.h>

#include "test.h"

enum { RANKS = 4 };

static tu__rank_waits *new_waits(void) {
    tu__rank_waits *waits = calloc(1, sizeof *waits);
    assert_non_null(waits);
    return waits;
}

/* Adds steps in which one rank waits for nobody, and the others `ms` for it. */
static void add_steps(tu__rank_waits *w, int count, uint32_t slow, double ms) {
    for (int i = 0; i < count; i++) {
        double seconds[RANKS];
        for (uint32_t r = 0; r < RANKS; r++) seconds[r] = r == slow ? 0 : 1e-3 * ms;
        tu__rank_waits_add(w, RANKS, seconds);
    }
}

static void a_rank_that_is_slow_in_most_steps_is_named(void **state) {
    (void)state;
    tu__rank_waits *w = new_waits();
    add_steps(w, 100, 2, 30);
    add_steps(w, 40, 1, 50);
    tu__rank_waits_update(w);
    assert_int_equal(tu__rank_waits_slowest(w, 100), 2);
    assert_int_equal(tu__rank_waits_slowest(w, 1000), -1); /* less than 5% of a step */
    free(w);
}

static void waits_that_all_ranks_have_name_none(void **state) {
    (void)state;
    tu__rank_waits *w = new_waits();
    for (int i = 0; i < 50; i++) tu__rank_waits_add(w, RANKS, (double[]){0.030, 0.031, 0.029, 0.030});
    tu__rank_waits_update(w);
    assert_int_equal(tu__rank_waits_slowest(w, 40), -1);
    assert_int_equal(w->worst_rank, -1);
    free(w);
}

static void the_latest_steps_count(void **state) {
    (void)state;
    tu__rank_waits *w = new_waits();
    add_steps(w, 1000, 3, 30);
    add_steps(w, TU__WAIT_SAMPLES, 0, 20);
    tu__rank_waits_update(w);
    assert_int_equal(tu__rank_waits_slowest(w, 100), 0);
    assert_float_equal(w->median_ms[3], 20, 1e-3);
    free(w);
}

static void the_worst_wait_names_the_rank_that_caused_it(void **state) {
    (void)state;
    tu__rank_waits *w = new_waits();
    add_steps(w, 1, 3, 9000); /* the first step also compiles */
    add_steps(w, 20, 2, 5);
    add_steps(w, 1, 1, 700);
    add_steps(w, 20, 2, 5);
    assert_int_equal(w->worst_rank, 1);
    assert_float_equal(tu__rank_waits_worst(w), 700, 1e-6);
    assert_float_equal(w->worst_ms[1], 5, 1e-6);
    free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_is_slow_in_most_steps_is_named),
        cmocka_unit_test(waits_that_all_ranks_have_name_none),
        cmocka_unit_test(the_latest_steps_count),
        cmocka_unit_test(the_worst_wait_names_the_rank_that_caused_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
