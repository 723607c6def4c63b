/* Line charts as SVG. See chart.h.
 *
 * The picture is plain shapes and one style sheet; colours are in the sheet alone, twice, so that the page's light or
 * dark decides. The palette is Okabe and Ito's, which people with any colour vision can tell apart. Coordinates are
 * written in tenths of a pixel without printf's %f: a locale's decimal comma would break the file. Any bytes can be a
 * label: what XML cannot hold becomes U+FFFD. */
#include "io/chart.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "io/chart_axis.h"

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
    COLOURS = 6,
    LETTER = 7 /* about the width of one */
};

static const char style[] =
    "<style>"
    "svg{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif}"
    ".paper{fill:#fff}.ink{fill:#1f2328}.soft{fill:#656d76}"
    ".grid{stroke:#d8dee4;stroke-width:1;fill:none}.axis{stroke:#8c959f;stroke-width:1;fill:none}"
    ".title{font-size:16px;font-weight:600}.name{font-size:13px;font-weight:600}.last{font-weight:600}"
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}"
    ".fine{stroke-width:1}"
    ".c0{color:#0072b2}.c1{color:#d55e00}.c2{color:#009e73}.c3{color:#cc79a7}.c4{color:#b58900}.c5{color:#56b4e9}"
    ".line,.swatch{stroke:currentColor}.dot{fill:currentColor}"
    "@media(prefers-color-scheme:dark){"
    ".paper{fill:#0d1117}.ink{fill:#e6edf3}.soft{fill:#9198a1}.grid{stroke:#262c36}.axis{stroke:#656c76}"
    ".c0{color:#58a6ff}.c1{color:#f0883e}.c2{color:#3fb98f}.c3{color:#e29bc4}.c4{color:#e3b341}.c5{color:#9bd5f7}}"
    "</style>\n";

/* ---- Text ---- */

/* Whether XML 1.0 may hold the well-formed sequence at `s`. */
static bool is_xml(const char *s, size_t length) {
    unsigned char c = (unsigned char)*s;
    if (length == 1) return c >= 0x20 || c == '\t' || c == '\n' || c == '\r';
    return memcmp(s, "\xEF\xBF\xBE", 3) != 0 && memcmp(s, "\xEF\xBF\xBF", 3) != 0;
}

static void put_escaped(tu__text *svg, const char *text) {
    static const char *const entities[128] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    for (size_t left = strlen(text); left > 0;) {
        bool valid;
        size_t length = tu__utf8_length(text, left, &valid);
        unsigned char c = (unsigned char)*text;
        if (!valid || !is_xml(text, length))
            tu__text_append(svg, "\xEF\xBF\xBD", 3);
        else if (c < 128 && entities[c])
            tu__text_append(svg, entities[c], strlen(entities[c]));
        else
            tu__text_append(svg, text, length);
        text += length;
        left -= length;
    }
}

/* Characters, not bytes: what the width of a label depends on. */
static size_t letters(const char *text) {
    size_t count = 0;
    for (; *text; text++) count += ((unsigned char)*text & 0xC0) != 0x80;
    return count;
}

static void put_text(tu__text *svg, int x, int y, const char *class, const char *anchor, const char *text) {
    if (!text || !*text) return;
    tu__text_printf(svg, "<text x=\"%d\" y=\"%d\" class=\"%s\" text-anchor=\"%s\">", x, y, class, anchor);
    put_escaped(svg, text);
    tu__text_printf(svg, "</text>\n");
}

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
    put_text(svg, f->left + PLOT_WIDTH / 2, bottom + 36, "soft", "middle", panel->x_label);
    if (!panel->y_label || !*panel->y_label) return;
    tu__text_printf(svg, "<g transform=\"translate(%d %d)rotate(-90)\">", f->left - LEFT + 14,
                    f->top + PLOT_HEIGHT / 2);
    put_text(svg, 0, 0, "soft", "middle", panel->y_label);
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
    size_t count = letters(curve->label ? curve->label : "");
    return 24 + LETTER * (int)(count < 40 ? count : 40) + 8 * LETTER + 12; /* line, label, value, space */
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
            put_escaped(svg, curve->label ? curve->label : "");
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
    put_text(svg, f.left, top + 18, "ink name", "start", panel->title);
    put_legend(svg, panel, f.left, top + PANEL_TITLE + 8);
    put_axes(svg, panel, &f);
    bool any = false;
    for (size_t c = 0; c < panel->curve_count; c++) {
        put_curve(svg, panel, &f, c);
        any = any || last_visible(panel, &panel->curves[c]) < panel->curves[c].count;
    }
    if (!any)
        put_text(svg, f.left + PLOT_WIDTH / 2, f.top + PLOT_HEIGHT / 2, "soft", "middle",
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
    tu__text_printf(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "role=\"img\">\n<title>",
        width, height, width, height);
    put_escaped(svg, title ? title : "");
    tu__text_printf(svg, "</title>\n%s<rect class=\"paper\" width=\"%d\" height=\"%d\" rx=\"8\"/>\n", style,
                    width, height);
    put_text(svg, EDGE + LEFT, EDGE + 16, "ink title", "start", title);
    for (size_t i = 0; i < panel_count; i++)
        put_panel(svg, &panels[i], EDGE + PANEL_WIDTH * (int)(i % PANELS_A_ROW),
                  EDGE + above + panel_height * (int)(i / PANELS_A_ROW), legend_rows);
    tu__text_printf(svg, "</svg>\n");
    return svg->failed ? TU_NO_MEMORY : TU_OK;
}
