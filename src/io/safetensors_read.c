/* Reads safetensors files. See safetensors.h for the format.
 *
 * A file may come from anywhere, so everything is validated before use, in the order of the reference parser: the
 * length of the header, its JSON, that the tensors cover the data of the file without gap or overlap, and that the
 * size of each matches its dtype and shape. No further checks are needed when the tensors are read.
 *
 * Names, shapes and metadata live in an arena; the tensors point into the mapped file. */
#include "io/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/map_file.h"
#include "base/open_file.h"
#include "io/safetensors_types.h"

typedef struct contents {
    tu__arena arena;
    const char *name;        /* file name, for messages */
    tu__mapped_file mapping; /* empty if the caller owns the bytes */
} contents;

/* Header entry of one tensor. */
typedef struct header_entry {
    const char *name;
    const tu__safetensors_type *type;
    size_t rank;
    const int64_t *dims;
    uint64_t begin, end;
} header_entry;

/* The header while it is read, one member at a time: as a tree it would take many times the memory of its text. */
typedef struct header {
    contents *c;
    tu__safetensors *file;
    header_entry *list;
    size_t count, capacity;
    bool has_metadata;
} header;

static const tu__safetensors_type types[] = {
#define ROW(name, bits, dtype) {name, bits, dtype},
    TU__SAFETENSORS_TYPES(ROW)
#undef ROW
};

static TU_PRINTF(2, 3) tu_status fail_corrupt(const char *file, const char *format, ...) {
    char reason[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return tu_fail(TU_CORRUPT, "%s is not a valid safetensors file: %s", file, reason);
}

/* ---- One entry of the header ---- */

static const tu__safetensors_type *find_type(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

static bool is_count(const tu__json_value *value) {
    return value->kind == TU__JSON_NUMBER && value->is_integer && value->integer >= 0;
}

static bool is_list_of_counts(const tu__json_value *value) {
    if (!value || value->kind != TU__JSON_ARRAY) return false;
    for (size_t i = 0; i < value->count; i++)
        if (!is_count(&value->values[i])) return false;
    return true;
}

static tu_status parse_entry(contents *c, const char *name, const tu__json_value *entry, header_entry *d) {
    const char *file = c->name;
    const tu__json_value *dtype = tu__json_member(entry, "dtype"), *shape = tu__json_member(entry, "shape"),
                         *offsets = tu__json_member(entry, "data_offsets");
    if (!dtype || dtype->kind != TU__JSON_STRING)
        return fail_corrupt(file, "tensor '%s' has no \"dtype\" string", name);
    if (!is_list_of_counts(shape))
        return fail_corrupt(file, "tensor '%s' has no \"shape\" (a list of integers)", name);
    if (!is_list_of_counts(offsets) || offsets->count != 2)
        return fail_corrupt(file, "tensor '%s' has no \"data_offsets\" (a list of two integers)", name);
    const tu__safetensors_type *type = find_type(dtype->string);
    if (!type) return fail_corrupt(file, "tensor '%s' has the unknown dtype '%.40s'", name, dtype->string);
    int64_t *dims = tu__arena_alloc(&c->arena, shape->count * sizeof *dims);
    if (!dims) return TU_NO_MEMORY;
    for (size_t i = 0; i < shape->count; i++) dims[i] = shape->values[i].integer;
    *d = (header_entry){.name = tu__arena_string(&c->arena, name),
                        .type = type,
                        .rank = shape->count,
                        .dims = dims,
                        .begin = (uint64_t)offsets->values[0].integer,
                        .end = (uint64_t)offsets->values[1].integer};
    return d->name ? TU_OK : TU_NO_MEMORY;
}

/* Computes the size from dtype and shape. Returns false if it overflows or is not a whole number of bytes. */
static bool bytes_of(const header_entry *d, uint64_t *bytes) {
    uint64_t bits = d->type->bits;
    for (size_t i = 0; i < d->rank; i++)
        if (__builtin_mul_overflow(bits, (uint64_t)d->dims[i], &bits)) return false;
    *bytes = bits / 8;
    return bits % 8 == 0;
}

/* Fails unless every byte of the data belongs to exactly one tensor. `list` is sorted by offset. */
static tu_status check_layout(const char *file, size_t count, const header_entry *list, uint64_t data_size) {
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        const header_entry *d = &list[i];
        uint64_t bytes;
        if (d->begin != offset || d->end < d->begin)
            return fail_corrupt(
                file, "tensor '%s' has bytes %" PRIu64 " to %" PRIu64 ", expected to start at %" PRIu64,
                d->name, d->begin, d->end, offset);
        if (!bytes_of(d, &bytes) || bytes != d->end - d->begin)
            return fail_corrupt(file,
                                "tensor '%s' has %" PRIu64 " bytes, which does not match its dtype and shape",
                                d->name, d->end - d->begin);
        offset = d->end;
    }
    if (offset == data_size) return TU_OK;
    return fail_corrupt(file, "its tensors have %" PRIu64 " bytes, but %" PRIu64 " follow the header", offset,
                        data_size);
}

static int compare_offsets(const void *left, const void *right) {
    const header_entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return strcmp(a->name, b->name); /* empty tensors may have the same offsets */
}

/* ---- Tensors and metadata ---- */

static const char *unsupported_reason(contents *c, const header_entry *d) {
    char reason[160];
    bool empty = false;
    for (size_t i = 0; i < d->rank; i++) empty = empty || d->dims[i] == 0;
    if (d->type->dtype == TU__SAFETENSORS_UNSUPPORTED)
        snprintf(reason, sizeof reason, "has dtype %s, which Tutti does not support: convert it to F32",
                 d->type->name);
    else if (d->rank > TU_MAX_RANK)
        snprintf(reason, sizeof reason, "has %zu dimensions: expected at most %d", d->rank, TU_MAX_RANK);
    else if (empty)
        snprintf(reason, sizeof reason, "is empty: one of its dimensions is 0");
    else
        return "";
    return tu__arena_string(&c->arena, reason);
}

static tu__named_tensor tensor_of(const header_entry *d, const unsigned char *data) {
    tu__named_tensor tensor = {
        .name = d->name, .type = {.dtype = (tu_dtype)d->type->dtype}, .data = data + d->begin};
    tensor.type.shape.rank = (int64_t)d->rank;
    for (size_t i = 0; i < d->rank; i++) tensor.type.shape.dim[i] = d->dims[i];
    return tensor;
}

static tu_status add_tensors(contents *c, size_t count, const header_entry *list, const unsigned char *data,
                             tu__safetensors *file) {
    tu__named_tensor *tensors = tu__arena_alloc(&c->arena, count * sizeof *tensors);
    tu__unsupported_tensor *unsupported = tu__arena_alloc(&c->arena, count * sizeof *unsupported);
    if (!tensors || !unsupported) return TU_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const char *reason = unsupported_reason(c, &list[i]);
        if (!reason) return TU_NO_MEMORY;
        if (*reason)
            unsupported[file->unsupported_count++] = (tu__unsupported_tensor){list[i].name, reason};
        else
            tensors[file->tensor_count++] = tensor_of(&list[i], data);
    }
    file->tensors = tensors;
    file->unsupported = unsupported;
    return TU_OK;
}

static tu_status add_metadata(contents *c, const tu__json_value *entries, tu__safetensors *file) {
    if (entries->kind != TU__JSON_OBJECT)
        return fail_corrupt(c->name, "its \"__metadata__\" is not an object");
    tu__metadata *metadata = tu__arena_alloc(&c->arena, entries->count * sizeof *metadata);
    if (!metadata) return TU_NO_MEMORY;
    for (size_t i = 0; i < entries->count; i++) {
        if (entries->values[i].kind != TU__JSON_STRING)
            return fail_corrupt(c->name, "the metadata entry '%s' is not a string", entries->keys[i]);
        metadata[i] = (tu__metadata){tu__arena_string(&c->arena, entries->keys[i]),
                                     tu__arena_string(&c->arena, entries->values[i].string)};
        if (!metadata[i].key || !metadata[i].value) return TU_NO_MEMORY;
    }
    file->metadata = metadata;
    file->metadata_count = entries->count;
    return TU_OK;
}

/* ---- The file ---- */

static tu_status fail_repeated(const contents *c, const char *key) {
    return fail_corrupt(c->name, "the key \"%.80s\" occurs twice in its header", key);
}

static tu_status read_member(void *context, const char *key, const tu__json_value *value) {
    header *h = context;
    if (strcmp(key, "__metadata__") == 0) {
        if (h->has_metadata) return fail_repeated(h->c, key);
        h->has_metadata = true;
        return add_metadata(h->c, value, h->file);
    }
    if (h->count == h->capacity) {
        size_t capacity = h->capacity ? h->capacity + h->capacity / 2 : 64;
        header_entry *list = tu__realloc(h->list, capacity * sizeof *list, "the tensors of a file");
        if (!list) return TU_NO_MEMORY;
        h->list = list;
        h->capacity = capacity;
    }
    return parse_entry(h->c, key, value, &h->list[h->count++]);
}

static int compare_names(const void *left, const void *right) {
    return strcmp(((const header_entry *)left)->name, ((const header_entry *)right)->name);
}

static tu_status check_names(const header *h) {
    qsort(h->list, h->count, sizeof *h->list, compare_names);
    for (size_t i = 1; i < h->count; i++)
        if (strcmp(h->list[i - 1].name, h->list[i].name) == 0) return fail_repeated(h->c, h->list[i].name);
    return TU_OK;
}

static tu_status read_members(header *h, const char *text, size_t length, const unsigned char *data,
                              uint64_t data_size) {
    TU_TRY(tu__json_visit(h->c->name, text, length, read_member, h));
    if (h->count == 0) return check_layout(h->c->name, 0, NULL, data_size);
    TU_TRY(check_names(h));
    qsort(h->list, h->count, sizeof *h->list, compare_offsets);
    TU_TRY(check_layout(h->c->name, h->count, h->list, data_size));
    return add_tensors(h->c, h->count, h->list, data, h->file);
}

static tu_status read_header(contents *c, const unsigned char *bytes, size_t size, tu__safetensors *file) {
    const size_t prefix = TU__SAFETENSORS_PREFIX_BYTES;
    if (size < prefix) return fail_corrupt(c->name, "it has %zu bytes, expected at least %zu", size, prefix);
    uint64_t length = 0;
    for (size_t i = prefix; i-- > 0;) length = length << 8 | bytes[i];
    if (length > TU__SAFETENSORS_MAX_HEADER)
        return fail_corrupt(c->name, "its header size is %" PRIu64 " bytes: expected at most %d", length,
                            TU__SAFETENSORS_MAX_HEADER);
    if (length > size - prefix)
        return fail_corrupt(c->name, "its header size is %" PRIu64 " bytes, but only %zu bytes follow",
                            length, size - prefix);
    const char *text = (const char *)bytes + prefix;
    if (length == 0 || *text != '{') return fail_corrupt(c->name, "its header does not start with '{'");
    header h = {.c = c, .file = file};
    tu_status status =
        read_members(&h, text, (size_t)length, bytes + prefix + length, size - prefix - length);
    tu__free(h.list);
    return status;
}

static tu_status new_contents(const char *name, tu__safetensors *file, contents **c) {
    *file = (tu__safetensors){0};
    *c = tu__alloc(sizeof **c, "a safetensors file");
    if (!*c) return TU_NO_MEMORY;
    file->contents = *c;
    (*c)->arena.purpose = "the header of a safetensors file";
    (*c)->name = tu__arena_string(&(*c)->arena, name);
    if ((*c)->name) return TU_OK;
    tu__safetensors_close(file);
    return TU_NO_MEMORY;
}

tu_status tu__safetensors_parse(const char *name, const void *bytes, size_t size, tu__safetensors *file) {
    contents *c;
    TU_TRY(new_contents(name, file, &c));
    tu_status status = read_header(c, bytes, size, file);
    if (status != TU_OK) tu__safetensors_close(file);
    return status;
}

tu_status tu__safetensors_open_in(const char *folder, const char *name, tu__safetensors *file) {
    tu__mapped_file mapping;
    *file = (tu__safetensors){0};
    TU_TRY(tu__map_file_in(folder, name, &mapping));
    tu_status status = tu__safetensors_parse(tu__file_path(folder, name).text,
                                             mapping.bytes ? mapping.bytes : "", mapping.size, file);
    if (status != TU_OK) {
        tu__unmap_file(&mapping);
        return status;
    }
    contents *c = file->contents;
    c->mapping = mapping;
    return TU_OK;
}

tu_status tu__safetensors_open(const char *path, tu__safetensors *file) {
    return tu__safetensors_open_in(NULL, path, file);
}

tu_status tu__safetensors_intact(const tu__safetensors *file) {
    const contents *c = file->contents;
    return c ? tu__check_mapping(&c->mapping, c->name) : TU_OK;
}

void tu__safetensors_close(tu__safetensors *file) {
    contents *c = file->contents;
    *file = (tu__safetensors){0};
    if (!c) return;
    tu__unmap_file(&c->mapping);
    tu__arena_free(&c->arena);
    tu__free(c);
}

const char *tu__safetensors_unsupported_reason(const tu__safetensors *file, const char *name) {
    for (size_t i = 0; i < file->unsupported_count; i++)
        if (strcmp(file->unsupported[i].name, name) == 0) return file->unsupported[i].reason;
    return NULL;
}

const tu__named_tensor *tu__safetensors_find(const tu__safetensors *file, const char *name) {
    for (size_t i = 0; i < file->tensor_count; i++)
        if (strcmp(file->tensors[i].name, name) == 0) return &file->tensors[i];
    const contents *c = file->contents;
    const char *source = c ? c->name : "an empty file",
               *reason = tu__safetensors_unsupported_reason(file, name);
    if (reason)
        tu_fail(TU_UNSUPPORTED, "%s: tensor '%s' %s", source, name, reason);
    else
        tu_fail(TU_NOT_FOUND, "%s has no tensor '%s'", source, name);
    return NULL;
}

const char *tu__safetensors_metadata(const tu__safetensors *file, const char *key) {
    for (size_t i = 0; i < file->metadata_count; i++)
        if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
    return NULL;
}
