/* Parses arbitrary bytes as a safetensors file. If that succeeds, every tensor must be inside the file.
 *
 * Mutations seldom get the length of the header right. Each input is therefore parsed twice: unchanged, and with a
 * header that ends at the last brace. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        fprintf(stderr, "%s\n", tu_message());
        abort();
    }
}

static void check_file(const tu__safetensors *file, const uint8_t *data, size_t size) {
    const uint8_t *end = data + 8;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const tu__named_tensor *t = &file->tensors[i];
        const uint8_t *bytes = t->data;
        require(t->type.dtype < TU_DTYPE_COUNT && t->type.shape.rank >= 0 &&
                t->type.shape.rank <= TU_MAX_RANK);
        require(tu_shape_elements(t->type.shape) > 0);
        require(bytes >= end); /* in order, without overlap */
        end = bytes + tu_type_bytes(t->type);
        require(end <= data + size);
        require(tu__safetensors_find(file, t->name) == t);
    }
    for (size_t i = 0; i < file->metadata_count; i++)
        require(tu__safetensors_metadata(file, file->metadata[i].key) == file->metadata[i].value);
    require(tu__safetensors_find(file, "\x01 no such tensor \x01") == NULL);
}

static void read_bytes(const uint8_t *data, size_t size) {
    tu__safetensors file;
    tu_status status = tu__safetensors_parse("input", data, size, &file);
    require(status == TU_OK || status == TU_CORRUPT);
    require((status == TU_OK) == (file.contents != NULL));
    if (status == TU_OK) check_file(&file, data, size);
    tu__safetensors_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_bytes(data, size);
    if (size < 8 || size > 4096) return 0; /* finding every tensor by name takes quadratic time */
    uint8_t *corrected = malloc(size);
    if (!corrected) return 0;
    memcpy(corrected, data, size);
    size_t end = size;
    while (end > 8 && corrected[end - 1] != '}') end--;
    uint64_t length = end - 8;
    memcpy(corrected, &length, 8);
    read_bytes(corrected, size);
    free(corrected);
    return 0;
}
