/* The axes of a chart: from the range of some numbers to round ticks, their labels, and places between 0 and 1. */
#ifndef TU__IO_CHART_AXIS_H
#define TU__IO_CHART_AXIS_H

#include <stdbool.h>

#include "base/text.h"

enum { TU__CHART_MAX_TICKS = 24 };

typedef struct tu__axis {
    bool logarithmic;
    double low, high; /* of the axis; on a logarithmic one greater than 0 */
    int tick_count;
    double ticks[TU__CHART_MAX_TICKS]; /* rising, within the axis */
    double step;                       /* between the ticks of a linear axis */
} tu__axis;

/* An axis for numbers from `low` to `high`, which need not be in order, finite, or different. `loose` lengthens it to
 * the next ticks. */
tu__axis tu__axis_of(double low, double high, bool logarithmic, bool loose);
/* 0 at the low end, 1 at the high end, never beyond. */
double tu__axis_place(const tu__axis *axis, double value);
/* As short as tells ticks apart: "0.25", "20k", "1e-5". Independent of the locale, like all numbers of a chart. */
void tu__axis_label(tu__text *text, const tu__axis *axis, double tick);

/* `value` with so many decimals, trailing zeros kept. */
void tu__chart_fixed(tu__text *text, double value, int decimals);
/* `value` with four significant digits: "0.9123", "45.31", "1.234e-7"; "-" for what is not finite. */
void tu__chart_number(tu__text *text, double value);

#endif
