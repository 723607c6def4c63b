/* CSV files: comma-separated values (RFC 4180), with or without a header.
 *
 * Cells are separated by a comma, semicolon, tab or bar, whichever the first line has; a cell may be in double quotes, in
 * which a quote is doubled and a delimiter or a line break has no meaning. The text is UTF-8. A cell is missing if it
 * is empty or one of NA, N/A, NaN, nan, NULL, null, None and ?. Blank lines are skipped.
 *
 * A file is mapped, its records are found in parallel (csv_records.c), and rows are read into the columns of a table
 * (csv_rows.c): "numbers", "categories" and "target". Messages name the line and the column by its name. */
#ifndef TU__DATA_CSV_H
#define TU__DATA_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tutti/data.h>

#include "base/arena.h"
#include "base/map_file.h"
#include "data/columns.h"

/* ---- Files ---- */

typedef struct tu__csv {
    const char *path; /* for messages; the caller's */
    tu__mapped_file file;
    const char *bytes;
    size_t size;
    bool has_header; /* else the fields are called "column 1", "column 2", … */
    size_t
        rows_at; /* offset of the line break that ends the header, or `size`; without a header, of the first row */
    char delimiter;
    size_t field_count;
    const char **names; /* of the fields; unique */
    uint32_t *slots;    /* hash table of the names: field + 1 */
    size_t slot_count;
    bool has_row_names; /* the first field has no name in the file: R and pandas write row numbers there */
    tu__arena arena;
} tu__csv;

/* Maps a file and reads its header, or the number of its columns if `header` is "no". With "yes" the header may consist of
 * numbers; NULL or "": it has at least one name that is no number. Call tu__csv_close even after a failure. */
tu_status tu__csv_open(const char *path, const char *header, tu__csv *csv);
void tu__csv_close(tu__csv *csv);
/* Returns the beginning of the first row; the end of the file if there is none. */
const char *tu__csv_rows(const tu__csv *csv);
/* Returns the first name of the header that is a number; NULL if there is none, or no header. */
const char *tu__csv_number_in_header(const tu__csv *csv);
/* Finds a field by its name; returns field_count if there is none. */
size_t tu__csv_find(const tu__csv *csv, const char *name);
/* Fails with a message about the cell at `at`: "'houses.csv', line 18, column 'price': …". `field` may be
 * field_count: no column. */
tu_status tu__csv_fail(const tu__csv *csv, const char *at, size_t field, const char *format, ...)
    TU_PRINTF(4, 5);

/* ---- Cells ---- */

enum { TU__CSV_LONGEST = 4096 }; /* bytes of a category */

/* A cell without its quotes and the spaces around it. The text of a quoted cell may be in `scratch`. */
typedef struct tu__csv_cell {
    const char *text;
    size_t length;
    const char
        *next; /* the delimiter or line break after it, or the end of the file; NULL if a problem hides it */
    const char
        *problem; /* NULL, or why the cell cannot be read; only `next` and the length may be set then */
    char scratch[TU__CSV_LONGEST];
} tu__csv_cell;

void tu__csv_cell_at(const char *at, const char *end, char delimiter, tu__csv_cell *cell);
bool tu__csv_is_missing(const char *text, size_t length);
/* Reads a number in decimal notation at `*at`; moves `*at` behind it. Returns false if there is none. */
bool tu__csv_number(const char **at, const char *end, double *number);
/* True if the whole text is a number. */
bool tu__csv_is_number(const char *text, size_t length, double *number);

/* ---- Records ---- */

/* A part of the file, for one thread. It has the records that follow a line break in it. */
typedef struct tu__csv_block {
    const char *first; /* its first record; NULL: it has none */
    const char *end;   /* end of the part; its last record may end behind it */
    int64_t rows;      /* records that are not blank */
    bool inside;       /* the block begins inside of quotes */
} tu__csv_block;

typedef struct tu__csv_blocks {
    size_t count;
    tu__csv_block *block;
    int64_t rows; /* of all blocks */
} tu__csv_blocks;

/* Divides the rows of the file. The caller frees blocks->block with tu__free. */
tu_status tu__csv_divide(const tu__csv *csv, size_t block_bytes, int threads, tu__csv_blocks *blocks);
/* True if the record at `at` is a blank line; stores the start of the next record. */
bool tu__csv_is_blank(const char *at, const char *end, const char **next);

/* ---- Rows ---- */

enum tu__csv_role { TU__CSV_DROP, TU__CSV_NUMBER, TU__CSV_CATEGORY };

typedef struct tu__csv_field {
    enum tu__csv_role role;
    bool is_target;
    bool is_chosen; /* by the user, with --categories */
    size_t element; /* of the column "numbers", "categories" or "target" */
    double shift;   /* a typical number, subtracted before numbers are summed */
} tu__csv_field;

typedef struct tu__csv_layout {
    const tu__csv *csv;
    tu__csv_field *fields;               /* [csv->field_count] */
    size_t numbers, categories, targets; /* elements of the columns */
    bool class_target;                   /* the target is a category */
    bool target_optional;                /* its cell may be missing: NaN or -1 */
} tu__csv_layout;

/* Returns the code of a category of a field; INT32_MIN: the message is set and reading fails. */
typedef int32_t (*tu__csv_code)(void *context, size_t field, const char *at, const char *text, size_t length);

typedef struct tu__csv_row {
    float *numbers;
    int32_t *categories;
    float *targets; /* or, with class_target, */
    int32_t *class_target;
} tu__csv_row;

/* Reads the record at `*at` and moves `*at` to the next one. */
tu_status tu__csv_read_row(const tu__csv_layout *layout, const char **at, tu__csv_code code, void *context,
                           tu__csv_row *row);

/* ---- Tables ---- */

/* Opens a CSV file as a data set. */
tu_status tu__open_csv(const char *path, const tu_dataset_options *options, tu_dataset **dataset);

#endif
