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

/* Small, because a text of two bytes a value becomes a tree of these. The fields of a kind are valid for that kind only. */
typedef struct tu__json_value {
    tu__json_kind kind;
    bool truth;      /* value of a BOOL */
    bool is_integer; /* the NUMBER has no fraction and no exponent, and `integer` is its value */
    union {
        int64_t integer; /* 0 if the number does not fit; `number` is then its nearest double */
        size_t count;    /* number of elements of an ARRAY or members of an OBJECT */
    };
    union {
        double number;      /* value of a NUMBER */
        const char *string; /* NUL-terminated, without embedded NULs */
        struct {
            const char *const *keys;             /* of an OBJECT: the names of `values` */
            const struct tu__json_value *values; /* in file order */
        };
    };
} tu__json_value;

/* A text has at most this many values, and one more for every 12 bytes: real files have longer ones, and a tree takes many
 * times the memory of a text such as [1,1,1,…]. */
enum { TU__JSON_MAX_VALUES = 400000 };

/* Parses `text`. `name` is the source's name in messages: "config.json: line 3: …". */
TU__SHARED tu_status tu__json_parse(tu__arena *arena, const char *name, const char *text, size_t length,
                                    const tu__json_value **value);
/* Parses an object one member at a time: calls `visit` for each, and stops if it fails. Key and value are valid during the
 * call only, so large objects need no memory. Fails for duplicate keys within values only: the caller compares the keys
 * of the members. Each member has at most TU__JSON_MAX_VALUES values. */
TU__SHARED tu_status tu__json_visit(const char *name, const char *text, size_t length,
                                    tu_status (*visit)(void *context, const char *key,
                                                       const tu__json_value *value),
                                    void *context);
/* Returns the member `key`, or NULL if there is none or `object` is not an object. */
TU__SHARED const tu__json_value *tu__json_member(const tu__json_value *object, const char *key);

#endif
