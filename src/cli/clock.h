/* The clock for durations. */
#ifndef TU__CLI_CLOCK_H
#define TU__CLI_CLOCK_H

#include <time.h>

/* Returns the time of a monotonic clock in seconds. */
static inline double cli_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#endif
