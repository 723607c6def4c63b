/* Detection of other processes on our cores, and passive waiting: threads that wait sleep instead of spin
 * (base/contention.h). */
#include <dirent.h>
#include <unistd.h>

#include "base/contention.h"
#include "base/parallel.h"
#include "test.h"

static void a_thread_that_waits_a_quarter_of_its_time_shares_its_core(void **state) {
    (void)state;
    assert_true(tu__core_is_shared(0.025, 0.05, 1, false));
    assert_true(tu__core_is_shared(0.013, 0.05, 1, false));
    assert_false(tu__core_is_shared(0.012, 0.05, 1, false));
    assert_false(tu__core_is_shared(0, 0.05, 1, false));
    assert_false(tu__core_is_shared(0, 0, 1, false));
}

static void during_passive_waiting_the_threshold_is_a_tenth_of_the_time(void **state) {
    (void)state;
    assert_true(tu__core_is_shared(0.006, 0.05, 1, true));
    assert_false(tu__core_is_shared(0.004, 0.05, 1, true));
    assert_false(tu__core_is_shared(0, 0, 1, true));
}

/* Waking up counts as waiting, but not as preemption. */
static void a_thread_that_was_never_preempted_does_not_share_its_core(void **state) {
    (void)state;
    assert_false(tu__core_is_shared(0.04, 0.05, 0, false));
    assert_false(tu__core_is_shared(0.04, 0.05, 0, true));
}

static void a_team_waits_passively_if_an_eighth_of_its_threads_share_cores(void **state) {
    (void)state;
    assert_false(tu__team_should_wait_passively(0, 2));
    assert_true(tu__team_should_wait_passively(1, 2));
    assert_true(tu__team_should_wait_passively(1, 8));
    assert_false(tu__team_should_wait_passively(1, 16));
    assert_true(tu__team_should_wait_passively(2, 16));
}

static void schedstat_lines_are_parsed(void **state) {
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

static void a_single_thread_never_waits_passively(void **state) {
    (void)state;
    for (int seconds = 1; seconds < 10; seconds++) tu__contention_check(seconds);
    assert_false(tu__is_waiting_passively());
}

static int threads_of_process(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count - 2; /* "." and ".." */
}

/* libgomp spins only briefly if a process has more threads than cores. So passive waiting starts idle threads, which
 * end with it. */
static void passive_waiting_starts_idle_threads_and_ends_by_itself(void **state) {
    (void)state;
    if (!tu__wait_passively(1)) skip(); /* another OpenMP, or none */
    bool seen = false;
    while (tu__is_waiting_passively() && !seen) seen = threads_of_process() > sysconf(_SC_NPROCESSORS_ONLN);
    assert_true(seen);
    while (tu__is_waiting_passively()) usleep(1000);
    while (threads_of_process() > 1) usleep(1000);
    assert_true(tu__wait_passively(1)); /* works a second time */
}

static void sum_range(void *context, int64_t first, int64_t last, int worker) {
    int64_t *sums = context;
    for (int64_t i = first; i < last; i++) sums[worker] += i;
}

static void loops_have_the_same_ranges_during_passive_waiting(void **state) {
    (void)state;
    int64_t before[3] = {0}, during[3] = {0};
    tu__parallel_set_threads(3);
    tu__parallel_for(1000, 1, sum_range, before);
    tu__wait_passively(3);
    for (int i = 0; i < 100; i++) tu__parallel_for(1000, 1, sum_range, during);
    tu__parallel_set_threads(1);
    for (int i = 0; i < 3; i++) assert_int_equal(during[i], 100 * before[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_waits_a_quarter_of_its_time_shares_its_core),
        cmocka_unit_test(during_passive_waiting_the_threshold_is_a_tenth_of_the_time),
        cmocka_unit_test(a_thread_that_was_never_preempted_does_not_share_its_core),
        cmocka_unit_test(a_team_waits_passively_if_an_eighth_of_its_threads_share_cores),
        cmocka_unit_test(schedstat_lines_are_parsed),
        cmocka_unit_test(a_single_thread_never_waits_passively),
        cmocka_unit_test(passive_waiting_starts_idle_threads_and_ends_by_itself),
        cmocka_unit_test(loops_have_the_same_ranges_during_passive_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
