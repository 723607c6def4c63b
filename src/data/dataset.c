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

tu_status tu__dataset_new(const tu_dataset_info *info, tu__read_image read, void (*close)(void *context),
                          void *context, tu_dataset **dataset) {
    size_t image_bytes = 0;
    TU_TRY(tu__dataset_check(info, &image_bytes));
    tu_dataset *created = tu__alloc(sizeof *created, "a data set");
    if (!created) return TU_NO_MEMORY;
    created->arena.purpose = "a data set";
    created->image_bytes = image_bytes;
    tu_status status = copy_description(created, info);
    if (status != TU_OK) {
        tu_dataset_free(created);
        return status;
    }
    created->read = read;
    created->close = close;
    created->context = context;
    *dataset = created;
    return TU_OK;
}

tu_status tu__dataset_notice(tu_dataset *dataset, const char *notice) {
    if (!*notice) return TU_OK;
    dataset->info.notice = tu__arena_string(&dataset->arena, notice);
    return dataset->info.notice ? TU_OK : TU_NO_MEMORY;
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

tu_status tu_dataset_read(const tu_dataset *dataset, tu_split split, int64_t index, void *image,
                          int32_t *label) {
    const tu_dataset_info *info = &dataset->info;
    if (split != TU_TRAIN && split != TU_TEST)
        return tu_fail(TU_INVALID, "data set '%s': split %d: expected TU_TRAIN or TU_TEST", info->name,
                       (int)split);
    if (index < 0 || index >= info->count[split])
        return tu_fail(TU_INVALID, "data set '%s': image %lld of the %s split: expected 0 to %lld",
                       info->name, (long long)index, split == TU_TRAIN ? "training" : "test",
                       (long long)info->count[split] - 1);
    TU_TRY(dataset->read(dataset->context, split, index, image, label));
    if (*label < 0 || *label >= info->classes)
        return tu_fail(TU_CORRUPT,
                       "data set '%s': image %lld of the %s split has label %d: expected 0 to %lld",
                       info->name, (long long)index, split == TU_TRAIN ? "training" : "test", *label,
                       (long long)info->classes - 1);
    return TU_OK;
}

void tu__dataset_prefetch(const tu_dataset *dataset, tu_split split) {
    size_t bytes = (size_t)dataset->info.count[split] * dataset->image_bytes,
           page = (size_t)sysconf(_SC_PAGESIZE);
    size_t before = (uintptr_t)dataset->images[split] % page;
    if (dataset->images[split]) /* only a hint: without it reading from a disk is slower */
        (void)posix_madvise((char *)dataset->images[split] - before, bytes + before, POSIX_MADV_WILLNEED);
}

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

tu_status tu_dataset_verify(const tu_dataset *dataset) {
    tu_dataset_info info = dataset->info;
    if (dataset->sampled)
        return tu_fail(
            TU_UNSUPPORTED,
            "data set '%s' is read through functions of the program: there is no digest of all its images to verify",
            info.name);
    int64_t count = info.count[TU_TRAIN] + info.count[TU_TEST];
    void *image = tu__alloc_aligned(dataset->image_bytes, "an image");
    int32_t *labels = tu__alloc_array((size_t)count, sizeof *labels, "the labels of a data set");
    tu__statistics statistics;
    char digest[TU__SHA256_HEX];
    tu__statistics_begin(&statistics, &info);
    tu_status status = image && labels ? hash_images(dataset, &statistics, image, labels) : TU_NO_MEMORY;
    if (status == TU_OK) tu__statistics_labels(&statistics, labels, count);
    tu__free_aligned(image);
    tu__free(labels);
    TU_TRY(status);
    tu__statistics_end(&statistics, &info, digest);
    if (strcmp(digest, dataset->info.digest) == 0) return TU_OK;
    return tu_fail(TU_CORRUPT,
                   "data set '%s' has changed: its images and labels have SHA-256 %s, expected %s (%s)",
                   info.name, digest, dataset->info.digest, info.origin);
}
