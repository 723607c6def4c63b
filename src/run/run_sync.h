/* Synchronization between the threads of a run: events, the barrier and failures. */
#ifndef TU__RUN_RUN_SYNC_H
#define TU__RUN_RUN_SYNC_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/device.h"

/* The two host threads of a partition. Each has its own condition variable, so that an event wakes only the thread
 * that waits for it. */
typedef enum tu__thread { TU__COMPUTE_THREAD, TU__COPY_THREAD, TU__THREADS } tu__thread;

/* State shared by the threads of a run. */
typedef struct tu__run_sync {
    pthread_mutex_t lock;
    pthread_cond_t *wakeups; /* TU__THREADS per partition */
    size_t partition_count;
    uint64_t epoch; /* number of the run; an event has been signalled in this run if its value is `epoch` */
    atomic_uint_least64_t *events;
    uint32_t event_count;
    uint32_t at_barrier; /* number of partitions that have reached the barrier */
    atomic_bool aborted;
    double deadline;       /* absolute time in seconds of CLOCK_MONOTONIC */
    double timeout;        /* maximum seconds of a run */
    double device_timeout; /* for devices that enforce the timeout themselves, in this run; negative: none */
    double spin_seconds;   /* seconds that a thread polls before it sleeps */
    tu_status status;      /* the first failure */
    char message[1024];
} tu__run_sync;

tu_status tu__run_sync_init(tu__run_sync *sync, uint32_t event_count, double timeout, size_t device_count,
                            tu__device *const *devices);
void tu__run_sync_free(tu__run_sync *sync);

/* Called before and after every run. The second function returns the first failure, with its message. */
void tu__run_sync_begin_run(tu__run_sync *sync);
tu_status tu__run_sync_end_run(tu__run_sync *sync);

/* Signals an event: to all threads, or to the one thread that waits for it. */
void tu__run_sync_signal(tu__run_sync *sync, uint32_t event);
void tu__run_sync_signal_to(tu__run_sync *sync, uint32_t event, size_t partition, tu__thread thread);
bool tu__run_sync_is_signalled(const tu__run_sync *sync, uint32_t event);
/* Waits on the compute thread of a partition for an event. Returns true if it was signalled or the run was aborted,
 * false on timeout. */
bool tu__run_sync_wait(tu__run_sync *sync, size_t partition, uint32_t event);
/* Waits until `expected` partitions have called this, or the run was aborted; false on timeout. */
bool tu__run_sync_barrier(tu__run_sync *sync, size_t partition, uint32_t expected);
/* Sleeps until the thread is woken; false once the deadline has passed. Call with the lock held. */
bool tu__run_sync_sleep(tu__run_sync *sync, size_t partition, tu__thread thread);

/* Aborts the run and wakes all threads. The first failure and this thread's message become the run's. */
void tu__run_sync_abort(tu__run_sync *sync, tu_status status);
bool tu__run_sync_is_aborted(const tu__run_sync *sync);

#endif
