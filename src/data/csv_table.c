/* Data sets from CSV files: converts a file to a data file with the columns "numbers", "categories" and "target".
 *
 * The file is read in blocks of 4 MiB, a few at a time: the threads parse the rows of a block into arrays; then, in the
 * order of the blocks, new categories get codes, the rows get their places in the splits, and the threads write the
 * arrays to these places. So memory is bounded, and the result depends neither on the number of threads nor on the blocks.
 *
 * Categories get codes in the order of the file. At the end they are sorted, and the codes in the data file, which are then
 * others, are replaced. */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "data/column_file.h"
#include "data/converted.h"
#include "data/csv.h"
#include "data/csv_dictionary.h"
#include "data/csv_layout.h"
#include "data/data_file.h"
#include "data/permutation.h"
#include "data/progress.h"

enum { BLOCK_BYTES = 4 << 20, BLOCKS_PER_THREAD = 2, MAX_THREADS = 64 };

typedef struct sums { /* of a field of numbers; of training rows */
    int64_t count, missing;
    double sum, squares; /* of differences from the field's shift */
    double min, max;
} sums;

/* Rows of one split of a block. */
typedef struct rows {
    int64_t count, capacity, first; /* first: their place in the split */
    float *numbers;
    int32_t *categories;
    void *targets;
} rows;

/* Result of reading a block. */
typedef struct parsed {
    const struct conversion *conversion;
    int64_t first_row; /* number of its first row in the file */
    rows split[2];
    sums *sums;                /* per field */
    tu__dictionary *new_texts; /* per field: categories that the table's dictionaries do not have */
    tu__arena arena;
    int64_t *missing; /* per field: training rows without a category */
    bool in_training; /* the row that is being read */
    tu_status status;
    int reason; /* errno of a failed write */
    char message[1024];
} parsed;

typedef struct conversion {
    const tu__csv *csv;
    const tu_dataset_options *options;
    tu__csv_layout layout;
    tu__csv_blocks blocks;
    tu__permutation order;
    tu_dataset_info info;
    tu__columns columns;
    int column[3]; /* index of "numbers", "categories" and "target"; -1: none */
    tu__column_writer writer;
    tu__arena arena;              /* of the dictionaries and fields */
    tu__dictionary *dictionaries; /* per field */
    sums *sums;                   /* per field, of all blocks */
    int64_t *missing;
    int64_t next[2]; /* places of the next rows */
    int threads;
    parsed *round; /* blocks that are being read */
    size_t round_first;
    tu__text *notice;
} conversion;

enum { NUMBERS, CATEGORIES, TARGET };

/* ---- Memory of a block ---- */

static size_t target_bytes(const conversion *c) {
    return c->layout.class_target ? sizeof(int32_t) : c->layout.targets * sizeof(float);
}

static bool grow_array(void *array, size_t count, size_t size) {
    void **address = array;
    if (size == 0) return true;
    void *grown = tu__realloc(*address, count * size, "the rows of a table");
    if (grown) *address = grown;
    return grown != NULL;
}

static bool reserve(const conversion *c, rows *r) {
    if (r->count < r->capacity) return true;
    int64_t capacity = r->capacity ? 2 * r->capacity : 16; /* a row may have 65,536 cells */
    size_t count = (size_t)capacity;
    if (!grow_array(&r->numbers, count, c->layout.numbers * sizeof(float)) ||
        !grow_array(&r->categories, count, c->layout.categories * sizeof(int32_t)) ||
        !grow_array(&r->targets, count, target_bytes(c)))
        return false;
    r->capacity = capacity;
    return true;
}

static void free_parsed(parsed *p) {
    if (!p->conversion) return;
    for (int s = 0; s < 2; s++) {
        tu__free(p->split[s].numbers);
        tu__free(p->split[s].categories);
        tu__free(p->split[s].targets);
    }
    for (size_t i = 0; p->new_texts && i < p->conversion->csv->field_count; i++)
        tu__dictionary_free(&p->new_texts[i]);
    tu__free(p->new_texts);
    tu__free(p->sums);
    tu__free(p->missing);
    tu__arena_free(&p->arena);
    *p = (parsed){0};
}

static tu_status prepare(const conversion *c, int64_t first_row, parsed *p) {
    size_t fields = c->csv->field_count;
    if (!p->conversion) {
        p->conversion = c;
        p->arena.purpose = "the categories of a table";
        p->sums = tu__alloc_array(fields, sizeof *p->sums, "the columns of a table");
        p->new_texts = tu__alloc_array(fields, sizeof *p->new_texts, "the columns of a table");
        p->missing = tu__alloc_array(fields, sizeof *p->missing, "the columns of a table");
        if (!p->sums || !p->new_texts || !p->missing) return TU_NO_MEMORY;
    }
    memset(p->sums, 0, fields * sizeof *p->sums);
    memset(p->missing, 0, fields * sizeof *p->missing);
    for (size_t i = 0; i < fields; i++) {
        if (p->new_texts[i].count) tu__dictionary_free(&p->new_texts[i]);
        p->new_texts[i].arena = &p->arena;
    }
    tu__arena_free(&p->arena);
    p->split[0].count = p->split[1].count = 0;
    p->first_row = first_row;
    p->status = TU_OK;
    p->reason = 0;
    return TU_OK;
}

/* ---- Reading a block ---- */

static tu_status fail_too_many(const conversion *c, const char *at, size_t field) {
    return tu__csv_fail(c->csv, at, field,
                        "the column has more than %d different texts: leave it out with --drop %.60s",
                        TU__MAX_CATEGORIES, c->csv->names[field]);
}

/* New categories get the codes -2, -3, … until the block's turn comes. */
static int32_t find_code(void *context, size_t field, const char *at, const char *text, size_t length) {
    parsed *p = context;
    const conversion *c = p->conversion;
    uint64_t hash = tu__dictionary_hash(text, length);
    int32_t code = tu__dictionary_find(&c->dictionaries[field], text, length, hash);
    if (code >= 0) return code;
    tu__dictionary *d = &p->new_texts[field];
    code = tu__dictionary_find(d, text, length, hash);
    if (code < 0 && d->count > TU__MAX_CATEGORIES) {
        fail_too_many(c, at, field);
        return INT32_MIN;
    }
    if (code < 0) code = tu__dictionary_add(d, text, length, hash);
    return code < 0 ? INT32_MIN : -2 - code;
}

static void add_number(sums *s, double shift, float number) {
    if (isnan(number)) {
        s->missing++;
        return;
    }
    double value = (double)number, difference = value - shift;
    if (!s->count || value < s->min) s->min = value;
    if (!s->count || value > s->max) s->max = value;
    s->count++;
    s->sum += difference;
    s->squares += difference * difference;
}

/* Codes below -1 are those of new categories. */
static void add_category(parsed *p, size_t field, int32_t code) {
    const tu__dictionary *d = code >= 0 ? &p->conversion->dictionaries[field] : &p->new_texts[field];
    size_t index = (size_t)(code >= 0 ? code : -2 - code);
    if (code == -1)
        p->missing[field]++;
    else if (!atomic_load_explicit(&d->trained[index], memory_order_relaxed))
        atomic_store_explicit(&d->trained[index], true, memory_order_relaxed);
}

static void add_row(parsed *p, const tu__csv_row *row) {
    const tu__csv_layout *l = &p->conversion->layout;
    for (size_t i = 0; i < l->csv->field_count; i++) {
        const tu__csv_field *f = &l->fields[i];
        if (f->role == TU__CSV_NUMBER)
            add_number(&p->sums[i], f->shift, (f->is_target ? row->targets : row->numbers)[f->element]);
        else if (f->role == TU__CSV_CATEGORY && !f->is_target)
            add_category(p, i, row->categories[f->element]);
    }
}

/* Returns the places of a row. A table without a column has no array of it. */
static tu__csv_row row_at(const tu__csv_layout *l, const rows *r, size_t place) {
    tu__csv_row row = {0};
    if (r->numbers) row.numbers = r->numbers + place * l->numbers;
    if (r->categories) row.categories = r->categories + place * l->categories;
    if (l->class_target)
        row.class_target = (int32_t *)r->targets + place;
    else if (r->targets)
        row.targets = (float *)r->targets + place * l->targets;
    return row;
}

static tu_status parse_rows(parsed *p, const tu__csv_block *block) {
    const conversion *c = p->conversion;
    const tu__csv_layout *l = &c->layout;
    const char *at = block->first, *next;
    const char *file_end = c->csv->bytes + c->csv->size;
    int64_t row_number = p->first_row;
    while (at && at < file_end && at <= block->end) {
        if (tu__csv_is_blank(at, file_end, &next)) {
            at = next;
            continue;
        }
        bool is_test = tu__permute(&c->order, row_number++) < c->info.count[TU_TEST];
        rows *r = &p->split[is_test ? TU_TEST : TU_TRAIN];
        if (!reserve(c, r)) return TU_NO_MEMORY;
        tu__csv_row row = row_at(l, r, (size_t)r->count);
        TU_TRY(tu__csv_read_row(l, &at, find_code, p, &row));
        r->count++;
        if (!is_test) add_row(p, &row);
    }
    return TU_OK;
}

static void parse_blocks(void *context, int64_t first, int64_t last, int worker) {
    conversion *c = context;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        parsed *p = &c->round[i];
        p->status = parse_rows(p, &c->blocks.block[c->round_first + (size_t)i]);
        if (p->status != TU_OK) snprintf(p->message, sizeof p->message, "%s", tu_message());
    }
}

/* ---- Writing a block ---- */

/* Gives the new categories of a block their codes, which `codes` lists. */
static tu_status merge_texts(conversion *c, parsed *p, size_t field, int32_t *codes) {
    tu__dictionary *all = &c->dictionaries[field];
    const tu__dictionary *texts = &p->new_texts[field];
    for (size_t i = 0; i < texts->count; i++) {
        codes[i] = tu__dictionary_find(all, texts->texts[i], texts->lengths[i], texts->hashes[i]);
        if (codes[i] >= 0) {
            if (texts->trained[i]) all->trained[codes[i]] = true;
            continue;
        }
        if (all->count == TU__MAX_CATEGORIES)
            return tu_fail(
                TU_INVALID,
                "'%.300s', column '%.60s': more than %d different texts: leave it out with --drop %.60s",
                c->csv->path, c->csv->names[field], TU__MAX_CATEGORIES, c->csv->names[field]);
        codes[i] = tu__dictionary_add(all, texts->texts[i], texts->lengths[i], texts->hashes[i]);
        if (codes[i] < 0) return TU_NO_MEMORY;
        all->trained[codes[i]] = texts->trained[i];
    }
    return TU_OK;
}

static void replace_codes(const parsed *p, const tu__csv_field *f, const int32_t *codes) {
    const conversion *c = p->conversion;
    size_t stride = f->is_target ? 1 : c->layout.categories;
    for (int s = 0; s < 2; s++) {
        const rows *r = &p->split[s];
        int32_t *at = f->is_target ? r->targets : r->categories;
        for (int64_t i = 0; i < r->count; i++) {
            int32_t *code = &at[(size_t)i * stride + (f->is_target ? 0 : f->element)];
            if (*code < -1) *code = codes[-2 - *code];
        }
    }
}

static tu_status merge_categories(conversion *c, parsed *p) {
    for (size_t i = 0; i < c->csv->field_count; i++) {
        size_t count = p->new_texts[i].count;
        if (!count) continue;
        int32_t *codes = tu__alloc_array(count, sizeof *codes, "the categories of a table");
        tu_status status = codes ? merge_texts(c, p, i, codes) : TU_NO_MEMORY;
        if (status == TU_OK) replace_codes(p, &c->layout.fields[i], codes);
        tu__free(codes);
        TU_TRY(status);
    }
    return TU_OK;
}

static void merge_sums(conversion *c, const parsed *p) {
    for (size_t i = 0; i < c->csv->field_count; i++) {
        sums *all = &c->sums[i];
        const sums *s = &p->sums[i];
        c->missing[i] += p->missing[i];
        all->missing += s->missing;
        if (!s->count) continue;
        if (!all->count || s->min < all->min) all->min = s->min;
        if (!all->count || s->max > all->max) all->max = s->max;
        all->count += s->count;
        all->sum += s->sum;
        all->squares += s->squares;
    }
}

static void write_blocks(void *context, int64_t first, int64_t last, int worker) {
    conversion *c = context;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        parsed *p = &c->round[i];
        for (int s = 0; s < 2; s++) {
            const rows *r = &p->split[s];
            const void *const data[] = {r->numbers, r->categories, r->targets};
            for (int k = 0; k < 3 && !p->reason; k++)
                if (c->column[k] >= 0)
                    tu__column_writer_put(&c->writer, (tu_split)s, (size_t)c->column[k], r->first, r->count,
                                          data[k], &p->reason);
        }
    }
}

/* The pages of blocks that were read count as memory of the process until they are released. */
static void release_blocks(const conversion *c, size_t first, size_t count) {
    const char *end = c->blocks.block[first + count - 1].end;
    tu__release_pages(&c->csv->file, c->csv->rows_at + first * BLOCK_BYTES, (size_t)(end - c->csv->bytes));
}

/* Reads and writes the blocks [first, first + count). */
static tu_status convert_round(conversion *c, size_t first, size_t count, int64_t *row) {
    c->round_first = first;
    for (size_t i = 0; i < count; i++) {
        TU_TRY(prepare(c, *row, &c->round[i]));
        *row += c->blocks.block[first + i].rows;
    }
    tu__parallel_setting before = tu__parallel_begin(c->threads);
    tu__parallel_for_stealing((int64_t)count, 1, parse_blocks, c);
    tu__parallel_end(before);
    for (size_t i = 0; i < count; i++) {
        parsed *p = &c->round[i];
        if (p->status != TU_OK) return tu_fail(p->status, "%s", p->message);
        TU_TRY(merge_categories(c, p));
        merge_sums(c, p);
        for (int s = 0; s < 2; s++) {
            p->split[s].first = c->next[s];
            c->next[s] += p->split[s].count;
        }
    }
    before = tu__parallel_begin(c->threads);
    tu__parallel_for_stealing((int64_t)count, 1, write_blocks, c);
    tu__parallel_end(before);
    release_blocks(c, first, count);
    for (size_t i = 0; i < count; i++)
        if (c->round[i].reason) return tu__column_writer_fail(&c->writer, c->round[i].reason);
    return TU_OK;
}

/* ---- Fields ---- */

static double mean_of(const conversion *c, size_t field) {
    const sums *s = &c->sums[field];
    return s->count ? c->layout.fields[field].shift + s->sum / (double)s->count : 0;
}

static double deviation_of(const sums *s) {
    double count = (double)s->count, mean = s->count ? s->sum / count : 0;
    double variance = s->count ? s->squares / count - mean * mean : 0;
    return variance > 0 && s->min < s->max ? sqrt(variance) : 0;
}

/* Maps the unfinished data file and replaces the codes of a category field by their sorted positions. */
static tu_status rewrite_codes(const conversion *c, const tu__csv_field *f, const int32_t *order) {
    size_t stride = f->is_target ? 1 : c->layout.categories;
    size_t column = (size_t)c->column[f->is_target ? TARGET : CATEGORIES];
    void *map = tu__save_map(&c->writer.save, c->writer.sections.end);
    if (!map) return tu_fail(TU_IO, "cannot map '%s' into memory: %s", c->writer.save.path, strerror(errno));
    for (int s = 0; s < 2; s++) {
        int32_t *codes = (int32_t *)(void *)((char *)map + c->writer.sections.column[s][column]);
        for (int64_t i = 0; i < c->info.count[s]; i++) {
            int32_t *code = &codes[(size_t)i * stride + (f->is_target ? 0 : f->element)];
            if (*code >= 0) *code = order[*code];
        }
    }
    munmap(map, c->writer.sections.end);
    return TU_OK;
}

/* A category of the test rows alone is a missing one, as it is for every network that is trained on the others. A class
 * of the target stays one, so that these rows can be counted. */
static tu_status describe_categories(conversion *c, size_t field, tu__field *f) {
    const tu__dictionary *d = &c->dictionaries[field];
    const char **sorted = tu__arena_alloc(&c->arena, (d->count + 1) * sizeof *sorted);
    int32_t *order = tu__arena_alloc(&c->arena, (d->count + 1) * sizeof *order);
    if (!sorted || !order) return TU_NO_MEMORY;
    int64_t count = tu__dictionary_sort(d, c->layout.fields[field].is_target, order, sorted);
    if (count < 0) return TU_NO_MEMORY;
    bool changed = false;
    for (size_t i = 0; i < d->count; i++) changed |= order[i] != (int32_t)i;
    if (count == 0) sorted[count++] = ""; /* every cell is missing */
    *f = (tu__field){.name = c->csv->names[field],
                     .missing = c->missing[field],
                     .categories = count,
                     .category_names = sorted};
    return changed ? rewrite_codes(c, &c->layout.fields[field], order) : TU_OK;
}

static tu_status check_target(const conversion *c, size_t field, const tu__field *f) {
    bool constant = f->categories ? f->categories == 1 : f->min == f->max;
    if (!constant) return TU_OK;
    if (f->categories)
        return tu_fail(TU_INVALID,
                       "'%.300s', column '%.60s': the target is '%.60s' in all rows: there is nothing to "
                       "learn",
                       c->csv->path, c->csv->names[field], f->category_names[0]);
    return tu_fail(TU_INVALID,
                   "'%.300s', column '%.60s': the target is %.9g in all training rows: there is nothing to "
                   "learn",
                   c->csv->path, c->csv->names[field], f->min);
}

/* f32 has 24 bits: a column like a date in seconds loses its differences. */
static void note_precision(const conversion *c, const tu__field *f) {
    if (f->categories || c->notice->length || f->deviation == 0 || fabs(f->mean) < f->deviation * 0x1p17)
        return;
    tu__text_printf(
        c->notice,
        "column '%.60s' has values around %.9g that differ by about %.3g only, which f32 rounds: subtract a "
        "constant from it",
        f->name, f->mean, f->deviation);
}

static tu_status describe_fields(conversion *c) {
    tu__field *fields[3] = {0};
    const size_t counts[3] = {c->layout.numbers, c->layout.categories, c->layout.targets};
    for (int k = 0; k < 3; k++) {
        if (c->column[k] < 0) continue;
        fields[k] = tu__arena_alloc(&c->arena, counts[k] * sizeof **fields);
        if (!fields[k]) return TU_NO_MEMORY;
        tu__column *column = &c->writer.columns.column[c->column[k]];
        column->fields = fields[k];
        column->field_count = counts[k];
    }
    for (size_t i = 0; i < c->csv->field_count; i++) {
        const tu__csv_field *l = &c->layout.fields[i];
        if (l->role == TU__CSV_DROP) continue;
        tu__field *f = &fields[l->is_target                ? TARGET
                               : l->role == TU__CSV_NUMBER ? NUMBERS
                                                           : CATEGORIES][l->element];
        const sums *s = &c->sums[i];
        if (l->role == TU__CSV_CATEGORY)
            TU_TRY(describe_categories(c, i, f));
        else
            *f = (tu__field){.name = c->csv->names[i],
                             .mean = mean_of(c, i),
                             .deviation = deviation_of(s),
                             .min = s->min,
                             .max = s->max,
                             .missing = s->missing};
        if (l->is_target) TU_TRY(check_target(c, i, f));
        if (l->is_target && f->categories)
            c->writer.columns.column[c->column[TARGET]].classes = f->categories;
        note_precision(c, f);
    }
    return TU_OK;
}

/* ---- The conversion ---- */

/* The number of classes is known at the end; until then it is 1. */
static void make_columns(conversion *c) {
    const tu__csv_layout *l = &c->layout;
    c->columns = (tu__columns){0};
    c->column[NUMBERS] = c->column[CATEGORIES] = c->column[TARGET] = -1;
    if (l->numbers) {
        c->column[NUMBERS] = (int)c->columns.count;
        c->columns.column[c->columns.count++] = (tu__column){
            .name = "numbers", .kind = TU_COLUMN_NUMBERS, .type = {TU_F32, TU_SHAPE((int64_t)l->numbers)}};
    }
    if (l->categories) {
        c->column[CATEGORIES] = (int)c->columns.count;
        c->columns.column[c->columns.count++] =
            (tu__column){.name = "categories",
                         .kind = TU_COLUMN_CATEGORIES,
                         .type = {TU_I32, TU_SHAPE((int64_t)l->categories)}};
    }
    if (!l->targets) return;
    c->column[TARGET] = (int)c->columns.count;
    tu__column target = {.name = "target", .is_target = true};
    if (l->class_target)
        target.kind = TU_COLUMN_CLASS, target.type = (tu_type){TU_I32, TU_SCALAR}, target.classes = 1;
    else
        target.kind = TU_COLUMN_NUMBERS,
        target.type = (tu_type){TU_F32, l->targets == 1 ? TU_SCALAR : TU_SHAPE((int64_t)l->targets)};
    c->columns.column[c->columns.count++] = target;
}

static int32_t any_code(void *context, size_t field, const char *at, const char *text, size_t length) {
    (void)context, (void)field, (void)at, (void)text, (void)length;
    return 0;
}

static tu_status read_first_row(const conversion *c) {
    const char *end = c->csv->bytes + c->csv->size, *at = tu__csv_rows(c->csv), *next;
    while (at < end && tu__csv_is_blank(at, end, &next)) at = next;
    if (at == end) return TU_OK;
    float *numbers = tu__alloc_array(c->layout.numbers + c->layout.targets + 1, sizeof *numbers, "a row");
    int32_t *categories = tu__alloc_array(c->layout.categories + 1, sizeof *categories, "a row"), class;
    tu__csv_row row = {numbers, categories, numbers ? numbers + c->layout.numbers : NULL, &class};
    tu_status status =
        numbers && categories ? tu__csv_read_row(&c->layout, &at, any_code, NULL, &row) : TU_NO_MEMORY;
    tu__free(numbers);
    tu__free(categories);
    return status;
}

static tu_status count_rows(conversion *c) {
    TU_TRY(tu__csv_divide(c->csv, BLOCK_BYTES, c->threads, &c->blocks));
    int64_t count = c->blocks.rows;
    if (count < 2) TU_TRY(read_first_row(c)); /* a quote that is never closed hides the rows after it */
    if (count < 2)
        return tu_fail(TU_INVALID, "'%.300s' has %lld rows below the header: expected at least two",
                       c->csv->path, (long long)count);
    double share = c->options->test_share > 0 ? c->options->test_share : 0.1;
    int64_t test = (int64_t)((double)count * share + 0.5);
    c->info.count[TU_TEST] = test < 1 ? 1 : test >= count ? count - 1 : test;
    c->info.count[TU_TRAIN] = count - c->info.count[TU_TEST];
    c->order = tu__permutation_of(c->options->seed, 0, count);
    return TU_OK;
}

static tu_status allocate(conversion *c) {
    size_t fields = c->csv->field_count;
    c->dictionaries = tu__alloc_array(fields, sizeof *c->dictionaries, "the columns of a table");
    c->sums = tu__alloc_array(fields, sizeof *c->sums, "the columns of a table");
    c->missing = tu__alloc_array(fields, sizeof *c->missing, "the columns of a table");
    c->round =
        tu__alloc_array((size_t)c->threads * BLOCKS_PER_THREAD, sizeof *c->round, "the rows of a table");
    if (!c->dictionaries || !c->sums || !c->missing || !c->round) return TU_NO_MEMORY;
    for (size_t i = 0; i < fields; i++) c->dictionaries[i].arena = &c->arena;
    return TU_OK;
}

static tu_status convert(conversion *c, const char *path) {
    TU_TRY(count_rows(c));
    TU_TRY(allocate(c));
    make_columns(c);
    TU_TRY(tu__column_writer_begin(path, &c->info, &c->columns, &c->writer));
    c->writer.threads = c->threads;
    int64_t row = 0;
    size_t each = (size_t)c->threads * BLOCKS_PER_THREAD;
    for (size_t first = 0; first < c->blocks.count; first += each) {
        size_t left = c->blocks.count - first;
        TU_TRY(convert_round(c, first, left < each ? left : each, &row));
        if (c->blocks.count > each) tu__report_progress(c->options, "reading rows", row, c->blocks.rows);
    }
    /* So that the file can be mapped up to its end: */
    int reason = 0;
    if (!tu__save_write_at(&c->writer.save, "", 1, (off_t)c->writer.sections.end, &reason))
        return tu__column_writer_fail(&c->writer, reason);
    TU_TRY(describe_fields(c));
    if (c->notice->length) c->writer.info.notice = tu__text_string(c->notice);
    return tu__column_writer_finish(&c->writer);
}

static void free_conversion(conversion *c) {
    tu__column_writer_end(&c->writer);
    for (size_t i = 0; c->round && i < (size_t)c->threads * BLOCKS_PER_THREAD; i++) free_parsed(&c->round[i]);
    for (size_t i = 0; c->dictionaries && i < c->csv->field_count; i++)
        tu__dictionary_free(&c->dictionaries[i]);
    tu__free(c->round);
    tu__free(c->dictionaries);
    tu__free(c->sums);
    tu__free(c->missing);
    tu__free(c->blocks.block);
    tu__free(c->layout.fields);
    tu__arena_free(&c->arena);
}

static int thread_count(void) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1 ? 1 : cores > MAX_THREADS ? MAX_THREADS : (int)cores;
}

static tu_status convert_file(const char *source, const char *path, const tu_dataset_options *options) {
    tu__csv csv;
    tu__text notice = {0};
    char name[64];
    conversion c = {.csv = &csv, .options = options, .threads = thread_count(), .notice = &notice};
    c.arena.purpose = "the columns of a table";
    c.writer.save.fd = -1;
    tu__last_component(source, name);
    c.info = (tu_dataset_info){.name = name, .origin = source};
    tu_status status = tu__csv_open(source, options->header, &csv);
    if (status == TU_OK) status = tu__csv_choose_layout(&csv, options, &c.layout, &notice);
    if (status == TU_OK) status = convert(&c, path);
    free_conversion(&c);
    tu__csv_close(&csv);
    tu__text_free(&notice);
    return status;
}

/* ---- Opening ---- */

static tu_status find_path(const char *source, const struct stat *info, const tu_dataset_options *o,
                           tu__path *path) {
    tu__text key = {0};
    tu__text_printf(&key, "csv 3: %s %lld %lld.%09ld, %.17g held out by %llu", source,
                    (long long)info->st_size, (long long)info->st_mtim.tv_sec, info->st_mtim.tv_nsec,
                    o->test_share, (unsigned long long)o->seed);
    const char *const lists[] = {o->target, o->categories, o->drop, o->header};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        tu__text_printf(&key, ", %zu %s", i, lists[i] ? lists[i] : "");
    tu_status status = tu__converted_path(source, &key, path);
    tu__text_free(&key);
    return status;
}

tu_status tu__open_csv(const char *given, const tu_dataset_options *options, tu_dataset **dataset) {
    char source[PATH_MAX];
    struct stat info;
    tu__path path;
    if (!realpath(given, source) || stat(source, &info) != 0)
        return tu_fail(errno == ENOENT ? TU_NOT_FOUND : TU_IO, "cannot open '%s': %s", given,
                       strerror(errno));
    TU_TRY(find_path(source, &info, options, &path));
    int lock;
    TU_TRY(tu__converted_begin(path.text, options, &lock));
    tu_status status = lock < 0 ? TU_OK : convert_file(source, path.text, options);
    tu__converted_end(lock);
    return status == TU_OK ? tu__data_file_open(path.text, dataset) : status;
}
