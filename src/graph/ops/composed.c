/* Functions that arrange elements and are composed of other operations: eye, diagonal, diagonal_matrix, stack, split.
 *
 * None has a row in the table, so shape rules, gradients and kernels are those of what they are made of. The diagonal of a
 * matrix is a slice of its elements in one row: element i of diagonal `offset` stands n + 1 places after element i - 1,
 *
 *     a b c
 *     d e f   ->  reshape: a b c d e f g h i   ->  slice from 0 by 4: a e i
 *     g h i
 *
 * and a matrix from its diagonal is the transpose of that: a pad with n zeros between two elements. */
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

/* x with its axes from `from` on replaced by one of `size` elements. */
static tu_shape merged_from(tu_shape shape, int64_t from, int64_t size) {
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
                              "diagonal of '%s' %s: offset is %" PRId64 ", expected one in [%" PRId64
                              ", %" PRId64 "]",
                              tu_value_name(x), tu__type_string(type), offset, 1 - m, n - 1);
    int64_t rows = offset < 0 ? m + offset : m, columns = offset > 0 ? n - offset : n;
    int64_t count = rows < columns ? rows : columns, first = offset < 0 ? -offset * n : offset;
    tu_value elements = tu_reshape(x, merged_from(type.shape, rank - 2, m * n));
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
    const int64_t most = 1 << 24; /* its square is 2^48, the most elements a tensor has */
    int64_t count = type.shape.dim[last];
    if (offset <= -most || offset >= most || count + (offset < 0 ? -offset : offset) > most)
        return tu__graph_fail(x.graph, TU_INVALID,
                              "diagonal_matrix of '%s' %s: offset is %" PRId64
                              ", expected one that gives a matrix of at most 2^24 rows",
                              tu_value_name(x), tu__type_string(type), offset);
    int64_t n = count + (offset < 0 ? -offset : offset), first = offset < 0 ? -offset * n : offset;
    struct tu__pad_attrs pad = {.number = 0};
    pad.before[last] = first;
    pad.between[last] = count > 1 ? n : 0; /* zero where there is nothing between */
    pad.after[last] = n * n - 1 - (first + (count - 1) * (n + 1));
    tu_shape matrices = merged_from(type.shape, last, n);
    matrices.dim[matrices.rank++] = n;
    return tu_reshape(tu__apply(PAD, &pad, x), matrices);
}

/* ---- Stack and split ---- */

tu_value tu_stack(const tu_value *parts, size_t count, int axis) {
    if (count == 0) {
        tu_fail(TU_INVALID, "stack of no parts: expected at least one");
        return tu__invalid(NULL);
    }
    tu_type first = tu_value_type(parts[0]);
    for (size_t i = 0; i < count; i++) {
        if (!tu_ok(parts[i])) return tu__invalid(parts[i].graph);
        tu_type type = tu_value_type(parts[i]);
        if (type.dtype != first.dtype || !tu_shape_equal(type.shape, first.shape))
            return tu__graph_fail(
                parts[0].graph, TU_INVALID,
                "stack: part %zu, '%s', is %s where part 0 is %s: expected the same element "
                "type and shape",
                i, tu_value_name(parts[i]), tu__type_string(type), tu__type_string(first));
    }
    int64_t normal = tu__normal_axis(axis, first.shape.rank + 1);
    if (normal < 0 || first.shape.rank == TU_MAX_RANK)
        return tu__graph_fail(parts[0].graph, TU_INVALID,
                              "stack of '%s' %s: axis %d: expected one in [%" PRId64 ", %" PRId64
                              "] and a result of at most %d axes",
                              tu_value_name(parts[0]), tu__type_string(first), axis, -first.shape.rank - 1,
                              first.shape.rank, TU_MAX_RANK);
    tu_value *expanded = tu__alloc_array(count, sizeof *expanded, "the parts of a stack");
    if (!expanded) return tu__graph_fail(parts[0].graph, TU_NO_MEMORY, "%s", tu_message());
    for (size_t i = 0; i < count; i++) expanded[i] = tu_expand_axis(parts[i], (int)normal);
    tu_value stacked = tu_concat(expanded, count, (int)normal);
    tu__free(expanded);
    return stacked;
}

/* What is wrong with the sizes is said where it is found; then no part is made. */
static tu_status check_sizes(tu_value x, int64_t axis, size_t count, const int64_t *sizes) {
    tu_type type = tu_value_type(x);
    int64_t size = type.shape.dim[axis], sum = 0;
    const char *name = tu_value_name(x);
    if (count == 0)
        tu__graph_fail(x.graph, TU_INVALID, "split_axis of '%s' %s: expected at least one part", name,
                       tu__type_string(type));
    else if (!sizes && (count > (size_t)size || size % (int64_t)count != 0))
        tu__graph_fail(x.graph, TU_INVALID,
                       "split_axis of '%s' %s: axis %" PRId64 " of size %" PRId64
                       " cannot be divided into %zu equal parts: give their sizes",
                       name, tu__type_string(type), axis, size, count);
    for (size_t i = 0; sizes && i < count; i++) {
        if (sizes[i] < 1 || sizes[i] > size - sum) {
            tu__graph_fail(x.graph, TU_INVALID,
                           "split_axis of '%s' %s: part %zu has size %" PRId64 " where %" PRId64
                           " of axis %" PRId64
                           " are left: expected sizes of at least 1 that add up to %" PRId64,
                           name, tu__type_string(type), i, sizes[i], size - sum, axis, size);
            break;
        }
        sum += sizes[i];
    }
    if (sizes && count && sum != size)
        tu__graph_fail(x.graph, TU_INVALID,
                       "split_axis of '%s' %s: the %zu sizes add up to %" PRId64 ", expected %" PRId64
                       ", the size of axis %" PRId64,
                       name, tu__type_string(type), count, sum, size, axis);
    return tu_graph_status(x.graph);
}

tu_status tu_split_axis(tu_value x, int axis, size_t count, const int64_t *sizes, tu_value *parts) {
    for (size_t i = 0; i < count; i++) parts[i] = tu__invalid(x.graph);
    if (!tu_ok(x)) return x.graph ? tu_graph_status(x.graph) : tu_fail(TU_INVALID, "split_axis of no value");
    tu_type type = tu_value_type(x);
    int64_t at = tu__normal_axis(axis, type.shape.rank), begin = 0;
    if (at < 0) {
        tu__graph_fail(x.graph, TU_INVALID,
                       "split_axis of '%s' %s: axis %d does not exist, expected one in [%" PRId64 ", %" PRId64
                       ")",
                       tu_value_name(x), tu__type_string(type), axis, -type.shape.rank, type.shape.rank);
        return tu_graph_status(x.graph);
    }
    TU_TRY(check_sizes(x, at, count, sizes));
    for (size_t i = 0; i < count; i++) {
        int64_t size = sizes ? sizes[i] : type.shape.dim[at] / (int64_t)count;
        parts[i] = tu_slice(x, (int)at, begin, begin + size, 1);
        begin += size;
    }
    return tu_graph_status(x.graph);
}
