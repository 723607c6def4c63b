/* Generates random networks with batch inputs: operations per sample, sums over samples that are used per sample again,
 * batch-norm, random numbers per sample and per step, replicated values with one row per sample, control dependencies,
 * a loss, and updates of the variables. The batch size is random, too. All values are f64, except the classes. */
#ifndef TUTTI_RANDOM_NETWORK_H
#define TUTTI_RANDOM_NETWORK_H

#include "ops/random_graph.h"

enum { MAX_VALUES = 128, COLUMNS = 8, MAX_ROWS = 12, MAX_FETCHES = 12, MAX_VARIABLES = 64 };

typedef struct model {
    tu_graph *graph;
    uint64_t random;
    int64_t rows;
    tu_value samples[MAX_VALUES];    /* [rows, COLUMNS], mostly sharded */
    tu_value replicated[MAX_VALUES]; /* [COLUMNS], replicated: depend on samples only through sums */
    int sample_count, replicated_count;
    tu_value classes, loss;
    tu_value fetches[MAX_FETCHES];
    int fetch_count;
} model;

static tu_value any_samples(model *m) {
    return pick_value(&m->random, m->samples, m->sample_count);
}
static tu_value any_replicated(model *m) {
    return pick_value(&m->random, m->replicated, m->replicated_count);
}
static void push_samples(model *m, tu_value value) {
    if (m->sample_count < MAX_VALUES) m->samples[m->sample_count++] = value;
}
static void push_replicated(model *m, tu_value value) {
    if (m->replicated_count < MAX_VALUES) m->replicated[m->replicated_count++] = value;
}

static tu_value weights(model *m, int index, tu_shape shape) {
    char name[24];
    snprintf(name, sizeof name, "w%d", index);
    return tu_variable(m->graph, name, TU_F64, shape, .init = {.kind = TU_INIT_UNIFORM, .a = -0.4, .b = 0.4});
}

static tu_value mean_of_rows(tu_value x) {
    return tu_mean(x, .axes = TU_AXES(0));
}

/* Reshapes the samples to images, convolves them and reshapes them back. */
static tu_value convolve_samples(model *m, int index, tu_value x) {
    tu_value images = tu_reshape(x, TU_SHAPE(m->rows, 2, 2, COLUMNS / 4));
    tu_value y = tu_convolve(images, weights(m, index, TU_SHAPE(COLUMNS / 4, 3, 3, COLUMNS / 4)));
    return tu_tanh(tu_reshape(y, TU_SHAPE(m->rows, COLUMNS)));
}

static tu_value batch_normalize(int index, tu_value x) {
    char name[24];
    snprintf(name, sizeof name, "norm%d", index);
    return tu_batch_norm(x, .name = name, .epsilon = 0.1);
}

static tu_value gather_by_class(model *m, int index) {
    tu_value table = weights(m, index, TU_SHAPE(5, COLUMNS));
    return tu_gather(table, m->classes, 0);
}

static tu_value join_halves(tu_value x, tu_value y) {
    tu_value halves[] = {tu_slice(x, 1, 0, COLUMNS / 2, 1), tu_slice(y, 1, COLUMNS / 2, TU_END, 1)};
    return tu_concat(halves, 2, 1);
}

/* Reshapes to two rows per sample, and back to one. */
static tu_value softmax_of_half_rows(model *m, tu_value x) {
    tu_value rows = tu_reshape(x, TU_SHAPE(2 * m->rows, COLUMNS / 2));
    return tu_reshape(tu_softmax(rows, 1), TU_SHAPE(m->rows, COLUMNS));
}

static tu_value noise(model *m, bool per_sample) {
    return tu_random_uniform(m->graph, TU_F64, TU_SHAPE(m->rows, COLUMNS), -0.5, 0.5,
                             .per_sample = per_sample);
}

/* Adds one random operation on existing values. The magnitude of results stays near one. */
static void add_operation(model *m, int index) {
    tu_value x = any_samples(m), y = any_samples(m), w = any_replicated(m);
    switch (random_below(&m->random, 20)) {
    case 0: push_samples(m, tu_tanh(tu_add(x, y))); break;
    case 1: push_samples(m, tu_mul(x, tu_sigmoid(y))); break;
    case 2: push_samples(m, tu_maximum(x, tu_scale(y, 0.5))); break;
    case 3: push_samples(m, tu_tanh(tu_matmul(x, weights(m, index, TU_SHAPE(COLUMNS, COLUMNS))))); break;
    case 4:
        push_samples(
            m, tu_tanh(tu_matmul(x, weights(m, index, TU_SHAPE(COLUMNS, COLUMNS)), .transpose_b = true)));
        break;
    case 5: push_samples(m, tu_add(x, w)); break;
    case 6: push_samples(m, tu_softmax(x, 1)); break;
    case 7: push_samples(m, tu_sub(x, tu_mean(x, .axes = TU_AXES(1), .keep = true))); break;
    case 8: push_replicated(m, tu_tanh(tu_add(mean_of_rows(x), w))); break;
    case 9: push_replicated(m, tu_tanh(tu_scale(tu_sum(tu_mul(x, y), .axes = TU_AXES(0)), 0.2))); break;
    case 10: push_samples(m, join_halves(x, y)); break;
    case 11: push_samples(m, tu_dropout(x, 0.25)); break;
    case 12: push_samples(m, tu_transpose(tu_tanh(tu_add(tu_transpose(x), tu_transpose(y))))); break;
    case 13: push_samples(m, convolve_samples(m, index, x)); break;
    case 14: push_samples(m, batch_normalize(index, x)); break;
    case 15: push_samples(m, tu_add(x, gather_by_class(m, index))); break;
    case 16: push_samples(m, tu_mul(x, softmax_of_half_rows(m, y))); break;
    case 17: push_samples(m, tu_mul(x, noise(m, random_below(&m->random, 2)))); break;
    case 18:
        push_samples(m, tu_add(tu_scale(x, 0.5), tu_broadcast(tu_tanh(w), TU_SHAPE(m->rows, COLUMNS))));
        break;
    default: push_replicated(m, tu_tanh(tu_mul(w, weights(m, index, TU_SHAPE(COLUMNS))))); break;
    }
}

static void fetch(model *m, tu_value value) {
    if (m->fetch_count < MAX_FETCHES) m->fetches[m->fetch_count++] = value;
}

/* Adds random control dependencies and colocations. */
static void add_constraints(model *m) {
    for (uint64_t i = random_below(&m->random, 4); i > 0; i--) {
        tu_value a = any_samples(m), b = random_below(&m->random, 2) ? any_samples(m) : any_replicated(m);
        tu_value late = a.node > b.node ? a : b, early = a.node > b.node ? b : a;
        if (a.node != b.node && tu__node_is_computed(tu__node_of(late))) tu_after(late, early);
        if (random_below(&m->random, 2)) tu_colocate(a, b);
    }
}

/* Builds random operations and a loss. */
static inline void build_network(model *m, uint64_t seed) {
    m->random = seed;
    m->rows = 4 + (int64_t)random_below(&m->random, MAX_ROWS - 3);
    push_samples(m, tu_batch_input(m->graph, "a", TU_F64, TU_SHAPE(m->rows, COLUMNS)));
    push_samples(
        m, tu_input(m->graph, "b", TU_F64, TU_SHAPE(m->rows, COLUMNS))); /* replicated, one row per sample */
    m->classes = tu_batch_input(m->graph, "classes", TU_I32, TU_SHAPE(m->rows));
    push_replicated(m, weights(m, 1000, TU_SHAPE(COLUMNS)));
    int operations = 3 + (int)random_below(&m->random, 25);
    for (int i = 0; i < operations; i++) add_operation(m, i);
    add_constraints(m);
    for (int i = 0; i < 3; i++) fetch(m, any_samples(m));
    fetch(m, any_replicated(m));
    m->loss = tu_mean(tu_square(tu_add(tu_mul(any_samples(m), m->samples[0]), any_replicated(m))));
    fetch(m, m->loss);
}

/* Adds the gradients of the loss with respect to all variables, and updates of these. */
static inline void add_gradient_descent(model *m) {
    tu_value variables[MAX_VARIABLES], gradients[MAX_VARIABLES];
    size_t count = tu_trainable(m->graph, MAX_VARIABLES, variables);
    tu_gradients(m->loss, count, variables, gradients);
    for (size_t i = 0; i < count; i++) {
        if (random_below(&m->random, 2)) fetch(m, gradients[i]);
        tu_assign(variables[i], tu_sub(variables[i], tu_scale(gradients[i], 0.5)));
    }
}

/* Fills the data of the inputs a, b and classes for one step. Some classes are out of range. */
static inline void fill_inputs(uint64_t random, double data[2][MAX_ROWS * COLUMNS],
                               int32_t classes[MAX_ROWS]) {
    for (int i = 0; i < MAX_ROWS * COLUMNS; i++)
        for (int k = 0; k < 2; k++) data[k][i] = (double)random_below(&random, 1000) / 500 - 1;
    for (int i = 0; i < MAX_ROWS; i++) classes[i] = (int32_t)random_below(&random, 6) - 1;
}

#endif
