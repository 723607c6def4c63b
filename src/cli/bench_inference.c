/* Measures a model: the time to its first answer, and for each batch size the latency of calls, from as many threads as the
 * model has sessions.
 *
 * A thread calls again as soon as it has its answer. So the percentiles are those of a server that is fully used, not of
 * one with a queue in front of it. */
#include "cli/bench_inference.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/placement_notice.h"
#include "cli/process_age.h"

enum { TRIAL_CALLS = 5, MIN_CALLS = 20 };
static const double seconds_per_batch = 1;

static tu_status fail_memory(void) {
    return tu_fail(TU_NO_MEMORY, "out of memory");
}

/* ---- Callers ---- */

/* A thread that calls the model. */
typedef struct caller {
    const struct inference_model *model;
    pthread_mutex_t *gate; /* held until all threads have started */
    int64_t batch, calls;
    double *ms; /* of each call */
    double began, ended;
    struct inference_outputs outputs;
    tu_status status;
    char message[512];
} caller;

static tu_status time_calls(caller *c) {
    c->began = cli_now();
    double before = c->began;
    for (int64_t i = 0; i < c->calls; i++) {
        TU_TRY(inference_model_run(c->model, c->batch, &c->outputs));
        c->ended = cli_now();
        c->ms[i] = 1e3 * (c->ended - before);
        before = c->ended;
    }
    return TU_OK;
}

static void *call_often(void *argument) {
    caller *c = argument;
    pthread_mutex_lock(c->gate);
    pthread_mutex_unlock(c->gate);
    c->status = time_calls(c);
    if (c->status != TU_OK) snprintf(c->message, sizeof c->message, "%s", tu_message());
    return NULL;
}

/* Runs all callers at once, or none if a thread cannot be started. */
static tu_status run_callers(caller *callers, int count) {
    pthread_t threads[INFERENCE_MAX_SESSIONS];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int started = 0;
    pthread_mutex_lock(&gate);
    for (int i = 0; i < count; i++) callers[i].gate = &gate;
    while (started < count && pthread_create(&threads[started], NULL, call_often, &callers[started]) == 0)
        started++;
    for (int i = 0; i < started && started < count; i++) callers[i].calls = 0;
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    if (started < count)
        return tu_fail(TU_NO_MEMORY, "cannot start %d threads: the system's limit is reached", count);
    for (int i = 0; i < count; i++)
        if (callers[i].status != TU_OK) return tu_fail(callers[i].status, "%s", callers[i].message);
    return TU_OK;
}

/* ---- A batch size ---- */

/* Returns how many calls take a second, at this batch size and by one thread. */
static tu_status choose_calls(const struct inference_bench *b, caller *c, int64_t *calls) {
    double ms[TRIAL_CALLS];
    c->ms = ms;
    c->calls = TRIAL_CALLS;
    TU_TRY(time_calls(c));
    *calls = b->calls;
    if (*calls) return TU_OK;
    double chosen = ceil(seconds_per_batch * TRIAL_CALLS / (c->ended - c->began));
    *calls = (int64_t)fmin(fmax(chosen, MIN_CALLS), INFERENCE_MAX_CALLS);
    return TU_OK;
}

static int compare_times(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Returns the smallest time that is not exceeded by the fraction `part` of the calls. */
static double percentile(const double *sorted, int64_t count, double part) {
    int64_t rank = (int64_t)ceil(part * (double)count);
    return sorted[rank < 1 ? 0 : rank - 1];
}

static void summarize(const caller *callers, int count, double *ms, struct inference_times *t) {
    double began = callers[0].began, ended = callers[0].ended;
    for (int i = 1; i < count; i++) {
        began = fmin(began, callers[i].began);
        ended = fmax(ended, callers[i].ended);
    }
    qsort(ms, (size_t)t->calls, sizeof *ms, compare_times);
    t->p50 = percentile(ms, t->calls, 0.5);
    t->p90 = percentile(ms, t->calls, 0.9);
    t->p99 = percentile(ms, t->calls, 0.99);
    t->max = ms[t->calls - 1];
    t->samples_per_second = (double)(t->calls * t->batch) / (ended - began);
}

static tu_status measure_batch(const struct inference_bench *b, caller *callers, struct inference_times *t) {
    int count = b->settings.sessions;
    int64_t calls;
    for (int i = 0; i < count; i++) callers[i].batch = t->batch;
    TU_TRY(choose_calls(b, callers, &calls));
    t->calls = calls * count;
    double *ms = calloc((size_t)t->calls, sizeof *ms);
    if (!ms) return fail_memory();
    for (int i = 0; i < count; i++) {
        callers[i].calls = calls;
        callers[i].ms = ms + i * calls;
    }
    tu_status status = run_callers(callers, count);
    if (status == TU_OK) summarize(callers, count, ms, t);
    free(ms);
    return status;
}

/* ---- The measurement ---- */

static uint64_t read_resident_bytes(void) {
    unsigned long long size, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file) return 0;
    bool is_read = fscanf(file, "%llu %llu", &size, &resident) == 2;
    fclose(file);
    return is_read ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static tu_status time_first_answer(const struct inference_bench *b, caller *first,
                                   struct inference_report *report) {
    double before = cli_now();
    TU_TRY(inference_model_run(first->model, b->batches[0], &first->outputs));
    report->first_answer_seconds = cli_now() - before;
    report->first_answer_age = cli_process_age(cli_now() - b->start_time);
    return TU_OK;
}

static tu_status measure(const struct inference_bench *b, const struct inference_model *model,
                         caller *callers, struct inference_report *report) {
    for (int i = 0; i < b->settings.sessions; i++) {
        callers[i].model = model;
        TU_TRY(inference_outputs_new(model, b->settings.max_batch, &callers[i].outputs));
    }
    TU_TRY(time_first_answer(b, &callers[0], report));
    for (int i = 0; i < b->batch_count; i++) {
        report->times[i].batch = b->batches[i];
        TU_TRY(measure_batch(b, callers, &report->times[i]));
    }
    report->resident_bytes = read_resident_bytes();
    return TU_OK;
}

static tu_status run_bench(const struct inference_bench *b, const struct inference_model *model,
                           struct inference_report *report) {
    caller *callers = calloc((size_t)b->settings.sessions, sizeof *callers);
    if (!callers) return fail_memory();
    tu_status status = measure(b, model, callers, report);
    if (status == TU_OK) (b->json ? inference_print_json : inference_print_text)(report);
    for (int i = 0; i < b->settings.sessions; i++) inference_outputs_free(&callers[i].outputs);
    free(callers);
    return status;
}

tu_status bench_inference(const struct inference_bench *b) {
    struct inference_model model;
    double before = cli_now();
    tu_status status = inference_model_open(&model, &b->settings);
    struct inference_report report = {.bench = b, .model = model.model, .load_seconds = cli_now() - before};
    if (status == TU_OK) cli_print_model_notice(model.model);
    if (status == TU_OK) status = run_bench(b, &model, &report);
    inference_model_free(&model);
    return status == TU_OK ? TU_OK : tu_fail(status, "bench: %s", tu_message());
}
