/* The clock that the command measures durations with. */
#ifndef TU__CLI_CLOCK_H
#define TU__CLI_CLOCK_H

#include <time.h>

/* Returns seconds of a monotonic clock. */
static inline double cli_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

#endif
