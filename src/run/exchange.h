/* Between the threads of a run: events, the barrier and failures. */
#ifndef TU__RUN_EXCHANGE_H
#define TU__RUN_EXCHANGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/device.h"

/* A part's two threads: each sleeps on a bell of its own, so that an event wakes who waits for it and nobody else. */
typedef enum tu__thread { TU__LAUNCHER, TU__COPIER, TU__THREADS } tu__thread;

/* What the parts' threads share while a run is under way. */
typedef struct tu__exchange {
    pthread_mutex_t lock;
    pthread_cond_t *bells; /* TU__THREADS a part */
    size_t part_count;
    uint64_t epoch; /* number of the run: an event has happened when it holds this */
    atomic_uint_least64_t *events;
    uint32_t event_count;
    uint32_t at_barrier; /* parts that have computed everything */
    atomic_bool aborted;
    double deadline;  /* seconds, as clock_gettime(CLOCK_MONOTONIC) counts */
    double allowed;   /* seconds for a run */
    double watch;     /* seconds that a thread watches for something before it sleeps */
    tu_status status; /* the first failure, and its message */
    char message[1024];
} tu__exchange;

tu_status tu__exchange_begin(tu__exchange *exchange, uint32_t event_count, double allowed,
                             size_t device_count, tu__device *const *devices);
void tu__exchange_end(tu__exchange *exchange);

/* Around every run. The second returns the first failure, with its message. */
void tu__exchange_begin_run(tu__exchange *exchange);
tu_status tu__exchange_end_run(tu__exchange *exchange);

/* An event has happened; of one that a single thread waits for, to that alone. */
void tu__exchange_signal(tu__exchange *exchange, uint32_t event);
void tu__exchange_signal_to(tu__exchange *exchange, uint32_t event, size_t part, tu__thread thread);
bool tu__exchange_has_happened(const tu__exchange *exchange, uint32_t event);
/* An event that a part's launching thread awaited has happened, or the run was aborted; false: it is late. */
bool tu__exchange_await(tu__exchange *exchange, size_t part, uint32_t event);
/* Waits until `expected` parts have come here, or the run was aborted; false: some are late. */
bool tu__exchange_meet(tu__exchange *exchange, size_t part, uint32_t expected);
/* Sleeps until the thread's bell rings; false when the deadline has passed. Call with the lock held. */
bool tu__exchange_sleep(tu__exchange *exchange, size_t part, tu__thread thread);

/* Keeps this thread's message as the run's, if it is the first, and lets everybody go. */
void tu__exchange_abort(tu__exchange *exchange, tu_status status);
bool tu__exchange_is_aborted(const tu__exchange *exchange);

#endif
