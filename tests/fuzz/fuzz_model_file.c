/* Parses arbitrary bytes as a model file. If that succeeds, every part must be inside the file and fit the graph, and the
 * parts can be written again.
 *
 * A model file ends with a SHA-256 digest, and so does the graph file in it; mutations never get these right. Each input is
 * therefore read twice: unchanged, and with both corrected. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "base/sha256.h"
#include "graph/file.h"
#include "infer/model_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        fprintf(stderr, "%s\n", tu_message());
        abort();
    }
}

static void check_tensors(const uint8_t *data, size_t size, size_t count, const tu__named_tensor *tensors) {
    for (size_t i = 0; i < count; i++) {
        const uint8_t *bytes = tensors[i].data;
        size_t length = tu_type_bytes(tensors[i].type);
        require(bytes > data && bytes < data + size && length < (size_t)(data + size - bytes));
        require((uintptr_t)bytes % tu_dtype_size(tensors[i].type.dtype) == 0);
    }
}

static void check_file(const tu__model_file *file, const uint8_t *data, size_t size) {
    require(tu_graph_verify(file->graph) == TU_OK);
    require(file->golden_count >= 1 && file->golden_count <= TU__MODEL_MAX_GOLDEN);
    check_tensors(data, size, file->variable_count, file->variables);
    check_tensors(data, size, file->input_count, file->golden_inputs);
    check_tensors(data, size, file->output_count, file->golden_outputs);
    for (size_t i = 0; i < file->variable_count; i++)
        require(tu__model_file_variable(file, file->variables[i].name) == &file->variables[i]);
    for (size_t i = 0; i < file->label_count; i++) require(strlen(file->labels[i]) < size);
    for (size_t i = 0; i < file->bound_count; i++) require(file->bounds[i].limit >= 0);
    require(tu__model_file_save("/dev/null", file) == TU_OK);
}

static void read_bytes(const uint8_t *data, size_t size) {
    tu__model_file file;
    tu_status status = tu__model_file_parse("input", data, size, &file);
    require(status == TU_OK || status == TU_CORRUPT || status == TU_UNSUPPORTED || status == TU_NOT_FOUND);
    require((status == TU_OK) == (file.contents != NULL));
    if (status == TU_OK) check_file(&file, data, size);
    tu__model_file_close(&file);
}

/* Corrects size and digest of the graph file at `bytes`. */
static void correct_graph(uint8_t *bytes, size_t size) {
    if (size < TU__FILE_SMALLEST) return;
    uint64_t total = size;
    memcpy(bytes + TU__FILE_AT_SIZE, &total, sizeof total);
    tu__sha256_of(bytes, size - TU__FILE_TRAILER, bytes + size - TU__FILE_TRAILER);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_bytes(data, size);
    tu__safetensors tensors;
    if (size < TU__SHA256_BYTES || tu__safetensors_parse("input", data, size, &tensors) != TU_OK) return 0;
    const tu__named_tensor *graph = tu__safetensors_find(&tensors, TU__MODEL_GRAPH);
    uint8_t *corrected = malloc(size);
    if (corrected) {
        memcpy(corrected, data, size);
        if (graph)
            correct_graph(corrected + ((const uint8_t *)graph->data - data), tu_type_bytes(graph->type));
        tu__sha256_of(corrected, size - TU__SHA256_BYTES, corrected + size - TU__SHA256_BYTES);
        read_bytes(corrected, size);
    }
    free(corrected);
    tu__safetensors_close(&tensors);
    return 0;
}
