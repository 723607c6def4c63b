/* Measures the overhead of a parallel loop: in a thread pool, and in OpenMP's threads, alternating.
 *
 *     bench_regions [THREADS [GAP [WORK]]]
 *
 * GAP: microseconds of work between two loops; WORK: microseconds of work of each thread within a loop. Prints medians of
 * rounds, in microseconds per loop, without the work. */
#include "../measure.h"
#include "base/parallel.h"
#include "base/thread_pool.h"

enum { ROUNDS = 31, LOOPS = 2000 };

static void work_for(double seconds) {
    for (double end = seconds_now() + seconds; seconds > 0 && seconds_now() < end;) continue;
}

static void work(void *context, int64_t first, int64_t last, int worker) {
    (void)first, (void)last, (void)worker;
    work_for(*(double *)context);
}

/* Returns microseconds per loop. */
static double measure(int threads, double gap, double within, tu__thread_pool *pool) {
    tu__parallel_set_threads(threads);
    tu__parallel_use_pool(pool);
    if (pool) tu__thread_pool_begin(pool);
    double spent = 0;
    for (int i = 0; i < LOOPS; i++) {
        work_for(gap);
        double began = seconds_now();
        tu__parallel_for(threads, 1, work, &within);
        spent += seconds_now() - began;
    }
    if (pool) tu__thread_pool_end(pool);
    tu__parallel_use_pool(NULL);
    return (spent / LOOPS - within) * 1e6;
}

int main(int count, char **arguments) {
    int threads = count > 1 ? atoi(arguments[1]) : 2;
    double gap = count > 2 ? atof(arguments[2]) * 1e-6 : 0,
           within = count > 3 ? atof(arguments[3]) * 1e-6 : 0, clock, in_pool[ROUNDS], in_openmp[ROUNDS];
    tu__thread_pool *pool;
    must(tu__thread_pool_new(threads, &pool));
    for (int round = 0; round < ROUNDS; round++) {
        in_pool[round] = measure(threads, gap, within, pool);
        work_for(0.02); /* until the threads of the other kind sleep */
        in_openmp[round] = measure(threads, gap, within, NULL);
        work_for(0.02);
    }
    clock = measure(1, gap, 0, NULL);
    printf("%d threads: pool %.2f us, OpenMP %.2f us; of these, reading the clock %.2f us\n", threads,
           median(in_pool, ROUNDS), median(in_openmp, ROUNDS), clock);
    tu__thread_pool_free(pool);
    return 0;
}
