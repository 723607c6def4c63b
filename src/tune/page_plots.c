/* Draws the plots of a study. See page_plots.h.
 *
 * A trial has the colour of its rank: class q0 for the best fifth of all scores … q4 for the worst. Coordinates are written in
 * tenths of a pixel. Numbers are written without printf's %f, because a decimal comma of the locale would break them. */
#include "tune/page_plots.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "io/chart_axis.h"
#include "io/svg.h"

enum { LEFT = 58, TOP = 14, BOTTOM = 40, RIGHT = 16 };

typedef struct frame {
    int left, top, width, height;
    tu__axis x, y;
} frame;

double tu__page_score(const tu_study *study, double cost) {
    return tu__study_shows_accuracy(study) ? 100 * (1 - cost) : cost;
}

static const char *score_name(const tu_study *study) {
    return tu__study_shows_accuracy(study) ? "accuracy (%)" : "loss";
}

/* ---- Numbers and positions ---- */

static void coordinate(tu__text *page, double value) {
    tu__chart_fixed(page, isfinite(value) ? value : 0, 1);
}

static double x_of(const frame *f, double value) {
    return f->left + f->width * tu__axis_position(&f->x, value);
}

static double y_of(const frame *f, double value) {
    return f->top + f->height * (1 - tu__axis_position(&f->y, value));
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The axis of scores. A few huge losses would hide all others: they are drawn at its end. */
static tu__axis score_axis(const tu_study *study) {
    double *costs = tu__alloc_array(study->trials.count + 1, sizeof *costs, "the costs of trials"), low = NAN,
           high = NAN;
    size_t count = 0;
    for (size_t i = 0; costs && i < study->trials.count; i++)
        if (!isnan(study->trials.trials[i].cost)) costs[count++] = study->trials.trials[i].cost;
    if (count) {
        qsort(costs, count, sizeof *costs, compare);
        low = tu__page_score(study, costs[0]);
        high = tu__page_score(study, tu__study_shows_accuracy(study) ? costs[count - 1]
                                                                     : costs[(count - 1) * 9 / 10]);
    }
    tu__free(costs);
    return tu__axis_of(low, high, false, true);
}

/* ---- Parts of a plot ---- */

/* Lines of many trials are thin and transparent, so that labels and single lines stay visible. */
static void begin_lines(const tu__page_trials *trials, tu__text *page) {
    enum { MANY = 100 };
    tu__text_printf(page, "<g%s>\n", trials->drawn_count > MANY ? " class=\"many\"" : "");
}

static void end_lines(tu__text *page) {
    tu__text_printf(page, "</g>\n");
}

static void begin(tu__text *page, int width, int height, const char *title) {
    tu__text_printf(page, "<svg width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n<title>",
                    width, height, width, height);
    tu__svg_escaped(page, title);
    tu__text_printf(page, "</title>\n");
}

static void line(tu__text *page, const char *class, double x1, double y1, double x2, double y2) {
    tu__text_printf(page, "<path class=\"%s\" d=\"M", class);
    coordinate(page, x1);
    tu__text_printf(page, " ");
    coordinate(page, y1);
    tu__text_printf(page, "L");
    coordinate(page, x2);
    tu__text_printf(page, " ");
    coordinate(page, y2);
    tu__text_printf(page, "\"/>\n");
}

static void tick_label(tu__text *page, const tu__axis *axis, double tick, int x, int y, const char *class,
                       const char *anchor) {
    tu__text label = {0};
    tu__axis_label(&label, axis, tick);
    tu__svg_text(page, x, y, class, anchor, tu__text_string(&label));
    tu__text_free(&label);
}

/* Shortens a label to `letters` characters. */
static void short_label(tu__text *page, int x, int y, const char *class, const char *anchor, const char *text,
                        size_t letters) {
    tu__text cut = {0};
    size_t bytes = 0, count = 0;
    while (text[bytes] && count < letters) {
        bytes++;
        while (((unsigned char)text[bytes] & 0xC0) == 0x80) bytes++;
        count++;
    }
    tu__text_append(&cut, text, bytes);
    if (text[bytes]) tu__text_printf(&cut, "…");
    tu__svg_text(page, x, y, class, anchor, tu__text_string(&cut));
    tu__text_free(&cut);
}

static void draw_y_axis(tu__text *page, const frame *f, const char *name) {
    for (int i = 0; i < f->y.tick_count; i++) {
        double y = y_of(f, f->y.ticks[i]);
        line(page, "grid", f->left, y, f->left + f->width, y);
        tick_label(page, &f->y, f->y.ticks[i], f->left - 6, (int)lround(y) + 4, "soft", "end");
    }
    tu__svg_text(page, f->left, f->top - 4, "soft", "start", name);
}

static void draw_x_axis(tu__text *page, const frame *f, const char *name) {
    int bottom = f->top + f->height;
    line(page, "axis", f->left, bottom, f->left + f->width, bottom);
    for (int i = 0; i < f->x.tick_count; i++) {
        double x = x_of(f, f->x.ticks[i]);
        line(page, "axis", x, bottom, x, bottom + 4);
        tick_label(page, &f->x, f->x.ticks[i], (int)lround(x), bottom + 17, "soft", "middle");
    }
    short_label(page, f->left + f->width / 2, bottom + 33, "soft", "middle", name, 40);
}

/* The text that a browser shows above a point. */
static void tooltip(const tu_study *study, size_t index, tu__text *page) {
    const tu__trial *t = &study->trials.trials[index];
    tu__text_printf(page, "<title>trial %" PRId64 ", %s", t->number, tu__trial_state_names[t->state]);
    if (!isnan(t->cost)) {
        tu__text_printf(page, ", %s ", score_name(study));
        tu__chart_number(page, tu__page_score(study, t->cost));
    }
    for (size_t k = 0; k < study->study.space.count; k++) {
        const char *value = tu__study_value(study, index, k);
        if (!value) continue;
        tu__text_printf(page, "\n%s=", study->study.space.parameters[k].name);
        tu__svg_escaped(page, value);
    }
    tu__text_printf(page, "</title>");
}

static void dot(const tu__page_trials *trials, size_t index, double x, double y, tu__text *page) {
    const tu__trial *t = &trials->study->trials.trials[index];
    tu__text_printf(page, "<circle class=\"q%d%s\" r=\"4\" cx=\"", trials->colours[index],
                    t->state == TU__TRIAL_PRUNED ? " pruned" : "");
    coordinate(page, x);
    tu__text_printf(page, "\" cy=\"");
    coordinate(page, y);
    tu__text_printf(page, "\">");
    tooltip(trials->study, index, page);
    tu__text_printf(page, "</circle>\n");
}

/* ---- History ---- */

static void draw_best_so_far(const tu_study *study, const frame *f, tu__text *page) {
    double best = INFINITY, last = 0;
    for (size_t i = 0; i < study->trials.count; i++) {
        const tu__trial *t = &study->trials.trials[i];
        bool counts = t->state == TU__TRIAL_FINISHED && t->cost < best;
        double x = x_of(f, (double)t->number), y = y_of(f, tu__page_score(study, best));
        if (!counts) continue;
        if (isfinite(best)) {
            line(page, "best", last, y, x, y);
            line(page, "best", x, y, x, y_of(f, tu__page_score(study, t->cost)));
        }
        best = t->cost, last = x;
    }
    double y = y_of(f, tu__page_score(study, best));
    if (isfinite(best)) line(page, "best", last, y, f->left + f->width, y);
}

static void draw_failure(const tu_study *study, size_t index, const frame *f, tu__text *page) {
    double x = x_of(f, (double)study->trials.trials[index].number), bottom = f->top + f->height;
    tu__text_printf(page, "<g class=\"failed\">");
    tooltip(study, index, page);
    line(page, "failed", x - 4, bottom - 8, x + 4, bottom);
    line(page, "failed", x - 4, bottom, x + 4, bottom - 8);
    tu__text_printf(page, "</g>\n");
}

void tu__page_history(const tu__page_trials *trials, tu__text *page) {
    enum { WIDTH = 1000, HEIGHT = 280 };
    const tu_study *study = trials->study;
    double last = study->trials.count > 1 ? (double)(study->trials.count - 1) : 1;
    frame f = {LEFT,
               TOP + 6,
               WIDTH - LEFT - RIGHT,
               HEIGHT - TOP - BOTTOM - 6,
               tu__axis_of(0, last, false, false),
               score_axis(study)};
    begin(page, WIDTH, HEIGHT, "Score of each trial");
    draw_y_axis(page, &f, score_name(study));
    draw_x_axis(page, &f, "trial");
    draw_best_so_far(study, &f, page);
    for (size_t i = 0; i < trials->drawn_count; i++) {
        size_t index = trials->drawn[i];
        const tu__trial *t = &study->trials.trials[index];
        double x = x_of(&f, (double)t->number);
        if (!isnan(t->cost)) dot(trials, index, x, y_of(&f, tu__page_score(study, t->cost)), page);
        if (t->state == TU__TRIAL_FAILED) draw_failure(study, index, &f, page);
    }
    tu__text_printf(page, "</svg>\n");
}

/* ---- Axes of parameters ---- */

/* A parameter that is a range has an axis of its numbers, a choice one of its values in equal distances. */
static tu__axis parameter_axis(const tu__parameter *p) {
    if (p->choice_count) return tu__axis_of(-0.5, (double)p->choice_count - 0.5, false, false);
    return tu__axis_of(p->low, p->high, p->logarithmic, false);
}

/* ---- Parallel coordinates ---- */

static void draw_vertical_axis(const tu__parameter *p, const frame *f, tu__text *page) {
    line(page, "axis", f->left, f->top, f->left, f->top + f->height);
    for (size_t i = 0; p->choice_count && i < p->choice_count; i++)
        short_label(page, f->left + 6, (int)lround(y_of(f, (double)i)) + 4, "tick", "start", p->choices[i],
                    14);
    for (int i = 0; !p->choice_count && i < f->y.tick_count; i++)
        tick_label(page, &f->y, f->y.ticks[i], f->left + 6, (int)lround(y_of(f, f->y.ticks[i])) + 4, "tick",
                   "start");
    short_label(page, f->left, f->top - 10, "name", "middle", p->name, 16);
}

static void draw_trial_line(const tu__page_trials *trials, size_t index, const frame *axes, tu__text *page) {
    const tu_study *study = trials->study;
    const tu__trial *t = &study->trials.trials[index];
    const char *command = "M";
    tu__text_printf(page, "<path class=\"q%d trial\" d=\"", trials->colours[index]);
    for (size_t k = 0; k <= study->study.space.count; k++) {
        bool is_score = k == study->study.space.count;
        double value = is_score ? tu__page_score(study, t->cost) : t->point.value[k];
        if (isnan(value)) continue; /* a parameter that is not used is passed by */
        tu__text_printf(page, "%s", command);
        coordinate(page, axes[k].left);
        tu__text_printf(page, " ");
        coordinate(page, y_of(&axes[k], value));
        command = "L";
    }
    tu__text_printf(page, "\">");
    tooltip(study, index, page);
    tu__text_printf(page, "</path>\n");
}

void tu__page_parallel(const tu__page_trials *trials, tu__text *page) {
    enum { HEIGHT = 360, MARGIN = 70, GAP = 150, HEAD = 34 };
    const tu_study *study = trials->study;
    const tu__space *space = &study->study.space;
    int count = (int)space->count, gap = count * GAP > 1000 - 2 * MARGIN ? GAP : (1000 - 2 * MARGIN) / count;
    int width = 2 * MARGIN + count * gap;
    frame axes[TU__MAX_PARAMETERS + 1];
    for (int k = 0; k <= count; k++)
        axes[k] = (frame){.left = MARGIN + k * gap,
                          .top = HEAD,
                          .height = HEIGHT - HEAD - 16,
                          .y = k < count ? parameter_axis(&space->parameters[k]) : score_axis(study)};
    begin(page, width, HEIGHT, "Values and score of each trial");
    begin_lines(trials, page);
    for (int colour = TU__PAGE_COLOURS - 1; colour >= 0; colour--) /* the best on top */
        for (size_t i = 0; i < trials->drawn_count; i++) {
            size_t index = trials->drawn[i];
            if (!isnan(study->trials.trials[index].cost) && trials->colours[index] == colour)
                draw_trial_line(trials, index, axes, page);
        }
    end_lines(page);
    for (int k = 0; k < count; k++) draw_vertical_axis(&space->parameters[k], &axes[k], page);
    tu__parameter score = {.name = score_name(study)};
    draw_vertical_axis(&score, &axes[count], page);
    tu__text_printf(page, "</svg>\n");
}

/* ---- Slices ---- */

static void draw_slice(const tu__page_trials *trials, size_t parameter, tu__text *page) {
    enum { WIDTH = 330, HEIGHT = 230 };
    const tu_study *study = trials->study;
    const tu__parameter *p = &study->study.space.parameters[parameter];
    size_t letters = p->choice_count > 9 ? 3 : 28 / (p->choice_count + !p->choice_count);
    frame f = {
        LEFT, TOP + 6, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM - 6, parameter_axis(p), score_axis(study)};
    begin(page, WIDTH, HEIGHT, p->name);
    draw_y_axis(page, &f, score_name(study));
    if (p->choice_count) f.x.tick_count = 0;
    draw_x_axis(page, &f, p->name);
    for (size_t i = 0; i < p->choice_count; i++)
        short_label(page, (int)lround(x_of(&f, (double)i)), f.top + f.height + 17, "soft", "middle",
                    p->choices[i], letters);
    for (size_t i = 0; i < trials->drawn_count; i++) {
        const tu__trial *t = &study->trials.trials[trials->drawn[i]];
        double value = t->point.value[parameter];
        if (!isnan(t->cost) && !isnan(value))
            dot(trials, trials->drawn[i], x_of(&f, value), y_of(&f, tu__page_score(study, t->cost)), page);
    }
    tu__text_printf(page, "</svg>\n");
}

void tu__page_slices(const tu__page_trials *trials, tu__text *page) {
    for (size_t k = 0; k < trials->study->study.space.count; k++) draw_slice(trials, k, page);
}

/* ---- Curves ---- */

static void draw_curve(const tu__page_trials *trials, size_t index, const frame *f, tu__text *page) {
    const tu_study *study = trials->study;
    const tu__trial *t = &study->trials.trials[index];
    const char *command = "M";
    bool shows_accuracy = tu__study_shows_accuracy(study);
    tu__text_printf(page, "<path class=\"q%d trial\" d=\"", trials->colours[index]);
    for (size_t i = 0; i < t->report_count; i++) {
        double score = shows_accuracy ? 100 * t->reports[i].accuracy : t->reports[i].loss;
        if (isnan(score)) continue;
        tu__text_printf(page, "%s", command);
        coordinate(page, x_of(f, (double)t->reports[i].step));
        tu__text_printf(page, " ");
        coordinate(page, y_of(f, score));
        command = "L";
    }
    tu__text_printf(page, "h0\">"); /* makes a single point visible */
    tooltip(study, index, page);
    tu__text_printf(page, "</path>\n");
}

void tu__page_curves(const tu__page_trials *trials, tu__text *page) {
    enum { WIDTH = 1000, HEIGHT = 320 };
    const tu_study *study = trials->study;
    double steps = 1, low = NAN, high = NAN;
    bool shows_accuracy = tu__study_shows_accuracy(study);
    tu__axis scores = score_axis(study);
    for (size_t i = 0; i < study->trials.count; i++)
        for (size_t k = 0; k < study->trials.trials[i].report_count; k++) {
            const tu__report *r = &study->trials.trials[i].reports[k];
            double score = shows_accuracy ? 100 * r->accuracy : fmin(r->loss, 2 * scores.high);
            steps = fmax(steps, (double)r->step);
            low = fmin(low, score);
            high = fmax(high, score);
        }
    frame f = {LEFT,
               TOP + 6,
               WIDTH - LEFT - RIGHT,
               HEIGHT - TOP - BOTTOM - 6,
               tu__axis_of(0, steps, false, false),
               tu__axis_of(low, high, false, true)};
    begin(page, WIDTH, HEIGHT, "Validations of trials");
    draw_y_axis(page, &f, shows_accuracy ? "validation accuracy (%)" : "validation loss");
    draw_x_axis(page, &f, "step");
    begin_lines(trials, page);
    for (size_t i = 0; i < trials->drawn_count; i++)
        if (study->trials.trials[trials->drawn[i]].report_count)
            draw_curve(trials, trials->drawn[i], &f, page);
    end_lines(page);
    tu__text_printf(page, "</svg>\n");
}
