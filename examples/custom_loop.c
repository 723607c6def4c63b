/* A custom training loop with momentum and a decreasing learning rate, which saves its state half-way and resumes.
 *
 * The network learns y = sin(x). After half of the steps the state is saved with tu_state_save. The second half uses a new
 * state loaded from that file, as a new process would. The program checks that the result is bit-identical to that of an
 * uninterrupted run. */
#include <math.h>
#include <stdio.h>

#include <tutti/tutti.h>

enum { BATCH = 64, STEPS = 400, MAX_VARIABLES = 16 };

/* The graph and the program of a training step, and its inputs. */
typedef struct network {
    tu_graph *graph;
    tu_program *program;
    tu_value x, y, learning_rate;
} network;

static int print_error(void) {
    fprintf(stderr, "%s\n", tu_message());
    return 2;
}

/* velocity = 0.9 velocity + gradient; weights -= rate * velocity. Velocities are variables, so they are saved, too. */
static void add_momentum(tu_graph *g, tu_value loss, tu_value rate) {
    tu_value weights[MAX_VARIABLES], gradients[MAX_VARIABLES];
    size_t count = tu_trainable(g, MAX_VARIABLES, weights);
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

static tu_status build(network *n) {
    TU_TRY(tu_graph_new(&n->graph));
    tu_graph *g = n->graph;
    n->x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(BATCH, 1));
    n->y = tu_batch_input(g, "y", TU_F32, TU_SHAPE(BATCH, 1));
    n->learning_rate = tu_input(g, "rate", TU_F32, TU_SCALAR);
    tu_value h = tu_dense(n->x, .units = 32, .act = TU_TANH, .name = "hidden");
    tu_value loss = tu_mean(tu_square(tu_sub(tu_dense(h, .units = 1, .name = "out"), n->y)));
    add_momentum(g, loss, n->learning_rate);
    return tu_compile(g, &n->program, .fetch = &loss, .fetch_count = 1, .updates = true);
}

/* Computes batch `number`, the same in every call. */
static void make_batch(int number, float *x, float *y) {
    for (int i = 0; i < BATCH; i++) {
        x[i] = (float)((number * BATCH + i) * 37 % 1000) / 500 * 3 - 3;
        y[i] = sinf(x[i]);
    }
}

/* Runs steps `from` to `to` - 1 and returns the loss of the last one. */
static tu_status train(const network *n, tu_state *state, int from, int to, float *loss) {
    for (int i = from; i < to; i++) {
        float x[BATCH], y[BATCH], rate = 0.05f * (1 - (float)i / STEPS);
        make_batch(i, x, y);
        TU_TRY(tu_run(n->program, state, 3, (tu_feed[]){{n->x, x}, {n->y, y}, {n->learning_rate, &rate}},
                      (void *[]){loss}));
        if ((i + 1) % 100 == 0) printf("step %3d   loss %.5f\n", i + 1, *loss);
    }
    return TU_OK;
}

/* Runs half of the steps, saves the state, loads it into a new state, and runs the other half. */
static tu_status train_with_interruption(const network *n, const char *file, float *loss) {
    tu_state *state = NULL;
    TU_TRY(tu_state_new(n->graph, &state, .seed = 1));
    tu_status status = train(n, state, 0, STEPS / 2, loss);
    if (status == TU_OK) status = tu_state_save(state, file);
    tu_state_free(state);
    if (status != TU_OK) return status;
    printf("saved to %s, loaded again\n", file);
    TU_TRY(tu_state_new(n->graph, &state)); /* the seed does not matter: everything comes from the file */
    status = tu_state_load(state, file);
    if (status == TU_OK) status = train(n, state, STEPS / 2, STEPS, loss);
    tu_state_free(state);
    return status;
}

int main(void) {
    network n = {0};
    float first = 0, resumed = 0, uninterrupted = 0;
    const char *file = "custom_loop.safetensors"; /* in the current folder, removed at the end */
    tu_state *state = NULL;
    tu_status status = build(&n);
    if (status == TU_OK) status = train_with_interruption(&n, file, &resumed);
    remove(file);
    if (status == TU_OK) status = tu_state_new(n.graph, &state, .seed = 1);
    if (status == TU_OK) status = train(&n, state, 0, 1, &first);
    if (status == TU_OK) status = train(&n, state, 1, STEPS, &uninterrupted);
    int result = status == TU_OK ? 0 : print_error();
    tu_program_free(n.program);
    tu_state_free(state);
    tu_graph_free(n.graph);
    if (result) return result;
    bool same = uninterrupted == resumed;
    printf("uninterrupted: loss %.5f, %s\n", uninterrupted, same ? "bit-identical" : "different");
    return same && uninterrupted < first / 10 ? 0 : 1; /* the test suite runs this */
}
