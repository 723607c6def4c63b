/* Writing protocol buffers by hand: a message is a growing text to which fields are appended.
 *
 *     tu__text inner = {0}, outer = {0};
 *     tu__pb_string(&inner, 1, "loss");
 *     tu__pb_float(&inner, 2, 0.5f);
 *     tu__pb_message(&outer, 1, &inner);       // and frees `inner`
 *
 * As with tu__text no call needs a check: a message that ran out of memory stays `failed`, and so does every one it is
 * put into. Fields of value zero are written too; readers take both. */
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
/* A repeated field, packed. */
void tu__pb_doubles(tu__text *message, unsigned field, const double *values, size_t count);
/* `inner` is freed. */
void tu__pb_message(tu__text *message, unsigned field, tu__text *inner);

#endif
