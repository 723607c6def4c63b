/* Trains a network step by step: layers, gradients, updates and the loop.
 *
 * The images are synthetic, 28x28 pixels in ten classes: each class is a fixed random pattern, each image its pattern with
 * noise. */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

enum { BATCH = 128, PIXELS = 784, CLASSES = 10, STEPS = 60, MAX_VARIABLES = 16 };

static float noise(void) {
    return (float)rand() / (float)RAND_MAX * 2 - 1;
}

static void make_batch(float (*patterns)[PIXELS], float (*images)[PIXELS], int *labels) {
    for (int i = 0; i < BATCH; i++) {
        labels[i] = rand() % CLASSES;
        for (int p = 0; p < PIXELS; p++) images[i][p] = 0.3f * patterns[labels[i]][p] + noise();
    }
}

int main(void) {
    static float patterns[CLASSES][PIXELS], images[BATCH][PIXELS];
    int labels[BATCH];
    for (int k = 0; k < CLASSES; k++)
        for (int p = 0; p < PIXELS; p++) patterns[k][p] = noise();

    tu_graph *g;
    if (tu_graph_new(&g) != TU_OK) return 1;
    tu_value x = tu_batch_input(g, "images", TU_F32, TU_SHAPE(BATCH, PIXELS));
    tu_value y = tu_batch_input(g, "labels", TU_I32, TU_SHAPE(BATCH));
    tu_value h = tu_dense(x, .units = 512, .act = TU_RELU, .name = "hidden1");
    h = tu_dense(h, .units = 512, .act = TU_RELU, .name = "hidden2");
    tu_value logits = tu_dense(h, .units = CLASSES, .name = "logits");
    tu_value loss = tu_mean(tu_cross_entropy(logits, y));
    tu_value is_correct = tu_equal(tu_argmax(logits, -1), tu_cast(y, TU_I64));
    tu_value accuracy = tu_mean(tu_cast(is_correct, TU_F32));

    tu_value weights[MAX_VARIABLES], gradients[MAX_VARIABLES];
    size_t count = tu_trainable(g, MAX_VARIABLES, weights);
    tu_gradients(loss, count, weights, gradients);
    for (size_t i = 0; i < count; i++)
        tu_assign(weights[i], tu_sub(weights[i], tu_scale(gradients[i], 0.02)));

    tu_program *program = NULL;
    tu_state *state = NULL;
    tu_value fetch[] = {loss, accuracy};
    if (tu_compile(g, &program, .devices = "all", .fetch = fetch, .fetch_count = 2, .updates = true) !=
            TU_OK ||
        tu_state_new(g, &state, .seed = 1) != TU_OK) {
        fprintf(stderr, "%s\n", tu_message());
        return 2;
    }
    float first_loss = 0, results[2] = {0}; /* loss, accuracy */
    for (int i = 0; i < STEPS; i++) {
        make_batch(patterns, images, labels);
        if (tu_run(program, state, 2, (tu_feed[]){{x, images}, {y, labels}},
                   (void *[]){&results[0], &results[1]}) != TU_OK) {
            fprintf(stderr, "%s\n", tu_message());
            return 2;
        }
        if (i == 0) first_loss = results[0];
        if (i % 10 == 9 || i == 0)
            printf("step %3d   loss %.4f   accuracy %5.1f%%\n", i + 1, results[0], 100 * results[1]);
    }
    tu_program_free(program);
    tu_state_free(state);
    tu_graph_free(g);
    return results[0] < first_loss ? 0 : 1; /* the test suite runs this: it must have learned */
}
