/* Trains with batch size 64 and infers with batch size 1: two programs that share one state.
 *
 * Shapes are static, so each batch size needs its own graph and program. Programs find variables in the state by name: the
 * inference graph builds the same layers in inference mode, and its program uses the weights that the training program
 * has computed, without a copy. */
#include <stdio.h>
#include <stdlib.h>

#include <tutti/tutti.h>

enum { BATCH = 64, FEATURES = 20, CLASSES = 3, STEPS = 150, TESTS = 200 };

/* Builds the network, for any batch size and mode. */
static tu_value network(tu_value x) {
    tu_value h = tu_dense(x, .units = 32, .no_bias = true, .name = "hidden");
    h = tu_batch_norm(h, .act = TU_RELU, .name = "norm");
    return tu_dense(tu_dropout(h, 0.2), .units = CLASSES, .name = "logits");
}

/* Fills x with a random sample, clustered by class, and returns its class. */
static int make_sample(float *x) {
    int k = rand() % CLASSES;
    for (int i = 0; i < FEATURES; i++)
        x[i] = (i % CLASSES == k ? 1.0f : 0.0f) + (float)rand() / (float)RAND_MAX * 2 - 1;
    return k;
}

typedef struct model {
    tu_graph *graph;
    tu_program *program;
    tu_value x, y;
} model;

static tu_status build_training(model *m) {
    TU_TRY(tu_graph_new(&m->graph));
    m->x = tu_batch_input(m->graph, "x", TU_F32, TU_SHAPE(BATCH, FEATURES));
    m->y = tu_batch_input(m->graph, "y", TU_I32, TU_SHAPE(BATCH));
    tu_value loss = tu_mean_cross_entropy(network(m->x), m->y);
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
    TU_TRY(tu_add_optimizer(loss, &values, .name = "adam", .constant_rate = 0.01));
    return tu_compile(m->graph, &m->program, .fetch = &loss, .fetch_count = 1, .updates = true);
}

static tu_status build_inference(model *m) {
    TU_TRY(tu_graph_new(&m->graph));
    tu_set_training(m->graph, false); /* no dropout; batch normalisation uses running statistics */
    m->x = tu_batch_input(m->graph, "x", TU_F32, TU_SHAPE(1, FEATURES));
    tu_value probabilities = tu_softmax(network(m->x), -1);
    return tu_compile(m->graph, &m->program, .fetch = &probabilities, .fetch_count = 1);
}

static tu_status train(const model *m, tu_state *state) {
    float x[BATCH][FEATURES], loss = 0;
    int labels[BATCH];
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < BATCH; k++) labels[k] = make_sample(x[k]);
        TU_TRY(tu_run(m->program, state, 2, (tu_feed[]){{m->x, x}, {m->y, labels}}, (void *[]){&loss}));
        if ((i + 1) % 50 == 0) printf("step %3d   loss %.4f\n", i + 1, loss);
    }
    return TU_OK;
}

/* Classifies one sample per call, as a server would. */
static tu_status infer(const model *m, tu_state *state, int *correct) {
    *correct = 0;
    for (int i = 0; i < TESTS; i++) {
        float x[FEATURES], p[CLASSES];
        int label = make_sample(x), best = 0;
        TU_TRY(tu_run(m->program, state, 1, (tu_feed[]){{m->x, x}}, (void *[]){p}));
        for (int k = 1; k < CLASSES; k++)
            if (p[k] > p[best]) best = k;
        *correct += best == label;
    }
    return TU_OK;
}

int main(void) {
    model training = {0}, inference = {0};
    tu_state *state = NULL;
    int correct = 0;
    tu_status status = build_training(&training);
    if (status == TU_OK) status = build_inference(&inference);
    if (status == TU_OK) status = tu_state_new(training.graph, &state, .seed = 1);
    if (status == TU_OK) status = train(&training, state);
    if (status == TU_OK) status = infer(&inference, state, &correct);
    if (status == TU_OK)
        printf("%d of %d samples classified correctly, one at a time\n", correct, TESTS);
    else
        fprintf(stderr, "%s\n", tu_message());
    tu_program_free(training.program);
    tu_program_free(inference.program);
    tu_state_free(state);
    tu_graph_free(training.graph);
    tu_graph_free(inference.graph);
    if (status != TU_OK) return 2;
    return correct > TESTS * 8 / 10 ? 0 : 1; /* the test suite runs this: it must have learned */
}
