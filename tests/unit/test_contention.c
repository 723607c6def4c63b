/* Statements about giving way to other programs: what counts as one, and that waiting threads are told for a
 * while. */
#include <dirent.h>
#include <unistd.h>

#include "base/contention.h"
#include "base/parallel.h"
#include "test.h"

static void a_thread_that_waits_a_quarter_of_its_time_gives_way(void **state) {
    (void)state;
    assert_true(tu__core_is_shared(0.025, 0.05, 1, false));
    assert_true(tu__core_is_shared(0.013, 0.05, 1, false));
    assert_false(tu__core_is_shared(0.012, 0.05, 1, false));
    assert_false(tu__core_is_shared(0, 0.05, 1, false));
    assert_false(tu__core_is_shared(0, 0, 1, false));
}

static void it_goes_on_doing_so_while_it_waits_a_tenth(void **state) {
    (void)state;
    assert_true(tu__core_is_shared(0.006, 0.05, 1, true));
    assert_false(tu__core_is_shared(0.004, 0.05, 1, true));
    assert_false(tu__core_is_shared(0, 0, 1, true));
}

/* Waking up takes a moment in which a thread waits, too. */
static void a_thread_whose_core_was_never_taken_shares_it_with_nobody(void **state) {
    (void)state;
    assert_false(tu__core_is_shared(0.04, 0.05, 0, false));
    assert_false(tu__core_is_shared(0.04, 0.05, 0, true));
}

static void one_thread_of_many_is_not_waited_for_otherwise(void **state) {
    (void)state;
    assert_false(tu__team_should_yield(0, 2));
    assert_true(tu__team_should_yield(1, 2));
    assert_true(tu__team_should_yield(1, 8));
    assert_false(tu__team_should_yield(1, 16));
    assert_true(tu__team_should_yield(2, 16));
}

static void the_schedulers_statistics_are_read(void **state) {
    (void)state;
    double seconds = -1;
    assert_true(tu__parse_schedstat("1200000000 2500000000 31\n", &seconds));
    assert_true(seconds == 2.5);
    assert_true(tu__parse_schedstat("0 0 0\n", &seconds));
    assert_true(seconds == 0);
    assert_false(tu__parse_schedstat("", &seconds));
    assert_false(tu__parse_schedstat("12 soon\n", &seconds));
    assert_false(tu__parse_schedstat("12 13\n", &seconds));
}

static void a_thread_of_one_has_nobody_to_wait_for(void **state) {
    (void)state;
    for (int now = 1; now < 10; now++) tu__contention_look(now);
    assert_false(tu__is_yielding());
}

static int threads_of_process(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count - 2; /* "." and ".." */
}

/* libgomp spins shortly while there are more of its threads than cores. Returns at the time limit of tests or
 * before. */
static void giving_way_means_more_threads_than_cores_and_ends_by_itself(void **state) {
    (void)state;
    if (!tu__yield_cores(1)) skip(); /* another OpenMP, or none */
    bool seen = false;
    while (tu__is_yielding() && !seen) seen = threads_of_process() > sysconf(_SC_NPROCESSORS_ONLN);
    assert_true(seen);
    while (tu__is_yielding()) usleep(1000);
    while (threads_of_process() > 1) usleep(1000);
    assert_true(tu__yield_cores(1)); /* and again */
}

static void sum_range(void *context, int64_t first, int64_t last, int worker) {
    int64_t *sums = context;
    for (int64_t i = first; i < last; i++) sums[worker] += i;
}

static void loops_are_cut_the_same_while_giving_way(void **state) {
    (void)state;
    int64_t before[3] = {0}, while_giving_way[3] = {0};
    tu__parallel_set_width(3);
    tu__parallel_for(1000, 1, sum_range, before);
    tu__yield_cores(3);
    for (int i = 0; i < 100; i++) tu__parallel_for(1000, 1, sum_range, while_giving_way);
    tu__parallel_set_width(1);
    for (int i = 0; i < 3; i++) assert_int_equal(while_giving_way[i], 100 * before[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_waits_a_quarter_of_its_time_gives_way),
        cmocka_unit_test(it_goes_on_doing_so_while_it_waits_a_tenth),
        cmocka_unit_test(a_thread_whose_core_was_never_taken_shares_it_with_nobody),
        cmocka_unit_test(one_thread_of_many_is_not_waited_for_otherwise),
        cmocka_unit_test(the_schedulers_statistics_are_read),
        cmocka_unit_test(a_thread_of_one_has_nobody_to_wait_for),
        cmocka_unit_test(giving_way_means_more_threads_than_cores_and_ends_by_itself),
        cmocka_unit_test(loops_are_cut_the_same_while_giving_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
