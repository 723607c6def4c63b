/* Functions composed of other operations: eye, diagonal, diagonal_matrix, stack, split.
 *
 * They have no rows in ops.def: shape rules, gradients and kernels are those of the operations they use. The diagonal
 * of a matrix with n columns is a strided slice of its elements: element i is n + 1 elements after element i - 1,
 *
 *     a b c
 *     d e f   ->  reshape: a b c d e f g h i   ->  slice from 0 by 4: a e i
 *     g h i
 *
 * A matrix is built from its diagonal by the transpose of that: a pad with n zeros between two elements. */
#include <inttypes.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/text.h"
#include "graph/graph.h"
#include "graph/rules.h"
#include "graph/walk.h"

tu_value tu_eye(tu_graph *graph, tu_dtype dtype, int64_t rows, int64_t columns) {
    return tu_band(tu_fill(graph, dtype, TU_SHAPE(rows, columns), 1), 0, 0);
}

/* ---- Diagonals ---- */

/* Returns `shape` with the axes from `from` on replaced by one axis of `size` elements. */
static tu_shape merge_trailing_axes(tu_shape shape, int64_t from, int64_t size) {
    tu_shape merged = tu_shape_of((size_t)from, shape.dim);
    merged.dim[merged.rank++] = size;
    return merged;
}

tu_value tu_diagonal(tu_value x, int64_t offset) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_type type = tu_value_type(x);
    int64_t rank = type.shape.rank;
    if (rank < 2)
        return tu__graph_fail(x.graph, TU_INVALID, "diagonal of '%s' %s: expected matrices [..., m, n]",
                              tu_value_name(x), tu__type_string(type));
    int64_t m = type.shape.dim[rank - 2], n = type.shape.dim[rank - 1];
    if (offset <= -m || offset >= n)
        return tu__graph_fail(x.graph, TU_INVALID,
                              "diagonal of '%s' %s: offset is %" PRId64 ", expected %" PRId64 " to %" PRId64,
                              tu_value_name(x), tu__type_string(type), offset, 1 - m, n - 1);
    int64_t rows = offset < 0 ? m + offset : m, columns = offset > 0 ? n - offset : n;
    int64_t count = rows < columns ? rows : columns, first = offset < 0 ? -offset * n : offset;
    tu_value elements = tu_reshape(x, merge_trailing_axes(type.shape, rank - 2, m * n));
    return tu_slice(elements, -1, first, first + (count - 1) * (n + 1) + 1, n + 1);
}

tu_value tu_diagonal_matrix(tu_value x, int64_t offset) {
    if (!tu_ok(x)) return tu__invalid(x.graph);
    tu_type type = tu_value_type(x);
    int64_t rank = type.shape.rank, last = rank - 1;
    if (rank < 1 || rank >= TU_MAX_RANK)
        return tu__graph_fail(x.graph, TU_INVALID,
                              "diagonal_matrix of '%s' %s: expected diagonals [..., n] of 1 to %d axes",
                              tu_value_name(x), tu__type_string(type), TU_MAX_RANK - 1);
    const int64_t max_rows = 1 << 24; /* its square is 2^48, the maximum number of elements */
    int64_t count = type.shape.dim[last];
    if (offset <= -max_rows || offset >= max_rows || count + (offset < 0 ? -offset : offset) > max_rows)
        return tu__graph_fail(x.graph, TU_INVALID,
                              "diagonal_matrix of '%s' %s: offset is %" PRId64
                              ", expected an offset for a matrix of at most 2^24 rows",
                              tu_value_name(x), tu__type_string(type), offset);
    int64_t n = count + (offset < 0 ? -offset : offset), first = offset < 0 ? -offset * n : offset;
    struct tu__pad_attrs pad = {.number = 0};
    pad.before[last] = first;
    pad.between[last] = count > 1 ? n : 0; /* canonical form: zero for a single element */
    pad.after[last] = n * n - 1 - (first + (count - 1) * (n + 1));
    tu_shape matrices = merge_trailing_axes(type.shape, last, n);
    matrices.dim[matrices.rank++] = n;
    return tu_reshape(tu__apply(PAD, &pad, x), matrices);
}

/* ---- Stack and split ---- */

tu_value tu_stack(const tu_value *parts, size_t count, int axis) {
    if (count == 0) {
        tu_fail(TU_INVALID, "stack: count is 0, expected at least one value");
        return tu__invalid(NULL);
    }
    tu_type first = tu_value_type(parts[0]);
    for (size_t i = 0; i < count; i++) {
        if (!tu_ok(parts[i])) return tu__invalid(parts[i].graph);
        tu_type type = tu_value_type(parts[i]);
        if (type.dtype != first.dtype || !tu_shape_equal(type.shape, first.shape))
            return tu__graph_fail(
                parts[0].graph, TU_INVALID,
                "stack: value %zu, '%s', is %s, but value 0 is %s: expected equal types and shapes", i,
                tu_value_name(parts[i]), tu__type_string(type), tu__type_string(first));
    }
    int64_t position = tu__normalize_axis(axis, first.shape.rank + 1);
    if (position < 0 || first.shape.rank == TU_MAX_RANK)
        return tu__graph_fail(parts[0].graph, TU_INVALID,
                              "stack of '%s' %s: new axis %d: expected %" PRId64 " to %" PRId64
                              " and a result of at most %d axes",
                              tu_value_name(parts[0]), tu__type_string(first), axis, -first.shape.rank - 1,
                              first.shape.rank, TU_MAX_RANK);
    tu_value *expanded = tu__alloc_array(count, sizeof *expanded, "the parts of a stack");
    if (!expanded) return tu__graph_fail(parts[0].graph, TU_NO_MEMORY, "%s", tu_message());
    for (size_t i = 0; i < count; i++) expanded[i] = tu_expand_axis(parts[i], (int)position);
    tu_value stacked = tu_concat(expanded, count, (int)position);
    tu__free(expanded);
    return stacked;
}

/* Checks the sizes of split_axis: equal parts if `sizes` is NULL. Records errors in the graph. */
static tu_status check_sizes(tu_value x, int64_t axis, size_t count, const int64_t *sizes) {
    tu_type type = tu_value_type(x);
    int64_t size = type.shape.dim[axis], sum = 0;
    const char *name = tu_value_name(x);
    if (count == 0)
        tu__graph_fail(x.graph, TU_INVALID, "split_axis of '%s' %s: count is 0, expected at least 1", name,
                       tu__type_string(type));
    else if (!sizes && (count > (size_t)size || size % (int64_t)count != 0))
        tu__graph_fail(x.graph, TU_INVALID,
                       "split_axis of '%s' %s: axis %" PRId64 " of size %" PRId64
                       " is not divisible into %zu equal parts: pass their sizes",
                       name, tu__type_string(type), axis, size, count);
    for (size_t i = 0; sizes && i < count; i++) {
        if (sizes[i] < 1 || sizes[i] > size - sum) {
            tu__graph_fail(x.graph, TU_INVALID,
                           "split_axis of '%s' %s: sizes[%zu] is %" PRId64 ", but %" PRId64
                           " elements of axis %" PRId64
                           " are left: expected sizes of at least 1 with the sum %" PRId64,
                           name, tu__type_string(type), i, sizes[i], size - sum, axis, size);
            break;
        }
        sum += sizes[i];
    }
    if (sizes && count && sum != size)
        tu__graph_fail(x.graph, TU_INVALID,
                       "split_axis of '%s' %s: the sum of the %zu sizes is %" PRId64 ", expected %" PRId64
                       ", the size of axis %" PRId64,
                       name, tu__type_string(type), count, sum, size, axis);
    return tu_graph_status(x.graph);
}

tu_status tu_split_axis(tu_value x, int axis, size_t count, const int64_t *sizes, tu_value *parts) {
    for (size_t i = 0; i < count; i++) parts[i] = tu__invalid(x.graph);
    if (!tu_ok(x))
        return x.graph ? tu_graph_status(x.graph)
                       : tu_fail(TU_INVALID, "split_axis: x is an uninitialised tu_value");
    tu_type type = tu_value_type(x);
    int64_t index = tu__normalize_axis(axis, type.shape.rank), begin = 0;
    if (index < 0) {
        tu__graph_fail_axis("split_axis", x, axis);
        return tu_graph_status(x.graph);
    }
    TU_TRY(check_sizes(x, index, count, sizes));
    for (size_t i = 0; i < count; i++) {
        int64_t size = sizes ? sizes[i] : type.shape.dim[index] / (int64_t)count;
        parts[i] = tu_slice(x, (int)index, begin, begin + size, 1);
        begin += size;
    }
    return tu_graph_status(x.graph);
}
