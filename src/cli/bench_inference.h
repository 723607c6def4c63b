/* `tutti bench --inference`: measures how a model answers. */
#ifndef TU__CLI_BENCH_INFERENCE_H
#define TU__CLI_BENCH_INFERENCE_H

#include "cli/inference_model.h"

enum { INFERENCE_MAX_BATCHES = 16, INFERENCE_MAX_SESSIONS = 1024, INFERENCE_MAX_CALLS = 1000000 };

struct inference_bench {
    struct inference_settings settings;
    int64_t batches[INFERENCE_MAX_BATCHES];
    int batch_count;
    int64_t calls; /* of each session and batch size; 0: as many as take a second */
    bool json;
    double start_time; /* cli_now() when the command began */
};

/* The latencies of one batch size, in milliseconds. */
struct inference_times {
    int64_t batch, calls; /* of all sessions */
    double p50, p90, p99, max, samples_per_second;
};

struct inference_report {
    const struct inference_bench *bench;
    const tu_model *model;
    double load_seconds;         /* opening the model: a file is read, a network is built and initialised */
    double first_answer_seconds; /* of the first call */
    double first_answer_age;     /* from the start of the process to the end of the first call */
    uint64_t resident_bytes;     /* of the process, after all calls; 0: unknown */
    struct inference_times times[INFERENCE_MAX_BATCHES];
};

tu_status bench_inference(const struct inference_bench *bench);

/* bench_inference_report.c: prints a table, or a JSON object. */
void inference_print_text(const struct inference_report *report);
void inference_print_json(const struct inference_report *report);

#endif
