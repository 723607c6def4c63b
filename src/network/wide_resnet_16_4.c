/* wide-resnet-16-4: a wide residual network of 16 layers, four times as wide (Zagoruyko & Komodakis 2016).
 *
 * A few wide blocks reach the accuracy of thin networks ten times as deep, with better hardware utilisation.
 * Normalisation and ReLU come before the convolutions (pre-activation, He et al. 2016), so the shortcut is the
 * identity; if the shapes differ, it is a 1x1 convolution of the normalised input. */
#include "network/network.h"
#include "network/residual.h"

enum { WIDENING = 4, BLOCKS = 2 /* (16 - 4) / 6 */ };

/* x [n, h, w, c] -> [n, h/stride, w/stride, filters] */
static tu_value block(tu_value x, int64_t filters, int64_t stride) {
    bool shape_changes = stride != 1 || tu_value_shape(x).dim[3] != filters;
    tu_value normalized = tu_batch_norm(x, .act = TU_RELU, .name = "norm1");
    tu_value y = tu__residual_convolution(normalized, filters, 3, stride, "conv1");
    y = tu_batch_norm(y, .act = TU_RELU, .name = "norm2");
    y = tu__residual_convolution(y, filters, 3, 1, "conv2");
    if (shape_changes) x = tu__residual_convolution(normalized, filters, 1, stride, "shortcut");
    return tu_add(y, x);
}

static tu_value build(tu_value x, const tu_network_options *o) {
    int64_t wide = WIDENING * o->base;
    x = tu__residual_convolution(x, o->base, 3, 1, "conv1");         /* [n, 32, 32, 16] */
    x = tu__residual_stage(x, "stage1", block, BLOCKS, wide, 1);     /* [n, 32, 32, 64] */
    x = tu__residual_stage(x, "stage2", block, BLOCKS, 2 * wide, 2); /* [n, 16, 16, 128] */
    x = tu__residual_stage(x, "stage3", block, BLOCKS, 4 * wide, 2); /* [n, 8, 8, 256] */
    x = tu_batch_norm(x, .act = TU_RELU, .name = "norm");
    x = tu_global_avg_pool(x);                                 /* [n, 256] */
    return tu_dense(x, .units = o->classes, .name = "logits"); /* [n, 10] */
}

const tu_network_definition tu__wide_resnet_16_4 = {
    TU__BUILT_IN,
    .name = "wide-resnet-16-4",
    .summary = "wide residual network of 16 layers for CIFAR-10",
    .defaults =
        TU_OPTIONS(tu_network_options, .height = 32, .width = 32, .channels = 3, .classes = 10, .base = 16),
    .build = build,
};
