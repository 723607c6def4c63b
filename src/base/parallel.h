/* Parallel loops: distribute work over the cores of a device.
 *
 * The number of threads is a setting of the calling thread: a device sets it on its compute thread. Work is split
 * into contiguous ranges that depend only on the count and the number of threads. So the same number of threads gives
 * the same ranges, and per-range sums are bit-identical. Models run on the threads of their session's pool
 * (thread_pool.h). Other loops use OpenMP's threads, which oneDNN shares; builds for the thread sanitizer use pthreads,
 * which the sanitizer can follow.
 *
 * Between tu__parallel_begin and tu__parallel_end the calling thread and its loops flush subnormal numbers to zero
 * (flushing.h). oneDNN's loops flush only on the calling thread. */
#ifndef TU__BASE_PARALLEL_H
#define TU__BASE_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/shared.h"

/* Threads that loops started by this host thread may use; at least 1. */
void tu__parallel_set_threads(int threads);
int tu__parallel_threads(void);

/* Sets the number of threads temporarily, on a thread that may be the caller's and have OpenMP settings.
 * tu__parallel_begin returns the previous settings; tu__parallel_end restores them. */
typedef struct tu__parallel_setting {
    int thread_count;
    int threads, dynamic; /* omp_get_max_threads, omp_get_dynamic */
    unsigned flushing;
} tu__parallel_setting;
TU__SHARED tu__parallel_setting tu__parallel_begin(int threads);
TU__SHARED void tu__parallel_end(tu__parallel_setting before);

/* Loops of this host thread that need no more threads than the pool has run in it, until the call with NULL. The pool must
 * be in use: tu__thread_pool_begin. */
struct tu__thread_pool;
void tu__parallel_use_pool(struct tu__thread_pool *pool);
bool tu__parallel_uses_pool(void);

/* Calls body(context, first, last, worker) for ranges [first, last) that cover [0, count). No range except the last
 * is smaller than `grain`. Workers are numbered from 0. Returns when all ranges are done. `body` must not start
 * loops. */
typedef void (*tu__parallel_body)(void *context, int64_t first, int64_t last, int worker);
void tu__parallel_for(int64_t count, int64_t grain, tu__parallel_body body, void *context);

/* Returns the number of ranges tu__parallel_for will use; worker numbers are less than it. */
int tu__parallel_ranges(int64_t count, int64_t grain);

/* Like tu__parallel_for, with work stealing: ranges are processed in chunks, and a worker that has finished its range
 * continues with chunks of other ranges. So one slow core (used by another process) does not delay the loop. Only for
 * work whose result depends neither on the chunks nor on the worker: `body` must not sum per range or per worker. */
TU__SHARED void tu__parallel_for_stealing(int64_t count, int64_t grain, tu__parallel_body body,
                                          void *context);

#endif
