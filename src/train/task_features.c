/* The input of a network for the fields of a table.
 *
 *     numbers      (x - mean) / deviation; a missing one is the mean, 0
 *     indicators   1 for a missing number, of each field of which training samples lack some
 *     categories   a 1 at the category's place; zeros for a missing one, and for one that training never saw
 *
 * Means, deviations and the numbers of categories are constants of the graph, so that a model takes raw cells. */
#include <string.h>

#include <tutti/ops.h>

#include "base/alloc.h"
#include "graph/graph.h"
#include "train/task.h"

enum { MAX_FEATURES = 1 << 20 };

static tu_value constants(tu_graph *graph, const tu__column *c, float (*number)(const tu__field *field)) {
    float *numbers = tu__alloc_array(c->field_count, sizeof *numbers, "the fields of a table");
    if (!numbers) return tu__graph_fail(graph, TU_NO_MEMORY, "%s", tu_message());
    for (size_t i = 0; i < c->field_count; i++) numbers[i] = number(&c->fields[i]);
    tu_value value = tu_constant(graph, TU_F32, TU_SHAPE((int64_t)c->field_count), numbers);
    tu__free(numbers);
    return value;
}

static float mean_of(const tu__field *f) {
    return (float)f->mean;
}

static float factor_of(const tu__field *f) {
    return (float)(f->deviation > 0 ? 1 / f->deviation : 0);
}

/* Returns 1 for the missing cells of the fields that lack some in training, [n, fields]; invalid if there are none. */
static tu_value indicators(const tu__column *c, tu_value is_number) {
    tu_graph *graph = is_number.graph;
    int32_t *indices = tu__alloc_array(c->field_count, sizeof *indices, "the fields of a table");
    if (!indices) return tu__graph_fail(graph, TU_NO_MEMORY, "%s", tu_message());
    int64_t count = 0;
    for (size_t i = 0; i < c->field_count; i++)
        if (c->fields[i].missing) indices[count++] = (int32_t)i;
    tu_value found = tu__invalid(graph);
    if (count)
        found = tu_gather(tu_cast(tu_not(is_number), TU_F32),
                          tu_constant(graph, TU_I32, TU_SHAPE(count), indices), 1);
    tu__free(indices);
    return found;
}

static size_t add_numbers(const tu_task_batch *b, const tu__column *c, tu_value *parts) {
    size_t count = 0;
    if (!c->field_count) { /* numbers of a program's data set, which have no means */
        parts[0] = tu_flatten(tu_task_column(b, c->name));
        return 1;
    }
    tu_value x = tu_task_column(b, c->name), is_number = tu_is_finite(x);
    tu_value mean = constants(b->graph, c, mean_of), factor = constants(b->graph, c, factor_of);
    x = tu_select(is_number, x, tu_broadcast(mean, tu_value_shape(x)));
    parts[count++] = tu_mul(tu_sub(x, mean), factor);
    tu_value missing = indicators(c, is_number);
    if (tu_ok(missing)) parts[count++] = missing;
    return count;
}

static size_t add_categories(const tu_task_batch *b, const tu__column *c, tu_value *parts) {
    tu_value codes = tu_task_column(b, c->name);
    for (size_t i = 0; i < c->field_count; i++) {
        tu_value field = tu_squeeze_axis(tu_slice(codes, 1, (int64_t)i, (int64_t)i + 1, 1), 1);
        parts[i] = tu_one_hot(field, c->fields[i].categories, TU_F32);
    }
    return c->field_count;
}

static tu_status check_size(const tu_task_batch *b) {
    int64_t features = 0;
    for (size_t i = 0; i < b->config->columns.count; i++) {
        const tu__column *c = &b->config->columns.column[i];
        for (size_t f = 0; f < c->field_count && !c->is_target; f++)
            features += c->fields[f].categories ? c->fields[f].categories : 2;
    }
    if (features <= MAX_FEATURES) return TU_OK;
    return tu_fail(
        TU_UNSUPPORTED,
        "data set '%s' has %lld features, counting each category as one: expected at most %d; leave out "
        "columns of many categories with --drop",
        b->config->dataset.name, (long long)features, MAX_FEATURES);
}

static size_t count_parts(const tu__columns *columns) {
    size_t count = 0;
    for (size_t i = 0; i < columns->count; i++) count += 2 + columns->column[i].field_count;
    return count;
}

static size_t add_column(const tu_task_batch *b, const tu__column *c, tu_value *parts) {
    if (c->is_target) return 0;
    if (c->kind == TU_COLUMN_NUMBERS) return add_numbers(b, c, parts);
    if (c->kind == TU_COLUMN_CATEGORIES && c->field_count) return add_categories(b, c, parts);
    tu_value x = tu_flatten(tu_task_column(b, c->name));
    parts[0] = tu_value_dtype(x) == TU_F32 ? x : tu_cast(x, TU_F32);
    return 1;
}

tu_value tu__table_features(const tu_task_batch *b) {
    tu_status status = check_size(b);
    if (status != TU_OK) return tu__graph_fail(b->graph, status, "%s", tu_message());
    tu_value *parts =
        tu__alloc_array(count_parts(&b->config->columns), sizeof *parts, "the fields of a table");
    if (!parts) return tu__graph_fail(b->graph, TU_NO_MEMORY, "%s", tu_message());
    size_t count = 0;
    tu_value x = tu__invalid(b->graph);
    tu_scope(b->graph, "preprocess") {
        for (size_t i = 0; i < b->config->columns.count; i++)
            count += add_column(b, &b->config->columns.column[i], parts + count);
        x = count == 1 ? parts[0] : tu_concat(parts, count, 1);
    }
    tu__free(parts);
    return x;
}
