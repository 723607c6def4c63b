/* What residual networks are built of. */
#ifndef TU__MODEL_RESIDUAL_H
#define TU__MODEL_RESIDUAL_H

#include <tutti/layers.h>

/* Without bias, padded alike on all sides, as PyTorch's networks are: their weights fit. */
tu_value tu__residual_convolution(tu_value x, int64_t filters, int64_t size, int64_t stride,
                                  const char *name);

/* x [n,h,w,c] -> [n,h/stride,w/stride,filters] */
typedef tu_value (*tu__residual_block)(tu_value x, int64_t filters, int64_t stride);

/* x itself, or a convolution of 1x1 with normalisation where the shapes differ: He's option B. */
tu_value tu__residual_shortcut(tu_value x, int64_t filters, int64_t stride);
/* Two convolutions of 3x3; ReLU after the sum. */
tu_value tu__residual_basic(tu_value x, int64_t filters, int64_t stride);

/* `count` blocks in a scope, the first of them with the stride. */
tu_value tu__residual_stage(tu_value x, const char *name, tu__residual_block block, int count,
                            int64_t filters, int64_t stride);

/* The beginning of a network for photographs: 7x7 by 2 and a pooling, which leave a quarter of each side; for images
 * smaller than 64, where a quarter would be too little, 3x3 alone. */
tu_value tu__residual_stem(tu_value x, int64_t filters);

#endif
