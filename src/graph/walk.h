/* Index arithmetic that shape rules and meanings share: axes, strides, broadcasting, checked products. */
#ifndef TU__GRAPH_WALK_H
#define TU__GRAPH_WALK_H

#include "base/shared.h"
#include "graph/graph.h"

/* Rank, dimensions and number of elements are usable: every dimension at least 1, the product below 2^48. */
bool tu__shape_valid(tu_shape shape);

/* The axis counted from the front; -1 when it is out of range. */
int64_t tu__normal_axis(int64_t axis, int64_t rank);

/* The common shape of two under broadcasting; false when there is none. */
bool tu__broadcast_shapes(tu_shape a, tu_shape b, tu_shape *out);

/* Row-major strides in elements. */
TU__SHARED void tu__strides(tu_shape shape, int64_t strides[TU_MAX_RANK]);
/* Strides of `from` walked as if it had shape `to`: zero where it repeats. */
TU__SHARED void tu__broadcast_strides(tu_shape from, tu_shape to, int64_t strides[TU_MAX_RANK]);

/* A shape seen around one axis: `outer` slices before it, `size` along it, `inner` elements after it. Element
 * (o, i, k) is at (o * size + i) * inner + k. */
typedef struct tu__lanes {
    int64_t outer, size, inner;
} tu__lanes;
TU__SHARED tu__lanes tu__lanes_of(tu_shape shape, int64_t axis);

/* Visits every index of `shape` in row-major order, keeping up to three offsets up to date by their strides.
 *
 *     tu__walk w = tu__walk_begin(shape, 2, (const int64_t *[]){xs, ys});
 *     do { out[i++] = f(x[w.offset[0]], y[w.offset[1]]); } while (tu__walk_next(&w));
 */
typedef struct tu__walk {
    tu_shape shape;
    int count;
    int64_t stride[3][TU_MAX_RANK];
    int64_t index[TU_MAX_RANK];
    int64_t offset[3];
} tu__walk;
tu__walk tu__walk_begin(tu_shape shape, int count, const int64_t *const *strides);
bool tu__walk_next(tu__walk *walk);

/* Sums a gradient over the axes along which `shape` was broadcast, so that it has that shape. */
tu_value tu__sum_to_shape(tu_value gradient, tu_shape shape);

/* Zeros or ones of a value's type. */
tu_value tu__zeros_like(tu_value like);
tu_value tu__ones_like(tu_value like);

#endif
