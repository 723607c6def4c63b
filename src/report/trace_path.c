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
typedef struct run_spans {
    const tu_program *program;
    uint32_t run;
    uint32_t first_kernel[TU__MAX_DEVICES], first_copy[TU__MAX_DEVICES], first_buffer[TU__MAX_DEVICES];
    uint32_t first_slice[TU__MAX_DEVICES];
    uint32_t kernel_count, copy_count, buffer_count, slice_count;
    const tu__span **kernels, **copies, **slices; /* NULL: no such span in this run; slices: of collectives */
    uint32_t *written_at; /* per buffer of every partition: position of the kernel that writes it */
    size_t *next;         /* per row: the first span of this run or a later one */
} run_spans;

/* ---- Collecting the spans of a run ---- */

static void count_spans(run_spans *s) {
    for (size_t i = 0; i < s->program->device_count; i++) {
        const tu__partition *partition = &s->program->partitions[i];
        s->first_kernel[i] = s->kernel_count;
        s->first_copy[i] = s->copy_count;
        s->first_buffer[i] = s->buffer_count;
        s->first_slice[i] = s->slice_count;
        s->kernel_count += partition->plan->kernel_count;
        s->copy_count += partition->receive_count;
        s->buffer_count += partition->plan->buffer_count;
        s->slice_count += partition->collective_count;
    }
}

static void index_writers(run_spans *s) {
    for (uint32_t b = 0; b < s->buffer_count; b++) s->written_at[b] = TU_NO_NODE;
    for (size_t i = 0; i < s->program->device_count; i++) {
        const tu__partition *partition = &s->program->partitions[i];
        for (uint32_t position = 0; position < partition->plan->kernel_count; position++) {
            const tu_kernel *k = &partition->plan->kernels[partition->order[position]];
            for (uint32_t w = 0; w < k->write_count; w++)
                s->written_at[s->first_buffer[i] + k->writes[w]] = position;
        }
    }
}

static void index_span(run_spans *s, const tu__span *span) {
    if (span->kind == TU__SPAN_KERNEL) s->kernels[s->first_kernel[span->partition] + span->index] = span;
    if (span->kind == TU__SPAN_COPY) s->copies[s->first_copy[span->partition] + span->index] = span;
    if (span->kind == TU__SPAN_COLLECTIVE) s->slices[s->first_slice[span->partition] + span->index] = span;
}

static void index_run(run_spans *s, uint32_t run) {
    const tu__trace *trace = s->program->trace;
    s->run = run;
    for (uint32_t i = 0; i < s->kernel_count; i++) s->kernels[i] = NULL;
    for (uint32_t i = 0; i < s->copy_count; i++) s->copies[i] = NULL;
    for (uint32_t i = 0; i < s->slice_count; i++) s->slices[i] = NULL;
    for (size_t row = 0; row < trace->row_count; row++) {
        const tu__span_list *list = &trace->rows[row];
        while (s->next[row] < list->count && list->spans[s->next[row]].run < run) s->next[row]++;
        for (size_t i = s->next[row]; i < list->count && list->spans[i].run == run; i++)
            index_span(s, &list->spans[i]);
    }
}

/* ---- The span before ---- */

static const tu__span *later_span(const tu__span *a, const tu__span *b) {
    if (!a || !b) return a ? a : b;
    return a->end >= b->end ? a : b;
}

/* Returns the latest of the run's spans of a kind, on any device, that ended by `time`. */
static const tu__span *latest_span(const run_spans *s, tu__span_kind kind, double time) {
    const tu__trace *trace = s->program->trace;
    const tu__span *found = NULL;
    for (size_t row = 0; row < trace->row_count; row++)
        for (size_t i = s->next[row]; i < trace->rows[row].count && trace->rows[row].spans[i].run == s->run;
             i++) {
            const tu__span *span = &trace->rows[row].spans[i];
            if (span->kind == kind && span->end <= time) found = later_span(found, span);
        }
    return found;
}

static const tu__span *last_computed(const run_spans *s) {
    const tu__span *found = NULL;
    for (uint32_t i = 0; i < s->kernel_count; i++) found = later_span(found, s->kernels[i]);
    for (uint32_t i = 0; i < s->copy_count; i++) found = later_span(found, s->copies[i]);
    for (uint32_t i = 0; i < s->slice_count; i++) found = later_span(found, s->slices[i]);
    return found;
}

/* Returns the rank's slice of a collective that ended last. */
static const tu__span *last_slice(const run_spans *s, const tu__collective *c) {
    const tu__span *found = NULL;
    for (uint32_t r = 0; r < c->ranks; r++)
        found =
            later_span(found, s->slices[s->first_slice[c->members[r].partition] + c->members[r].membership]);
    return found;
}

/* Returns what kernels that change variables wait for: everything that is computed before the barrier. */
static const tu__span *predecessor_of_updates(const run_spans *s) {
    const tu__span *found = NULL;
    for (size_t i = 0; i < s->program->device_count; i++) {
        const tu__partition *partition = &s->program->partitions[i];
        uint32_t compute_kernel_count = partition->plan->kernel_count - partition->update_kernel_count;
        for (uint32_t k = 0; k < compute_kernel_count; k++)
            found = later_span(found, s->kernels[s->first_kernel[i] + k]);
    }
    for (uint32_t i = 0; i < s->copy_count; i++) found = later_span(found, s->copies[i]);
    for (uint32_t i = 0; i < s->slice_count; i++) found = later_span(found, s->slices[i]);
    return found;
}

static const tu__span *predecessor_of_kernel(const run_spans *s, const tu__span *span) {
    const tu__partition *partition = &s->program->partitions[span->partition];
    const tu_kernel *k = &partition->plan->kernels[partition->order[span->index]];
    const tu__span *found =
        span->index ? s->kernels[s->first_kernel[span->partition] + span->index - 1] : NULL;
    for (uint32_t a = 0; a < partition->receive_count; a++)
        for (uint32_t r = 0; r < k->read_count; r++)
            if (partition->receives[a].buffer == k->reads[r])
                found = later_span(found, s->copies[s->first_copy[span->partition] + a]);
    for (uint32_t i = 0; i < partition->collective_count; i++) {
        const tu__collective *c = partition->collectives[i].collective;
        if (c->members[partition->collectives[i].rank].wait_position == span->index)
            found = later_span(found, last_slice(s, c));
    }
    if (s->program->active_count > 1 &&
        span->index == partition->plan->kernel_count - partition->update_kernel_count)
        found = later_span(found, predecessor_of_updates(s));
    return found;
}

static const tu__span *kernel_span_before(const run_spans *s, uint32_t partition, uint32_t position) {
    return position ? s->kernels[s->first_kernel[partition] + position - 1] : NULL;
}

/* Returns the latest of what every rank posts, and what this rank did before. */
static const tu__span *predecessor_of_slice(const run_spans *s, const tu__span *span) {
    const tu__partition *partition = &s->program->partitions[span->partition];
    const tu__collective *c = partition->collectives[span->index].collective;
    const tu__member *member = &c->members[partition->collectives[span->index].rank];
    const tu__span *found = kernel_span_before(s, span->partition, member->wait_position);
    if (span->index)
        found = later_span(found, last_slice(s, partition->collectives[span->index - 1].collective));
    for (uint32_t r = 0; r < c->ranks; r++)
        found =
            later_span(found, kernel_span_before(s, c->members[r].partition, c->members[r].post_position));
    return found;
}

/* Returns the last slice of the collective that computed a value. */
static const tu__span *slice_that_writes(const run_spans *s, uint32_t index, uint32_t buffer) {
    const tu__partition *partition = &s->program->partitions[index];
    for (uint32_t i = 0; i < partition->collective_count; i++) {
        const tu__collective *c = partition->collectives[i].collective;
        for (uint32_t v = 0; v < c->value_count; v++)
            if (c->members[partition->collectives[i].rank].out[v] == buffer) return last_slice(s, c);
    }
    return NULL;
}

static const tu__span *copy_span_before(const run_spans *s, const tu__partition *copying,
                                        const tu__span *span) {
    const tu__span *found = NULL;
    for (uint32_t i = 0; i < copying->copy_count; i++) {
        const tu__receive *receive = copying->copies[i];
        const tu__partition *to = &s->program->partitions[receive->partition];
        const tu__span *other =
            s->copies[s->first_copy[receive->partition] + (uint32_t)(receive - to->receives)];
        if (other && other != span && other->end <= span->start) found = later_span(found, other);
    }
    return found;
}

static const tu__span *predecessor_of_copy(const run_spans *s, const tu__span *span) {
    const tu__receive *receive = &s->program->partitions[span->partition].receives[span->index];
    uint32_t position = s->written_at[s->first_buffer[receive->source_partition] + receive->source_buffer];
    const tu__span *producer = position == TU_NO_NODE
                                   ? slice_that_writes(s, receive->source_partition, receive->source_buffer)
                                   : s->kernels[s->first_kernel[receive->source_partition] + position];
    return later_span(producer, copy_span_before(s, &s->program->partitions[receive->copied_by], span));
}

/* Returns the span that `span` waited for; NULL if there is none. Feeds come before everything else, then kernels,
 * copies and collectives, then fetches, then updates by copying. */
static const tu__span *predecessor(const run_spans *s, const tu__span *span) {
    const tu__span *found = NULL;
    switch (span->kind) {
    case TU__SPAN_KERNEL: found = predecessor_of_kernel(s, span); break;
    case TU__SPAN_COPY: found = predecessor_of_copy(s, span); break;
    case TU__SPAN_COLLECTIVE: found = predecessor_of_slice(s, span); break;
    case TU__SPAN_UPDATE:
        found = later_span(latest_span(s, TU__SPAN_UPDATE, span->start),
                           latest_span(s, TU__SPAN_FETCH, span->start));
        break;
    case TU__SPAN_FETCH: found = latest_span(s, TU__SPAN_FETCH, span->start); break;
    case TU__SPAN_FEED: return latest_span(s, TU__SPAN_FEED, span->start);
    case TU__SPAN_RUN:
    case TU__SPAN_WAIT:
    case TU__SPAN_COLLECTIVE_WAIT:
    case TU__SPAN_COMMIT: return NULL;
    }
    bool is_after_kernels = span->kind == TU__SPAN_UPDATE || span->kind == TU__SPAN_FETCH;
    if (!found && is_after_kernels) found = last_computed(s);
    return found ? found : latest_span(s, TU__SPAN_FEED, span->start);
}

/* ---- Accumulating ---- */

static tu_status add_to_path(tu__critical_path *path, const tu__span *span, size_t capacity) {
    double seconds = span->end - span->start;
    path->seconds += seconds;
    for (size_t i = 0; i < path->count; i++) {
        tu__critical_path_item *item = &path->items[i];
        if (item->span.kind != span->kind || item->span.partition != span->partition ||
            item->span.index != span->index)
            continue;
        item->count++;
        item->seconds += seconds;
        return TU_OK;
    }
    if (path->count == capacity)
        return tu_fail(TU_INTERNAL, "the critical path has more items than the trace");
    path->items[path->count++] = (tu__critical_path_item){.span = *span, .count = 1, .seconds = seconds};
    return TU_OK;
}

static tu_status follow_path(const run_spans *s, tu__critical_path *path, size_t capacity) {
    const tu__span *span =
        later_span(latest_span(s, TU__SPAN_UPDATE, INFINITY), latest_span(s, TU__SPAN_FETCH, INFINITY));
    if (!span) span = last_computed(s);
    if (!span) span = latest_span(s, TU__SPAN_FEED, INFINITY);
    /* Clocks of two devices may differ by some microseconds. A chain longer than the number of all spans would be a
     * cycle. */
    for (size_t length = 0; span && length < capacity; length++) {
        TU_TRY(add_to_path(path, span, capacity));
        const tu__span *earlier = predecessor(s, span);
        if (earlier && span->start > earlier->end) path->gap_seconds += span->start - earlier->end;
        span = earlier;
    }
    return TU_OK;
}

static int compare_items(const void *a, const void *b) {
    const tu__critical_path_item *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static size_t max_items(const run_spans *s) {
    size_t updates = 0;
    for (size_t i = 0; i < s->program->device_count; i++) updates += s->program->partitions[i].update_count;
    return s->kernel_count + s->copy_count + s->slice_count + s->program->feed_count +
           s->program->unit.fetch_count + 2 * updates + 1;
}

tu_status tu__trace_critical_path(const tu_program *program, tu__critical_path *path) {
    *path = (tu__critical_path){0};
    run_spans s = {.program = program};
    count_spans(&s);
    size_t capacity = max_items(&s);
    tu__arena arena = {.purpose = "a critical path"};
    s.kernels = tu__arena_alloc(&arena, (s.kernel_count + 1) * sizeof *s.kernels);
    s.copies = tu__arena_alloc(&arena, (s.copy_count + 1) * sizeof *s.copies);
    s.slices = tu__arena_alloc(&arena, (s.slice_count + 1) * sizeof *s.slices);
    s.written_at = tu__arena_alloc(&arena, (s.buffer_count + 1) * sizeof *s.written_at);
    s.next = tu__arena_alloc(&arena, program->trace->row_count * sizeof *s.next);
    path->items = tu__alloc_array(capacity, sizeof *path->items, "a critical path");
    bool allocated = s.kernels && s.copies && s.slices && s.written_at && s.next && path->items;
    tu_status status = allocated ? TU_OK : TU_NO_MEMORY;
    if (allocated) index_writers(&s);
    for (uint32_t run = 0; run < program->trace->runs && status == TU_OK; run++) {
        index_run(&s, run);
        status = follow_path(&s, path, capacity);
    }
    tu__arena_free(&arena);
    if (status != TU_OK) tu__critical_path_free(path);
    if (status == TU_OK) qsort(path->items, path->count, sizeof *path->items, compare_items);
    return status;
}

void tu__critical_path_free(tu__critical_path *path) {
    tu__free(path->items);
    *path = (tu__critical_path){0};
}
