/* Opens data files of version 2: validates every number before use. See column_file.h. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "data/column_file.h"
#include "data/data_file.h"

enum { DEFAULT_WINDOW = 256, MAX_WINDOW = 1 << 20 };

typedef struct column_file {
    tu__column_mapping map;
    size_t end; /* of the sections */
    const unsigned char *data[2][TU_MAX_COLUMNS];
    size_t bytes[TU_MAX_COLUMNS];
    size_t count;
    tu__token_layout tokens;
    int64_t window;
} column_file;

static tu_status corrupt(const char *path, const char *what) {
    return tu_fail(TU_CORRUPT, "'%s' is not a valid data file: %s; delete it to create it again", path, what);
}

/* ---- The description ---- */

static bool get_count(const tu__json_value *object, const char *key, bool required, int64_t *count) {
    const tu__json_value *value = tu__json_member(object, key);
    if (!value) return !required;
    *count = value->integer;
    return value->is_integer && value->integer >= 0 && value->integer <= INT64_MAX / 4;
}

static bool get_string(const tu__json_value *object, const char *key, const char **string) {
    const tu__json_value *value = tu__json_member(object, key);
    if (!value || value->kind != TU__JSON_STRING) return false;
    *string = value->string;
    return true;
}

static bool read_info(const tu__json_value *object, tu_dataset_info *info) {
    const char *notice;
    if (get_string(object, "notice", &notice)) info->notice = notice;
    return get_string(object, "name", &info->name) && get_string(object, "origin", &info->origin) &&
           get_string(object, "digest", &info->digest) &&
           get_count(object, "train", true, &info->count[TU_TRAIN]) &&
           get_count(object, "test", true, &info->count[TU_TEST]) &&
           get_count(object, "validation", false, &info->validation);
}

static bool read_tokens(const tu__json_value *object, tu__token_layout *t) {
    if (!object) return true;
    return get_count(object, "bytes", true, &t->bytes) && (t->bytes == 1 || t->bytes == 2 || t->bytes == 4) &&
           get_count(object, "vocabulary", true, &t->vocabulary) && t->vocabulary >= 1 &&
           t->vocabulary <= TU__MAX_VOCABULARY && get_count(object, "train", true, &t->count[0]) &&
           get_count(object, "validation", true, &t->count[1]) &&
           get_count(object, "test", true, &t->count[2]);
}

/* Checks that the offsets are those that the writer chooses, so that no section overlaps another. */
static tu_status locate_sections(column_file *f, const tu_dataset_info *info, const tu__columns *columns,
                                 const tu__json_value *array) {
    tu__sections sections;
    const char *what = "the sections do not match the columns";
    if (!tu__place_sections(columns, info->count, &sections) || sections.end > f->map.description)
        return corrupt(f->map.path, "the columns are larger than the file");
    if (!array || array->kind != TU__JSON_ARRAY || array->count != columns->count)
        return corrupt(f->map.path, what);
    for (size_t c = 0; c < columns->count; c++) {
        const tu__json_value *pair = &array->values[c];
        if (pair->kind != TU__JSON_ARRAY || pair->count != 2) return corrupt(f->map.path, what);
        for (int split = TU_TRAIN; split <= TU_TEST; split++) {
            size_t offset = sections.column[split][c];
            if (!pair->values[split].is_integer || pair->values[split].integer != (int64_t)offset)
                return corrupt(f->map.path, what);
            f->data[split][c] = f->map.bytes + offset;
        }
        f->bytes[c] = columns->column[c].bytes;
    }
    f->count = columns->count;
    f->end = sections.end;
    return TU_OK;
}

static tu_status check_classes(const column_file *f, const tu_dataset_info *info,
                               const tu__columns *columns) {
    for (size_t c = 0; c < columns->count; c++) {
        if (columns->column[c].kind != TU_COLUMN_CLASS) continue;
        for (int split = TU_TRAIN; split <= TU_TEST; split++) {
            const int32_t *classes = (const int32_t *)(const void *)f->data[split][c];
            for (int64_t i = 0; i < info->count[split]; i++)
                if (classes[i] < 0 || classes[i] >= columns->column[c].classes)
                    return corrupt(f->map.path, "a class is out of range");
        }
    }
    return TU_OK;
}

/* ---- Reading samples ---- */

static tu_status read_columns(void *context, tu_split split, int64_t index, void *const *elements) {
    const column_file *f = context;
    for (size_t c = 0; c < f->count; c++)
        if (elements[c]) memcpy(elements[c], f->data[split][c] + (size_t)index * f->bytes[c], f->bytes[c]);
    return TU_OK;
}

/* Reads the window that starts at token `index` of the training and validation parts, or of the test part. */
static tu_status read_window(void *context, tu_split split, int64_t index, void *const *elements) {
    const column_file *f = context;
    int32_t *tokens = elements[0];
    if (!tokens) return TU_OK;
    if (split == TU_TEST) index += f->tokens.count[TU_TOKENS_TRAIN] + f->tokens.count[TU_TOKENS_VALIDATION];
    const unsigned char *from = f->map.bytes + TU__DATA_FILE_ALIGNMENT + (size_t)(index * f->tokens.bytes);
    for (int64_t i = 0; i <= f->window; i++, from += f->tokens.bytes) {
        uint32_t token = from[0];
        if (f->tokens.bytes > 1) token |= (uint32_t)from[1] << 8;
        if (f->tokens.bytes > 2) token |= (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
        if (token >= (uint64_t)f->tokens.vocabulary)
            return tu_fail(TU_CORRUPT, "'%s': token %lld is %u: expected less than the vocabulary of %lld",
                           f->map.path, (long long)index + i, token, (long long)f->tokens.vocabulary);
        tokens[i] = (int32_t)token;
    }
    return TU_OK;
}

static void close_file(void *context) {
    column_file *f = context;
    f->map.unmap(f->map.mapping);
    tu__free(f);
}

static tu_status hash(const tu_dataset *dataset, char digest[TU__SHA256_HEX]) {
    const column_file *f = dataset->context;
    tu__columns columns = dataset->columns;
    if (f->tokens.bytes) columns.column[0].type.shape = TU_SHAPE(2); /* as in the file */
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return tu__hash_sections(f->map.bytes, f->end, &columns, cores > 0 && cores < 64 ? (int)cores : 1,
                             digest);
}

/* ---- Opening ---- */

/* Without a validation part the last tenth of the training tokens is one: windows of training start at any token, so
 * they would overlap with windows that are chosen at random. */
static void divide_tokens(const column_file *f, int64_t part[3]) {
    memcpy(part, f->tokens.count, sizeof f->tokens.count);
    if (part[TU_TOKENS_VALIDATION]) return;
    part[TU_TOKENS_VALIDATION] = part[TU_TOKENS_TRAIN] / 10;
    part[TU_TOKENS_TRAIN] -= part[TU_TOKENS_VALIDATION];
}

static int64_t windows_of(int64_t tokens, int64_t length) {
    return tokens > length ? (tokens - 1) / length : 0;
}

/* Sets the counts, the type of the column and the windows for windows of `length` tokens. */
static tu_status set_windows(column_file *f, int64_t length, tu_dataset_info *info, tu__columns *columns,
                             tu__windows *windows) {
    if (length == 0) length = DEFAULT_WINDOW;
    if (length < 1 || length > MAX_WINDOW)
        return tu_fail(TU_INVALID, "a window of %lld tokens: expected 1 to %d", (long long)length,
                       MAX_WINDOW);
    *windows = (tu__windows){.length = length};
    divide_tokens(f, windows->tokens);
    int64_t training = windows_of(windows->tokens[TU_TOKENS_TRAIN], length);
    info->validation = windows_of(windows->tokens[TU_TOKENS_VALIDATION], length);
    info->count[TU_TRAIN] = training + info->validation;
    info->count[TU_TEST] = windows_of(windows->tokens[TU_TOKENS_TEST], length);
    if (training < 1)
        return tu_fail(
            TU_INVALID,
            "'%s' has %lld training tokens: expected more than the %lld of a window; choose a smaller "
            "--context",
            f->map.path, (long long)windows->tokens[TU_TOKENS_TRAIN], (long long)length);
    if (columns->count != 1 || columns->column[0].kind != TU_COLUMN_TOKENS)
        return corrupt(f->map.path, "a token file has other columns than 'tokens'");
    columns->column[0].type.shape = TU_SHAPE(length + 1);
    f->window = length;
    return TU_OK;
}

/* Sets the end of the tokens, which must lie within the file. */
static tu_status locate_tokens(column_file *f) {
    int64_t all = 0;
    size_t bytes;
    for (int i = 0; i < 3; i++) all += f->tokens.count[i];
    if (__builtin_mul_overflow((size_t)all, (size_t)f->tokens.bytes, &bytes) ||
        bytes > f->map.description - TU__DATA_FILE_ALIGNMENT)
        return corrupt(f->map.path, "the tokens are larger than the file");
    f->end = TU__DATA_FILE_ALIGNMENT +
             (bytes + TU__DATA_FILE_ALIGNMENT - 1) / TU__DATA_FILE_ALIGNMENT * TU__DATA_FILE_ALIGNMENT;
    if (f->end > f->map.description) return corrupt(f->map.path, "the tokens are larger than the file");
    return TU_OK;
}

static tu_status open_tokens(column_file *f, int64_t window, tu_dataset_info *info, tu__columns *columns,
                             tu_dataset **dataset) {
    tu__windows windows;
    TU_TRY(locate_tokens(f));
    TU_TRY(set_windows(f, window, info, columns, &windows));
    info->dtype = TU_I32;
    TU_TRY(tu__dataset_new_columns(info, columns, &windows, read_window, close_file, f, dataset));
    (*dataset)->hash = hash;
    return TU_OK;
}

static tu_status open_columns(column_file *f, const tu__json_value *object, tu_dataset_info *info,
                              const tu__columns *columns, tu_dataset **dataset) {
    TU_TRY(locate_sections(f, info, columns, tu__json_member(object, "sections")));
    TU_TRY(check_classes(f, info, columns));
    const tu__column *target = tu__columns_target(columns);
    info->dtype = columns->column[0].type.dtype;
    if (target && target->kind == TU_COLUMN_CLASS) {
        info->classes = target->classes;
        if (target->field_count && target->fields[0].categories == target->classes)
            info->class_names = target->fields[0].category_names;
    }
    TU_TRY(tu__dataset_new_columns(info, columns, NULL, read_columns, close_file, f, dataset));
    for (size_t c = 0; c < columns->count; c++)
        for (int split = TU_TRAIN; split <= TU_TEST; split++) (*dataset)->data[split][c] = f->data[split][c];
    (*dataset)->hash = hash;
    return TU_OK;
}

static tu_status open_described(column_file *f, int64_t window, tu__arena *arena, tu_dataset **dataset) {
    const tu__json_value *object;
    tu_dataset_info info = {0};
    tu__columns columns;
    const char *path = f->map.path, *notice;
    TU_TRY(tu__json_parse(arena, path, f->map.text, f->map.length, &object));
    if (!read_info(object, &info) || !read_tokens(tu__json_member(object, "tokens"), &f->tokens))
        return corrupt(path, "the description lacks a member or has an invalid one");
    TU_TRY(tu__columns_read(path, tu__json_member(object, "columns"), arena, &columns));
    if (!get_string(object, "tokenizer", &columns.tokenizer)) columns.tokenizer = NULL;
    TU_TRY(tu__dataset_set_origin(arena, path, &info));
    notice = info.notice;
    info.notice = NULL;
    tu_dataset *opened;
    TU_TRY(f->tokens.bytes ? open_tokens(f, window, &info, &columns, &opened)
                           : open_columns(f, object, &info, &columns, &opened));
    if (notice && tu__dataset_notice(opened, notice) != TU_OK) {
        opened->close = NULL;
        tu_dataset_free(opened);
        return TU_NO_MEMORY;
    }
    *dataset = opened;
    return TU_OK;
}

tu_status tu__column_file_open(const tu__column_mapping *file, int64_t window, tu_dataset **dataset) {
    column_file *f = tu__alloc(sizeof *f, "a data file");
    if (!f) return TU_NO_MEMORY;
    f->map = *file;
    tu__arena arena = {.purpose = "the description of a data file"};
    char *path = tu__arena_string(&arena, file->path);
    tu_status status = path ? open_described(f, window, &arena, dataset) : TU_NO_MEMORY;
    if (status == TU_OK) f->map.path = (*dataset)->info.name; /* `path` is the caller's */
    tu__arena_free(&arena);
    if (status != TU_OK) tu__free(f);
    return status;
}
