/* A growable string or byte buffer, used by the graph printer, the JSON writer and error messages.
 *
 * Callers need not check each append: if memory runs out, `failed` is set and later appends do nothing. Check the
 * flag once at the end. */
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
/* Appends a type, as in "f32[8,24,24,3]". */
TU__SHARED void tu__text_type(tu__text *text, tu_type type);
/* Appends a shape, as in "[8,24,24,3]". */
TU__SHARED void tu__text_shape(tu__text *text, tu_shape shape);
/* Returns the text so far; "" if empty. */
TU__SHARED const char *tu__text_string(const tu__text *text);
TU__SHARED void tu__text_free(tu__text *text);

/* Format a shape or type for use as a printf argument. The string is in a per-thread ring of 16 buffers, enough for
 * the arguments of one message. */
TU__SHARED const char *tu__shape_string(tu_shape shape);
TU__SHARED const char *tu__type_string(tu_type type);

#endif
