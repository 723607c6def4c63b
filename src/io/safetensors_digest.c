/* Computes and verifies the digests of safetensors files. See safetensors_digest.h. */
#include "io/safetensors_digest.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static void finish_hash(tu__sha256 *hash, char hex[TU__SHA256_HEX]) {
    unsigned char digest[TU__SHA256_BYTES];
    tu__sha256_final(hash, digest);
    tu__sha256_hex(digest, hex);
}

void tu__tensors_digest(size_t count, const tu__named_tensor *tensors, char hex[TU__SHA256_HEX]) {
    tu__sha256 hash;
    tu__sha256_init(&hash);
    for (size_t i = 0; i < count; i++) {
        const tu__named_tensor *t = &tensors[i];
        const char *dtype = tu_dtype_name(t->type.dtype);
        tu__sha256_update(&hash, t->name, strlen(t->name) + 1);
        tu__sha256_update(&hash, dtype, strlen(dtype) + 1);
        tu__sha256_update(&hash, t->data, tu_type_bytes(t->type));
    }
    finish_hash(&hash, hex);
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(((const tu__metadata *)a)->key, ((const tu__metadata *)b)->key);
}

tu_status tu__metadata_digest(size_t count, const tu__metadata *entries, char hex[TU__SHA256_HEX]) {
    tu__metadata *sorted = tu__alloc_array(count, sizeof *sorted, "the metadata of a file");
    if (!sorted) return TU_NO_MEMORY;
    if (count) memcpy(sorted, entries, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_keys);
    tu__sha256 hash;
    tu__sha256_init(&hash);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(sorted[i].key, TU__METADATA_DIGEST) == 0) continue;
        tu__sha256_update(&hash, sorted[i].key, strlen(sorted[i].key) + 1);
        tu__sha256_update(&hash, sorted[i].value, strlen(sorted[i].value) + 1);
    }
    finish_hash(&hash, hex);
    tu__free(sorted);
    return TU_OK;
}

static tu_status check_entries(const tu__safetensors *file, const char *kind, const char *path) {
    char digest[TU__SHA256_HEX];
    TU_TRY(tu__metadata_digest(file->metadata_count, file->metadata, digest));
    const char *expected = tu__safetensors_metadata(file, TU__METADATA_DIGEST);
    if (expected && strcmp(expected, digest) == 0) return TU_OK;
    return tu_fail(TU_CORRUPT, "%s '%s' is damaged: its metadata does not match its digest", kind, path);
}

static int compare_tensors(const void *a, const void *b) {
    return strcmp(((const tu__named_tensor *)a)->name, ((const tu__named_tensor *)b)->name);
}

static tu_status check_tensors(const tu__safetensors *file, const char *kind, const char *path) {
    tu__named_tensor *sorted = tu__alloc_array(file->tensor_count, sizeof *sorted, "the tensors of a file");
    if (!sorted) return TU_NO_MEMORY;
    if (file->tensor_count) memcpy(sorted, file->tensors, file->tensor_count * sizeof *sorted);
    qsort(sorted, file->tensor_count, sizeof *sorted, compare_tensors);
    char digest[TU__SHA256_HEX];
    tu__tensors_digest(file->tensor_count, sorted, digest);
    tu__free(sorted);
    const char *expected = tu__safetensors_metadata(file, TU__TENSORS_DIGEST);
    if (expected && strcmp(expected, digest) == 0) return TU_OK;
    return tu_fail(TU_CORRUPT, "%s '%s' is damaged: its tensors do not match their digest", kind, path);
}

tu_status tu__safetensors_check(const tu__safetensors *file, const char *kind, const char *path) {
    TU_TRY(check_entries(file, kind, path));
    return check_tensors(file, kind, path);
}
