/* Writes protocol buffers: a message is a growing buffer to which fields are appended.
 *
 *     tu__text inner = {0}, outer = {0};
 *     tu__pb_string(&inner, 1, "loss");
 *     tu__pb_float(&inner, 2, 0.5f);
 *     tu__pb_append_message(&outer, 1, &inner);       // and frees `inner`
 *
 * As with tu__text, callers need not check each call: if memory runs out, the message stays `failed`, and so does
 * every message it is appended to. Fields with value zero are written too; readers accept both. */
#ifndef TU__IO_PROTOBUF_H
#define TU__IO_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

void tu__pb_integer(tu__text *message, unsigned field, int64_t value);
void tu__pb_float(tu__text *message, unsigned field, float value);
void tu__pb_double(tu__text *message, unsigned field, double value);
void tu__pb_bytes(tu__text *message, unsigned field, const void *bytes, size_t size);
void tu__pb_string(tu__text *message, unsigned field, const char *string);
/* Appends a packed repeated field. */
void tu__pb_doubles(tu__text *message, unsigned field, const double *values, size_t count);
/* Appends `inner` and frees it. */
void tu__pb_append_message(tu__text *message, unsigned field, tu__text *inner);

#endif
