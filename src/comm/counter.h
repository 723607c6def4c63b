/* Counters in memory that several processes share. One process sets a counter, the others wait for a value.
 *
 * Waiting threads should poll for a while and then sleep; setting a counter wakes them. A thread that waits for a
 * process that has died sleeps until its time is over, so callers sleep for short times and look for failures. */
#ifndef TU__COMM_COUNTER_H
#define TU__COMM_COUNTER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct tu__counter {
    _Alignas(64) atomic_uint value; /* increases; wraps around */
    atomic_uint sleepers;           /* threads that must be woken */
} tu__counter;

/* Sets the value, after everything that this thread has written before, and wakes those who wait for it. */
void tu__counter_set(tu__counter *counter, uint32_t value);

/* True if the counter has reached a value, to which it is less than 2^31 apart. What was written before it was set is
 * then visible. */
static inline bool tu__counter_has(tu__counter *counter, uint32_t value) {
    return (int32_t)(atomic_load_explicit(&counter->value, memory_order_acquire) - value) >= 0;
}

/* Sleeps until the counter has reached a value, at most for `seconds` (below 1). May return earlier. */
void tu__counter_sleep(tu__counter *counter, uint32_t value, double seconds);

#endif
