/* Line charts as SVG. See chart.h. Coordinates are written in tenths of a pixel. */
#include "io/chart.h"

#include <math.h>

#include "io/chart_axis.h"
#include "io/svg.h"

/* Pixels. A panel is titled, has its legend below the title, and the plot below that. */
enum {
    PANEL_WIDTH = 440,
    PLOT_HEIGHT = 210,
    LEFT = 58, /* of the plot within the panel: room for labels */
    RIGHT = 18,
    PLOT_WIDTH = PANEL_WIDTH - LEFT - RIGHT,
    PANEL_TITLE = 30,
    LEGEND_ROW = 20,
    BELOW = 46,
    EDGE = 16, /* around everything */
    TITLE = 34,
    PANELS_A_ROW = 3,
    COLOURS = 6
};

/* ---- Where things are ---- */

typedef struct frame {
    int left, top; /* of the plot */
    tu__axis x, y;
} frame;

static double x_of(const frame *f, double value) {
    return f->left + PLOT_WIDTH * tu__axis_place(&f->x, value);
}

static double y_of(const frame *f, double value) {
    return f->top + PLOT_HEIGHT * (1 - tu__axis_place(&f->y, value));
}

static bool is_visible(const tu__panel *panel, const tu__curve *curve, size_t i) {
    return isfinite(curve->x[i]) && isfinite(curve->y[i]) && !(panel->logarithmic && curve->y[i] <= 0);
}

static frame frame_of(const tu__panel *panel, int left, int top) {
    double low[2] = {NAN, NAN}, high[2] = {NAN, NAN};
    for (size_t c = 0; c < panel->curve_count; c++)
        for (size_t i = 0; i < panel->curves[c].count; i++) {
            if (!is_visible(panel, &panel->curves[c], i)) continue;
            double point[2] = {panel->curves[c].x[i], panel->curves[c].y[i]};
            for (int k = 0; k < 2; k++) {
                low[k] = fmin(low[k], point[k]); /* of a NaN and a number: the number */
                high[k] = fmax(high[k], point[k]);
            }
        }
    return (frame){.left = left,
                   .top = top,
                   .x = tu__axis_of(low[0], high[0], false, false),
                   .y = tu__axis_of(low[1], high[1], panel->logarithmic, true)};
}

/* ---- Axes ---- */

static void put_tick_label(tu__text *svg, const tu__axis *axis, double tick, double x, double y,
                           const char *anchor) {
    tu__text_printf(svg, "<text x=\"%d\" y=\"%d\" class=\"soft\" text-anchor=\"%s\">", (int)lround(x),
                    (int)lround(y), anchor);
    tu__axis_label(svg, axis, tick);
    tu__text_printf(svg, "</text>\n");
}

static void put_axes(tu__text *svg, const tu__panel *panel, const frame *f) {
    int right = f->left + PLOT_WIDTH, bottom = f->top + PLOT_HEIGHT;
    tu__text_printf(svg, "<path class=\"grid\" d=\"");
    for (int i = 0; i < f->y.tick_count; i++)
        tu__text_printf(svg, "M%d %d.5H%d", f->left, (int)lround(y_of(f, f->y.ticks[i])), right);
    tu__text_printf(svg, "\"/>\n<path class=\"axis\" d=\"M%d %d.5H%d", f->left, bottom, right);
    for (int i = 0; i < f->x.tick_count; i++)
        tu__text_printf(svg, "M%d.5 %dv4", (int)lround(x_of(f, f->x.ticks[i])), bottom);
    tu__text_printf(svg, "\"/>\n");
    for (int i = 0; i < f->y.tick_count; i++)
        put_tick_label(svg, &f->y, f->y.ticks[i], f->left - 8, y_of(f, f->y.ticks[i]) + 4, "end");
    for (int i = 0; i < f->x.tick_count; i++)
        put_tick_label(svg, &f->x, f->x.ticks[i], x_of(f, f->x.ticks[i]), bottom + 18, "middle");
    tu__svg_text(svg, f->left + PLOT_WIDTH / 2, bottom + 36, "soft", "middle", panel->x_label);
    if (!panel->y_label || !*panel->y_label) return;
    tu__text_printf(svg, "<g transform=\"translate(%d %d)rotate(-90)\">", f->left - LEFT + 14,
                    f->top + PLOT_HEIGHT / 2);
    tu__svg_text(svg, 0, 0, "soft", "middle", panel->y_label);
    tu__text_printf(svg, "</g>\n");
}

/* ---- Curves ---- */

/* A path under construction. Points that fall into one column of pixels are held back until the next column begins;
 * then the first, the least, the most and the last of them are drawn, in their order. */
typedef struct pen {
    tu__text *svg;
    const frame *frame;
    const tu__curve *curve;
    bool drawing; /* the path goes on, as opposed to beginning anew after a gap */
    bool holds;
    int column;
    size_t held[4]; /* first, least, most, last */
    size_t drawn;   /* points since the path began */
} pen;

static void put_coordinate(tu__text *svg, double value) {
    tu__chart_fixed(svg, value, 1);
}

static void draw_point(pen *p, size_t i) {
    tu__text_append(p->svg, p->drawing ? "L" : "M", 1);
    put_coordinate(p->svg, x_of(p->frame, p->curve->x[i]));
    tu__text_append(p->svg, " ", 1);
    put_coordinate(p->svg, y_of(p->frame, p->curve->y[i]));
    p->drawing = true;
    p->drawn++;
}

static void draw_held(pen *p) {
    if (!p->holds) return;
    p->holds = false;
    size_t first = p->held[0], last = p->held[3];
    size_t early = p->held[1] < p->held[2] ? p->held[1] : p->held[2];
    size_t late = p->held[1] < p->held[2] ? p->held[2] : p->held[1];
    draw_point(p, first);
    if (early > first) draw_point(p, early);
    if (late > early) draw_point(p, late);
    if (last > late) draw_point(p, last);
}

static void lift(pen *p) {
    draw_held(p);
    if (p->drawn == 1)
        tu__text_append(p->svg, "h0", 2); /* a point between two gaps: the round cap shows it */
    p->drawing = false;
    p->drawn = 0;
}

static void hold(pen *p, size_t i) {
    int column = (int)x_of(p->frame, p->curve->x[i]);
    if (p->holds && column != p->column) draw_held(p);
    if (!p->holds) {
        p->holds = true;
        p->column = column;
        for (int k = 0; k < 4; k++) p->held[k] = i;
        return;
    }
    if (p->curve->y[i] < p->curve->y[p->held[1]]) p->held[1] = i;
    if (p->curve->y[i] > p->curve->y[p->held[2]]) p->held[2] = i;
    p->held[3] = i;
}

static void put_dot(tu__text *svg, const frame *f, const tu__curve *curve, size_t i) {
    tu__text_printf(svg, "<circle class=\"dot\" r=\"2.6\" cx=\"");
    put_coordinate(svg, x_of(f, curve->x[i]));
    tu__text_printf(svg, "\" cy=\"");
    put_coordinate(svg, y_of(f, curve->y[i]));
    tu__text_printf(svg, "\"/>");
}

/* The last point that can be seen; `count` when there is none. */
static size_t last_visible(const tu__panel *panel, const tu__curve *curve) {
    for (size_t i = curve->count; i-- > 0;)
        if (is_visible(panel, curve, i)) return i;
    return curve->count;
}

static void put_curve(tu__text *svg, const tu__panel *panel, const frame *f, size_t index) {
    const tu__curve *curve = &panel->curves[index];
    size_t last = last_visible(panel, curve);
    if (last == curve->count) return;
    pen p = {.svg = svg, .frame = f, .curve = curve};
    tu__text_printf(svg, "<g class=\"c%d\"><path class=\"line%s\" d=\"", (int)(index % COLOURS),
                    curve->count > (size_t)2 * PLOT_WIDTH ? " fine" : "");
    for (size_t i = 0; i < curve->count; i++) {
        if (is_visible(panel, curve, i))
            hold(&p, i);
        else
            lift(&p);
    }
    lift(&p);
    tu__text_printf(svg, "\"/>");
    for (size_t i = 0; curve->dots && i < last; i++)
        if (is_visible(panel, curve, i)) put_dot(svg, f, curve, i);
    put_dot(svg, f, curve, last);
    tu__text_printf(svg, "</g>\n");
}

/* ---- The legend ---- */

static int entry_width(const tu__curve *curve) {
    size_t count = tu__svg_letters(curve->label ? curve->label : "");
    return 24 + TU__SVG_LETTER * (int)(count < 40 ? count : 40) + 8 * TU__SVG_LETTER +
           12; /* line, label, value, space */
}

/* Draws the entries, or with `svg` NULL only counts the rows they take. */
static int put_legend(tu__text *svg, const tu__panel *panel, int left, int top) {
    int x = 0, row = 0;
    for (size_t c = 0; c < panel->curve_count; c++) {
        const tu__curve *curve = &panel->curves[c];
        int width = entry_width(curve);
        if (x > 0 && x + width > PLOT_WIDTH) {
            x = 0;
            row++;
        }
        if (svg) {
            size_t last = last_visible(panel, curve);
            int y = top + LEGEND_ROW * row;
            tu__text_printf(svg,
                            "<g class=\"c%d\"><path class=\"swatch\" stroke-width=\"3\" d=\"M%d %dh16\"/></g>"
                            "<text x=\"%d\" y=\"%d\" class=\"ink\">",
                            (int)(c % COLOURS), left + x, y - 4, left + x + 22, y);
            tu__svg_escaped(svg, curve->label ? curve->label : "");
            tu__text_printf(svg, " <tspan class=\"last\">");
            tu__chart_number(svg, last < curve->count ? curve->y[last] : NAN);
            tu__text_printf(svg, "</tspan></text>\n");
        }
        x += width;
    }
    return panel->curve_count ? row + 1 : 0;
}

/* ---- The picture ---- */

static void put_panel(tu__text *svg, const tu__panel *panel, int left, int top, int legend_rows) {
    frame f = frame_of(panel, left + LEFT, top + PANEL_TITLE + LEGEND_ROW * legend_rows);
    tu__svg_text(svg, f.left, top + 18, "ink name", "start", panel->title);
    put_legend(svg, panel, f.left, top + PANEL_TITLE + 8);
    put_axes(svg, panel, &f);
    bool any = false;
    for (size_t c = 0; c < panel->curve_count; c++) {
        put_curve(svg, panel, &f, c);
        any = any || last_visible(panel, &panel->curves[c]) < panel->curves[c].count;
    }
    if (!any)
        tu__svg_text(svg, f.left + PLOT_WIDTH / 2, f.top + PLOT_HEIGHT / 2, "soft", "middle",
                     "nothing to show yet");
}

tu_status tu__chart_svg(tu__text *svg, const char *title, size_t panel_count, const tu__panel *panels) {
    int columns = panel_count < PANELS_A_ROW ? (int)panel_count : PANELS_A_ROW, legend_rows = 0;
    int rows = (int)((panel_count + PANELS_A_ROW - 1) / PANELS_A_ROW), above = title && *title ? TITLE : 0;
    for (size_t i = 0; i < panel_count; i++) {
        int need = put_legend(NULL, &panels[i], 0, 0);
        if (need > legend_rows) legend_rows = need;
    }
    int panel_height = PANEL_TITLE + LEGEND_ROW * legend_rows + PLOT_HEIGHT + BELOW;
    int width = 2 * EDGE + PANEL_WIDTH * (columns ? columns : 1),
        height = 2 * EDGE + above + panel_height * rows;
    tu__svg_begin(svg, width, height, title);
    tu__svg_text(svg, EDGE + LEFT, EDGE + 16, "ink title", "start", title);
    for (size_t i = 0; i < panel_count; i++)
        put_panel(svg, &panels[i], EDGE + PANEL_WIDTH * (int)(i % PANELS_A_ROW),
                  EDGE + above + panel_height * (int)(i / PANELS_A_ROW), legend_rows);
    return tu__svg_end(svg);
}
