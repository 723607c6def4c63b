/* Linear resizing along one axis, for the reference kernel of `resize` and for devices. */
#ifndef TU__GRAPH_OPS_RESIZE_H
#define TU__GRAPH_OPS_RESIZE_H

#include <stdint.h>

/* The two input pixels (`place`) between which an output pixel lies, and their weights (`share`), whose sum is 1. A
 * pixel of weight 0 must not be read: 0 times an infinity would be NaN. */
typedef struct tu__neighbours {
    int64_t place[2];
    double share[2];
} tu__neighbours;

/* Returns the neighbours of output pixel `output_index`; `input` and `output` are the sizes, `method` a
 * tu_resize_method. image.c contains the formulas. */
tu__neighbours tu__neighbours_of(int64_t output_index, int64_t input, int64_t output, int64_t method);

#endif
