/* Contention: other programs that use the cores of our threads.
 *
 * The threads of a parallel loop wait for each other at its end. libgomp's threads, which oneDNN's loops and ours run on,
 * spin for 3 to 14 ms before they sleep. That is the fastest way to wait while each thread has a core of its own: the next
 * loop follows within microseconds. When another program takes a core it is the slowest: the thread that the others wait for
 * has no core, and those who wait keep theirs busy with nothing, so the scheduler has no idle core to move it to.
 *
 * So the threads look, every 50 ms, at how long the scheduler let them wait for a core, and whether it took theirs away. Where
 * an eighth of them waited a quarter of the time in three looks in a row, the process gives way: threads sleep after 100 spins.
 * It does so until a quarter of a second has passed in which too few waited a tenth of the time. Sleeping and waking costs more
 * than spinning where cores are free, and a thread that wakes waits, too, for a moment: hence the looks at whose core was taken.
 * Results do not depend on any of this. */
#ifndef TU__BASE_CONTENTION_H
#define TU__BASE_CONTENTION_H

#include <stdbool.h>

/* Whether another program used the core of a thread that waited `waited` seconds for one, of `elapsed`, and had to leave its
 * core `preempted` times; `giving_way`: it gives way already. */
bool tu__core_is_shared(double waited, double elapsed, long preempted, bool giving_way);
/* Whether a team gives way, `sharing` of whose threads share their cores. One of many is not worth what waking all costs. */
bool tu__team_is_crowded(int sharing, int threads);

/* Reads how long a thread has waited for a core so far, in seconds, from a line of Linux's schedstat: nanoseconds run,
 * nanoseconds waited, times run. Whether it is one. */
bool tu__read_waited(const char *schedstat, double *seconds);

/* Called by a thread that runs parallel loops, now and then; `now` is tu__now(). Looks when it is time, and gives way. Does
 * nothing where the user decides how long threads spin, by GOMP_SPINCOUNT or OMP_WAIT_POLICY. */
void tu__contention_look(double now);

/* Makes waiting threads give way for a quarter of a second from now on; `width`: how many OpenMP threads there are at least.
 * Whether it could: not on other OpenMPs than libgomp, nor where no threads can be had. */
bool tu__give_way(int width);
/* Whether they do now. */
bool tu__gives_way(void);

#endif
