/* Data sets: creation, description, reading. See dataset.h. */
#include "data/dataset.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "data/statistics.h"

static tu_status check_limit(const char *name, const char *what, int64_t value, int64_t limit) {
    if (value >= 1 && value <= limit) return TU_OK;
    return tu_fail(TU_INVALID, "data set '%s': the %s is %lld: expected 1 to %lld", name, what,
                   (long long)value, (long long)limit);
}

tu_status tu__dataset_check(const tu_dataset_info *info, size_t *image_bytes) {
    const char *name = info->name ? info->name : "";
    if (!*name) return tu_fail(TU_INVALID, "the data set has no name");
    TU_TRY(check_limit(name, "height", info->height, TU__MAX_SIDE));
    TU_TRY(check_limit(name, "width", info->width, TU__MAX_SIDE));
    TU_TRY(check_limit(name, "number of channels", info->channels, TU_MAX_CHANNELS));
    TU_TRY(check_limit(name, "number of classes", info->classes, TU__MAX_CLASSES));
    if (info->dtype != TU_U8 && info->dtype != TU_F32)
        return tu_fail(TU_INVALID, "data set '%s': its pixels have dtype %s: expected u8 or f32", name,
                       tu_dtype_name(info->dtype));
    size_t bytes = (size_t)(info->height * info->width * info->channels) * tu_dtype_size(info->dtype);
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        int64_t all;
        if (info->count[split] < 0 || __builtin_mul_overflow(info->count[split], (int64_t)bytes, &all))
            return tu_fail(TU_INVALID, "data set '%s': %lld images of %zu bytes are out of range", name,
                           (long long)info->count[split], bytes);
    }
    if (info->validation < 0 || (info->validation > 0 && info->validation >= info->count[TU_TRAIN]))
        return tu_fail(
            TU_INVALID,
            "data set '%s': its validation split has %lld images: expected fewer than its %lld training images",
            name, (long long)info->validation, (long long)info->count[TU_TRAIN]);
    if (info->count[TU_TRAIN] == 0)
        return tu_fail(TU_INVALID, "data set '%s' has no training images: expected at least one", name);
    if (image_bytes) *image_bytes = bytes;
    return TU_OK;
}

static tu_status copy_names(tu_dataset *dataset, const char *const *given) {
    size_t count = (size_t)dataset->info.classes;
    char **names = tu__arena_alloc(&dataset->arena, count * sizeof *names);
    if (!names) return TU_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        names[i] = tu__arena_string(&dataset->arena, given && given[i] ? given[i] : number);
        if (!names[i]) return TU_NO_MEMORY;
    }
    dataset->info.class_names = (const char *const *)names;
    return TU_OK;
}

static tu_status copy_description(tu_dataset *dataset, const tu_dataset_info *info) {
    dataset->info = *info;
    dataset->info.name = tu__arena_string(&dataset->arena, info->name);
    dataset->info.origin = tu__arena_string(&dataset->arena, info->origin ? info->origin : "");
    dataset->info.digest = tu__arena_string(&dataset->arena, info->digest ? info->digest : "");
    if (!dataset->info.name || !dataset->info.origin || !dataset->info.digest) return TU_NO_MEMORY;
    return copy_names(dataset, info->class_names);
}

static tu_status check_samples(const tu_dataset_info *info, int64_t sample_bytes) {
    const char *name = info->name ? info->name : "";
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        int64_t all;
        if (info->count[split] < 0 || __builtin_mul_overflow(info->count[split], sample_bytes, &all))
            return tu_fail(TU_INVALID, "data set '%s': %lld samples of %lld bytes are out of range", name,
                           (long long)info->count[split], (long long)sample_bytes);
    }
    if (info->validation < 0 || (info->validation > 0 && info->validation >= info->count[TU_TRAIN]))
        return tu_fail(
            TU_INVALID,
            "data set '%s': its validation split has %lld samples: expected fewer than its %lld training "
            "samples",
            name, (long long)info->validation, (long long)info->count[TU_TRAIN]);
    if (info->count[TU_TRAIN] == 0)
        return tu_fail(TU_INVALID, "data set '%s' has no training samples: expected at least one", name);
    return TU_OK;
}

static tu_status new_dataset(const tu_dataset_info *info, const tu__columns *columns,
                             const tu__windows *windows, tu_dataset **dataset) {
    tu_dataset *created = tu__alloc(sizeof *created, "a data set");
    if (!created) return TU_NO_MEMORY;
    created->arena.purpose = "a data set";
    if (windows) created->windows = *windows;
    tu_status status = copy_description(created, info);
    if (status == TU_OK) status = tu__columns_copy(columns, &created->arena, &created->columns);
    if (status != TU_OK) {
        tu_dataset_free(created);
        return status;
    }
    created->image_bytes = created->columns.column[0].bytes;
    *dataset = created;
    return TU_OK;
}

tu_status tu__dataset_new(const tu_dataset_info *info, tu__read_image read, void (*close)(void *context),
                          void *context, tu_dataset **dataset) {
    tu__columns columns;
    tu_dataset *created;
    TU_TRY(tu__dataset_check(info, NULL));
    tu__columns_of_pictures(info, &columns);
    TU_TRY(new_dataset(info, &columns, NULL, &created));
    created->read = read;
    created->close = close;
    created->context = context;
    *dataset = created;
    return TU_OK;
}

tu_status tu__dataset_new_columns(const tu_dataset_info *info, const tu__columns *columns,
                                  const tu__windows *windows, tu__read_sample read,
                                  void (*close)(void *context), void *context, tu_dataset **dataset) {
    tu__columns checked = *columns;
    tu_dataset *created;
    if (!info->name || !*info->name) return tu_fail(TU_INVALID, "the data set has no name");
    TU_TRY(tu__columns_check(info->name, &checked));
    TU_TRY(check_samples(info, (int64_t)tu__sample_bytes(&checked)));
    TU_TRY(new_dataset(info, &checked, windows, &created));
    created->read_sample = read;
    created->close = close;
    created->context = context;
    *dataset = created;
    return TU_OK;
}

size_t tu__sample_bytes(const tu__columns *columns) {
    size_t bytes = 0;
    for (size_t i = 0; i < columns->count; i++) bytes += columns->column[i].bytes;
    return bytes;
}

tu_status tu__dataset_notice(tu_dataset *dataset, const char *notice) {
    if (!*notice) return TU_OK;
    dataset->info.notice = tu__arena_string(&dataset->arena, notice);
    return dataset->info.notice ? TU_OK : TU_NO_MEMORY;
}

tu_status tu__dataset_set_origin(tu__arena *arena, const char *path, tu_dataset_info *info) {
    size_t size = strlen(info->origin) + strlen(path) + sizeof ", in ";
    char *origin = tu__arena_alloc(arena, size);
    if (!origin) return TU_NO_MEMORY;
    snprintf(origin, size, "%s, in %s", info->origin, path);
    info->origin = origin;
    return TU_OK;
}

void tu_dataset_free(tu_dataset *dataset) {
    if (!dataset) return;
    if (dataset->close) dataset->close(dataset->context);
    tu__arena_free(&dataset->arena);
    tu__free(dataset);
}

tu_status tu_dataset_describe(const tu_dataset *dataset, tu_dataset_info *info) {
    TU_TRY(TU__CHECK_SIZED(tu_dataset_info, info));
    TU__COPY_SIZED(info, dataset->info);
    return TU_OK;
}

int64_t tu__dataset_indices(const tu_dataset *dataset, tu_split split) {
    const tu__windows *w = &dataset->windows;
    if (!w->length) return dataset->info.count[split];
    int64_t tokens = split == TU_TEST ? w->tokens[TU_TOKENS_TEST]
                                      : w->tokens[TU_TOKENS_TRAIN] + w->tokens[TU_TOKENS_VALIDATION];
    return tokens > w->length ? tokens - w->length : 0;
}

static tu_status check_index(const tu_dataset *dataset, tu_split split, int64_t index) {
    const tu_dataset_info *info = &dataset->info;
    if (split != TU_TRAIN && split != TU_TEST)
        return tu_fail(TU_INVALID, "data set '%s': split %d: expected TU_TRAIN or TU_TEST", info->name,
                       (int)split);
    int64_t count = tu__dataset_indices(dataset, split);
    if (index >= 0 && index < count) return TU_OK;
    return tu_fail(TU_INVALID, "data set '%s': %s %lld of the %s split: expected 0 to %lld", info->name,
                   tu__has_pictures(info) ? "image" : "sample", (long long)index,
                   split == TU_TRAIN ? "training" : "test", (long long)count - 1);
}

static tu_status check_label(const tu_dataset *dataset, tu_split split, int64_t index, int32_t label) {
    const tu_dataset_info *info = &dataset->info;
    if (label >= 0 && label < info->classes) return TU_OK;
    return tu_fail(TU_CORRUPT, "data set '%s': %s %lld of the %s split has label %d: expected 0 to %lld",
                   info->name, tu__has_pictures(info) ? "image" : "sample", (long long)index,
                   split == TU_TRAIN ? "training" : "test", label, (long long)info->classes - 1);
}

tu_status tu_dataset_read(const tu_dataset *dataset, tu_split split, int64_t index, void *image,
                          int32_t *label) {
    if (!dataset->read)
        return tu_fail(TU_INVALID, "data set '%s' has no pictures: read it with tu_dataset_read_columns",
                       dataset->info.name);
    TU_TRY(check_index(dataset, split, index));
    TU_TRY(dataset->read(dataset->context, split, index, image, label));
    TU_TRY(tu__dataset_intact(dataset));
    return check_label(dataset, split, index, *label);
}

tu_status tu__dataset_intact(const tu_dataset *dataset) {
    return dataset->check ? dataset->check(dataset->context) : TU_OK;
}

/* Reads a picture of which one element may not be wanted. */
static tu_status read_picture(const tu_dataset *dataset, tu_split split, int64_t index,
                              void *const *elements) {
    int32_t label, *wanted = elements[1];
    if (elements[0]) return tu_dataset_read(dataset, split, index, elements[0], wanted ? wanted : &label);
    if (!wanted) return TU_OK;
    void *image = tu__alloc_aligned(dataset->image_bytes, "an image");
    if (!image) return TU_NO_MEMORY;
    tu_status status = tu_dataset_read(dataset, split, index, image, wanted);
    tu__free_aligned(image);
    return status;
}

/* Classes of a program's functions may be wrong: a network would read beyond its logits. */
static tu_status check_classes(const tu_dataset *dataset, tu_split split, int64_t index,
                               void *const *elements) {
    for (size_t i = 0; i < dataset->columns.count; i++) {
        const tu__column *c = &dataset->columns.column[i];
        if (c->kind == TU_COLUMN_CLASS && c->is_target && elements[i])
            TU_TRY(check_label(dataset, split, index, *(const int32_t *)elements[i]));
    }
    return TU_OK;
}

tu_status tu_dataset_read_columns(const tu_dataset *dataset, tu_split split, int64_t index,
                                  void *const *elements) {
    if (dataset->read) return read_picture(dataset, split, index, elements);
    TU_TRY(check_index(dataset, split, index));
    TU_TRY(dataset->read_sample(dataset->context, split, index, elements));
    TU_TRY(tu__dataset_intact(dataset));
    return check_classes(dataset, split, index, elements);
}

/* ---- Columns ---- */

size_t tu_dataset_columns(const tu_dataset *dataset) {
    return dataset->columns.count;
}

tu_status tu_dataset_column(const tu_dataset *dataset, size_t index, tu_column *column) {
    TU_TRY(TU__CHECK_SIZED(tu_column, column));
    if (index >= dataset->columns.count)
        return tu_fail(TU_NOT_FOUND, "data set '%s': column %zu: expected 0 to %zu", dataset->info.name,
                       index, dataset->columns.count - 1);
    const tu__column *c = &dataset->columns.column[index];
    tu_column full = {.name = c->name,
                      .kind = c->kind,
                      .type = c->type,
                      .is_target = c->is_target,
                      .fields = (int64_t)c->field_count,
                      .classes = c->classes};
    TU__COPY_SIZED(column, full);
    return TU_OK;
}

tu_status tu_dataset_field(const tu_dataset *dataset, size_t column, size_t index, tu_field *field) {
    TU_TRY(TU__CHECK_SIZED(tu_field, field));
    if (column >= dataset->columns.count || index >= dataset->columns.column[column].field_count)
        return tu_fail(TU_NOT_FOUND, "data set '%s' has no field %zu of column %zu", dataset->info.name,
                       index, column);
    const tu__field *f = &dataset->columns.column[column].fields[index];
    tu_field full = {.name = f->name,
                     .mean = f->mean,
                     .deviation = f->deviation,
                     .min = f->min,
                     .max = f->max,
                     .missing = f->missing,
                     .categories = f->categories,
                     .category_names = f->category_names};
    TU__COPY_SIZED(field, full);
    return TU_OK;
}

const char *tu_dataset_tokenizer(const tu_dataset *dataset) {
    return dataset->columns.tokenizer ? dataset->columns.tokenizer : "";
}

bool tu__dataset_in_memory(const tu_dataset *dataset, tu_split split) {
    for (size_t i = 0; i < dataset->columns.count; i++)
        if (!dataset->data[split][i]) return false;
    return true;
}

/* Only a hint: without it reading from a disk is slower. */
static void prefetch(const void *address, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (uintptr_t)address % page;
    (void)posix_madvise((char *)address - before, bytes + before, POSIX_MADV_WILLNEED);
}

void tu__dataset_prefetch(const tu_dataset *dataset, tu_split split) {
    for (size_t i = 0; i < dataset->columns.count; i++)
        if (dataset->data[split][i])
            prefetch(dataset->data[split][i],
                     (size_t)dataset->info.count[split] * dataset->columns.column[i].bytes);
}

/* ---- Digest ---- */

static tu_status hash_images(const tu_dataset *dataset, tu__statistics *statistics, void *image,
                             int32_t *labels) {
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        for (int64_t i = 0; i < dataset->info.count[split]; i++) {
            TU_TRY(tu_dataset_read(dataset, (tu_split)split, i, image, labels++));
            tu__statistics_image(statistics, (tu_split)split, image);
        }
    }
    return TU_OK;
}

static tu_status hash_pictures(const tu_dataset *dataset, char digest[TU__SHA256_HEX]) {
    tu_dataset_info info = dataset->info;
    int64_t count = info.count[TU_TRAIN] + info.count[TU_TEST];
    void *image = tu__alloc_aligned(dataset->image_bytes, "an image");
    int32_t *labels = tu__alloc_array((size_t)count, sizeof *labels, "the labels of a data set");
    tu__statistics statistics;
    tu__statistics_begin(&statistics, &info);
    tu_status status = image && labels ? hash_images(dataset, &statistics, image, labels) : TU_NO_MEMORY;
    if (status == TU_OK) tu__statistics_labels(&statistics, labels, count);
    tu__free_aligned(image);
    tu__free(labels);
    TU_TRY(status);
    tu__statistics_end(&statistics, &info, digest);
    return TU_OK;
}

tu_status tu_dataset_verify(const tu_dataset *dataset) {
    const tu_dataset_info info = dataset->info;
    char digest[TU__SHA256_HEX];
    if (dataset->sampled)
        return tu_fail(
            TU_UNSUPPORTED,
            "data set '%s' is read through functions of the program: there is no digest of all its images to verify",
            info.name);
    TU_TRY((dataset->hash ? dataset->hash : hash_pictures)(dataset, digest));
    if (strcmp(digest, dataset->info.digest) == 0) return TU_OK;
    return tu_fail(TU_CORRUPT, "data set '%s' has changed: its %s have SHA-256 %s, expected %s (%s)",
                   info.name, tu__has_pictures(&info) ? "images and labels" : "columns", digest,
                   dataset->info.digest, info.origin);
}
