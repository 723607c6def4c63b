/* The progress line of `tutti train`. See progress.h.
 *
 * The line is redrawn at most ten times per second, so that drawing takes no noticeable time. It is cut to the
 * terminal's width, because a wrapped line cannot be overwritten. */
#include "cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/clock.h"
#include "cli/terminal.h"

enum { PLAIN_LINES = 20, MIN_COLUMNS = 20, MAX_LINE = 256 };
static const double min_redraw_seconds = 0.1;

struct duration format_duration(double seconds) {
    struct duration duration;
    int64_t s = seconds < 0 ? 0 : (int64_t)llround(seconds);
    if (s < 3600)
        snprintf(duration.text, sizeof duration.text, "%" PRId64 ":%02d", s / 60, (int)(s % 60));
    else
        snprintf(duration.text, sizeof duration.text, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60),
                 (int)(s % 60));
    return duration;
}

void progress_begin(struct progress *p, bool quiet) {
    *p = (struct progress){.quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1};
}

/* ---- Lines ---- */

static int terminal_columns(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < MIN_COLUMNS) return 80;
    return size.ws_col < MAX_LINE ? size.ws_col : MAX_LINE - 1;
}

/* Records that the reader of the pipe closed it, which stops the run. Other write errors are ignored. */
static void check_written(struct progress *p, int result) {
    if (result < 0 && errno == EPIPE) p->pipe_closed = true;
}

/* Draws a line that the next one overwrites. */
static void draw_line(struct progress *p, const char *line) {
    check_written(p, cli_draw_line(line, terminal_columns() - 1));
    p->line_open = true;
    p->drawn_at = cli_now();
}

/* Prints a line that is not overwritten. */
static void print_line(struct progress *p, const char *format, ...) TU_PRINTF(2, 3);
static void print_line(struct progress *p, const char *format, ...) {
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (p->line_open) check_written(p, cli_erase_line());
    check_written(p, fprintf(stderr, "%s\n", line));
    p->line_open = false;
    p->drawn_at = 0;
}

void progress_end(struct progress *p) {
    if (p->line_open) fputc('\n', stderr);
    p->line_open = false;
}

/* ---- Events ---- */

static void show_loading(struct progress *p, const tu_train_report *r) {
    char line[MAX_LINE];
    bool changed = strncmp(p->loading, r->message, sizeof p->loading - 1) != 0;
    bool done = r->steps > 0 && r->step >= r->steps;
    snprintf(p->loading, sizeof p->loading, "%s", r->message);
    if (!p->terminal) {
        if (changed) print_line(p, "%s", r->message);
        return;
    }
    if (!changed && !done && cli_now() - p->drawn_at < min_redraw_seconds) return;
    if (r->steps > 0)
        snprintf(line, sizeof line, "%s: %.0f%%", r->message, 100 * (double)r->step / (double)r->steps);
    else
        snprintf(line, sizeof line, "%s", r->message);
    draw_line(p, line);
}

/* Formats a line that fits into 80 columns: "step 2451/3000  epoch 1.57  loss 1.137  accuracy 56.5%  1674 images/s
 * 3:05 left". */
static void format_line(char line[MAX_LINE], const char *prefix, const tu_train_report *r) {
    char left[64] = "";
    if (r->seconds_left >= 0 && r->step < r->steps)
        snprintf(left, sizeof left, "  %s left", format_duration(r->seconds_left).text);
    char accuracy[32] = "";
    if (r->has_accuracy) snprintf(accuracy, sizeof accuracy, "  accuracy %.1f%%", 100 * r->accuracy);
    snprintf(line, MAX_LINE, "%s%" PRId64 "/%" PRId64 "  epoch %.2f  loss %.3f%s  %.0f %s/s%s", prefix,
             r->step, r->steps, r->epoch, r->loss, accuracy, r->images_per_second, r->samples, left);
}

static void show_step(struct progress *p, const tu_train_report *r) {
    char line[MAX_LINE];
    if (!p->terminal || cli_now() - p->drawn_at < min_redraw_seconds) return;
    format_line(line, "", r);
    draw_line(p, line);
}

/* Prints about PLAIN_LINES of the hundred measurements of a run. */
static void show_measurement(struct progress *p, const tu_train_report *r) {
    char line[MAX_LINE];
    int64_t line_number = (int64_t)((double)PLAIN_LINES * (double)r->step / (double)r->steps);
    if (p->terminal || line_number == p->last_line) return;
    p->last_line = line_number;
    format_line(line, "step ", r);
    print_line(p, "%s", line);
}

/* "member 2: " for a message about a member of an ensemble, else "". */
struct member_prefix {
    char text[40];
};
static struct member_prefix member_prefix(const tu_train_report *r) {
    struct member_prefix s = {""};
    if (r->members) snprintf(s.text, sizeof s.text, "member %" PRId64 ": ", r->member);
    return s;
}

/* Shows the loss and the first metric. */
static void show_evaluation(struct progress *p, const tu_train_report *r, const char *split, double loss,
                            double accuracy) {
    char metric[64];
    if (r->has_accuracy || !r->metric_count)
        snprintf(metric, sizeof metric, "accuracy %.2f%%", 100 * accuracy);
    else
        snprintf(metric, sizeof metric, "%s %.5g", r->metrics[0].name, r->metrics[0].value);
    print_line(p, "%sstep %" PRId64 "/%" PRId64 "  epoch %.2f  %s loss %.3f  %s %s", member_prefix(r).text,
               r->step, r->steps, r->epoch, split, loss, split, metric);
}

static void show_start(struct progress *p, const tu_train_report *r) {
    struct member_prefix prefix = member_prefix(r);
    if (r->step > 0)
        print_line(p, "%srun folder %s, resuming after step %" PRId64 " of %" PRId64 ", on %s", prefix.text,
                   r->folder, r->step, r->steps, r->message);
    else
        print_line(p, "%srun folder %s, %" PRId64 " steps, %.4g epochs, on %s", prefix.text, r->folder,
                   r->steps, r->epochs, r->message);
    if (!r->members) p->last_line = (int64_t)((double)PLAIN_LINES * (double)r->step / (double)r->steps);
}

void progress_show(void *context, const tu_train_report *r) {
    struct progress *p = context;
    if (r->event == TU_TRAIN_NOTICE) {
        print_line(p, "tutti: notice: %s%s", member_prefix(r).text, r->message);
        return;
    }
    if (p->quiet) return;
    switch (r->event) {
    case TU_TRAIN_LOADING: show_loading(p, r); break;
    case TU_TRAIN_BEGUN: show_start(p, r); break;
    case TU_TRAIN_STEPPED: show_step(p, r); break;
    case TU_TRAIN_MEASURED: show_measurement(p, r); break;
    case TU_TRAIN_VALIDATED:
        show_evaluation(p, r, "validation", r->validation_loss, r->validation_accuracy);
        break;
    case TU_TRAIN_EVALUATED: show_evaluation(p, r, "test", r->test_loss, r->test_accuracy); break;
    case TU_TRAIN_NOTICE:
    case TU_TRAIN_TRACED: break; /* the command prints the trace summary at the end */
    }
}
