/* mlp: a multi-layer perceptron with two hidden layers of 512 units for 28x28 digits (MNIST). */
#include "model/model.h"

static tu_value build(tu_value x, const tu_model_options *o) {
    x = tu_flatten(x);                                                    /* [n, 784] */
    x = tu_dense(x, .units = o->base, .act = TU_RELU, .name = "hidden1"); /* [n, 512] */
    x = tu_dense(x, .units = o->base, .act = TU_RELU, .name = "hidden2"); /* [n, 512] */
    return tu_dense(x, .units = o->classes, .name = "logits");            /* [n, 10] */
}

const tu_model_definition tu__mlp = {
    TU__BUILT_IN,
    .name = "mlp",
    .summary = "multi-layer perceptron 784-512-512-10 for 28x28 digits",
    .defaults =
        TU_OPTIONS(tu_model_options, .height = 28, .width = 28, .channels = 1, .classes = 10, .base = 512),
    .build = build,
};
