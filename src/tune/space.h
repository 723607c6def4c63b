/* The space of a study: named parameters, their values, and conditions under which a parameter is used.
 *
 * A parameter is a number between bounds, on a linear or logarithmic scale, or a choice from a list. Its text is
 *
 *     LOW:HIGH              a number                     momentum=0.5:0.99
 *     log:LOW:HIGH          on a logarithmic scale       rate=log:1e-4:1
 *     int:LOW:HIGH          a whole number               warmup=int:0:500
 *     LOW:HIGH/N            one of N numbers, evenly spaced on the scale
 *     A|B|C                 a choice                     batch=64|128|256
 *     … if NAME=A|B         used only if the choice NAME is A or B; more conditions follow "and"
 *
 * A file has a line "NAME = TEXT" for each parameter; lines that begin with '#' are comments.
 *
 * A point has one number for each parameter: the value, the index of a choice, or NaN if the parameter is not used. The
 * condition of a parameter names choices before it, so that a point is made parameter by parameter. */
#ifndef TU__TUNE_SPACE_H
#define TU__TUNE_SPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

#include "base/arena.h"
#include "base/text.h"

enum {
    TU__MAX_PARAMETERS = 64,
    TU__MAX_CHOICES = 64,        /* a set of choices is a bit mask */
    TU__MAX_CONDITIONS = 8,      /* of a parameter */
    TU__MAX_PARAMETER_NAME = 60, /* bytes */
    TU__NUMBER_TEXT = 40,        /* bytes of a number as text */
};

typedef struct tu__condition {
    size_t parent;   /* index of a choice, before the parameter */
    uint64_t values; /* bit i: the parameter is used if the choice has value i */
} tu__condition;

typedef struct tu__parameter {
    const char *name;
    bool logarithmic, whole; /* of a number */
    double low, high;        /* of a number; both are values */
    int64_t points;          /* a number has so many values; 0: not limited */
    size_t choice_count;     /* 0: a number */
    const char *const *choices;
    size_t condition_count; /* all must hold */
    const tu__condition *conditions;
} tu__parameter;

typedef struct tu__space {
    tu__arena arena;
    size_t count;
    tu__parameter parameters[TU__MAX_PARAMETERS];
} tu__space;

typedef struct tu__point {
    double value[TU__MAX_PARAMETERS];
} tu__point;

/* ---- Making a space ---- */

/* Adds the parameter "NAME=TEXT". Fails for a name that exists, empty or reversed ranges, and conditions on an unknown
 * parameter, on a number or on a value that the choice does not have. */
tu_status tu__space_add(tu__space *space, const char *text);
/* Adds the parameters of a text with a line for each, or of a file. Messages begin with its name and the line. */
tu_status tu__space_add_lines(tu__space *space, const char *name, const char *lines);
tu_status tu__space_add_file(tu__space *space, const char *path);
/* Makes numbers whole, whose values are counts: a parameter becomes whole without "int:". Fails if a bound or a choice is
 * not. */
tu_status tu__space_make_whole(tu__parameter *parameter);
/* Fails if the conditions of a parameter contradict each other, so that it is never used. */
tu_status tu__space_check(const tu__space *space);
void tu__space_free(tu__space *space);

/* Writes the parameter, or all of them a line each, as text that makes the same space. */
void tu__parameter_print(const tu__space *space, const tu__parameter *parameter, tu__text *text);
void tu__space_print(const tu__space *space, tu__text *text);

/* ---- Points ---- */

/* True if the conditions of parameter `index` hold; the point has values for all parameters before it. */
bool tu__space_uses(const tu__space *space, size_t index, const tu__point *point);
/* Returns the value at `unit` in [0, 1) of the parameter's scale, and where on the scale a value is. All values of a whole
 * number, and all choices, have equal shares. */
double tu__parameter_value(const tu__parameter *parameter, double unit);
double tu__parameter_unit(const tu__parameter *parameter, double value);
/* Moves to the next larger value, of a parameter with a number of values; false after the last. */
bool tu__parameter_next(const tu__parameter *parameter, double *value);
/* Returns the number of values, or more: integers on a logarithmic scale may coincide; 0: not limited. */
int64_t tu__parameter_values(const tu__parameter *parameter);

/* A value as text and back. Choices are their text; fails for a text that is no value of the parameter. */
void tu__parameter_format(const tu__parameter *parameter, double value, tu__text *text);
tu_status tu__parameter_parse(const tu__parameter *parameter, const char *text, double *value);

/* Parses a number with a decimal point, in every locale; false if the whole text is not one finite number. */
bool tu__parse_number(const char *text, double *number);
/* Writes the fewest digits that read back as the same number. */
void tu__format_number(double number, char text[TU__NUMBER_TEXT]);

#endif
