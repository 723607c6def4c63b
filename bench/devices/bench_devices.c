/* Measures programs on several devices: overlap of copies and computation, independent networks in parallel, and
 * the cost of a device that has nothing to do.
 *
 *     bench_devices overlap LIST [TRACE]         a chain of operations on the first device, whose values are copied
 *                                                to the second
 *     bench_devices networks LIST COUNT STREAMS UNITS BATCH
 *                                                COUNT independent small networks in one graph, distributed over the
 *                                                devices of LIST, with multi-step calls
 *     bench_devices pinned LIST DEVICE           one small network, placed entirely on DEVICE of LIST
 *
 * Prints one JSON object. Times are the minimum over several blocks, which other load on the machine affects
 * least. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "../measure.h"

enum { BLOCKS = 7, TRACED_STEPS = 5, MAX_DEVICES = 16, MAX_NETWORKS = 16, MAX_NAME = 64 };

typedef struct work {
    tu_graph *graph;
    tu_value input; /* inputs[0] */
    tu_value inputs[MAX_NETWORKS], results[MAX_NETWORKS];
    size_t input_count, result_count;
    tu_program *program;
    tu_state *state;
    float *data; /* fed to every input */
} work;

static tu_value add_input(work *w, tu_shape shape) {
    char name[24];
    snprintf(name, sizeof name, "x%zu", w->input_count);
    return w->inputs[w->input_count++] = tu_input(w->graph, name, TU_F32, shape);
}

static work new_work(int64_t rows, int64_t columns) {
    work w = {0};
    must(tu_graph_new(&w.graph));
    tu_set_training(w.graph, true);
    w.input = add_input(&w, TU_SHAPE(rows, columns));
    size_t count = (size_t)(rows * columns);
    w.data = calloc(count, sizeof *w.data);
    for (size_t i = 0; w.data && i < count; i++) w.data[i] = (float)((i * 7919) % 1009) / 1009 - 0.5f;
    return w;
}

static void free_work(work *w) {
    tu_program_free(w->program);
    tu_state_free(w->state);
    tu_graph_free(w->graph);
    free(w->data);
}

static void compile(work *w, const char *devices, bool updates, int streams) {
    must(tu_compile(w->graph, &w->program, .devices = devices, .threads = 1, .streams = streams,
                    .fetch = w->results, .fetch_count = w->result_count, .updates = updates));
    must(tu_state_new(w->graph, &w->state, .seed = 1));
}

static void run(const work *w, int steps) {
    float results[MAX_NETWORKS];
    tu_feed feeds[MAX_NETWORKS];
    void *fetches[MAX_NETWORKS];
    for (size_t i = 0; i < w->input_count; i++) feeds[i] = (tu_feed){w->inputs[i], w->data};
    for (size_t i = 0; i < w->result_count; i++) fetches[i] = &results[i];
    for (int i = 0; i < steps; i++) must(tu_run(w->program, w->state, w->input_count, feeds, fetches));
}

/* Runs the steps in one multi-step call. */
static void run_many(const work *w, int steps) {
    tu_feed_many feeds[MAX_NETWORKS];
    for (size_t i = 0; i < w->input_count; i++)
        feeds[i] = (tu_feed_many){.input = w->inputs[i], .data = w->data, .same_batch = true};
    must(tu_run_many(w->program, w->state, (size_t)steps, w->input_count, feeds, NULL));
}

/* Writes the names of the devices of `list`; compiles a trivial program to get them. */
static size_t list_devices(const char *list, char names[MAX_DEVICES][MAX_NAME]) {
    work w = new_work(1, 1);
    w.results[w.result_count++] = tu_sum(w.input);
    compile(&w, list, false, 0);
    tu_device_report report = TU_SIZED(tu_device_report);
    size_t count = 0;
    while (count < MAX_DEVICES && count < tu_program_device_count(w.program) &&
           tu_program_device(w.program, count, &report) == TU_OK)
        snprintf(names[count++], sizeof names[0], "%s", report.device);
    free_work(&w);
    return count;
}

/* Returns the milliseconds per step. */
static double measure(const work *w, void (*run_steps)(const work *w, int steps)) {
    enum { FIRST = 40 };
    run_steps(w, FIRST);
    double start = seconds_now();
    run_steps(w, FIRST);
    int steps = (int)(FIRST * 0.3 / (seconds_now() - start)) + 1;
    run_steps(w, steps); /* the first call of this size allocates its buffers */
    double min_ms = 1e30;
    for (int i = 0; i < BLOCKS; i++) {
        start = seconds_now();
        run_steps(w, steps);
        double ms = 1e3 * (seconds_now() - start) / steps;
        if (ms < min_ms) min_ms = ms;
    }
    return min_ms;
}

/* ---- overlap ---- */

/* Computes h = tanh(h x) LINKS times on device `from`; device `to` computes two matrix products of each h. */
static void build_overlap(work *w, const char *from, const char *to) {
    enum { LINKS = 16 };
    tu_value h = w->input, sum = {0};
    tu_with_device(w->graph, to) sum = tu_fill(w->graph, TU_F32, TU_SCALAR, 0);
    for (int i = 0; i < LINKS; i++) {
        tu_with_device(w->graph, from) h = tu_tanh(tu_matmul(h, w->input));
        tu_with_device(w->graph, to) {
            tu_value cube = tu_matmul(tu_matmul(h, h), h);
            sum = tu_add(sum, tu_sum(cube));
        }
    }
    w->results[w->result_count++] = sum;
}

static void measure_overlap(const char *list, const char *trace) {
    char names[MAX_DEVICES][MAX_NAME];
    if (list_devices(list, names) != 2)
        exit((fprintf(stderr, "bench_devices: '%s': expected two devices\n", list), 2));
    work w = new_work(512, 512);
    build_overlap(&w, names[0], names[1]);
    compile(&w, list, false, 0);
    run(&w, 3);
    must(tu_program_trace_begin(w.program));
    run(&w, TRACED_STEPS);
    tu_program_trace_end(w.program);
    tu_trace_report r = TU_SIZED(tu_trace_report);
    must(tu_trace_device(w.program, 1, &r));
    printf("{\"overlap\":\"%s to %s\",\"copying_ms\":%.4f,\"overlapped_percent\":%.1f,\"run_ms\":%.3f}\n",
           names[0], names[1], 1e3 * r.copying / TRACED_STEPS, 100 * r.overlapped / r.copying,
           1e3 * r.runs / TRACED_STEPS);
    if (trace) must(tu_trace_save(1, &w.program, trace));
    free_work(&w);
}

/* ---- networks ---- */

/* Builds a network as wide as its input; returns the loss. */
static tu_value build_network(tu_value x) {
    int64_t units = tu_value_shape(x).dim[1];
    for (int i = 1; i <= 3; i++) {
        char name[24];
        snprintf(name, sizeof name, "hidden%d", i);
        x = tu_dense(x, .units = units, .act = TU_RELU, .name = name);
    }
    return tu_mean(tu_square(tu_dense(x, .units = 10, .name = "out")));
}

/* Builds `count` networks and their updates. The optimizer gets the sum of the losses, which is not computed: each
 * network's gradients depend only on its own loss. */
static void build_networks(work *w, int count, size_t devices, char names[MAX_DEVICES][MAX_NAME]) {
    tu_value losses = {0};
    for (int i = 0; i < count && i < MAX_NETWORKS && devices > 0; i++) {
        char scope[24];
        snprintf(scope, sizeof scope, "network%d", i + 1);
        tu_value input = i ? add_input(w, tu_value_shape(w->input)) : w->input;
        tu_with_device(w->graph, names[(size_t)i % devices]) tu_scope(w->graph, scope) {
            tu_value loss = build_network(input);
            losses = i ? tu_add(losses, loss) : loss;
            w->results[w->result_count++] = loss;
        }
    }
    must(tu_add_sgd(losses, 0.01, 0.9));
}

static void measure_networks(const char *list, int count, int streams, int units, int batch) {
    char names[MAX_DEVICES][MAX_NAME];
    size_t devices = list_devices(list, names);
    work w = new_work(batch, units);
    build_networks(&w, count, devices, names);
    compile(&w, list, true, streams);
    tu_multi_step_report report = TU_SIZED(tu_multi_step_report);
    must(tu_program_multi_step(w.program, &report));
    printf("{\"networks\":%d,\"devices\":\"%s\",\"streams\":%d,\"at_once\":%s,\"ms_per_step\":%.5f}\n", count,
           list, streams, report.in_one_call ? "true" : "false", measure(&w, run_many));
    free_work(&w);
}

static void measure_pinned(const char *list, const char *device) {
    work w = new_work(128, 256);
    char names[MAX_DEVICES][MAX_NAME];
    snprintf(names[0], sizeof names[0], "%s", device);
    build_networks(&w, 1, 1, names);
    compile(&w, list, true, 0);
    printf("{\"pinned\":\"%s\",\"devices\":\"%s\",\"ms_per_step\":%.5f}\n", device, list, measure(&w, run));
    free_work(&w);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "overlap") == 0 && (argc == 3 || argc == 4))
        measure_overlap(argv[2], argc == 4 ? argv[3] : NULL);
    else if (strcmp(mode, "networks") == 0 && argc == 7)
        measure_networks(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), atoi(argv[6]));
    else if (strcmp(mode, "pinned") == 0 && argc == 4)
        measure_pinned(argv[2], argv[3]);
    else
        return fprintf(
                   stderr,
                   "usage: bench_devices overlap LIST [TRACE] | networks LIST COUNT STREAMS UNITS BATCH | "
                   "pinned LIST DEVICE\n"),
               2;
    return 0;
}
