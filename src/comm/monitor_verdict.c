/* Decides which rank is to blame and words the verdict: see monitor_verdict.h. */
#include "comm/monitor_verdict.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    NONE = TU__MONITOR_MAX_RANKS,
    MAX_LISTED = 12, /* ranks, or runs of ranks with equal steps */
    WHY_BYTES = 500, /* of a rank's own message, so that there is room for the steps */
};

bool tu__monitor_is_active(const tu__monitor_rank *rank) {
    return !rank->report.ended && rank->report.state != TU__MONITOR_LEAVING;
}

bool tu__monitor_is_silent(const tu__monitor_rank *rank, double now) {
    return tu__monitor_is_active(rank) && now - rank->heard > TU__MONITOR_SILENCE;
}

/* Returns how far a rank is in the sequence of collectives: an even number in one, odd after it, 0 before the
 * first. */
static uint64_t progress(const tu__monitor_report *report) {
    if (!report->entered) return 0;
    return 2 * report->collective + (report->state == TU__MONITOR_IN_COLLECTIVE ? 2 : 3);
}

bool tu__monitor_has_reached(const tu__monitor_table *table, uint32_t rank, uint32_t waiting) {
    return progress(&table->ranks[rank].report) >= progress(&table->ranks[waiting].report);
}

/* ---- Parts of the line ---- */

static void begin(tu__verdict *verdict, tu__verdict_kind kind, uint32_t rank) {
    *verdict = (tu__verdict){.kind = kind, .rank = rank, .cause = TU_LOST};
}

TU_PRINTF(2, 3) static void add(tu__verdict *verdict, const char *format, ...) {
    size_t used = strlen(verdict->line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(verdict->line + used, sizeof verdict->line - used, format, arguments);
    va_end(arguments);
    for (char *c = verdict->line + used; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?'; /* one line, whatever a message contains */
}

static void add_rank(tu__verdict *verdict, const tu__monitor_table *table, uint32_t rank) {
    const tu__monitor_rank *r = &table->ranks[rank];
    add(verdict, "rank %" PRIu32 " (host %s, device %s)", rank, r->host, r->device);
}

/* Returns the last step of a rank. Its report may be older than the last exchange of all ranks. */
static int64_t step_of(const tu__monitor_table *table, uint32_t rank) {
    int64_t reported = table->ranks[rank].report.step;
    return reported > table->common_step ? reported : table->common_step;
}

static void add_after_step(tu__verdict *verdict, const tu__monitor_table *table, uint32_t rank) {
    if (step_of(table, rank) > 0)
        add(verdict, "after step %" PRId64, step_of(table, rank));
    else
        add(verdict, "before its first step");
}

/* Returns the operation of a rank's collective. Only the hub knows the operations of all ranks; the others know that of
 * rank 0, which may be in the same collective, and theirs: a late rank is in one that they have completed. */
static const char *find_operation(const tu__monitor_table *table, const tu__monitor_rank *rank) {
    if (rank->operation[0]) return rank->operation;
    for (const tu__monitor_rank *r = table->ranks; r < table->ranks + table->size; r++)
        if (r->report.entered && r->report.collective == rank->report.collective && r->operation[0])
            return r->operation;
    for (const tu__monitor_collective *c = table->recent; c < table->recent + TU__MONITOR_RECENT; c++)
        if (c->number == rank->report.collective && c->operation[0]) return c->operation;
    return "";
}

static void add_collective(tu__verdict *verdict, const tu__monitor_table *table,
                           const tu__monitor_rank *rank) {
    const char *operation = find_operation(table, rank);
    add(verdict, "collective %" PRIu64 "%s%s", rank->report.collective, operation[0] ? ", " : "", operation);
}

/* Adds what a rank was doing at its latest report. */
static void add_activity(tu__verdict *verdict, const tu__monitor_table *table, const tu__monitor_rank *rank) {
    if (rank->report.state == TU__MONITOR_IN_COLLECTIVE) {
        add(verdict, "in ");
        add_collective(verdict, table, rank);
    } else {
        add(verdict, "computing");
    }
}

/* Adds the collective in which others wait for a rank, unless the rank was in the same one. */
static void add_waiting(tu__verdict *verdict, const tu__monitor_table *table, uint32_t rank) {
    uint32_t waiting = NONE;
    for (uint32_t r = 0; r < table->size; r++) {
        const tu__monitor_rank *row = &table->ranks[r];
        if (r == rank || row->report.ended || row->report.state != TU__MONITOR_IN_COLLECTIVE) continue;
        if (!tu__monitor_has_reached(table, r, rank)) continue;
        if (waiting == NONE || !tu__monitor_has_reached(table, r, waiting)) waiting = r;
    }
    if (waiting == NONE || tu__monitor_has_reached(table, rank, waiting)) return;
    add(verdict, "; rank %" PRIu32 " waits for it in ", waiting);
    add_collective(verdict, table, &table->ranks[waiting]);
}

static void add_no_progress(tu__verdict *verdict, const tu__monitor_table *table,
                            const tu__monitor_rank *rank) {
    add(verdict, " has made no progress for %.1f s", 1e-3 * rank->report.waited_ms);
    if (table->timeout > 0) add(verdict, " (timeout %g s)", table->timeout);
}

/* Adds the collective that has timed out. */
static void add_timed_out(tu__verdict *verdict, const tu__monitor_table *table, uint32_t waiting) {
    const tu__monitor_rank *w = &table->ranks[waiting];
    add_collective(verdict, table, w);
    add(verdict, ", in which rank %" PRIu32, waiting);
    add_no_progress(verdict, table, w);
}

/* Adds the next rank of a list such as "; also late: rank 3, rank 4 and 7 more". */
static void add_to_list(tu__verdict *verdict, const char *title, uint32_t *count, uint32_t rank) {
    if (*count < MAX_LISTED) add(verdict, "%s rank %" PRIu32, *count == 0 ? title : ",", rank);
    (*count)++;
}

static void end_list(tu__verdict *verdict, uint32_t count) {
    if (count > MAX_LISTED) add(verdict, " and %" PRIu32 " more", count - MAX_LISTED);
}

/* ---- Last steps ---- */

/* Returns the first rank from `rank` on that is not the one to blame. */
static uint32_t skip_blamed(const tu__verdict *verdict, uint32_t rank) {
    return rank == verdict->rank ? rank + 1 : rank;
}

/* Returns the end of the run of ranks from `first` on with equal steps. */
static uint32_t end_of_run(const tu__monitor_table *table, const tu__verdict *verdict, uint32_t first) {
    uint32_t end = first + 1;
    while (end < table->size && end != verdict->rank && step_of(table, end) == step_of(table, first)) end++;
    return end;
}

static uint32_t count_runs(const tu__monitor_table *table, const tu__verdict *verdict) {
    uint32_t runs = 0;
    for (uint32_t r = skip_blamed(verdict, 0); r < table->size;
         r = skip_blamed(verdict, end_of_run(table, verdict, r)))
        runs++;
    return runs;
}

static void add_every_step(tu__verdict *verdict, const tu__monitor_table *table) {
    const char *separator = "; last steps: ";
    for (uint32_t first = skip_blamed(verdict, 0), end; first < table->size;
         first = skip_blamed(verdict, end)) {
        end = end_of_run(table, verdict, first);
        add(verdict, "%srank%s %" PRIu32, separator, end - first > 1 ? "s" : "", first);
        if (end - first > 1) add(verdict, "-%" PRIu32, end - 1);
        add(verdict, ": %" PRId64, step_of(table, first));
        separator = ", ";
    }
}

static void add_range_of_steps(tu__verdict *verdict, const tu__monitor_table *table) {
    uint32_t low = skip_blamed(verdict, 0), high = low;
    for (uint32_t r = low; r < table->size; r = skip_blamed(verdict, r + 1)) {
        if (step_of(table, r) < step_of(table, low)) low = r;
        if (step_of(table, r) > step_of(table, high)) high = r;
    }
    add(verdict,
        "; last steps of the others: %" PRId64 " (rank %" PRIu32 ") to %" PRId64 " (rank %" PRIu32 ")",
        step_of(table, low), low, step_of(table, high), high);
}

static void add_last_steps(tu__verdict *verdict, const tu__monitor_table *table) {
    if (count_runs(table, verdict) <= MAX_LISTED)
        add_every_step(verdict, table);
    else
        add_range_of_steps(verdict, table);
}

/* ---- Verdicts ---- */

void tu__verdict_ended(const tu__monitor_table *table, tu__verdict *verdict) {
    uint32_t first = NONE, others = 0;
    for (uint32_t r = 0; r < table->size; r++)
        if (table->ranks[r].report.ended &&
            (first == NONE || table->ranks[r].ended < table->ranks[first].ended))
            first = r;
    const tu__monitor_rank *culprit = &table->ranks[first];
    begin(verdict, TU__VERDICT_ENDED, first);
    add_rank(verdict, table, first);
    add(verdict, " ended unexpectedly ");
    add_after_step(verdict, table, first);
    add(verdict, ", while ");
    add_activity(verdict, table, culprit);
    add_waiting(verdict, table, first);
    for (uint32_t r = 0; r < table->size; r++)
        if (r != first && table->ranks[r].report.ended) add_to_list(verdict, "; ended after it:", &others, r);
    end_list(verdict, others);
    add_last_steps(verdict, table);
}

void tu__verdict_failed(const tu__monitor_table *table, uint32_t rank, tu_status cause, const char *why,
                        tu__verdict *verdict) {
    uint32_t others = 0;
    begin(verdict, TU__VERDICT_FAILED, rank);
    verdict->cause = cause;
    add_rank(verdict, table, rank);
    add(verdict, " failed ");
    add_after_step(verdict, table, rank);
    add(verdict, ": %.*s", WHY_BYTES, why);
    for (uint32_t r = 0; r < table->size; r++)
        if (r != rank && table->ranks[r].report.ended)
            add_to_list(verdict, "; ended before that:", &others, r);
    end_list(verdict, others);
    add_last_steps(verdict, table);
}

void tu__verdict_silent(const tu__monitor_table *table, uint32_t rank, uint32_t waiting, double now,
                        tu__verdict *verdict) {
    const tu__monitor_rank *culprit = &table->ranks[rank];
    uint32_t others = 0;
    begin(verdict, TU__VERDICT_SILENT, rank);
    add_rank(verdict, table, rank);
    add(verdict, " has not answered for %.1f s (last heard ", now - culprit->heard);
    add_after_step(verdict, table, rank);
    add(verdict, ", ");
    add_activity(verdict, table, culprit);
    add(verdict, "): the process is stopped or its host is unreachable");
    /* If rank 0 is silent, so are its reports of the others. */
    for (uint32_t r = 0; r < table->size; r++)
        if (r != rank && r != waiting && rank != 0 && tu__monitor_is_silent(&table->ranks[r], now))
            add_to_list(verdict, "; also silent:", &others, r);
    end_list(verdict, others);
    if (waiting < table->size) {
        add(verdict, "; it is needed in ");
        add_timed_out(verdict, table, waiting);
    } else {
        add(verdict, "; the others have finished");
    }
    add_last_steps(verdict, table);
}

/* No rank is late: the ranks wait for messages of each other. */
static void stalled(const tu__monitor_table *table, uint32_t waiting, tu__verdict *verdict) {
    begin(verdict, TU__VERDICT_STALLED, NONE);
    add_rank(verdict, table, waiting);
    add_no_progress(verdict, table, &table->ranks[waiting]);
    add(verdict, " in ");
    add_collective(verdict, table, &table->ranks[waiting]);
    add(verdict, "; all ranks are alive and have reached it: the network between them delivers nothing");
    add_last_steps(verdict, table);
}

uint32_t tu__monitor_find_late(const tu__monitor_table *table, uint32_t waiting) {
    uint32_t last = waiting;
    for (uint32_t r = 0; r < table->size; r++)
        if (!table->ranks[r].report.ended && !tu__monitor_has_reached(table, r, last)) last = r;
    return last;
}

void tu__verdict_late(const tu__monitor_table *table, uint32_t waiting, tu__verdict *verdict) {
    uint32_t last = tu__monitor_find_late(table, waiting), others = 0;
    if (last == waiting) {
        stalled(table, waiting, verdict);
        return;
    }
    const tu__monitor_rank *culprit = &table->ranks[last];
    begin(verdict, TU__VERDICT_LATE, last);
    add_rank(verdict, table, last);
    if (culprit->report.state == TU__MONITOR_LEAVING) {
        add(verdict, " has finished ");
        add_after_step(verdict, table, last);
        add(verdict, " and will not reach ");
    } else {
        add(verdict, " is late: alive, still ");
        add_activity(verdict, table, culprit);
        add(verdict, culprit->report.state == TU__MONITOR_IN_COLLECTIVE ? ", " : " ");
        add_after_step(verdict, table, last);
        add(verdict, "; it has not reached ");
    }
    add_timed_out(verdict, table, waiting);
    for (uint32_t r = 0; r < table->size; r++)
        if (r != last && !table->ranks[r].report.ended && !tu__monitor_has_reached(table, r, waiting))
            add_to_list(verdict, "; also late:", &others, r);
    end_list(verdict, others);
    add_last_steps(verdict, table);
}

void tu__verdict_not_connected(const tu__monitor_table *table, uint32_t rank, const char *where,
                               double seconds, tu__verdict *verdict) {
    begin(verdict, TU__VERDICT_NOT_CONNECTED, rank);
    add_rank(verdict, table, rank);
    add(verdict, " has not connected to rank 0 within %.0f s: it ended, or it cannot reach host %s at %s",
        seconds, table->ranks[0].host, where);
}

void tu__verdict_given_up(const tu__monitor_table *table, uint32_t rank, uint32_t other, double seconds,
                          tu__verdict *verdict) {
    begin(verdict, TU__VERDICT_SILENT, rank);
    add_rank(verdict, table, rank);
    add(verdict, " was stopped for %.1f s, and ", seconds);
    add_rank(verdict, table, other);
    add(verdict, " has closed the connection");
    add_last_steps(verdict, table);
}
