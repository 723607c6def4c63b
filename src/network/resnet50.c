/* resnet50: the residual network of 50 layers (He et al. 2015), version 1.5, as in PyTorch and MLPerf.
 *
 * Blocks are bottlenecks: a 1x1 convolution to a quarter of the channels, 3x3, 1x1 back. Version 1.5 has the stride
 * in the 3x3 convolution. The paper has it in the first 1x1, which ignores three quarters of its input; version 1.5
 * is half a percent more accurate on ImageNet. */
#include "network/network.h"
#include "network/residual.h"

/* x [n, h, w, c] -> [n, h/stride, w/stride, 4 * width] */
static tu_value bottleneck(tu_value x, int64_t width, int64_t stride) {
    tu_value y = tu__residual_convolution(x, width, 1, 1, "conv1");
    y = tu_batch_norm(y, .act = TU_RELU, .name = "norm1");
    y = tu__residual_convolution(y, width, 3, stride, "conv2");
    y = tu_batch_norm(y, .act = TU_RELU, .name = "norm2");
    y = tu__residual_convolution(y, 4 * width, 1, 1, "conv3");
    y = tu_batch_norm(y, .name = "norm3");
    return tu_relu(tu_add(y, tu__residual_shortcut(x, 4 * width, stride)));
}

static tu_value build(tu_value x, const tu_network_options *o) {
    x = tu__residual_stem(x, o->base);                                  /* [n, 56, 56, 64] */
    x = tu__residual_stage(x, "stage1", bottleneck, 3, o->base, 1);     /* [n, 56, 56, 256] */
    x = tu__residual_stage(x, "stage2", bottleneck, 4, 2 * o->base, 2); /* [n, 28, 28, 512] */
    x = tu__residual_stage(x, "stage3", bottleneck, 6, 4 * o->base, 2); /* [n, 14, 14, 1024] */
    x = tu__residual_stage(x, "stage4", bottleneck, 3, 8 * o->base, 2); /* [n, 7, 7, 2048] */
    x = tu_global_avg_pool(x);                                          /* [n, 2048] */
    return tu_dense(x, .units = o->classes, .name = "logits");          /* [n, 1000] */
}

const tu_network_definition tu__resnet50 = {
    TU__BUILT_IN,
    .name = "resnet50",
    .summary = "residual network of 50 layers for ImageNet, version 1.5",
    .defaults = TU_OPTIONS(tu_network_options, .height = 224, .width = 224, .channels = 3, .classes = 1000,
                           .base = 64),
    .build = build,
};
