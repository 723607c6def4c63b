/* Training a network by hand: layers, gradients, updates and the loop, with nothing hidden.
 *
 * Ten classes of 28x28 images are made up: each class is a fixed random pattern, each image its pattern in noise. */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

enum { BATCH = 128, PIXELS = 784, CLASSES = 10, STEPS = 60, MOST = 16 };

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
    tu_value hits = tu_equal(tu_argmax(logits, -1), tu_cast(y, TU_I64));
    tu_value accuracy = tu_mean(tu_cast(hits, TU_F32));

    tu_value weights[MOST], gradients[MOST];
    size_t count = tu_trainable(g, MOST, weights);
    tu_gradients(loss, count, weights, gradients);
    for (size_t i = 0; i < count; i++)
        tu_assign(weights[i], tu_sub(weights[i], tu_scale(gradients[i], 0.02)));

    tu_program *step = NULL;
    tu_state *state = NULL;
    tu_value fetch[] = {loss, accuracy};
    if (tu_compile(g, &step, .devices = "all", .fetch = fetch, .fetch_count = 2, .updates = true) != TU_OK ||
        tu_state_new(g, &state, .seed = 1) != TU_OK) {
        fprintf(stderr, "%s\n", tu_message());
        return 2;
    }
    float first = 0, now[2] = {0};
    for (int i = 0; i < STEPS; i++) {
        make_batch(patterns, images, labels);
        if (tu_run(step, state, 2, (tu_feed[]){{x, images}, {y, labels}}, (void *[]){&now[0], &now[1]}) !=
            TU_OK) {
            fprintf(stderr, "%s\n", tu_message());
            return 2;
        }
        if (i == 0) first = now[0];
        if (i % 10 == 9 || i == 0)
            printf("step %3d   loss %.4f   accuracy %5.1f%%\n", i + 1, now[0], 100 * now[1]);
    }
    tu_program_free(step);
    tu_state_free(state);
    tu_graph_free(g);
    return now[0] < first ? 0 : 1; /* run as a test: it must have learned */
}
