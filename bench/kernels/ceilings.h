/* Measures the machine's memory bandwidth and arithmetic throughput, the ceilings (roofline) that kernels are
 * compared with. */
#ifndef BENCH_KERNELS_CEILINGS_H
#define BENCH_KERNELS_CEILINGS_H

typedef struct ceilings {
    double bytes_per_s; /* read plus written, when copying blocks larger than the caches */
    double flops_per_s; /* f32 multiply-adds on registers */
} ceilings;

ceilings measure_ceilings(int threads);

/* Returns the time in seconds, from a monotonic clock. */
double now(void);

#endif
