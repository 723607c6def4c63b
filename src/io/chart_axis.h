/* Axes of a chart: computes round ticks, their labels, and positions between 0 and 1 for a range of numbers. */
#ifndef TU__IO_CHART_AXIS_H
#define TU__IO_CHART_AXIS_H

#include <stdbool.h>

#include "base/text.h"

enum { TU__CHART_MAX_TICKS = 24 };

typedef struct tu__axis {
    bool logarithmic;
    double low, high; /* ends of the axis; greater than 0 if logarithmic */
    int tick_count;
    double ticks[TU__CHART_MAX_TICKS]; /* ascending, within the axis */
    double step;                       /* distance of the ticks of a linear axis */
} tu__axis;

/* Creates an axis for numbers from `low` to `high`, which may be in any order, equal or non-finite.
 * `extend_to_ticks` extends it to the next ticks. */
tu__axis tu__axis_of(double low, double high, bool logarithmic, bool extend_to_ticks);
/* Returns the position of a value: 0 at the low end, 1 at the high end, clamped. */
double tu__axis_position(const tu__axis *axis, double value);
/* Writes the shortest label that distinguishes the ticks: "0.25", "20k", "1e-5". Independent of the locale, like all
 * numbers of a chart. */
void tu__axis_label(tu__text *text, const tu__axis *axis, double tick);

/* Writes `value` with `decimals` decimals, including trailing zeros. */
void tu__chart_fixed(tu__text *text, double value, int decimals);
/* Writes `value` with four significant digits: "0.9123", "45.31", "1.234e-7"; "-" if it is not finite. */
void tu__chart_number(tu__text *text, double value);

#endif
