/* Axes with round ticks: multiples of 1, 2 or 5 times a power of ten.
 *
 * Whatever numbers come in, an axis has a length: its ends are finite, apart from each other by more than rounding, and
 * it has at most a dozen ticks, so that no loop here depends on the data. */
#include "io/chart_axis.h"

#include <math.h>

/* Ends beyond this would overflow on the way to a place; ranges below the second are noise of rounding. */
static const double LARGEST = 1e300, SMALLEST_SHARE = 1e-9;

/* ---- Ranges ---- */

static double finite_or(double value, double otherwise) {
    if (!isfinite(value)) return otherwise;
    return fmin(fmax(value, -LARGEST), LARGEST);
}

static void widen_linear(tu__axis *axis) {
    double size = fmax(fabs(axis->low), fabs(axis->high));
    if (axis->high - axis->low > SMALLEST_SHARE * size && axis->high - axis->low > 1 / LARGEST) return;
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

static const double factors_of_ten[] = {1, 2, 5};

/* The smallest of 1, 2, 5 times a power of ten that is not below `size`. */
static double round_up(double size) {
    double power = pow(10, floor(log10(size)));
    for (int i = 0; i < 3; i++)
        if (factors_of_ten[i] * power >= size * (1 - 1e-9)) return factors_of_ten[i] * power;
    return 10 * power;
}

static void add_tick(tu__axis *axis, double tick) {
    if (axis->tick_count < TU__CHART_MAX_TICKS) axis->ticks[axis->tick_count++] = tick;
}

static void tick_linear(tu__axis *axis, bool loose) {
    double step = round_up(axis->high / 5 - axis->low / 5);
    double low = axis->low / step,
           high = axis->high / step; /* counted in steps: a range is not far from zero */
    int64_t first = (int64_t)(loose ? floor(low + 1e-6) : ceil(low - 1e-6));
    int64_t last = (int64_t)(loose ? ceil(high - 1e-6) : floor(high + 1e-6));
    axis->step = step;
    for (int64_t i = first; i <= last; i++) add_tick(axis, (double)i * step);
    if (loose) {
        axis->low = (double)first * step;
        axis->high = (double)last * step;
    }
}

/* Lengthens the axis to the next ticks: `each` of 1, 2 and 5 times every power of ten. */
static void loosen_logarithmic(tu__axis *axis, int each) {
    int first = (int)floor(log10(axis->low)), last = (int)ceil(log10(axis->high));
    double below = 0, above = 0;
    for (int power = first; power <= last; power++)
        for (int i = 0; i < each; i++) {
            double tick = factors_of_ten[i] * pow(10, power);
            if (tick <= axis->low * (1 + 1e-9)) below = tick;
            if (tick >= axis->high * (1 - 1e-9) && above == 0) above = tick;
        }
    if (below > 0) axis->low = below;
    if (above > 0) axis->high = above;
}

/* The ticks 1, 2 and 5 of each power of ten on a short axis, every nth power alone on a long one. */
static void tick_logarithmic(tu__axis *axis, bool loose) {
    double decades = log10(axis->high) - log10(axis->low);
    int each = decades < 3 ? 3 : 1, stride = decades > 8 ? (int)ceil(decades / 8) : 1;
    if (loose) loosen_logarithmic(axis, each);
    int first = (int)floor(log10(axis->low)), last = (int)ceil(log10(axis->high));
    for (int power = first; power <= last; power += stride)
        for (int i = 0; i < each; i++) {
            double tick = factors_of_ten[i] * pow(10, power);
            if (tick >= axis->low * (1 - 1e-9) && tick <= axis->high * (1 + 1e-9)) add_tick(axis, tick);
        }
}

tu__axis tu__axis_of(double low, double high, bool logarithmic, bool loose) {
    tu__axis axis = {.logarithmic = logarithmic};
    low = finite_or(low, logarithmic ? 0.1 : 0);
    high = finite_or(high, 1);
    axis.low = fmin(low, high);
    axis.high = fmax(low, high);
    (logarithmic ? widen_logarithmic : widen_linear)(&axis);
    (logarithmic ? tick_logarithmic : tick_linear)(&axis, loose);
    return axis;
}

double tu__axis_place(const tu__axis *axis, double value) {
    double place;
    if (axis->logarithmic)
        place = value > 0 ? (log10(value) - log10(axis->low)) / (log10(axis->high) - log10(axis->low)) : 0;
    else
        place = (value / 2 - axis->low / 2) / (axis->high / 2 - axis->low / 2);
    return fmin(fmax(place, 0), 1);
}

/* ---- Numbers as text ---- */

void tu__chart_fixed(tu__text *text, double value, int decimals) {
    double scale = pow(10, decimals);
    long long scaled = llround(fmin(fabs(value) * scale, 9e18));
    long long unit = (long long)scale;
    tu__text_printf(text, "%s%lld", value < 0 && scaled > 0 ? "-" : "", scaled / unit);
    if (decimals > 0) tu__text_printf(text, ".%0*lld", decimals, scaled % unit);
}

/* Decimals that show `digits` of a number of this size: 3 for 0.123 and three digits. */
static int decimals_for(double size, int digits) {
    int decimals = digits - 1 - (int)floor(log10(size));
    return decimals < 0 ? 0 : decimals;
}

/* The fewest decimals, up to `most`, that say the same. */
static int without_zeros(double value, int most) {
    for (int decimals = 0; decimals < most; decimals++) {
        double scaled = value * pow(10, decimals);
        if (fabs(scaled - round(scaled)) < 0.5 * pow(10, decimals - most)) return decimals;
    }
    return most;
}

static void put_scientific(tu__text *text, double value, int digits) {
    double power = floor(log10(fabs(value)));
    double mantissa = value / pow(10, power);
    if (fabs(mantissa) >= 10 - 0.5 * pow(10, 1 - digits)) {
        mantissa /= 10;
        power++;
    }
    tu__chart_fixed(text, mantissa, without_zeros(mantissa, digits - 1));
    tu__text_printf(text, "e%d", (int)power);
}

void tu__chart_number(tu__text *text, double value) {
    double size = fabs(value);
    if (!isfinite(value))
        tu__text_append(text, "-", 1);
    else if (size == 0)
        tu__text_append(text, "0", 1);
    else if (size < 1e-4 || size >= 1e6)
        put_scientific(text, value, 4);
    else
        tu__chart_fixed(text, value, without_zeros(value, decimals_for(size, 4)));
}

void tu__axis_label(tu__text *text, const tu__axis *axis, double tick) {
    double size = fabs(tick), most = fmax(fabs(axis->low), fabs(axis->high)), step = axis->step;
    if (axis->logarithmic) most = step = size; /* each tick for itself */
    if (size == 0) {
        tu__text_append(text, "0", 1);
    } else if (most >= 1e9 || step < 1e-4) {
        put_scientific(text, tick, 4);
    } else if (most >= 1e4 && size >= 1e3) {
        double unit = most >= 1e6 && size >= 1e6 ? 1e6 : 1e3;
        tu__chart_fixed(text, tick / unit, without_zeros(tick / unit, decimals_for(step / unit, 1)));
        tu__text_append(text, unit > 1e3 ? "M" : "k", 1);
    } else {
        int decimals = decimals_for(step * (1 + 1e-9), 1);
        tu__chart_fixed(text, tick, axis->logarithmic ? without_zeros(tick, decimals) : decimals);
    }
}
