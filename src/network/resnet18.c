/* resnet18: the smallest of the residual networks for ImageNet (He et al. 2015, table 1).
 *
 * Four stages of two blocks of two convolutions. Large images are first reduced to a quarter of their height and
 * width; images below 64x64, such as the default size 32x32 (CIFAR), go through a 3x3 convolution instead. The shapes
 * below are for 224x224 images. */
#include "network/network.h"
#include "network/residual.h"

static tu_value build(tu_value x, const tu_network_options *o) {
    x = tu__residual_stem(x, o->base);                                          /* [n, 56, 56, 64] */
    x = tu__residual_stage(x, "stage1", tu__residual_basic, 2, o->base, 1);     /* [n, 56, 56, 64] */
    x = tu__residual_stage(x, "stage2", tu__residual_basic, 2, 2 * o->base, 2); /* [n, 28, 28, 128] */
    x = tu__residual_stage(x, "stage3", tu__residual_basic, 2, 4 * o->base, 2); /* [n, 14, 14, 256] */
    x = tu__residual_stage(x, "stage4", tu__residual_basic, 2, 8 * o->base, 2); /* [n, 7, 7, 512] */
    x = tu_global_avg_pool(x);                                                  /* [n, 512] */
    return tu_dense(x, .units = o->classes, .name = "logits");                  /* [n, classes] */
}

const tu_network_definition tu__resnet18 = {
    TU__BUILT_IN,
    .name = "resnet18",
    .summary = "residual network of 18 layers for 32x32 images or larger",
    .defaults =
        TU_OPTIONS(tu_network_options, .height = 32, .width = 32, .channels = 3, .classes = 10, .base = 64),
    .build = build,
};
