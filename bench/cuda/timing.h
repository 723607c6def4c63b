/* A clock, and the number in the middle: what the programs of this folder share. */
#ifndef BENCH_CUDA_TIMING_H
#define BENCH_CUDA_TIMING_H

#include <stdlib.h>
#include <time.h>

static inline double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int compare_numbers(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the numbers; there is at least one. */
static inline double median(double *numbers, size_t count) {
    qsort(numbers, count, sizeof *numbers, compare_numbers);
    return (numbers[(count - 1) / 2] + numbers[count / 2]) / 2;
}

#endif
