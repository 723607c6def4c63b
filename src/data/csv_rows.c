/* Reads rows of CSV files into the columns of a table. See csv.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "data/csv.h"

static bool ends_cell(const char *at, const char *end, char delimiter) {
    return at == end || *at == delimiter || *at == '\n';
}

/* Reads a plain number without looking for the end of its cell first. Returns false for every other cell. */
static bool read_plain_number(const char **at, const char *end, char delimiter, double *number) {
    const char *p = *at;
    while (p < end && *p == ' ') p++;
    if (!tu__csv_number(&p, end, number)) return false;
    while (p < end && *p == ' ') p++;
    if (p < end && *p == '\r' && (p + 1 == end || p[1] == '\n')) p++;
    if (!ends_cell(p, end, delimiter)) return false;
    *at = p;
    return true;
}

static tu_status check_text(const tu__csv *csv, const char *at, size_t field, const char *text,
                            size_t length) {
    for (size_t i = 0; i < length;) {
        bool valid;
        size_t bytes = tu__utf8_length(text + i, length - i, &valid);
        if (!valid || text[i] == '\0')
            return tu__csv_fail(
                csv, at, field,
                "byte 0x%02X is not UTF-8 text: expected UTF-8 (convert the file with iconv -f LATIN1 "
                "-t UTF-8, for example)",
                (unsigned char)text[i]);
        i += bytes;
    }
    return TU_OK;
}

static tu_status fail_number(const tu__csv_layout *l, const char *at, size_t field,
                             const tu__csv_cell *cell) {
    TU_TRY(check_text(l->csv, at, field, cell->text, cell->length));
    const char *comma = memchr(cell->text, ',', cell->length);
    return tu__csv_fail(
        l->csv, at, field,
        "'%.*s' is not a number: expected a number%s like the other rows, or nothing; to read the "
        "column as categories, use --categories %.60s",
        cell->length < 60 ? (int)cell->length : 60, cell->text, comma ? " with a decimal point," : "",
        l->csv->names[field]);
}

static tu_status fail_target(const tu__csv_layout *l, const char *at, size_t field) {
    return tu__csv_fail(l->csv, at, field, "the target is missing: remove the row, or fill in the cell");
}

/* Reads any cell of a field of numbers. */
static tu_status read_number(const tu__csv_layout *l, const char **at, const char *end, size_t field,
                             double *number) {
    tu__csv_cell cell;
    const char *begin = *at;
    tu__csv_cell_at(begin, end, l->csv->delimiter, &cell);
    if (cell.problem) return tu__csv_fail(l->csv, begin, field, "the cell %s", cell.problem);
    *at = cell.next;
    if (tu__csv_is_missing(cell.text, cell.length)) {
        *number = (double)NAN;
        return TU_OK;
    }
    return tu__csv_is_number(cell.text, cell.length, number) ? TU_OK : fail_number(l, begin, field, &cell);
}

static tu_status store_number(const tu__csv_layout *l, const char *begin, size_t field, double number,
                              tu__csv_row *row) {
    const tu__csv_field *f = &l->fields[field];
    float stored = (float)number;
    if (isnan(number) && f->is_target && !l->target_optional) return fail_target(l, begin, field);
    if (!isnan(number) && !isfinite(stored))
        return tu__csv_fail(l->csv, begin, field, "%g is too large for f32: expected at most 3.4e38", number);
    (f->is_target ? row->targets : row->numbers)[f->element] = stored;
    return TU_OK;
}

static tu_status read_category(const tu__csv_layout *l, const char **at, const char *end, size_t field,
                               tu__csv_code code, void *context, tu__csv_row *row) {
    tu__csv_cell cell;
    const char *begin = *at;
    const tu__csv_field *f = &l->fields[field];
    tu__csv_cell_at(begin, end, l->csv->delimiter, &cell);
    if (cell.problem) return tu__csv_fail(l->csv, begin, field, "the cell %s", cell.problem);
    *at = cell.next;
    int32_t found = -1;
    if (!tu__csv_is_missing(cell.text, cell.length)) {
        TU_TRY(check_text(l->csv, begin, field, cell.text, cell.length));
        found = code(context, field, begin, cell.text, cell.length);
        if (found == INT32_MIN) return TU_INVALID;
    } else if (f->is_target && !l->target_optional) {
        return fail_target(l, begin, field);
    }
    if (f->is_target)
        *row->class_target = found;
    else
        row->categories[f->element] = found;
    return TU_OK;
}

static tu_status skip_cell(const tu__csv_layout *l, const char **at, const char *end, size_t field) {
    tu__csv_cell cell;
    const char *p = *at;
    char delimiter = l->csv->delimiter;
    for (; p < end && *p != delimiter && *p != '\n' && *p != '"'; p++) {}
    if (ends_cell(p, end, delimiter)) {
        *at = p;
        return TU_OK;
    }
    tu__csv_cell_at(*at, end, delimiter, &cell);
    /* Only the end of a dropped cell matters, not its length. */
    if (cell.problem && (!cell.next || cell.length < TU__CSV_LONGEST))
        return tu__csv_fail(l->csv, *at, field, "the cell %s", cell.problem);
    *at = cell.next;
    return TU_OK;
}

static size_t count_cells(const tu__csv *csv, const char *at, const char *end) {
    size_t count = 1;
    bool quoted = false;
    for (; at < end && (quoted || *at != '\n'); at++) {
        if (*at == '"') quoted = !quoted;
        count += !quoted && *at == csv->delimiter;
    }
    return count;
}

static tu_status fail_ragged(const tu__csv *csv, const char *record, const char *end) {
    return tu__csv_fail(csv, record, csv->field_count,
                        "the row has %zu cells: expected %zu, as the header has",
                        count_cells(csv, record, end), csv->field_count);
}

tu_status tu__csv_read_row(const tu__csv_layout *l, const char **at, tu__csv_code code, void *context,
                           tu__csv_row *row) {
    const tu__csv *csv = l->csv;
    const char *record = *at, *p = record, *end = csv->bytes + csv->size;
    for (size_t i = 0; i < csv->field_count; i++) {
        const char *begin = p;
        double number;
        switch (l->fields[i].role) {
        case TU__CSV_NUMBER:
            if (!read_plain_number(&p, end, csv->delimiter, &number))
                TU_TRY(read_number(l, &p, end, i, &number));
            TU_TRY(store_number(l, begin, i, number, row));
            break;
        case TU__CSV_CATEGORY: TU_TRY(read_category(l, &p, end, i, code, context, row)); break;
        case TU__CSV_DROP: TU_TRY(skip_cell(l, &p, end, i)); break;
        }
        bool is_last = i + 1 == csv->field_count, has_more = p < end && *p == csv->delimiter;
        if (has_more == is_last) return fail_ragged(csv, record, end);
        if (p < end) p++;
    }
    *at = p;
    return TU_OK;
}
