/* Reads graph files. docs/graph-file.md describes the format.
 *
 * The file is untrusted. First its size is compared with the header, and its SHA-256 with the trailer, to detect
 * truncated and damaged files. An intact file may still be hostile: each length is checked against the remaining
 * bytes before memory is allocated for it, so memory is proportional to the file's size, and every node is created by
 * tu__make, whose shape rules check all attributes and inputs. Finally the verifier checks the graph. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <tutti/custom.h>

#include "base/alloc.h"
#include "base/open_file.h"
#include "base/text.h"
#include "graph/attrs.h"
#include "graph/custom.h"
#include "graph/file.h"
#include "graph/graph.h"
#include "graph/walk.h"

/* ---- Reading numbers, strings and types. `what` names the item in messages ---- */

typedef struct reader {
    const unsigned char *bytes;
    size_t offset, end; /* of the next byte, and of the trailer */
    tu_graph *graph;
    tu_value *inputs; /* buffer for the inputs of one node */
    size_t input_capacity;
} reader;

/* Fails with "graph file, byte 123: <problem>". */
static tu_status fail_at(tu_status status, size_t offset, const char *format, ...) TU_PRINTF(3, 4);

static tu_status fail_at(tu_status status, size_t offset, const char *format, ...) {
    char problem[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(problem, sizeof problem, format, arguments);
    va_end(arguments);
    return tu_fail(status, "graph file, byte %zu: %s", offset, problem);
}

/* Returns the next `size` bytes and advances; fails and returns NULL if fewer are left. */
static const unsigned char *read_bytes(reader *r, size_t size, const char *what) {
    if (size > r->end - r->offset) {
        fail_at(TU_CORRUPT, r->offset, "%s needs %zu bytes, but only %zu are left", what, size,
                r->end - r->offset);
        return NULL;
    }
    const unsigned char *bytes = r->bytes + r->offset;
    r->offset += size;
    return bytes;
}

static tu_status read_number(reader *r, void *number, size_t size, const char *what) {
    const unsigned char *bytes = read_bytes(r, size, what);
    if (!bytes) return TU_CORRUPT;
    memcpy(number, bytes, size);
    return TU_OK;
}

/* Reads the count of items that need at least `item_size` bytes each. Fails if the remaining bytes cannot contain that
 * many. */
static tu_status read_count(reader *r, uint32_t *count, size_t item_size, const char *what) {
    size_t start = r->offset;
    TU_TRY(read_number(r, count, sizeof *count, what));
    if (*count > (r->end - r->offset) / item_size)
        return fail_at(TU_CORRUPT, start, "%s is %" PRIu32 ", too many for the %zu bytes left", what, *count,
                       r->end - r->offset);
    return TU_OK;
}

/* Reads a string: its length, bytes without NUL, a NUL. `*string` points into the file's bytes. */
static tu_status read_string(reader *r, const char **string, const char *what) {
    size_t start = r->offset;
    uint32_t length;
    TU_TRY(read_count(r, &length, 1, what));
    const unsigned char *bytes = read_bytes(r, (size_t)length + 1, what);
    if (!bytes) return TU_CORRUPT;
    if (bytes[length] != 0) return fail_at(TU_CORRUPT, start, "%s does not end with a NUL byte", what);
    if (memchr(bytes, 0, length)) return fail_at(TU_CORRUPT, start, "%s contains a NUL byte", what);
    *string = (const char *)bytes;
    return TU_OK;
}

/* Reads a string that must be a valid name of a node or result. */
static tu_status read_name(reader *r, const char **name, const char *what) {
    size_t start = r->offset;
    TU_TRY(read_string(r, name, what));
    const unsigned char *c = (const unsigned char *)*name;
    bool usable = *c && *c != '/' && !strstr(*name, "//");
    for (; *c && usable; c++) usable = *c > ' ' && *c != 0x7f && !(*c == '/' && !c[1]);
    if (!usable)
        return fail_at(TU_CORRUPT, start,
                       "%s is not valid: expected visible characters (no spaces), without '/' at its ends",
                       what);
    return TU_OK;
}

static tu_status read_shape(reader *r, tu_shape *shape, const char *what) {
    size_t start = r->offset;
    uint8_t rank;
    *shape = (tu_shape){0};
    TU_TRY(read_number(r, &rank, sizeof rank, what));
    if (rank > TU_MAX_RANK)
        return fail_at(TU_CORRUPT, start, "%s has a shape of rank %u: expected at most %d", what, rank,
                       TU_MAX_RANK);
    shape->rank = rank;
    TU_TRY(read_number(r, shape->dim, rank * sizeof shape->dim[0], what));
    if (!tu__shape_valid(*shape))
        return fail_at(
            TU_CORRUPT, start,
            "%s has the shape %s: expected dimensions of at least 1, at most 2^48 elements in total", what,
            tu__shape_string(*shape));
    return TU_OK;
}

static tu_status read_type(reader *r, tu_type *type, const char *what) {
    size_t start = r->offset;
    uint8_t dtype;
    TU_TRY(read_number(r, &dtype, sizeof dtype, what));
    if (dtype >= TU_DTYPE_COUNT)
        return fail_at(TU_CORRUPT, start, "%s has the unknown element type %u", what, dtype);
    type->dtype = (tu_dtype)dtype;
    return read_shape(r, &type->shape, what);
}

/* ---- Attributes ---- */

/* Room for the attributes of any operation, aligned for them. */
typedef union any_attrs {
#define OP(id, name, ...) struct tu__##name##_attrs name##_;
#define POINTWISE(id, name, ...) struct tu__##name##_attrs name##_;
#include "graph/ops.def"
    unsigned char bytes[1];
} any_attrs;

typedef struct partial_node { /* a node that is being read */
    size_t offset;            /* in the file */
    const tu__op *op;
    const char *name;
    any_attrs attrs;
    uint64_t seen_attrs; /* bit i: attribute i was read */
    tu__node_request request;
    bool has_dependencies, has_group; /* control dependencies and a colocation group follow the outputs */
    size_t dependencies_at;           /* offset of the list of control dependencies */
} partial_node;

/* Finds an attribute by name and sets `*index`; `field.attr` is NULL if the operation has no such attribute. */
static tu__field find_field(const tu__op *op, const any_attrs *attrs, const char *name, uint32_t *index) {
    tu__field f = tu__first_field(op, attrs->bytes);
    if (op->code == TU__OP_ALL_REDUCE && strcmp(name, "meeting") == 0)
        name = "collective"; /* its name in older files */
    for (*index = 0; f.attr && strcmp(f.attr->name, name) != 0; ++*index) f = tu__next_field(f);
    return f;
}

static tu_status read_element(reader *r, tu__field field, uint32_t index) {
    unsigned char *cell = (unsigned char *)field.cells; /* points into our `attrs`, which are writable */
    if (field.attr->kind == TU__ATTR_SHAPE) {
        tu_shape shape;
        TU_TRY(read_shape(r, &shape, field.attr->name));
        memcpy(cell + index * sizeof shape, &shape, sizeof shape);
        return TU_OK;
    }
    bool narrow = field.attr->kind == TU__ATTR_BOOL || field.attr->kind == TU__ATTR_DTYPE;
    return read_number(r, cell + 8 * (size_t)index, narrow ? 1 : 8, field.attr->name);
}

static tu_status read_attribute(reader *r, partial_node *node) {
    size_t start = r->offset;
    const char *name = "";
    uint8_t kind;
    uint32_t count, index;
    TU_TRY(read_string(r, &name, "an attribute's name"));
    tu__field field = find_field(node->op, &node->attrs, name, &index);
    if (!field.attr)
        return fail_at(TU_UNSUPPORTED, start,
                       "operation '%s' has no attribute '%s' in Tutti %s: a newer version wrote the file",
                       node->op->name, name, tu_version());
    TU_TRY(read_number(r, &kind, sizeof kind, name));
    TU_TRY(read_number(r, &count, sizeof count, name));
    if (kind != field.attr->kind || count != field.attr->count)
        return fail_at(TU_CORRUPT, start,
                       "attribute '%s' of operation '%s' has kind %u with %" PRIu32
                       " elements: expected kind %d with %" PRIu32,
                       name, node->op->name, kind, count, (int)field.attr->kind, field.attr->count);
    if (node->seen_attrs >> index & 1)
        return fail_at(TU_CORRUPT, start, "attribute '%s' is given twice", name);
    node->seen_attrs |= UINT64_C(1) << index;
    for (uint32_t i = 0; i < count; i++) TU_TRY(read_element(r, field, i));
    if (tu__check_field(field) != TU_OK) return fail_at(TU_CORRUPT, start, "%s", tu_message());
    return TU_OK;
}

static tu_status read_attributes(reader *r, partial_node *node) {
    uint32_t count;
    TU_TRY(read_count(r, &count, 12, "a number of attributes"));
    memset(&node->attrs, 0, sizeof node->attrs);
    for (uint32_t i = 0; i < count; i++) TU_TRY(read_attribute(r, node));
    node->request.attrs = node->attrs.bytes;
    return TU_OK;
}

/* ---- Nodes ---- */

static tu_status read_operation(reader *r, partial_node *node) {
    const char *op;
    TU_TRY(read_string(r, &op, "an operation's name"));
    node->op = tu__op_find(op);
    if (!node->op)
        return fail_at(TU_UNSUPPORTED, node->offset,
                       "operation '%s' does not exist in Tutti %s: a newer version wrote the file", op,
                       tu_version());
    node->request.op = node->op->code;
    TU_TRY(read_name(r, &node->name, "a node's name"));
    node->request.name = node->name;
    node->request.exact_name = true;
    size_t start = r->offset;
    TU_TRY(read_number(r, &node->request.flags, sizeof node->request.flags, "a node's flags"));
    node->has_dependencies = node->request.flags & TU__FILE_NODE_DEPS;
    node->has_group = node->request.flags & TU__FILE_NODE_GROUPED;
    node->request.flags &= ~(uint32_t)(TU__FILE_NODE_DEPS | TU__FILE_NODE_GROUPED);
    uint32_t unknown = node->request.flags & ~(uint32_t)(TU__NODE_RECOMPUTE | TU__NODE_RECOMPUTED);
    if (unknown)
        return fail_at(TU_UNSUPPORTED, start, "node '%s' has unknown flags 0x%" PRIx32, node->name, unknown);
    return TU_OK;
}

static tu_status read_device(reader *r, partial_node *node) {
    size_t start = r->offset;
    const char *name = "";
    TU_TRY(read_string(r, &name, "a device's name"));
    if (!*name) return TU_OK; /* not assigned to a device */
    if (!tu__device_name_is_valid(name))
        return fail_at(TU_CORRUPT, start, "the device name of '%s' is not valid: expected one like cpu:0.1",
                       node->name);
    node->request.device = name;
    return TU_OK;
}

static tu_status read_custom(reader *r, partial_node *node) {
    if (node->op->code != TU__OP_CUSTOM) return TU_OK;
    size_t start = r->offset;
    const char *name;
    TU_TRY(read_string(r, &name, "a custom operation's name"));
    node->request.custom = tu__custom_find(name);
    if (!node->request.custom)
        return fail_at(
            TU_NOT_FOUND, start,
            "node '%s' uses the custom operation '%s', which is not registered: call tu_custom_register first",
            node->name, name);
    return TU_OK;
}

static tu_status read_inputs(reader *r, partial_node *node) {
    uint32_t count;
    TU_TRY(read_count(r, &count, 8, "a number of inputs"));
    if (count > r->input_capacity) {
        tu_value *inputs = tu__realloc(r->inputs, count * sizeof *inputs, "a node's inputs");
        if (!inputs) return TU_NO_MEMORY;
        r->inputs = inputs;
        r->input_capacity = count;
    }
    for (uint32_t i = 0; i < count; i++) {
        size_t start = r->offset;
        uint32_t source, output;
        TU_TRY(read_number(r, &source, sizeof source, "an input"));
        TU_TRY(read_number(r, &output, sizeof output, "an input"));
        if (source >= r->graph->node_count)
            return fail_at(TU_CORRUPT, start,
                           "input %" PRIu32 " of '%s' is node %" PRIu32 ": expected an earlier node", i,
                           node->name, source);
        r->inputs[i] = tu__value(r->graph, source, output);
    }
    node->request.inputs = r->inputs;
    node->request.input_count = count;
    return TU_OK;
}

/* Skips the output types and sets `*start` to their offset. compare_outputs compares them with the shape rule's
 * types. */
static tu_status read_outputs(reader *r, size_t *start) {
    uint32_t count;
    TU_TRY(read_count(r, &count, 2, "a number of outputs"));
    *start = r->offset;
    for (uint32_t i = 0; i < count; i++) {
        tu_type type;
        TU_TRY(read_type(r, &type, "an output"));
    }
    return TU_OK;
}

/* Skips the control dependencies, which add_dependencies reads once the node exists, and reads the group. */
static tu_status skip_constraints(reader *r, partial_node *node) {
    node->dependencies_at = r->offset;
    uint32_t count;
    if (node->has_dependencies) {
        TU_TRY(read_count(r, &count, 4, "the number of control dependencies"));
        if (!read_bytes(r, 4 * (size_t)count, "the list of control dependencies")) return TU_CORRUPT;
    }
    if (!node->has_group) return TU_OK;
    size_t start = r->offset;
    TU_TRY(read_number(r, &node->request.group, sizeof node->request.group, "a group"));
    if (node->request.group == 0 || node->request.group > TU__MAX_GROUPS)
        return fail_at(TU_CORRUPT, start, "the group of '%s' is %" PRIu32 ": expected 1 to %d", node->name,
                       node->request.group, TU__MAX_GROUPS);
    return TU_OK;
}

/* Adds the control dependencies. They must be earlier nodes in ascending order, so they cannot form a cycle. */
static tu_status add_dependencies(reader *r, const partial_node *partial) {
    if (!partial->has_dependencies) return TU_OK;
    reader second = *r;
    second.offset = partial->dependencies_at;
    uint32_t node = r->graph->node_count - 1, count, dependency, before = 0;
    TU_TRY(read_number(&second, &count, sizeof count, "the number of control dependencies"));
    if (count == 0)
        return fail_at(TU_CORRUPT, partial->dependencies_at,
                       "'%s' has an empty list of control dependencies: expected at least one",
                       partial->name);
    for (uint32_t i = 0; i < count; i++) {
        size_t start = second.offset;
        TU_TRY(read_number(&second, &dependency, sizeof dependency, "a control dependency"));
        if (dependency >= node || (i && dependency <= before))
            return fail_at(TU_CORRUPT, start,
                           "'%s' has a control dependency on node %" PRIu32 ": expected nodes below %" PRIu32
                           " in ascending order",
                           partial->name, dependency, node);
        before = dependency;
        tu_status status = tu__node_add_dependency(r->graph, node, dependency);
        if (status == TU_UNSUPPORTED) return fail_at(TU_CORRUPT, start, "%s", tu_message());
        TU_TRY(status);
    }
    return TU_OK;
}

static tu_status read_data(reader *r, partial_node *node) {
    if (node->op->code != TU__OP_CONSTANT) return TU_OK;
    const struct tu__constant_attrs *a = &node->attrs.constant_;
    size_t start = r->offset,
           expected = tu_type_bytes((tu_type){.dtype = (tu_dtype)a->dtype, .shape = a->shape});
    uint64_t size;
    TU_TRY(read_number(r, &size, sizeof size, "a constant's size"));
    if (size != expected)
        return fail_at(TU_CORRUPT, start, "constant '%s' has %" PRIu64 " bytes of data: expected %zu",
                       node->name, size, expected);
    node->request.data = read_bytes(r, expected, "a constant's data");
    return node->request.data ? TU_OK : TU_CORRUPT;
}

/* Compares the output types at offset `start` of the file with those of the new node. */
static tu_status compare_outputs(reader *r, size_t start, const tu__node *node) {
    reader second = *r;
    second.offset = start - sizeof(uint32_t);
    uint32_t count;
    TU_TRY(read_number(&second, &count, sizeof count, "a number of outputs"));
    if (count != node->output_count)
        return fail_at(TU_CORRUPT, start, "node '%s' has %" PRIu32 " outputs: expected %" PRIu32, node->name,
                       count, node->output_count);
    for (uint32_t i = 0; i < count; i++) {
        tu_type type;
        TU_TRY(read_type(&second, &type, "an output"));
        if (type.dtype != node->outputs[i].dtype || !tu_shape_equal(type.shape, node->outputs[i].shape))
            return fail_at(TU_CORRUPT, start,
                           "output %" PRIu32 " of '%s' is %s: expected the inferred type %s", i, node->name,
                           tu__type_string(type), tu__type_string(node->outputs[i]));
    }
    return TU_OK;
}

/* Reports the graph's error, if any, as a corrupt file. TU_NO_MEMORY and TU_UNSUPPORTED stay what they are. */
static tu_status check_graph_error(const reader *r, size_t start) {
    tu_status status = tu_graph_status(r->graph);
    if (status == TU_NO_MEMORY || status == TU_OK) return status;
    return fail_at(status == TU_UNSUPPORTED ? status : TU_CORRUPT, start, "%s", tu_message());
}

/* Adds the node in its scope, like a builder: the length of a name within a scope is limited, that of a scope is
 * not. */
static tu_status add_node(reader *r, partial_node *node) {
    const char *slash = strrchr(node->name, '/');
    char *scope = NULL;
    if (slash) {
        size_t length = (size_t)(slash - node->name);
        scope = tu__alloc(length + 1, "a scope's name");
        if (!scope) return TU_NO_MEMORY;
        memcpy(scope, node->name, length);
        node->request.name = slash + 1;
    }
    tu_status status = tu__scope_replace(r->graph, scope ? scope : "", NULL);
    tu__free(scope);
    TU_TRY(status);
    tu__make(r->graph, &node->request);
    return check_graph_error(r, node->offset);
}

static tu_status read_node(reader *r) {
    partial_node node = {.offset = r->offset};
    size_t outputs_at;
    TU_TRY(read_operation(r, &node));
    TU_TRY(read_device(r, &node));
    TU_TRY(read_custom(r, &node));
    TU_TRY(read_attributes(r, &node));
    TU_TRY(read_inputs(r, &node));
    TU_TRY(read_outputs(r, &outputs_at));
    TU_TRY(skip_constraints(r, &node));
    TU_TRY(read_data(r, &node));
    TU_TRY(add_node(r, &node));
    TU_TRY(add_dependencies(r, &node));
    return compare_outputs(r, outputs_at, r->graph->nodes[r->graph->node_count - 1]);
}

/* ---- The graph ---- */

static tu_status read_result(reader *r) {
    size_t start = r->offset;
    const char *name;
    uint32_t source, output;
    TU_TRY(read_name(r, &name, "a result's name"));
    TU_TRY(read_number(r, &source, sizeof source, "a result"));
    TU_TRY(read_number(r, &output, sizeof output, "a result"));
    tu_value value = tu__value(r->graph, source, output);
    if (!tu_ok(value))
        return fail_at(TU_CORRUPT, start,
                       "result '%s' is output %" PRIu32 " of node %" PRIu32 ", which does not exist", name,
                       output, source);
    tu_output(value, name);
    return check_graph_error(r, start);
}

static tu_status read_graph(reader *r) {
    uint32_t nodes, results;
    /* The smallest node: two strings of one character, an empty one, flags and three counts. */
    TU_TRY(read_count(r, &nodes, 2 * 6 + 5 + 4 * 4, "the number of nodes"));
    for (uint32_t i = 0; i < nodes; i++) TU_TRY(read_node(r));
    size_t start = r->offset;
    TU_TRY(read_count(r, &results, 6 + 8, "the number of results"));
    if (results > TU__FILE_MAX_RESULTS)
        return fail_at(TU_CORRUPT, start, "the graph has %" PRIu32 " results: expected at most %d", results,
                       TU__FILE_MAX_RESULTS);
    for (uint32_t i = 0; i < results; i++) TU_TRY(read_result(r));
    if (r->offset != r->end)
        return fail_at(TU_CORRUPT, r->offset, "%zu bytes follow the last result: expected the trailer",
                       r->end - r->offset);
    tu_status status = tu_graph_verify(r->graph);
    return status == TU_OK || status == TU_NO_MEMORY ? status
                                                     : tu_fail(TU_CORRUPT, "graph file: %s", tu_message());
}

tu_status tu__file_check_header(const unsigned char *bytes, uint64_t *size) {
    if (memcmp(bytes, TU__FILE_MAGIC, TU__FILE_AT_VERSION) != 0)
        return fail_at(TU_CORRUPT, 0, "this is not a Tutti graph file: its first bytes differ");
    uint32_t version, flags;
    memcpy(&version, bytes + TU__FILE_AT_VERSION, sizeof version);
    memcpy(&flags, bytes + TU__FILE_AT_FLAGS, sizeof flags);
    memcpy(size, bytes + TU__FILE_AT_SIZE, sizeof *size);
    if (version > TU__FILE_VERSION)
        return fail_at(TU_UNSUPPORTED, TU__FILE_AT_VERSION,
                       "the file has format version %" PRIu32
                       ", but Tutti %s reads versions up to %d: use a newer Tutti",
                       version, tu_version(), TU__FILE_VERSION);
    if (version == 0)
        return fail_at(TU_CORRUPT, TU__FILE_AT_VERSION,
                       "the file has format version 0, which does not exist");
    if (flags & ~(uint32_t)TU__FILE_FLAG_TRAINING)
        return fail_at(TU_UNSUPPORTED, TU__FILE_AT_FLAGS, "unknown flags 0x%" PRIx32, flags);
    if (*size < TU__FILE_SMALLEST)
        return fail_at(TU_CORRUPT, TU__FILE_AT_SIZE,
                       "the header contains a file size of %" PRIu64 " bytes: expected at least %d", *size,
                       TU__FILE_SMALLEST);
    return TU_OK;
}

/* Checks size and SHA-256, to detect truncated and damaged files. */
static tu_status check_integrity(const unsigned char *bytes, size_t size) {
    uint64_t expected = 0;
    if (size < TU__FILE_HEADER)
        return fail_at(TU_CORRUPT, size, "the file ends within its header of %d bytes", TU__FILE_HEADER);
    TU_TRY(tu__file_check_header(bytes, &expected));
    if (size < expected)
        return fail_at(TU_CORRUPT, size, "the file is truncated: it has %zu of %" PRIu64 " bytes", size,
                       expected);
    if (size > expected)
        return fail_at(TU_CORRUPT, (size_t)expected, "%" PRIu64 " bytes follow the end of the file",
                       size - expected);
    unsigned char digest[TU__FILE_TRAILER];
    tu__sha256_of(bytes, size - TU__FILE_TRAILER, digest);
    if (memcmp(digest, bytes + size - TU__FILE_TRAILER, TU__FILE_TRAILER) != 0)
        return fail_at(TU_CORRUPT, size - TU__FILE_TRAILER,
                       "the file is damaged: its SHA-256 does not match its contents");
    return TU_OK;
}

tu_status tu_graph_read(const void *bytes, size_t size, tu_graph **graph) {
    *graph = NULL;
    TU_TRY(check_integrity(bytes, size));
    reader r = {.bytes = bytes, .end = size - TU__FILE_TRAILER, .offset = TU__FILE_HEADER};
    TU_TRY(tu_graph_new(&r.graph));
    tu_status status = read_graph(&r);
    if (status == TU_OK)
        status = tu__scope_replace(r.graph, "", NULL); /* the caller may add nodes, outside of any scope */
    tu__free(r.inputs);
    if (status != TU_OK) {
        tu_graph_free(r.graph);
        return status;
    }
    tu_set_training(r.graph, r.bytes[TU__FILE_AT_FLAGS] & TU__FILE_FLAG_TRAINING);
    *graph = r.graph;
    return TU_OK;
}

/* ---- Reading from disk ---- */

/* Reads until `text` has `size` bytes or the file ends. Memory grows with the bytes read, not with the header's
 * size. */
static tu_status read_up_to(int fd, tu__text *text, uint64_t size) {
    char chunk[65536];
    while (text->length < size) {
        uint64_t left = size - text->length;
        ssize_t got = read(fd, chunk, left < sizeof chunk ? (size_t)left : sizeof chunk);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tu_fail(TU_IO, "%s", strerror(errno));
        tu__text_append(text, chunk, (size_t)got);
        if (text->failed) return TU_NO_MEMORY;
        if (got == 0) break;
    }
    return TU_OK;
}

static tu_status read_file(int fd, tu__text *text) {
    uint64_t size = 0;
    TU_TRY(read_up_to(fd, text, TU__FILE_HEADER));
    if (text->length < TU__FILE_HEADER) return TU_OK;
    TU_TRY(tu__file_check_header((const unsigned char *)text->data, &size));
    if (size < UINT64_MAX) size++; /* read one more byte to detect trailing bytes */
    return read_up_to(fd, text, size);
}

tu_status tu__graph_load_in(const char *folder, const char *name, tu_graph **graph) {
    int fd;
    *graph = NULL;
    TU_TRY(tu__open_file(folder, name, &fd, NULL));
    tu__text text = {0};
    tu_status status = read_file(fd, &text);
    close(fd);
    if (status == TU_OK) status = tu_graph_read(tu__text_string(&text), text.length, graph);
    tu__text_free(&text);
    return status == TU_OK
               ? TU_OK
               : tu_fail(status, "cannot read '%s': %s", tu__file_path(folder, name).text, tu_message());
}

tu_status tu_graph_load(const char *path, tu_graph **graph) {
    return tu__graph_load_in(NULL, path, graph);
}
