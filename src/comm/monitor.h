/* The monitor: finds out which rank died, stopped or is late, and tells every other rank.
 *
 * MPI cannot report that a process died or hangs: the other processes wait forever. Therefore every process of a
 * distributed run has a monitor, a thread with a TCP connection outside MPI. Rank 0 is the hub, to which all others
 * connect. Every 200 ms each rank reports to the hub its step and the collective it waits in, and the hub sends the
 * table of all ranks to everybody.
 *
 *     a connection closes without goodbye   that process died: the hub names the first one, 150 ms later
 *     tu__monitor_fail                      that process fails and says why: the others learn its status and message
 *     tu__monitor_timed_out                   a collective makes no progress for the timeout: the hub blames a rank that has
 *                                           not answered for a second, otherwise one that has not reached the collective
 *     the connection to the hub closes, or  every rank concludes by itself that rank 0 is to blame
 *     the hub is silent after a timeout
 *
 * All of this ends in a verdict, one line with rank, host, device and operation of the culprit and the last steps
 * of all others. Every rank gets it at most 2 s after the cause and passes it to `on_failure`; only if the hub itself
 * is stopped, each rank has to wait for a timeout of its own. The verdict is final.
 *
 *     tu__monitor *monitor;
 *     TU_TRY(tu__monitor_start(&options, &monitor));
 *     tu__monitor_enter(monitor, 1207, "all_reduce of 'conv1/weights/grad' and 3 more");
 *     while (!done()) {
 *         if (has_progressed()) tu__monitor_progress(monitor); // and the deadline starts again
 *         if (tu__now() > deadline) tu__monitor_timed_out(monitor); // then on_failure is called soon
 *     }
 *     tu__monitor_leave(monitor);
 *     tu__monitor_set_step(monitor, 42);
 *     tu__monitor_stop(monitor);
 *
 * Files: monitor_start.c creates and connects monitors, monitor.c has the other functions and the thread's loop,
 * monitor_hub.c and monitor_member.c its work on rank 0 and on the others, monitor_verdict.c decides who is to
 * blame and words it, monitor_link.c, monitor_address.c and monitor_message.c are connections, addresses and the
 * protocol. */
#ifndef TU__COMM_MONITOR_H
#define TU__COMM_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

#include "base/shared.h"

typedef struct tu__monitor tu__monitor;

typedef struct tu__monitor_options {
    uint32_t rank, size;
    const char *host, *device; /* for messages: "node3", "cpu:0.1/4" */
    /* Network interface on which rank 0 listens, such as "eth0"; NULL: all. Link-local IPv6 addresses are not used. */
    const char *interface;
    double timeout; /* of a collective in seconds, for messages */
    /* Gives every process the `bytes` of each, in the order of ranks. Called exactly once by each process, in
     * tu__monitor_start, also if that fails, unless memory is exhausted. */
    tu_status (*gather)(void *context, const void *mine, size_t bytes, void *all);
    void *gather_context;
    /* Called at most once, in the monitor's thread, with one line, and with the status of a process that has failed by
     * itself; otherwise TU_LOST. Other threads may hang at that time, so it
     * usually prints the line and ends the process. It may be called before tu__monitor_start has returned. It may
     * call tu__monitor_failure, no other function of the monitor. Not called after tu__monitor_fail has begun in this
     * process. May be NULL. */
    void (*on_failure)(void *context, tu_status cause, const char *message);
    void *failure_context;
} tu__monitor_options;

/* Starts the monitors of all processes; returns once all are connected. Takes at most 25 s after `gather`; fails on
 * every rank if one cannot be connected. */
TU__SHARED tu_status tu__monitor_start(const tu__monitor_options *options, tu__monitor **monitor);

/* These seven are cheap and may be called by any thread. */
/* Says that this process begins its first step. Until then it may load data or compile for longer than the timeout, up
 * to 10 minutes, without being late. */
TU__SHARED void tu__monitor_set_begun(tu__monitor *monitor);
/* Sets the number of steps done, and that the process has begun its first step. */
TU__SHARED void tu__monitor_set_step(tu__monitor *monitor, int64_t step);
/* Says that all ranks have done at least so many steps: this process has it from them, so it is more recent than their
 * latest reports. */
TU__SHARED void tu__monitor_set_common_step(tu__monitor *monitor, int64_t step);
/* Sets the device of a rank, for messages; every process must be told those of all ranks. */
TU__SHARED void tu__monitor_set_device(tu__monitor *monitor, uint32_t rank, const char *device);
/* Says that this process waits in a collective from now on. `collective`: its number in the sequence of all
 * collectives, the same on every rank, increasing. `operation`: what it is; at most 159 bytes are kept. */
TU__SHARED void tu__monitor_enter(tu__monitor *monitor, uint64_t collective, const char *operation);
/* Says that a part of the collective is done: the others' values have arrived. */
TU__SHARED void tu__monitor_progress(tu__monitor *monitor);
/* Says that the collective is done. */
TU__SHARED void tu__monitor_leave(tu__monitor *monitor);

/* Says that this process has waited in its collective for longer than the timeout, without progress. A verdict follows,
 * unless tu__monitor_leave or tu__monitor_progress is called before it, or the rank that is late is excused. Further calls
 * without progress do nothing. */
TU__SHARED void tu__monitor_timed_out(tu__monitor *monitor);

/* True if a rank has not begun its first step and still has time for that. */
TU__SHARED bool tu__monitor_is_preparing(tu__monitor *monitor);
/* True if the rank for which this one waits is excused: it has not begun its first step and still has time for that, or
 * less than the timeout has passed since it last made progress in this collective or an earlier one. */
TU__SHARED bool tu__monitor_is_excused(tu__monitor *monitor);

/* Says that this process fails for a reason of its own, such as out of memory. Returns once the others have been
 * told, at most after 1 s. The verdict names this rank even if the connection of another one has closed just
 * before: that may be a consequence. A collective that returns an error is usually itself a consequence of another
 * rank's death, so wait half a second for tu__monitor_failure before you call this. */
TU__SHARED void tu__monitor_fail(tu__monitor *monitor, tu_status cause, const char *message);

/* Returns true once a verdict is known, and copies it. */
TU__SHARED bool tu__monitor_failure(tu__monitor *monitor, char *message, size_t bytes);

/* Ends the monitor in an orderly way: this process may end afterwards without being blamed. Waits until all other
 * processes have called it, too, then frees. If after 5 s one of those is silent, that ends in a verdict; if one has not
 * called it and is not in a collective either, this process leaves. Once rank 0 has left, the others are no longer
 * monitored, except that tu__monitor_timed_out still has a verdict. Does nothing for NULL. */
TU__SHARED void tu__monitor_stop(tu__monitor *monitor);

#endif
