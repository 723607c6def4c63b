/* Summarizes a trace: how long devices computed, what they waited for, what was copied, and the critical path. Also
 * reports the planned copies and collectives; a traced run performs exactly these. */
#include <inttypes.h>
#include <stdio.h>

#include "base/sized.h"
#include "run/trace.h"

/* ---- Copies as planned ---- */

size_t tu_program_copy_count(const tu_program *program) {
    size_t count = 0;
    for (size_t i = 0; i < program->device_count; i++) count += program->partitions[i].receive_count;
    return count;
}

tu_status tu_program_copy(const tu_program *program, size_t index, tu_copy_report *report) {
    size_t copies_before = 0;
    TU_TRY(TU__CHECK_SIZED(tu_copy_report, report));
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *partition = &program->partitions[i];
        if (index - copies_before < partition->receive_count) {
            const tu__receive *receive = &partition->receives[index - copies_before];
            tu_copy_report full = {.value = program->unit.graph->nodes[receive->source.node]->name,
                                   .from = program->devices[receive->source_partition]->name,
                                   .to = partition->device->name,
                                   .bytes = partition->plan->buffers[receive->buffer].bytes};
            TU__COPY_SIZED(report, full);
            return TU_OK;
        }
        copies_before += partition->receive_count;
    }
    return tu_fail(TU_NOT_FOUND, "copy index %zu is out of range: the program has %zu copies, counted from 0",
                   index, copies_before);
}

/* ---- Collectives as planned ---- */

size_t tu_program_collective_count(const tu_program *program) {
    return program->collectives.count;
}

tu_status tu_program_collective(const tu_program *program, size_t index, tu_collective_report *report) {
    TU_TRY(TU__CHECK_SIZED(tu_collective_report, report));
    if (index >= program->collectives.count)
        return tu_fail(TU_NOT_FOUND,
                       "collective index %zu is out of range: the program has %u collectives, counted from 0",
                       index, program->collectives.count);
    const tu__collective *c = &program->collectives.list[index];
    tu_collective_report full = {.number = c->id,
                                 .ranks = c->all_ranks,
                                 .values = c->value_count,
                                 .value = program->unit.graph->nodes[c->members[0].nodes[0]]->name,
                                 .bytes = c->bytes,
                                 .through_host = c->path == TU__COLLECTIVE_THROUGH_HOST,
                                 .peer_to_peer = c->path == TU__COLLECTIVE_PEER_TO_PEER,
                                 .operation = tu__collective_name(c->kind),
                                 .processes =
                                     TU__SPANS_PROCESSES(c) ? program->unit.replication.process_count : 0};
    TU__COPY_SIZED(report, full);
    return TU_OK;
}

/* ---- One device ---- */

static double duration(const tu__span *s) {
    return s->end - s->start;
}

static double overlap(const tu__span *a, const tu__span *b) {
    double start = a->start > b->start ? a->start : b->start, end = a->end < b->end ? a->end : b->end;
    return end > start ? end - start : 0;
}

/* Returns the seconds of a wait during which the copy that it waits for was in progress. */
static double copy_overlap(const tu_program *p, const tu__span *wait) {
    if (wait->kind != TU__SPAN_WAIT) return 0;
    uint32_t copying = p->partitions[wait->partition].receives[wait->index].copied_by;
    const tu__span_list *copies = tu__trace_row(p, copying, TU__ROW_COPIES);
    for (size_t i = 0; i < copies->count; i++) {
        const tu__span *c = &copies->spans[i];
        if (c->kind == TU__SPAN_COPY && c->run == wait->run && c->partition == wait->partition &&
            c->index == wait->index)
            return overlap(c, wait);
    }
    return 0;
}

/* Adds the idle time of a wait. While a compute thread waits, its device may still compute: that time is not idle. */
static void add_wait_time(const tu_program *p, const tu__span *wait, tu_trace_report *r) {
    double idle_seconds = duration(wait) - tu__trace_computing(p, wait->partition, wait->start, wait->end);
    if (idle_seconds <= 0) return;
    double copy = copy_overlap(p, wait);
    if (copy > idle_seconds) copy = idle_seconds;
    r->lost_to_copies += copy;
    r->waiting += idle_seconds - copy;
}

/* Adds a span of a collective. A device may still compute while its thread waits, or while it reduces on the GPU. */
static void add_collective_time(const tu_program *p, const tu__span *s, tu_trace_report *r) {
    double computing = tu__trace_computing(p, s->partition, s->start, s->end);
    if (s->kind == TU__SPAN_COLLECTIVE_WAIT) {
        r->collective_waiting += duration(s) > computing ? duration(s) - computing : 0;
        return;
    }
    r->collective += duration(s);
    r->overlapped += computing;
    r->collective_bytes += tu__span_bytes(p, s);
}

static void add_row_times(const tu_program *p, const tu__span_list *row, tu_trace_report *r) {
    for (size_t i = 0; i < row->count; i++) {
        const tu__span *s = &row->spans[i];
        if (s->kind == TU__SPAN_KERNEL) r->computing += duration(s);
        if (s->kind == TU__SPAN_FEED) r->feeding += duration(s);
        if (s->kind == TU__SPAN_WAIT || s->kind == TU__SPAN_COMMIT) add_wait_time(p, s, r);
        if (s->kind == TU__SPAN_COLLECTIVE || s->kind == TU__SPAN_COLLECTIVE_WAIT)
            add_collective_time(p, s, r);
    }
}

/* Returns the earliest copy to a partition that ends after `time`; NULL if there is none. */
static const tu__span *next_copy(const tu_program *p, size_t partition, double time) {
    const tu__span *found = NULL;
    for (size_t i = 0; i < p->device_count; i++) {
        const tu__span_list *row = tu__trace_row(p, i, TU__ROW_COPIES);
        for (size_t k = tu__trace_first_after(row, time); k < row->count; k++) {
            const tu__span *s = &row->spans[k];
            if (s->kind != TU__SPAN_COPY || s->partition != partition) continue;
            if (!found || s->start < found->start) found = s;
            break;
        }
    }
    return found;
}

/* Adds the time during which any thread copies to the device: several may do so at once. */
static void add_copy_times(const tu_program *p, size_t partition, tu_trace_report *r) {
    double until = p->trace->began;
    for (const tu__span *s; (s = next_copy(p, partition, until)); until = s->end) {
        double start = s->start > until ? s->start : until;
        r->copying += s->end - start;
        r->overlapped += tu__trace_computing(p, partition, start, s->end);
    }
}

static void add_copied_bytes(const tu_program *p, size_t partition, tu_trace_report *r) {
    for (size_t i = 0; i < p->device_count; i++) {
        const tu__span_list *row = tu__trace_row(p, i, TU__ROW_COPIES);
        for (size_t k = 0; k < row->count; k++) {
            const tu__span *s = &row->spans[k];
            if (s->kind == TU__SPAN_COPY && s->partition == partition)
                r->received_bytes += tu__span_bytes(p, s);
        }
    }
}

static tu_status check_traced(const tu_program *program) {
    if (program->trace) return TU_OK;
    return tu_fail(TU_INVALID, "the program was not traced: call tu_program_trace_begin before its runs");
}

tu_status tu_trace_device(tu_program *program, size_t index, tu_trace_report *report) {
    TU_TRY(TU__CHECK_SIZED(tu_trace_report, report));
    TU_TRY(check_traced(program));
    tu_program_trace_end(program);
    if (index >= program->device_count)
        return tu_fail(TU_NOT_FOUND,
                       "device index %zu is out of range: the program has %zu devices, counted from 0", index,
                       program->device_count);
    tu_trace_report full = {.device = program->devices[index]->name};
    const tu__span_list *run_spans = &program->trace->run_spans;
    for (size_t i = 0; i < run_spans->count; i++) full.runs += duration(&run_spans->spans[i]);
    for (int row = 0; row < TU__ROWS; row++)
        add_row_times(program, tu__trace_row(program, index, row), &full);
    add_copy_times(program, index, &full);
    add_copied_bytes(program, index, &full);
    TU__COPY_SIZED(report, full);
    return TU_OK;
}

/* ---- Printing ---- */

static double percent(double value, double total) {
    return total > 0 ? 100 * value / total : 0;
}

static tu_status print_devices(tu_program *program, double runs, FILE *out) {
    bool has_collectives = program->collectives.count;
    fprintf(out, "%-12s %11s %12s %12s %12s %12s", "device", "computing %", "computing ms", "copy wait ms",
            "other wait ms", "copies ms");
    if (has_collectives) fprintf(out, " %12s %12s", "collectives ms", "rank wait ms");
    fprintf(out, " %11s\n", "overlapped %");
    for (size_t i = 0; i < program->device_count; i++) {
        tu_trace_report r = TU_SIZED(tu_trace_report);
        TU_TRY(tu_trace_device(program, i, &r));
        fprintf(out, "%-12s %11.1f %12.3f %12.3f %12.3f %12.3f", r.device, percent(r.computing, r.runs),
                1e3 * r.computing / runs, 1e3 * r.lost_to_copies / runs, 1e3 * r.waiting / runs,
                1e3 * r.copying / runs);
        if (has_collectives)
            fprintf(out, " %12.3f %12.3f", 1e3 * r.collective / runs, 1e3 * r.collective_waiting / runs);
        if (r.copying + r.collective > 0)
            fprintf(out, " %12.1f\n", percent(r.overlapped, r.copying + r.collective));
        else
            fprintf(out, " %12s\n", "-");
    }
    return TU_OK;
}

/* Prints the planned collectives of a run. */
static void print_collectives(const tu_program *program, FILE *out) {
    uint64_t bytes = 0, through_host = 0;
    for (uint32_t i = 0; i < program->collectives.count; i++) {
        const tu__collective *c = &program->collectives.list[i];
        bytes += c->bytes;
        if (c->path == TU__COLLECTIVE_THROUGH_HOST) through_host += c->bytes;
    }
    if (!bytes) return;
    fprintf(out, "%u collectives: %" PRIu64 " bytes per device are exchanged", program->collectives.count,
            bytes);
    if (through_host)
        fprintf(out, ", %" PRIu64 " of them through the host, because the devices have no peer access",
                through_host);
    fprintf(out, "\n");
}

typedef struct transfer { /* copies from one device to another */
    uint64_t bytes, count;
    double seconds;
} transfer;

static void add_transfers(const tu_program *program, uint32_t from, uint32_t to, size_t copying,
                          transfer *sum) {
    const tu__span_list *row = tu__trace_row(program, copying, TU__ROW_COPIES);
    for (size_t i = 0; i < row->count; i++) {
        const tu__span *s = &row->spans[i];
        if (s->kind != TU__SPAN_COPY || s->partition != to) continue;
        if (program->partitions[to].receives[s->index].source_partition != from) continue;
        sum->bytes += tu__span_bytes(program, s);
        sum->seconds += duration(s);
        sum->count++;
    }
}

/* Prints averages per run. The copies are in the row of either device. */
static void print_pair(const tu_program *program, uint32_t from, uint32_t to, double runs, FILE *out) {
    transfer sum = {0};
    add_transfers(program, from, to, to, &sum);
    if (from != to) add_transfers(program, from, to, from, &sum);
    if (!sum.count) return;
    fprintf(out, "%s to %s: %.0f bytes in %.0f copies, %.3f ms, %.2f GB/s\n", program->devices[from]->name,
            program->devices[to]->name, (double)sum.bytes / runs, (double)sum.count / runs,
            1e3 * sum.seconds / runs, sum.seconds > 0 ? 1e-9 * (double)sum.bytes / sum.seconds : 0);
}

static void print_item(const tu_program *program, const tu__critical_path_item *item, double seconds,
                       double runs, FILE *out) {
    const tu__partition *partition = &program->partitions[item->span.partition];
    const char *operation = "";
    if (item->span.kind == TU__SPAN_KERNEL) {
        const tu_kernel *k = &partition->plan->kernels[partition->order[item->span.index]];
        if (k->node_count) operation = program->unit.graph->nodes[k->nodes[0]]->name;
    }
    fprintf(out, "%9.3f %6.1f  %-12s %-32s %s\n", 1e3 * item->seconds / runs, percent(item->seconds, seconds),
            partition->device->name, tu__span_title(program, &item->span), operation);
}

static tu_status print_path(const tu_program *program, double seconds, double runs, FILE *out) {
    enum { SHOWN = 10 };
    tu__critical_path path;
    TU_TRY(tu__trace_critical_path(program, &path));
    fprintf(out, "\nCritical path of a run: %.3f ms in kernels and copies, %.3f ms between them\n",
            1e3 * path.seconds / runs, 1e3 * path.gap_seconds / runs);
    fprintf(out, "%9s %6s  %-12s %-32s %s\n", "ms", "share%", "device", "what", "operation");
    for (size_t i = 0; i < path.count && i < SHOWN; i++)
        print_item(program, &path.items[i], seconds, runs, out);
    if (path.count > SHOWN) {
        double remaining_seconds = 0;
        for (size_t i = SHOWN; i < path.count; i++) remaining_seconds += path.items[i].seconds;
        fprintf(out, "%9.3f %6.1f  in %zu more\n", 1e3 * remaining_seconds / runs,
                percent(remaining_seconds, seconds), path.count - SHOWN);
    }
    tu__critical_path_free(&path);
    return TU_OK;
}

tu_status tu_trace_summary(tu_program *program, FILE *out) {
    TU_TRY(check_traced(program));
    tu_program_trace_end(program);
    const tu__span_list *run_spans = &program->trace->run_spans;
    double seconds = 0, runs = (double)run_spans->count;
    if (!run_spans->count) return tu_fail(TU_INVALID, "nothing was traced: the program did not run");
    for (size_t i = 0; i < run_spans->count; i++) seconds += duration(&run_spans->spans[i]);
    fprintf(out, "%zu runs traced, %.3f ms each; all times are per run\n\n", run_spans->count,
            1e3 * seconds / runs);
    TU_TRY(print_devices(program, runs, out));
    for (uint32_t from = 0; from < program->device_count; from++)
        for (uint32_t to = 0; to < program->device_count; to++) print_pair(program, from, to, runs, out);
    print_collectives(program, out);
    return print_path(program, seconds, runs, out);
}
