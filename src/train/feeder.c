/* Connects columns with inputs. See feeder.h. */
#include "train/feeder.h"

#include "graph/graph.h"

tu_value tu__find_input(tu_graph *graph, const char *name) {
    const tu__node *node = tu__find_node(graph, name);
    return node && node->op->code == TU__OP_INPUT ? tu__value(graph, node->id, 0) : tu__invalid(graph);
}

tu__inputs tu__find_inputs(tu_graph *graph, const tu__columns *columns) {
    tu__inputs inputs = {.ordinals = tu__find_input(graph, "sample_ordinal"),
                         .share = tu__find_input(graph, "share"),
                         .counted = tu__find_input(graph, "counted")};
    for (size_t i = 0; i < TU_MAX_COLUMNS; i++)
        inputs.column[i] =
            i < columns->count ? tu__find_input(graph, columns->column[i].name) : tu__invalid(graph);
    return inputs;
}

int64_t tu__inputs_samples(const tu__inputs *inputs) {
    for (size_t i = 0; i < TU_MAX_COLUMNS; i++)
        if (tu_ok(inputs->column[i])) return tu_value_shape(inputs->column[i]).dim[0];
    return 0;
}

tu_status tu__feeder_make_tables(const tu__columns *columns, const void *const *data, int64_t rows,
                                 tu__feeder *feeder) {
    feeder->columns = columns;
    for (size_t i = 0; i < columns->count; i++)
        TU_TRY(tu_table_new(data[i], columns->column[i].bytes, rows, &feeder->table[i]));
    feeder->has_tables = true;
    return TU_OK;
}

void tu__feeder_close(tu__feeder *feeder) {
    for (size_t i = 0; i < TU_MAX_COLUMNS; i++) {
        tu_table_free(feeder->table[i]);
        feeder->table[i] = NULL;
    }
    feeder->has_tables = false;
}

tu__feed_source tu__feeds_of_batch(const tu__feeder *feeder, const tu_batch *batch, int64_t first,
                                   const float *share, const void *columns[TU_MAX_COLUMNS]) {
    for (size_t i = 0; !feeder->has_tables && i < feeder->columns->count; i++)
        columns[i] = (const char *)batch->columns[i] + (size_t)first * feeder->columns->column[i].bytes;
    return (tu__feed_source){.rows = batch->indices + first,
                             .columns = columns,
                             .ordinals = batch->ordinals + first,
                             .share = share};
}

size_t tu__make_feeds(const tu__feeder *feeder, const tu__inputs *inputs, const tu__feed_source *s,
                      tu_feed_many feeds[TU__MAX_FEEDS]) {
    size_t count = 0;
    for (size_t i = 0; i < feeder->columns->count; i++) {
        if (!tu_ok(inputs->column[i])) continue;
        if (feeder->has_tables)
            feeds[count++] =
                (tu_feed_many){.input = inputs->column[i], .table = feeder->table[i], .rows = s->rows};
        else
            feeds[count++] = (tu_feed_many){.input = inputs->column[i], .data = s->columns[i]};
    }
    const struct {
        tu_value input;
        const void *data;
    } others[] = {{inputs->ordinals, s->ordinals}, {inputs->share, s->share}, {inputs->counted, s->counted}};
    for (size_t i = 0; i < 3; i++)
        if (tu_ok(others[i].input))
            feeds[count++] = (tu_feed_many){.input = others[i].input, .data = others[i].data};
    return count;
}

size_t tu__make_single_feeds(const tu__inputs *inputs, const tu__feed_source *s,
                             tu_feed feeds[TU__MAX_FEEDS]) {
    tu__columns columns = {.count = TU_MAX_COLUMNS};
    const tu__feeder feeder = {.columns = &columns};
    tu_feed_many many[TU__MAX_FEEDS];
    size_t count = tu__make_feeds(&feeder, inputs, s, many);
    for (size_t i = 0; i < count; i++) feeds[i] = (tu_feed){many[i].input, many[i].data};
    return count;
}
