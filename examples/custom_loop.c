/* A training loop of your own that saves its state and goes on from it: momentum, a falling rate, and a stop half-way.
 *
 * The net learns y = sin(x). The first half of the steps ends with tu_state_save; the second half runs over a new state,
 * loaded from that file, as a new process would. Both halves together give the same bits as one run without a stop, which
 * the end checks. */
#include <math.h>
#include <stdio.h>

#include <tutti/tutti.h>

enum { BATCH = 64, STEPS = 400, MOST = 16 };

/* The graph of a step, and where it is fed and read. */
typedef struct net {
    tu_graph *graph;
    tu_program *step;
    tu_value x, y, rate;
} net;

static int fail(void) {
    fprintf(stderr, "%s\n", tu_message());
    return 2;
}

/* velocity = 0.9 velocity + gradient; weights -= rate * velocity. The velocities are variables, so they are saved too. */
static void add_momentum(tu_graph *g, tu_value loss, tu_value rate) {
    tu_value weights[MOST], gradients[MOST];
    size_t count = tu_trainable(g, MOST, weights);
    tu_gradients(loss, count, weights, gradients);
    tu_scope(g, "velocity") {
        for (size_t i = 0; i < count; i++) {
            char name[32];
            snprintf(name, sizeof name, "v%zu", i);
            tu_value v = tu_variable(g, name, TU_F32, tu_value_shape(weights[i]), .frozen = true);
            tu_value next = tu_add(tu_scale(v, 0.9), gradients[i]);
            tu_assign(v, next);
            tu_assign(weights[i], tu_sub(weights[i], tu_mul(rate, next)));
        }
    }
}

static tu_status build(net *n) {
    TU_TRY(tu_graph_new(&n->graph));
    tu_graph *g = n->graph;
    n->x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(BATCH, 1));
    n->y = tu_batch_input(g, "y", TU_F32, TU_SHAPE(BATCH, 1));
    n->rate = tu_input(g, "rate", TU_F32, TU_SCALAR);
    tu_value h = tu_dense(n->x, .units = 32, .act = TU_TANH, .name = "hidden");
    tu_value loss = tu_mean(tu_square(tu_sub(tu_dense(h, .units = 1, .name = "out"), n->y)));
    add_momentum(g, loss, n->rate);
    return tu_compile(g, &n->step, .fetch = &loss, .fetch_count = 1, .updates = true);
}

/* Batch `number`, always the same one. */
static void make_batch(int number, float *x, float *y) {
    for (int i = 0; i < BATCH; i++) {
        x[i] = (float)((number * BATCH + i) * 37 % 1000) / 500 * 3 - 3;
        y[i] = sinf(x[i]);
    }
}

/* Takes steps `from` to `to` (without it); `loss` is that of the last. */
static tu_status train(const net *n, tu_state *state, int from, int to, float *loss) {
    for (int i = from; i < to; i++) {
        float x[BATCH], y[BATCH], rate = 0.05f * (1 - (float)i / STEPS);
        make_batch(i, x, y);
        TU_TRY(
            tu_run(n->step, state, 3, (tu_feed[]){{n->x, x}, {n->y, y}, {n->rate, &rate}}, (void *[]){loss}));
        if ((i + 1) % 100 == 0) printf("step %3d   loss %.5f\n", i + 1, *loss);
    }
    return TU_OK;
}

/* Half of the steps, a file, and the other half over what was loaded from it. */
static tu_status train_in_halves(const net *n, const char *file, float *loss) {
    tu_state *state = NULL;
    TU_TRY(tu_state_new(n->graph, &state, .seed = 1));
    tu_status status = train(n, state, 0, STEPS / 2, loss);
    if (status == TU_OK) status = tu_state_save(state, file);
    tu_state_free(state);
    if (status != TU_OK) return status;
    printf("saved to %s, loaded again\n", file);
    TU_TRY(tu_state_new(n->graph, &state)); /* another seed: everything comes from the file */
    status = tu_state_load(state, file);
    if (status == TU_OK) status = train(n, state, STEPS / 2, STEPS, loss);
    tu_state_free(state);
    return status;
}

int main(void) {
    net n = {0};
    float first = 0, halves = 0, whole = 0;
    const char *file = "custom_loop.safetensors"; /* in the current folder, removed at the end */
    tu_state *state = NULL;
    tu_status status = build(&n);
    if (status == TU_OK) status = train_in_halves(&n, file, &halves);
    remove(file);
    if (status == TU_OK) status = tu_state_new(n.graph, &state, .seed = 1);
    if (status == TU_OK) status = train(&n, state, 0, 1, &first);
    if (status == TU_OK) status = train(&n, state, 1, STEPS, &whole);
    int result = status == TU_OK ? 0 : fail();
    tu_program_free(n.step);
    tu_state_free(state);
    tu_graph_free(n.graph);
    if (result) return result;
    printf("without a stop: loss %.5f, %s\n", whole, whole == halves ? "the same bits" : "other bits");
    return whole == halves && whole < first / 10 ? 0 : 1; /* run as a test */
}
