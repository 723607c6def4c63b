/* The growable string, and shapes and types as text. */
#include "base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static bool reserve(tu__text *text, size_t extra) {
    if (text->failed) return false;
    size_t need = text->length + extra + 1;
    if (need <= text->capacity) return true;
    size_t capacity = text->capacity ? text->capacity * 2 : 256;
    while (capacity < need) capacity *= 2;
    char *data = tu__realloc(text->data, capacity, "a text buffer");
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    return true;
}

void tu__text_append(tu__text *text, const char *bytes, size_t length) {
    if (!reserve(text, length)) return;
    if (length) memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void tu__text_printf(tu__text *text, const char *format, ...) {
    va_list arguments, second_pass;
    va_start(arguments, format);
    va_copy(second_pass, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (length >= 0 && reserve(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, format, second_pass);
        text->length += (size_t)length;
    }
    va_end(second_pass);
    va_end(arguments);
}

/* Room for any shape: 8 dimensions of at most 20 characters, commas and brackets. */
enum { TYPE_STRING_SIZE = 8 + 8 * 21 + 8 };

static int write_shape(char *out, size_t size, tu_shape shape) {
    if (shape.rank < 0 || shape.rank > TU_MAX_RANK) return snprintf(out, size, "[invalid shape]");
    int used = snprintf(out, size, "[");
    for (int64_t i = 0; i < shape.rank; i++)
        used += snprintf(out + used, size - (size_t)used, i ? ",%" PRId64 : "%" PRId64, shape.dim[i]);
    return used + snprintf(out + used, size - (size_t)used, "]");
}

static char *next_string_buffer(void) {
    static _Thread_local char ring[16][TYPE_STRING_SIZE];
    static _Thread_local unsigned next;
    return ring[next++ % 16];
}

const char *tu__shape_string(tu_shape shape) {
    char *buffer = next_string_buffer();
    write_shape(buffer, TYPE_STRING_SIZE, shape);
    return buffer;
}

const char *tu__type_string(tu_type type) {
    char *buffer = next_string_buffer();
    int used = snprintf(buffer, TYPE_STRING_SIZE, "%s", tu_dtype_name(type.dtype));
    write_shape(buffer + used, TYPE_STRING_SIZE - (size_t)used, type.shape);
    return buffer;
}

void tu__text_type(tu__text *text, tu_type type) {
    tu__text_printf(text, "%s", tu__type_string(type));
}

void tu__text_shape(tu__text *text, tu_shape shape) {
    tu__text_printf(text, "%s", tu__shape_string(shape));
}

const char *tu__text_string(const tu__text *text) {
    return text->data ? text->data : "";
}

void tu__text_free(tu__text *text) {
    tu__free(text->data);
    *text = (tu__text){0};
}
