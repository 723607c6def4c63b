/* mlp: a multi-layer perceptron with two hidden layers, of 512 units by default, for 28x28 digits (MNIST) and for the rows
 * of tables.
 *
 * Rows have few features of mean 0 and variance 1. For them all weights get Glorot's initial values, of variance
 * 2 / (fan in + fan out), and so do the biases. With He's variance, 2 / fan in, the network fits the noise of small tables; with
 * biases of zero the kinks of all rectifiers of the first layer meet in the mean of the rows, which costs accuracy as well
 * (docs/tables.md). */
#include "network/network.h"

/* Glorot's values for the bias of a layer, whose shape says nothing about its inputs. */
static tu_init bias_of(tu_value x, int64_t units) {
    return (tu_init){.kind = TU_INIT_XAVIER_UNIFORM, .fan_in = tu_value_shape(x).dim[1], .fan_out = units};
}

static tu_value build_for_rows(tu_value x, const tu_network_options *o) {
    int64_t units = o->base;
    tu_init init = {.kind = TU_INIT_XAVIER_UNIFORM};
    x = tu_dense(x, .units = units, .act = TU_RELU, .weights = init, .bias = bias_of(x, units),
                 .name = "hidden1");
    x = tu_dense(x, .units = units, .act = TU_RELU, .weights = init, .bias = bias_of(x, units),
                 .name = "hidden2");
    return tu_dense(x, .units = o->classes, .bias = bias_of(x, o->classes), .name = "logits");
}

static tu_value build(tu_value x, const tu_network_options *o) {
    if (tu_value_shape(x).rank == 2) return build_for_rows(x, o);
    x = tu_flatten(x);                                                    /* [n, 784] */
    x = tu_dense(x, .units = o->base, .act = TU_RELU, .name = "hidden1"); /* [n, 512] */
    x = tu_dense(x, .units = o->base, .act = TU_RELU, .name = "hidden2"); /* [n, 512] */
    return tu_dense(x, .units = o->classes, .name = "logits");            /* [n, 10] */
}

const tu_network_definition tu__mlp = {
    TU__BUILT_IN,
    .name = "mlp",
    .summary = "perceptron 784-512-512-10 for digits, or for rows of tables",
    .defaults = TU_OPTIONS(tu_network_options, .height = 28, .width = 28, .channels = 1, .classes = 10,
                           .base = 512, .features = 784),
    .input = TU_TAKES_IMAGES | TU_TAKES_ROWS,
    .build = build,
};
