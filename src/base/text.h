/* A growable string: what the printer, the JSON writer and error messages are composed in.
 *
 * Appending never needs a check at each call: when memory runs out `failed` is set, later appends do nothing, and
 * whoever hands the text on looks at the flag once. */
#ifndef TU__BASE_TEXT_H
#define TU__BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include <tutti/types.h>

#include "base/shared.h"

typedef struct tu__text {
    char *data; /* NUL-terminated once anything was appended; see tu__text_string */
    size_t length, capacity;
    bool failed;
} tu__text;

TU__SHARED void tu__text_append(tu__text *text, const char *bytes, size_t length);
TU__SHARED void tu__text_printf(tu__text *text, const char *format, ...) TU_PRINTF(2, 3);
/* "f32[8,24,24,3]" */
TU__SHARED void tu__text_type(tu__text *text, tu_type type);
/* "[8,24,24,3]" */
TU__SHARED void tu__text_shape(tu__text *text, tu_shape shape);
/* The text so far; "" when empty. */
TU__SHARED const char *tu__text_string(const tu__text *text);
TU__SHARED void tu__text_free(tu__text *text);

/* Shapes and types inside a printf argument list: the string lives in a small per-thread ring, long enough for
 * every argument of one message. */
TU__SHARED const char *tu__shape_string(tu_shape shape);
TU__SHARED const char *tu__type_string(tu_type type);

#endif
