/* The results of `tutti bench` and the functions that print them. */
#ifndef TU__CLI_BENCH_REPORT_H
#define TU__CLI_BENCH_REPORT_H

#include "cli/communication_cost.h"
#include "cli/workload.h"

enum { BENCH_DIGEST_STEPS = 3 };

struct measurement {
    double first_step_seconds;
    char digest[TU_DIGEST_TEXT];
    int64_t steps;                    /* steps per block */
    double median_ms, min_ms, max_ms; /* time of a step, over the blocks */
    size_t kernel_count;
    double *kernel_ms; /* per kernel: mean time in a step, over an additional block */
};

/* A measured workload. With --scaling there is a second one, on the first device only. */
struct bench_run {
    struct workload work;
    struct measurement m;
    int64_t batch;
};

/* The processes that share the batch. */
struct bench_processes {
    uint32_t count; /* 1: this one alone */
    size_t devices; /* of all processes */
    const char *transport;
};

struct bench_report {
    const char *model, *precision;
    int64_t repeat;       /* number of blocks */
    int64_t invariant;    /* 0: --invariant was not given */
    int64_t stack;        /* networks of a stack; `single` is one of them; 0: --stack was not given */
    int64_t traced_steps; /* steps traced to measure communication, if the batch is sharded */
    bool kernels;         /* print the time of each kernel */
    const struct bench_run *run, *single; /* single: the first device only; NULL without --scaling */
    const struct communication_cost *communication; /* valid if the batch is sharded */
    struct bench_processes processes;
};

void bench_print_text(const struct bench_report *report);
void bench_print_json(const struct bench_report *report);

#endif
