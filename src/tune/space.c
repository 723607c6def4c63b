/* Points of a space: scales, conditions, values as text. space_text.c makes spaces from text. */
#include "tune/space.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/choice.h"
#include "base/json.h"

void tu__space_free(tu__space *space) {
    tu__arena_free(&space->arena);
    *space = (tu__space){0};
}

/* ---- Numbers as text ---- */

bool tu__parse_number(const char *text, double *number) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    char *end = NULL;
    if (c == (locale_t)0) return false;
    /* strtod also accepts "inf", "nan", hexadecimal digits and space, which are no numbers here. */
    bool plain = *text && text[strspn(text, "+-0123456789.eE")] == '\0';
    *number = plain ? strtod_l(text, &end, c) : 0;
    freelocale(c);
    return plain && end != text && *end == '\0' && isfinite(*number);
}

void tu__format_number(double number, char text[TU__NUMBER_TEXT]) {
    tu__text written = {0};
    tu_json json = tu__json_to_text(&written);
    tu_json_f64(&json, NULL, number);
    size_t length = written.length < TU__NUMBER_TEXT ? written.length : TU__NUMBER_TEXT - 1;
    memcpy(text, tu__text_string(&written), length);
    text[length] = '\0';
    tu__text_free(&written);
}

/* ---- Conditions ---- */

bool tu__space_uses(const tu__space *space, size_t index, const tu__point *point) {
    const tu__parameter *p = &space->parameters[index];
    for (size_t i = 0; i < p->condition_count; i++) {
        double parent = point->value[p->conditions[i].parent];
        if (isnan(parent) || !(p->conditions[i].values >> (unsigned)parent & 1)) return false;
    }
    return true;
}

typedef struct allowed_values {
    uint64_t values[TU__MAX_PARAMETERS]; /* of the choices on which a parameter depends */
} allowed_values;

/* Intersects the values that parameter `index` needs of each choice, directly or through its parents, which come before it.
 * Returns the choice for which no value is left, or NULL. */
static const tu__parameter *require(const tu__space *space, size_t index, allowed_values *allowed) {
    bool needed[TU__MAX_PARAMETERS] = {false};
    needed[index] = true;
    for (size_t k = index + 1; k-- > 0;) {
        const tu__parameter *p = &space->parameters[k];
        for (size_t i = 0; needed[k] && i < p->condition_count; i++) {
            size_t parent = p->conditions[i].parent;
            needed[parent] = true;
            allowed->values[parent] &= p->conditions[i].values;
            if (!allowed->values[parent]) return &space->parameters[parent];
        }
    }
    return NULL;
}

tu_status tu__space_check(const tu__space *space) {
    if (space->count == 0)
        return tu_fail(TU_INVALID, "the space is empty: expected parameters, as in --try rate=log:1e-4:1");
    for (size_t i = 0; i < space->count; i++) {
        allowed_values allowed;
        for (size_t k = 0; k < TU__MAX_PARAMETERS; k++) allowed.values[k] = UINT64_MAX;
        const tu__parameter *contradiction = require(space, i, &allowed);
        if (contradiction)
            return tu_fail(
                TU_INVALID,
                "parameter '%s' is never used: its conditions allow no value of '%s' (conditions of "
                "the parameters that it depends on included)",
                space->parameters[i].name, contradiction->name);
    }
    return TU_OK;
}

/* ---- Scales ---- */

int64_t tu__parameter_values(const tu__parameter *p) {
    if (p->choice_count) return (int64_t)p->choice_count;
    if (p->points) return p->points;
    double values = p->high - p->low + 1;
    return p->low == p->high ? 1 : p->whole && values <= 1e15 ? (int64_t)values : 0;
}

/* The scale from 0 to 1 between `low` and `high`. */
static double on_scale(const tu__parameter *p, double low, double high, double unit) {
    if (!p->logarithmic) return low + unit * (high - low);
    return exp(log(low) + unit * (log(high) - log(low)));
}

static double from_scale(const tu__parameter *p, double low, double high, double value) {
    if (!p->logarithmic) return (value - low) / (high - low);
    return (log(value) - log(low)) / (log(high) - log(low));
}

static double clamp(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

static double nth_point(const tu__parameter *p, double n) {
    double value = p->points > 1 ? on_scale(p, p->low, p->high, n / (double)(p->points - 1)) : p->low;
    return clamp(p->whole ? round(value) : value, p->low, p->high);
}

double tu__parameter_value(const tu__parameter *p, double unit) {
    double count = (double)tu__parameter_values(p);
    if (p->choice_count) return clamp(floor(unit * count), 0, count - 1);
    if (p->points) return nth_point(p, clamp(floor(unit * count), 0, count - 1));
    if (p->low == p->high) return p->low;
    if (p->whole) /* each value is the middle of a share of width 1 */
        return clamp(round(on_scale(p, p->low - 0.5, p->high + 0.5, unit)), p->low, p->high);
    return clamp(on_scale(p, p->low, p->high, unit), p->low, p->high);
}

double tu__parameter_unit(const tu__parameter *p, double value) {
    double count = (double)tu__parameter_values(p);
    if (p->choice_count) return (value + 0.5) / count;
    if (p->low == p->high) return 0.5;
    if (p->points) return (round(from_scale(p, p->low, p->high, value) * (count - 1)) + 0.5) / count;
    if (p->whole) return clamp(from_scale(p, p->low - 0.5, p->high + 0.5, value), 0, 1);
    return clamp(from_scale(p, p->low, p->high, value), 0, 1);
}

/* Points that are rounded to the same integer count once. */
bool tu__parameter_next(const tu__parameter *p, double *value) {
    double next = *value + 1, last = p->choice_count ? (double)p->choice_count - 1 : p->high;
    if (!p->choice_count && p->points) {
        double n = floor(from_scale(p, p->low, p->high, *value) * (double)(p->points - 1)) - 1;
        for (n = fmax(n, 0); n < (double)p->points && nth_point(p, n) <= *value;) n++;
        if (n >= (double)p->points) return false;
        next = nth_point(p, n);
    }
    if (next > last) return false;
    *value = next;
    return true;
}

/* ---- Values as text ---- */

void tu__parameter_format(const tu__parameter *p, double value, tu__text *text) {
    char number[TU__NUMBER_TEXT];
    if (p->choice_count) {
        const char *choice = p->choices[(size_t)value];
        tu__text_append(text, choice, strlen(choice));
        return;
    }
    tu__format_number(value, number);
    tu__text_append(text, number, strlen(number));
}

tu_status tu__parameter_parse(const tu__parameter *p, const char *text, double *value) {
    for (size_t i = 0; i < p->choice_count; i++)
        if (strcmp(p->choices[i], text) == 0) {
            *value = (double)i;
            return TU_OK;
        }
    if (p->choice_count)
        return tu__fail_unknown_choice(TU_INVALID, p->name, text, p->choice_count, p->choices);
    if (!tu__parse_number(text, value) || *value < p->low || *value > p->high)
        return tu_fail(TU_INVALID, "%s '%.60s': expected a number from %.10g to %.10g", p->name, text, p->low,
                       p->high);
    return TU_OK;
}
