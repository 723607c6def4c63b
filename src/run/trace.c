/* Records traces and queries them. trace_write.c and trace_summary.c write and summarize them. */
#include "run/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

bool tu__is_traced(const tu__execution *e) {
    return e->trace && e->trace->is_recording;
}

double tu__trace_now(const tu__execution *e) {
    return tu__is_traced(e) ? tu__now() : 0;
}

/* ---- Lists ---- */

static void append_span(tu__span_list *list, tu__span span) {
    enum { INITIAL_CAPACITY = 64 };
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : INITIAL_CAPACITY;
        tu__span *grown = tu__alloc_array(capacity, sizeof *grown, "a trace");
        if (!grown) {
            list->is_incomplete = true;
            return;
        }
        if (list->count) memcpy(grown, list->spans, list->count * sizeof *grown);
        tu__free(list->spans);
        list->spans = grown;
        list->capacity = capacity;
    }
    list->spans[list->count++] = span;
}

static int compare_spans(const void *a, const void *b) {
    const tu__span *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Sorts by time. Waits are added during a run, but kernels after it. */
static void sort_spans(tu__span_list *list) {
    if (list->count) qsort(list->spans, list->count, sizeof *list->spans, compare_spans);
}

/* ---- Recording ---- */

/* The row of each kind of span: the device's kernels, or one of its threads. What the caller's thread does between
 * runs is in the row of copies, too. */
static const int row_of_kind[] = {
    [TU__SPAN_KERNEL] = TU__ROW_COMPUTE,       [TU__SPAN_WAIT] = TU__ROW_HOST,
    [TU__SPAN_COMMIT] = TU__ROW_HOST,          [TU__SPAN_COLLECTIVE] = TU__ROW_HOST,
    [TU__SPAN_COLLECTIVE_WAIT] = TU__ROW_HOST, [TU__SPAN_FEED] = TU__ROW_HOST,
    [TU__SPAN_COPY] = TU__ROW_COPIES,          [TU__SPAN_FETCH] = TU__ROW_COPIES,
    [TU__SPAN_UPDATE] = TU__ROW_COPIES,
};

static tu__span_list *row_of(const tu_program *p, tu__span_kind kind, size_t partition, size_t index) {
    int row = row_of_kind[kind];
    bool launch_computes = !p->partitions[partition].device->api->queue_new;
    if (kind == TU__SPAN_COLLECTIVE &&
        TU__NEEDS_COMMUNICATION_THREAD(p->partitions[partition].collectives[index].collective))
        row = TU__ROW_PROCESSES;
    if (row == TU__ROW_HOST && launch_computes) row = TU__ROW_COMPUTE;
    if (kind == TU__SPAN_COPY) partition = p->partitions[partition].receives[index].copied_by;
    return &p->trace->rows[partition * TU__ROWS + (size_t)row];
}

static void add_span(const tu_program *p, tu__span_kind kind, size_t partition, size_t index, double start,
                     double end) {
    append_span(row_of(p, kind, partition, index), (tu__span){.kind = kind,
                                                              .run = p->trace->runs,
                                                              .partition = (uint32_t)partition,
                                                              .index = (uint32_t)index,
                                                              .start = start,
                                                              .end = end});
}

void tu__trace_add(const tu__execution *e, tu__span_kind kind, size_t partition, size_t index, double began) {
    if (tu__is_traced(e)) add_span(e->program, kind, partition, index, began, tu__now());
}

void tu__trace_add_span(const tu__execution *e, tu__span_kind kind, size_t partition, size_t index,
                        double start, double end) {
    add_span(e->program, kind, partition, index, start, end);
}

bool tu__trace_times_launches(const tu__execution *e, const tu__part *part) {
    return tu__is_traced(e) && !part->device->api->times;
}

/* Makes devices measure kernel times: they start with the launch after the first query. */
static tu_status start_timing(const tu__execution *e) {
    for (size_t i = 0; i < e->program->device_count; i++) {
        const tu__part *part = &e->parts[i];
        double start, seconds;
        if (part->partition->plan->kernel_count && part->device->api->times)
            TU_TRY(part->device->api->times(part->device->instance, part->executable, 0, &start, &seconds));
    }
    e->trace->is_timing = true;
    return TU_OK;
}

tu_status tu__trace_begin_run(const tu__execution *e, double *began) {
    *began = 0;
    if (!tu__is_traced(e)) return TU_OK;
    if (!e->trace->is_timing) TU_TRY(start_timing(e));
    *began = tu__now();
    return TU_OK;
}

static tu_status collect_kernel_times(const tu__execution *e, const tu__part *part) {
    const tu__device *d = part->device;
    if (!d->api->times) return TU_OK; /* added when they were launched */
    for (uint32_t i = 0; i < part->partition->plan->kernel_count; i++) {
        double start, seconds;
        TU_TRY(d->api->times(d->instance, part->executable, i, &start, &seconds));
        add_span(e->program, TU__SPAN_KERNEL, part->index, i, start, start + seconds);
    }
    return TU_OK;
}

tu_status tu__trace_end_run(const tu__execution *e, double began) {
    if (!tu__is_traced(e)) return TU_OK;
    double end = tu__now();
    for (size_t i = 0; i < e->program->device_count; i++) TU_TRY(collect_kernel_times(e, &e->parts[i]));
    append_span(&e->trace->run_spans,
                (tu__span){.kind = TU__SPAN_RUN, .run = e->trace->runs, .start = began, .end = end});
    e->trace->runs++;
    return TU_OK;
}

/* ---- Starting and ending a trace ---- */

void tu__trace_free(tu__trace *trace) {
    if (!trace) return;
    for (size_t i = 0; trace->rows && i < trace->row_count; i++) tu__free(trace->rows[i].spans);
    tu__free(trace->run_spans.spans);
    tu__free(trace->rows);
    tu__free(trace);
}

tu_status tu_program_trace_begin(tu_program *p) {
    tu__trace *trace = tu__alloc(sizeof *trace, "a trace");
    if (!trace) return TU_NO_MEMORY;
    trace->row_count = p->device_count * TU__ROWS;
    trace->rows = tu__alloc_array(trace->row_count, sizeof *trace->rows, "a trace");
    if (!trace->rows) {
        tu__trace_free(trace);
        return TU_NO_MEMORY;
    }
    trace->is_recording = true;
    trace->began = tu__now();
    tu__trace_free(p->trace);
    p->trace = trace;
    return TU_OK;
}

void tu_program_trace_end(tu_program *p) {
    if (!p->trace || !p->trace->is_recording) return;
    p->trace->is_recording = false;
    for (size_t i = 0; i < p->trace->row_count; i++) sort_spans(&p->trace->rows[i]);
}

/* ---- Queries ---- */

const tu__span_list *tu__trace_row(const tu_program *p, size_t partition, int row) {
    return &p->trace->rows[partition * TU__ROWS + (size_t)row];
}

size_t tu__trace_first_after(const tu__span_list *row, double time) {
    size_t low = 0, high = row->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (row->spans[middle].end > time)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

double tu__trace_computing(const tu_program *p, size_t partition, double start, double end) {
    const tu__span_list *row = tu__trace_row(p, partition, TU__ROW_COMPUTE);
    double seconds = 0;
    for (size_t i = tu__trace_first_after(row, start); i < row->count && row->spans[i].start < end; i++) {
        const tu__span *s = &row->spans[i];
        if (s->kind != TU__SPAN_KERNEL) continue;
        seconds += (s->end < end ? s->end : end) - (s->start > start ? s->start : start);
    }
    return seconds;
}

static const char *node_name(const tu_program *p, uint32_t node) {
    return p->unit.graph->nodes[node]->name;
}

static uint32_t fetched_node(const tu_program *p, uint32_t index) {
    return p->unit.fetch[index].node;
}

const char *tu__span_title(const tu_program *p, const tu__span *s) {
    static _Thread_local char text[256];
    const tu__partition *partition = &p->partitions[s->partition];
    switch (s->kind) {
    case TU__SPAN_RUN: snprintf(text, sizeof text, "run %u", s->run + 1); break;
    case TU__SPAN_KERNEL: return partition->plan->kernels[partition->order[s->index]].name;
    case TU__SPAN_COPY:
        snprintf(text, sizeof text, "copy %s", node_name(p, partition->receives[s->index].source.node));
        break;
    case TU__SPAN_WAIT:
        snprintf(text, sizeof text, "wait for %s", node_name(p, partition->receives[s->index].source.node));
        break;
    case TU__SPAN_COMMIT: return "wait for all devices";
    case TU__SPAN_COLLECTIVE:
        snprintf(text, sizeof text, "collective %lld",
                 (long long)partition->collectives[s->index].collective->id);
        break;
    case TU__SPAN_COLLECTIVE_WAIT:
        snprintf(text, sizeof text, "wait at collective %lld",
                 (long long)partition->collectives[s->index].collective->id);
        break;
    case TU__SPAN_FEED:
        snprintf(text, sizeof text, "upload %s", node_name(p, p->feeds[s->index].node));
        break;
    case TU__SPAN_FETCH:
        snprintf(text, sizeof text, "download %s", node_name(p, fetched_node(p, s->index)));
        break;
    case TU__SPAN_UPDATE:
        snprintf(text, sizeof text, "update %s", node_name(p, partition->updates[s->index].variable));
        break;
    }
    return text;
}

uint64_t tu__span_bytes(const tu_program *p, const tu__span *s) {
    const tu__partition *partition = &p->partitions[s->partition];
    switch (s->kind) {
    case TU__SPAN_COPY: return partition->plan->buffers[partition->receives[s->index].buffer].bytes;
    case TU__SPAN_FEED: return p->list.list.feeds[s->index].bytes;
    case TU__SPAN_FETCH: return p->list.list.fetches[s->index].bytes;
    case TU__SPAN_UPDATE: return partition->plan->buffers[partition->updates[s->index].buffer].bytes;
    case TU__SPAN_COLLECTIVE: return partition->collectives[s->index].collective->bytes;
    case TU__SPAN_COLLECTIVE_WAIT:
    case TU__SPAN_RUN:
    case TU__SPAN_KERNEL: /* see tu_program_kernel */
    case TU__SPAN_WAIT:
    case TU__SPAN_COMMIT: return 0;
    }
    return 0;
}
