/* Fields of protocol buffers. A field is a key, number * 8 + form, and a value in one of four forms; numbers are
 * little-endian, as on every machine Tutti runs on. */
#include "io/protobuf.h"

#include <string.h>

enum form { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

/* Seven bits a byte, least first; the highest bit says that more follow. */
static void put_varint(tu__text *message, uint64_t value) {
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

static void put_key(tu__text *message, unsigned field, enum form form) {
    put_varint(message, (uint64_t)field << 3 | (uint64_t)form);
}

void tu__pb_integer(tu__text *message, unsigned field, int64_t value) {
    put_key(message, field, VARINT);
    put_varint(message, (uint64_t)value);
}

void tu__pb_float(tu__text *message, unsigned field, float value) {
    put_key(message, field, FIXED32);
    tu__text_append(message, (const char *)&value, sizeof value);
}

void tu__pb_double(tu__text *message, unsigned field, double value) {
    put_key(message, field, FIXED64);
    tu__text_append(message, (const char *)&value, sizeof value);
}

void tu__pb_bytes(tu__text *message, unsigned field, const void *bytes, size_t size) {
    put_key(message, field, LENGTH);
    put_varint(message, size);
    tu__text_append(message, bytes, size);
}

void tu__pb_string(tu__text *message, unsigned field, const char *string) {
    tu__pb_bytes(message, field, string, strlen(string));
}

void tu__pb_doubles(tu__text *message, unsigned field, const double *values, size_t count) {
    tu__pb_bytes(message, field, values, count * sizeof *values);
}

void tu__pb_message(tu__text *message, unsigned field, tu__text *inner) {
    if (inner->failed) message->failed = true;
    tu__pb_bytes(message, field, inner->data, inner->length);
    tu__text_free(inner);
}
