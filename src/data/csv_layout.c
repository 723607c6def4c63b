/* Chooses the layout of a table. See csv_layout.h. */
#include "data/csv_layout.h"

#include <math.h>
#include <string.h>

#include <tutti/command.h>

#include "base/alloc.h"

/* ---- Lists of names ---- */

static tu_status fail_unknown(const tu__csv *csv, const char *option, const char *name) {
    size_t count = csv->field_count < 1000 ? csv->field_count : 1000;
    const char *nearest = tu_nearest_name(name, csv->names, count);
    return tu_fail(TU_INVALID, "--%s: '%.300s' has no column '%.60s'%s%.60s%s", option, csv->path, name,
                   nearest ? "; did you mean '" : ": its columns are in line 1", nearest ? nearest : "",
                   nearest ? "'?" : "");
}

tu_status tu__csv_each_name(const tu__csv *csv, const char *option, const char *list,
                            tu_status (*use)(void *context, size_t field), void *context) {
    char name[TU__CSV_LONGEST];
    if (!list) return TU_OK;
    for (const char *p = list; *p;) {
        const char *begin = *p == '"' ? p + 1 : p, *stop = begin + strcspn(begin, *p == '"' ? "\"" : ",");
        size_t length = (size_t)(stop - begin);
        if (length >= sizeof name)
            return tu_fail(TU_INVALID, "--%s: a name is longer than 4,095 bytes", option);
        memcpy(name, begin, length);
        name[length] = '\0';
        size_t field = tu__csv_find(csv, name);
        if (field == csv->field_count) return fail_unknown(csv, option, name);
        TU_TRY(use(context, field));
        p = *stop == '"' ? stop + 1 : stop;
        if (*p == ',') p++;
    }
    return TU_OK;
}

/* ---- The first rows ---- */

typedef struct seen { /* of a column */
    int64_t numbers, texts;
    int64_t commas;  /* of the texts, those that are numbers with a comma */
    int64_t whole;   /* of the numbers, those that are integers from 0 to 19 */
    uint32_t values; /* bit v is set if the integer v occurs */
    double sum;
    const char *text; /* the first that is not a number */
} seen;

/* True for "1,5". */
static bool has_decimal_comma(const tu__csv_cell *cell) {
    char text[40];
    double number;
    const char *comma = memchr(cell->text, ',', cell->length);
    if (!comma || cell->length >= sizeof text) return false;
    memcpy(text, cell->text, cell->length);
    text[comma - cell->text] = '.';
    return tu__csv_is_number(text, cell->length, &number);
}

static void look_at_cell(const tu__csv_cell *cell, const char *at, seen *s) {
    double number;
    if (tu__csv_is_missing(cell->text, cell->length)) return;
    if (!tu__csv_is_number(cell->text, cell->length, &number)) {
        if (!s->texts++) s->text = at;
        s->commas += has_decimal_comma(cell);
        return;
    }
    s->numbers++;
    if (isfinite(number)) s->sum += number;
    if (number >= 0 && number < 20 && number == floor(number)) {
        s->whole++;
        s->values |= 1u << (int)number;
    }
}

static tu_status look_at_rows(const tu__csv *csv, seen *columns) {
    const char *end = csv->bytes + csv->size, *at = tu__csv_rows(csv);
    tu__csv_cell *cell = tu__alloc(sizeof *cell, "a cell");
    if (!cell) return TU_NO_MEMORY;
    for (int64_t row = 0; row < TU__CSV_SAMPLE_ROWS && at < end; row++) {
        const char *next;
        if (tu__csv_is_blank(at, end, &next)) {
            at = next;
            continue;
        }
        bool more = true;
        for (size_t i = 0; more; i++) {
            tu__csv_cell_at(at, end, csv->delimiter, cell);
            if (cell->problem && (!cell->next || cell->length < TU__CSV_LONGEST))
                goto done; /* reported when the row is read */
            if (i < csv->field_count && !cell->problem) look_at_cell(cell, at, &columns[i]);
            at = cell->next;
            more = at < end && *at == csv->delimiter;
            if (at < end) at++;
        }
    }
done:
    tu__free(cell);
    return TU_OK;
}

/* ---- Choosing ---- */

struct choice {
    const tu__csv *csv;
    tu__csv_layout *layout;
    seen *seen;
};

static tu_status drop(void *context, size_t field) {
    const struct choice *c = context;
    if (c->layout->fields[field].is_target)
        return tu_fail(TU_INVALID, "--drop: column '%.60s' is the target", c->csv->names[field]);
    c->layout->fields[field].role = TU__CSV_DROP;
    return TU_OK;
}

static tu_status read_as_categories(void *context, size_t field) {
    const struct choice *c = context;
    c->layout->fields[field].role = TU__CSV_CATEGORY;
    c->layout->fields[field].is_chosen = true;
    return TU_OK;
}

static tu_status make_target(void *context, size_t field) {
    const struct choice *c = context;
    tu__csv_field *f = &c->layout->fields[field];
    if (f->is_target) return tu_fail(TU_INVALID, "--target names column '%.60s' twice", c->csv->names[field]);
    f->is_target = true;
    f->element = c->layout->targets++;
    return TU_OK;
}

static void choose_roles(const struct choice *c) {
    for (size_t i = 0; i < c->csv->field_count; i++) {
        const seen *s = &c->seen[i];
        bool numbers = s->texts == 0 || (double)s->numbers >= 0.9 * (double)(s->numbers + s->texts);
        c->layout->fields[i].role = numbers ? TU__CSV_NUMBER : TU__CSV_CATEGORY;
        c->layout->fields[i].shift = s->numbers ? s->sum / (double)s->numbers : 0;
    }
}

/* Numbers with a decimal comma would be categories, each with hardly any rows. */
static tu_status check_commas(const struct choice *c) {
    for (size_t i = 0; i < c->csv->field_count; i++) {
        const seen *s = &c->seen[i];
        if (c->layout->fields[i].role != TU__CSV_CATEGORY || c->layout->fields[i].is_chosen || !s->commas ||
            (double)(s->numbers + s->commas) < 0.9 * (double)(s->numbers + s->texts))
            continue;
        return tu__csv_fail(
            c->csv, s->text, i,
            "the numbers have a comma: expected a decimal point; to read the column as categories, "
            "use --categories %.60s",
            c->csv->names[i]);
    }
    return TU_OK;
}

static tu_status check_targets(const struct choice *c) {
    size_t categories = 0, field = 0;
    for (size_t i = 0; i < c->csv->field_count; i++)
        if (c->layout->fields[i].is_target && c->layout->fields[i].role == TU__CSV_CATEGORY)
            categories++, field = i;
    c->layout->class_target = categories > 0;
    if (categories == 0 || c->layout->targets == 1) return TU_OK;
    return tu_fail(
        TU_INVALID,
        "--target names %zu columns, of which '%.60s' contains text: expected one column of text, or several "
        "of numbers",
        c->layout->targets, c->csv->names[field]);
}

static void number_elements(const struct choice *c) {
    tu__csv_layout *l = c->layout;
    for (size_t i = 0; i < c->csv->field_count; i++) {
        tu__csv_field *f = &l->fields[i];
        if (f->is_target) continue;
        if (f->role == TU__CSV_NUMBER) f->element = l->numbers++;
        if (f->role == TU__CSV_CATEGORY) f->element = l->categories++;
    }
}

static int count_bits(uint32_t bits) {
    return __builtin_popcount(bits);
}

/* The first line may be a row of a file that has no header; but years, for example, are names. */
static void note_header(const tu__csv *csv, tu__text *notice) {
    const char *number = tu__csv_number_in_header(csv);
    if (number)
        tu__text_printf(
            notice,
            "line 1 of '%.300s' is read as the header, although '%.60s' is a number; if the file has "
            "no header, use --header no",
            csv->path, number);
}

/* A whole number with few values may be meant as a class. */
static void note_target(const struct choice *c, tu__text *notice) {
    for (size_t i = 0; i < c->csv->field_count; i++) {
        const tu__csv_field *f = &c->layout->fields[i];
        const seen *s = &c->seen[i];
        if (f->is_target && f->role == TU__CSV_NUMBER && c->layout->targets == 1 && s->numbers > 40 &&
            s->whole == s->numbers && count_bits(s->values) >= 2)
            tu__text_printf(
                notice,
                "the target '%.60s' is a number with %d different values; if these are classes, use --task "
                "classification",
                c->csv->names[i], count_bits(s->values));
    }
}

/* The numbers of rows that R and pandas write are left out, unless an option names their column. */
static tu_status choose_named(const struct choice *c, const tu_dataset_options *o, tu__text *notice) {
    void *context = (void *)c;
    tu__csv_field *first = &c->layout->fields[0];
    TU_TRY(tu__csv_each_name(c->csv, "target", o->target, make_target, context));
    if (c->csv->has_row_names && !first->is_target) first->role = TU__CSV_DROP;
    TU_TRY(tu__csv_each_name(c->csv, "categories", o->categories, read_as_categories, context));
    if (first->role == TU__CSV_DROP)
        tu__text_printf(
            notice,
            "the first column of '%.300s' has no name and is left out, since R and pandas write the "
            "numbers of rows there",
            c->csv->path);
    return TU_OK;
}

static tu_status choose(const struct choice *c, const tu_dataset_options *o, tu__text *notice) {
    void *context = (void *)c;
    choose_roles(c);
    TU_TRY(choose_named(c, o, notice));
    TU_TRY(tu__csv_each_name(c->csv, "drop", o->drop, drop, context));
    TU_TRY(check_commas(c));
    TU_TRY(check_targets(c));
    number_elements(c);
    if (c->layout->numbers + c->layout->categories == 0)
        return tu_fail(TU_INVALID, "'%.300s' has no column besides %s: expected at least one", c->csv->path,
                       c->layout->targets ? "the target and those that are left out"
                                          : "those that are left out");
    if (!notice->length && !(o->header && *o->header)) note_header(c->csv, notice);
    if (!notice->length) note_target(c, notice);
    return TU_OK;
}

tu_status tu__csv_choose_layout(const tu__csv *csv, const tu_dataset_options *options, tu__csv_layout *layout,
                                tu__text *notice) {
    *layout = (tu__csv_layout){.csv = csv};
    layout->fields = tu__alloc_array(csv->field_count, sizeof *layout->fields, "the columns of a table");
    seen *columns = tu__alloc_array(csv->field_count, sizeof *columns, "the columns of a table");
    tu_status status = layout->fields && columns ? look_at_rows(csv, columns) : TU_NO_MEMORY;
    const struct choice c = {csv, layout, columns};
    if (status == TU_OK) status = choose(&c, options, notice);
    tu__free(columns);
    if (status != TU_OK) {
        tu__free(layout->fields);
        layout->fields = NULL;
    }
    return status;
}
