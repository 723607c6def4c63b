/* Line charts as SVG. See chart.h. Coordinates are written in tenths of a pixel. */
#include "io/chart.h"

#include <math.h>

#include "io/chart_axis.h"
#include "io/svg.h"

/* Pixels. A panel is titled, has its legend below the title, and the plot below that. */
enum {
    PANEL_WIDTH = 440,
    PLOT_HEIGHT = 210,
    LEFT = 58, /* margin of the plot within the panel, for labels */
    RIGHT = 18,
    PLOT_WIDTH = PANEL_WIDTH - LEFT - RIGHT,
    PANEL_TITLE = 30,
    LEGEND_ROW = 20,
    BOTTOM = 46,
    EDGE = 16, /* outer margin */
    TITLE = 34,
    PANELS_PER_ROW = 3,
    COLOURS = 6
};

/* ---- Coordinates ---- */

typedef struct frame {
    int left, top; /* position of the plot */
    tu__axis x, y;
} frame;

static double x_of(const frame *f, double value) {
    return f->left + PLOT_WIDTH * tu__axis_position(&f->x, value);
}

static double y_of(const frame *f, double value) {
    return f->top + PLOT_HEIGHT * (1 - tu__axis_position(&f->y, value));
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
                low[k] = fmin(low[k], point[k]); /* fmin(NaN, x) is x */
                high[k] = fmax(high[k], point[k]);
            }
        }
    return (frame){.left = left,
                   .top = top,
                   .x = tu__axis_of(low[0], high[0], false, false),
                   .y = tu__axis_of(low[1], high[1], panel->logarithmic, true)};
}

/* ---- Axes ---- */

static void draw_tick_label(tu__text *svg, const tu__axis *axis, double tick, double x, double y,
                            const char *anchor) {
    tu__text_printf(svg, "<text x=\"%d\" y=\"%d\" class=\"soft\" text-anchor=\"%s\">", (int)lround(x),
                    (int)lround(y), anchor);
    tu__axis_label(svg, axis, tick);
    tu__text_printf(svg, "</text>\n");
}

static void draw_axes(tu__text *svg, const tu__panel *panel, const frame *f) {
    int right = f->left + PLOT_WIDTH, bottom = f->top + PLOT_HEIGHT;
    tu__text_printf(svg, "<path class=\"grid\" d=\"");
    for (int i = 0; i < f->y.tick_count; i++)
        tu__text_printf(svg, "M%d %d.5H%d", f->left, (int)lround(y_of(f, f->y.ticks[i])), right);
    tu__text_printf(svg, "\"/>\n<path class=\"axis\" d=\"M%d %d.5H%d", f->left, bottom, right);
    for (int i = 0; i < f->x.tick_count; i++)
        tu__text_printf(svg, "M%d.5 %dv4", (int)lround(x_of(f, f->x.ticks[i])), bottom);
    tu__text_printf(svg, "\"/>\n");
    for (int i = 0; i < f->y.tick_count; i++)
        draw_tick_label(svg, &f->y, f->y.ticks[i], f->left - 8, y_of(f, f->y.ticks[i]) + 4, "end");
    for (int i = 0; i < f->x.tick_count; i++)
        draw_tick_label(svg, &f->x, f->x.ticks[i], x_of(f, f->x.ticks[i]), bottom + 18, "middle");
    tu__svg_text(svg, f->left + PLOT_WIDTH / 2, bottom + 36, "soft", "middle", panel->x_label);
    if (!panel->y_label || !*panel->y_label) return;
    tu__text_printf(svg, "<g transform=\"translate(%d %d)rotate(-90)\">", f->left - LEFT + 14,
                    f->top + PLOT_HEIGHT / 2);
    tu__svg_text(svg, 0, 0, "soft", "middle", panel->y_label);
    tu__text_printf(svg, "</g>\n");
}

/* ---- Curves ---- */

/* State of a path. Points in the same pixel column are buffered until the next column starts; then the first, the
 * minimum, the maximum and the last of them are drawn, in their order. */
typedef struct pen {
    tu__text *svg;
    const frame *frame;
    const tu__curve *curve;
    bool drawing; /* the path continues; false: it starts again after a gap */
    bool has_buffered;
    int column;
    size_t buffered[4]; /* indices of the first, minimum, maximum and last point */
    size_t point_count; /* points since the path started */
} pen;

static void write_coordinate(tu__text *svg, double value) {
    tu__chart_fixed(svg, value, 1);
}

static void draw_point(pen *p, size_t i) {
    tu__text_append(p->svg, p->drawing ? "L" : "M", 1);
    write_coordinate(p->svg, x_of(p->frame, p->curve->x[i]));
    tu__text_append(p->svg, " ", 1);
    write_coordinate(p->svg, y_of(p->frame, p->curve->y[i]));
    p->drawing = true;
    p->point_count++;
}

static void draw_buffered(pen *p) {
    if (!p->has_buffered) return;
    p->has_buffered = false;
    size_t first = p->buffered[0], last = p->buffered[3];
    size_t early = p->buffered[1] < p->buffered[2] ? p->buffered[1] : p->buffered[2];
    size_t late = p->buffered[1] < p->buffered[2] ? p->buffered[2] : p->buffered[1];
    draw_point(p, first);
    if (early > first) draw_point(p, early);
    if (late > early) draw_point(p, late);
    if (last > late) draw_point(p, last);
}

static void finish_path(pen *p) {
    draw_buffered(p);
    if (p->point_count == 1)
        tu__text_append(p->svg, "h0", 2); /* a single point between two gaps: the round line cap shows it */
    p->drawing = false;
    p->point_count = 0;
}

static void add_point(pen *p, size_t i) {
    int column = (int)x_of(p->frame, p->curve->x[i]);
    if (p->has_buffered && column != p->column) draw_buffered(p);
    if (!p->has_buffered) {
        p->has_buffered = true;
        p->column = column;
        for (int k = 0; k < 4; k++) p->buffered[k] = i;
        return;
    }
    if (p->curve->y[i] < p->curve->y[p->buffered[1]]) p->buffered[1] = i;
    if (p->curve->y[i] > p->curve->y[p->buffered[2]]) p->buffered[2] = i;
    p->buffered[3] = i;
}

static void draw_dot(tu__text *svg, const frame *f, const tu__curve *curve, size_t i) {
    tu__text_printf(svg, "<circle class=\"dot\" r=\"2.6\" cx=\"");
    write_coordinate(svg, x_of(f, curve->x[i]));
    tu__text_printf(svg, "\" cy=\"");
    write_coordinate(svg, y_of(f, curve->y[i]));
    tu__text_printf(svg, "\"/>");
}

/* Returns the index of the last visible point; `count` if there is none. */
static size_t last_visible(const tu__panel *panel, const tu__curve *curve) {
    for (size_t i = curve->count; i-- > 0;)
        if (is_visible(panel, curve, i)) return i;
    return curve->count;
}

static void draw_curve(tu__text *svg, const tu__panel *panel, const frame *f, size_t index) {
    const tu__curve *curve = &panel->curves[index];
    size_t last = last_visible(panel, curve);
    if (last == curve->count) return;
    pen p = {.svg = svg, .frame = f, .curve = curve};
    tu__text_printf(svg, "<g class=\"c%d\"><path class=\"line%s\" d=\"", (int)(index % COLOURS),
                    curve->count > (size_t)2 * PLOT_WIDTH ? " fine" : "");
    for (size_t i = 0; i < curve->count; i++) {
        if (is_visible(panel, curve, i))
            add_point(&p, i);
        else
            finish_path(&p);
    }
    finish_path(&p);
    tu__text_printf(svg, "\"/>");
    for (size_t i = 0; curve->dots && i < last; i++)
        if (is_visible(panel, curve, i)) draw_dot(svg, f, curve, i);
    draw_dot(svg, f, curve, last);
    tu__text_printf(svg, "</g>\n");
}

/* ---- The legend ---- */

static int entry_width(const tu__curve *curve) {
    size_t count = tu__svg_letters(curve->label ? curve->label : "");
    return 24 + TU__SVG_LETTER * (int)(count < 40 ? count : 40) + 8 * TU__SVG_LETTER +
           12; /* line, label, value, gap */
}

/* Draws the legend; if `svg` is NULL, only counts its rows. Returns the number of rows. */
static int draw_legend(tu__text *svg, const tu__panel *panel, int left, int top) {
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

/* ---- Chart ---- */

static void draw_panel(tu__text *svg, const tu__panel *panel, int left, int top, int legend_rows) {
    frame f = frame_of(panel, left + LEFT, top + PANEL_TITLE + LEGEND_ROW * legend_rows);
    tu__svg_text(svg, f.left, top + 18, "ink name", "start", panel->title);
    draw_legend(svg, panel, f.left, top + PANEL_TITLE + 8);
    draw_axes(svg, panel, &f);
    bool has_points = false;
    for (size_t c = 0; c < panel->curve_count; c++) {
        draw_curve(svg, panel, &f, c);
        has_points = has_points || last_visible(panel, &panel->curves[c]) < panel->curves[c].count;
    }
    if (!has_points)
        tu__svg_text(svg, f.left + PLOT_WIDTH / 2, f.top + PLOT_HEIGHT / 2, "soft", "middle", "no data yet");
}

tu_status tu__chart_svg(tu__text *svg, const char *title, size_t panel_count, const tu__panel *panels) {
    int columns = panel_count < PANELS_PER_ROW ? (int)panel_count : PANELS_PER_ROW, legend_rows = 0;
    int rows = (int)((panel_count + PANELS_PER_ROW - 1) / PANELS_PER_ROW),
        title_height = title && *title ? TITLE : 0;
    for (size_t i = 0; i < panel_count; i++) {
        int rows_needed = draw_legend(NULL, &panels[i], 0, 0);
        if (rows_needed > legend_rows) legend_rows = rows_needed;
    }
    int panel_height = PANEL_TITLE + LEGEND_ROW * legend_rows + PLOT_HEIGHT + BOTTOM;
    int width = 2 * EDGE + PANEL_WIDTH * (columns ? columns : 1),
        height = 2 * EDGE + title_height + panel_height * rows;
    tu__svg_begin(svg, width, height, title);
    tu__svg_text(svg, EDGE + LEFT, EDGE + 16, "ink title", "start", title);
    for (size_t i = 0; i < panel_count; i++)
        draw_panel(svg, &panels[i], EDGE + PANEL_WIDTH * (int)(i % PANELS_PER_ROW),
                   EDGE + title_height + panel_height * (int)(i / PANELS_PER_ROW), legend_rows);
    return tu__svg_end(svg);
}
