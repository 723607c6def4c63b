/* Sliding windows over images, for convolution and pooling.
 *
 * Along each spatial axis a window of `size` pixels, `dilation` apart, moves in steps of `stride` over the input,
 * which is extended by `pad` pixels before and after. The functions here resolve padding, compute the number of
 * windows and reject invalid parameters, in the same way for convolution, pooling and their gradients. Arrays of two
 * are height, width; pad is top, bottom, left, right.
 *
 * The parameters may come from a file and are checked before use. If tu__window_outputs succeeds, the position of
 * every pixel of every window, including padding, fits in an int64_t.
 */
#ifndef TU__GRAPH_OPS_WINDOW_H
#define TU__GRAPH_OPS_WINDOW_H

#include <tutti/ops.h>

#include "graph/graph.h"

typedef struct tu__windows {
    int64_t size[2], stride[2], dilation[2], pad[4];
} tu__windows;

tu__windows tu__windows_of(const int64_t size[2], const int64_t stride[2], const int64_t dilation[2],
                           const int64_t pad[4]);

/* For the functions that build nodes: sets windows->pad from the options' padding. TU_SAME is the same as in
 * TensorFlow: the output has ceil(input / stride) pixels, and if the total padding is odd, the additional pixel is
 * after the input. If sizes or strides are invalid, the padding is zero; the shape rule rejects them. Returns false,
 * after recording the error in the graph, if `padding` is unknown or contradicts `given`. */
bool tu__resolve_padding(tu_value x, const char *operation, const int64_t input[2], tu_padding padding,
                         const int64_t given[4], tu__windows *windows);

/* For the functions that build several nodes: true if x is [n,h,w,c]; else records the error in the graph. */
bool tu__check_nhwc(tu_value x, const char *operation);

/* For shape rules: computes the number of windows along each axis, 1 + floor((input + padding - extent) / stride).
 * Fails for sizes, strides and dilations below 1, negative padding, windows larger than the input, and overflow. */
tu_status tu__window_outputs(const tu__rule *rule, const tu__windows *windows, const int64_t input[2],
                             int64_t output[2]);
/* Fails unless the input has exactly `expected` windows, for operations whose attribute is the input's size. */
tu_status tu__check_window_outputs(const tu__rule *rule, const tu__windows *windows, const int64_t input[2],
                                   const int64_t expected[2]);

/* Computes the smallest input that has `count` windows; false if it overflows. */
bool tu__window_input(const tu__windows *windows, int axis, int64_t count, int64_t *input);

/* Returns height and width of an input [n,h,w,c]. Gradient rules must not use tu__vjp_input for this: it would
 * trigger a recomputation of values marked for it. */
const int64_t *tu__input_height_width(const tu__vjp *vjp, uint32_t input);

/* Sets all elements to zero. */
void tu__fill_zero(const tu__tensor *tensor);

/* Returns the product of non-negative numbers, at most INT64_MAX. */
int64_t tu__saturating_product(size_t count, const int64_t *factors);

#endif
