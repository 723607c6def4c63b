/* Building blocks of residual networks. */
#ifndef TU__NETWORK_RESIDUAL_H
#define TU__NETWORK_RESIDUAL_H

#include <tutti/layers.h>

/* Adds a convolution without bias and with symmetric padding, as in PyTorch's networks, so that their weights can be
 * loaded. */
tu_value tu__residual_convolution(tu_value x, int64_t filters, int64_t size, int64_t stride,
                                  const char *name);

/* x [n,h,w,c] -> [n,h/stride,w/stride,filters] */
typedef tu_value (*tu__residual_block)(tu_value x, int64_t filters, int64_t stride);

/* Returns x, or a 1x1 convolution with normalisation if the shapes differ (option B of He et al.). */
tu_value tu__residual_shortcut(tu_value x, int64_t filters, int64_t stride);
/* Adds two 3x3 convolutions and the shortcut; ReLU after the sum. */
tu_value tu__residual_basic(tu_value x, int64_t filters, int64_t stride);

/* Adds `count` blocks in the scope `name`; the first has the stride, the others stride 1. */
tu_value tu__residual_stage(tu_value x, const char *name, tu__residual_block block, int count,
                            int64_t filters, int64_t stride);

/* Adds the first layers: a 7x7 convolution with stride 2 and a pooling, which divide height and width by 4. For
 * images smaller than 64 pixels, only a 3x3 convolution. */
tu_value tu__residual_stem(tu_value x, int64_t filters);

#endif
