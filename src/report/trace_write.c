/* Writes traces as JSON for ui.perfetto.dev and chrome://tracing: the trace event format, complete events ("ph":
 * "X").
 *
 * A program is a process. Its runs are the first row; every device has a row for its kernels, one for its copies and,
 * if launches are asynchronous, one for its compute thread. Times are microseconds since the trace began. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/save.h"
#include "run/trace.h"

typedef struct writer {
    tu_json json;
    const tu_program *program;
    size_t process;
    double began;               /* begin of the earliest trace */
    tu_kernel_report *kernels;  /* all kernels of the program, device by device */
    const size_t *first_kernel; /* per device: index of its first kernel in `kernels` */
} writer;

static const char *const categories[] = {
    [TU__SPAN_RUN] = "run",
    [TU__SPAN_KERNEL] = "kernel",
    [TU__SPAN_COPY] = "copy",
    [TU__SPAN_WAIT] = "wait",
    [TU__SPAN_COMMIT] = "wait",
    [TU__SPAN_FEED] = "feed",
    [TU__SPAN_FETCH] = "fetch",
    [TU__SPAN_UPDATE] = "update",
    [TU__SPAN_COLLECTIVE] = "collective",
    [TU__SPAN_COLLECTIVE_WAIT] = "wait",
};

/* ---- Rows ---- */

static void put_name(writer *w, const char *metadata, size_t row, const char *name) {
    tu_json *j = &w->json;
    tu_json_begin_object(j, NULL);
    tu_json_string(j, "name", metadata);
    tu_json_string(j, "ph", "M");
    tu_json_u64(j, "pid", w->process);
    tu_json_u64(j, "tid", row);
    tu_json_begin_object(j, "args");
    tu_json_string(j, "name", name);
    tu_json_end_object(j);
    tu_json_end_object(j);
}

static void put_names(writer *w) {
    static const char *const kinds[TU__ROWS] = {"compute", "host", "copies", "processes"};
    char text[80];
    snprintf(text, sizeof text, "program %zu", w->process + 1);
    put_name(w, "process_name", 0, text);
    put_name(w, "thread_name", 0, "runs");
    for (size_t i = 0; i < w->program->device_count; i++)
        for (int row = 0; row < TU__ROWS; row++) {
            if (row == TU__ROW_HOST && !w->program->devices[i]->api->queue_new) continue;
            if (row == TU__ROW_PROCESSES && !w->program->group) continue;
            snprintf(text, sizeof text, "%s %s", w->program->devices[i]->name, kinds[row]);
            put_name(w, "thread_name", 1 + i * TU__ROWS + (size_t)row, text);
        }
}

/* ---- Spans ---- */

static void put_kernel(writer *w, const tu__span *s) {
    const tu_kernel_report *r = &w->kernels[w->first_kernel[s->partition] + s->index];
    tu_json_string(&w->json, "operation", r->node);
    tu_json_u64(&w->json, "operations", r->node_count);
    tu_json_u64(&w->json, "place", s->index);
    tu_json_i64(&w->json, "bytes", r->bytes);
    tu_json_i64(&w->json, "flops", r->flops);
}

static void put_copy(writer *w, const tu__span *s) {
    const tu__partition *partition = &w->program->partitions[s->partition];
    const tu__receive *receive = &partition->receives[s->index];
    tu_json_string(&w->json, "value", w->program->unit.graph->nodes[receive->source.node]->name);
    tu_json_string(&w->json, "from", w->program->devices[receive->source_partition]->name);
    tu_json_string(&w->json, "to", partition->device->name);
}

static void put_collective(writer *w, const tu__span *s) {
    static const char *const paths[] = {[TU__COLLECTIVE_ON_HOST] = "host memory",
                                        [TU__COLLECTIVE_ON_ONE_GPU] = "one GPU",
                                        [TU__COLLECTIVE_PEER_TO_PEER] = "peer to peer",
                                        [TU__COLLECTIVE_THROUGH_HOST] = "through the host",
                                        [TU__COLLECTIVE_OVER_PROCESSES] = "over processes",
                                        [TU__COLLECTIVE_BY_DEVICES] = "between GPUs of processes",
                                        [TU__COLLECTIVE_IN_SHARED_MEMORY] = "shared memory"};
    const tu__membership *m = &w->program->partitions[s->partition].collectives[s->index];
    tu_json_i64(&w->json, "collective", m->collective->id);
    tu_json_u64(&w->json, "rank", m->collective->first_rank + m->rank);
    tu_json_u64(&w->json, "ranks", m->collective->all_ranks);
    tu_json_u64(&w->json, "values", m->collective->value_count);
    tu_json_string(&w->json, "way", paths[m->collective->path]);
}

static void put_span(writer *w, const tu__span *s, size_t row) {
    tu_json *j = &w->json;
    tu_json_begin_object(j, NULL);
    tu_json_string(j, "name", tu__span_title(w->program, s));
    tu_json_string(j, "cat", categories[s->kind]);
    tu_json_string(j, "ph", "X");
    tu_json_u64(j, "pid", w->process);
    tu_json_u64(j, "tid", row);
    tu_json_f64(j, "ts", 1e6 * (s->start - w->began));
    tu_json_f64(j, "dur", 1e6 * (s->end - s->start));
    tu_json_begin_object(j, "args");
    tu_json_u64(j, "run", s->run + 1);
    if (s->kind == TU__SPAN_KERNEL) put_kernel(w, s);
    if (s->kind == TU__SPAN_COPY || s->kind == TU__SPAN_WAIT) put_copy(w, s);
    if (s->kind == TU__SPAN_COLLECTIVE || s->kind == TU__SPAN_COLLECTIVE_WAIT) put_collective(w, s);
    uint64_t bytes = tu__span_bytes(w->program, s);
    if (bytes) tu_json_u64(j, "bytes", bytes);
    tu_json_end_object(j);
    tu_json_end_object(j);
}

static bool put_list(writer *w, const tu__span_list *list, size_t row) {
    for (size_t i = 0; i < list->count; i++) put_span(w, &list->spans[i], row);
    return !list->is_incomplete;
}

/* ---- Programs ---- */

static tu_status report_kernels(writer *w, size_t first[TU__MAX_DEVICES]) {
    const tu_program *p = w->program;
    size_t count = 0;
    for (size_t i = 0; i < p->device_count; i++) {
        first[i] = count;
        count += p->partitions[i].plan->kernel_count;
    }
    w->first_kernel = first;
    w->kernels = tu__alloc_array(count, sizeof *w->kernels, "a trace");
    if (!w->kernels) return TU_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        w->kernels[i] = TU_SIZED(tu_kernel_report);
        TU_TRY(tu_program_kernel(p, i, &w->kernels[i]));
    }
    return TU_OK;
}

static tu_status put_program(writer *w) {
    const tu__trace *trace = w->program->trace;
    put_names(w);
    bool complete = put_list(w, &trace->run_spans, 0);
    for (size_t i = 0; i < trace->row_count; i++) complete = put_list(w, &trace->rows[i], i + 1) && complete;
    return complete ? TU_OK
                    : tu_fail(TU_NO_MEMORY, "memory ran out while the program was traced: spans are missing");
}

static tu_status write_program(writer *w) {
    size_t first[TU__MAX_DEVICES];
    tu_status status = report_kernels(w, first);
    if (status == TU_OK) status = put_program(w);
    tu__free(w->kernels);
    w->kernels = NULL;
    w->first_kernel = NULL;
    return status;
}

static tu_status check_traced(size_t count, tu_program *const *programs) {
    for (size_t i = 0; i < count; i++)
        if (!programs[i]->trace)
            return tu_fail(TU_INVALID,
                           "programs[%zu] was not traced: call tu_program_trace_begin before its runs", i);
    return TU_OK;
}

tu_status tu_trace_write(size_t count, tu_program *const *programs, FILE *out) {
    TU_TRY(check_traced(count, programs));
    writer w = {.json = tu_json_to_file(out)};
    for (size_t i = 0; i < count; i++) {
        tu_program_trace_end(programs[i]);
        if (i == 0 || programs[i]->trace->began < w.began) w.began = programs[i]->trace->began;
    }
    tu_json_begin_object(&w.json, NULL);
    tu_json_string(&w.json, "displayTimeUnit", "ms");
    tu_json_begin_array(&w.json, "traceEvents");
    tu_status status = TU_OK;
    for (w.process = 0; w.process < count && status == TU_OK; w.process++) {
        w.program = programs[w.process];
        status = write_program(&w);
    }
    tu_json_end_array(&w.json);
    tu_json_end_object(&w.json);
    if (status == TU_OK && !tu_json_finish(&w.json))
        status = tu_fail(TU_IO, "the trace could not be written");
    return status;
}

tu_status tu_trace_save(size_t count, tu_program *const *programs, const char *path) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    if (!memory) return tu_fail(TU_NO_MEMORY, "out of memory for a trace");
    tu_status status = tu_trace_write(count, programs, memory);
    if (fclose(memory) != 0 && status == TU_OK) status = tu_fail(TU_NO_MEMORY, "out of memory for a trace");
    if (status == TU_OK) status = tu_file_save(path, text, length);
    free(text);
    return status;
}
