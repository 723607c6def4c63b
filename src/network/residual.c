/* Residual blocks and stages (He et al. 2015). */
#include "network/residual.h"

#include <stdio.h>

tu_value tu__residual_convolution(tu_value x, int64_t filters, int64_t size, int64_t stride,
                                  const char *name) {
    int64_t pad = size / 2;
    return tu_conv2d(x, .filters = filters, .size = size, .stride = stride, .no_bias = true,
                     .padding = TU_EXPLICIT, .pad = {pad, pad, pad, pad},
                     .weights = {.kind = TU_INIT_HE_NORMAL}, .name = name);
}

tu_value tu__residual_shortcut(tu_value x, int64_t filters, int64_t stride) {
    if (stride == 1 && tu_value_shape(x).dim[3] == filters) return x;
    x = tu__residual_convolution(x, filters, 1, stride, "shortcut");
    return tu_batch_norm(x, .name = "shortcut_norm");
}

tu_value tu__residual_basic(tu_value x, int64_t filters, int64_t stride) {
    tu_value y = tu__residual_convolution(x, filters, 3, stride, "conv1");
    y = tu_batch_norm(y, .act = TU_RELU, .name = "norm1");
    y = tu__residual_convolution(y, filters, 3, 1, "conv2");
    y = tu_batch_norm(y, .name = "norm2");
    return tu_relu(tu_add(y, tu__residual_shortcut(x, filters, stride)));
}

tu_value tu__residual_stage(tu_value x, const char *name, tu__residual_block block, int count,
                            int64_t filters, int64_t stride) {
    tu_scope(x.graph, name) {
        for (int i = 1; i <= count; i++) {
            char block_name[24];
            snprintf(block_name, sizeof block_name, "block%d", i);
            tu_scope(x.graph, block_name) x = block(x, filters, i == 1 ? stride : 1);
        }
    }
    return x;
}

tu_value tu__residual_stem(tu_value x, int64_t filters) {
    tu_shape s = tu_value_shape(x);
    bool small = s.dim[1] < 64 || s.dim[2] < 64;
    x = tu__residual_convolution(x, filters, small ? 3 : 7, small ? 1 : 2, "conv1");
    x = tu_batch_norm(x, .act = TU_RELU, .name = "norm1");
    if (small) return x;
    return tu_name(
        tu_max_pool(x, .window = {3, 3}, .stride = {2, 2}, .padding = TU_EXPLICIT, .pad = {1, 1, 1, 1}),
        "pool1");
}
