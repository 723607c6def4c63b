/* Writes safetensors files: builds the header in memory, then writes the tensors directly from their buffers, without
 * a second copy, in an atomic save.
 *
 * The same tensors always give the same bytes as the reference writer: the same order of tensors (by dtype, then by
 * name), JSON format, and padding of the header with spaces to eight bytes, which aligns every tensor. */
#include "io/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/save.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/safetensors_types.h"

static const tu__safetensors_type types[] = {
#define ROW(name, bits, dtype) {name, bits, dtype},
    TU__SAFETENSORS_TYPES(ROW)
#undef ROW
};

static size_t type_row(tu_dtype dtype) {
    size_t row = 0;
    while (types[row].dtype != (int)dtype) row++;
    return row;
}

/* ---- Validation ---- */

static bool is_utf8(const char *text) {
    size_t remaining = strlen(text);
    bool valid = true;
    while (remaining > 0 && valid) {
        size_t length = tu__utf8_length(text, remaining, &valid);
        text += length;
        remaining -= length;
    }
    return valid;
}

static tu_status check_tensor(const char *path, const tu__named_tensor *tensor) {
    if (!is_utf8(tensor->name))
        return tu_fail(TU_INVALID, "cannot save '%s': the name of a tensor is not UTF-8", path);
    if (strcmp(tensor->name, "__metadata__") == 0)
        return tu_fail(TU_INVALID, "cannot save '%s': a tensor has the reserved name '__metadata__'", path);
    if ((unsigned)tensor->type.dtype >= TU_DTYPE_COUNT || tensor->type.shape.rank < 0)
        return tu_fail(TU_INVALID, "cannot save '%s': tensor '%s' has the invalid dtype %d or rank %lld",
                       path, tensor->name, (int)tensor->type.dtype, (long long)tensor->type.shape.rank);
    return TU_OK;
}

static tu_status check_metadata(const char *path, size_t count, const tu__metadata *metadata) {
    for (size_t i = 0; i < count; i++) {
        if (!is_utf8(metadata[i].key) || !is_utf8(metadata[i].value))
            return tu_fail(TU_INVALID, "cannot save '%s': metadata entry %zu is not UTF-8", path, i);
        for (size_t j = 0; j < i; j++)
            if (strcmp(metadata[i].key, metadata[j].key) == 0)
                return tu_fail(TU_INVALID, "cannot save '%s': the metadata has the key '%s' twice", path,
                               metadata[i].key);
    }
    return TU_OK;
}

/* ---- Sorting ---- */

static int compare_file_order(const void *left, const void *right) {
    const tu__named_tensor *a = *(const tu__named_tensor *const *)left,
                           *b = *(const tu__named_tensor *const *)right;
    size_t row_a = type_row(a->type.dtype), row_b = type_row(b->type.dtype);
    if (row_a != row_b) return row_a > row_b ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int compare_names(const void *left, const void *right) {
    const tu__named_tensor *a = *(const tu__named_tensor *const *)left,
                           *b = *(const tu__named_tensor *const *)right;
    return strcmp(a->name, b->name);
}

static tu_status sort_tensors(const char *path, size_t count, const tu__named_tensor *tensors,
                              const tu__named_tensor **sorted) {
    for (size_t i = 0; i < count; i++) {
        TU_TRY(check_tensor(path, &tensors[i]));
        sorted[i] = &tensors[i];
    }
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            return tu_fail(TU_INVALID, "cannot save '%s': two tensors have the name '%s'", path,
                           sorted[i]->name);
    qsort(sorted, count, sizeof *sorted, compare_file_order);
    return TU_OK;
}

/* ---- The bytes ---- */

static void write_entry(tu_json *json, const tu__named_tensor *tensor, uint64_t begin, uint64_t end) {
    tu_json_begin_object(json, tensor->name);
    tu_json_string(json, "dtype", types[type_row(tensor->type.dtype)].name);
    tu_json_begin_array(json, "shape");
    for (int64_t i = 0; i < tensor->type.shape.rank; i++) tu_json_i64(json, NULL, tensor->type.shape.dim[i]);
    tu_json_end_array(json);
    tu_json_begin_array(json, "data_offsets");
    tu_json_u64(json, NULL, begin);
    tu_json_u64(json, NULL, end);
    tu_json_end_array(json);
    tu_json_end_object(json);
}

/* What a file contains; the tensors in the order of their data. */
typedef struct file_parts {
    size_t tensor_count, metadata_count;
    const tu__named_tensor *const *tensors;
    const tu__metadata *metadata;
    const char *seal; /* NULL: none */
} file_parts;

static tu__named_tensor seal_tensor(const char *name, const void *digest) {
    return (tu__named_tensor){name, {TU_U8, TU_SHAPE(TU__SHA256_BYTES)}, digest};
}

static tu_status write_header(tu__text *header, const file_parts *f) {
    tu_json json = tu__json_to_text(header);
    tu_json_begin_object(&json, NULL);
    if (f->metadata_count > 0) {
        tu_json_begin_object(&json, "__metadata__");
        for (size_t i = 0; i < f->metadata_count; i++)
            tu_json_string(&json, f->metadata[i].key, f->metadata[i].value);
        tu_json_end_object(&json);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < f->tensor_count; i++) {
        uint64_t begin = offset;
        offset += tu_type_bytes(f->tensors[i]->type);
        write_entry(&json, f->tensors[i], begin, offset);
    }
    if (f->seal) {
        const tu__named_tensor seal = seal_tensor(f->seal, NULL);
        write_entry(&json, &seal, offset, offset + TU__SHA256_BYTES);
    }
    tu_json_end_object(&json);
    while (!header->failed && header->length % 8 != 0) tu__text_append(header, " ", 1);
    return tu_json_finish(&json) && !header->failed ? TU_OK : TU_NO_MEMORY;
}

typedef struct output {
    tu__save save;
    tu__sha256 *hash; /* of all bytes so far; NULL: not needed */
} output;

static void append(output *out, const void *bytes, size_t size) {
    if (out->hash) tu__sha256_update(out->hash, bytes, size);
    tu__save_append(&out->save, bytes, size);
}

static tu_status write_file(const char *folder, const char *path, const tu__text *header,
                            const file_parts *f) {
    if (header->length > TU__SAFETENSORS_MAX_HEADER)
        return tu_fail(TU_INVALID, "cannot save '%s': its header has %zu bytes: expected at most %d", path,
                       header->length, TU__SAFETENSORS_MAX_HEADER);
    unsigned char prefix[TU__SAFETENSORS_PREFIX_BYTES], digest[TU__SHA256_BYTES];
    for (int i = 0; i < TU__SAFETENSORS_PREFIX_BYTES; i++)
        prefix[i] = (unsigned char)(header->length >> (8 * i));
    tu__sha256 hash;
    output out = {.hash = f->seal ? &hash : NULL};
    if (out.hash) tu__sha256_init(out.hash);
    TU_TRY(tu__save_begin_in(&out.save, folder, path));
    append(&out, prefix, sizeof prefix);
    append(&out, header->data, header->length);
    for (size_t i = 0; i < f->tensor_count; i++)
        append(&out, f->tensors[i]->data, tu_type_bytes(f->tensors[i]->type));
    if (out.hash) {
        tu__sha256_final(out.hash, digest);
        tu__save_append(&out.save, digest, sizeof digest);
    }
    return tu__save_commit(&out.save);
}

static tu_status check_seal(const char *path, size_t count, const tu__named_tensor *tensors,
                            const char *seal) {
    if (!seal) return TU_OK;
    const tu__named_tensor tensor = seal_tensor(seal, NULL);
    for (size_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, seal) == 0)
            return tu_fail(TU_INVALID, "cannot save '%s': two tensors have the name '%s'", path, seal);
    return check_tensor(path, &tensor);
}

static tu_status save_file(const char *folder, const char *path, size_t tensor_count,
                           const tu__named_tensor *tensors, size_t metadata_count,
                           const tu__metadata *metadata, const char *seal) {
    const tu__named_tensor **sorted =
        tu__alloc_array(tensor_count, sizeof *sorted, "the order of a file's tensors");
    if (!sorted) return TU_NO_MEMORY;
    const file_parts parts = {tensor_count, metadata_count, sorted, metadata, seal};
    tu__text header = {0};
    tu_status status = check_metadata(path, metadata_count, metadata);
    if (status == TU_OK) status = check_seal(path, tensor_count, tensors, seal);
    if (status == TU_OK) status = sort_tensors(path, tensor_count, tensors, sorted);
    if (status == TU_OK) status = write_header(&header, &parts);
    if (status == TU_OK) status = write_file(folder, path, &header, &parts);
    tu__text_free(&header);
    tu__free(sorted);
    return status;
}

tu_status tu__safetensors_save(const char *path, size_t tensor_count, const tu__named_tensor *tensors,
                               size_t metadata_count, const tu__metadata *metadata) {
    return save_file(NULL, path, tensor_count, tensors, metadata_count, metadata, NULL);
}

tu_status tu__safetensors_save_sealed(const char *path, size_t tensor_count, const tu__named_tensor *tensors,
                                      size_t metadata_count, const tu__metadata *metadata, const char *seal) {
    return save_file(NULL, path, tensor_count, tensors, metadata_count, metadata, seal);
}

tu_status tu__safetensors_save_in(const char *folder, const char *name, size_t tensor_count,
                                  const tu__named_tensor *tensors, size_t metadata_count,
                                  const tu__metadata *metadata) {
    return save_file(folder, name, tensor_count, tensors, metadata_count, metadata, NULL);
}
