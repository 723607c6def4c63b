/* One network on many devices: the same graph, trained on one device, then with its batch shared by two.
 *
 * Nothing in the network, the feeds or the results says how many devices there are: that is two options of tu_compile. The
 * state is that of one network, so a program may go on where another, on other devices, has stopped.
 *
 *     replicated_training [DEVICES [STRATEGY]]       as in: "gpu:0-3" mirrored, or "cpu:0/2" central */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

enum { BATCH = 50, SIDE = 12, CLASSES = 10, STEPS = 20 };

typedef struct network {
    tu_graph *graph;
    tu_value images, labels, loss;
} network;

/* Batch normalisation takes the statistics of the whole batch, wherever its parts are. */
static tu_status build(network *n) {
    TU_TRY(tu_graph_new(&n->graph));
    n->images = tu_batch_input(n->graph, "images", TU_F32, TU_SHAPE(BATCH, SIDE, SIDE, 1));
    n->labels = tu_batch_input(n->graph, "labels", TU_I32, TU_SHAPE(BATCH));
    tu_value x = tu_conv2d(n->images, .filters = 8, .size = 3, .name = "conv1");
    x = tu_batch_norm(x, .act = TU_RELU, .name = "norm1");
    x = tu_dense(tu_flatten(x), .units = CLASSES, .name = "logits");
    n->loss = tu_mean(tu_cross_entropy(x, n->labels));
    tu_optimizer_values update = TU_SIZED(tu_optimizer_values);
    return tu_add_optimizer(n->loss, &update, .name = "momentum", .constant_rate = 0.05);
}

static void make_batch(float (*images)[SIDE * SIDE], int32_t *labels) {
    srand(3);
    for (int i = 0; i < BATCH; i++) {
        labels[i] = i % CLASSES;
        for (int k = 0; k < SIDE * SIDE; k++)
            images[i][k] = (float)rand() / (float)RAND_MAX + (k % CLASSES == labels[i] ? 0.5f : 0.0f);
    }
}

/* Trains on the devices, from the state as it is; `losses` are those of the steps. */
static tu_status train(const network *n, tu_state *state, const char *devices, const char *strategy,
                       float losses[STEPS]) {
    static float images[BATCH][SIDE * SIDE];
    static int32_t labels[BATCH];
    tu_program *program;
    make_batch(images, labels);
    TU_TRY(tu_compile(n->graph, &program, .devices = devices, .strategy = strategy, .fetch = &n->loss,
                      .fetch_count = 1, .updates = true));
    const tu_feed feeds[] = {{n->images, images}, {n->labels, labels}};
    tu_status status = TU_OK;
    for (int i = 0; i < STEPS && status == TU_OK; i++)
        status = tu_run(program, state, 2, feeds, (void *[]){&losses[i]});
    tu_program_free(program);
    return status;
}

/* The same steps twice, and a few more on one device from where the many have come to. */
static tu_status compare(const network *n, const char *devices, const char *strategy, bool *good) {
    float one[STEPS], many[STEPS], on[STEPS];
    tu_state *alone = NULL, *shared = NULL;
    tu_status status = tu_state_new(n->graph, &alone, .seed = 1);
    if (status == TU_OK) status = tu_state_new(n->graph, &shared, .seed = 1);
    if (status == TU_OK) status = train(n, alone, "cpu:0", NULL, one);
    if (status == TU_OK) status = train(n, shared, devices, strategy, many);
    if (status == TU_OK) status = train(n, shared, "cpu:0", NULL, on);
    tu_state_free(alone);
    tu_state_free(shared);
    TU_TRY(status);
    for (int i = 0; i < STEPS; i += STEPS / 4)
        printf("step %2d  loss %.6f on cpu:0, %.6f on %s\n", i + 1, (double)one[i], (double)many[i], devices);
    printf("step %2d  loss %.6f on cpu:0, gone on from there\n", 2 * STEPS, (double)on[STEPS - 1]);
    *good = fabsf(one[STEPS - 1] - many[STEPS - 1]) < 1e-3f && on[STEPS - 1] < many[STEPS - 1];
    return TU_OK;
}

int main(int argc, char **argv) {
    network n = {0};
    bool good = false;
    tu_status status = build(&n);
    if (status == TU_OK)
        status = compare(&n, argc > 1 ? argv[1] : "cpu:0/2", argc > 2 ? argv[2] : "mirrored", &good);
    if (status != TU_OK) fprintf(stderr, "%s\n", tu_message());
    tu_graph_free(n.graph);
    return good ? 0 : 1;
}
