/* Parallel loops process every item once, with worker indices below tu__parallel_ranges. */
#include <float.h>
#include <stdatomic.h>
#include <string.h>

#include "base/flushing.h"
#include "base/parallel.h"
#include "test.h"

enum { MAX_COUNT = 1000 };

typedef struct tally {
    atomic_int times[MAX_COUNT];
    atomic_int highest_worker;
} tally;

static void count_range(void *context, int64_t first, int64_t last, int worker) {
    tally *t = context;
    for (int64_t i = first; i < last; i++) atomic_fetch_add(&t->times[i], 1);
    int highest = atomic_load(&t->highest_worker);
    while (worker > highest && !atomic_compare_exchange_weak(&t->highest_worker, &highest, worker)) continue;
}

typedef void (*loop)(int64_t count, int64_t grain, tu__parallel_body body, void *context);

static void check_loop(loop run) {
    static const int64_t counts[] = {0, 1, 2, 7, 64, 999, MAX_COUNT}, grains[] = {0, 1, 3, 100};
    static tally t;
    for (int width = 1; width <= 5; width++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (size_t g = 0; g < sizeof grains / sizeof *grains; g++) {
                memset(&t, 0, sizeof t);
                tu__parallel_set_threads(width);
                int ranges = tu__parallel_ranges(counts[c], grains[g]);
                run(counts[c], grains[g], count_range, &t);
                tu__parallel_set_threads(1);
                for (int64_t i = 0; i < MAX_COUNT; i++)
                    assert_int_equal(atomic_load(&t.times[i]), i < counts[c] ? 1 : 0);
                assert_true(ranges <= width);
                assert_true(atomic_load(&t.highest_worker) < (ranges > 0 ? ranges : 1));
            }
}

static void a_loop_processes_every_item_once(void **state) {
    (void)state;
    check_loop(tu__parallel_for);
}

static void a_work_stealing_loop_processes_every_item_once(void **state) {
    (void)state;
    check_loop(tu__parallel_for_stealing);
}

/* The worker of the first chunk waits until all other items are done, so another worker must steal the remaining
 * chunks of its range. */
typedef struct slow_loop {
    atomic_int done;
    int64_t count;
} slow_loop;

static void wait_in_first_chunk(void *context, int64_t first, int64_t last, int worker) {
    slow_loop *h = context;
    (void)worker;
    if (first == 0)
        while (atomic_load(&h->done) < h->count - last) continue;
    atomic_fetch_add(&h->done, (int)(last - first));
}

static void the_range_of_a_slow_worker_is_stolen(void **state) {
    (void)state;
    slow_loop h = {.count = 640};
    tu__parallel_set_threads(2);
    tu__parallel_for_stealing(h.count, 1, wait_in_first_chunk, &h);
    tu__parallel_set_threads(1);
    assert_int_equal(atomic_load(&h.done), h.count);
}

/* OpenMP functions, if the loops use OpenMP. With 0 active levels every team has one thread. */
__attribute__((weak)) extern void omp_set_max_active_levels(int levels);
__attribute__((weak)) extern int omp_get_max_active_levels(void);

static void a_team_smaller_than_requested_does_all_the_work(void **state) {
    (void)state;
    if (!omp_set_max_active_levels || !omp_get_max_active_levels) skip();
    int levels = omp_get_max_active_levels();
    omp_set_max_active_levels(0);
    check_loop(tu__parallel_for);
    check_loop(tu__parallel_for_stealing);
    omp_set_max_active_levels(levels);
}

/* Returns half of FLT_MIN: 0 if the calling thread flushes subnormal numbers. */
static float half_of_flt_min(void) {
    volatile float min_normal = FLT_MIN;
    return min_normal * 0.5f;
}

static void halve(void *context, int64_t first, int64_t last, int worker) {
    float *results = context;
    (void)worker;
    for (int64_t i = first; i < last; i++) results[i] = half_of_flt_min();
}

static void subnormal_numbers_are_flushed_between_begin_and_end(void **state) {
    (void)state;
#ifndef __SSE2__
    skip();
#endif
    enum { COUNT = 64 };
    float within[COUNT], outside[COUNT];
    for (int width = 3; width < 6;
         width += 2) { /* threads are created both inside and outside of begin and end */
        tu__parallel_setting before = tu__parallel_begin(width);
        tu__parallel_end(tu__parallel_begin(width));
        tu__parallel_for(COUNT, 1, halve, within);
        assert_true(half_of_flt_min() == 0);
        tu__parallel_end(before);
        assert_true(half_of_flt_min() > 0);
        tu__parallel_set_threads(width + 1);
        tu__parallel_for(COUNT, 1, halve, outside);
        tu__parallel_set_threads(1);
        for (int i = 0; i < COUNT; i++) assert_true(within[i] == 0 && outside[i] > 0);
    }
}

#ifdef __SSE2__
static void a_partial_flushing_mode_is_restored(void **state) {
    (void)state;
    for (unsigned bit = 0x40; bit <= 0x8000; bit <<= 9) {
        tu__set_flushing(bit);
        tu__parallel_end(tu__parallel_begin(2));
        assert_int_equal(tu__flushing(), bit);
    }
    tu__set_flushing(0);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_processes_every_item_once),
        cmocka_unit_test(a_work_stealing_loop_processes_every_item_once),
        cmocka_unit_test(the_range_of_a_slow_worker_is_stolen),
        cmocka_unit_test(a_team_smaller_than_requested_does_all_the_work),
        cmocka_unit_test(subnormal_numbers_are_flushed_between_begin_and_end),
#ifdef __SSE2__
        cmocka_unit_test(a_partial_flushing_mode_is_restored),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
