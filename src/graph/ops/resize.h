/* The definition of linear resizing along one axis, for the meaning of `resize` and for kernels of it. */
#ifndef TU__GRAPH_OPS_RESIZE_H
#define TU__GRAPH_OPS_RESIZE_H

#include <stdint.h>

/* The two places of the input that one place of the output lies between, and their shares, which add up to 1. A place
 * whose share is 0 is not to be read: an infinity there must not spread. */
typedef struct tu__neighbours {
    int64_t place[2];
    double share[2];
} tu__neighbours;

/* `method` is a tu_resize_method; image.c says where places lie. */
tu__neighbours tu__neighbours_of(int64_t output_place, int64_t input, int64_t output, int64_t method);

#endif
