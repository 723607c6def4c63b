/* Helpers for tests of graph files: test graphs, writing and signing files, asserting errors. */
#ifndef TESTS_UNIT_GRAPH_FILE_H
#define TESTS_UNIT_GRAPH_FILE_H

#include "test.h"

#include <string.h>

#include <tutti/tutti.h>

#include "graph/file.h"

typedef struct file {
    unsigned char *bytes;
    size_t size;
} file;

static inline file write_graph(const tu_graph *graph) {
    void *bytes;
    size_t size;
    if (tu_graph_write(graph, &bytes, &size) != TU_OK) fail_msg("%s", tu_message());
    return (file){bytes, size};
}

static inline file write_and_free(tu_graph *graph) {
    file f = write_graph(graph);
    tu_graph_free(graph);
    return f;
}

/* Corrects size and digest after a test has modified the bytes, so that only the contents are invalid. */
static inline void sign(file f) {
    uint64_t size = f.size;
    memcpy(f.bytes + TU__FILE_AT_SIZE, &size, sizeof size);
    tu__sha256_of(f.bytes, f.size - TU__FILE_TRAILER, f.bytes + f.size - TU__FILE_TRAILER);
}

static inline void assert_says(const char *part) {
    if (!strstr(tu_message(), part)) fail_msg("\"%s\" does not contain \"%s\"", tu_message(), part);
}

/* Asserts that reading the file fails with `status` and a message that contains `part`. */
static inline void assert_read_error(file f, tu_status status, const char *part) {
    tu_graph *graph = (tu_graph *)f.bytes;
    assert_int_equal(tu_graph_read(f.bytes, f.size, &graph), status);
    assert_null(graph);
    assert_says("graph file");
    assert_says(part);
}

/* Asserts that writing, reading and writing the graph again gives the same bytes and digest. */
static inline void assert_round_trip(const tu_graph *graph) {
    file first = write_graph(graph);
    tu_graph *copy;
    if (tu_graph_read(first.bytes, first.size, &copy) != TU_OK) fail_msg("%s", tu_message());
    file second = write_graph(copy);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.bytes, second.bytes, first.size);
    char digest[TU_DIGEST_TEXT], copy_digest[TU_DIGEST_TEXT];
    assert_int_equal(tu_graph_digest(graph, digest), TU_OK);
    assert_int_equal(tu_graph_digest(copy, copy_digest), TU_OK);
    assert_string_equal(digest, copy_digest);
    assert_int_equal(tu_training(copy), tu_training(graph));
    tu_graph_free(copy);
    tu_bytes_free(first.bytes);
    tu_bytes_free(second.bytes);
}

/* ---- Graphs ---- */

static inline tu_status twice_shape(const tu_custom_call *call, tu_type *outputs) {
    outputs[0] = outputs[1] = call->inputs[0];
    return TU_OK;
}

static inline tu_status twice_run(const tu_custom_call *call, const void *const *in, void *const *out) {
    memcpy(out[0], in[0], tu_type_bytes(call->inputs[0]));
    memcpy(out[1], in[0], tu_type_bytes(call->inputs[0]));
    return TU_OK;
}

static const tu_custom_op twice = {.struct_size = sizeof twice,
                                   .name = "file_test_twice",
                                   .outputs = 2,
                                   .shape = twice_shape,
                                   .run = twice_run};

static inline tu_graph *new_graph(void) {
    tu_graph *g;
    assert_int_equal(tu_graph_new(&g), TU_OK);
    return g;
}

/* Returns a graph that contains everything a graph file can store. */
static inline tu_graph *rich_graph(void) {
    tu_graph *g = new_graph();
    unsigned char data[8 * 6];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37);
    tu_value x = tu_batch_input(g, "x", TU_F32, TU_SHAPE(2, 3)), y = x;
    tu_scope(g, "a") tu_scope(g, "b") {
        tu_value w =
            tu_variable(g, "w", TU_F32, TU_SHAPE(3, 3), .init = {TU_INIT_NORMAL, .a = -0.0, .b = 0.02});
        tu_recompute(g) tu_with_device(g, "cpu:0.1") y = tu_matmul(x, w, .transpose_b = true);
        tu_assign(w, tu_neg(w));
    }
    for (int dtype = 0; dtype < TU_DTYPE_COUNT; dtype++)
        if (dtype != TU_BOOL) tu_constant(g, (tu_dtype)dtype, TU_SHAPE(3, 1, 2), data);
    tu_constant(g, TU_BOOL, TU_SHAPE(3), (const unsigned char[]){1, 0, 1});
    tu_value k = tu_top_k(tu_add(y, tu_constant(g, TU_F32, TU_SCALAR, &(float){1.5f})), 2, -1);
    tu_value c = tu_name(tu_custom("file_test_twice", 1, &k), "both");
    tu_output(tu_output_of(c, 1), "second");
    tu_output(tu_slice(c, 1, 0, 1, 1), "first");
    tu_output(tu_clip(x, -1.0 / 0.0, 0.1), "clipped");
    tu_output(tu_sum(tu_output_of(k, 1), .axes = TU_AXES(0), .keep = true), "indices");
    tu_set_training(g, false);
    assert_int_equal(tu_graph_status(g), TU_OK);
    return g;
}

/* Returns neg(x) of an input x f32[2]: the smallest graph with an edge, an attribute and an output. */
static inline tu_graph *small_graph(void) {
    tu_graph *g = new_graph();
    tu_output(tu_neg(tu_input(g, "x", TU_F32, TU_SHAPE(2))), "y");
    return g;
}

/* Registers the operation that rich_graph uses. */
static inline int register_custom(void **state) {
    (void)state;
    return tu_custom_register(&twice);
}

#endif
