/* The streaming JSON writer (RFC 8259). See json.h for its use.
 *
 * Invariant: between calls the bytes written so far are a prefix of a valid document. A call that would break it (a
 * key inside an array, no key inside an object, a second document, an end without its begin) is a bug of the caller
 * and makes the writer fail like a full disk, also in release builds.
 */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static bool write_file(void *sink, const char *bytes, size_t length) {
    return fwrite(bytes, 1, length, sink) == length;
}

tu_json tu_json_to_file(FILE *file) {
    return (tu_json){.write = write_file, .sink = file};
}

static void put(tu_json *json, const char *bytes, size_t length) {
    if (json->failed || length == 0) return;
    if (!json->write(json->sink, bytes, length)) json->failed = true;
}

static void put_string(tu_json *json, const char *string) {
    put(json, string, strlen(string));
}

/* ---- Strings ---- */

static void put_escape(tu_json *json, unsigned char c) {
    static const char letters[128] = {
        ['"'] = '"', ['\\'] = '\\', ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    char escape[8];
    int length;
    if (c < 128 && letters[c])
        length = snprintf(escape, sizeof escape, "\\%c", letters[c]);
    else
        length = snprintf(escape, sizeof escape, "\\u%04x", (unsigned)c);
    put(json, escape, (size_t)length);
}

static void put_quoted(tu_json *json, const char *bytes, size_t length) {
    size_t done = 0, i = 0; /* [done, i) needs no escape and is written at once */
    put(json, "\"", 1);
    while (i < length) {
        bool valid;
        size_t step = tu__utf8_length(bytes + i, length - i, &valid);
        unsigned char c = (unsigned char)bytes[i];
        /* DEL and C1 may be in JSON, but a terminal obeys them. */
        bool is_c1 = c == 0xC2 && (unsigned char)bytes[i + (valid ? 1 : 0)] < 0xA0;
        bool plain = valid && c >= 0x20 && c != '"' && c != '\\' && c != 0x7F && !is_c1;
        if (!plain) {
            put(json, bytes + done, i - done);
            if (valid)
                put_escape(json, is_c1 ? (unsigned char)bytes[i + 1] : c);
            else
                put_string(json, "\xEF\xBF\xBD"); /* U+FFFD */
            done = i + step;
        }
        i += step;
    }
    put(json, bytes + done, length - done);
    put(json, "\"", 1);
}

/* ---- Structure ---- */

static bool in_object(const tu_json *json) {
    return json->depth > 0 && (json->objects >> (json->depth - 1) & 1);
}

/* Writes what precedes a value: the comma, if needed, and the key. */
static void begin_value(tu_json *json, const char *key) {
    bool second_document = json->depth == 0 && json->comma;
    if ((key != NULL) != in_object(json) || second_document) json->failed = true;
    if (json->comma) put(json, ",", 1);
    json->comma = true;
    if (!key) return;
    put_quoted(json, key, strlen(key));
    put(json, ":", 1);
}

static void begin_container(tu_json *json, const char *key, bool object) {
    if (json->depth == TU_JSON_MAX_DEPTH) json->failed = true;
    begin_value(json, key);
    if (json->failed) return;
    put(json, object ? "{" : "[", 1);
    uint64_t bit = UINT64_C(1) << json->depth;
    json->objects = object ? json->objects | bit : json->objects & ~bit;
    json->depth++;
    json->comma = false;
}

static void end_container(tu_json *json, bool object) {
    if (json->depth == 0 || in_object(json) != object) json->failed = true;
    if (json->failed) return;
    put(json, object ? "}" : "]", 1);
    json->depth--;
    json->comma = true;
}

void tu_json_begin_object(tu_json *json, const char *key) {
    begin_container(json, key, true);
}

void tu_json_end_object(tu_json *json) {
    end_container(json, true);
}

void tu_json_begin_array(tu_json *json, const char *key) {
    begin_container(json, key, false);
}

void tu_json_end_array(tu_json *json) {
    end_container(json, false);
}

bool tu_json_finish(const tu_json *json) {
    return !json->failed && json->depth == 0;
}

/* ---- Values ---- */

static void put_value(tu_json *json, const char *key, const char *literal) {
    begin_value(json, key);
    put_string(json, literal);
}

void tu__json_bytes(tu_json *json, const char *key, const char *bytes, size_t length) {
    begin_value(json, key);
    put_quoted(json, bytes, length);
}

void tu_json_string(tu_json *json, const char *key, const char *string) {
    if (string)
        tu__json_bytes(json, key, string, strlen(string));
    else
        tu_json_null(json, key);
}

void tu_json_i64(tu_json *json, const char *key, int64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, value);
    put_value(json, key, digits);
}

void tu_json_u64(tu_json *json, const char *key, uint64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    put_value(json, key, digits);
}

void tu_json_f64(tu_json *json, const char *key, double value) {
    if (!isfinite(value)) {
        tu_json_null(json, key);
        return;
    }
    char digits[40];
    for (int precision = 15; precision <= 17; precision++) { /* 17 digits distinguish all doubles */
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    /* The process may use a locale with another decimal point, even a multi-byte one. Replace the first characters
     * that are neither digit, sign nor exponent. */
    char *point = digits + strspn(digits, "+-0123456789e");
    if (*point) {
        size_t width = strcspn(point, "+-0123456789e");
        *point = '.';
        memmove(point + 1, point + width, strlen(point + width) + 1);
    }
    put_value(json, key, digits);
}

void tu_json_bool(tu_json *json, const char *key, bool value) {
    put_value(json, key, value ? "true" : "false");
}

void tu_json_null(tu_json *json, const char *key) {
    put_value(json, key, "null");
}
