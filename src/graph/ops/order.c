/* Cumulative sum and top-k.
 *
 * top_k has two outputs: the k largest values in descending order, and their indices (i64). Equal elements stay in
 * order, and NaN is larger than any number, so the result is the same on every device. Its gradient is put_along with
 * these indices.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* Checks that the elements are numbers and the axis is in range. */
static tu_status check_ordered(const tu__rule *r, int64_t axis) {
    if (r->in[0].dtype == TU_BOOL)
        return tu__rule_fail(r, "the elements are bool, expected numbers: convert with tu_cast");
    if (axis < 0 || axis >= r->in[0].shape.rank) return tu__rule_fail_axis(r, axis);
    return TU_OK;
}

/* For the functions that build nodes: converts a negative axis. Returns an axis out of range unchanged, so that the
 * shape rule reports it as the user wrote it. */
static int64_t normalize_valid_axis(tu_value x, int axis) {
    int64_t normalized = tu__normalize_axis(axis, tu_value_shape(x).rank);
    return normalized < 0 ? axis : normalized;
}

/* ---- cumsum ---- */

tu_status tu__cumsum_shape(tu__rule *r) {
    const struct tu__cumsum_attrs *a = r->attrs;
    TU_TRY(check_ordered(r, a->axis));
    if (a->exclusive & ~INT64_C(1))
        return tu__rule_fail(r, "exclusive is %" PRId64 ", expected 0 or 1", a->exclusive);
    if (a->reverse & ~INT64_C(1))
        return tu__rule_fail(r, "reverse is %" PRId64 ", expected 0 or 1", a->reverse);
    r->out[0] = r->in[0];
    return TU_OK;
}

/* Each element is a term of all later sums, so its gradient is the cumulative sum from the other end. */
void tu__cumsum_gradient(tu__vjp *v) {
    struct tu__cumsum_attrs a = *tu__attrs(v->node, cumsum);
    a.reverse = !a.reverse;
    tu__vjp_accumulate(v, 0, tu__apply(CUMSUM, &a, tu__vjp_gradient(v, 0)));
}

tu_status tu__cumsum_reference(const tu__reference_call *m) {
    const struct tu__cumsum_attrs *a = m->attrs;
    tu__lanes lanes = tu__lanes_of(m->in[0].type.shape, a->axis);
    for (int64_t o = 0; o < lanes.outer; o++)
        for (int64_t k = 0; k < lanes.inner; k++) {
            double sum = 0;
            for (int64_t step = 0; step < lanes.size; step++) {
                int64_t i = a->reverse ? lanes.size - 1 - step : step;
                int64_t offset = (o * lanes.size + i) * lanes.inner + k;
                double inclusive = sum + m->in[0].data[offset];
                m->out[0].data[offset] = a->exclusive ? sum : inclusive;
                sum = inclusive;
            }
        }
    return TU_OK;
}

tu_value tu_cumsum_with(tu_value x, int axis, const tu_cumsum_options *options) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    TU__OPTIONS(tu_cumsum_options, o, options);
    struct tu__cumsum_attrs a = {
        .axis = normalize_valid_axis(x, axis), .exclusive = o.exclusive, .reverse = o.reverse};
    return tu__apply(CUMSUM, &a, x);
}

/* ---- top_k ---- */

tu_status tu__top_k_shape(tu__rule *r) {
    const struct tu__top_k_attrs *a = r->attrs;
    TU_TRY(check_ordered(r, a->axis));
    int64_t size = r->in[0].shape.dim[a->axis];
    if (a->k < 1 || a->k > size)
        return tu__rule_fail(r, "k is %" PRId64 ", expected 1 to %" PRId64 ", the size of axis %" PRId64,
                             a->k, size, a->axis);
    r->out[0] = r->in[0];
    r->out[0].shape.dim[a->axis] = a->k;
    r->out[1] = (tu_type){TU_I64, r->out[0].shape};
    return TU_OK;
}

void tu__top_k_gradient(tu__vjp *v) {
    int64_t axis = tu__attrs(v->node, top_k)->axis;
    int64_t size = tu_value_shape(tu__input_of(v->graph, v->node, 0)).dim[axis];
    tu__vjp_accumulate(v, 0, tu_put_along(tu__vjp_output(v, 1), tu__vjp_gradient(v, 0), (int)axis, size));
}

typedef struct candidate {
    double value;
    int64_t index;
} candidate;

/* Orders NaN first, then descending values; equal values by index. */
static int compare_candidates(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (isnan(a->value) != isnan(b->value)) return isnan(a->value) ? -1 : 1;
    if (a->value > b->value) return -1;
    if (a->value < b->value) return 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

tu_status tu__top_k_reference(const tu__reference_call *m) {
    const struct tu__top_k_attrs *a = m->attrs;
    tu__lanes lanes = tu__lanes_of(m->in[0].type.shape, a->axis);
    candidate *lane = tu__alloc_array((size_t)lanes.size, sizeof *lane, "the candidates of a top_k");
    if (!lane) return TU_NO_MEMORY;
    for (int64_t o = 0; o < lanes.outer; o++)
        for (int64_t k = 0; k < lanes.inner; k++) {
            for (int64_t i = 0; i < lanes.size; i++)
                lane[i] = (candidate){m->in[0].data[(o * lanes.size + i) * lanes.inner + k], i};
            qsort(lane, (size_t)lanes.size, sizeof *lane, compare_candidates);
            for (int64_t i = 0; i < a->k; i++) {
                int64_t offset = (o * a->k + i) * lanes.inner + k;
                m->out[0].data[offset] = lane[i].value;
                m->out[1].data[offset] = (double)lane[i].index;
            }
        }
    tu__free(lane);
    return TU_OK;
}

tu_value tu_top_k(tu_value x, int64_t k, int axis) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    struct tu__top_k_attrs a = {.axis = normalize_valid_axis(x, axis), .k = k};
    return tu__apply(TOP_K, &a, x);
}
