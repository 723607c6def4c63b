/* Data parallelism: trains the same graph on one device, and with its batch split across two.
 *
 * The network, the feeds and the results do not depend on the number of devices; two options of tu_compile select them. The
 * state is that of one network, so a program can continue with the state of another program on other devices.
 *
 *     replicated_training [DEVICES [STRATEGY]]       for example: "gpu:0-3" mirrored, or "cpu:0/2" central */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

enum { BATCH = 50, SIDE = 12, CLASSES = 10, STEPS = 20 };

typedef struct network {
    tu_graph *graph;
    tu_value images, labels, loss;
} network;

/* Batch normalisation uses the statistics of the whole batch, on any number of devices. */
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

/* Trains on the devices, starting from the given state; returns the loss of each step. */
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

/* Runs the same steps on one device and on all, then continues the latter on one device. */
static tu_status compare(const network *n, const char *devices, const char *strategy, bool *is_correct) {
    float single[STEPS], replicated[STEPS], continued[STEPS];
    tu_state *single_state = NULL, *replicated_state = NULL;
    tu_status status = tu_state_new(n->graph, &single_state, .seed = 1);
    if (status == TU_OK) status = tu_state_new(n->graph, &replicated_state, .seed = 1);
    if (status == TU_OK) status = train(n, single_state, "cpu:0", NULL, single);
    if (status == TU_OK) status = train(n, replicated_state, devices, strategy, replicated);
    if (status == TU_OK) status = train(n, replicated_state, "cpu:0", NULL, continued);
    tu_state_free(single_state);
    tu_state_free(replicated_state);
    TU_TRY(status);
    for (int i = 0; i < STEPS; i += STEPS / 4)
        printf("step %2d  loss %.6f on cpu:0, %.6f on %s\n", i + 1, (double)single[i], (double)replicated[i],
               devices);
    printf("step %2d  loss %.6f, continued on cpu:0\n", 2 * STEPS, (double)continued[STEPS - 1]);
    *is_correct = fabsf(single[STEPS - 1] - replicated[STEPS - 1]) < 1e-3f &&
                  continued[STEPS - 1] < replicated[STEPS - 1];
    return TU_OK;
}

int main(int argc, char **argv) {
    network n = {0};
    bool is_correct = false;
    tu_status status = build(&n);
    if (status == TU_OK)
        status = compare(&n, argc > 1 ? argv[1] : "cpu:0/2", argc > 2 ? argv[2] : "mirrored", &is_correct);
    if (status != TU_OK) fprintf(stderr, "%s\n", tu_message());
    tu_graph_free(n.graph);
    return is_correct ? 0 : 1;
}
