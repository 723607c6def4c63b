/* Confusion matrices as SVG. See chart_matrix.h.
 *
 * Squares shrink with the number of classes, down to two pixels, so that a matrix of a thousand classes still fits.
 * Zeros are not drawn, so that the file size depends on the number of images, not on the square of the number of
 * classes. */
#include "io/chart_matrix.h"

#include <inttypes.h>
#include <stdio.h>

#include "io/chart_axis.h"
#include "io/svg.h"

/* Pixels. */
enum {
    EDGE = 16,       /* outer margin */
    HEADING = 56,    /* title and subtitle */
    AXIS_TITLE = 24, /* title of rows and of columns */
    GAP = 6,         /* between a label and its row */
    MAX_SIDE = 520,  /* of the matrix, unless squares would become too small */
    MIN_CELL = 2,
    MAX_CELL = 44,
    LABEL_MIN_CELL = 11,  /* minimum cell size to label rows and columns */
    NUMBER_MIN_CELL = 26, /* minimum cell size to show numbers inside */
    MAX_LABEL = 16,       /* characters */
    MIN_WIDTH = 360       /* of the drawing: room for the heading */
};

static const double dark = 0.55; /* squares at least this dark have their number in the background colour */

typedef struct layout {
    int cell, side;    /* size of a square, of the matrix */
    int left, top;     /* position of the matrix */
    int width, height; /* size of the drawing */
    bool labelled, numbered;
} layout;

/* The first characters of a label, as many as fit. */
typedef struct short_label {
    char text[4 * MAX_LABEL + 4];
} short_label;

static short_label shorten_label(const char *label) {
    short_label s = {""};
    size_t used = 0, seen = 0;
    for (; label[used] && used < sizeof s.text - 4; used++) {
        bool is_first_byte = ((unsigned char)label[used] & 0xC0) != 0x80;
        if (is_first_byte && ++seen > MAX_LABEL) break;
        s.text[used] = label[used];
    }
    s.text[used] = '\0';
    return s;
}

static int clamp(int64_t value, int low, int high) {
    return value < low ? low : value > high ? high : (int)value;
}

static layout layout_of(const tu__matrix *m) {
    layout l = {.cell = clamp(MAX_SIDE / (m->size ? m->size : 1), MIN_CELL, MAX_CELL)};
    l.labelled = l.cell >= LABEL_MIN_CELL;
    l.numbered = l.cell >= NUMBER_MIN_CELL;
    size_t longest = 0;
    for (int64_t i = 0; i < m->size && l.labelled; i++) {
        size_t count = tu__svg_letters(shorten_label(m->labels[i]).text);
        if (count > longest) longest = count;
    }
    int labels = l.labelled ? TU__SVG_LETTER * (int)longest + GAP : 0;
    l.side = l.cell * (int)m->size;
    l.left = EDGE + AXIS_TITLE + labels;
    l.top = EDGE + HEADING + AXIS_TITLE + labels;
    l.width = l.left + l.side + EDGE;
    if (l.width < MIN_WIDTH) l.width = MIN_WIDTH;
    l.height = l.top + l.side + EDGE;
    return l;
}

/* ---- Title, labels and frame ---- */

static void draw_rotated(tu__text *svg, int x, int y, const char *class, const char *anchor,
                         const char *text) {
    tu__text_printf(svg, "<g transform=\"translate(%d %d)rotate(-90)\">", x, y);
    tu__svg_text(svg, 0, 0, class, anchor, text);
    tu__text_printf(svg, "</g>\n");
}

static void draw_labels(tu__text *svg, const tu__matrix *m, const layout *l) {
    for (int64_t i = 0; i < m->size && l->labelled; i++) {
        short_label label = shorten_label(m->labels[i]);
        int middle = l->cell * (int)i + l->cell / 2 + 4;
        tu__svg_text(svg, l->left - GAP, l->top + middle, "ink", "end", label.text);
        draw_rotated(svg, l->left + middle, l->top - GAP, "ink", "start", label.text);
    }
}

static void draw_frame(tu__text *svg, const tu__matrix *m, const layout *l) {
    tu__svg_text(svg, EDGE, EDGE + 16, "ink title", "start", m->title);
    tu__svg_text(svg, EDGE, EDGE + 38, "soft", "start", m->subtitle);
    tu__svg_text(svg, l->left + l->side / 2, EDGE + HEADING + 12, "soft", "middle", m->column_title);
    draw_rotated(svg, EDGE + 12, l->top + l->side / 2, "soft", "middle", m->row_title);
    tu__text_printf(svg, "<path class=\"axis\" d=\"M%d.5 %d.5h%dv%dh-%dz\"/>\n", l->left, l->top, l->side,
                    l->side, l->side);
}

/* ---- The squares ---- */

static void write_tooltip(tu__text *svg, const tu__matrix *m, int64_t row, int64_t column, int64_t images) {
    tu__text_printf(svg, "<title>");
    tu__svg_escaped(svg, m->labels[row]);
    tu__text_printf(svg, " \xE2\x86\x92 "); /* an arrow */
    tu__svg_escaped(svg, m->labels[column]);
    tu__text_printf(svg, ": %" PRId64 " of %" PRId64 "</title>", m->counts[row * m->size + column], images);
}

static void draw_number(tu__text *svg, const layout *l, int x, int y, int64_t count, double fraction) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, count);
    bool fits = (int)tu__svg_letters(text) * TU__SVG_LETTER <= l->cell;
    if (l->numbered && fits)
        tu__svg_text(svg, x + l->cell / 2, y + l->cell / 2 + 4, fraction >= dark ? "paper" : "ink", "middle",
                     text);
}

static void draw_square(tu__text *svg, const tu__matrix *m, const layout *l, int64_t row, int64_t column,
                        int64_t images) {
    int64_t count = m->counts[row * m->size + column];
    int x = l->left + l->cell * (int)column, y = l->top + l->cell * (int)row;
    double fraction = (double)count / (double)images;
    tu__text_printf(
        svg, "<g class=\"c%d\"><rect class=\"dot\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" opacity=\"",
        row == column ? 0 : 1, x, y, l->cell, l->cell);
    tu__chart_fixed(svg, 0.06 + 0.94 * fraction,
                    2); /* minimum opacity, so that a single image among thousands is visible */
    tu__text_printf(svg, "\">");
    write_tooltip(svg, m, row, column, images);
    tu__text_printf(svg, "</rect></g>\n");
    draw_number(svg, l, x, y, count, fraction);
}

static void draw_row(tu__text *svg, const tu__matrix *m, const layout *l, int64_t row) {
    int64_t images = 0;
    for (int64_t k = 0; k < m->size; k++) images += m->counts[row * m->size + k];
    for (int64_t k = 0; k < m->size; k++)
        if (m->counts[row * m->size + k] > 0) draw_square(svg, m, l, row, k, images);
}

tu_status tu__matrix_svg(tu__text *svg, const tu__matrix *m) {
    layout l = layout_of(m);
    tu__svg_begin(svg, l.width, l.height, m->title);
    for (int64_t row = 0; row < m->size; row++) draw_row(svg, m, &l, row);
    draw_frame(svg, m, &l);
    draw_labels(svg, m, &l);
    return tu__svg_end(svg);
}
