/* What the machine can do at most, measured: the two numbers every kernel's time is held against. */
#ifndef BENCH_KERNELS_CEILINGS_H
#define BENCH_KERNELS_CEILINGS_H

typedef struct ceilings {
    double bytes_per_s; /* read plus written, by copying blocks too large for any cache */
    double flops_per_s; /* f32, by multiply-adds between registers */
} ceilings;

ceilings measure_ceilings(int threads);

/* Seconds since some moment. */
double now(void);

#endif
