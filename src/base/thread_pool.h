/* A thread pool: the threads that share the parallel loops of one session of a frozen graph (decision 44).
 *
 * A region is a loop with a fixed number of ranges. Each thread of the pool has a range; the caller takes its own, and
 * then every range whose thread has not begun it: a thread that sleeps, or has no core, delays nothing. So a region is
 * correct with any number of threads, in a forked child with none, and its result never depends on who computes a range.
 *
 * Threads spin between regions for a tenth of a millisecond, then sleep. tu__thread_pool_begin wakes them up, and decides
 * how many cores the run may use: those that other pools of the process do not use already. With more runs than cores
 * each has one core, and no thread is woken up. */
#ifndef TU__BASE_THREAD_POOL_H
#define TU__BASE_THREAD_POOL_H

#include <tutti/status.h>

typedef struct tu__thread_pool tu__thread_pool;

enum { TU__THREAD_POOL_MAX = 1024 };

/* Starts threads - 1 threads; the caller is one more. Fails with TU_NO_MEMORY if the system refuses one. */
tu_status tu__thread_pool_new(int threads, tu__thread_pool **pool);
/* Ends the threads. Does nothing for NULL. */
void tu__thread_pool_free(tu__thread_pool *pool);
/* Returns the number of threads, with the caller. */
int tu__thread_pool_threads(const tu__thread_pool *pool);

/* Surround the regions of a run. Only one thread may use a pool at a time. */
void tu__thread_pool_begin(tu__thread_pool *pool);
void tu__thread_pool_end(tu__thread_pool *pool);

/* Calls body(context, range) once for each range from 0 to ranges - 1, and returns when all are done. `ranges` is at most
 * the number of threads. */
void tu__thread_pool_run(tu__thread_pool *pool, int ranges, void (*body)(void *context, int range),
                         void *context);

/* For tests: how many cores the pools of the process may use; 0: as many as it has. */
void tu__thread_pool_set_cores(int cores);

#endif
