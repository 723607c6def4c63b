/* The live table of `tutti tune`. See tune_table.h.
 *
 * On a terminal the table is below the lines of ended trials; it is removed, a line is printed, and it is drawn again. It is
 * redrawn at most five times per second, and lines are cut to the terminal's width, because a wrapped line cannot be
 * overwritten. */
#include "cli/tune_table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/progress.h"

enum { MIN_COLUMNS = 40, MAX_LINE = 400 };
static const double min_redraw_seconds = 0.2;

void tune_table_begin(struct tune_table *t, bool quiet, int64_t budget) {
    *t = (struct tune_table){.quiet = quiet,
                             .terminal = isatty(STDERR_FILENO) == 1,
                             .began_at = cli_now(),
                             .budget = budget,
                             .best = -1,
                             .shows_accuracy = true};
}

/* ---- Lines ---- */

static int terminal_columns(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < MIN_COLUMNS) return 80;
    return size.ws_col < MAX_LINE ? size.ws_col : MAX_LINE - 1;
}

static void check_written(struct tune_table *t, int result) {
    if (result < 0 && errno == EPIPE) t->pipe_closed = true;
}

/* Moves the cursor to the table's first line and clears from there. */
static void remove_table(struct tune_table *t) {
    if (t->drawn_lines) fprintf(stderr, "\033[%dA\r\033[J", t->drawn_lines);
    t->drawn_lines = 0;
}

static void print_line(struct tune_table *t, const char *format, ...) TU_PRINTF(2, 3);
static void print_line(struct tune_table *t, const char *format, ...) {
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    remove_table(t);
    check_written(t, fprintf(stderr, "%s\n", line));
}

/* A cost as people read it: an accuracy in percent, or a loss. */
struct score {
    char text[40];
};
static struct score format_score(const struct tune_table *t, double cost) {
    struct score s = {"-"};
    if (isnan(cost)) return s;
    if (t->shows_accuracy)
        snprintf(s.text, sizeof s.text, "%.2f%%", 100 * (1 - cost));
    else
        snprintf(s.text, sizeof s.text, "%.4f", cost);
    return s;
}

/* ---- The table ---- */

static void draw_row(const struct tune_table *t, const struct tune_row *r, int columns) {
    char line[MAX_LINE];
    double share = r->steps > 0 ? (double)r->step / (double)r->steps : 0;
    snprintf(line, sizeof line, "%5" PRId64 "  %-10.10s  %4.0f%%  %8.4f  %10s  %8.0f  %s", r->trial,
             r->device, 100 * share, r->loss, format_score(t, r->cost).text, r->speed, r->values);
    fprintf(stderr, "%.*s\n", columns - 1, line);
}

static void draw_table(struct tune_table *t) {
    int columns = terminal_columns(), lines = 2;
    char head[MAX_LINE], best[80] = "", budget[32] = "";
    remove_table(t);
    if (t->budget) snprintf(budget, sizeof budget, " of %" PRId64, t->budget);
    if (t->best >= 0)
        snprintf(best, sizeof best, ", best %s (trial %" PRId64 ")", format_score(t, t->best_cost).text,
                 t->best);
    snprintf(head, sizeof head, "%" PRId64 "%s trials ended, %s%s", t->ended, budget,
             format_duration(cli_now() - t->began_at).text, best);
    fprintf(stderr, "%.*s\n", columns - 1, head);
    fprintf(stderr, "%.*s\n", columns - 1,
            "trial  device       done      loss  validation  images/s  values");
    for (int i = 0; i < t->rows; i++)
        if (t->row[i].used) draw_row(t, &t->row[i], columns), lines++;
    t->drawn_lines = lines;
    t->drawn_at = cli_now();
}

static struct tune_row *row_of(struct tune_table *t, const tu_tune_report *r) {
    static struct tune_row other; /* workers beyond the table */
    if (r->worker < 0 || r->worker >= TUNE_MAX_ROWS) return &other;
    if (r->worker >= t->rows) t->rows = (int)r->worker + 1;
    return &t->row[r->worker];
}

/* ---- Events ---- */

static void show_loading(struct tune_table *t, const tu_tune_report *r) {
    if (strncmp(t->loading, r->message, sizeof t->loading - 1) == 0) return;
    snprintf(t->loading, sizeof t->loading, "%s", r->message);
    print_line(t, "%s", r->message);
}

static void start_row(struct tune_table *t, const tu_tune_report *r) {
    struct tune_row *row = row_of(t, r);
    *row = (struct tune_row){.used = true, .trial = r->trial, .cost = (double)NAN};
    snprintf(row->device, sizeof row->device, "%s", r->device);
    snprintf(row->values, sizeof row->values, "%s", r->message);
}

static void end_row(struct tune_table *t, const tu_tune_report *r) {
    struct tune_row *row = row_of(t, r);
    bool finished = r->state == TU_TRIAL_FINISHED,
         better = isnan(t->best_cost) || t->best < 0 || r->cost < t->best_cost;
    t->ended++;
    row->used = false;
    if (finished && !isnan(r->cost) && better) t->best = r->trial, t->best_cost = r->cost;
    const char *mark = finished && t->best == r->trial ? ", the best so far" : "";
    if (r->state == TU_TRIAL_FAILED)
        print_line(t, "trial %" PRId64 " failed: %s; values: %s", r->trial, r->message ? r->message : "",
                   row->values);
    else
        print_line(t, "trial %" PRId64 " %s after step %" PRId64 ": %s %s%s; values: %s", r->trial,
                   tu_trial_state_name(r->state), r->step, t->shows_accuracy ? "accuracy" : "loss",
                   format_score(t, r->cost).text, mark, row->values);
}

static void update_row(struct tune_table *t, const tu_tune_report *r) {
    struct tune_row *row = row_of(t, r);
    row->step = r->step, row->steps = r->steps, row->speed = r->images_per_second;
    if (r->event == TU_TUNE_VALIDATED)
        row->cost = r->cost;
    else
        row->loss = r->loss;
}

void tune_table_show(void *context, const tu_tune_report *r) {
    struct tune_table *t = context;
    t->shows_accuracy = !r->objective || strcmp(r->objective, "loss") != 0;
    if (r->event == TU_TUNE_NOTICE) print_line(t, "tutti: notice: %s", r->message);
    if (t->quiet) return;
    switch (r->event) {
    case TU_TUNE_LOADING: show_loading(t, r); break;
    case TU_TUNE_BEGUN:
        print_line(t, "study %s, %" PRId64 " worker%s", r->study, r->workers, r->workers == 1 ? "" : "s");
        break;
    case TU_TUNE_STARTED: start_row(t, r); break;
    case TU_TUNE_STEPPED:
    case TU_TUNE_VALIDATED: update_row(t, r); break;
    case TU_TUNE_ENDED: end_row(t, r); break;
    case TU_TUNE_NOTICE: break;
    }
    bool shows = t->rows > 0 && (r->event == TU_TUNE_ENDED || cli_now() - t->drawn_at >= min_redraw_seconds);
    if (t->terminal && shows) draw_table(t);
}

void tune_table_end(struct tune_table *t) {
    remove_table(t);
}
