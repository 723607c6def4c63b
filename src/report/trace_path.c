/* The critical path of traced runs: the chain of kernels, copies, feeds and fetches that determines the length of the
 * run.
 *
 * It is found backwards, from the span that ended last to the latest-ending span that it waited for, and so on. A
 * kernel waits for the previous kernel on its device and for the copies it reads; after a collective, for all ranks'
 * slices of it; the first kernel that changes a variable, for everything that other devices compute. A copy waits for
 * the kernel that wrote its value and for the previous copy of the same thread. A rank's slice of a collective waits
 * for the kernels before each rank's post. Anything that waits for nothing else waits for the latest feed. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "run/trace.h"

/* The spans of one run, by kernel, copy and collective. */
typedef struct scene {
    const tu_program *program;
    uint32_t run;
    uint32_t first_kernel[TU__MAX_DEVICES], first_copy[TU__MAX_DEVICES], first_buffer[TU__MAX_DEVICES];
    uint32_t first_share[TU__MAX_DEVICES];
    uint32_t kernel_count, copy_count, buffer_count, share_count;
    const tu__span **kernels, **copies, **shares; /* NULL: no such span in this run; slices: of collectives */
    uint32_t *written_at; /* per buffer of every partition: position of the kernel that writes it */
    size_t *next;         /* per row: the first span of this run or a later one */
} scene;

/* ---- Collecting the spans of a run ---- */

static void lay_out(scene *s) {
    for (size_t i = 0; i < s->program->device_count; i++) {
        const tu__partition *part = &s->program->parts[i];
        s->first_kernel[i] = s->kernel_count;
        s->first_copy[i] = s->copy_count;
        s->first_buffer[i] = s->buffer_count;
        s->first_share[i] = s->share_count;
        s->kernel_count += part->plan->kernel_count;
        s->copy_count += part->receive_count;
        s->buffer_count += part->plan->buffer_count;
        s->share_count += part->collective_count;
    }
}

static void note_writers(scene *s) {
    for (uint32_t b = 0; b < s->buffer_count; b++) s->written_at[b] = TU_NO_NODE;
    for (size_t i = 0; i < s->program->device_count; i++) {
        const tu__partition *part = &s->program->parts[i];
        for (uint32_t place = 0; place < part->plan->kernel_count; place++) {
            const tu_kernel *k = &part->plan->kernels[part->order[place]];
            for (uint32_t w = 0; w < k->write_count; w++)
                s->written_at[s->first_buffer[i] + k->writes[w]] = place;
        }
    }
}

static void see(scene *s, const tu__span *span) {
    if (span->kind == TU__SPAN_KERNEL) s->kernels[s->first_kernel[span->part] + span->index] = span;
    if (span->kind == TU__SPAN_COPY) s->copies[s->first_copy[span->part] + span->index] = span;
    if (span->kind == TU__SPAN_MEETING) s->shares[s->first_share[span->part] + span->index] = span;
}

static void look_at_run(scene *s, uint32_t run) {
    const tu__trace *trace = s->program->trace;
    s->run = run;
    for (uint32_t i = 0; i < s->kernel_count; i++) s->kernels[i] = NULL;
    for (uint32_t i = 0; i < s->copy_count; i++) s->copies[i] = NULL;
    for (uint32_t i = 0; i < s->share_count; i++) s->shares[i] = NULL;
    for (size_t row = 0; row < trace->row_count; row++) {
        const tu__span_list *list = &trace->rows[row];
        while (s->next[row] < list->count && list->spans[s->next[row]].run < run) s->next[row]++;
        for (size_t i = s->next[row]; i < list->count && list->spans[i].run == run; i++)
            see(s, &list->spans[i]);
    }
}

/* ---- The span before ---- */

static const tu__span *later(const tu__span *a, const tu__span *b) {
    if (!a || !b) return a ? a : b;
    return a->end >= b->end ? a : b;
}

/* Returns the latest of the run's spans of a kind, on any device, that ended by `time`. */
static const tu__span *latest(const scene *s, tu__span_kind kind, double time) {
    const tu__trace *trace = s->program->trace;
    const tu__span *found = NULL;
    for (size_t row = 0; row < trace->row_count; row++)
        for (size_t i = s->next[row]; i < trace->rows[row].count && trace->rows[row].spans[i].run == s->run;
             i++) {
            const tu__span *span = &trace->rows[row].spans[i];
            if (span->kind == kind && span->end <= time) found = later(found, span);
        }
    return found;
}

static const tu__span *last_computed(const scene *s) {
    const tu__span *found = NULL;
    for (uint32_t i = 0; i < s->kernel_count; i++) found = later(found, s->kernels[i]);
    for (uint32_t i = 0; i < s->copy_count; i++) found = later(found, s->copies[i]);
    for (uint32_t i = 0; i < s->share_count; i++) found = later(found, s->shares[i]);
    return found;
}

/* Returns the rank's slice of a collective that ended last. */
static const tu__span *last_share(const scene *s, const tu__collective *m) {
    const tu__span *found = NULL;
    for (uint32_t r = 0; r < m->ranks; r++)
        found = later(found, s->shares[s->first_share[m->members[r].part] + m->members[r].membership]);
    return found;
}

/* Returns what kernels that change variables wait for: everything that is computed before the barrier. */
static const tu__span *before_updates(const scene *s) {
    const tu__span *found = NULL;
    for (size_t i = 0; i < s->program->device_count; i++) {
        const tu__partition *part = &s->program->parts[i];
        uint32_t computing = part->plan->kernel_count - part->update_kernels;
        for (uint32_t k = 0; k < computing; k++) found = later(found, s->kernels[s->first_kernel[i] + k]);
    }
    for (uint32_t i = 0; i < s->copy_count; i++) found = later(found, s->copies[i]);
    for (uint32_t i = 0; i < s->share_count; i++) found = later(found, s->shares[i]);
    return found;
}

static const tu__span *before_kernel(const scene *s, const tu__span *span) {
    const tu__partition *part = &s->program->parts[span->part];
    const tu_kernel *k = &part->plan->kernels[part->order[span->index]];
    const tu__span *found = span->index ? s->kernels[s->first_kernel[span->part] + span->index - 1] : NULL;
    for (uint32_t a = 0; a < part->receive_count; a++)
        for (uint32_t r = 0; r < k->read_count; r++)
            if (part->receives[a].buffer == k->reads[r])
                found = later(found, s->copies[s->first_copy[span->part] + a]);
    for (uint32_t i = 0; i < part->collective_count; i++) {
        const tu__collective *m = part->collectives[i].collective;
        if (m->members[part->collectives[i].rank].held == span->index) found = later(found, last_share(s, m));
    }
    if (s->program->working > 1 && span->index == part->plan->kernel_count - part->update_kernels)
        found = later(found, before_updates(s));
    return found;
}

static const tu__span *kernel_before(const scene *s, uint32_t part, uint32_t place) {
    return place ? s->kernels[s->first_kernel[part] + place - 1] : NULL;
}

/* Returns the latest of what every rank posts, and what this rank did before. */
static const tu__span *before_share(const scene *s, const tu__span *span) {
    const tu__partition *part = &s->program->parts[span->part];
    const tu__collective *m = part->collectives[span->index].collective;
    const tu__member *own = &m->members[part->collectives[span->index].rank];
    const tu__span *found = kernel_before(s, span->part, own->held);
    if (span->index) found = later(found, last_share(s, part->collectives[span->index - 1].collective));
    for (uint32_t r = 0; r < m->ranks; r++)
        found = later(found, kernel_before(s, m->members[r].part, m->members[r].ready));
    return found;
}

/* Returns the last slice of the collective that computed a value. */
static const tu__span *share_that_made(const scene *s, uint32_t index, uint32_t buffer) {
    const tu__partition *part = &s->program->parts[index];
    for (uint32_t i = 0; i < part->collective_count; i++) {
        const tu__collective *m = part->collectives[i].collective;
        for (uint32_t v = 0; v < m->value_count; v++)
            if (m->members[part->collectives[i].rank].out[v] == buffer) return last_share(s, m);
    }
    return NULL;
}

static const tu__span *copy_before(const scene *s, const tu__partition *mover, const tu__span *span) {
    const tu__span *found = NULL;
    for (uint32_t i = 0; i < mover->move_count; i++) {
        const tu__receive *a = mover->moves[i];
        const tu__partition *to = &s->program->parts[a->part];
        const tu__span *other = s->copies[s->first_copy[a->part] + (uint32_t)(a - to->receives)];
        if (other && other != span && other->end <= span->start) found = later(found, other);
    }
    return found;
}

static const tu__span *before_copy(const scene *s, const tu__span *span) {
    const tu__receive *a = &s->program->parts[span->part].receives[span->index];
    uint32_t place = s->written_at[s->first_buffer[a->source_part] + a->source_buffer];
    const tu__span *made = place == TU_NO_NODE ? share_that_made(s, a->source_part, a->source_buffer)
                                               : s->kernels[s->first_kernel[a->source_part] + place];
    return later(made, copy_before(s, &s->program->parts[a->mover], span));
}

/* Feeds come before everything, fetches after everything, and updates by copying come last; each one after
 * another. */
static const tu__span *before(const scene *s, const tu__span *span) {
    const tu__span *found = NULL;
    switch (span->kind) {
    case TU__SPAN_KERNEL: found = before_kernel(s, span); break;
    case TU__SPAN_COPY: found = before_copy(s, span); break;
    case TU__SPAN_MEETING: found = before_share(s, span); break;
    case TU__SPAN_UPDATE:
        found = later(latest(s, TU__SPAN_UPDATE, span->start), latest(s, TU__SPAN_FETCH, span->start));
        break;
    case TU__SPAN_FETCH: found = latest(s, TU__SPAN_FETCH, span->start); break;
    case TU__SPAN_FEED: return latest(s, TU__SPAN_FEED, span->start);
    case TU__SPAN_RUN:
    case TU__SPAN_WAIT:
    case TU__SPAN_GATHERING:
    case TU__SPAN_BARRIER: return NULL;
    }
    bool comes_after = span->kind == TU__SPAN_UPDATE || span->kind == TU__SPAN_FETCH;
    if (!found && comes_after) found = last_computed(s);
    return found ? found : latest(s, TU__SPAN_FEED, span->start);
}

/* ---- Accumulating ---- */

static tu_status count_span(tu__path *path, const tu__span *span, size_t capacity) {
    double seconds = span->end - span->start;
    path->seconds += seconds;
    for (size_t i = 0; i < path->count; i++) {
        tu__path_item *item = &path->items[i];
        if (item->span.kind != span->kind || item->span.part != span->part || item->span.index != span->index)
            continue;
        item->count++;
        item->seconds += seconds;
        return TU_OK;
    }
    if (path->count == capacity) return tu_fail(TU_INTERNAL, "a critical path of more items than there are");
    path->items[path->count++] = (tu__path_item){.span = *span, .count = 1, .seconds = seconds};
    return TU_OK;
}

static tu_status walk(const scene *s, tu__path *path, size_t capacity) {
    const tu__span *span = later(latest(s, TU__SPAN_UPDATE, INFINITY), latest(s, TU__SPAN_FETCH, INFINITY));
    if (!span) span = last_computed(s);
    if (!span) span = latest(s, TU__SPAN_FEED, INFINITY);
    /* Clocks of two devices may differ by some microseconds. A chain longer than the number of all spans would be a
     * cycle. */
    for (size_t length = 0; span && length < capacity; length++) {
        TU_TRY(count_span(path, span, capacity));
        const tu__span *earlier = before(s, span);
        if (earlier && span->start > earlier->end) path->between += span->start - earlier->end;
        span = earlier;
    }
    return TU_OK;
}

static int compare_items(const void *a, const void *b) {
    const tu__path_item *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static size_t most_items(const scene *s) {
    size_t updates = 0;
    for (size_t i = 0; i < s->program->device_count; i++) updates += s->program->parts[i].update_count;
    return s->kernel_count + s->copy_count + s->share_count + s->program->feed_count +
           s->program->unit.fetch_count + 2 * updates + 1;
}

tu_status tu__trace_path(const tu_program *program, tu__path *path) {
    *path = (tu__path){0};
    scene s = {.program = program};
    lay_out(&s);
    size_t capacity = most_items(&s);
    tu__arena arena = {.purpose = "a critical path"};
    s.kernels = tu__arena_alloc(&arena, (s.kernel_count + 1) * sizeof *s.kernels);
    s.copies = tu__arena_alloc(&arena, (s.copy_count + 1) * sizeof *s.copies);
    s.shares = tu__arena_alloc(&arena, (s.share_count + 1) * sizeof *s.shares);
    s.written_at = tu__arena_alloc(&arena, (s.buffer_count + 1) * sizeof *s.written_at);
    s.next = tu__arena_alloc(&arena, program->trace->row_count * sizeof *s.next);
    path->items = tu__alloc_array(capacity, sizeof *path->items, "a critical path");
    bool ready = s.kernels && s.copies && s.shares && s.written_at && s.next && path->items;
    tu_status status = ready ? TU_OK : TU_NO_MEMORY;
    if (ready) note_writers(&s);
    for (uint32_t run = 0; run < program->trace->runs && status == TU_OK; run++) {
        look_at_run(&s, run);
        status = walk(&s, path, capacity);
    }
    tu__arena_free(&arena);
    if (status != TU_OK) tu__path_free(path);
    if (status == TU_OK) qsort(path->items, path->count, sizeof *path->items, compare_items);
    return status;
}

void tu__path_free(tu__path *path) {
    tu__free(path->items);
    *path = (tu__path){0};
}
