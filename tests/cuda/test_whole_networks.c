/* Compares whole networks on a GPU with the CPU: the loss and the gradient of every parameter, in each precision.
 *
 *     test_whole_networks [DEVICE [BATCH]]      gpu:0, 2
 *
 * Both devices start from the same state and batch. The error of the gradient is ‖gpu - cpu‖ / ‖cpu‖ over all
 * parameters together, because single tensors may be nearly zero. Limits depend on the precision: f32 differs by the
 * order of sums; tf32 rounds operands to 11 bits, bf16 to 8, in every layer; the CPU computes in f32. A relu may
 * switch between the two: one unit of a layer of 512, at a batch of 2, is 1 / sqrt(2 * 512) of the gradient, 3%.
 * Batch normalisation spreads such a flip over its whole channel.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { MAX_PARAMETERS = 200 };

typedef struct network {
    const char *name, *precision;
    double limit;
} network;

static const network networks[] = {
    {"mlp", "f32", 1e-4},          {"mlp", "tf32", 5e-2},          {"mlp", "bf16", 5e-2},
    {"tutorial-cnn", "f32", 1e-3}, {"tutorial-cnn", "tf32", 2e-2}, {"tutorial-cnn", "bf16", 1e-1},
    {"resnet20", "f32", 5e-3},     {"resnet20", "bf16", 5e-1},
};

typedef struct result {
    size_t count;
    float *values[MAX_PARAMETERS + 1]; /* gradients, then the loss */
    size_t elements[MAX_PARAMETERS + 1];
} result;

static bool fail(const char *what) {
    printf("FAILED  %s: %s\n", what, tu_message());
    return false;
}

static void release(result *r) {
    for (size_t i = 0; i <= r->count; i++) free(r->values[i]);
}

/* A batch of uniform noise images, the same for every device. */
static float *draw_images(size_t count) {
    float *images = malloc(count * sizeof *images);
    unsigned state = 1;
    for (size_t i = 0; images && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        images[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
    return images;
}

static bool run(tu_graph *graph, const tu_network_graph *net, const tu_value *fetch, const char *device,
                const char *precision, result *r) {
    tu_program *program = NULL;
    tu_state *state = NULL;
    size_t pixels = (size_t)tu_shape_elements(tu_value_shape(net->images));
    int64_t samples = tu_value_shape(net->images).dim[0];
    float *images = draw_images(pixels);
    int32_t *labels = calloc((size_t)samples, sizeof *labels);
    bool ok = images && labels &&
              tu_compile(graph, &program, .devices = device, .precision = precision, .fetch = fetch,
                         .fetch_count = r->count + 1) == TU_OK &&
              tu_state_new(graph, &state, .seed = 3) == TU_OK;
    void *results[MAX_PARAMETERS + 1];
    for (int64_t i = 0; labels && i < samples; i++) labels[i] = (int32_t)(i % 10);
    for (size_t i = 0; i <= r->count; i++) {
        r->elements[i] = (size_t)tu_shape_elements(tu_value_shape(fetch[i]));
        results[i] = r->values[i] = calloc(r->elements[i], sizeof(float));
    }
    ok = ok && tu_run(program, state, 2, (tu_feed[]){{net->images, images}, {net->labels, labels}},
                      results) == TU_OK;
    if (!ok) fail(device);
    tu_program_free(program);
    tu_state_free(state);
    free(images);
    free(labels);
    return ok;
}

static double error_of(const result *a, const result *b, size_t from, size_t to) {
    double difference = 0, norm = 0;
    for (size_t i = from; i < to; i++)
        for (size_t k = 0; k < a->elements[i]; k++) {
            double d = (double)a->values[i][k] - (double)b->values[i][k];
            difference += d * d;
            norm += (double)b->values[i][k] * (double)b->values[i][k];
        }
    return sqrt(difference / norm);
}

static bool compare(const network *n, const char *device, int64_t batch) {
    tu_graph *graph;
    tu_network_graph net = TU_SIZED(tu_network_graph);
    tu_value wrt[MAX_PARAMETERS], fetch[MAX_PARAMETERS + 1];
    result cpu = {0}, gpu = {0};
    if (tu_graph_new(&graph) != TU_OK) return fail(n->name);
    tu_set_training(graph, true);
    bool ok = tu_network_build(graph, n->name, &net, .batch = batch) == TU_OK;
    cpu.count = gpu.count = tu_trainable(graph, MAX_PARAMETERS, wrt);
    ok = ok && tu_gradients(net.loss, cpu.count, wrt, fetch) == TU_OK;
    fetch[cpu.count] = net.loss;
    ok = ok ? run(graph, &net, fetch, "cpu:0", "f32", &cpu) &&
                  run(graph, &net, fetch, device, n->precision, &gpu)
            : fail(n->name);
    if (ok) {
        double gradient = error_of(&gpu, &cpu, 0, cpu.count),
               loss = error_of(&gpu, &cpu, cpu.count, cpu.count + 1);
        ok = gradient <= n->limit && loss <= n->limit; /* false for NaN */
        printf("%s  %-13s %-5s %3zu gradients differ by %.1e, the loss by %.1e (limit %.0e)\n",
               ok ? "ok    " : "FAILED", n->name, n->precision, cpu.count, gradient, loss, n->limit);
    }
    release(&cpu);
    release(&gpu);
    tu_graph_free(graph);
    return ok;
}

int main(int argc, char **argv) {
    const char *device = argc > 1 ? argv[1] : "gpu:0";
    int64_t batch = argc > 2 ? atoll(argv[2]) : 2;
    int passed = 0, failed = 0;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if (compare(&networks[i], device, batch))
            passed++;
        else
            failed++;
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
