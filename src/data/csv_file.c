/* Maps CSV files, reads their headers, and words messages about cells. See csv.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/choice.h"
#include "base/utf8.h"
#include "data/csv.h"

enum { MAX_HEADER = 16 << 20, MAX_SHOWN = 60 };

/* ---- Messages ---- */

static int64_t line_of(const tu__csv *csv, const char *at) {
    int64_t line = 1;
    for (const char *p = csv->bytes; (p = memchr(p, '\n', (size_t)(at - p))); p++) line++;
    return line;
}

tu_status tu__csv_fail(const tu__csv *csv, const char *at, size_t field, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (field < csv->field_count)
        return tu_fail(TU_INVALID, "'%.300s', line %lld, column '%.60s': %s", csv->path,
                       (long long)line_of(csv, at), csv->names[field], text);
    return tu_fail(TU_INVALID, "'%.300s', line %lld: %s", csv->path, (long long)line_of(csv, at), text);
}

/* ---- Mapping ---- */

static tu_status map_file(const char *path, tu__csv *csv) {
    TU_TRY(tu__map_file(path, &csv->file));
    if (!csv->file.size) return tu_fail(TU_INVALID, "'%s' is empty: expected a CSV file with a header", path);
    csv->bytes = csv->file.bytes;
    csv->size = csv->file.size;
    (void)posix_madvise(csv->file.bytes, csv->size, POSIX_MADV_SEQUENTIAL);
    return TU_OK;
}

/* A file that was extended with zeros may be too long to look at all of them. */
static tu_status check_end(const tu__csv *csv) {
    if (csv->bytes[csv->size - 1] != '\0') return TU_OK;
    return tu_fail(TU_INVALID,
                   "'%.300s': the last of %zu bytes is 0x00, which is not text: the file is damaged",
                   csv->path, csv->size);
}

void tu__csv_close(tu__csv *csv) {
    tu__unmap_file(&csv->file);
    tu__arena_free(&csv->arena);
    *csv = (tu__csv){0};
}

/* ---- The header ---- */

static tu_status check_encoding(const tu__csv *csv, const char *begin, const char *end) {
    const unsigned char *b = (const unsigned char *)csv->bytes;
    if (csv->size >= 2 && ((b[0] == 0xFF && b[1] == 0xFE) || (b[0] == 0xFE && b[1] == 0xFF)))
        return tu_fail(TU_INVALID,
                       "'%.300s' is UTF-16: expected UTF-8 (convert it with iconv -f UTF-16 -t UTF-8)",
                       csv->path);
    for (const char *p = begin; p < end;) {
        bool valid;
        size_t length = tu__utf8_length(p, (size_t)(end - p), &valid);
        if (!valid || *p == '\0')
            return tu__csv_fail(
                csv, p, csv->field_count,
                "byte %zu of the file is 0x%02X, which is not UTF-8 text: expected UTF-8 (convert "
                "the file with iconv -f LATIN1 -t UTF-8, for example)",
                (size_t)(p - csv->bytes), (unsigned char)*p);
        p += length;
    }
    return TU_OK;
}

/* Returns the delimiter that is most frequent outside of quotes; the comma if there is none. */
static char find_delimiter(const char *at, const char *end) {
    static const char delimiters[] = ",;\t|";
    size_t counts[4] = {0}, best = 0;
    bool quoted = false;
    for (; at < end && (quoted || *at != '\n'); at++) {
        if (*at == '"') quoted = !quoted;
        const char *found = !quoted && *at ? strchr(delimiters, *at) : NULL;
        if (found) counts[found - delimiters]++;
    }
    for (size_t i = 1; i < 4; i++)
        if (counts[i] > counts[best]) best = i;
    return delimiters[best];
}

/* A file without a line feed may have the line ends of old Macs. */
static tu_status check_line_ends(const tu__csv *csv, const char *begin, const char *end) {
    const char *found = begin < end ? memchr(begin, '\r', (size_t)(end - begin)) : NULL;
    if (!found || found + 1 == end) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "'%.300s', line 1: the lines end with a carriage return alone: expected line feeds (convert the "
        "file with tr '\\r' '\\n', for example)",
        csv->path);
}

static const char *header_end(const char *at, const char *end) {
    bool quoted = false;
    for (; at < end; at++) {
        if (*at == '"') quoted = !quoted;
        if (*at == '\n' && !quoted) return at;
    }
    return end;
}

static tu_status count_names(tu__csv *csv, const char *at, const char *end, size_t *count) {
    *count = 1;
    bool quoted = false;
    for (; at < end; at++) {
        if (*at == '"') quoted = !quoted;
        *count += !quoted && *at == csv->delimiter;
    }
    if (*count <= TU__MAX_FIELDS) return TU_OK;
    return tu_fail(TU_INVALID, "'%.300s', line 1: the header has %zu columns: expected at most %d", csv->path,
                   *count, TU__MAX_FIELDS);
}

static tu_status read_name(tu__csv *csv, size_t index, const tu__csv_cell *cell) {
    char number[40];
    const char *text = cell->text;
    size_t length = cell->length;
    if (length == 0 || !csv->has_header) {
        snprintf(number, sizeof number, "column %zu", index + 1);
        if (index == 0) csv->has_row_names = csv->has_header;
        text = number;
        length = strlen(number);
    }
    char *name = tu__arena_alloc(&csv->arena, length + 1);
    if (!name) return TU_NO_MEMORY;
    memcpy(name, text, length);
    csv->names[index] = name;
    return TU_OK;
}

/* Returns the slot of a name; it is 0 if no field has this name. */
static uint32_t *find_slot(const tu__csv *csv, const char *name) {
    uint64_t hash = 14695981039346656037u;
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    size_t slot = (hash ^ hash >> 29) & (csv->slot_count - 1);
    while (csv->slots[slot] && strcmp(csv->names[csv->slots[slot] - 1], name) != 0)
        slot = (slot + 1) & (csv->slot_count - 1);
    return &csv->slots[slot];
}

/* Enters the names into the hash table; fails if two are equal. */
static tu_status enter_names(tu__csv *csv) {
    csv->slot_count = 64;
    while (csv->slot_count < 2 * csv->field_count) csv->slot_count *= 2;
    csv->slots = tu__arena_alloc(&csv->arena, csv->slot_count * sizeof *csv->slots); /* zeroed */
    if (!csv->slots) return TU_NO_MEMORY;
    for (size_t i = 0; i < csv->field_count; i++) {
        uint32_t *slot = find_slot(csv, csv->names[i]);
        if (*slot)
            return tu_fail(TU_INVALID,
                           "'%.300s', line 1: columns %u and %zu are both called '%.60s': expected "
                           "different names",
                           csv->path, *slot, i + 1, csv->names[i]);
        *slot = (uint32_t)i + 1;
    }
    return TU_OK;
}

static bool is_number(const char *name) {
    double number;
    return tu__csv_is_number(name, strlen(name), &number);
}

const char *tu__csv_number_in_header(const tu__csv *csv) {
    for (size_t i = 0; csv->has_header && i < csv->field_count; i++)
        if (is_number(csv->names[i])) return csv->names[i];
    return NULL;
}

/* A header of numbers is probably a row of a file that lacks one. */
static tu_status check_has_header(const tu__csv *csv) {
    for (size_t i = 0; i < csv->field_count; i++)
        if (!is_number(csv->names[i])) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "'%.300s', line 1: '%.60s' is a number: expected a header with the names of the columns; if "
        "the file has none, use --header no, and if these are the names, --header yes",
        csv->path, csv->names[0]);
}

static tu_status read_header(tu__csv *csv, const char *header, const char *at, const char *end) {
    csv->delimiter = find_delimiter(at, end);
    size_t count;
    TU_TRY(count_names(csv, at, end, &count));
    csv->names = tu__arena_alloc(&csv->arena, count * sizeof *csv->names);
    if (!csv->names) return TU_NO_MEMORY;
    tu__csv_cell cell;
    for (size_t i = 0; i < count; i++) {
        tu__csv_cell_at(at, end, csv->delimiter, &cell);
        if (cell.problem)
            return tu__csv_fail(csv, at, csv->field_count, "column %zu %s", i + 1, cell.problem);
        TU_TRY(read_name(csv, i, &cell));
        at = cell.next < end ? cell.next + 1 : end;
    }
    csv->field_count = count;
    TU_TRY(enter_names(csv));
    return header && *header ? TU_OK : check_has_header(csv);
}

static tu_status check_choice(const char *header) {
    static const char *const names[] = {"yes", "no", NULL};
    size_t found;
    return header && *header ? tu__choice_find("--header", header, names, &found) : TU_OK;
}

tu_status tu__csv_open(const char *path, const char *header, tu__csv *csv) {
    *csv = (tu__csv){.path = path, .arena = {.purpose = "the header of a CSV file"}};
    TU_TRY(check_choice(header));
    csv->has_header = !header || strcmp(header, "no") != 0;
    TU_TRY(map_file(path, csv));
    TU_TRY(check_end(csv));
    const char *begin = csv->bytes, *end = csv->bytes + csv->size;
    if (csv->size >= 3 && memcmp(begin, "\xEF\xBB\xBF", 3) == 0) begin += 3;
    const char *next;
    while (!csv->has_header && begin < end && tu__csv_is_blank(begin, end, &next)) begin = next;
    size_t left = (size_t)(end - begin);
    const char *stop = header_end(begin, begin + (left < MAX_HEADER ? left : MAX_HEADER));
    if (stop < end && *stop != '\n')
        return tu_fail(TU_INVALID,
                       "'%.300s': the header is longer than %d bytes: expected at most %d columns", path,
                       MAX_HEADER, TU__MAX_FIELDS);
    TU_TRY(check_encoding(csv, begin, stop));
    if (stop == end) TU_TRY(check_line_ends(csv, begin, end));
    csv->rows_at = (size_t)((csv->has_header ? stop : begin) - csv->bytes);
    return read_header(csv, header, begin, stop > begin && stop[-1] == '\r' ? stop - 1 : stop);
}

const char *tu__csv_rows(const tu__csv *csv) {
    return csv->bytes + csv->rows_at + (csv->has_header && csv->rows_at < csv->size);
}

size_t tu__csv_find(const tu__csv *csv, const char *name) {
    uint32_t field = *find_slot(csv, name);
    return field ? field - 1 : csv->field_count;
}
