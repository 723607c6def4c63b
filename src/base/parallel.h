/* Parallel loops: the one place where work is dealt out to the cores of a device.
 *
 * The width belongs to the calling thread: a device sets it on the host thread while it launches kernels. Work is
 * cut into contiguous ranges by count and width alone, so the same width always gives the same ranges, and what a
 * kernel adds up per range comes out in the same bits. Release builds run on OpenMP's threads, which oneDNN shares;
 * builds for the thread sanitizer on plain threads, which it can see through.
 *
 * Between `begin` and `end` the thread and its loops take numbers too small to be normal for zeros (flushing.h); oneDNN's
 * loops do so on this thread alone. */
#ifndef TU__BASE_PARALLEL_H
#define TU__BASE_PARALLEL_H

#include <stdint.h>

/* Threads that loops started by this host thread may use; at least 1. */
void tu__parallel_set_width(int width);
int tu__parallel_width(void);

/* The same for a while, on a thread that may be the user's, with OpenMP settings of its own: `end`, given what `begin`
 * returned, leaves the thread as it was. */
typedef struct tu__parallel_setting {
    int width, threads, dynamic; /* ours, and OpenMP's two */
    unsigned flushing;
} tu__parallel_setting;
tu__parallel_setting tu__parallel_begin(int width);
void tu__parallel_end(tu__parallel_setting before);

/* Calls body(context, first, last, worker) with ranges that cover [0, count). `grain`: no range is smaller than
 * this, but the last; workers are numbered from 0. Returns when all are done. Bodies must not start loops. */
typedef void (*tu__parallel_body)(void *context, int64_t first, int64_t last, int worker);
void tu__parallel_for(int64_t count, int64_t grain, tu__parallel_body body, void *context);

/* How many ranges tu__parallel_for will make: workers are numbered below it. */
int tu__parallel_ranges(int64_t count, int64_t grain);

/* The same, but in pieces: who is done with its own range takes pieces of others', so that a core that somebody else
 * is using too does not hold everybody up. Only for work whose result does not depend on how it is cut or who does it:
 * nothing may be added up by range or worker. */
void tu__parallel_deal(int64_t count, int64_t grain, tu__parallel_body body, void *context);

#endif
