/* What a trace comes to: how much of the time devices computed, what they waited for, what was copied, and what the end
 * of a run hung on. And the copies that were planned: those of a trace are the same, run for run. */
#include <inttypes.h>
#include <stdio.h>

#include "base/sized.h"
#include "run/trace.h"

/* ---- Copies as planned ---- */

size_t tu_program_copy_count(const tu_program *program) {
    size_t count = 0;
    for (size_t i = 0; i < program->device_count; i++) count += program->parts[i].receive_count;
    return count;
}

tu_status tu_program_copy(const tu_program *program, size_t index, tu_copy_report *report) {
    size_t before = 0;
    TU_TRY(TU__CHECK_SIZED(tu_copy_report, report));
    for (size_t i = 0; i < program->device_count; i++) {
        const tu__partition *part = &program->parts[i];
        if (index - before < part->receive_count) {
            const tu__receive *a = &part->receives[index - before];
            tu_copy_report full = {.value = program->unit.graph->nodes[a->source.node]->name,
                                   .from = program->devices[a->source_part]->name,
                                   .to = part->device->name,
                                   .bytes = part->plan->buffers[a->buffer].bytes};
            TU__GIVE_SIZED(report, full);
            return TU_OK;
        }
        before += part->receive_count;
    }
    return tu_fail(TU_NOT_FOUND, "there is no copy number %zu: the program has %zu", index, before);
}

/* ---- Collectives as planned ---- */

size_t tu_program_collective_count(const tu_program *program) {
    return program->collectives.count;
}

tu_status tu_program_collective(const tu_program *program, size_t index, tu_collective_report *report) {
    TU_TRY(TU__CHECK_SIZED(tu_collective_report, report));
    if (index >= program->collectives.count)
        return tu_fail(TU_NOT_FOUND, "there is no collective number %zu: the program has %u", index,
                       program->collectives.count);
    const tu__collective *m = &program->collectives.list[index];
    tu_collective_report full = {.number = m->number,
                                 .ranks = m->ranks,
                                 .values = m->value_count,
                                 .value = program->unit.graph->nodes[m->members[0].nodes[0]]->name,
                                 .bytes = m->bytes,
                                 .through_host = m->way == TU__COLLECTIVE_THROUGH_HOST,
                                 .peer_to_peer = m->way == TU__COLLECTIVE_BETWEEN_CARDS};
    TU__GIVE_SIZED(report, full);
    return TU_OK;
}

/* ---- One device ---- */

static double length(const tu__span *s) {
    return s->end - s->start;
}

static double shared(const tu__span *a, const tu__span *b) {
    double start = a->start > b->start ? a->start : b->start, end = a->end < b->end ? a->end : b->end;
    return end > start ? end - start : 0;
}

/* Seconds of a wait during which the copy waited for was under way. */
static double in_copy(const tu_program *p, const tu__span *wait) {
    if (wait->kind != TU__SPAN_WAIT) return 0;
    uint32_t mover = p->parts[wait->part].receives[wait->index].mover;
    const tu__span_list *copies = tu__trace_row(p, mover, TU__ROW_COPIES);
    for (size_t i = 0; i < copies->count; i++) {
        const tu__span *c = &copies->spans[i];
        if (c->kind == TU__SPAN_COPY && c->run == wait->run && c->part == wait->part &&
            c->index == wait->index)
            return shared(c, wait);
    }
    return 0;
}

/* A launching thread may wait while its device still computes: that time is not lost. */
static void count_wait(const tu_program *p, const tu__span *wait, tu_trace_report *r) {
    double idle = length(wait) - tu__trace_computing(p, wait->part, wait->start, wait->end);
    if (idle <= 0) return;
    double copy = in_copy(p, wait);
    if (copy > idle) copy = idle;
    r->lost_to_copies += copy;
    r->waiting += idle - copy;
}

/* A device may still compute while its thread waits, or adds up on a card. */
static void count_collective(const tu_program *p, const tu__span *s, tu_trace_report *r) {
    double computing = tu__trace_computing(p, s->part, s->start, s->end);
    if (s->kind == TU__SPAN_GATHERING) {
        r->gathering += length(s) > computing ? length(s) - computing : 0;
        return;
    }
    r->collective += length(s);
    r->overlapped += computing;
    r->met_bytes += tu__span_bytes(p, s);
}

static void count_row(const tu_program *p, const tu__span_list *row, tu_trace_report *r) {
    for (size_t i = 0; i < row->count; i++) {
        const tu__span *s = &row->spans[i];
        if (s->kind == TU__SPAN_KERNEL) r->computing += length(s);
        if (s->kind == TU__SPAN_FEED) r->feeding += length(s);
        if (s->kind == TU__SPAN_WAIT || s->kind == TU__SPAN_BARRIER) count_wait(p, s, r);
        if (s->kind == TU__SPAN_MEETING || s->kind == TU__SPAN_GATHERING) count_collective(p, s, r);
    }
}

/* The earliest copy to a part that ends after `time`; NULL when there is none. */
static const tu__span *next_copy(const tu_program *p, size_t part, double time) {
    const tu__span *found = NULL;
    for (size_t i = 0; i < p->device_count; i++) {
        const tu__span_list *row = tu__trace_row(p, i, TU__ROW_COPIES);
        for (size_t k = tu__trace_first_after(row, time); k < row->count; k++) {
            const tu__span *s = &row->spans[k];
            if (s->kind != TU__SPAN_COPY || s->part != part) continue;
            if (!found || s->start < found->start) found = s;
            break;
        }
    }
    return found;
}

/* Several threads may bring something to a device at once: what counts is the time during which any of them does. */
static void count_copies(const tu_program *p, size_t part, tu_trace_report *r) {
    double until = p->trace->began;
    for (const tu__span *s; (s = next_copy(p, part, until)); until = s->end) {
        double start = s->start > until ? s->start : until;
        r->copying += s->end - start;
        r->overlapped += tu__trace_computing(p, part, start, s->end);
    }
}

static void count_bytes(const tu_program *p, size_t part, tu_trace_report *r) {
    for (size_t i = 0; i < p->device_count; i++) {
        const tu__span_list *row = tu__trace_row(p, i, TU__ROW_COPIES);
        for (size_t k = 0; k < row->count; k++) {
            const tu__span *s = &row->spans[k];
            if (s->kind == TU__SPAN_COPY && s->part == part) r->arrived_bytes += tu__span_bytes(p, s);
        }
    }
}

static tu_status check(const tu_program *program) {
    if (program->trace) return TU_OK;
    return tu_fail(TU_INVALID, "the program was not traced: call tu_program_trace_begin before its runs");
}

tu_status tu_trace_device(tu_program *program, size_t index, tu_trace_report *report) {
    TU_TRY(TU__CHECK_SIZED(tu_trace_report, report));
    TU_TRY(check(program));
    tu_program_trace_end(program);
    if (index >= program->device_count)
        return tu_fail(TU_NOT_FOUND, "there is no device number %zu: the program has %zu", index,
                       program->device_count);
    tu_trace_report full = {.device = program->devices[index]->name};
    const tu__span_list *whole = &program->trace->whole;
    for (size_t i = 0; i < whole->count; i++) full.runs += length(&whole->spans[i]);
    for (int row = 0; row < TU__ROWS; row++) count_row(program, tu__trace_row(program, index, row), &full);
    count_copies(program, index, &full);
    count_bytes(program, index, &full);
    TU__GIVE_SIZED(report, full);
    return TU_OK;
}

/* ---- In words ---- */

static double share(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0;
}

static tu_status print_devices(tu_program *program, double runs, FILE *out) {
    bool meets = program->collectives.count;
    fprintf(out, "%-12s %11s %12s %12s %12s %12s", "device", "computing %", "computing ms", "copy wait ms",
            "other wait ms", "copies ms");
    if (meets) fprintf(out, " %12s %12s", "collectives ms", "gathering ms");
    fprintf(out, " %11s\n", "overlapped %");
    for (size_t i = 0; i < program->device_count; i++) {
        tu_trace_report r = TU_SIZED(tu_trace_report);
        TU_TRY(tu_trace_device(program, i, &r));
        fprintf(out, "%-12s %11.1f %12.3f %12.3f %12.3f %12.3f", r.device, share(r.computing, r.runs),
                1e3 * r.computing / runs, 1e3 * r.lost_to_copies / runs, 1e3 * r.waiting / runs,
                1e3 * r.copying / runs);
        if (meets) fprintf(out, " %12.3f %12.3f", 1e3 * r.collective / runs, 1e3 * r.gathering / runs);
        if (r.copying + r.collective > 0)
            fprintf(out, " %12.1f\n", share(r.overlapped, r.copying + r.collective));
        else
            fprintf(out, " %12s\n", "-");
    }
    return TU_OK;
}

/* What devices sum up together in a run, as planned. */
static void print_collectives(const tu_program *program, FILE *out) {
    uint64_t bytes = 0, through_host = 0;
    for (uint32_t i = 0; i < program->collectives.count; i++) {
        const tu__collective *m = &program->collectives.list[i];
        bytes += m->bytes;
        if (m->way == TU__COLLECTIVE_THROUGH_HOST) through_host += m->bytes;
    }
    if (!bytes) return;
    fprintf(out, "%u collectives: %" PRIu64 " bytes of every device summed up", program->collectives.count,
            bytes);
    if (through_host)
        fprintf(out,
                ", %" PRIu64 " of them through the host, since the devices do not reach each other's memory",
                through_host);
    fprintf(out, "\n");
}

typedef struct passage { /* what went from one device to another */
    uint64_t bytes, count;
    double seconds;
} passage;

static void add_passages(const tu_program *program, uint32_t from, uint32_t to, size_t mover, passage *sum) {
    const tu__span_list *row = tu__trace_row(program, mover, TU__ROW_COPIES);
    for (size_t i = 0; i < row->count; i++) {
        const tu__span *s = &row->spans[i];
        if (s->kind != TU__SPAN_COPY || s->part != to) continue;
        if (program->parts[to].receives[s->index].source_part != from) continue;
        sum->bytes += tu__span_bytes(program, s);
        sum->seconds += length(s);
        sum->count++;
    }
}

/* In a run: as traced, divided by the runs. One of the two has brought it. */
static void print_pair(const tu_program *program, uint32_t from, uint32_t to, double runs, FILE *out) {
    passage sum = {0};
    add_passages(program, from, to, to, &sum);
    if (from != to) add_passages(program, from, to, from, &sum);
    if (!sum.count) return;
    fprintf(out, "%s to %s: %.0f bytes in %.0f copies, %.3f ms, %.2f GB/s\n", program->devices[from]->name,
            program->devices[to]->name, (double)sum.bytes / runs, (double)sum.count / runs,
            1e3 * sum.seconds / runs, sum.seconds > 0 ? 1e-9 * (double)sum.bytes / sum.seconds : 0);
}

static void print_item(const tu_program *program, const tu__path_item *item, double seconds, double runs,
                       FILE *out) {
    const tu__partition *part = &program->parts[item->span.part];
    const char *operation = "";
    if (item->span.kind == TU__SPAN_KERNEL) {
        const tu_kernel *k = &part->plan->kernels[part->order[item->span.index]];
        if (k->node_count) operation = program->unit.graph->nodes[k->nodes[0]]->name;
    }
    fprintf(out, "%9.3f %6.1f  %-12s %-32s %s\n", 1e3 * item->seconds / runs, share(item->seconds, seconds),
            part->device->name, tu__span_title(program, &item->span), operation);
}

static tu_status print_path(const tu_program *program, double seconds, double runs, FILE *out) {
    enum { SHOWN = 10 };
    tu__path path;
    TU_TRY(tu__trace_path(program, &path));
    fprintf(out, "\nThe end of a run hangs on %.3f ms in kernels and copies and %.3f ms between them:\n",
            1e3 * path.seconds / runs, 1e3 * path.between / runs);
    fprintf(out, "%9s %6s  %-12s %-32s %s\n", "ms", "share%", "device", "what", "operation");
    for (size_t i = 0; i < path.count && i < SHOWN; i++)
        print_item(program, &path.items[i], seconds, runs, out);
    if (path.count > SHOWN) {
        double rest = 0;
        for (size_t i = SHOWN; i < path.count; i++) rest += path.items[i].seconds;
        fprintf(out, "%9.3f %6.1f  in %zu more\n", 1e3 * rest / runs, share(rest, seconds),
                path.count - SHOWN);
    }
    tu__path_free(&path);
    return TU_OK;
}

tu_status tu_trace_summary(tu_program *program, FILE *out) {
    TU_TRY(check(program));
    tu_program_trace_end(program);
    const tu__span_list *whole = &program->trace->whole;
    double seconds = 0, runs = (double)whole->count;
    if (!whole->count) return tu_fail(TU_INVALID, "nothing was traced: no run was made");
    for (size_t i = 0; i < whole->count; i++) seconds += length(&whole->spans[i]);
    fprintf(out, "%zu runs traced, %.3f ms each; all times are of one run\n\n", whole->count,
            1e3 * seconds / runs);
    TU_TRY(print_devices(program, runs, out));
    for (uint32_t from = 0; from < program->device_count; from++)
        for (uint32_t to = 0; to < program->device_count; to++) print_pair(program, from, to, runs, out);
    print_collectives(program, out);
    return print_path(program, seconds, runs, out);
}
