/* Opens data files: maps them and validates every number before use. See data_file.h. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/map_file.h"
#include "base/open_file.h"
#include "base/sha256.h"
#include "data/column_file.h"
#include "data/data_file.h"
#include "data/verified.h"

typedef struct mapping {
    tu__mapped_file file;
    char path[PATH_MAX];
    const unsigned char *bytes;
    size_t size, image_bytes;
    const unsigned char *images[2];
    const int32_t *labels[2];
} mapping;

static tu_status corrupt(const char *path, const char *what) {
    return tu_fail(TU_CORRUPT, "'%s' is not a valid data file: %s; delete it to create it again", path, what);
}

/* ---- Mapping the file ---- */

static tu_status map_file(const char *path, mapping *map) {
    TU_TRY(tu__map_file(path, &map->file));
    snprintf(map->path, sizeof map->path, "%s", path);
    map->bytes = map->file.bytes;
    map->size = map->file.size;
    return map->size < 2 * TU__DATA_FILE_ALIGNMENT ? corrupt(path, "the file is too short") : TU_OK;
}

static void unmap(void *context) {
    mapping *map = context;
    tu__unmap_file(&map->file);
    tu__free(map);
}

/* Finds the description after validating head, tail and its digest. */
static tu_status find_description(const char *path, const mapping *map, const char **text, size_t *length,
                                  uint32_t *file_version) {
    const unsigned char *tail = map->bytes + map->size - TU__DATA_FILE_ALIGNMENT;
    uint32_t version;
    uint64_t offset, size;
    unsigned char digest[TU__SHA256_BYTES];
    if (memcmp(map->bytes, tu__data_file_head, sizeof tu__data_file_head) != 0)
        return corrupt(path, "the file does not start with TUTTIDAT");
    memcpy(&version, map->bytes + 8, sizeof version);
    if (version != TU__DATA_FILE_VERSION && version != TU__COLUMN_FILE_VERSION)
        return tu_fail(
            TU_UNSUPPORTED,
            "'%s' is a data file of version %u: expected version %d or %d; delete it to create it again",
            path, version, TU__DATA_FILE_VERSION, TU__COLUMN_FILE_VERSION);
    *file_version = version;
    if (memcmp(tail + 56, tu__data_file_tail, sizeof tu__data_file_tail) != 0)
        return corrupt(path, "the end of the file is missing");
    memcpy(&offset, tail, sizeof offset);
    memcpy(&size, tail + 8, sizeof size);
    size_t limit = map->size - TU__DATA_FILE_ALIGNMENT;
    if (offset > limit || size > limit - offset || limit - offset - size >= TU__DATA_FILE_ALIGNMENT)
        return corrupt(path, "the description is outside the file");
    *text = (const char *)map->bytes + offset;
    *length = (size_t)size;
    tu__sha256_of(*text, *length, digest);
    if (memcmp(digest, tail + 16, sizeof digest) != 0)
        return corrupt(path, "the description does not match its digest");
    return TU_OK;
}

/* ---- The description ---- */

static bool get_integer(const tu__json_value *object, const char *key, int64_t *integer) {
    const tu__json_value *value = tu__json_member(object, key);
    if (!value || value->kind != TU__JSON_NUMBER || !value->is_integer) return false;
    *integer = value->integer;
    return true;
}

static bool get_string(const tu__json_value *object, const char *key, const char **string) {
    const tu__json_value *value = tu__json_member(object, key);
    if (!value || value->kind != TU__JSON_STRING) return false;
    *string = value->string;
    return true;
}

static bool get_numbers(const tu__json_value *object, const char *key, int64_t count, double *numbers) {
    const tu__json_value *value = tu__json_member(object, key);
    if (!value || value->kind != TU__JSON_ARRAY || count < 0 || value->count != (size_t)count) return false;
    for (size_t i = 0; i < value->count && i < TU_MAX_CHANNELS; i++) {
        if (value->values[i].kind != TU__JSON_NUMBER) return false;
        numbers[i] = value->values[i].number;
    }
    return true;
}

static bool get_classes(tu__arena *arena, const tu__json_value *object, tu_dataset_info *info) {
    const tu__json_value *value = tu__json_member(object, "classes");
    if (!value || value->kind != TU__JSON_ARRAY || value->count > TU__MAX_CLASSES) return false;
    const char **names = tu__arena_alloc(arena, (value->count + 1) * sizeof *names);
    if (!names) return false;
    for (size_t i = 0; i < value->count; i++) {
        if (value->values[i].kind != TU__JSON_STRING) return false;
        names[i] = value->values[i].string;
    }
    info->classes = (int64_t)value->count;
    info->class_names = names;
    return true;
}

/* Reads an optional count, which most files do not have. */
static bool get_count(const tu__json_value *object, const char *key, int64_t *count) {
    return !tu__json_member(object, key) || (get_integer(object, key, count) && *count >= 0);
}

static bool read_description(tu__arena *arena, const tu__json_value *object, tu_dataset_info *info) {
    const char *type;
    return get_string(object, "name", &info->name) && get_string(object, "origin", &info->origin) &&
           get_string(object, "digest", &info->digest) && get_string(object, "type", &type) &&
           tu_dtype_parse(type, &info->dtype) == TU_OK &&
           get_integer(object, "train", &info->count[TU_TRAIN]) &&
           get_integer(object, "test", &info->count[TU_TEST]) &&
           get_integer(object, "height", &info->height) && get_integer(object, "width", &info->width) &&
           get_integer(object, "channels", &info->channels) && get_classes(arena, object, info) &&
           get_numbers(object, "mean", info->channels, info->mean) &&
           get_numbers(object, "deviation", info->channels, info->deviation) &&
           get_count(object, "validation", &info->validation) &&
           get_count(object, "skipped", &info->skipped) && get_count(object, "ignored", &info->ignored);
}

/* ---- Opening ---- */

static tu_status locate_sections(const char *path, mapping *map, const tu_dataset_info *info,
                                 size_t description) {
    tu__data_layout layout;
    if (!tu__data_file_layout(info, map->image_bytes, &layout) || layout.description != description)
        return corrupt(path, "the file size does not match its images and labels");
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        map->images[split] = map->bytes + layout.images[split];
        map->labels[split] = (const int32_t *)(const void *)(map->bytes + layout.labels[split]);
        for (int64_t i = 0; i < info->count[split]; i++)
            if (map->labels[split][i] < 0 || map->labels[split][i] >= info->classes)
                return corrupt(path, "a label is not a valid class");
    }
    return TU_OK;
}

static tu_status read_mapped(void *context, tu_split split, int64_t index, void *image, int32_t *label) {
    const mapping *map = context;
    memcpy(image, map->images[split] + (size_t)index * map->image_bytes, map->image_bytes);
    *label = map->labels[split][index];
    return TU_OK;
}

static tu_status check_mapped(const void *context) {
    const mapping *map = context;
    return tu__check_mapping(&map->file, map->path);
}

static tu_status open_mapped(const char *path, int64_t window, mapping *map, tu__arena *arena,
                             tu_dataset **dataset) {
    const char *text = NULL;
    size_t length = 0;
    uint32_t version = 0;
    const tu__json_value *object;
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(find_description(path, map, &text, &length, &version));
    if (version == TU__COLUMN_FILE_VERSION)
        return tu__column_file_open(
            &(tu__column_mapping){.path = path,
                                  .bytes = map->bytes,
                                  .description = (size_t)(text - (const char *)map->bytes),
                                  .text = text,
                                  .length = length,
                                  .mapping = map,
                                  .unmap = unmap},
            window, dataset);
    TU_TRY(tu__json_parse(arena, path, text, length, &object));
    if (!read_description(arena, object, &info))
        return corrupt(path, "the description lacks a member or has an invalid one");
    TU_TRY(tu__dataset_set_origin(arena, path, &info));
    TU_TRY(tu__dataset_check(&info, &map->image_bytes));
    TU_TRY(locate_sections(path, map, &info, (size_t)(text - (const char *)map->bytes)));
    TU_TRY(tu__check_mapping(&map->file, path));
    TU_TRY(tu__dataset_new(&info, read_mapped, unmap, map, dataset));
    (*dataset)->check = check_mapped;
    for (int split = TU_TRAIN; split <= TU_TEST; split++) {
        (*dataset)->data[split][0] = map->images[split];
        (*dataset)->data[split][1] = map->labels[split];
    }
    return TU_OK;
}

tu_status tu__data_file_open(const char *path, tu_dataset **dataset) {
    return tu__data_file_open_window(path, 0, dataset);
}

tu_status tu__data_file_open_window(const char *path, int64_t window, tu_dataset **dataset) {
    mapping *map = tu__alloc(sizeof *map, "a data file");
    if (!map) return TU_NO_MEMORY;
    tu_status status = map_file(path, map);
    if (status != TU_OK) {
        unmap(map);
        return status;
    }
    tu__arena arena = {.purpose = "the description of a data file"};
    status = open_mapped(path, window, map, &arena, dataset);
    tu__arena_free(&arena);
    if (status != TU_OK) {
        unmap(map);
        return status;
    }
    status = tu__verify_data_file(path, &map->file.info, *dataset);
    if (status == TU_OK) return TU_OK;
    tu_dataset_free(*dataset); /* unmaps the file */
    *dataset = NULL;
    return status;
}

bool tu__data_file_recognise(const char *path) {
    char head[sizeof tu__data_file_head];
    int fd;
    if (tu__open_file(NULL, path, &fd, NULL) != TU_OK) return false;
    bool same = read(fd, head, sizeof head) == (ssize_t)sizeof head &&
                memcmp(head, tu__data_file_head, sizeof head) == 0;
    close(fd);
    return same;
}
