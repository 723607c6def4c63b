/* Measures the gain from logical devices on one GPU: independent small training runs in parallel against one after
 * another.
 *
 *     bench_logical [--device gpu:0] [--parts 4] [--steps 500] [--rounds 5] [--precision tf32] [--batch 128]
 *
 * A step of mlp uses a fraction of a large GPU. There are as many training runs as logical devices, each with a
 * separate graph, program, state and batch. On one side each has a logical device ("gpu:0.1/4") and a host thread; on the
 * other they run one after another on the whole GPU. Both run the same steps in every round, in alternating order;
 * the result is the ratio of the medians. Both sides start from the same seeds, so their final losses should be
 * equal.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <tutti/tutti.h>

#include "../measure.h"

enum { MAX_PARTS = 16, MAX_ROUNDS = 101 };

typedef struct settings {
    const char *device, *precision;
    int64_t parts, steps, rounds, batch;
} settings;

/* ---- A training run ---- */

typedef struct training {
    char device[48];
    tu_graph *graph;
    tu_network_graph net;
    tu_program *program;
    tu_state *state;
    float *images, *losses;
    int32_t *labels;
    size_t steps; /* per call */
    tu_status status;
    char message[512]; /* of the thread that ran the steps */
} training;

/* Generates random pixels between -2 and 2, and classes, with a linear congruential generator; `seed` differs between
 * training runs. */
static tu_status generate_batch(training *t, uint64_t seed) {
    size_t pixels = (size_t)tu_shape_elements(tu_value_shape(t->net.images));
    tu_shape logits = tu_value_shape(t->net.logits);
    size_t samples = (size_t)logits.dim[0];
    t->images = calloc(pixels, sizeof *t->images);
    t->labels = calloc(samples, sizeof *t->labels);
    t->losses = calloc(t->steps, sizeof *t->losses);
    if (!t->images || !t->labels || !t->losses) return tu_fail(TU_NO_MEMORY, "out of memory for a batch");
    uint64_t state = seed;
    for (size_t i = 0; i < pixels + samples; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        if (i < pixels)
            t->images[i] = (float)(state >> 40) * 0x1p-22f - 2;
        else
            t->labels[i - pixels] = (int32_t)((state >> 33) % (uint64_t)logits.dim[1]);
    }
    return TU_OK;
}

static tu_status prepare_training(training *t, const settings *o, int64_t index) {
    t->steps = (size_t)o->steps;
    TU_TRY(tu_graph_new(&t->graph));
    t->net = TU_SIZED(tu_network_graph);
    TU_TRY(tu_network_build(t->graph, "mlp", &t->net, .batch = o->batch));
    TU_TRY(tu_add_sgd(t->net.loss, 0.01, 0.9));
    TU_TRY(tu_compile(t->graph, &t->program, .devices = t->device, .precision = o->precision,
                      .fetch = &t->net.loss, .fetch_count = 1, .updates = true));
    TU_TRY(generate_batch(t, (uint64_t)index + 1));
    return tu_state_new(t->graph, &t->state, .seed = (uint64_t)index + 1);
}

static void free_training(training *t) {
    tu_program_free(t->program);
    tu_state_free(t->state);
    tu_graph_free(t->graph);
    free(t->images);
    free(t->labels);
    free(t->losses);
}

static tu_status run_steps(training *t) {
    const tu_feed_many feeds[] = {{.input = t->net.images, .data = t->images, .same_batch = true},
                                  {.input = t->net.labels, .data = t->labels, .same_batch = true}};
    return tu_run_many(t->program, t->state, t->steps, 2, feeds, (void *[]){t->losses});
}

/* ---- The two sides ---- */

typedef struct bench {
    settings settings;
    training parallel[MAX_PARTS], serial[MAX_PARTS];
    double parallel_seconds[MAX_ROUNDS], serial_seconds[MAX_ROUNDS];
} bench;

static void *run_steps_on_thread(void *argument) {
    training *t = argument;
    t->status = run_steps(t);
    if (t->status != TU_OK) snprintf(t->message, sizeof t->message, "%s", tu_message());
    return NULL;
}

static tu_status run_parallel(bench *b, double *seconds) {
    pthread_t threads[MAX_PARTS];
    int64_t started = 0;
    double start = seconds_now();
    while (started < b->settings.parts &&
           pthread_create(&threads[started], NULL, run_steps_on_thread, &b->parallel[started]) == 0)
        started++;
    for (int64_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    *seconds = seconds_now() - start;
    if (started < b->settings.parts) return tu_fail(TU_INTERNAL, "cannot start a thread");
    for (int64_t i = 0; i < started; i++)
        if (b->parallel[i].status != TU_OK)
            return tu_fail(b->parallel[i].status, "%s", b->parallel[i].message);
    return TU_OK;
}

static tu_status run_serial(bench *b, double *seconds) {
    double start = seconds_now();
    for (int64_t i = 0; i < b->settings.parts; i++) TU_TRY(run_steps(&b->serial[i]));
    *seconds = seconds_now() - start;
    return TU_OK;
}

static tu_status run_round(bench *b, int64_t round, double *parallel, double *serial) {
    if (round % 2) {
        TU_TRY(run_serial(b, serial));
        return run_parallel(b, parallel);
    }
    TU_TRY(run_parallel(b, parallel));
    return run_serial(b, serial);
}

static tu_status prepare_all(bench *b) {
    const settings *o = &b->settings;
    for (int64_t i = 0; i < o->parts; i++) {
        training *parallel = &b->parallel[i], *serial = &b->serial[i];
        snprintf(parallel->device, sizeof parallel->device, "%s.%d/%d", o->device, (int)i, (int)o->parts);
        snprintf(serial->device, sizeof serial->device, "%s", o->device);
        TU_TRY(prepare_training(parallel, o, i));
        TU_TRY(prepare_training(serial, o, i));
    }
    return TU_OK;
}

static tu_status measure(bench *b) {
    double ignored;
    TU_TRY(prepare_all(b));
    for (int64_t i = 0; i < 2; i++) TU_TRY(run_round(b, i, &ignored, &ignored)); /* warm-up */
    for (int64_t i = 0; i < b->settings.rounds; i++) {
        TU_TRY(run_round(b, i, &b->parallel_seconds[i], &b->serial_seconds[i]));
        printf("round %2d: %9.4f s one by one, %9.4f s in parallel\n", (int)i + 1, b->serial_seconds[i],
               b->parallel_seconds[i]);
        fflush(stdout);
    }
    return TU_OK;
}

/* ---- Printing ---- */

static void print_side(const char *name, const settings *o, double seconds) {
    double steps = (double)(o->parts * o->steps);
    printf("%-14s %9.4f s for %d x %d steps, %.0f samples/s\n", name, seconds, (int)o->parts, (int)o->steps,
           steps * (double)o->batch / seconds);
}

static tu_status print_results(bench *b) {
    const settings *o = &b->settings;
    int64_t equal_losses = 0;
    for (int64_t i = 0; i < o->parts; i++) {
        float parallel = b->parallel[i].losses[o->steps - 1], serial = b->serial[i].losses[o->steps - 1];
        if (!isfinite(parallel) || !isfinite(serial))
            return tu_fail(TU_NUMERIC, "a loss is not finite: the measured times are meaningless");
        equal_losses += parallel == serial;
    }
    double serial = median(b->serial_seconds, (size_t)o->rounds);
    double parallel = median(b->parallel_seconds, (size_t)o->rounds);
    print_side("one by one", o, serial);
    print_side("in parallel", o, parallel);
    printf(
        "%s/%d is %.2f times as fast by the medians of %d rounds; the final losses of %d of %d training runs "
        "are equal on both sides\n",
        o->device, (int)o->parts, serial / parallel, (int)o->rounds, (int)equal_losses, (int)o->parts);
    return TU_OK;
}

/* ---- The command ---- */

static bool read_settings(int argc, char **argv, settings *o) {
    struct {
        const char *name;
        const char **text;
        int64_t *integer, max;
    } const options[] = {{"--device", &o->device, NULL, 0},          {"--precision", &o->precision, NULL, 0},
                         {"--parts", NULL, &o->parts, MAX_PARTS},    {"--steps", NULL, &o->steps, 1 << 20},
                         {"--rounds", NULL, &o->rounds, MAX_ROUNDS}, {"--batch", NULL, &o->batch, 1 << 20}};
    for (int i = 1; i < argc; i += 2) {
        size_t k = 0, count = sizeof options / sizeof *options;
        while (k < count && strcmp(argv[i], options[k].name) != 0) k++;
        if (k == count || i + 1 == argc) return false;
        if (options[k].text) {
            *options[k].text = argv[i + 1];
            continue;
        }
        *options[k].integer = atoll(argv[i + 1]);
        if (*options[k].integer < 1 || *options[k].integer > options[k].max) return false;
    }
    return true;
}

int main(int argc, char **argv) {
    static bench b = {
        .settings = {
            .device = "gpu:0", .precision = "tf32", .parts = 4, .steps = 500, .rounds = 5, .batch = 128}};
    if (!read_settings(argc, argv, &b.settings))
        return fprintf(stderr, "usage: bench_logical [--device NAME] [--parts N] [--steps N] [--rounds N] "
                               "[--precision NAME] [--batch N]\n"),
               2;
    tu_status status = measure(&b);
    if (status == TU_OK) status = print_results(&b);
    if (status != TU_OK) fprintf(stderr, "bench_logical: %s\n", tu_message());
    for (int64_t i = 0; i < MAX_PARTS; i++) {
        free_training(&b.parallel[i]);
        free_training(&b.serial[i]);
    }
    return status == TU_OK ? 0 : 1;
}
