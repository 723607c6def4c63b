/* Compares the first and second derivatives of networks with central differences, with respect to every trainable
 * variable: small versions of three built-in networks, and a transformer block built from operations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/check_gradients.h"

enum { MAX_INPUTS = 256 };

typedef struct network {
    tu_graph *graph;
    size_t input_count;
    tu_value inputs[MAX_INPUTS];
    double *data[MAX_INPUTS];
    bool differentiable[MAX_INPUTS];
} network;

static double noise(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)*state * 0x1p-63;
}

static void add_input(network *n, tu_value value, bool differentiable) {
    n->inputs[n->input_count] = value;
    n->differentiable[n->input_count] = differentiable;
    n->data[n->input_count++] = calloc((size_t)tu_shape_elements(tu_value_shape(value)), sizeof(double));
}

/* Adds every trainable variable with its initial value plus noise: ReLU is not differentiable at zero, where biases
 * start. */
static void add_variables(network *n) {
    tu_value variables[MAX_INPUTS];
    size_t count = tu_trainable(n->graph, MAX_INPUTS, variables);
    tu_state *state = NULL;
    uint64_t random = 99;
    if (tu_state_new(n->graph, &state, .seed = 11) != TU_OK) {
        printf("FAIL %s\n", tu_message());
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        add_input(n, variables[i], true);
        double *data = n->data[n->input_count - 1];
        int64_t elements = tu_shape_elements(tu_value_shape(variables[i]));
        tu_state_get(state, tu_value_name(variables[i]), data, (size_t)elements * sizeof(double));
        for (int64_t k = 0; k < elements; k++) data[k] += 0.2 * noise(&random);
    }
    tu_state_free(state);
}

/* Adds the images and labels with random pixels. */
static void add_images(network *n, tu_value images, tu_value labels, int64_t classes) {
    uint64_t random = 5;
    add_input(n, images, false);
    double *pixels = n->data[n->input_count - 1];
    for (int64_t i = 0; i < tu_shape_elements(tu_value_shape(images)); i++) pixels[i] = noise(&random);
    add_input(n, labels, false);
    double *class_indices = n->data[n->input_count - 1];
    for (int64_t i = 0; i < tu_shape_elements(tu_value_shape(labels)); i++)
        class_indices[i] = (double)(i * 3 % classes);
}

static int check_network(const char *name, network *n, tu_value loss, int order) {
    gradient_check c = {.graph = n->graph,
                        .input_count = n->input_count,
                        .inputs = n->inputs,
                        .data = n->data,
                        .differentiable = n->differentiable,
                        .output_count = 1,
                        .outputs = &loss,
                        .order = order,
                        /* Small, so that no ReLU or maximum switches within the step. */
                        .step = 5e-6,
                        .elements = 3,
                        .seed = 17};
    bool ok = n->input_count > 2 && gradients_agree(&c);
    printf("%s %-16s %3zu variables, order %d, worst relative error %.1e %s\n", ok ? "ok  " : "FAIL", name,
           n->input_count - 2, order, c.max_error, c.message);
    for (size_t i = 0; i < n->input_count; i++) free(n->data[i]);
    tu_graph_free(n->graph);
    return !ok;
}

static int check_model(const char *name, int order, const tu_network_options *options) {
    network n = {0};
    tu_network_graph model = TU_SIZED(tu_network_graph);
    if (tu_graph_new(&n.graph) != TU_OK || tu_network_build_with(n.graph, name, &model, options) != TU_OK) {
        printf("FAIL %s: %s\n", name, tu_message());
        tu_graph_free(n.graph);
        return 1;
    }
    add_images(&n, model.images, model.labels, options->classes);
    add_variables(&n);
    return check_network(name, &n, model.loss, order);
}

/* x [b,t,d] -> [b,h,t,d/h] */
static tu_value split_heads(tu_value x, int64_t heads) {
    tu_shape s = tu_value_shape(x);
    return tu_transpose(tu_reshape(x, TU_SHAPE(s.dim[0], s.dim[1], heads, s.dim[2] / heads)), 0, 2, 1, 3);
}

static tu_value attention(tu_value x, int64_t heads) {
    tu_shape s = tu_value_shape(x);
    int64_t t = s.dim[1], d = s.dim[2];
    tu_value q = split_heads(tu_dense(x, .units = d, .name = "q"), heads);
    tu_value k = split_heads(tu_dense(x, .units = d, .name = "k"), heads);
    tu_value v = split_heads(tu_dense(x, .units = d, .name = "v"), heads);
    tu_value scores = tu_scale(tu_matmul(q, k, .transpose_b = true), sqrt((double)heads / (double)d));
    tu_value mask = tu_band(tu_fill(x.graph, TU_F64, TU_SHAPE(t, t), 1), -1, 0);
    scores = tu_add(scores, tu_scale(tu_sub(mask, tu_number(mask, 1)), 1e4));
    tu_value mixed = tu_transpose(tu_matmul(tu_softmax(scores, -1), v), 0, 2, 1, 3);
    return tu_dense(tu_reshape(mixed, s), .units = d, .name = "out");
}

/* Token embedding, one pre-norm block (attention and an MLP with GELU), logits, cross-entropy. The block is
 * recomputed in the backward pass and contains dropout, whose mask must be the same both times. */
static int check_transformer(void) {
    enum { BATCH = 2, TOKENS = 5, WIDTH = 8, VOCABULARY = 11 };
    network n = {0};
    if (tu_graph_new(&n.graph) != TU_OK) return 1;
    tu_graph *g = n.graph;
    tu_value tokens = tu_input(g, "tokens", TU_I32, TU_SHAPE(BATCH, TOKENS));
    tu_value labels = tu_input(g, "labels", TU_I64, TU_SHAPE(BATCH, TOKENS));
    tu_value x = tu_embedding(tokens, .entries = VOCABULARY, .width = WIDTH, .dtype = TU_F64,
                              .weights = {TU_INIT_NORMAL, .b = 0.5});
    tu_recompute(g) tu_scope(g, "block") {
        tu_value h = {0};
        tu_scope(g, "attention") h = attention(tu_layer_norm(x), 2);
        x = tu_add(x, tu_dropout(h, 0.2));
        h = tu_dense(tu_layer_norm(x, .name = "norm2"), .units = 4 * WIDTH, .act = TU_GELU_TANH,
                     .name = "up");
        x = tu_add(x, tu_dense(h, .units = WIDTH, .name = "down"));
    }
    tu_value logits =
        tu_dense(tu_layer_norm(x, .name = "final"), .units = VOCABULARY, .no_bias = true, .name = "logits");
    tu_value loss = tu_mean(tu_cross_entropy(logits, labels, .smoothing = 0.1));
    add_input(&n, tokens, false);
    add_input(&n, labels, false);
    for (int i = 0; i < BATCH * TOKENS; i++) {
        n.data[0][i] = i * 7 % VOCABULARY;
        n.data[1][i] = i * 5 % VOCABULARY;
    }
    add_variables(&n);
    return check_network("transformer", &n, loss, 2);
}

int main(void) {
    int failed = 0;
    failed += check_model("mlp", 2,
                          TU_OPTIONS(tu_network_options, .batch = 4, .height = 5, .width = 5, .channels = 1,
                                     .classes = 3, .base = 8, .dtype = TU_F64));
    failed += check_model("tutorial-cnn", 2,
                          TU_OPTIONS(tu_network_options, .batch = 2, .height = 8, .width = 8, .channels = 3,
                                     .classes = 4, .base = 8, .dtype = TU_F64));
    failed += check_model("resnet20", 2,
                          TU_OPTIONS(tu_network_options, .batch = 2, .height = 8, .width = 8, .channels = 3,
                                     .classes = 4, .base = 4, .dtype = TU_F64));
    failed += check_transformer();
    printf("%d passed, %d failed\n", 4 - failed, failed);
    return failed != 0;
}
