/* Windows that slide over an image: what convolution and pooling share.
 *
 * Along each of the two spatial axes a window of `size` places, `dilation` apart, moves in steps of
 * `stride` over the input with `pad` places added before and after it. All that depends on these numbers
 * alone is here, so that convolution, pooling and their gradients agree on it: how padding is resolved,
 * how many windows fit, which numbers are refused. Arrays of two are height, width; pad is top, bottom,
 * left, right.
 *
 * Every number may come from a file and is checked before it is used. Once tu__window_outputs accepts
 * them, the position of every place of every window, padding included, fits into an int64_t.
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

/* The options' padding as numbers, into windows->pad; for a builder. TU_SAME is resolved as TensorFlow
 * does: the output has ceil(input / stride) places, and of an odd number of padded places the last goes
 * after. Where sizes or strides are senseless the padding is zero, and the shape rule refuses them. False,
 * with the mistake stuck to the graph, when `padding` is none of the three or contradicts `given`. */
bool tu__resolve_padding(tu_value x, const char *operation, const int64_t input[2], tu_padding padding,
                         const int64_t given[4], tu__windows *windows);

/* Whether x is [n,h,w,c]; for a builder made of other operations. False with the mistake stuck to the graph. */
bool tu__is_images(tu_value x, const char *operation);

/* The number of windows along each axis, 1 + floor((input + padding - extent) / stride); for a shape rule.
 * Refuses sizes, strides and dilations below 1, negative padding, windows that do not fit and numbers that
 * overflow. */
tu_status tu__window_outputs(const tu__rule *rule, const tu__windows *windows, const int64_t input[2],
                             int64_t output[2]);
/* Refuses unless the input gives exactly `expected` windows: for operations that are told the input's
 * size. */
tu_status tu__window_outputs_are(const tu__rule *rule, const tu__windows *windows, const int64_t input[2],
                                 const int64_t expected[2]);

/* The smallest input that gives `count` windows; false when it does not fit. */
bool tu__window_input(const tu__windows *windows, int axis, int64_t count, int64_t *input);

/* Height and width of an input [n,h,w,c], from its type alone: a gradient rule that asks tu__vjp_input for
 * no more than the shape would have the value computed again where it is marked so. */
const int64_t *tu__input_size(const tu__vjp *vjp, uint32_t input);

/* Zeros: where a transpose adds up. */
void tu__clear(const tu__tensor *tensor);

/* A product of numbers that are not negative, INT64_MAX when it is larger: counts of floating-point
 * operations. */
int64_t tu__saturating_product(size_t count, const int64_t *factors);

#endif
