/* Reading JSON: configurations, file headers, labels. A strict parser (RFC 8259, UTF-8, no duplicate keys) into a tree
 * that lives in an arena. Hostile input costs time and memory in proportion to its size, and depth is bounded. */
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
    bool truth;
    double number;
    bool is_integer;    /* the number is written without fraction or exponent and fits `integer` … */
    int64_t integer;    /* … as here; for u64 beyond it see `number` */
    const char *string; /* NUL-terminated, without NULs inside */
    size_t count;       /* elements or members */
    const char *const *keys;
    const struct tu__json_value *values; /* in the order of the text */
} tu__json_value;

/* `name` stands for the text in messages: "config.json: line 3: …". */
TU__SHARED tu_status tu__json_parse(tu__arena *arena, const char *name, const char *text, size_t length,
                                    const tu__json_value **value);
/* The member, or NULL where there is none or `object` is none. */
TU__SHARED const tu__json_value *tu__json_member(const tu__json_value *object, const char *key);

#endif
