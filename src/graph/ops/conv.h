/* What conv2d (conv.c) and conv2d_int8 (quantized.c) share. The attributes of conv2d_int8 begin with those of
 * conv2d. */
#ifndef TU__GRAPH_OPS_CONV_H
#define TU__GRAPH_OPS_CONV_H

#include <tutti/ops.h>

#include "graph/graph.h"

/* Computes the shape of a convolution's result; fails for wrong sizes. The operands must have rank 4. */
tu_status tu__conv2d_output_shape(tu__rule *rule, int64_t members);

/* Computes y from x and the filter f, in f64. */
tu_status tu__conv2d_compute(const struct tu__conv2d_attrs *attrs, const tu__tensor *x, const tu__tensor *f,
                             const tu__tensor *y);

/* Counts a multiplication and an addition per tap and channel, including padding. */
int64_t tu__conv_flops(tu_type filter, tu_type result);

/* Sets the attributes from the options. Returns false if an operand is invalid, or after recording an error in the
 * graph. */
bool tu__conv2d_attrs_of(const char *operation, tu_value x, tu_value filter,
                         const tu_convolve_options *options, struct tu__conv2d_attrs *attrs);

#endif
