/* tu_run_many: many steps in one call.
 *
 * Between two runs the host has little to do: upload the inputs, read the results. For a fast GPU this takes most of
 * the time. So a device with `repeat` executes many steps in one call: it is given the location of the data of every
 * step, and the call returns when all are done. This requires that only one partition is active and every update is
 * written in place, or that the devices can run steps jointly (joint.c). Any other program does one run per step,
 * with the same results.
 *
 * Data that the engine generates for the steps, which are sample ordinals and rows of tables that do not fit the
 * device, is in one block. The steps are processed in chunks that fit the block. */
#include "run/repeat.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "base/sized.h"
#include "base/text.h"
#include "run/table.h"
#include "run/trace.h"

enum { MAX_BLOCK_BYTES = 64 << 20 };

/* ---- Support for multi-step calls ---- */

/* Returns a variable whose next value the engine must copy after every step; NULL if there is none. */
static const char *find_update_by_copy(const tu_program *p) {
    for (size_t i = 0; i < p->device_count; i++) {
        const tu__partition *partition = &p->partitions[i];
        for (uint32_t k = 0; k < partition->update_count; k++)
            if (!partition->updates[k].in_place)
                return p->unit.graph->nodes[partition->updates[k].variable]->name;
    }
    return NULL;
}

/* True if all feeds and fetches belong to the only active partition. */
static bool all_feeds_are_local(const tu_program *p) {
    for (size_t i = 0; i < p->feed_count; i++)
        if (&p->partitions[p->feeds[i].partition] != p->only_active) return false;
    for (size_t i = 0; i < p->unit.fetch_count; i++)
        if (&p->partitions[p->fetches[i].partition] != p->only_active) return false;
    return true;
}

/* True if steps are moves of several partitions, or of one with collectives. */
static bool is_joint(const tu_program *p) {
    return !p->only_active || p->collectives.count;
}

tu_status tu__multi_step_init(tu_program *p) {
    char *notice = p->multi_step.notice;
    size_t size = sizeof p->multi_step.notice;
    if (is_joint(p)) return tu__joint_init(p, notice, size);
    if (!all_feeds_are_local(p))
        snprintf(notice, size, "the program has %zu devices, which exchange values in every step",
                 p->device_count);
    else if (!p->only_active->device->api->repeat)
        snprintf(notice, size, "device '%s' runs one step per call", p->only_active->device->name);
    else if (find_update_by_copy(p))
        snprintf(notice, size, "variable '%s' is not updated in place", find_update_by_copy(p));
    return TU_OK;
}

void tu__multi_step_free(tu__multi_step *multi_step) {
    tu__free(multi_step->sources);
    tu__free(multi_step->feeds);
    tu__free(multi_step->fetches);
    tu__free(multi_step->fetched);
    tu__joint_free(&multi_step->joint);
    tu__free_aligned(multi_step->block);
}

static bool can_multi_step(const tu_program *p) {
    return !p->multi_step.notice[0];
}

/* True if rows can be copied from their table directly into the inputs: the inputs are in host memory, and the device
 * computes on this thread, whose parallel loops can then be used. */
static bool gathers_directly(const tu_program *p) {
    return !can_multi_step(p) && p->only_active && all_feeds_are_local(p) &&
           p->only_active->device->api->host_memory && p->only_active->device->options.logical_count == 1;
}

/* A traced program runs step by step. */
static bool uses_multi_step(const tu_program *p) {
    return can_multi_step(p) && !(p->trace && p->trace->is_recording);
}

tu_status tu_program_multi_step(const tu_program *program, tu_multi_step_report *report) {
    const tu__multi_step *m = &program->multi_step;
    TU_TRY(TU__CHECK_SIZED(tu_multi_step_report, report));
    tu_multi_step_report full = {.in_one_call = can_multi_step(program),
                                 .table_bytes = m->table_bytes,
                                 .gathered_bytes = m->gathered_bytes,
                                 .notice = m->notice[0]         ? m->notice
                                           : m->table_notice[0] ? m->table_notice
                                                                : NULL,
                                 .direct_copies = gathers_directly(program)};
    TU__COPY_SIZED(report, full);
    return TU_OK;
}

/* ---- Checking ---- */

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

static tu_status check_feed(const tu_program *p, size_t index, const tu_feed_many *feeds, size_t steps) {
    const tu_feed_many *f = &feeds[index];
    const tu__node *input = tu__program_input(p, index, f->input);
    if (!input) return TU_INVALID;
    for (size_t k = 0; k < index; k++)
        if (feeds[k].input.node == f->input.node) return tu__program_fail_fed_twice(input, k, index);
    if (!f->data == !f->table)
        return tu_fail(TU_INVALID, "feed %zu for input '%s' has %s: expected data or a table", index,
                       input->name, f->data ? "both data and a table" : "neither data nor a table");
    return f->table ? check_rows(index, input, f, steps) : TU_OK;
}

/* ---- Sources of the data ---- */

static tu_status allocate_lists(tu_program *p) {
    tu__multi_step *m = &p->multi_step;
    if (!m->sources) m->sources = tu__alloc_array(p->feed_count, sizeof *m->sources, "many steps");
    if (!m->feeds) m->feeds = tu__alloc_array(p->feed_count, sizeof *m->feeds, "many steps");
    if (!m->fetches) m->fetches = tu__alloc_array(p->unit.fetch_count, sizeof *m->fetches, "many steps");
    if (!m->fetched) m->fetched = tu__alloc_array(p->unit.fetch_count, sizeof *m->fetched, "many steps");
    return m->sources && m->feeds && m->fetches && m->fetched ? TU_OK : TU_NO_MEMORY;
}

/* Returns the maximum number of bytes for tables on a device of the program: the rest of the memory limit; without a
 * limit, half of the device's memory that the program does not use, since other programs need memory too. */
static tu_status find_room_for_tables(const tu_program *p, size_t partition, uint64_t *room) {
    tu_memory_report report = TU_SIZED(tu_memory_report);
    TU_TRY(tu_program_memory(p, partition, &report));
    *room = UINT64_MAX;
    if (!report.limit_bytes) return TU_OK;
    uint64_t free_bytes = report.limit_bytes > report.need_bytes ? report.limit_bytes - report.need_bytes : 0;
    if (!p->partitions[partition].memory_limit) free_bytes /= 2;
    *room = free_bytes > report.table_bytes ? free_bytes - report.table_bytes : 0;
    return TU_OK;
}

/* True if an earlier input reads from the same copy of a table. */
static bool is_table_counted(const tu__multi_step *m, const tu__multi_step_source *s) {
    for (const tu__multi_step_source *earlier = m->sources; earlier < s; earlier++)
        if (earlier->table == s->table) return true;
    return false;
}

/* Uploads the feed's table, if the device gathers rows itself and has room. If rows are gathered directly into the
 * input, uses the table in host memory. */
static tu_status upload_table(tu_program *p, const tu__feed_slot *slot, tu__multi_step_source *s) {
    const tu_table *t = s->feed->table;
    tu__device *device = p->partitions[slot->partition].device;
    if (gathers_directly(p) && !s->feed->same_batch) s->table = t->data;
    if (!uses_multi_step(p) || s->feed->same_batch) return TU_OK;
    if (!tu__table_find(s->feed->table, device, &s->table)) {
        uint64_t room;
        TU_TRY(find_room_for_tables(p, slot->partition, &room));
        TU_TRY(tu__table_put(s->feed->table, device, room, &s->table));
    }
    if (s->table && !is_table_counted(&p->multi_step, s))
        p->multi_step.table_bytes += (uint64_t)t->rows * t->row_bytes;
    if (!s->table)
        snprintf(
            p->multi_step.table_notice, sizeof p->multi_step.table_notice,
            "the table for input '%s' (%.4g MiB) does not fit on device '%s' next to the program: its rows "
            "are gathered on the host",
            p->unit.graph->nodes[slot->node]->name, (double)t->rows * (double)t->row_bytes / 1048576,
            device->name);
    return TU_OK;
}

/* Checks that a shard of a batch from a table consists of whole rows. */
static tu_status check_whole_rows(const tu_program *p, const tu__feed_slot *slot, size_t row_bytes) {
    if (slot->offset % row_bytes == 0 && slot->bytes % row_bytes == 0) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "the rows of the table for input '%s' have %zu bytes: the batch is split between devices at byte %zu, "
        "which is within a row",
        p->source->nodes[slot->source]->name, row_bytes, slot->offset);
}

static tu_status find_source(tu_program *p, size_t index, size_t count, const tu_feed_many *feeds) {
    const tu__feed_slot *slot = &p->feeds[index];
    tu__multi_step_source *s = &p->multi_step.sources[index];
    *s = (tu__multi_step_source){0};
    for (size_t i = 0; i < count && !s->feed; i++)
        if (feeds[i].input.node == slot->source) s->feed = &feeds[i];
    if (!s->feed) return tu__program_check_generated(p, slot);
    if (s->feed->table) TU_TRY(check_whole_rows(p, slot, s->feed->table->row_bytes));
    return s->feed->table ? upload_table(p, slot, s) : TU_OK;
}

static tu_status find_sources(tu_program *p, size_t count, const tu_feed_many *feeds) {
    p->multi_step.table_bytes = p->multi_step.gathered_bytes = 0;
    p->multi_step.table_notice[0] = 0;
    for (size_t i = 0; i < p->feed_count; i++) TU_TRY(find_source(p, i, count, feeds));
    return TU_OK;
}

/* ---- Data generated by the engine ---- */

static bool is_generated(const tu__multi_step_source *s) {
    return !s->feed || (!s->feed->data && !s->table);
}

/* True if all steps use the same batch of an input. In a program without updates, ordinals do not advance. */
static bool uses_one_batch(const tu_program *p, const tu__multi_step_source *s) {
    return s->feed ? s->feed->same_batch : !p->unit.updates;
}

static size_t align64(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

/* Returns the bytes of the block for chunks of `steps` steps, and sets the offset of each input. */
static size_t lay_out_block(tu_program *p, size_t steps) {
    size_t bytes = 0;
    for (size_t i = 0; i < p->feed_count; i++) {
        tu__multi_step_source *s = &p->multi_step.sources[i];
        if (!is_generated(s)) continue;
        s->offset = bytes;
        bytes += align64(p->feeds[i].bytes * (uses_one_batch(p, s) ? 1 : steps));
    }
    return bytes;
}

/* Sets `*chunk` to the number of steps in a chunk, and allocates the block. */
static tu_status allocate_block(tu_program *p, size_t steps, size_t *chunk) {
    tu__multi_step *m = &p->multi_step;
    size_t step_bytes = lay_out_block(p, 1);
    *chunk = uses_multi_step(p) ? (step_bytes ? MAX_BLOCK_BYTES / step_bytes : steps) : 1;
    if (*chunk > steps) *chunk = steps;
    if (*chunk > UINT32_MAX) *chunk = UINT32_MAX;
    if (*chunk < 1) *chunk = 1;
    size_t bytes = lay_out_block(p, *chunk);
    if (bytes <= m->block_bytes) return TU_OK;
    tu__free_aligned(m->block);
    m->block_bytes = 0;
    m->block = tu__alloc_aligned(bytes, "the inputs of many steps");
    if (!m->block) return TU_NO_MEMORY;
    m->block_bytes = bytes;
    return TU_OK;
}

/* Returns the row indices that an input gets from its table in a step of the call. */
static const int64_t *rows_of(const tu__multi_step_source *s, const tu__feed_slot *slot, size_t step) {
    size_t row = s->feed->table->row_bytes;
    return s->feed->rows + (s->feed->same_batch ? 0 : step * (slot->total_bytes / row)) + slot->offset / row;
}

/* Generates or gathers the data of one input for steps [done, done + steps) of the call. */
static const void *generate(tu_program *p, size_t index, const tu_state *state, size_t done, size_t steps) {
    const tu__multi_step_source *s = &p->multi_step.sources[index];
    const tu__feed_slot *slot = &p->feeds[index];
    char *data = p->multi_step.block + s->offset;
    bool same = uses_one_batch(p, s);
    if (!s->feed) {
        int64_t *ordinals = (int64_t *)(void *)data;
        size_t rows = slot->bytes / sizeof *ordinals;
        int64_t first = state->next_sample + (int64_t)(slot->offset / sizeof *ordinals);
        for (size_t step = 0; step < (same ? 1 : steps); step++)
            for (size_t i = 0; i < rows; i++)
                ordinals[step * rows + i] = first + (int64_t)step * p->samples + (int64_t)i;
    } else if (!same || !done) {
        size_t rows = slot->bytes / s->feed->table->row_bytes;
        for (size_t step = 0; step < (same ? 1 : steps); step++)
            tu__table_gather(s->feed->table, rows_of(s, slot, done + step), rows, data + step * slot->bytes);
        p->multi_step.gathered_bytes += (same ? 1 : steps) * slot->bytes;
    }
    return data;
}

/* ---- A chunk of steps ---- */

static void fill_feed(tu_program *p, size_t index, const tu_state *state, size_t done, size_t steps) {
    const tu__multi_step_source *s = &p->multi_step.sources[index];
    const tu__feed_slot *slot = &p->feeds[index];
    tu_repeat_feed *f = &p->multi_step.feeds[index];
    *f = (tu_repeat_feed){.to = p->partitions[slot->partition].addresses[slot->buffer],
                          .bytes = slot->bytes,
                          .same = uses_one_batch(p, s)};
    if (is_generated(s)) {
        f->host = generate(p, index, state, done, steps);
        f->stride = slot->bytes;
    } else if (s->table) {
        f->table = s->table;
        f->row_bytes = s->feed->table->row_bytes;
        f->rows = rows_of(s, slot, done);
        f->stride = slot->total_bytes / f->row_bytes;
    } else {
        f->host = (const char *)s->feed->data + (f->same ? 0 : done * slot->total_bytes) + slot->offset;
        f->stride = slot->total_bytes;
    }
}

static void fill_fetches(tu_program *p, void *const *fetches, size_t done) {
    p->multi_step.fetch_count = 0;
    for (size_t i = 0; fetches && i < p->unit.fetch_count; i++) {
        const tu__fetch_slot *slot = &p->fetches[i];
        if (!fetches[i]) continue;
        p->multi_step.fetched[p->multi_step.fetch_count] = (uint32_t)i;
        p->multi_step.fetches[p->multi_step.fetch_count++] =
            (tu_repeat_fetch){.from = p->partitions[slot->partition].addresses[slot->buffer],
                              .bytes = slot->bytes,
                              .host = (char *)fetches[i] + done * slot->bytes};
    }
}

static tu_status call_device(tu_program *p, size_t steps) {
    if (is_joint(p)) return tu__joint_run(p, (uint32_t)steps);
    tu_repetition repetition = {.struct_size = sizeof repetition,
                                .feed_count = (uint32_t)p->feed_count,
                                .fetch_count = p->multi_step.fetch_count,
                                .feeds = p->multi_step.feeds,
                                .fetches = p->multi_step.fetches};
    return tu__program_repeat(p, (uint32_t)steps, &repetition);
}

/* Runs all steps of the chunk in one device call. */
static tu_status run_multi_step(tu_program *p, tu_state *state, size_t steps) {
    TU_TRY(call_device(p, steps));
    tu__program_end_updates(p);
    if (p->unit.updates) state->next_sample += p->samples * (int64_t)steps;
    return TU_OK;
}

/* Gathers rows of tables into inputs in host memory. */
static void gather_directly(tu_program *p) {
    tu__parallel_setting saved = tu__parallel_begin(tu__device_threads(p->only_active->device));
    for (size_t i = 0; i < p->feed_count; i++) {
        const tu_repeat_feed *f = &p->multi_step.feeds[i];
        if (!f->table) continue;
        double began = tu__trace_now(p);
        tu__table_gather(p->multi_step.sources[i].feed->table, f->rows, f->bytes / f->row_bytes, f->to);
        p->multi_step.gathered_bytes += f->bytes;
        tu__trace_add(p, TU__SPAN_FEED, p->feeds[i].partition, i, began);
    }
    tu__parallel_end(saved);
}

/* Runs the chunk, which is one step, as tu_run does. */
static tu_status run_one_step(tu_program *p, tu_state *state, void *const *fetches, size_t done) {
    double began;
    TU_TRY(tu__trace_begin_run(p, &began));
    for (size_t i = 0; i < p->feed_count; i++) p->feed_data[i] = p->multi_step.feeds[i].host;
    if (gathers_directly(p)) gather_directly(p);
    TU_TRY(tu__program_execute_on(p, state));
    TU_TRY(tu__program_fetch(p, fetches, done));
    TU_TRY(tu__program_apply(p, state));
    return tu__trace_end_run(p, began);
}

static tu_status run_chunk(tu_program *p, tu_state *state, void *const *fetches, size_t done, size_t steps) {
    for (size_t i = 0; i < p->feed_count; i++) fill_feed(p, i, state, done, steps);
    if (!uses_multi_step(p)) return run_one_step(p, state, fetches, done);
    fill_fetches(p, fetches, done);
    return run_multi_step(p, state, steps);
}

/* Adds to an error message which steps took effect. */
static tu_status add_failed_steps(const tu_program *p, tu_status status, size_t done, size_t chunk,
                                  size_t steps) {
    if (steps == 1) return status; /* same message as tu_run's */
    if (chunk == 1)
        return tu_fail(status, "step %zu of %zu failed, the %zu before it took effect: %s", done + 1, steps,
                       done, tu_message());
    return tu_fail(
        status,
        "steps %zu to %zu of %zu failed in one call of %s%s%s: the %zu steps before them took effect, "
        "and some of the failed ones may have: %s",
        done + 1, done + chunk, steps, p->only_active ? "device '" : "all devices",
        p->only_active ? p->only_active->device->name : "", p->only_active ? "'" : "", done, tu_message());
}

/* ---- A call ---- */

static tu_status run_steps(tu_program *p, tu_state *state, size_t steps, size_t feed_count,
                           const tu_feed_many *feeds, void *const *fetches) {
    size_t max_chunk;
    TU_TRY(tu__program_state(p, &state));
    p->seed = state->seed;
    TU_TRY(tu__program_bind(p, state));
    TU_TRY(allocate_lists(p));
    TU_TRY(find_sources(p, feed_count, feeds));
    TU_TRY(allocate_block(p, steps, &max_chunk));
    for (size_t done = 0, chunk; done < steps; done += chunk) {
        chunk = steps - done < max_chunk ? steps - done : max_chunk;
        tu_status status = run_chunk(p, state, fetches, done, chunk);
        if (status != TU_OK) return add_failed_steps(p, status, done, chunk, steps);
    }
    return TU_OK;
}

tu_status tu_run_many(tu_program *program, tu_state *state, size_t steps, size_t feed_count,
                      const tu_feed_many *feeds, void *const *fetches) {
    TU_TRY(tu__program_check_run(program, state, feed_count, feeds));
    for (size_t i = 0; i < feed_count; i++) TU_TRY(check_feed(program, i, feeds, steps));
    tu__program_lock_devices(program);
    tu_status status = run_steps(program, state, steps, feed_count, feeds, fetches);
    tu__program_unlock_devices(program);
    return status;
}
