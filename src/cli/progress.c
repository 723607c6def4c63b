/* The progress line of `tutti train`. See progress.h.
 *
 * A terminal is drawn to at most ten times a second, so that showing costs nothing against computing; a line is cut to the
 * terminal's width, since one that wraps cannot be drawn over. */
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

enum { PLAIN_LINES = 20, NARROWEST = 20, LINE = 256 };
static const double least_seconds = 0.1; /* from drawing to drawing */

struct duration show_duration(double seconds) {
    struct duration shown;
    int64_t s = seconds < 0 ? 0 : (int64_t)llround(seconds);
    if (s < 3600)
        snprintf(shown.text, sizeof shown.text, "%" PRId64 ":%02d", s / 60, (int)(s % 60));
    else
        snprintf(shown.text, sizeof shown.text, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60),
                 (int)(s % 60));
    return shown;
}

void progress_begin(struct progress *p, bool quiet) {
    *p = (struct progress){.quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1};
}

/* ---- Lines ---- */

static int columns(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < NARROWEST) return 80;
    return size.ws_col < LINE ? size.ws_col : LINE - 1;
}

/* A log file that cannot grow is no reason to stop; what a pipe's reader does who has seen enough, is. */
static void check_written(struct progress *p, int result) {
    if (result < 0 && errno == EPIPE) p->closed = true;
}

/* A line that the next one is drawn over. */
static void draw(struct progress *p, const char *line) {
    check_written(p, fprintf(stderr, "\r%.*s\033[K", columns() - 1, line));
    p->open = true;
    p->drawn = cli_now();
}

/* A line that stays. */
static void say(struct progress *p, const char *format, ...) TU_PRINTF(2, 3);
static void say(struct progress *p, const char *format, ...) {
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    check_written(p, fprintf(stderr, "%s%s%s\n", p->open ? "\r" : "", line, p->open ? "\033[K" : ""));
    p->open = false;
    p->drawn = 0;
}

void progress_end(struct progress *p) {
    if (p->open) fputc('\n', stderr);
    p->open = false;
}

/* ---- What is told ---- */

static void show_loading(struct progress *p, const tu_train_report *r) {
    char line[LINE];
    bool news = strncmp(p->loading, r->message, sizeof p->loading - 1) != 0;
    bool done = r->steps > 0 && r->step >= r->steps;
    snprintf(p->loading, sizeof p->loading, "%s", r->message);
    if (!p->terminal) {
        if (news) say(p, "%s", r->message);
        return;
    }
    if (!news && !done && cli_now() - p->drawn < least_seconds) return;
    if (r->steps > 0)
        snprintf(line, sizeof line, "%s: %.0f%%", r->message, 100 * (double)r->step / (double)r->steps);
    else
        snprintf(line, sizeof line, "%s", r->message);
    draw(p, line);
}

/* Short enough for 80 columns: "step 2451/3000  epoch 1.57  loss 1.137  accuracy 56.5%  1674 images/s  3:05 left". */
static void compose(char line[LINE], const char *word, const tu_train_report *r) {
    char left[64] = "";
    if (r->seconds_left >= 0 && r->step < r->steps)
        snprintf(left, sizeof left, "  %s left", show_duration(r->seconds_left).text);
    snprintf(line, LINE, "%s%" PRId64 "/%" PRId64 "  epoch %.2f  loss %.3f  accuracy %.1f%%  %.0f images/s%s",
             word, r->step, r->steps, r->epoch, r->loss, 100 * r->accuracy, r->images_per_second, left);
}

static void show_step(struct progress *p, const tu_train_report *r) {
    char line[LINE];
    if (!p->terminal || cli_now() - p->drawn < least_seconds) return;
    compose(line, "", r);
    draw(p, line);
}

/* About PLAIN_LINES of the hundred measurements of a run. */
static void show_measurement(struct progress *p, const tu_train_report *r) {
    char line[LINE];
    int64_t part = (int64_t)((double)PLAIN_LINES * (double)r->step / (double)r->steps);
    if (p->terminal || part == p->told) return;
    p->told = part;
    compose(line, "step ", r);
    say(p, "%s", line);
}

/* "member 2: " in front of what one of an ensemble says. */
struct speaker {
    char text[40];
};
static struct speaker speaker_of(const tu_train_report *r) {
    struct speaker s = {""};
    if (r->members) snprintf(s.text, sizeof s.text, "member %" PRId64 ": ", r->member);
    return s;
}

static void show_evaluation(struct progress *p, const tu_train_report *r, const char *part, double loss,
                            double accuracy) {
    say(p, "%sstep %" PRId64 "/%" PRId64 "  epoch %.2f  %s loss %.3f  %s accuracy %.2f%%", speaker_of(r).text,
        r->step, r->steps, r->epoch, part, loss, part, 100 * accuracy);
}

static void show_beginning(struct progress *p, const tu_train_report *r) {
    struct speaker who = speaker_of(r);
    if (r->step > 0)
        say(p, "%srun folder %s, going on after step %" PRId64 " of %" PRId64 ", on %s", who.text, r->folder,
            r->step, r->steps, r->message);
    else
        say(p, "%srun folder %s, %" PRId64 " steps, %.4g epochs, on %s", who.text, r->folder, r->steps,
            r->epochs, r->message);
    if (!r->members) p->told = (int64_t)((double)PLAIN_LINES * (double)r->step / (double)r->steps);
}

void progress_show(void *context, const tu_train_report *r) {
    struct progress *p = context;
    if (r->event == TU_TRAIN_NOTICE) {
        say(p, "tutti: notice: %s%s", speaker_of(r).text, r->message);
        return;
    }
    if (p->quiet) return;
    switch (r->event) {
    case TU_TRAIN_LOADING: show_loading(p, r); break;
    case TU_TRAIN_BEGUN: show_beginning(p, r); break;
    case TU_TRAIN_STEPPED: show_step(p, r); break;
    case TU_TRAIN_MEASURED: show_measurement(p, r); break;
    case TU_TRAIN_VALIDATED:
        show_evaluation(p, r, "validation", r->validation_loss, r->validation_accuracy);
        break;
    case TU_TRAIN_EVALUATED: show_evaluation(p, r, "test", r->test_loss, r->test_accuracy); break;
    case TU_TRAIN_NOTICE:
    case TU_TRAIN_TRACED: break; /* the command prints it behind everything else */
    }
}
