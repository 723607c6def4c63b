/* The columns of a data set: their names, types and fields, and how JSON stores them.
 *
 * Data files of version 2 and config.json of run folders have the same text, so that a run knows the fields, means and
 * dictionaries of the table it was trained on without the table:
 *
 *     [{"name":"numbers", "kind":"numbers", "type":"f32", "shape":[2], "fields":[{"name":"area", "mean":…}, …]}, …]
 */
#ifndef TU__DATA_COLUMNS_H
#define TU__DATA_COLUMNS_H

#include <tutti/data.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/json_read.h"

typedef struct tu__field {
    const char *name;
    double mean, deviation, min, max; /* of the training samples; 0 for categories */
    int64_t missing;                  /* training samples that lack it */
    int64_t categories;               /* 0: numbers */
    const char *const *category_names;
} tu__field;

typedef struct tu__column {
    const char *name;
    tu_column_kind kind;
    tu_type type; /* of a sample */
    size_t bytes; /* of a sample */
    bool is_target;
    int64_t classes;
    size_t field_count;
    const tu__field *fields;
} tu__column;

typedef struct tu__columns {
    size_t count;
    tu__column column[TU_MAX_COLUMNS];
    const char *tokenizer; /* of a token file; NULL: none */
} tu__columns;

enum { TU__MAX_FIELDS = 1 << 16, TU__MAX_CATEGORIES = 1 << 16, TU__MAX_VOCABULARY = 1 << 24 };

/* Fills the columns of pictures: "images" and "labels". */
void tu__columns_of_pictures(const tu_dataset_info *info, tu__columns *columns);
/* Checks names, types, targets and fields, and computes the bytes of each. `name` is the data set's. */
tu_status tu__columns_check(const char *name, tu__columns *columns);
/* Copies columns; strings and fields go to the arena. */
tu_status tu__columns_copy(const tu__columns *from, tu__arena *arena, tu__columns *to);

/* Returns the target column; NULL if there is none. */
const tu__column *tu__columns_target(const tu__columns *columns);
/* Returns the column of this name, or of this kind; NULL if there is none. */
const tu__column *tu__columns_find(const tu__columns *columns, const char *name);
const tu__column *tu__columns_of_kind(const tu__columns *columns, tu_column_kind kind);

/* Writes the columns as an array, `key` as of tu_json_begin_array. */
void tu__columns_write(tu_json *json, const char *key, const tu__columns *columns);
/* Reads it. `source` names the file in messages. Strings live as long as the arena. */
tu_status tu__columns_read(const char *source, const tu__json_value *array, tu__arena *arena,
                           tu__columns *columns);

#endif
