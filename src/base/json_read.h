/* A strict JSON parser (RFC 8259, UTF-8, no duplicate keys) for configurations, file headers and labels. It builds a
 * tree in an arena. For any input, time and memory are proportional to its size, and the nesting depth is bounded. */
#ifndef TU__BASE_JSON_READ_H
#define TU__BASE_JSON_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/status.h>

#include "base/arena.h"
#include "base/shared.h"

typedef enum tu__json_kind {
    TU__JSON_NULL,
    TU__JSON_BOOL,
    TU__JSON_NUMBER,
    TU__JSON_STRING,
    TU__JSON_ARRAY,
    TU__JSON_OBJECT
} tu__json_kind;

typedef struct tu__json_value {
    tu__json_kind kind;
    bool truth;              /* value of a BOOL */
    double number;           /* value of a NUMBER */
    bool is_integer;         /* the number has no fraction and no exponent, and `integer` is its value */
    int64_t integer;         /* 0 if the number does not fit; `number` is then its nearest double */
    const char *string;      /* NUL-terminated, without embedded NULs */
    size_t count;            /* number of elements of an ARRAY or members of an OBJECT */
    const char *const *keys; /* of an OBJECT: the names of `values` */
    const struct tu__json_value *values; /* in file order */
} tu__json_value;

/* Parses `text`. `name` is the source's name in messages: "config.json: line 3: …". */
TU__SHARED tu_status tu__json_parse(tu__arena *arena, const char *name, const char *text, size_t length,
                                    const tu__json_value **value);
/* Returns the member `key`, or NULL if there is none or `object` is not an object. */
TU__SHARED const tu__json_value *tu__json_member(const tu__json_value *object, const char *key);

#endif
