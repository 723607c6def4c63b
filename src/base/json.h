/* A streaming JSON writer: what every --json of the command, run folders and file headers are written with.
 *
 * Nothing is kept in memory: each call writes its bytes at once to a file or a growable text. Values take their key
 * first; it is NULL for the elements of an array and for the outermost value.
 *
 *     tu_json json = tu_json_to_file(stdout);
 *     tu_json_begin_object(&json, NULL);
 *     tu_json_string(&json, "device", "cpu:0");
 *     tu_json_begin_array(&json, "shape");
 *     tu_json_i64(&json, NULL, 128);
 *     tu_json_end_array(&json);
 *     tu_json_end_object(&json);
 *     if (!tu_json_finish(&json)) …                       // {"device":"cpu:0","shape":[128]}
 *
 * As with tu__text, no call needs a check: the first failed write sticks, and tu_json_finish reports it. What is
 * written is always valid JSON in valid UTF-8, whatever bytes and numbers come in.
 */
#ifndef TU__BASE_JSON_H
#define TU__BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/shared.h"
#include "base/text.h"

enum { TU__JSON_MAX_DEPTH = 64 };

typedef struct tu_json {
    bool (*write)(void *sink, const char *bytes, size_t length);
    void *sink;
    uint64_t objects; /* bit d is set when the container at depth d is an object */
    int depth;
    bool comma;  /* the next value or key is preceded by one */
    bool failed; /* a write failed, containers were nested too deep, or a call did not fit */
} tu_json;

TU__SHARED tu_json tu_json_to_file(FILE *file);

TU__SHARED void tu_json_begin_object(tu_json *json, const char *key);
TU__SHARED void tu_json_end_object(tu_json *json);
TU__SHARED void tu_json_begin_array(tu_json *json, const char *key);
TU__SHARED void tu_json_end_array(tu_json *json);

/* Bytes that are not UTF-8 become U+FFFD, one for each maximal ill-formed part. A NULL string becomes null. */
TU__SHARED void tu_json_string(tu_json *json, const char *key, const char *string);
void tu__json_bytes(tu_json *json, const char *key, const char *bytes, size_t length);
TU__SHARED void tu_json_i64(tu_json *json, const char *key, int64_t value);
TU__SHARED void tu_json_u64(tu_json *json, const char *key, uint64_t value);
/* As few digits as read back to the same double, at least what "%.15g" prints; NaN and infinities become null. */
TU__SHARED void tu_json_f64(tu_json *json, const char *key, double value);
TU__SHARED void tu_json_bool(tu_json *json, const char *key, bool value);
TU__SHARED void tu_json_null(tu_json *json, const char *key);

/* True when every container was closed and every byte was taken by the sink. */
TU__SHARED bool tu_json_finish(const tu_json *json);

/* The sink for a text stands here and not in json.c, so that json.c depends on nothing: the command compiles it in
 * although it cannot see the library's text functions. */
static inline bool tu__json_write_text(void *sink, const char *bytes, size_t length) {
    tu__text *text = sink;
    tu__text_append(text, bytes, length);
    return !text->failed;
}

static inline tu_json tu__json_to_text(tu__text *text) {
    return (tu_json){.write = tu__json_write_text, .sink = text};
}

#endif
