/* Shared by the benchmark programs: a clock, the median, and exiting on errors. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <tutti/status.h>

static inline double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Exits with the error message if a call of the engine has failed. */
static inline void must(tu_status status) {
    if (status == TU_OK) return;
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, tu_message());
    exit(2);
}

static inline int compare_numbers(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the median; sorts `numbers`, of which there must be at least one. */
static inline double median(double *numbers, size_t count) {
    qsort(numbers, count, sizeof *numbers, compare_numbers);
    return (numbers[(count - 1) / 2] + numbers[count / 2]) / 2;
}

#endif
