/* The digest of a graph: a SHA-256 of what it computes, as 64 hexadecimal characters.
 *
 * Digests are compared to detect that a run folder or model file belongs to another graph. So graphs that compute the
 * same must have the same digest, even if different programs built them or created their nodes in another order. Each
 * node's digest is computed from its operation, attributes, output types and the digests of its inputs. The graph's
 * digest is the hash of the sorted digests of its nodes and results, so it does not depend on node ids. It includes
 * the names that are visible outside the graph (inputs, variables, results, custom operations), the keys of random
 * operations (an attribute) and control dependencies in any order. It does not include devices and colocation groups.
 *
 * Zero attributes are omitted, as in files: if an operation gets a new attribute, existing digests stay valid. */
#include <stdlib.h>
#include <string.h>

#include <tutti/custom.h>

#include "base/alloc.h"
#include "base/sha256.h"
#include "graph/attrs.h"
#include "graph/graph.h"

typedef struct digest {
    unsigned char bytes[TU__SHA256_BYTES];
} digest;

/* ---- Hashing of fields: each has a fixed length or is preceded by its length, so that the encoding is unambiguous
 * ---- */

static void add_u32(tu__sha256 *hash, uint32_t value) {
    unsigned char bytes[4] = {(unsigned char)value, (unsigned char)(value >> 8), (unsigned char)(value >> 16),
                              (unsigned char)(value >> 24)};
    tu__sha256_update(hash, bytes, sizeof bytes);
}

static void add_u64(tu__sha256 *hash, uint64_t value) {
    add_u32(hash, (uint32_t)value);
    add_u32(hash, (uint32_t)(value >> 32));
}

static void add_string(tu__sha256 *hash, const char *string) {
    size_t length = strlen(string);
    add_u64(hash, length);
    tu__sha256_update(hash, string, length);
}

static void add_attributes(tu__sha256 *hash, const tu__node *node) {
    for (tu__field f = tu__first_field(node->op, node->attrs); f.attr; f = tu__next_field(f)) {
        if (tu__field_is_zero(f)) continue;
        add_string(hash, f.attr->name);
        size_t words = tu__field_bytes(f) / 8;
        add_u64(hash, words);
        for (size_t i = 0; i < words; i++) {
            uint64_t word;
            memcpy(&word, f.cells + 8 * i, sizeof word);
            add_u64(hash, word);
        }
    }
    add_string(hash, ""); /* marks the end: no attribute has an empty name */
}

static void add_type(tu__sha256 *hash, tu_type type) {
    add_string(hash, tu_dtype_name(type.dtype));
    add_u32(hash, (uint32_t)type.shape.rank);
    for (int64_t i = 0; i < type.shape.rank; i++) add_u64(hash, (uint64_t)type.shape.dim[i]);
}

/* Hashes the name of an input, variable or custom operation, or the data of a constant. */
static void add_identity(tu__sha256 *hash, const tu__node *node) {
    switch (node->op->code) {
    case TU__OP_INPUT:
    case TU__OP_VARIABLE: add_string(hash, node->name); break;
    case TU__OP_CUSTOM: add_string(hash, node->custom->name); break;
    case TU__OP_CONSTANT: tu__sha256_update(hash, node->data, tu_type_bytes(node->outputs[0])); break;
    default: break;
    }
}

/* Hashes the control dependencies independently of their order: their digests are added bytewise. Adds nothing if
 * there are none, so that such nodes have the same digest as in versions without control dependencies. */
static void add_dependencies(tu__sha256 *hash, const tu__node *node, const digest *digests) {
    if (!node->after_count) return;
    digest sum = {{0}};
    for (uint32_t i = 0; i < node->after_count; i++)
        for (size_t k = 0; k < sizeof sum.bytes; k++) sum.bytes[k] += digests[node->after[i]].bytes[k];
    add_string(hash, "after");
    add_u32(hash, node->after_count);
    tu__sha256_update(hash, sum.bytes, sizeof sum.bytes);
}

/* Computes the digest of a node. `digests` contains those of all earlier nodes. */
static digest digest_node(const tu__node *node, const digest *digests) {
    tu__sha256 hash;
    tu__sha256_init(&hash);
    add_string(&hash, "node");
    add_string(&hash, node->op->name);
    add_attributes(&hash, node);
    add_u32(&hash, node->input_count);
    for (uint32_t i = 0; i < node->input_count; i++) {
        tu__sha256_update(&hash, digests[node->inputs[i].node].bytes, TU__SHA256_BYTES);
        add_u32(&hash, node->inputs[i].output);
    }
    add_u32(&hash, node->output_count);
    for (uint32_t i = 0; i < node->output_count; i++) add_type(&hash, node->outputs[i]);
    add_identity(&hash, node);
    add_dependencies(&hash, node, digests);
    digest result;
    tu__sha256_final(&hash, result.bytes);
    return result;
}

static digest digest_graph_output(const tu__named_value *named, const digest *digests) {
    tu__sha256 hash;
    tu__sha256_init(&hash);
    add_string(&hash, "result");
    add_string(&hash, named->name);
    tu__sha256_update(&hash, digests[named->value.node].bytes, TU__SHA256_BYTES);
    add_u32(&hash, named->value.output);
    digest result;
    tu__sha256_final(&hash, result.bytes);
    return result;
}

static int compare_digests(const void *a, const void *b) {
    return memcmp(a, b, sizeof(digest));
}

tu_status tu_graph_digest(const tu_graph *graph, char text[TU_DIGEST_TEXT]) {
    text[0] = '\0';
    TU_TRY(tu_graph_status(graph));
    size_t count = (size_t)graph->node_count + graph->result_count;
    digest *digests = tu__alloc_array(count + 1, sizeof *digests, "the digest of a graph");
    if (!digests) return TU_NO_MEMORY;
    for (uint32_t i = 0; i < graph->node_count; i++) digests[i] = digest_node(graph->nodes[i], digests);
    for (uint32_t i = 0; i < graph->result_count; i++)
        digests[graph->node_count + i] = digest_graph_output(&graph->results[i], digests);
    qsort(digests, count, sizeof *digests, compare_digests);

    tu__sha256 hash;
    tu__sha256_init(&hash);
    add_string(&hash, "tutti graph 1");
    add_u64(&hash, count);
    tu__sha256_update(&hash, digests, count * sizeof *digests);
    unsigned char bytes[TU__SHA256_BYTES];
    tu__sha256_final(&hash, bytes);
    tu__sha256_hex(bytes, text);
    tu__free(digests);
    return TU_OK;
}
