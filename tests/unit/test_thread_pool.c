/* Thread pools: every range is computed once, whoever computes it; threads sleep and wake up; pools share the cores; a
 * forked child can use a pool and free it; a thread that cannot be started is an error. */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "base/thread_pool.h"

enum { MAX_RANGES = 8, REGIONS = 20000 };

/* Each range adds to its own number; the caller checks them after each region. Not atomic: the pool orders the accesses. */
typedef struct tally {
    int times[MAX_RANGES];
    pthread_t by[MAX_RANGES];
} tally;

static void count_range(void *context, int range) {
    tally *t = context;
    t->times[range]++;
    t->by[range] = pthread_self();
}

static tu__thread_pool *new_pool(int threads) {
    tu__thread_pool *pool = NULL;
    if (tu__thread_pool_new(threads, &pool) != TU_OK) fail_msg("%s", tu_message());
    return pool;
}

/* Runs regions with changing numbers of ranges. Returns how many ranges other threads computed. */
static int run_regions(tu__thread_pool *pool, int regions, useconds_t pause_every_100) {
    tally t = {.times = {0}};
    int threads = tu__thread_pool_threads(pool), by_others = 0;
    for (int i = 0; i < regions; i++) {
        int ranges = 1 + i % threads;
        memset(t.times, 0, sizeof t.times);
        tu__thread_pool_run(pool, ranges, count_range, &t);
        for (int range = 0; range < MAX_RANGES; range++) assert_int_equal(t.times[range], range < ranges);
        for (int range = 0; range < ranges; range++) by_others += !pthread_equal(t.by[range], pthread_self());
        if (pause_every_100 && i % 100 == 0) usleep(pause_every_100);
    }
    return by_others;
}

static void every_range_is_computed_once(void **state) {
    (void)state;
    for (int cores = 1; cores <= MAX_RANGES; cores++)
        for (int threads = 1; threads <= MAX_RANGES; threads += 3) {
            tu__thread_pool_set_cores(cores);
            tu__thread_pool *pool = new_pool(threads);
            tu__thread_pool_begin(pool);
            run_regions(pool, 500, 0);
            tu__thread_pool_end(pool);
            tu__thread_pool_free(pool);
        }
    tu__thread_pool_set_cores(0);
}

/* The first range waits for the second, so another thread must compute it. */
static void wait_for_the_other(void *context, int range) {
    atomic_int *arrived = context;
    atomic_fetch_add(arrived, 1);
    while (range == 0 && atomic_load(arrived) < 2) usleep(10);
}

static void sleeping_threads_wake_up(void **state) {
    (void)state;
    tu__thread_pool_set_cores(MAX_RANGES);
    tu__thread_pool *pool = new_pool(2);
    for (int i = 0; i < 50; i++) {
        atomic_int arrived = 0;
        usleep(i % 2 ? 2000 : 50); /* more and less than threads spin */
        tu__thread_pool_begin(pool);
        tu__thread_pool_run(pool, 2, wait_for_the_other, &arrived);
        tu__thread_pool_end(pool);
        assert_int_equal(atomic_load(&arrived), 2);
    }
    tu__thread_pool_free(pool);
    tu__thread_pool_set_cores(0);
}

/* The thread of the second range is late, so the caller sleeps until it is done. */
static void be_late(void *context, int range) {
    atomic_int *arrived = context;
    atomic_fetch_add(arrived, 1);
    if (range == 0)
        while (atomic_load(arrived) < 2) usleep(10);
    else
        usleep(3000);
    atomic_fetch_add(arrived, 1);
}

static void the_caller_waits_for_late_threads(void **state) {
    (void)state;
    tu__thread_pool_set_cores(MAX_RANGES);
    tu__thread_pool *pool = new_pool(2);
    for (int i = 0; i < 20; i++) {
        atomic_int arrived = 0;
        tu__thread_pool_begin(pool);
        tu__thread_pool_run(pool, 2, be_late, &arrived);
        tu__thread_pool_end(pool);
        assert_int_equal(atomic_load(&arrived), 4);
    }
    tu__thread_pool_free(pool);
    tu__thread_pool_set_cores(0);
}

static void a_run_without_a_free_core_uses_one_thread(void **state) {
    (void)state;
    tu__thread_pool_set_cores(2);
    tu__thread_pool *first = new_pool(2), *second = new_pool(2);
    tu__thread_pool_begin(first);
    tu__thread_pool_begin(second);
    assert_int_equal(run_regions(second, 1000, 0), 0);
    tu__thread_pool_end(second);
    tu__thread_pool_end(first);
    tu__thread_pool_begin(second); /* now both cores are free */
    atomic_int arrived = 0;
    tu__thread_pool_run(second, 2, wait_for_the_other, &arrived);
    tu__thread_pool_end(second);
    tu__thread_pool_free(first);
    tu__thread_pool_free(second);
    tu__thread_pool_set_cores(0);
}

static void *run_alone(void *argument) {
    tu__thread_pool *pool = argument;
    for (int i = 0; i < 20; i++) {
        tu__thread_pool_begin(pool);
        run_regions(pool, REGIONS / 100, 300);
        tu__thread_pool_end(pool);
    }
    return NULL;
}

static void pools_run_at_once(void **state) {
    (void)state;
    pthread_t threads[6];
    tu__thread_pool *pools[6];
    for (int i = 0; i < 6; i++) {
        pools[i] = new_pool(1 + i % 4);
        pthread_create(&threads[i], NULL, run_alone, pools[i]);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], NULL);
        tu__thread_pool_free(pools[i]);
    }
}

static void regions_follow_each_other_quickly(void **state) {
    (void)state;
    tu__thread_pool_set_cores(3);
    tu__thread_pool *pool = new_pool(3);
    tu__thread_pool_begin(pool);
    run_regions(pool, REGIONS, 0);
    tu__thread_pool_end(pool);
    tu__thread_pool_free(pool);
    tu__thread_pool_set_cores(0);
}

static void a_forked_child_can_use_and_free_a_pool(void **state) {
    (void)state;
    tu__thread_pool_set_cores(MAX_RANGES);
    tu__thread_pool *pool = new_pool(4);
    tu__thread_pool_begin(pool);
    run_regions(pool, 100, 0);
    tu__thread_pool_end(pool);
    pid_t child = fork();
    if (child == 0) {
        tu__thread_pool_begin(pool);
        tally t = {.times = {0}};
        tu__thread_pool_run(pool, 4, count_range, &t);
        tu__thread_pool_end(pool);
        tu__thread_pool_free(pool);
        _exit(t.times[0] + t.times[1] + t.times[2] + t.times[3] == 4 ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    tu__thread_pool_begin(pool);
    run_regions(pool, 100, 0);
    tu__thread_pool_end(pool);
    tu__thread_pool_free(pool);
    tu__thread_pool_set_cores(0);
}

/* In a child, because the limit of address space stays. */
static void a_thread_that_cannot_start_is_an_error(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they reserve more address space than the limit */
#endif
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {200 << 20, 200 << 20}; /* 8 MiB of stack for each thread */
        tu__thread_pool *pool = NULL;
        setrlimit(RLIMIT_AS, &limit);
        int64_t live = tu__alloc_live();
        tu_status status = tu__thread_pool_new(100, &pool);
        bool is_reported = status == TU_NO_MEMORY && strstr(tu_message(), "of 100 for parallel loops");
        _exit(is_reported && !pool && tu__alloc_live() == live ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- Through parallel.h ---- */

static void add_items(void *context, int64_t first, int64_t last, int worker) {
    int *items = context;
    (void)worker;
    for (int64_t i = first; i < last; i++) items[i]++;
}

static void loops_run_in_a_pool(void **state) {
    (void)state;
    enum { ITEMS = 1000 };
    static int items[ITEMS];
    tu__thread_pool_set_cores(4);
    tu__thread_pool *pool = new_pool(4);
    tu__parallel_setting before = tu__parallel_begin(4);
    tu__thread_pool_begin(pool);
    tu__parallel_use_pool(pool);
    assert_true(tu__parallel_uses_pool());
    uint64_t allocations = tu__alloc_count();
    for (int i = 0; i < 100; i++) {
        tu__parallel_for(ITEMS, 1, add_items, items);
        tu__parallel_for_stealing(ITEMS, 7, add_items, items);
    }
    assert_int_equal(tu__alloc_count(), allocations);
    tu__parallel_use_pool(NULL);
    tu__thread_pool_end(pool);
    tu__parallel_end(before);
    assert_false(tu__parallel_uses_pool());
    for (int i = 0; i < ITEMS; i++) assert_int_equal(items[i], 200);
    tu__thread_pool_free(pool);
    tu__thread_pool_set_cores(0);
}

static void wrong_numbers_of_threads_are_refused(void **state) {
    (void)state;
    tu__thread_pool *pool = NULL;
    assert_int_equal(tu__thread_pool_new(0, &pool), TU_INVALID);
    assert_int_equal(tu__thread_pool_new(TU__THREAD_POOL_MAX + 1, &pool), TU_INVALID);
    assert_null(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_range_is_computed_once),
        cmocka_unit_test(sleeping_threads_wake_up),
        cmocka_unit_test(the_caller_waits_for_late_threads),
        cmocka_unit_test(a_run_without_a_free_core_uses_one_thread),
        cmocka_unit_test(pools_run_at_once),
        cmocka_unit_test(regions_follow_each_other_quickly),
        cmocka_unit_test(a_forked_child_can_use_and_free_a_pool),
        cmocka_unit_test(a_thread_that_cannot_start_is_an_error),
        cmocka_unit_test(loops_run_in_a_pool),
        cmocka_unit_test(wrong_numbers_of_threads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
