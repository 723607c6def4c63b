/* The clock that durations and deadlines are counted by. */
#ifndef TU__BASE_CLOCK_H
#define TU__BASE_CLOCK_H

#include <time.h>

/* Seconds, which only ever go forward, whatever happens to the time of day. */
static inline double tu__now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#endif
