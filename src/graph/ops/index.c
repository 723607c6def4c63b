/* Indexing by tensors of indices.
 *
 *     gather       out[o, j, k] = table[o, indices[j], k]                 j runs over all of `indices`
 *     scatter_add  out = base; out[o, indices[j], k] += updates[o, j, k]  gather's transpose
 *     take_along   out[o, i, k] = x[o, indices[o, i, k], k]
 *     put_along    out = 0; out[o, indices[o, i, k], k] += updates[o, i, k]   take_along's transpose
 *     one_hot      out[j, c] = (indices[j] == c)                     1 or 0
 *
 * where o stands for the axes before the indexed axis, and k for those after it. In every operation an index
 * out of range reads zero and writes nothing, so padding tokens and masked rows need no special case, and no index
 * accesses memory out of bounds. Updates are added in row-major order, so that repeated indices give bit-identical
 * sums.
 *
 * gather and scatter_add are each other's gradients, and so are take_along and put_along. put_along adds: unlike
 * NumPy's put_along_axis, it sums the updates of equal indices. Indices have no gradient. */
#include <inttypes.h>
#include <string.h>

#include <tutti/ops.h>

#include "base/text.h"
#include "graph/rules.h"
#include "graph/walk.h"

/* ---- Common checks ---- */

static tu_status check_indices(const tu__rule *r, uint32_t input) {
    tu_dtype dtype = r->in[input].dtype;
    if (dtype == TU_I32 || dtype == TU_I64) return TU_OK;
    return tu__rule_fail(r, "the indices (input %u) are %s, expected i32 or i64", input,
                         tu_dtype_name(dtype));
}

static tu_status check_axis(const tu__rule *r, int64_t axis, int64_t rank) {
    if (axis >= 0 && axis < rank) return TU_OK;
    return tu__rule_fail_axis(r, axis);
}

static tu_status check_addable(const tu__rule *r, tu_dtype dtype) {
    if (dtype != TU_BOOL) return TU_OK;
    return tu__rule_fail(r, "the elements are bool, which cannot be added: convert with tu_cast");
}

static tu_status set_output_type(tu__rule *r, tu_dtype dtype, tu_shape shape) {
    if (!tu__shape_valid(shape))
        return tu__rule_fail(
            r, "the result %s is too large: expected at most 2^48 elements in at most %d dimensions",
            tu__shape_string(shape), TU_MAX_RANK);
    r->out[0] = (tu_type){dtype, shape};
    return TU_OK;
}

/* For the functions that build nodes: converts a negative axis. Returns an axis out of range unchanged, so that the
 * shape rule reports it as the user wrote it. */
static int64_t normalize_valid_axis(tu_value x, int axis) {
    int64_t normalized = tu_ok(x) ? tu__normalize_axis(axis, tu_value_shape(x).rank) : -1;
    return normalized < 0 ? axis : normalized;
}

/* Returns the index as an integer; -1 if it is outside [0, size). */
static int64_t checked_index(double index, int64_t size) {
    return index >= 0 && index < (double)size ? (int64_t)index : -1;
}

/* ---- gather, scatter_add ---- */

/* Returns the shape of `table` with `axis` replaced by the axes of `indices`; rank -1 if that is more than
 * TU_MAX_RANK. */
static tu_shape gathered_shape(tu_shape table, tu_shape indices, int64_t axis) {
    tu_shape shape = {.rank = table.rank - 1 + indices.rank};
    if (shape.rank > TU_MAX_RANK) return (tu_shape){.rank = -1};
    for (int64_t i = 0; i < axis; i++) shape.dim[i] = table.dim[i];
    for (int64_t i = 0; i < indices.rank; i++) shape.dim[axis + i] = indices.dim[i];
    for (int64_t i = axis + 1; i < table.rank; i++) shape.dim[i - 1 + indices.rank] = table.dim[i];
    return shape;
}

tu_status tu__gather_shape(tu__rule *r) {
    int64_t axis = ((const struct tu__gather_attrs *)r->attrs)->axis;
    TU_TRY(check_indices(r, 1));
    TU_TRY(check_axis(r, axis, r->in[0].shape.rank));
    return set_output_type(r, r->in[0].dtype, gathered_shape(r->in[0].shape, r->in[1].shape, axis));
}

void tu__gather_gradient(tu__vjp *v) {
    tu_value zeros = tu__zeros_like(tu__input_of(v->graph, v->node, 0));
    tu__vjp_accumulate(
        v, 0, tu__apply(SCATTER_ADD, v->node->attrs, zeros, tu__vjp_input(v, 1), tu__vjp_gradient(v, 0)));
}

tu_status tu__gather_reference(const tu__reference_call *call) {
    tu__lanes table =
        tu__lanes_of(call->in[0].type.shape, ((const struct tu__gather_attrs *)call->attrs)->axis);
    int64_t count = tu_shape_elements(call->in[1].type.shape);
    size_t row_bytes = (size_t)table.inner * sizeof(double);
    double *row = call->out[0].data;
    for (int64_t o = 0; o < table.outer; o++)
        for (int64_t j = 0; j < count; j++, row += table.inner) {
            int64_t index = checked_index(call->in[1].data[j], table.size);
            if (index < 0)
                memset(row, 0, row_bytes);
            else
                memcpy(row, call->in[0].data + (o * table.size + index) * table.inner, row_bytes);
        }
    return TU_OK;
}

tu_value tu_gather(tu_value table, tu_value indices, int axis) {
    struct tu__gather_attrs attrs = {normalize_valid_axis(table, axis)};
    return tu__apply(GATHER, &attrs, table, indices);
}

tu_status tu__scatter_add_shape(tu__rule *r) {
    int64_t axis = ((const struct tu__scatter_add_attrs *)r->attrs)->axis;
    TU_TRY(check_addable(r, r->in[0].dtype));
    TU_TRY(check_indices(r, 1));
    TU_TRY(check_axis(r, axis, r->in[0].shape.rank));
    tu_type expected = {r->in[0].dtype, gathered_shape(r->in[0].shape, r->in[1].shape, axis)};
    if (r->in[2].dtype != expected.dtype || !tu_shape_equal(r->in[2].shape, expected.shape))
        return tu__rule_fail(r, "the updates (input 2) are %s, expected %s", tu__type_string(r->in[2]),
                             tu__type_string(expected));
    return set_output_type(r, r->in[0].dtype, r->in[0].shape);
}

void tu__scatter_add_gradient(tu__vjp *v) {
    tu_value g = tu__vjp_gradient(v, 0);
    tu__vjp_accumulate(v, 0, g);
    if (tu__vjp_needs_gradient(v, 2))
        tu__vjp_accumulate(v, 2, tu__apply(GATHER, v->node->attrs, g, tu__vjp_input(v, 1)));
}

tu_status tu__scatter_add_reference(const tu__reference_call *call) {
    tu__lanes base =
        tu__lanes_of(call->in[0].type.shape, ((const struct tu__scatter_add_attrs *)call->attrs)->axis);
    int64_t count = tu_shape_elements(call->in[1].type.shape);
    const double *row = call->in[2].data;
    memcpy(call->out[0].data, call->in[0].data,
           (size_t)tu_shape_elements(call->in[0].type.shape) * sizeof(double));
    for (int64_t o = 0; o < base.outer; o++)
        for (int64_t j = 0; j < count; j++, row += base.inner) {
            int64_t index = checked_index(call->in[1].data[j], base.size);
            if (index < 0) continue;
            double *target = call->out[0].data + (o * base.size + index) * base.inner;
            for (int64_t k = 0; k < base.inner; k++) target[k] += row[k];
        }
    return TU_OK;
}

tu_value tu_scatter_add(tu_value base, tu_value indices, tu_value updates, int axis) {
    struct tu__scatter_add_attrs attrs = {normalize_valid_axis(base, axis)};
    return tu__apply(SCATTER_ADD, &attrs, base, indices, updates);
}

/* ---- take_along, put_along ---- */

tu_status tu__take_along_shape(tu__rule *r) {
    int64_t axis = ((const struct tu__take_along_attrs *)r->attrs)->axis;
    tu_shape x = r->in[0].shape, indices = r->in[1].shape;
    TU_TRY(check_indices(r, 1));
    TU_TRY(check_axis(r, axis, x.rank));
    x.dim[axis] = indices.dim[axis]; /* 0 if axis >= indices.rank; then the comparison fails */
    if (!tu_shape_equal(x, indices))
        return tu__rule_fail(r, "the indices have shape %s, expected the shape of x except at axis %" PRId64,
                             tu__shape_string(indices), axis);
    return set_output_type(r, r->in[0].dtype, indices);
}

void tu__take_along_gradient(tu__vjp *v) {
    int64_t axis = tu__attrs(v->node, take_along)->axis;
    int64_t size = tu_value_shape(tu__input_of(v->graph, v->node, 0)).dim[axis];
    tu__vjp_accumulate(v, 0, tu_put_along(tu__vjp_input(v, 1), tu__vjp_gradient(v, 0), (int)axis, size));
}

tu_status tu__take_along_reference(const tu__reference_call *call) {
    int64_t axis = ((const struct tu__take_along_attrs *)call->attrs)->axis;
    tu__lanes x = tu__lanes_of(call->in[0].type.shape, axis),
              out = tu__lanes_of(call->out[0].type.shape, axis);
    for (int64_t o = 0; o < out.outer; o++)
        for (int64_t i = 0; i < out.size; i++)
            for (int64_t k = 0; k < out.inner; k++) {
                int64_t offset = (o * out.size + i) * out.inner + k;
                int64_t index = checked_index(call->in[1].data[offset], x.size);
                call->out[0].data[offset] =
                    index < 0 ? 0 : call->in[0].data[(o * x.size + index) * x.inner + k];
            }
    return TU_OK;
}

tu_value tu_take_along(tu_value x, tu_value indices, int axis) {
    struct tu__take_along_attrs attrs = {normalize_valid_axis(x, axis)};
    return tu__apply(TAKE_ALONG, &attrs, x, indices);
}

tu_status tu__put_along_shape(tu__rule *r) {
    const struct tu__put_along_attrs *attrs = r->attrs;
    tu_shape shape = r->in[0].shape;
    TU_TRY(check_indices(r, 0));
    TU_TRY(check_addable(r, r->in[1].dtype));
    TU_TRY(check_axis(r, attrs->axis, shape.rank));
    if (!tu_shape_equal(r->in[1].shape, shape))
        return tu__rule_fail(r, "the updates have shape %s, expected %s, the shape of the indices",
                             tu__shape_string(r->in[1].shape), tu__shape_string(shape));
    if (attrs->size < 1)
        return tu__rule_fail(r, "size is %" PRId64 " for axis %" PRId64 ", expected at least 1", attrs->size,
                             attrs->axis);
    shape.dim[attrs->axis] = attrs->size;
    return set_output_type(r, r->in[1].dtype, shape);
}

void tu__put_along_gradient(tu__vjp *v) {
    int64_t axis = tu__attrs(v->node, put_along)->axis;
    tu__vjp_accumulate(v, 1, tu_take_along(tu__vjp_gradient(v, 0), tu__vjp_input(v, 0), (int)axis));
}

tu_status tu__put_along_reference(const tu__reference_call *call) {
    int64_t axis = ((const struct tu__put_along_attrs *)call->attrs)->axis;
    tu__lanes in = tu__lanes_of(call->in[0].type.shape, axis),
              out = tu__lanes_of(call->out[0].type.shape, axis);
    memset(call->out[0].data, 0, (size_t)tu_shape_elements(call->out[0].type.shape) * sizeof(double));
    for (int64_t o = 0; o < in.outer; o++)
        for (int64_t i = 0; i < in.size; i++)
            for (int64_t k = 0; k < in.inner; k++) {
                int64_t offset = (o * in.size + i) * in.inner + k;
                int64_t index = checked_index(call->in[0].data[offset], out.size);
                if (index >= 0)
                    call->out[0].data[(o * out.size + index) * out.inner + k] += call->in[1].data[offset];
            }
    return TU_OK;
}

tu_value tu_put_along(tu_value indices, tu_value updates, int axis, int64_t size) {
    struct tu__put_along_attrs attrs = {normalize_valid_axis(indices, axis), size};
    return tu__apply(PUT_ALONG, &attrs, indices, updates);
}

/* ---- one_hot ---- */

tu_status tu__one_hot_shape(tu__rule *r) {
    const struct tu__one_hot_attrs *attrs = r->attrs;
    tu_shape shape = r->in[0].shape;
    TU_TRY(check_indices(r, 0));
    if (attrs->classes < 1)
        return tu__rule_fail(r, "classes is %" PRId64 ", expected at least 1", attrs->classes);
    if (attrs->dtype < 0 || attrs->dtype >= TU_DTYPE_COUNT)
        return tu__rule_fail(r, "unknown element type %" PRId64 ", expected 0 to %d", attrs->dtype,
                             TU_DTYPE_COUNT - 1);
    if (shape.rank == TU_MAX_RANK)
        return tu__rule_fail(r, "the result would have too many axes: expected indices of at most %d axes",
                             TU_MAX_RANK - 1);
    shape.dim[shape.rank++] = attrs->classes;
    return set_output_type(r, (tu_dtype)attrs->dtype, shape);
}

tu_status tu__one_hot_reference(const tu__reference_call *call) {
    int64_t classes = ((const struct tu__one_hot_attrs *)call->attrs)->classes;
    int64_t count = tu_shape_elements(call->in[0].type.shape);
    memset(call->out[0].data, 0, (size_t)(count * classes) * sizeof(double));
    for (int64_t j = 0; j < count; j++) {
        int64_t index = checked_index(call->in[0].data[j], classes);
        if (index >= 0) call->out[0].data[j * classes + index] = 1;
    }
    return TU_OK;
}

tu_value tu_one_hot(tu_value indices, int64_t classes, tu_dtype dtype) {
    struct tu__one_hot_attrs attrs = {classes, (int64_t)dtype};
    return tu__apply(ONE_HOT, &attrs, indices);
}
