/* Times inference on the CPU in int8 next to f32, in turns:
 *
 *     bench_int8 mlp|tutorial-cnn|resnet50 THREADS BATCH [ROUNDS]
 *
 * Both are frozen graphs with the same weights; the ranges of activations come from the measured input. Prints medians, and
 * least times, which other load disturbs least. With TUTTI_BENCH_CPU_TIME in the environment times are those of the
 * processor. */
#include <string.h>

#include "../measure.h"
#include "infer/freeze.h"
#include "infer/quantize.h"
#include "networks.h"

typedef struct subject {
    tu_graph *graph;
    tu_value images, logits;
    tu_program *program;
    tu_state *state;
    tu_session *session;
    float *output;
} subject;

static double clock_now(void) {
    struct timespec t;
    if (!getenv("TUTTI_BENCH_CPU_TIME")) return seconds_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tu_graph *make_frozen(const bench_network *network, int64_t batch) {
    tu_graph *graph, *frozen;
    must(tu_graph_new(&graph));
    tu_set_training(graph, false);
    tu_value images = tu_batch_input(
        graph, "images", TU_F32, TU_SHAPE(batch, network->input[0], network->input[1], network->input[2]));
    tu_output(network->build(images), "logits");
    must(tu_graph_status(graph));
    must(tu__freeze(graph, 0, NULL, TU__PRECISION_AS_BUILT, &frozen));
    tu_graph_free(graph);
    return frozen;
}

static tu_graph *make_quantized(const tu_graph *frozen, const float *images) {
    tu__quantizer *quantizer;
    tu_graph *quantized;
    must(tu__quantizer_new(frozen, &quantizer));
    const tu_feed feed = {tu__value((tu_graph *)frozen, tu__find_node(frozen, "images")->id, 0), images};
    must(tu__quantizer_calibrate(quantizer, 1, &feed));
    must(tu__quantizer_build(quantizer, TU__MIN_MAX, NULL, &quantized));
    tu__quantizer_free(quantizer);
    return quantized;
}

static subject open_subject(tu_graph *graph, int threads) {
    subject s = {.graph = graph};
    s.images = tu__value(graph, tu__find_node(graph, "images")->id, 0);
    s.logits = tu_find_output(graph, "logits");
    must(tu_compile(graph, &s.program, .devices = "cpu", .threads = threads, .fetch = &s.logits,
                    .fetch_count = 1));
    must(tu_state_new(graph, &s.state));
    must(tu_session_new(s.state, &s.session));
    s.output = malloc(tu_type_bytes(tu_value_type(s.logits)));
    if (!s.output) exit(2);
    return s;
}

static double time_run(const subject *s, const float *images) {
    const double start = clock_now();
    must(tu_session_run(s->session, s->program, 1, &(tu_feed){s->images, images}, (void *[]){s->output}));
    return clock_now() - start;
}

static void print_times(const char *name, double *seconds, size_t rounds) {
    const double middle = median(seconds, rounds); /* sorts */
    printf("%-5s median %9.3f ms, least %9.3f ms\n", name, 1e3 * middle, 1e3 * seconds[0]);
}

int main(int argc, char **argv) {
    const bench_network *network = argc >= 4 ? bench_network_find(argv[1]) : NULL;
    const int threads = argc >= 4 ? atoi(argv[2]) : 0;
    const long batch = argc >= 4 ? atol(argv[3]) : 0, rounds = argc > 4 ? atol(argv[4]) : 15;
    if (!network || threads < 1 || batch < 1 || rounds < 1) {
        fprintf(stderr, "usage: bench_int8 mlp|tutorial-cnn|resnet50 THREADS BATCH [ROUNDS]\n");
        return 2;
    }
    const int64_t count = batch * network->input[0] * network->input[1] * network->input[2];
    float *images = malloc((size_t)count * sizeof *images);
    double *before = calloc((size_t)rounds, sizeof *before), *after = calloc((size_t)rounds, sizeof *after);
    if (!images || !before || !after) exit(2);
    for (int64_t i = 0; i < count; i++) images[i] = (float)bench_number(INPUT_TENSOR, (uint32_t)i);
    tu_graph *frozen = make_frozen(network, batch);
    const subject int8 = open_subject(make_quantized(frozen, images), threads),
                  f32 = open_subject(frozen, threads);
    time_run(&f32, images);
    time_run(&int8, images);
    for (long i = 0; i < rounds; i++) {
        before[i] = time_run(&f32, images);
        after[i] = time_run(&int8, images);
    }
    print_times("f32", before, (size_t)rounds);
    print_times("int8", after, (size_t)rounds);
    printf("int8 is %.2f times as fast by medians, %.2f by least times\n",
           median(before, (size_t)rounds) / median(after, (size_t)rounds), before[0] / after[0]);
    free(after);
    free(before);
    free(images);
    return 0;
}
