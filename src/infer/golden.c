/* Golden samples. See golden.h.
 *
 * `ref` is slow and uses one core, so samples are computed by several threads, each with a session of its own. Samples
 * are computed one by one, in the graph of the file: the result does not depend on the number of threads. */
#include "infer/golden.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/number.h"
#include "graph/graph.h"
#include "infer/model_parts.h"

enum { MAX_THREADS = 64 };

typedef struct job {
    tu_program *program;
    tu_state *state;
    int64_t count;
    size_t input_count, output_count;
    tu_value inputs[TU__MODEL_MAX_PORTS];
    const tu__named_tensor *data;
    void *const *outputs;
    size_t input_bytes[TU__MODEL_MAX_PORTS], output_bytes[TU__MODEL_MAX_PORTS]; /* of one sample */
    const tu__golden_progress *progress;
    pthread_t caller;
    atomic_int_least64_t next; /* sample */
    pthread_mutex_t lock;
    tu_status status; /* the first failure */
    char message[1024];
} job;

/* ---- Running ---- */

static tu_status run_sample(const job *j, tu_session *session, int64_t sample) {
    tu_feed feeds[TU__MODEL_MAX_PORTS];
    void *fetches[TU__MODEL_MAX_PORTS];
    for (size_t i = 0; i < j->input_count; i++)
        feeds[i] =
            (tu_feed){j->inputs[i], (const char *)j->data[i].data + (size_t)sample * j->input_bytes[i]};
    for (size_t i = 0; i < j->output_count; i++)
        fetches[i] = (char *)j->outputs[i] + (size_t)sample * j->output_bytes[i];
    return tu_session_run(session, j->program, j->input_count, feeds, fetches);
}

static tu_status run_samples(job *j) {
    tu_session *session;
    TU_TRY(tu_session_new(j->state, &session));
    tu_status status = TU_OK;
    while (status == TU_OK) {
        int64_t sample = atomic_fetch_add(&j->next, 1);
        if (sample >= j->count) break;
        if (j->progress && pthread_equal(pthread_self(), j->caller))
            j->progress->report(j->progress->context, sample);
        status = run_sample(j, session, sample);
    }
    tu_session_free(session);
    return status;
}

static void *run_thread(void *context) {
    job *j = context;
    tu_status status = run_samples(j);
    if (status == TU_OK) return NULL;
    atomic_store(&j->next, j->count); /* the other threads end after their sample */
    pthread_mutex_lock(&j->lock);
    if (j->status == TU_OK) {
        j->status = status;
        snprintf(j->message, sizeof j->message, "%s", tu_message());
    }
    pthread_mutex_unlock(&j->lock);
    return NULL;
}

/* Runs in the calling thread and in as many others as there are cores and samples, or as can be started. */
static tu_status run_threads(job *j) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t threads[MAX_THREADS];
    size_t started = 0;
    pthread_mutex_init(&j->lock, NULL);
    while (started < MAX_THREADS && (long)started + 1 < cores && (int64_t)started + 1 < j->count &&
           pthread_create(&threads[started], NULL, run_thread, j) == 0)
        started++;
    run_thread(j);
    for (size_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&j->lock);
    return j->status == TU_OK ? TU_OK : tu_fail(j->status, "%s", j->message);
}

/* ---- Compiling ---- */

/* Lists inputs and outputs. `fetch` has room for TU__MODEL_MAX_PORTS. */
static tu_status list_ports(tu_graph *graph, job *j, tu_value *fetch) {
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        if (node->op->code != TU__OP_INPUT) continue;
        if (j->input_count == TU__MODEL_MAX_PORTS)
            return tu_fail(TU_INVALID, "the graph has too many inputs");
        j->input_bytes[j->input_count] = tu_type_bytes(node->outputs[0]);
        j->inputs[j->input_count++] = tu__value(graph, node->id, 0);
    }
    if (graph->result_count > TU__MODEL_MAX_PORTS)
        return tu_fail(TU_INVALID, "the graph has too many outputs");
    for (uint32_t i = 0; i < graph->result_count; i++) {
        tu__edge edge = graph->results[i].value;
        fetch[i] = tu__value(graph, edge.node, edge.output);
        j->output_bytes[j->output_count++] = tu_type_bytes(tu_value_type(fetch[i]));
    }
    return TU_OK;
}

tu_status tu__golden_compute(tu_graph *graph, tu_state *state, const char *precision, int64_t count,
                             const tu__named_tensor *inputs, void *const *outputs,
                             const tu__golden_progress *progress) {
    job j = {.state = state,
             .count = count,
             .data = inputs,
             .outputs = outputs,
             .progress = progress,
             .caller = pthread_self()};
    tu_value fetch[TU__MODEL_MAX_PORTS];
    TU_TRY(list_ports(graph, &j, fetch));
    TU_TRY(tu_compile(graph, &j.program, .devices = "ref", .precision = precision, .fetch = fetch,
                      .fetch_count = j.output_count));
    tu_status status = run_threads(&j);
    tu_program_free(j.program);
    return status;
}

/* ---- Differences ---- */

static double element_difference(double golden, double output) {
    if (golden == output || (isnan(golden) && isnan(output))) return 0;
    double difference = fabs(golden - output);
    return isnan(difference) ? INFINITY : difference;
}

static double sample_difference(tu_type type, int64_t sample, const void *golden, const void *output,
                                bool relative) {
    int64_t count = tu_shape_elements(type.shape), first = sample * count;
    double largest = 0, difference = 0;
    for (int64_t i = first; i < first + count; i++) {
        double expected = tu__load(type.dtype, golden, i);
        double distance = element_difference(expected, tu__load(type.dtype, output, i));
        if (distance > difference) difference = distance;
        if (fabs(expected) > largest) largest = fabs(expected);
    }
    return !relative || difference == 0 ? difference : largest > 0 ? difference / largest : INFINITY;
}

double tu__golden_difference(tu_type sample, int64_t count, const void *golden, const void *output,
                             bool relative) {
    double largest = 0;
    for (int64_t i = 0; i < count; i++) {
        double difference = sample_difference(sample, i, golden, output, relative);
        if (!(difference <= largest)) largest = difference;
    }
    return largest;
}

/* ---- Bounds ---- */

/* A device rounds at other places and adds in another order than `ref`, so its errors may be several times those of `ref`
 * on the same samples; and at least the floor, since `ref` may happen to have none. Rounding errors of f32 are 2^16 times
 * smaller than those of bf16, and a sum of K products has some sqrt(K) of them. tf32 rounds operands like f16, in a larger
 * range. */
double tu__golden_bound(const char *precision, double bf16, double f16) {
    const struct {
        const char *name;
        double limit, floor;
    } rules[] = {{"f32", isfinite(bf16) ? 256 * 0x1p-16 * bf16 : 0, 1e-5},
                 {"tf32", isfinite(f16) ? 4 * f16 : 4 * bf16, 0x1p-9},
                 {"f16", 4 * f16, 0x1p-9},
                 {"bf16", 4 * bf16, 0x1p-6}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].name, precision) == 0)
            return rules[i].limit > rules[i].floor ? rules[i].limit : rules[i].floor;
    return INFINITY;
}
