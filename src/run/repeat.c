/* Many steps in one call: tu_run_many.
 *
 * Between two runs the host has little to do: fill the inputs, read the results. For a device that is fast and far away
 * that little is most of the time. A device whose table has `repeat` therefore takes many steps at once: it is told
 * where the data of every step lie, and the host is back when all are done. That needs a program whose steps are the
 * device's affair alone: one device that has anything to do, and every update written into its variable's own memory; or
 * several devices that can be joined (joint.c). Any other program gets the same work done by a run for each step, with the
 * same results.
 *
 * What the engine itself makes for the steps, sample ordinals and the rows of tables that a device has no room for, lies
 * in one block. The steps are taken in pieces of as many as fit into it. */
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

/* ---- Who takes the steps ---- */

/* A variable whose next value must be moved to it by the engine after every step; NULL: there is none. */
static const char *updated_elsewhere(const tu_program *p) {
    for (size_t i = 0; i < p->device_count; i++) {
        const tu__partition *part = &p->parts[i];
        for (uint32_t k = 0; k < part->update_count; k++)
            if (!part->updates[k].in_place) return p->unit.graph->nodes[part->updates[k].variable]->name;
    }
    return NULL;
}

/* Whether all that is fed and fetched is the affair of the part that computes. */
static bool is_all_there(const tu_program *p) {
    for (size_t i = 0; i < p->feed_count; i++)
        if (&p->parts[p->feeds[i].part] != p->alone) return false;
    for (size_t i = 0; i < p->unit.fetch_count; i++)
        if (&p->parts[p->fetches[i].part] != p->alone) return false;
    return true;
}

/* Whether steps are moves of several parts, or of one that meets, if only itself. */
static bool is_joint(const tu_program *p) {
    return !p->alone || p->collectives.count;
}

tu_status tu__many_begin(tu_program *p) {
    char *notice = p->many.notice;
    size_t size = sizeof p->many.notice;
    if (is_joint(p)) return tu__joint_begin(p, notice, size);
    if (!is_all_there(p))
        snprintf(notice, size, "the program has %zu devices, which meet in every step", p->device_count);
    else if (!p->alone->device->api->repeat)
        snprintf(notice, size, "device '%s' takes one step at a time", p->alone->device->name);
    else if (updated_elsewhere(p))
        snprintf(notice, size, "variable '%s' is not updated in its own memory", updated_elsewhere(p));
    return TU_OK;
}

void tu__many_end(tu__many *many) {
    tu__free(many->sources);
    tu__free(many->feeds);
    tu__free(many->fetches);
    tu__free(many->fetched);
    tu__joint_end(&many->joint);
    tu__free_aligned(many->block);
}

static bool can_take_many(const tu_program *p) {
    return !p->many.notice[0];
}

/* Whether rows can be copied from their table straight into the inputs: these lie in the host's memory, and the device
 * computes on this thread, so that its own threads are at hand. */
static bool gathers_straight(const tu_program *p) {
    return !can_take_many(p) && p->alone && is_all_there(p) && p->alone->device->api->host_memory &&
           p->alone->device->options.parts == 1;
}

/* A trace tells one step from the other. */
static bool takes_many_at_once(const tu_program *p) {
    return can_take_many(p) && !(p->trace && p->trace->on);
}

tu_status tu_program_many(const tu_program *program, tu_many_report *report) {
    const tu__many *m = &program->many;
    TU_TRY(TU__CHECK_SIZED(tu_many_report, report));
    tu_many_report full = {.at_once = can_take_many(program),
                           .table_bytes = m->table_bytes,
                           .gathered_bytes = m->gathered_bytes,
                           .notice = m->notice[0]         ? m->notice
                                     : m->table_notice[0] ? m->table_notice
                                                          : NULL,
                           .straight = gathers_straight(program)};
    TU__GIVE_SIZED(report, full);
    return TU_OK;
}

/* ---- Checking ---- */

static tu_status check_rows(size_t index, const tu__node *input, const tu_feed_many *f, size_t steps) {
    const tu_table *t = f->table;
    size_t bytes = tu_type_bytes(input->outputs[0]);
    if (!f->rows)
        return tu_fail(TU_INVALID, "feed %zu for input '%s' has a table, but no numbers of rows", index,
                       input->name);
    if (bytes % t->row_bytes)
        return tu_fail(
            TU_INVALID,
            "feed %zu for input '%s' %s takes %zu bytes, which are no whole rows: those of its table "
            "have %zu",
            index, input->name, tu__type_string(input->outputs[0]), bytes, t->row_bytes);
    size_t count = bytes / t->row_bytes * (f->same ? 1 : steps);
    for (size_t i = 0; i < count; i++)
        if (f->rows[i] < 0 || f->rows[i] >= t->rows)
            return tu_fail(
                TU_INVALID,
                "feed %zu for input '%s' asks for row %lld (number %zu of its list): the table's rows "
                "are 0 to %lld",
                index, input->name, (long long)f->rows[i], i, (long long)t->rows - 1);
    return TU_OK;
}

static tu_status check_feed(const tu_program *p, size_t index, const tu_feed_many *feeds, size_t steps) {
    const tu_feed_many *f = &feeds[index];
    const tu__node *input = tu__program_input(p, index, f->input);
    if (!input) return TU_INVALID;
    for (size_t k = 0; k < index; k++)
        if (feeds[k].input.node == f->input.node) return tu__program_fed_twice(input, k, index);
    if (!f->data == !f->table)
        return tu_fail(TU_INVALID, "feed %zu for input '%s' has %s: expected data or a table", index,
                       input->name, f->data ? "both data and a table" : "neither data nor a table");
    return f->table ? check_rows(index, input, f, steps) : TU_OK;
}

/* ---- Where the data come from ---- */

static tu_status reserve(tu_program *p) {
    tu__many *m = &p->many;
    if (!m->sources) m->sources = tu__alloc_array(p->feed_count, sizeof *m->sources, "many steps");
    if (!m->feeds) m->feeds = tu__alloc_array(p->feed_count, sizeof *m->feeds, "many steps");
    if (!m->fetches) m->fetches = tu__alloc_array(p->unit.fetch_count, sizeof *m->fetches, "many steps");
    if (!m->fetched) m->fetched = tu__alloc_array(p->unit.fetch_count, sizeof *m->fetched, "many steps");
    return m->sources && m->feeds && m->fetches && m->fetched ? TU_OK : TU_NO_MEMORY;
}

/* Bytes that tables may take on a device of the program: what is left of the limit it was compiled with; without one, half of
 * what the device has beside the program, since other programs want memory too. */
static tu_status room_for_tables(const tu_program *p, size_t part, uint64_t *room) {
    tu_memory_report report = TU_SIZED(tu_memory_report);
    TU_TRY(tu_program_memory(p, part, &report));
    *room = UINT64_MAX;
    if (!report.limit_bytes) return TU_OK;
    uint64_t left = report.limit_bytes > report.need_bytes ? report.limit_bytes - report.need_bytes : 0;
    if (!p->parts[part].memory_limit) left /= 2;
    *room = left > report.table_bytes ? left - report.table_bytes : 0;
    return TU_OK;
}

/* Whether an input before this one reads from the same copy of a table. */
static bool is_counted(const tu__many *m, const tu__many_source *s) {
    for (const tu__many_source *before = m->sources; before < s; before++)
        if (before->table == s->table) return true;
    return false;
}

/* Puts the feed's table into the device's memory, if it is for a device that picks rows itself and has room. Where rows
 * are gathered straight into the input, it lies there as it is. */
static tu_status place_table(tu_program *p, const tu__feed_place *place, tu__many_source *s) {
    const tu_table *t = s->feed->table;
    tu__device *device = p->parts[place->part].device;
    if (gathers_straight(p) && !s->feed->same) s->table = t->data;
    if (!takes_many_at_once(p) || s->feed->same) return TU_OK;
    if (!tu__table_find(s->feed->table, device, &s->table)) {
        uint64_t room;
        TU_TRY(room_for_tables(p, place->part, &room));
        TU_TRY(tu__table_put(s->feed->table, device, room, &s->table));
    }
    if (s->table && !is_counted(&p->many, s)) p->many.table_bytes += (uint64_t)t->rows * t->row_bytes;
    if (!s->table)
        snprintf(
            p->many.table_notice, sizeof p->many.table_notice,
            "the table for input '%s' (%.4g MiB) does not fit into device '%s' beside the program: its rows "
            "are gathered on the host",
            p->unit.graph->nodes[place->node]->name, (double)t->rows * (double)t->row_bytes / 1048576,
            device->name);
    return TU_OK;
}

/* Parts of a batch that comes from a table are whole rows of it. */
static tu_status check_cut(const tu_program *p, const tu__feed_place *place, size_t row_bytes) {
    if (place->offset % row_bytes == 0 && place->bytes % row_bytes == 0) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "the rows of the table for input '%s' have %zu bytes: the batch is cut between devices at byte %zu, "
        "which is within a row",
        p->source->nodes[place->source]->name, row_bytes, place->offset);
}

static tu_status find_source(tu_program *p, size_t index, size_t count, const tu_feed_many *feeds) {
    const tu__feed_place *place = &p->feeds[index];
    tu__many_source *s = &p->many.sources[index];
    *s = (tu__many_source){0};
    for (size_t i = 0; i < count && !s->feed; i++)
        if (feeds[i].input.node == place->source) s->feed = &feeds[i];
    if (!s->feed) return tu__program_makes(p, place);
    if (s->feed->table) TU_TRY(check_cut(p, place, s->feed->table->row_bytes));
    return s->feed->table ? place_table(p, place, s) : TU_OK;
}

static tu_status find_sources(tu_program *p, size_t count, const tu_feed_many *feeds) {
    p->many.table_bytes = p->many.gathered_bytes = 0;
    p->many.table_notice[0] = 0;
    for (size_t i = 0; i < p->feed_count; i++) TU_TRY(find_source(p, i, count, feeds));
    return TU_OK;
}

/* ---- What the engine makes ---- */

static bool is_made(const tu__many_source *s) {
    return !s->feed || (!s->feed->data && !s->table);
}

/* Whether one batch of an input serves all steps: ordinals do not move on in a program without updates. */
static bool is_same(const tu_program *p, const tu__many_source *s) {
    return s->feed ? s->feed->same : !p->unit.updates;
}

static size_t rounded(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

/* Bytes of the block for pieces of `steps` steps; notes where each input's are. */
static size_t lay_out(tu_program *p, size_t steps) {
    size_t bytes = 0;
    for (size_t i = 0; i < p->feed_count; i++) {
        tu__many_source *s = &p->many.sources[i];
        if (!is_made(s)) continue;
        s->offset = bytes;
        bytes += rounded(p->feeds[i].bytes * (is_same(p, s) ? 1 : steps));
    }
    return bytes;
}

/* How many steps make a piece, and the block for what is made for them. */
static tu_status reserve_block(tu_program *p, size_t steps, size_t *piece) {
    tu__many *m = &p->many;
    size_t one = lay_out(p, 1);
    *piece = takes_many_at_once(p) ? (one ? MAX_BLOCK_BYTES / one : steps) : 1;
    if (*piece > steps) *piece = steps;
    if (*piece > UINT32_MAX) *piece = UINT32_MAX;
    if (*piece < 1) *piece = 1;
    size_t bytes = lay_out(p, *piece);
    if (bytes <= m->block_bytes) return TU_OK;
    tu__free_aligned(m->block);
    m->block_bytes = 0;
    m->block = tu__alloc_aligned(bytes, "what inputs get in many steps");
    if (!m->block) return TU_NO_MEMORY;
    m->block_bytes = bytes;
    return TU_OK;
}

/* The numbers of the rows that a place gets of its table in a step of the call. */
static const int64_t *rows_of(const tu__many_source *s, const tu__feed_place *place, size_t step) {
    size_t row = s->feed->table->row_bytes;
    return s->feed->rows + (s->feed->same ? 0 : step * (place->whole / row)) + place->offset / row;
}

/* What the engine makes of one input for steps done … done+steps-1 of the call. */
static const void *make(tu_program *p, size_t index, const tu_state *state, size_t done, size_t steps) {
    const tu__many_source *s = &p->many.sources[index];
    const tu__feed_place *place = &p->feeds[index];
    char *at = p->many.block + s->offset;
    bool same = is_same(p, s);
    if (!s->feed) {
        int64_t *ordinals = (int64_t *)(void *)at;
        size_t rows = place->bytes / sizeof *ordinals;
        int64_t first = state->sample + (int64_t)(place->offset / sizeof *ordinals);
        for (size_t step = 0; step < (same ? 1 : steps); step++)
            for (size_t i = 0; i < rows; i++)
                ordinals[step * rows + i] = first + (int64_t)step * p->samples + (int64_t)i;
    } else if (!same || !done) {
        size_t rows = place->bytes / s->feed->table->row_bytes;
        for (size_t step = 0; step < (same ? 1 : steps); step++)
            tu__table_gather(s->feed->table, rows_of(s, place, done + step), rows, at + step * place->bytes);
        p->many.gathered_bytes += (same ? 1 : steps) * place->bytes;
    }
    return at;
}

/* ---- A piece ---- */

static void fill_feed(tu_program *p, size_t index, const tu_state *state, size_t done, size_t steps) {
    const tu__many_source *s = &p->many.sources[index];
    const tu__feed_place *place = &p->feeds[index];
    tu_repeat_feed *f = &p->many.feeds[index];
    *f = (tu_repeat_feed){
        .to = p->parts[place->part].addresses[place->buffer], .bytes = place->bytes, .same = is_same(p, s)};
    if (is_made(s)) {
        f->host = make(p, index, state, done, steps);
        f->stride = place->bytes;
    } else if (s->table) {
        f->table = s->table;
        f->row_bytes = s->feed->table->row_bytes;
        f->rows = rows_of(s, place, done);
        f->stride = place->whole / f->row_bytes;
    } else {
        f->host = (const char *)s->feed->data + (f->same ? 0 : done * place->whole) + place->offset;
        f->stride = place->whole;
    }
}

static void fill_fetches(tu_program *p, void *const *fetches, size_t done) {
    p->many.fetch_count = 0;
    for (size_t i = 0; fetches && i < p->unit.fetch_count; i++) {
        const tu__fetch_place *place = &p->fetches[i];
        if (!fetches[i]) continue;
        p->many.fetched[p->many.fetch_count] = (uint32_t)i;
        p->many.fetches[p->many.fetch_count++] =
            (tu_repeat_fetch){.from = p->parts[place->part].addresses[place->buffer],
                              .bytes = place->bytes,
                              .host = (char *)fetches[i] + done * place->bytes};
    }
}

static tu_status repeat(tu_program *p, size_t steps) {
    if (is_joint(p)) return tu__joint_take(p, (uint32_t)steps);
    tu_repetition what = {.struct_size = sizeof what,
                          .feed_count = (uint32_t)p->feed_count,
                          .fetch_count = p->many.fetch_count,
                          .feeds = p->many.feeds,
                          .fetches = p->many.fetches};
    return tu__program_repeat(p, (uint32_t)steps, &what);
}

/* All steps of the piece by the program's devices. */
static tu_status take_at_once(tu_program *p, tu_state *state, size_t steps) {
    TU_TRY(repeat(p, steps));
    tu__program_end_updates(p);
    if (p->unit.updates) state->sample += p->samples * (int64_t)steps;
    return TU_OK;
}

/* Rows of tables into inputs that lie in the host's memory. */
static void gather_straight(tu_program *p) {
    tu__parallel_setting before = tu__parallel_begin(tu__device_threads(p->alone->device));
    for (size_t i = 0; i < p->feed_count; i++) {
        const tu_repeat_feed *f = &p->many.feeds[i];
        if (!f->table) continue;
        double began = tu__trace_now(p);
        tu__table_gather(p->many.sources[i].feed->table, f->rows, f->bytes / f->row_bytes, f->to);
        p->many.gathered_bytes += f->bytes;
        tu__trace_add(p, TU__SPAN_FEED, p->feeds[i].part, i, began);
    }
    tu__parallel_end(before);
}

/* The piece, of one step, by the engine. */
static tu_status take_one(tu_program *p, tu_state *state, void *const *fetches, size_t done) {
    double began;
    TU_TRY(tu__trace_begin_run(p, &began));
    for (size_t i = 0; i < p->feed_count; i++) p->fed[i] = p->many.feeds[i].host;
    if (gathers_straight(p)) gather_straight(p);
    TU_TRY(tu__program_execute_on(p, state));
    TU_TRY(tu__program_fetch(p, fetches, done));
    TU_TRY(tu__program_apply(p, state));
    return tu__trace_end_run(p, began);
}

static tu_status take_piece(tu_program *p, tu_state *state, void *const *fetches, size_t done, size_t steps) {
    for (size_t i = 0; i < p->feed_count; i++) fill_feed(p, i, state, done, steps);
    if (!takes_many_at_once(p)) return take_one(p, state, fetches, done);
    fill_fetches(p, fetches, done);
    return take_at_once(p, state, steps);
}

/* Says of a failure which steps took effect. */
static tu_status explain(const tu_program *p, tu_status status, size_t done, size_t piece, size_t steps) {
    if (steps == 1) return status; /* told as tu_run tells it */
    if (piece == 1)
        return tu_fail(status, "step %zu of %zu failed, the %zu before it took effect: %s", done + 1, steps,
                       done, tu_message());
    return tu_fail(status,
                   "steps %zu to %zu of %zu, which %s%s%s took at once, failed; the %zu before them took "
                   "effect, of these some may have: %s",
                   done + 1, done + piece, steps, p->alone ? "device '" : "all devices",
                   p->alone ? p->alone->device->name : "", p->alone ? "'" : "", done, tu_message());
}

/* ---- A call ---- */

static tu_status run_locked(tu_program *p, tu_state *state, size_t steps, size_t feed_count,
                            const tu_feed_many *feeds, void *const *fetches) {
    size_t most;
    TU_TRY(tu__program_state(p, &state));
    p->seed = state->seed;
    TU_TRY(tu__program_bind(p, state));
    TU_TRY(reserve(p));
    TU_TRY(find_sources(p, feed_count, feeds));
    TU_TRY(reserve_block(p, steps, &most));
    for (size_t done = 0, piece; done < steps; done += piece) {
        piece = steps - done < most ? steps - done : most;
        tu_status status = take_piece(p, state, fetches, done, piece);
        if (status != TU_OK) return explain(p, status, done, piece, steps);
    }
    return TU_OK;
}

tu_status tu_run_many(tu_program *program, tu_state *state, size_t steps, size_t feed_count,
                      const tu_feed_many *feeds, void *const *fetches) {
    TU_TRY(tu__program_can_run(program, state, feed_count, feeds));
    for (size_t i = 0; i < feed_count; i++) TU_TRY(check_feed(program, i, feeds, steps));
    tu__program_take_turns(program);
    tu_status status = run_locked(program, state, steps, feed_count, feeds, fetches);
    tu__program_give_turns(program);
    return status;
}
