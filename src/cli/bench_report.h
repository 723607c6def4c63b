/* What `tutti bench` has measured, and how it is printed. */
#ifndef CLI_BENCH_REPORT_H
#define CLI_BENCH_REPORT_H

#include "cli/communication.h"
#include "cli/workload.h"

enum { BENCH_DIGEST_STEPS = 3 };

struct measurement {
    double first_step_seconds;
    char digest[TU_DIGEST_TEXT];
    int64_t steps; /* in a block */
    double median_ms, least_ms, most_ms;
    size_t kernel_count;
    double *kernel_ms; /* mean of one more block */
};

/* What is measured, and with --scaling what it is compared with. */
struct bench_run {
    struct workload work;
    struct measurement m;
    int64_t batch;
};

struct bench_report {
    const char *model, *precision;
    int64_t repeat;    /* blocks */
    int64_t invariant; /* 0: not asked for */
    int64_t traced;    /* steps, where the batch is shared */
    bool kernels;
    const struct bench_run *run, *one; /* one: the first device alone; NULL: not asked for */
    const struct communication *spent; /* of a batch that is shared */
};

void bench_print_text(const struct bench_report *report);
void bench_print_json(const struct bench_report *report);

#endif
