/* tu_predict_table: predicts the target of the rows of a CSV file, and writes a CSV file.
 *
 * The network of a run, or a model file, is loaded as a model (tutti/model.h). Its description of columns says which fields
 * it needs; they are found by their names, so the order of the file's columns does not matter, and it may have others.
 * Rows are read, computed and written in blocks, so that memory does not depend on their number. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <tutti/model.h>

#include "base/alloc.h"
#include "base/save.h"
#include "base/sized.h"
#include "base/text.h"
#include "data/csv.h"
#include "data/csv_dictionary.h"
#include "graph/graph.h"
#include "train/task.h"
#include "train/trained_model.h"

enum { BLOCK_ROWS = 1024, MAX_BATCH = 256, MOST_PROBABILITIES = 100 };

typedef struct prediction {
    tu__arena arena; /* of dictionaries, and of the description of columns */
    tu__trained_model trained;
    tu_model *model;
    tu__columns columns;
    const char *task;
    const char *output; /* of the model: "probability" or "prediction" */
    tu_type output_type;
    int64_t width; /* numbers of the output per row */
    tu__csv csv;
    tu__csv_layout layout;
    const tu__field **fields;     /* per field of the file; NULL: not needed */
    tu__dictionary *dictionaries; /* per field of the file: categories of training */
    float *numbers;
    int32_t *categories;
    float *outputs;
    tu__save save;
    tu__text text; /* of the output file, not written yet */
    tu_table_prediction result;
} prediction;

/* ---- The model ---- */

static bool is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static tu_status open_file(prediction *p, const char *path, const tu_trained_options *o) {
    if (o->checkpoint && strcmp(o->checkpoint, "last") != 0)
        return tu_fail(TU_INVALID, "checkpoint '%.60s': '%s' is a model file, which has no checkpoints",
                       o->checkpoint, path);
    TU_TRY(
        tu_model_load(path, &p->model, .devices = o->devices, .threads = o->threads, .max_batch = MAX_BATCH));
    const char *columns = tu_model_text(p->model, "columns");
    const tu__json_value *array;
    p->task = tu_model_text(p->model, "task");
    if (!columns || !p->task)
        return tu_fail(TU_UNSUPPORTED,
                       "model '%s' does not describe the columns of a table: it cannot predict rows", path);
    TU_TRY(tu__json_parse(&p->arena, path, columns, strlen(columns), &array));
    return tu__columns_read(path, array, &p->arena, &p->columns);
}

static tu_status open_run(prediction *p, const char *folder, const tu_trained_options *o) {
    TU_TRY(tu__run_config_load(folder, &p->arena, &p->trained.config));
    if (p->trained.config.members)
        return tu_fail(
            TU_UNSUPPORTED,
            "'%s' is an ensemble: export it with 'tutti export' and predict rows with the model file",
            folder);
    TU_TRY(tu__trained_model_open(folder, "predict", o, &p->trained));
    p->columns = p->trained.config.columns;
    p->task = p->trained.config.task;
    return tu_model_new(p->trained.graph, p->trained.state, &p->model, .devices = o->devices,
                        .threads = o->threads, .max_batch = MAX_BATCH);
}

static tu_status check_model(prediction *p, const char *path) {
    const char *wanted = strcmp(p->task, "classification") == 0 ? "probability" : "prediction";
    for (size_t i = 0; i < tu_model_output_count(p->model); i++) {
        TU_TRY(tu_model_output(p->model, i, &p->output, &p->output_type));
        if (strcmp(p->output, wanted) == 0) break;
    }
    if (strcmp(p->output, wanted) != 0 || p->output_type.dtype != TU_F32)
        return tu_fail(TU_UNSUPPORTED, "'%s' has no output '%s' of f32, which predictions of rows need", path,
                       wanted);
    for (size_t i = 0; i < tu_model_input_count(p->model); i++) {
        const char *name;
        TU_TRY(tu_model_input(p->model, i, &name, NULL));
        const tu__column *c = tu__columns_find(&p->columns, name);
        bool is_table =
            c && c->field_count && (c->kind == TU_COLUMN_NUMBERS || c->kind == TU_COLUMN_CATEGORIES);
        if (!is_table)
            return tu_fail(TU_UNSUPPORTED, "'%s' has the input '%s', which is no column of a CSV file", path,
                           name);
    }
    p->width = tu_shape_elements(p->output_type.shape);
    return TU_OK;
}

/* ---- The layout of the file ---- */

static tu_status add_categories(prediction *p, size_t field, const tu__field *f) {
    tu__dictionary *d = &p->dictionaries[field];
    d->arena = &p->arena;
    for (int64_t i = 0; i < f->categories; i++) {
        size_t length = strlen(f->category_names[i]);
        if (tu__dictionary_add(d, f->category_names[i], length,
                               tu__dictionary_hash(f->category_names[i], length)) < 0)
            return TU_NO_MEMORY;
    }
    return TU_OK;
}

static tu_status add_field(prediction *p, const tu__field *f, bool is_category, size_t element) {
    size_t field = tu__csv_find(&p->csv, f->name);
    if (field == p->csv.field_count)
        return tu_fail(TU_INVALID, "'%.300s' has no column '%.60s', which the network needs", p->csv.path,
                       f->name);
    p->layout.fields[field] =
        (tu__csv_field){.role = is_category ? TU__CSV_CATEGORY : TU__CSV_NUMBER, .element = element};
    p->fields[field] = f;
    return is_category ? add_categories(p, field, f) : TU_OK;
}

/* True if the network was trained on a file without a header. */
static bool has_numbered_columns(const prediction *p) {
    for (size_t i = 0; i < p->columns.count; i++) {
        const tu__column *c = &p->columns.column[i];
        for (size_t f = 0; f < c->field_count; f++)
            if (strncmp(c->fields[f].name, "column ", 7) != 0) return false;
    }
    return true;
}

static tu_status make_layout(prediction *p) {
    size_t count = p->csv.field_count;
    p->layout = (tu__csv_layout){.csv = &p->csv, .target_optional = true};
    p->layout.fields = tu__alloc_array(count, sizeof *p->layout.fields, "the columns of a table");
    p->fields = tu__alloc_array(count, sizeof *p->fields, "the columns of a table");
    p->dictionaries = tu__alloc_array(count, sizeof *p->dictionaries, "the columns of a table");
    if (!p->layout.fields || !p->fields || !p->dictionaries) return TU_NO_MEMORY;
    for (size_t i = 0; i < p->columns.count; i++) {
        const tu__column *c = &p->columns.column[i];
        bool is_category = c->kind == TU_COLUMN_CATEGORIES;
        if (c->is_target) continue;
        *(is_category ? &p->layout.categories : &p->layout.numbers) = c->field_count;
        for (size_t f = 0; f < c->field_count; f++) TU_TRY(add_field(p, &c->fields[f], is_category, f));
    }
    p->numbers =
        tu__alloc_array(BLOCK_ROWS * (p->layout.numbers + 1), sizeof *p->numbers, "the rows of a table");
    p->categories = tu__alloc_array(BLOCK_ROWS * (p->layout.categories + 1), sizeof *p->categories,
                                    "the rows of a table");
    p->outputs = tu__alloc_array((size_t)(BLOCK_ROWS * p->width), sizeof *p->outputs, "predictions");
    return p->numbers && p->categories && p->outputs ? TU_OK : TU_NO_MEMORY;
}

/* A category that training never saw is a missing one. The first is reported, and their number. */
static int32_t find_code(void *context, size_t field, const char *at, const char *text, size_t length) {
    prediction *p = context;
    int32_t code =
        tu__dictionary_find(&p->dictionaries[field], text, length, tu__dictionary_hash(text, length));
    if (code >= 0) return code;
    if (!p->result.unseen++) {
        (void)tu__csv_fail(&p->csv, at, field, "training never saw the category '%.*s'",
                           length < 60 ? (int)length : 60, text);
        snprintf(p->result.first_unseen, sizeof p->result.first_unseen, "%s", tu_message());
    }
    return -1;
}

/* ---- The output file ---- */

static void put_cell(tu__text *text, const char *cell) {
    if (!cell[strcspn(cell, ",\"\n\r")]) {
        tu__text_append(text, cell, strlen(cell));
        return;
    }
    tu__text_append(text, "\"", 1);
    for (const char *c = cell; *c; c++) {
        if (*c == '"') tu__text_append(text, "\"", 1);
        tu__text_append(text, c, 1);
    }
    tu__text_append(text, "\"", 1);
}

static void put_number(tu__text *text, double number) {
    char digits[32];
    snprintf(digits, sizeof digits, "%.9g", number);
    for (char *c = digits; *c; c++)
        if (*c == ',') *c = '.'; /* of the locale */
    tu__text_append(text, digits, strlen(digits));
}

static bool is_class(const prediction *p) {
    return strcmp(p->output, "probability") == 0;
}

static const char *class_name(const prediction *p, int64_t class, char number[24]) {
    const tu__column *target = tu__columns_target(&p->columns);
    if (target && target->field_count && class < target->fields[0].categories)
        return target->fields[0].category_names[class];
    snprintf(number, 24, "%" PRId64, class);
    return number;
}

/* The class and its probability, and those of all classes if there are few; else a column per number. */
static void put_header(prediction *p) {
    const tu__column *target = tu__columns_target(&p->columns);
    char number[24], cell[TU__CSV_LONGEST + 32];
    if (is_class(p)) {
        put_cell(&p->text, target && target->field_count ? target->fields[0].name : "class");
        tu__text_printf(&p->text, ",probability");
        for (int64_t i = 0; i < p->width && p->width <= MOST_PROBABILITIES; i++) {
            snprintf(cell, sizeof cell, "probability of %s", class_name(p, i, number));
            tu__text_append(&p->text, ",", 1);
            put_cell(&p->text, cell);
        }
    } else {
        for (int64_t i = 0; i < p->width; i++) {
            bool named = target && (int64_t)target->field_count == p->width;
            snprintf(cell, sizeof cell, "prediction %" PRId64, i + 1);
            if (i) tu__text_append(&p->text, ",", 1);
            put_cell(&p->text, named ? target->fields[i].name : cell);
        }
    }
    tu__text_append(&p->text, "\n", 1);
}

static void put_row(prediction *p, const float *output) {
    if (is_class(p)) {
        char number[24];
        int64_t best = 0;
        for (int64_t i = 1; i < p->width; i++)
            if (output[i] > output[best]) best = i;
        put_cell(&p->text, class_name(p, best, number));
        tu__text_append(&p->text, ",", 1);
        put_number(&p->text, (double)output[best]);
    }
    bool all = !is_class(p) || p->width <= MOST_PROBABILITIES;
    for (int64_t i = 0; all && i < p->width; i++) {
        if (i || is_class(p)) tu__text_append(&p->text, ",", 1);
        put_number(&p->text, (double)output[i]);
    }
    tu__text_append(&p->text, "\n", 1);
}

static tu_status write_text(prediction *p) {
    if (p->text.failed) return tu_fail(TU_NO_MEMORY, "out of memory for predictions");
    tu_status status = tu__save_append(&p->save, tu__text_string(&p->text), p->text.length);
    p->text.length = 0;
    return status;
}

/* ---- Rows ---- */

/* Reads up to BLOCK_ROWS rows. */
static tu_status read_rows(prediction *p, const char **at, int64_t *rows) {
    const char *end = p->csv.bytes + p->csv.size, *next;
    for (*rows = 0; *rows < BLOCK_ROWS && *at < end;) {
        if (tu__csv_is_blank(*at, end, &next)) {
            *at = next;
            continue;
        }
        tu__csv_row row = {.numbers = p->numbers + (size_t)*rows * p->layout.numbers,
                           .categories = p->categories + (size_t)*rows * p->layout.categories};
        TU_TRY(tu__csv_read_row(&p->layout, at, find_code, p, &row));
        ++*rows;
    }
    return TU_OK;
}

static tu_type with_rows(tu_type sample, int64_t rows) {
    tu_type type = {sample.dtype, {.rank = sample.shape.rank + 1, .dim = {rows}}};
    for (int64_t i = 0; i < sample.shape.rank; i++) type.shape.dim[i + 1] = sample.shape.dim[i];
    return type;
}

static tu_status compute(prediction *p, int64_t rows) {
    tu_model_feed feeds[TU_MAX_COLUMNS];
    size_t count = tu_model_input_count(p->model);
    for (size_t i = 0; i < count; i++) {
        tu_type type;
        TU_TRY(tu_model_input(p->model, i, &feeds[i].input, &type));
        const tu__column *c = tu__columns_find(&p->columns, feeds[i].input);
        feeds[i].type = with_rows(type, rows);
        feeds[i].data = c->kind == TU_COLUMN_CATEGORIES ? (const void *)p->categories : p->numbers;
    }
    return tu_model_run_named(p->model, rows, count, feeds, 1,
                              &(tu_model_fetch){p->output, with_rows(p->output_type, rows), p->outputs});
}

static tu_status predict_rows(prediction *p) {
    const char *at = tu__csv_rows(&p->csv);
    put_header(p);
    for (int64_t rows = 1; rows > 0;) {
        TU_TRY(read_rows(p, &at, &rows));
        if (rows) TU_TRY(compute(p, rows));
        for (int64_t i = 0; i < rows; i++) put_row(p, p->outputs + i * p->width);
        TU_TRY(write_text(p));
        p->result.rows += rows;
    }
    return TU_OK;
}

static tu_status predict(prediction *p, const char *path, const char *csv, const char *out,
                         const tu_trained_options *o) {
    TU_TRY(is_file(path) ? open_file(p, path, o) : open_run(p, path, o));
    TU_TRY(check_model(p, path));
    TU_TRY(tu__csv_open(csv, o->header ? o->header : has_numbered_columns(p) ? "no" : "yes", &p->csv));
    TU_TRY(make_layout(p));
    TU_TRY(tu__save_begin(&p->save, out));
    TU_TRY(predict_rows(p));
    return tu__save_commit(&p->save);
}

static void free_prediction(prediction *p) {
    if (p->save.fd >= 0) tu__save_abandon(&p->save);
    for (size_t i = 0; p->dictionaries && i < p->csv.field_count; i++)
        tu__dictionary_free(&p->dictionaries[i]);
    tu__free(p->dictionaries);
    tu__free(p->fields);
    tu__free(p->layout.fields);
    tu__free(p->numbers);
    tu__free(p->categories);
    tu__free(p->outputs);
    tu__csv_close(&p->csv);
    tu_model_free(p->model);
    tu__trained_model_close(&p->trained);
    tu__text_free(&p->text);
    tu__arena_free(&p->arena);
    tu__free(p);
}

tu_status tu_predict_table_with(const char *path, const char *csv, const char *out,
                                tu_table_prediction *result, const tu_trained_options *options) {
    TU__OPTIONS(tu_trained_options, o, options);
    if (result) {
        TU_TRY(TU__CHECK_SIZED(tu_table_prediction, result));
        tu__clear_sized(result);
    }
    prediction *p = tu__alloc(sizeof *p, "predictions");
    if (!p) return TU_NO_MEMORY;
    p->save.fd = -1;
    p->arena.purpose = "the columns of a table";
    tu_status status = predict(p, path, csv, out, &o);
    if (status == TU_OK && result) TU__COPY_SIZED(result, p->result);
    free_prediction(p);
    return status;
}
