/* A streaming JSON writer, used for the command's --json output, run folders and file headers.
 *
 * It buffers nothing: each call writes its bytes to a file or a tu__text. The first argument of a value is its key,
 * which is NULL for array elements and for the outermost value.
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
 * As with tu__text, callers need not check every call: the writer stops at the first failed write, and
 * tu_json_finish reports it. The output is always valid JSON in valid UTF-8, for any input bytes and numbers.
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
    uint64_t objects; /* bit d is set if the container at depth d is an object */
    int depth;
    bool comma;  /* the next value or key needs a comma before it */
    bool failed; /* a write failed, the nesting is too deep, or a call would make the document invalid */
} tu_json;

TU__SHARED tu_json tu_json_to_file(FILE *file);

TU__SHARED void tu_json_begin_object(tu_json *json, const char *key);
TU__SHARED void tu_json_end_object(tu_json *json);
TU__SHARED void tu_json_begin_array(tu_json *json, const char *key);
TU__SHARED void tu_json_end_array(tu_json *json);

/* Bytes that are not UTF-8 become U+FFFD, one per maximal ill-formed sequence. A NULL string becomes null. */
TU__SHARED void tu_json_string(tu_json *json, const char *key, const char *string);
void tu__json_bytes(tu_json *json, const char *key, const char *bytes, size_t length);
TU__SHARED void tu_json_i64(tu_json *json, const char *key, int64_t value);
TU__SHARED void tu_json_u64(tu_json *json, const char *key, uint64_t value);
/* Writes the shortest of %.15g, %.16g and %.17g that reads back to the same double. NaN and infinities become
 * null. */
TU__SHARED void tu_json_f64(tu_json *json, const char *key, double value);
TU__SHARED void tu_json_bool(tu_json *json, const char *key, bool value);
TU__SHARED void tu_json_null(tu_json *json, const char *key);

/* True if every container was closed and every write succeeded. */
TU__SHARED bool tu_json_finish(const tu_json *json);

/* The sink for a tu__text is defined here, not in json.c, so that json.c has no dependencies: the command-line tool
 * compiles json.c in but cannot link the library's text functions. */
static inline bool tu__json_write_text(void *sink, const char *bytes, size_t length) {
    tu__text *text = sink;
    tu__text_append(text, bytes, length);
    return !text->failed;
}

static inline tu_json tu__json_to_text(tu__text *text) {
    return (tu_json){.write = tu__json_write_text, .sink = text};
}

#endif
