/* Line charts as self-contained SVG text, readable on light and dark pages: curves.svg of a run folder. */
#ifndef TU__IO_CHART_H
#define TU__IO_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

typedef struct tu__curve {
    const char *label;
    size_t count;
    const double *x, *y; /* points with a non-finite y leave a gap */
    bool dots;           /* draw a dot at each point; for curves of few points */
} tu__curve;

typedef struct tu__panel {
    const char *title, *x_label, *y_label;
    bool logarithmic; /* logarithmic y axis */
    size_t curve_count;
    const tu__curve *curves;
} tu__panel;

/* Draws panels next to each other, with axes, round ticks, a legend and the last value of each curve. Curves of many
 * points are thinned: the minimum and the maximum of each pixel column are kept. */
tu_status tu__chart_svg(tu__text *svg, const char *title, size_t panel_count, const tu__panel *panels);

#endif
