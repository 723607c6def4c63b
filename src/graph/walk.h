/* Index arithmetic for shape rules and reference kernels: axes, strides, broadcasting. */
#ifndef TU__GRAPH_WALK_H
#define TU__GRAPH_WALK_H

#include "base/shared.h"
#include "graph/graph.h"

/* True if rank and dimensions are valid: every dimension is at least 1 and the product at most 2^48. */
bool tu__shape_valid(tu_shape shape);

/* Converts a negative axis to one counted from the front; returns -1 if it is out of range. */
int64_t tu__normalize_axis(int64_t axis, int64_t rank);

/* Sets `*out` to the broadcast shape of `a` and `b`; returns false if they do not broadcast. */
bool tu__broadcast_shapes(tu_shape a, tu_shape b, tu_shape *out);

/* Computes row-major strides in elements. */
TU__SHARED void tu__strides(tu_shape shape, int64_t strides[TU_MAX_RANK]);
/* Computes the strides of `from` broadcast to the shape `to`: zero along broadcast axes. */
TU__SHARED void tu__broadcast_strides(tu_shape from, tu_shape to, int64_t strides[TU_MAX_RANK]);

/* A shape reshaped to three dimensions around one axis: [outer, size, inner]. Element (o, i, k) is at
 * (o * size + i) * inner + k. */
typedef struct tu__lanes {
    int64_t outer, size, inner;
} tu__lanes;
TU__SHARED tu__lanes tu__lanes_of(tu_shape shape, int64_t axis);

/* Visits every index of `shape` in row-major order and computes up to three offsets from their strides.
 *
 *     tu__walk w = tu__walk_begin(shape, 2, (const int64_t *[]){xs, ys});
 *     do { out[i++] = f(x[w.offset[0]], y[w.offset[1]]); } while (tu__walk_next(&w));
 */
typedef struct tu__walk {
    tu_shape shape;
    int count; /* number of offsets */
    int64_t stride[3][TU_MAX_RANK];
    int64_t index[TU_MAX_RANK]; /* the current index */
    int64_t offset[3];          /* its offsets */
} tu__walk;
tu__walk tu__walk_begin(tu_shape shape, int count, const int64_t *const *strides);
bool tu__walk_next(tu__walk *walk);

/* Sums a gradient over the axes along which `shape` was broadcast; the result has that shape. */
tu_value tu__sum_to_shape(tu_value gradient, tu_shape shape);

/* Return zeros or ones of the type of `like`. */
tu_value tu__zeros_like(tu_value like);
tu_value tu__ones_like(tu_value like);

#endif
