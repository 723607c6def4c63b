/* tutorial-cnn: the convolutional network of TensorFlow's CIFAR-10 tutorial (2015), on crops of 24x24.
 *
 * Derived from Krizhevsky's cuda-convnet: two convolutions with pooling and local response normalisation (pooling
 * first in the first layer, normalisation first in the second), two dense layers, ten classes. The initialisers are
 * the tutorial's: truncated normals with hand-tuned standard deviations, and biases of 0.1 against dead ReLUs.
 * Weight decay, augmentation and moving averages belong to the training recipe and are not here. */
#include "network/network.h"

static tu_init truncated_normal(double stddev) {
    return (tu_init){.kind = TU_INIT_TRUNCATED_NORMAL, .b = stddev};
}

static tu_init constant(double value) {
    return (tu_init){.kind = TU_INIT_CONSTANT, .a = value};
}

static tu_value convolution(tu_value x, int64_t filters, double bias, const char *name) {
    return tu_conv2d(x, .filters = filters, .size = 5, .act = TU_RELU, .weights = truncated_normal(0.05),
                     .bias = constant(bias), .name = name);
}

static tu_value pool(tu_value x, const char *name) {
    return tu_name(tu_max_pool(x, .window = {3, 3}, .stride = {2, 2}), name);
}

static tu_value normalize(tu_value x, const char *name) {
    return tu_name(tu_lrn(x, .radius = 4, .bias = 1, .alpha = 0.001 / 9, .beta = 0.75), name);
}

static tu_value hidden(tu_value x, int64_t units, const char *name) {
    return tu_dense(x, .units = units, .act = TU_RELU, .weights = truncated_normal(0.04),
                    .bias = constant(0.1), .name = name);
}

static tu_value build(tu_value x, const tu_network_options *o) {
    x = convolution(x, o->base, 0.0, "conv1"); /* [n, 24, 24, 64] */
    x = pool(x, "pool1");                      /* [n, 12, 12, 64] */
    x = normalize(x, "norm1");
    x = convolution(x, o->base, 0.1, "conv2"); /* [n, 12, 12, 64] */
    x = normalize(x, "norm2");
    x = pool(x, "pool2");                 /* [n, 6, 6, 64] */
    x = tu_flatten(x);                    /* [n, 2304] */
    x = hidden(x, 6 * o->base, "local3"); /* [n, 384] */
    x = hidden(x, 3 * o->base, "local4"); /* [n, 192] */
    return tu_dense(x, .units = o->classes, .weights = truncated_normal(1.0 / (double)(3 * o->base)),
                    .name = "softmax_linear"); /* [n, 10] */
}

const tu_network_definition tu__tutorial_cnn = {
    TU__BUILT_IN,
    .name = "tutorial-cnn",
    .summary = "TensorFlow's CIFAR-10 tutorial network on 24x24 crops",
    .defaults =
        TU_OPTIONS(tu_network_options, .height = 24, .width = 24, .channels = 3, .classes = 10, .base = 64),
    .build = build,
};
