/* Tensor parallelism: each of two devices computes half of the units of every layer, by placement only.
 *
 * A dense layer with half of the weights computes half of the units. The two halves are computed in parallel, then
 * concatenated for the next layer. Each gradient runs on the device of its forward operation, so a device stores,
 * differentiates and updates its half of all weights.
 *
 *     model_parallel_halves [DEVICES FIRST SECOND]       for example: "gpu:0-1" gpu:0 gpu:1 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { BATCH = 64, FEATURES = 256, UNITS = 512, CLASSES = 10, LAYERS = 3, STEPS = 30, MAX_VARIABLES = 32 };

/* Both halves read all of `x`. They are concatenated on the first device; the engine copies the half of the other. */
static tu_value layer(tu_value x, int number, const char *const devices[2]) {
    tu_value halves[2];
    char name[32];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "layer%d_%s", number, i ? "right" : "left");
        tu_with_device(x.graph, devices[i]) halves[i] =
            tu_dense(x, .units = UNITS / 2, .act = TU_RELU, .name = name);
    }
    tu_value joined = x;
    tu_with_device(x.graph, devices[0]) joined = tu_concat(halves, 2, 1);
    return joined;
}

static void make_batch(float (*x)[FEATURES], int *y) {
    srand(7);
    for (int i = 0; i < BATCH; i++) {
        y[i] = i % CLASSES;
        for (int k = 0; k < FEATURES; k++)
            x[i][k] = (float)rand() / (float)RAND_MAX + (k % CLASSES == y[i] ? 1.0f : 0.0f);
    }
}

static tu_status train(tu_program *program, tu_state *state, tu_value x, tu_value y, float *first,
                       float *last) {
    static float images[BATCH][FEATURES];
    int labels[BATCH];
    make_batch(images, labels);
    for (int i = 0; i < STEPS; i++) {
        TU_TRY(tu_run(program, state, 2, (tu_feed[]){{x, images}, {y, labels}}, (void *[]){last}));
        if (i == 0) *first = *last;
    }
    return TU_OK;
}

/* Prints the bytes of weights on each device. */
static void print_variables(const tu_program *program) {
    tu_memory_report memory = TU_SIZED(tu_memory_report);
    for (size_t i = 0;
         i < tu_program_device_count(program) && tu_program_memory(program, i, &memory) == TU_OK; i++)
        printf("%s has %llu bytes of weights\n", memory.device, (unsigned long long)memory.variable_bytes);
}

int main(int argc, char **argv) {
    const char *list = argc > 3 ? argv[1] : "cpu:0/2";
    const char *const devices[2] = {argc > 3 ? argv[2] : "cpu:0.0", argc > 3 ? argv[3] : "cpu:0.1"};
    tu_graph *g;
    if (tu_graph_new(&g) != TU_OK) return 1;
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(BATCH, FEATURES));
    tu_value y = tu_batch_input(g, "y", TU_I32, TU_SHAPE(BATCH)), h = x, loss = x;
    for (int i = 0; i < LAYERS; i++) h = layer(h, i + 1, devices);
    tu_with_device(g, devices[0]) {
        h = tu_dense(h, .units = CLASSES, .name = "logits");
        loss = tu_mean(tu_cross_entropy(h, y));
    }
    tu_value weights[MAX_VARIABLES], gradients[MAX_VARIABLES];
    size_t count = tu_trainable(g, MAX_VARIABLES, weights);
    tu_gradients(loss, count, weights, gradients);
    for (size_t i = 0; i < count; i++)
        tu_assign(weights[i], tu_sub(weights[i], tu_scale(gradients[i], 0.05)));

    tu_program *program = NULL;
    tu_state *state = NULL;
    float first = 0, last = 0;
    bool ok = tu_compile(g, &program, .devices = list, .fetch = &loss, .fetch_count = 1, .updates = true) ==
                  TU_OK &&
              tu_state_new(g, &state, .seed = 1) == TU_OK &&
              train(program, state, x, y, &first, &last) == TU_OK;
    if (!ok) fprintf(stderr, "%s\n", tu_message());
    if (ok) {
        tu_placement_totals totals = TU_SIZED(tu_placement_totals);
        print_variables(program);
        tu_program_placement_totals(program, &totals);
        printf("%zu copies of %llu bytes per step\n", totals.copies, (unsigned long long)totals.copied_bytes);
        printf("loss %.4f in the first step, %.4f after %d steps\n", (double)first, (double)last, STEPS);
    }
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    return ok && last < first ? 0 : 1;
}
