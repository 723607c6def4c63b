/* mlp: a multi-layer perceptron with two hidden layers, of 512 units by default, for 28x28 digits (MNIST) and for the rows
 * of tables.
 *
 * Rows have few features of variance 1. With He's variance, 2 / fan in, of the first weights the network then fits the noise of
 * small tables; Glorot's, 2 / (fan in + fan out), generalises better (bench/compare/tables.py). */
#include "network/network.h"

static tu_value build(tu_value x, const tu_network_options *o) {
    bool are_rows = tu_value_shape(x).rank == 2;
    tu_init init = {.kind = are_rows ? TU_INIT_XAVIER_UNIFORM : TU_INIT_DEFAULT};
    x = tu_flatten(x);                                                                     /* [n, 784] */
    x = tu_dense(x, .units = o->base, .act = TU_RELU, .weights = init, .name = "hidden1"); /* [n, 512] */
    x = tu_dense(x, .units = o->base, .act = TU_RELU, .weights = init, .name = "hidden2"); /* [n, 512] */
    return tu_dense(x, .units = o->classes, .name = "logits");                             /* [n, 10] */
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
