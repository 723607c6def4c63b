/* Compares models on a GPU with models on the CPU, for several batch sizes and precisions.
 *
 *     test_models [DEVICE [SIZE]]      gpu:0, small networks; SIZE "full": as in their papers
 *
 * The error is the largest difference of a logit, divided by the largest logit. Limits depend on the precision: f32 differs
 * by the order of sums; tf32 rounds operands to 11 bits, bf16 to 8, in every layer; the CPU computes in f32. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { SAMPLES = 5 };

typedef struct network {
    const char *name;
    int64_t size, channels, base, full_size; /* base: of the small version; full_size 0: same as size */
} network;

static const network networks[] = {{"mlp", 28, 1, 64, 0},
                                   {"tutorial-cnn", 24, 3, 16, 0},
                                   {"resnet20", 32, 3, 8, 0},
                                   {"resnet50", 32, 3, 8, 224}};

static const struct {
    const char *name;
    double limit;
} precisions[] = {{"f32", 1e-5}, {"tf32", 1e-2}, {"bf16", 1e-1}, {"f16", 2e-2}};

static bool fail(const char *what) {
    printf("FAILED  %s: %s\n", what, tu_message());
    return false;
}

/* Computes the logits of all samples. Returns their number; 0 for a failure. */
static size_t run(const tu_graph *graph, const tu_state *state, const float *images, const char *device,
                  const char *precision, int64_t max_batch, float **logits) {
    tu_model *model = NULL;
    tu_type row;
    *logits = NULL;
    bool ok = tu_model_new(graph, state, &model, .devices = device, .precision = precision,
                           .max_batch = max_batch) == TU_OK &&
              tu_model_output(model, 0, NULL, &row) == TU_OK;
    size_t count = ok ? SAMPLES * (size_t)tu_shape_elements(row.shape) : 0;
    if (ok) *logits = calloc(count, sizeof **logits);
    ok = ok && *logits && tu_model_run(model, SAMPLES, images, *logits) == TU_OK;
    if (!ok) fail(device);
    tu_model_free(model);
    return ok ? count : 0;
}

static double error_of(const float *a, const float *b, size_t count) {
    double difference = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        difference = fmax(difference, fabs((double)a[i] - (double)b[i]));
        largest = fmax(largest, fabs((double)b[i]));
        if (isnan(a[i])) return NAN;
    }
    return difference / largest;
}

static bool compare(const network *n, const tu_graph *graph, const tu_state *state, const float *images,
                    const char *device) {
    float *expected, *actual;
    size_t count = run(graph, state, images, "cpu:0", "f32", 4, &expected);
    bool ok = count > 0;
    for (size_t p = 0; ok && p < sizeof precisions / sizeof *precisions; p++)
        for (int64_t batch = 1; batch <= 4; batch *= 4) {
            bool ran = run(graph, state, images, device, precisions[p].name, batch, &actual) == count;
            double error = ran ? error_of(actual, expected, count) : NAN;
            bool passes = error <= precisions[p].limit; /* false for NaN */
            printf("%s  %-13s %-5s batch %d: logits differ by %.1e (limit %.0e)\n",
                   passes ? "ok    " : "FAILED", n->name, precisions[p].name, (int)batch, error,
                   precisions[p].limit);
            ok = ok && passes;
            free(actual);
        }
    free(expected);
    return ok;
}

static bool test(const network *n, const char *device, bool is_full) {
    int64_t size = is_full && n->full_size ? n->full_size : n->size,
            pixels = SAMPLES * size * size * n->channels;
    tu_graph *graph;
    tu_state *state = NULL;
    tu_value logits;
    float *images = calloc((size_t)pixels, sizeof *images);
    for (int64_t i = 0; images && i < pixels; i++) images[i] = (float)((i * 7919 + i / 3) % 1009) / 504 - 1;
    if (!images || tu_graph_new(&graph) != TU_OK) return fail(n->name);
    tu_set_training(graph, false);
    tu_value x = tu_batch_input(graph, "images", TU_F32, TU_SHAPE(1, size, size, n->channels));
    bool ok = tu_network_logits(x, n->name, &logits, .base = is_full ? 0 : n->base) == TU_OK;
    if (ok) tu_output(logits, "logits");
    ok = ok && tu_state_new(graph, &state, .seed = 3) == TU_OK;
    ok = ok ? compare(n, graph, state, images, device) : fail(n->name);
    tu_state_free(state);
    tu_graph_free(graph);
    free(images);
    return ok;
}

int main(int argc, char **argv) {
    const char *device = argc > 1 ? argv[1] : "gpu:0";
    bool is_full = argc > 2 && strcmp(argv[2], "full") == 0;
    int failed = 0;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        failed += !test(&networks[i], device, is_full);
    printf("%d failed\n", failed);
    return failed > 0;
}
