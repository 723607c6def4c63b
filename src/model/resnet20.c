/* resnet20: the residual network for CIFAR-10 of He et al. 2015 ("Deep Residual Learning", section 4.2).
 *
 * One convolution, three stages of three blocks of two convolutions, one dense layer: 20 layers with weights. Each
 * stage halves the picture and doubles the channels. Where the shapes change, the shortcut is a convolution of 1x1
 * with normalisation (the paper's option B): its option A, which pads channels with zeros, saves 2,752 parameters
 * and is no faster. */
#include <stdio.h>

#include "model/model.h"

static tu_value convolution(tu_value x, int64_t filters, int64_t size, int64_t stride, const char *name) {
    return tu_conv2d(x, .filters = filters, .size = size, .stride = stride, .no_bias = true,
                     .weights = {.kind = TU_INIT_HE_NORMAL}, .name = name);
}

/* x [n, h, w, c] -> [n, h/stride, w/stride, filters] */
static tu_value block(tu_value x, int64_t filters, int64_t stride) {
    tu_value y = convolution(x, filters, 3, stride, "conv1");
    y = tu_batch_norm(y, .act = TU_RELU, .name = "norm1");
    y = convolution(y, filters, 3, 1, "conv2");
    y = tu_batch_norm(y, .name = "norm2");
    if (stride != 1 || tu_value_shape(x).dim[3] != filters) {
        x = convolution(x, filters, 1, stride, "shortcut");
        x = tu_batch_norm(x, .name = "shortcut_norm");
    }
    return tu_relu(tu_add(y, x));
}

static tu_value stage(tu_value x, int64_t filters, int64_t stride) {
    for (int i = 1; i <= 3; i++) {
        char name[24];
        snprintf(name, sizeof name, "block%d", i);
        tu_scope(x.graph, name) x = block(x, filters, i == 1 ? stride : 1);
    }
    return x;
}

static tu_value build(tu_value x, const tu_model_options *o) {
    tu_graph *g = x.graph;
    x = convolution(x, o->base, 3, 1, "conv1"); /* [n, 32, 32, 16] */
    x = tu_batch_norm(x, .act = TU_RELU, .name = "norm1");
    tu_scope(g, "stage1") x = stage(x, o->base, 1);            /* [n, 32, 32, 16] */
    tu_scope(g, "stage2") x = stage(x, 2 * o->base, 2);        /* [n, 16, 16, 32] */
    tu_scope(g, "stage3") x = stage(x, 4 * o->base, 2);        /* [n, 8, 8, 64] */
    x = tu_global_avg_pool(x);                                 /* [n, 64] */
    return tu_dense(x, .units = o->classes, .name = "logits"); /* [n, 10] */
}

const tu__model tu__resnet20 = {
    .name = "resnet20",
    .summary = "residual network of 20 layers for CIFAR-10 (He et al. 2015)",
    .own = {.height = 32, .width = 32, .channels = 3, .classes = 10, .base = 16},
    .build = build,
};
