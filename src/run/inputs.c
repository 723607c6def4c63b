/* The data of the inputs, step by step.
 *
 * Data that the engine generates for the steps of a call, which are sample ordinals and rows of tables that the device
 * cannot read, is in one block. If a device executes many steps at once, they are divided into chunks whose data fits
 * the block. Rows for an input in host memory are not gathered here, but by the thread that feeds the input
 * (interpret.c). */
#include "run/inputs.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "run/execution.h"
#include "run/table.h"

enum { MAX_BLOCK_BYTES = 64 << 20 };

void tu__inputs_free(tu__inputs *inputs) {
    tu__free(inputs->list);
    tu__free(inputs->feeds);
    tu__free_aligned(inputs->block);
}

static const tu__device *device_of(const tu_program *p, size_t index) {
    return p->partitions[p->list.list.feeds[index].place.partition].device;
}

bool tu__inputs_are_in_host_memory(const tu_program *p) {
    for (size_t i = 0; i < p->feed_count; i++)
        if (!device_of(p, i)->api->host_memory) return false;
    return true;
}

/* ---- Checking ---- */

static tu_feed_many feed_at(const tu__feed_list *feeds, size_t index) {
    if (feeds->many) return feeds->many[index];
    return (tu_feed_many){.input = feeds->one[index].input, .data = feeds->one[index].data};
}

/* Returns the input of feed `index`; NULL, with the message set, if `value` is not an input. */
static const tu__node *input_of(const tu_program *p, size_t index, tu_value value) {
    if (value.graph != p->source || !tu_ok(value)) {
        tu_fail(TU_INVALID, "feed %zu is not a value of the program's graph", index);
        return NULL;
    }
    const tu__node *node = p->source->nodes[value.node];
    if (node->op->code == TU__OP_INPUT) return node;
    tu_fail(TU_INVALID, "feed %zu is for %s '%s': only inputs can be fed", index, node->op->name, node->name);
    return NULL;
}

static tu_status check_rows(size_t index, const tu__node *input, const tu_feed_many *f, size_t steps) {
    const tu_table *t = f->table;
    size_t bytes = tu_type_bytes(input->outputs[0]);
    if (!f->rows)
        return tu_fail(TU_INVALID, "feed %zu for input '%s' has a table, but no row indices (.rows)", index,
                       input->name);
    if (bytes % t->row_bytes)
        return tu_fail(
            TU_INVALID,
            "feed %zu for input '%s' %s needs %zu bytes, which is not a multiple of its table's row "
            "size, %zu bytes",
            index, input->name, tu__type_string(input->outputs[0]), bytes, t->row_bytes);
    size_t count = bytes / t->row_bytes * (f->same_batch ? 1 : steps);
    for (size_t i = 0; i < count; i++)
        if (f->rows[i] < 0 || f->rows[i] >= t->rows)
            return tu_fail(
                TU_INVALID,
                "feed %zu for input '%s' has row index %lld at position %zu of .rows: expected 0 to "
                "%lld",
                index, input->name, (long long)f->rows[i], i, (long long)t->rows - 1);
    return TU_OK;
}

static tu_status check_feed(const tu_program *p, size_t index, const tu__feed_list *feeds, size_t steps) {
    const tu_feed_many f = feed_at(feeds, index);
    const tu__node *input = input_of(p, index, f.input);
    if (!input) return TU_INVALID;
    for (size_t k = 0; k < index; k++)
        if (feed_at(feeds, k).input.node == f.input.node)
            return tu_fail(TU_INVALID,
                           "feeds %zu and %zu are both for input '%s': expected one for each input", k, index,
                           input->name);
    if (!feeds->many && !f.data)
        return tu_fail(TU_INVALID, "feed %zu for input '%s' has no data", index, input->name);
    if (!f.data == !f.table)
        return tu_fail(TU_INVALID, "feed %zu for input '%s' has %s: expected data or a table", index,
                       input->name, f.data ? "both data and a table" : "neither data nor a table");
    return f.table ? check_rows(index, input, &f, steps) : TU_OK;
}

tu_status tu__inputs_check(const tu_program *p, const tu__feed_list *feeds, size_t steps) {
    for (size_t i = 0; i < feeds->count; i++) TU_TRY(check_feed(p, i, feeds, steps));
    return TU_OK;
}

/* Fails with TU_INVALID if an input that was not fed is not one that the engine generates. */
static tu_status check_generated(const tu_program *p, const tu__feed *feed) {
    const tu__node *node = p->unit.graph->nodes[feed->node];
    if (tu__is_sample_ordinals(node)) return TU_OK;
    /* Messages name the input of the user's graph. */
    if (feed->source != TU_NO_NODE) node = p->source->nodes[feed->source];
    return tu_fail(TU_INVALID, "input '%s' %s was not fed", node->name, tu__type_string(node->outputs[0]));
}

/* ---- Sources of the data ---- */

tu_status tu__inputs_allocate(tu__execution *e) {
    tu__inputs *in = &e->inputs;
    if (!in->list) in->list = tu__alloc_array(e->program->feed_count, sizeof *in->list, "inputs");
    if (!in->feeds) in->feeds = tu__alloc_array(e->program->feed_count, sizeof *in->feeds, "inputs");
    return in->list && in->feeds ? TU_OK : TU_NO_MEMORY;
}

/* Returns the maximum number of bytes for tables on a device of the program: the rest of the memory limit; without a
 * limit, half of the device's memory that the program does not use, since other programs need memory too. */
static tu_status find_room_for_tables(tu__execution *e, size_t partition, uint64_t *room) {
    tu_memory_report report = TU_SIZED(tu_memory_report);
    TU_TRY(tu_program_memory(e->program, partition, &report));
    *room = UINT64_MAX;
    if (!report.limit_bytes) return TU_OK;
    uint64_t free_bytes = report.limit_bytes > report.need_bytes ? report.limit_bytes - report.need_bytes : 0;
    if (!e->program->partitions[partition].memory_limit) free_bytes /= 2;
    *room = free_bytes > report.table_bytes ? free_bytes - report.table_bytes : 0;
    return TU_OK;
}

/* True if an earlier input reads from the same copy of a table. */
static bool is_table_counted(const tu__inputs *in, const tu__input *s) {
    for (const tu__input *earlier = in->list; earlier < s; earlier++)
        if (earlier->table == s->table) return true;
    return false;
}

/* Uploads the feed's table, if the device gathers rows itself and has room. For an input in host memory, uses the table
 * there. A batch that all steps share is gathered once. */
static tu_status find_table(tu__execution *e, size_t index, tu__input *s) {
    uint32_t partition = e->program->list.list.feeds[index].place.partition;
    tu__device *device = e->program->partitions[partition].device;
    const tu_table *t = s->feed.table;
    if (s->feed.same_batch) return TU_OK;
    if (!e->inputs.are_submitted) {
        if (device->api->host_memory) s->table = t->data;
        return TU_OK;
    }
    if (!tu__table_find(s->feed.table, device, &s->table)) {
        uint64_t room;
        TU_TRY(find_room_for_tables(e, partition, &room));
        TU_TRY(tu__table_put(s->feed.table, device, room, &s->table));
    }
    if (s->table && !is_table_counted(&e->inputs, s))
        e->inputs.table_bytes += (uint64_t)t->rows * t->row_bytes;
    if (!s->table)
        snprintf(
            e->inputs.table_notice, sizeof e->inputs.table_notice,
            "the table for input '%s' (%.4g MiB) does not fit on device '%s' next to the program: its rows "
            "are gathered on the host",
            e->program->unit.graph->nodes[e->program->feeds[index].node]->name,
            (double)t->rows * (double)t->row_bytes / 1048576, device->name);
    return TU_OK;
}

/* Checks that a shard of a batch from a table consists of whole rows. */
static tu_status check_whole_rows(tu__execution *e, size_t index, size_t row_bytes) {
    const tu__feed *feed = &e->program->feeds[index];
    if (feed->offset % row_bytes == 0 && e->program->list.list.feeds[index].bytes % row_bytes == 0)
        return TU_OK;
    return tu_fail(
        TU_INVALID,
        "the rows of the table for input '%s' have %zu bytes: the batch is split between devices at byte %zu, "
        "which is within a row",
        e->program->source->nodes[feed->source]->name, row_bytes, feed->offset);
}

static tu_status find_source(tu__execution *e, size_t index, const tu__feed_list *feeds) {
    tu__input *s = &e->inputs.list[index];
    *s = (tu__input){0};
    for (size_t i = 0; i < feeds->count && !s->is_fed; i++) {
        s->feed = feed_at(feeds, i);
        s->is_fed = s->feed.input.node == e->program->feeds[index].source;
    }
    if (!s->is_fed) return check_generated(e->program, &e->program->feeds[index]);
    if (s->feed.table) TU_TRY(check_whole_rows(e, index, s->feed.table->row_bytes));
    return s->feed.table ? find_table(e, index, s) : TU_OK;
}

static tu_status find_sources(tu__execution *e, const tu__feed_list *feeds) {
    e->inputs.table_bytes = e->inputs.gathered_bytes = 0;
    e->inputs.table_notice[0] = 0;
    for (size_t i = 0; i < e->program->feed_count; i++) TU_TRY(find_source(e, i, feeds));
    return TU_OK;
}

/* ---- Data generated by the engine ---- */

static bool is_generated(const tu__input *s) {
    return !s->is_fed || (!s->feed.data && !s->table);
}

/* True if all steps use the same batch of an input. In a program without updates, ordinals do not advance. */
static bool uses_one_batch(tu__execution *e, const tu__input *s) {
    return s->is_fed ? s->feed.same_batch : !e->program->unit.updates;
}

static size_t align64(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

static size_t bytes_of(tu__execution *e, size_t index) {
    return e->program->list.list.feeds[index].bytes;
}

/* Returns the bytes of the block for chunks of `steps` steps, and sets the offset of each input. */
static size_t lay_out_block(tu__execution *e, size_t steps) {
    size_t bytes = 0;
    for (size_t i = 0; i < e->program->feed_count; i++) {
        tu__input *s = &e->inputs.list[i];
        if (!is_generated(s)) continue;
        s->offset = bytes;
        bytes += align64(bytes_of(e, i) * (uses_one_batch(e, s) ? 1 : steps));
    }
    return bytes;
}

/* Sets `*chunk` to the number of steps in a chunk, and allocates the block. */
static tu_status allocate_block(tu__execution *e, size_t steps, size_t *chunk) {
    tu__inputs *in = &e->inputs;
    size_t step_bytes = lay_out_block(e, 1);
    *chunk = in->are_submitted ? (step_bytes ? MAX_BLOCK_BYTES / step_bytes : steps) : 1;
    if (*chunk > steps) *chunk = steps;
    if (*chunk > UINT32_MAX) *chunk = UINT32_MAX;
    if (*chunk < 1) *chunk = 1;
    size_t bytes = lay_out_block(e, *chunk);
    if (bytes <= in->block_bytes) return TU_OK;
    tu__free_aligned(in->block);
    in->block_bytes = 0;
    in->block = tu__alloc_aligned(bytes, "the inputs of many steps");
    if (!in->block) return TU_NO_MEMORY;
    in->block_bytes = bytes;
    return TU_OK;
}

tu_status tu__inputs_begin(tu__execution *e, const tu__feed_list *feeds, size_t steps, size_t *chunk) {
    TU_TRY(tu__inputs_allocate(e));
    TU_TRY(find_sources(e, feeds));
    return allocate_block(e, steps, chunk);
}

/* Returns the row indices that an input gets from its table in a step of the call. */
static const int64_t *rows_of(const tu__input *s, const tu__feed *feed, size_t step) {
    size_t row = s->feed.table->row_bytes;
    return s->feed.rows + (s->feed.same_batch ? 0 : step * (feed->total_bytes / row)) + feed->offset / row;
}

/* Generates or gathers the data of one input for steps [done, done + steps) of the call. */
static const void *generate(tu__execution *e, size_t index, const tu_state *state, size_t done,
                            size_t steps) {
    const tu__input *s = &e->inputs.list[index];
    const tu__feed *feed = &e->program->feeds[index];
    size_t bytes = bytes_of(e, index);
    char *data = e->inputs.block + s->offset;
    bool same = uses_one_batch(e, s);
    if (!s->is_fed) {
        int64_t *ordinals = (int64_t *)(void *)data;
        size_t rows = bytes / sizeof *ordinals;
        int64_t first = state->next_sample + (int64_t)(feed->offset / sizeof *ordinals);
        for (size_t step = 0; step < (same ? 1 : steps); step++)
            for (size_t i = 0; i < rows; i++)
                ordinals[step * rows + i] = first + (int64_t)step * e->program->samples + (int64_t)i;
    } else if (!same || !done) {
        size_t rows = bytes / s->feed.table->row_bytes;
        for (size_t step = 0; step < (same ? 1 : steps); step++)
            tu__table_gather(s->feed.table, rows_of(s, feed, done + step), rows, data + step * bytes);
        e->inputs.gathered_bytes += (same ? 1 : steps) * bytes;
    }
    return data;
}

static void fill_feed(tu__execution *e, size_t index, const tu_state *state, size_t done, size_t steps) {
    const tu__input *s = &e->inputs.list[index];
    const tu__feed *feed = &e->program->feeds[index];
    tu_submit_feed *f = &e->inputs.feeds[index];
    *f = (tu_submit_feed){.same = uses_one_batch(e, s)};
    if (is_generated(s)) {
        f->host = generate(e, index, state, done, steps);
        f->stride = bytes_of(e, index);
    } else if (s->table) {
        f->table = s->table;
        f->row_bytes = s->feed.table->row_bytes;
        f->rows = rows_of(s, feed, done);
        f->stride = feed->total_bytes / f->row_bytes;
        if (!e->inputs.are_submitted) e->inputs.gathered_bytes += bytes_of(e, index);
    } else {
        f->host = (const char *)s->feed.data + (f->same ? 0 : done * feed->total_bytes) + feed->offset;
        f->stride = feed->total_bytes;
    }
}

void tu__inputs_fill(tu__execution *e, const tu_state *state, size_t done, size_t steps) {
    for (size_t i = 0; i < e->program->feed_count; i++) fill_feed(e, i, state, done, steps);
}
