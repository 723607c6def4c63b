/* Trains eight networks with eight learning rates as one program, and gives the place of the worst to a ninth.
 *
 * A stack computes networks of one structure at once; numbers in which they differ, here the rates, are variables. Steps of
 * one network after another would leave a fast device idle. The images are synthetic: see train_mlp.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

enum { NETWORKS = 8, BATCH = 32, PIXELS = 64, CLASSES = 4, STEPS = 100, MAX_VARIABLES = 16 };

static float noise(void) {
    return (float)rand() / (float)RAND_MAX * 2 - 1;
}

static void make_batch(float (*patterns)[PIXELS], float (*images)[PIXELS], int *labels) {
    for (int i = 0; i < BATCH; i++) {
        labels[i] = rand() % CLASSES;
        for (int p = 0; p < PIXELS; p++) images[i][p] = 0.3f * patterns[labels[i]][p] + noise();
    }
}

/* Builds a network with its update. */
static tu_graph *build(double rate) {
    tu_graph *g;
    tu_value weights[MAX_VARIABLES], gradients[MAX_VARIABLES];
    if (tu_graph_new(&g) != TU_OK) exit(1);
    tu_value x = tu_batch_input(g, "images", TU_F32, TU_SHAPE(BATCH, PIXELS));
    tu_value y = tu_batch_input(g, "labels", TU_I32, TU_SHAPE(BATCH));
    tu_value h = tu_dense(x, .units = 32, .act = TU_RELU, .name = "hidden");
    tu_value loss = tu_mean(tu_cross_entropy(tu_dense(h, .units = CLASSES, .name = "logits"), y));
    size_t count = tu_trainable(g, MAX_VARIABLES, weights);
    tu_gradients(loss, count, weights, gradients);
    for (size_t i = 0; i < count; i++)
        tu_assign(weights[i], tu_sub(weights[i], tu_scale(gradients[i], rate)));
    tu_output(loss, "loss");
    return g;
}

static tu_status insert(tu_stacked *stack, tu_state *all, size_t place, tu_graph *network) {
    tu_state *one;
    tu_status status = tu_state_new(network, &one, .seed = place);
    if (status == TU_OK) status = tu_stacked_insert(stack, all, place, network, one);
    tu_state_free(one);
    return status;
}

/* All networks get the same images. */
static tu_status train(tu_stacked *stack, tu_program *program, tu_state *all, float (*patterns)[PIXELS],
                       float *losses) {
    static float images[NETWORKS][BATCH][PIXELS];
    static int labels[NETWORKS][BATCH];
    tu_graph *g = tu_stacked_graph(stack);
    for (int step = 0; step < STEPS; step++) {
        make_batch(patterns, images[0], labels[0]);
        for (int i = 1; i < NETWORKS; i++) {
            memcpy(images[i], images[0], sizeof images[0]);
            memcpy(labels[i], labels[0], sizeof labels[0]);
        }
        const tu_feed feeds[] = {{tu_find(g, "images"), images}, {tu_find(g, "labels"), labels}};
        tu_status status = tu_run(program, all, 2, feeds, (void *[]){losses});
        if (status != TU_OK) return status;
    }
    return TU_OK;
}

static int fail(void) {
    fprintf(stderr, "%s\n", tu_message());
    return 1;
}

int main(void) {
    static float patterns[CLASSES][PIXELS];
    double rates[NETWORKS];
    float losses[NETWORKS];
    tu_graph *networks[NETWORKS];
    tu_stacked *stack;
    tu_state *all;
    tu_program *program;
    for (int k = 0; k < CLASSES; k++)
        for (int p = 0; p < PIXELS; p++) patterns[k][p] = noise();
    for (int i = 0; i < NETWORKS; i++) networks[i] = build(rates[i] = 0.001 * (double)(1 << i));

    if (tu_stacked_new(NETWORKS, networks, &stack) != TU_OK) return fail();
    tu_value loss = tu_find_output(tu_stacked_graph(stack), "loss"); /* one per network */
    if (tu_compile(tu_stacked_graph(stack), &program, .fetch = &loss, .fetch_count = 1, .updates = true) !=
            TU_OK ||
        tu_state_new(tu_stacked_graph(stack), &all) != TU_OK)
        return fail();
    for (size_t i = 0; i < NETWORKS; i++)
        if (insert(stack, all, i, networks[i]) != TU_OK) return fail();
    if (train(stack, program, all, patterns, losses) != TU_OK) return fail();

    int worst = 0, best = 0;
    for (int i = 0; i < NETWORKS; i++) {
        printf("rate %.3f  loss %.4f\n", rates[i], (double)losses[i]);
        if (losses[i] > losses[worst]) worst = i;
        if (losses[i] < losses[best]) best = i;
    }
    float before = losses[worst];
    tu_graph *ninth = build(1.5 * rates[best]);
    if (insert(stack, all, (size_t)worst, ninth) != TU_OK) return fail();
    if (train(stack, program, all, patterns, losses) != TU_OK) return fail();
    printf("rate %.3f  loss %.4f  in the place of rate %.3f\n", 1.5 * rates[best], (double)losses[worst],
           rates[worst]);

    tu_program_free(program);
    tu_state_free(all);
    tu_stacked_free(stack);
    tu_graph_free(ninth);
    for (int i = 0; i < NETWORKS; i++) tu_graph_free(networks[i]);
    return losses[worst] < before ? 0 : 1;
}
