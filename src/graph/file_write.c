/* Writes graph files. docs/graph-file.md describes the format.
 *
 * The bytes depend only on the graph. Writing a graph that was read from a file of this version gives the same
 * bytes. */
#include <string.h>

#include <tutti/custom.h>

#include "base/alloc.h"
#include "base/save.h"
#include "base/text.h"
#include "graph/attrs.h"
#include "graph/file.h"
#include "graph/graph.h"

/* ---- Numbers and strings, appended to a tu__text, which may contain any bytes ---- */

static void put(tu__text *out, const void *bytes, size_t size) {
    tu__text_append(out, bytes, size);
}

static void put_u8(tu__text *out, uint8_t value) {
    put(out, &value, sizeof value);
}

static void put_u32(tu__text *out, uint32_t value) {
    put(out, &value, sizeof value);
}

static void put_u64(tu__text *out, uint64_t value) {
    put(out, &value, sizeof value);
}

/* Writes length, bytes and a NUL, which lets the reader use the string in place. */
static void put_string(tu__text *out, const char *string) {
    size_t length = strlen(string);
    put_u32(out, (uint32_t)length);
    put(out, string, length + 1);
}

/* ---- Parts of a node ---- */

static void put_shape(tu__text *out, tu_shape shape) {
    put_u8(out, (uint8_t)shape.rank);
    put(out, shape.dim, (size_t)shape.rank * sizeof shape.dim[0]);
}

static void put_element(tu__text *out, tu__field field, uint32_t index) {
    switch (field.attr->kind) {
    case TU__ATTR_BOOL:
    case TU__ATTR_DTYPE: put_u8(out, (uint8_t)tu__field_i64(field, index)); break;
    case TU__ATTR_SHAPE: put_shape(out, tu__field_shape(field, index)); break;
    case TU__ATTR_I64:
    case TU__ATTR_F64:
    case TU__ATTR_AXES: put(out, field.cells + 8 * (size_t)index, 8); break;
    }
}

static void put_field(tu__text *out, tu__field field) {
    put_string(out, field.attr->name);
    put_u8(out, (uint8_t)field.attr->kind);
    put_u32(out, field.attr->count);
    for (uint32_t i = 0; i < field.attr->count; i++) put_element(out, field, i);
}

/* Omits attributes that are zero: the reader sets missing attributes to zero. */
static void put_attributes(tu__text *out, const tu__node *node) {
    uint32_t count = 0;
    for (tu__field f = tu__first_field(node->op, node->attrs); f.attr; f = tu__next_field(f))
        count += !tu__field_is_zero(f);
    put_u32(out, count);
    for (tu__field f = tu__first_field(node->op, node->attrs); f.attr; f = tu__next_field(f))
        if (!tu__field_is_zero(f)) put_field(out, f);
}

/* Writes control dependencies and group only for nodes that have them, so that older versions can read the other
 * graphs. */
static void put_constraints(tu__text *out, const tu__node *node) {
    if (node->after_count) put_u32(out, node->after_count);
    for (uint32_t i = 0; i < node->after_count; i++) put_u32(out, node->after[i]);
    if (node->group) put_u32(out, node->group);
}

static void put_node(tu__text *out, const tu__node *node) {
    put_string(out, node->op->name);
    put_string(out, node->name);
    put_u32(out, node->flags | (node->after_count ? TU__FILE_NODE_DEPS : 0) |
                     (node->group ? TU__FILE_NODE_GROUPED : 0));
    put_string(out, node->device ? node->device : "");
    if (node->op->code == TU__OP_CUSTOM) put_string(out, node->custom->name);
    put_attributes(out, node);
    put_u32(out, node->input_count);
    for (uint32_t i = 0; i < node->input_count; i++) {
        put_u32(out, node->inputs[i].node);
        put_u32(out, node->inputs[i].output);
    }
    put_u32(out, node->output_count);
    for (uint32_t i = 0; i < node->output_count; i++) {
        put_u8(out, (uint8_t)node->outputs[i].dtype);
        put_shape(out, node->outputs[i].shape);
    }
    put_constraints(out, node);
    if (node->op->code == TU__OP_CONSTANT) {
        size_t bytes = tu_type_bytes(node->outputs[0]);
        put_u64(out, bytes);
        put(out, node->data, bytes);
    }
}

/* ---- The file ---- */

static void put_graph(tu__text *out, const tu_graph *graph) {
    put(out, TU__FILE_MAGIC, TU__FILE_AT_VERSION);
    put_u32(out, TU__FILE_VERSION);
    put_u32(out, graph->training ? TU__FILE_FLAG_TRAINING : 0);
    put_u64(out, 0); /* the size, filled in below */
    put_u32(out, graph->node_count);
    for (uint32_t i = 0; i < graph->node_count; i++) put_node(out, graph->nodes[i]);
    put_u32(out, graph->result_count);
    for (uint32_t i = 0; i < graph->result_count; i++) {
        put_string(out, graph->results[i].name);
        put_u32(out, graph->results[i].value.node);
        put_u32(out, graph->results[i].value.output);
    }
    if (out->failed) return;
    uint64_t size = out->length + TU__FILE_TRAILER;
    memcpy(out->data + TU__FILE_AT_SIZE, &size, sizeof size);
    unsigned char trailer[TU__FILE_TRAILER];
    tu__sha256_of(out->data, out->length, trailer);
    put(out, trailer, sizeof trailer);
}

tu_status tu_graph_write(const tu_graph *graph, void **bytes, size_t *size) {
    *bytes = NULL;
    *size = 0;
    TU_TRY(tu_graph_verify(graph)); /* so that the file can be read back */
    if (graph->result_count > TU__FILE_MAX_RESULTS)
        return tu_fail(TU_UNSUPPORTED, "the graph has %u results: a graph file can contain at most %d",
                       graph->result_count, TU__FILE_MAX_RESULTS);
    tu__text out = {0};
    put_graph(&out, graph);
    if (out.failed) {
        tu__text_free(&out);
        return TU_NO_MEMORY;
    }
    *bytes = out.data;
    *size = out.length;
    return TU_OK;
}

void tu_bytes_free(void *bytes) {
    tu__free(bytes);
}

tu_status tu__graph_save_in(const tu_graph *graph, const char *folder, const char *name) {
    void *bytes;
    size_t size;
    TU_TRY(tu_graph_write(graph, &bytes, &size));
    tu_status status = tu__file_save_in(folder, name, bytes, size);
    tu_bytes_free(bytes);
    return status;
}

tu_status tu_graph_save(const tu_graph *graph, const char *path) {
    return tu__graph_save_in(graph, NULL, path);
}
