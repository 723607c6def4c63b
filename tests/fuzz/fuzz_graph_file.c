/* Reads arbitrary bytes as a graph file. That must fail, or return a valid graph: the verifier, the printers, the
 * summary and the digest must succeed, and writing and reading it again must give the same bytes.
 *
 * The file ends with a SHA-256 digest, which mutations never get right. Each input is therefore read twice:
 * unchanged, and with the correct size and digest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/tutti.h>

#include "graph/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (!condition) {
        fprintf(stderr, "%s\n", tu_message());
        abort();
    }
}

/* ---- The custom operation "cube" of tests/ops/cases_random_custom_leaf.c, which occurs in the corpus ---- */

static tu_status cube_shape(const tu_custom_call *call, tu_type *outputs) {
    outputs[0] = call->inputs[0];
    return TU_OK;
}

static tu_status cube_run(const tu_custom_call *call, const void *const *in, void *const *out) {
    memcpy(out[0], in[0], tu_type_bytes(call->inputs[0]));
    return TU_OK;
}

static const tu_custom_op cube = {
    .struct_size = sizeof cube, .name = "cube", .outputs = 1, .shape = cube_shape, .run = cube_run};

/* ---- Checking a graph ---- */

static FILE *null_file(void) {
    static FILE *file;
    if (!file) file = fopen("/dev/null", "w");
    require(file != NULL);
    return file;
}

static void write_and_read_again(const tu_graph *graph) {
    void *first, *second;
    size_t first_size, second_size;
    char digest[TU_DIGEST_TEXT], copy_digest[TU_DIGEST_TEXT];
    tu_graph *copy;
    require(tu_graph_write(graph, &first, &first_size) == TU_OK);
    require(tu_graph_read(first, first_size, &copy) == TU_OK);
    require(tu_graph_write(copy, &second, &second_size) == TU_OK);
    require(first_size == second_size && memcmp(first, second, first_size) == 0);
    require(tu_graph_digest(graph, digest) == TU_OK && tu_graph_digest(copy, copy_digest) == TU_OK);
    require(strcmp(digest, copy_digest) == 0);
    tu_graph_free(copy);
    tu_bytes_free(first);
    tu_bytes_free(second);
}

static void check_graph(const tu_graph *graph) {
    tu_graph_totals totals = TU_SIZED(tu_graph_totals);
    require(tu_graph_verify(graph) == TU_OK);
    require(tu_graph_total(graph, &totals) == TU_OK);
    require(totals.flops >= 0 && totals.activation_bytes >= 0 && totals.variable_bytes >= 0);
    require(tu_graph_summary(graph, null_file()) == TU_OK);
    require(tu_graph_print(graph, TU_GRAPH_TEXT, null_file()) == TU_OK);
    require(tu_graph_print(graph, TU_GRAPH_DOT, null_file()) == TU_OK);
    require(tu_graph_print(graph, TU_GRAPH_JSON, null_file()) == TU_OK);
    write_and_read_again(graph);
}

static void read_bytes(const uint8_t *data, size_t size) {
    tu_graph *graph;
    tu_status status = tu_graph_read(data, size, &graph);
    require((status == TU_OK) == (graph != NULL));
    if (graph) check_graph(graph);
    /* Every error must be one of the file, not of the engine. */
    require(status == TU_OK || status == TU_CORRUPT || status == TU_UNSUPPORTED || status == TU_NOT_FOUND);
    tu_graph_free(graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    require(tu_custom_register(&cube) == TU_OK);
    read_bytes(data, size);
    if (size < TU__FILE_SMALLEST) return 0;
    uint8_t *repaired = malloc(size);
    if (!repaired) return 0;
    memcpy(repaired, data, size);
    uint64_t total = size;
    memcpy(repaired + TU__FILE_AT_SIZE, &total, sizeof total);
    tu__sha256_of(repaired, size - TU__FILE_TRAILER, repaired + size - TU__FILE_TRAILER);
    read_bytes(repaired, size);
    free(repaired);
    return 0;
}
