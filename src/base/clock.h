/* The monotonic clock used for durations and deadlines. */
#ifndef TU__BASE_CLOCK_H
#define TU__BASE_CLOCK_H

#include <time.h>

/* Returns CLOCK_MONOTONIC in seconds. */
static inline double tu__now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#endif
