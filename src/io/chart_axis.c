/* Axes with round ticks: multiples of 1, 2 or 5 times a power of ten.
 *
 * For any input an axis is valid: its ends are finite and differ by more than rounding errors, and it has at most
 * TU__CHART_MAX_TICKS ticks. */
#include "io/chart_axis.h"

#include <math.h>

/* Ends beyond MAX_END would overflow when positions are computed. Ranges below MIN_RELATIVE_RANGE times the largest
 * number are rounding noise. */
static const double MAX_END = 1e300, MIN_RELATIVE_RANGE = 1e-9;

/* ---- Ranges ---- */

static double clamp_finite(double value, double fallback) {
    if (!isfinite(value)) return fallback;
    return fmin(fmax(value, -MAX_END), MAX_END);
}

static void widen_linear(tu__axis *axis) {
    double size = fmax(fabs(axis->low), fabs(axis->high));
    if (axis->high - axis->low > MIN_RELATIVE_RANGE * size && axis->high - axis->low > 1 / MAX_END) return;
    double middle = axis->low / 2 + axis->high / 2, half = size > 1e-290 ? 0.1 * size : 0.5;
    axis->low = middle - half;
    axis->high = middle + half;
}

static void widen_logarithmic(tu__axis *axis) {
    if (!(axis->high > 0)) axis->high = 1;
    axis->high = fmax(axis->high, 1e-290);
    if (!(axis->low > 0)) axis->low = axis->high / 10;
    axis->low = fmax(axis->low, 1e-300);
    if (axis->high / axis->low > 1.001) return;
    axis->low /= 1.25;
    axis->high *= 1.25;
}

/* ---- Ticks ---- */

static const double tick_factors[] = {1, 2, 5};

/* Returns the smallest of 1, 2 and 5 times a power of ten that is at least `size`. */
static double round_up_tick(double size) {
    double power = pow(10, floor(log10(size)));
    for (int i = 0; i < 3; i++)
        if (tick_factors[i] * power >= size * (1 - 1e-9)) return tick_factors[i] * power;
    return 10 * power;
}

static void add_tick(tu__axis *axis, double tick) {
    if (axis->tick_count < TU__CHART_MAX_TICKS) axis->ticks[axis->tick_count++] = tick;
}

static void add_linear_ticks(tu__axis *axis, bool extend_to_ticks) {
    double step = round_up_tick(axis->high / 5 - axis->low / 5);
    double low = axis->low / step, high = axis->high / step; /* in units of `step` */
    int64_t first = (int64_t)(extend_to_ticks ? floor(low + 1e-6) : ceil(low - 1e-6));
    int64_t last = (int64_t)(extend_to_ticks ? ceil(high - 1e-6) : floor(high + 1e-6));
    axis->step = step;
    for (int64_t i = first; i <= last; i++) add_tick(axis, (double)i * step);
    if (extend_to_ticks) {
        axis->low = (double)first * step;
        axis->high = (double)last * step;
    }
}

/* Extends the axis to the next ticks: the first `per_decade` of 1, 2 and 5 times every power of ten. */
static void extend_logarithmic(tu__axis *axis, int per_decade) {
    int first = (int)floor(log10(axis->low)), last = (int)ceil(log10(axis->high));
    double below = 0, above = 0;
    for (int power = first; power <= last; power++)
        for (int i = 0; i < per_decade; i++) {
            double tick = tick_factors[i] * pow(10, power);
            if (tick <= axis->low * (1 + 1e-9)) below = tick;
            if (tick >= axis->high * (1 - 1e-9) && above == 0) above = tick;
        }
    if (below > 0) axis->low = below;
    if (above > 0) axis->high = above;
}

/* Adds 1, 2 and 5 times each power of ten on a short axis, only every nth power of ten on a long one. */
static void add_logarithmic_ticks(tu__axis *axis, bool extend_to_ticks) {
    double decades = log10(axis->high) - log10(axis->low);
    int per_decade = decades < 3 ? 3 : 1, stride = decades > 8 ? (int)ceil(decades / 8) : 1;
    if (extend_to_ticks) extend_logarithmic(axis, per_decade);
    int first = (int)floor(log10(axis->low)), last = (int)ceil(log10(axis->high));
    for (int power = first; power <= last; power += stride)
        for (int i = 0; i < per_decade; i++) {
            double tick = tick_factors[i] * pow(10, power);
            if (tick >= axis->low * (1 - 1e-9) && tick <= axis->high * (1 + 1e-9)) add_tick(axis, tick);
        }
}

tu__axis tu__axis_of(double low, double high, bool logarithmic, bool extend_to_ticks) {
    tu__axis axis = {.logarithmic = logarithmic};
    low = clamp_finite(low, logarithmic ? 0.1 : 0);
    high = clamp_finite(high, 1);
    axis.low = fmin(low, high);
    axis.high = fmax(low, high);
    (logarithmic ? widen_logarithmic : widen_linear)(&axis);
    (logarithmic ? add_logarithmic_ticks : add_linear_ticks)(&axis, extend_to_ticks);
    return axis;
}

double tu__axis_position(const tu__axis *axis, double value) {
    double position;
    if (axis->logarithmic)
        position = value > 0 ? (log10(value) - log10(axis->low)) / (log10(axis->high) - log10(axis->low)) : 0;
    else
        position = (value / 2 - axis->low / 2) / (axis->high / 2 - axis->low / 2);
    return fmin(fmax(position, 0), 1);
}

/* ---- Numbers as text ---- */

void tu__chart_fixed(tu__text *text, double value, int decimals) {
    double scale = pow(10, decimals);
    long long scaled = llround(fmin(fabs(value) * scale, 9e18));
    long long unit = (long long)scale;
    tu__text_printf(text, "%s%lld", value < 0 && scaled > 0 ? "-" : "", scaled / unit);
    if (decimals > 0) tu__text_printf(text, ".%0*lld", decimals, scaled % unit);
}

/* Returns the decimals needed to show `digits` significant digits of a number of this size: 3 for 0.123 and three
 * digits. */
static int decimals_for(double size, int digits) {
    int decimals = digits - 1 - (int)floor(log10(size));
    return decimals < 0 ? 0 : decimals;
}

/* Returns the fewest decimals, at most `max_decimals`, that show the same number. */
static int needed_decimals(double value, int max_decimals) {
    for (int decimals = 0; decimals < max_decimals; decimals++) {
        double scaled = value * pow(10, decimals);
        if (fabs(scaled - round(scaled)) < 0.5 * pow(10, decimals - max_decimals)) return decimals;
    }
    return max_decimals;
}

static void write_scientific(tu__text *text, double value, int digits) {
    double power = floor(log10(fabs(value)));
    double mantissa = value / pow(10, power);
    if (fabs(mantissa) >= 10 - 0.5 * pow(10, 1 - digits)) {
        mantissa /= 10;
        power++;
    }
    tu__chart_fixed(text, mantissa, needed_decimals(mantissa, digits - 1));
    tu__text_printf(text, "e%d", (int)power);
}

void tu__chart_number(tu__text *text, double value) {
    double size = fabs(value);
    if (!isfinite(value))
        tu__text_append(text, "-", 1);
    else if (size == 0)
        tu__text_append(text, "0", 1);
    else if (size < 1e-4 || size >= 1e6)
        write_scientific(text, value, 4);
    else
        tu__chart_fixed(text, value, needed_decimals(value, decimals_for(size, 4)));
}

void tu__axis_label(tu__text *text, const tu__axis *axis, double tick) {
    double size = fabs(tick), largest = fmax(fabs(axis->low), fabs(axis->high)), step = axis->step;
    if (axis->logarithmic) largest = step = size; /* format each tick independently */
    if (size == 0) {
        tu__text_append(text, "0", 1);
    } else if (largest >= 1e9 || step < 1e-4) {
        write_scientific(text, tick, 4);
    } else if (largest >= 1e4 && size >= 1e3) {
        double unit = largest >= 1e6 && size >= 1e6 ? 1e6 : 1e3;
        tu__chart_fixed(text, tick / unit, needed_decimals(tick / unit, decimals_for(step / unit, 1)));
        tu__text_append(text, unit > 1e3 ? "M" : "k", 1);
    } else {
        int decimals = decimals_for(step * (1 + 1e-9), 1);
        tu__chart_fixed(text, tick, axis->logarithmic ? needed_decimals(tick, decimals) : decimals);
    }
}
