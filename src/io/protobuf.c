/* Fields of protocol buffers. A field is a key, number * 8 + wire type, followed by the value; fixed-size numbers are
 * little-endian, like all machines that Tutti supports. */
#include "io/protobuf.h"

#include <string.h>

enum wire_type { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

/* Seven bits per byte, least significant first; the highest bit means that more bytes follow. */
static void append_varint(tu__text *message, uint64_t value) {
    char bytes[10];
    size_t length = 0;
    do {
        bytes[length] = (char)(value & 0x7F);
        value >>= 7;
        if (value) bytes[length] = (char)(bytes[length] | 0x80);
        length++;
    } while (value);
    tu__text_append(message, bytes, length);
}

static void append_key(tu__text *message, unsigned field, enum wire_type wire_type) {
    append_varint(message, (uint64_t)field << 3 | (uint64_t)wire_type);
}

void tu__pb_integer(tu__text *message, unsigned field, int64_t value) {
    append_key(message, field, VARINT);
    append_varint(message, (uint64_t)value);
}

void tu__pb_float(tu__text *message, unsigned field, float value) {
    append_key(message, field, FIXED32);
    tu__text_append(message, (const char *)&value, sizeof value);
}

void tu__pb_double(tu__text *message, unsigned field, double value) {
    append_key(message, field, FIXED64);
    tu__text_append(message, (const char *)&value, sizeof value);
}

void tu__pb_bytes(tu__text *message, unsigned field, const void *bytes, size_t size) {
    append_key(message, field, LENGTH);
    append_varint(message, size);
    tu__text_append(message, bytes, size);
}

void tu__pb_string(tu__text *message, unsigned field, const char *string) {
    tu__pb_bytes(message, field, string, strlen(string));
}

void tu__pb_doubles(tu__text *message, unsigned field, const double *values, size_t count) {
    tu__pb_bytes(message, field, values, count * sizeof *values);
}

void tu__pb_append_message(tu__text *message, unsigned field, tu__text *inner) {
    if (inner->failed) message->failed = true;
    tu__pb_bytes(message, field, inner->data, inner->length);
    tu__text_free(inner);
}
