/* Whatever bytes come in, a safetensors file is refused, or every tensor it names lies within it.
 *
 * Mutations seldom get the length of the header right. So each input is read as it is, and once more with the length
 * put right: the header ends with the last brace, all after it is data. */
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

static void use(const tu__safetensors *file, const uint8_t *data, size_t size) {
    const uint8_t *end = data + 8;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const tu__named_tensor *t = &file->tensors[i];
        const uint8_t *bytes = t->data;
        require(t->type.dtype < TU_DTYPE_COUNT && t->type.shape.rank >= 0 &&
                t->type.shape.rank <= TU_MAX_RANK);
        require(tu_shape_elements(t->type.shape) > 0);
        require(bytes >= end); /* in order, none over another */
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
    require((status == TU_OK) == (file.own != NULL));
    if (status == TU_OK) use(&file, data, size);
    tu__safetensors_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_bytes(data, size);
    if (size < 8 || size > 4096) return 0; /* finding every tensor by name takes the square of their number */
    uint8_t *mended = malloc(size);
    if (!mended) return 0;
    memcpy(mended, data, size);
    size_t end = size;
    while (end > 8 && mended[end - 1] != '}') end--;
    uint64_t length = end - 8;
    memcpy(mended, &length, 8);
    read_bytes(mended, size);
    free(mended);
    return 0;
}
