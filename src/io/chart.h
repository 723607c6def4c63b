/* Line charts as SVG: how curves.svg of a run folder is drawn. Self-contained text, readable on a light or a dark page. */
#ifndef TU__IO_CHART_H
#define TU__IO_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"

typedef struct tu__curve {
    const char *label;
    size_t count;
    const double *x, *y; /* y that is not finite leaves a gap */
    bool dots;           /* a few points, each drawn */
} tu__curve;

typedef struct tu__panel {
    const char *title, *x_label, *y_label;
    bool logarithmic; /* y */
    size_t curve_count;
    const tu__curve *curves;
} tu__panel;

/* Panels beside each other, with axes, round ticks, a legend and the last value of each curve. Curves of many points
 * are thinned to what can be seen: least and most of each pixel column stay. */
tu_status tu__chart_svg(tu__text *svg, const char *title, size_t panel_count, const tu__panel *panels);

#endif
