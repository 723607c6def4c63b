/* A user-defined network. Train it with
 *
 *     tutti train examples/mynet.c --data cifar10
 *
 * which compiles this file with the system's C compiler and loads it. The file contains one function from images to logits,
 * and one TU_NETWORK with the network's name and default settings. The engine calls the function whenever it builds a graph:
 * for training, evaluation and other batch sizes. Variables get the names of their layers, so keep the names if you want
 * to load existing weights. */
#include <tutti/tutti.h>

/* Two convolutions, each followed by pooling, and a dense layer. */
static tu_value build(tu_value x, const tu_network_options *o) {
    x = tu_conv2d(x, .filters = o->base, .size = 3, .no_bias = true, .name = "conv1"); /* [n, 32, 32, 32] */
    x = tu_batch_norm(x, .act = TU_RELU, .name = "norm1");
    x = tu_max_pool(x, .window = {2, 2}); /* [n, 16, 16, 32] */
    x = tu_conv2d(x, .filters = 2 * o->base, .size = 3, .no_bias = true,
                  .name = "conv2"); /* [n, 16, 16, 64] */
    x = tu_batch_norm(x, .act = TU_RELU, .name = "norm2");
    x = tu_max_pool(x, .window = {2, 2}); /* [n, 8, 8, 64] */
    x = tu_dropout(tu_flatten(x), 0.2);
    return tu_dense(x, .units = o->classes, .name = "logits"); /* [n, 10] */
}

TU_NETWORK(.name = "mynet", .summary = "two convolutions and a dense layer, for 32x32 images",
           .defaults = TU_OPTIONS(tu_network_options, .height = 32, .width = 32, .channels = 3, .classes = 10,
                                  .base = 32),
           .build = build);
