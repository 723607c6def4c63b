/* Model parallelism by layers: the first layers run on one device, the others on a second, by placement only.
 *
 * tu_with_device assigns layers to devices. Their gradients and updates run on the same device, and the engine copies one
 * activation forward and its gradient back. The rest of the program, and its results, do not change.
 *
 *     model_parallel_layers [DEVICES FIRST SECOND]       for example: "gpu:0-1" gpu:0 gpu:1 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { BATCH = 64, FEATURES = 256, UNITS = 256, CLASSES = 10, STEPS = 30, MAX_VARIABLES = 16 };

typedef struct training_step {
    tu_graph *graph;
    tu_value x, y, loss;
    tu_program *program;
} training_step;

/* Builds the graph of a training step. If both devices are NULL, the engine places all operations. */
static tu_status build(training_step *s, const char *first, const char *second) {
    TU_TRY(tu_graph_new(&s->graph));
    tu_graph *g = s->graph;
    s->x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(BATCH, FEATURES));
    s->y = tu_batch_input(g, "y", TU_I32, TU_SHAPE(BATCH));
    tu_value h = s->x;
    tu_with_device(g, first) {
        h = tu_dense(h, .units = UNITS, .act = TU_RELU, .name = "layer1");
        h = tu_dense(h, .units = UNITS, .act = TU_RELU, .name = "layer2");
    }
    tu_with_device(g, second) {
        h = tu_dense(h, .units = UNITS, .act = TU_RELU, .name = "layer3");
        h = tu_dense(h, .units = CLASSES, .name = "layer4");
        s->loss = tu_mean(tu_cross_entropy(h, s->y));
    }
    tu_value weights[MAX_VARIABLES], gradients[MAX_VARIABLES];
    size_t count = tu_trainable(g, MAX_VARIABLES, weights);
    TU_TRY(tu_gradients(s->loss, count, weights, gradients));
    for (size_t i = 0; i < count; i++)
        tu_assign(weights[i], tu_sub(weights[i], tu_scale(gradients[i], 0.05)));
    return tu_graph_status(g);
}

static void make_batch(float (*x)[FEATURES], int *y) {
    srand(7);
    for (int i = 0; i < BATCH; i++) {
        y[i] = i % CLASSES;
        for (int k = 0; k < FEATURES; k++)
            x[i][k] = (float)rand() / (float)RAND_MAX + (k % CLASSES == y[i] ? 1.0f : 0.0f);
    }
}

static tu_status train(training_step *s, const char *devices, float *losses) {
    static float x[BATCH][FEATURES];
    int y[BATCH];
    tu_state *state = NULL;
    make_batch(x, y);
    TU_TRY(tu_compile(s->graph, &s->program, .devices = devices, .threads = 1, .fetch = &s->loss,
                      .fetch_count = 1, .updates = true));
    TU_TRY(tu_state_new(s->graph, &state, .seed = 1));
    tu_status status = TU_OK;
    for (int i = 0; i < STEPS && status == TU_OK; i++)
        status = tu_run(s->program, state, 2, (tu_feed[]){{s->x, x}, {s->y, y}}, (void *[]){&losses[i]});
    tu_state_free(state);
    return status;
}

static void free_step(training_step *s) {
    tu_program_free(s->program);
    tu_graph_free(s->graph);
}

/* Prints the copies between the devices in a step. */
static void print_copies(const tu_program *program) {
    tu_placement p = TU_SIZED(tu_placement);
    for (size_t i = 0;
         i < tu_program_placement_count(program) && tu_program_placement(program, i, &p) == TU_OK; i++)
        if (p.from)
            printf("%s -> %s: %6llu bytes of %s\n", p.from, p.device, (unsigned long long)p.bytes_in, p.node);
}

int main(int argc, char **argv) {
    const char *devices = argc > 3 ? argv[1] : "cpu:0/2", *first = argc > 3 ? argv[2] : "cpu:0.0",
               *second = argc > 3 ? argv[3] : "cpu:0.1";
    float one_device[STEPS], two_devices[STEPS];
    training_step one = {0}, two = {0};
    tu_status status = build(&one, NULL, NULL);
    if (status == TU_OK) status = build(&two, first, second);
    if (status == TU_OK) status = train(&one, "cpu:0", one_device);
    if (status == TU_OK) status = train(&two, devices, two_devices);
    if (status == TU_OK) print_copies(two.program);
    if (status != TU_OK) fprintf(stderr, "%s\n", tu_message());
    free_step(&one);
    free_step(&two);
    if (status != TU_OK) return 1;
    printf("loss after %d steps: %.6f on one device, %.6f on two\n", STEPS, (double)one_device[STEPS - 1],
           (double)two_devices[STEPS - 1]);
    bool has_learned = two_devices[STEPS - 1] < two_devices[0];
    return has_learned && fabsf(one_device[STEPS - 1] - two_devices[STEPS - 1]) < 1e-3f ? 0 : 1;
}
