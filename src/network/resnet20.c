/* resnet20: the residual network for CIFAR-10 of He et al. 2015 ("Deep Residual Learning", section 4.2).
 *
 * One convolution, three stages of three blocks of two convolutions, one dense layer: 20 layers with weights. The
 * second and third stage halve height and width and double the channels. If the shapes differ, the shortcut is a 1x1
 * convolution with normalisation (the paper's option B). Option A, zero-padded channels, would save 2,752 parameters
 * but no time. */
#include "network/network.h"
#include "network/residual.h"

static tu_value build(tu_value x, const tu_network_options *o) {
    x = tu__residual_convolution(x, o->base, 3, 1, "conv1"); /* [n, 32, 32, 16] */
    x = tu_batch_norm(x, .act = TU_RELU, .name = "norm1");
    x = tu__residual_stage(x, "stage1", tu__residual_basic, 3, o->base, 1);     /* [n, 32, 32, 16] */
    x = tu__residual_stage(x, "stage2", tu__residual_basic, 3, 2 * o->base, 2); /* [n, 16, 16, 32] */
    x = tu__residual_stage(x, "stage3", tu__residual_basic, 3, 4 * o->base, 2); /* [n, 8, 8, 64] */
    x = tu_global_avg_pool(x);                                                  /* [n, 64] */
    return tu_dense(x, .units = o->classes, .name = "logits");                  /* [n, 10] */
}

const tu_network_definition tu__resnet20 = {
    TU__BUILT_IN,
    .name = "resnet20",
    .summary = "residual network of 20 layers for CIFAR-10 (He et al. 2015)",
    .defaults =
        TU_OPTIONS(tu_network_options, .height = 32, .width = 32, .channels = 3, .classes = 10, .base = 16),
    .build = build,
};
