/* Detects that other processes use the cores of our threads, and then makes waiting threads sleep instead of spin.
 *
 * The threads of a parallel loop wait for each other at its end. libgomp's threads, which run oneDNN's loops and
 * ours, spin for 3 to 14 ms before they sleep. Spinning is fastest if each thread has a core to itself, because the
 * next loop follows within microseconds. It is slowest if another process uses one of the cores: the last thread has
 * no core, and the spinning threads keep theirs busy, so the scheduler has no idle core to move it to.
 *
 * Every 50 ms the threads therefore read how long the scheduler made them wait for a core and how often it preempted
 * them. If at least an eighth of the threads waited a quarter of the time in three successive checks, the process
 * waits passively (OpenMP's term): waiting threads sleep after 100 spins. This ends after a quarter of a second in
 * which fewer threads waited a tenth of the time. Sleeping costs more than spinning if cores are free. Since waking
 * up also counts as waiting, only preempted threads are counted. Results do not depend on any of this. */
#ifndef TU__BASE_CONTENTION_H
#define TU__BASE_CONTENTION_H

#include <stdbool.h>

/* True if another process used the core of a thread that waited `waited` of `elapsed` seconds for a core and was
 * preempted `preempted` times. `passive`: the process already waits passively, which lowers the threshold. */
bool tu__core_is_shared(double waited, double elapsed, long preempted, bool passive);
/* True if enough threads of the team share their cores. For fewer, waking all threads would cost more than it
 * gains. */
bool tu__team_should_wait_passively(int sharing, int threads);

/* Parses a line of /proc/thread-self/schedstat (ns run, ns waited, times run) and sets `*seconds` to the time that
 * the thread has waited for a core. Returns false if the line has another form. */
bool tu__parse_schedstat(const char *schedstat, double *seconds);

/* Checks for contention if the last check is 50 ms ago, and starts passive waiting if needed. Threads that run
 * parallel loops call it regularly; `now` is tu__now(). Does nothing if the user sets GOMP_SPINCOUNT or
 * OMP_WAIT_POLICY. */
void tu__contention_check(double now);

/* Makes waiting threads sleep instead of spin for the next quarter of a second. `threads`: a lower bound of the number
 * of OpenMP threads. Returns false with an OpenMP other than libgomp, or if no threads can be created. */
bool tu__wait_passively(int threads);
/* True while waiting threads sleep instead of spin. */
bool tu__is_waiting_passively(void);

#endif
