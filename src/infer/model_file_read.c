/* Reads model files. See model_file.h, and docs/model-file.md for the format.
 *
 * A file may come from anywhere. First the structure of a safetensors file is checked, then the digest of all bytes, so
 * that damage is noticed before anything is used; the digests of the tensors serve to say what is damaged. An intact
 * file may still be hostile: the graph is created by its own reader, which checks every node, and each tensor is compared
 * with what the graph expects. */
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_read.h"
#include "base/map_file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "infer/model_parts.h"
#include "io/safetensors_types.h"

/* A model of a thousand layers needs a few hundred kilobytes. The limit bounds the memory for the header of a hostile
 * file, which takes many times its size once it is parsed. */
enum { MAX_HEADER = 16 << 20 };

typedef struct contents {
    tu__arena arena;
    const char *name; /* of the file, for messages */
    tu__mapped_file mapping;
    tu__safetensors tensors;
    const tu__named_tensor **sorted; /* all tensors, by name */
    size_t digest_count;
    tu__metadata *digests;              /* of the tensors, by name */
    const tu__named_tensor **variables; /* by name */
    char digest[TU__SHA256_HEX];
} contents;

static tu_status fail_not_model(const contents *c, const char *reason) {
    return tu_fail(TU_CORRUPT, "'%s' is not a model file: %s; 'tutti export' writes model files", c->name,
                   reason);
}

/* `tensor` is the damaged one; NULL: it is none of those with a digest. */
static tu_status fail_damaged(const contents *c, const char *tensor) {
    if (tensor)
        return tu_fail(TU_CORRUPT, "model file '%s' is damaged: tensor '%s' does not match its digest",
                       c->name, tensor);
    return tu_fail(TU_CORRUPT, "model file '%s' is damaged: its header or its last tensor has changed",
                   c->name);
}

/* Fails with this thread's message as the reason, if there is a failure other than of memory. */
static tu_status name_file(const contents *c, tu_status status) {
    if (status == TU_OK || status == TU_NO_MEMORY) return status;
    if (status == TU_INVALID) status = TU_CORRUPT;
    return tu_fail(status, "model file '%s' is not valid: %s", c->name, tu_message());
}

/* ---- Tensors by name ---- */

static int compare_tensors(const void *left, const void *right) {
    const tu__named_tensor *a = *(const tu__named_tensor *const *)left,
                           *b = *(const tu__named_tensor *const *)right;
    return strcmp(a->name, b->name);
}

static const tu__named_tensor **sort_tensors(contents *c, size_t count, const tu__named_tensor *tensors) {
    const tu__named_tensor **sorted = tu__arena_alloc(&c->arena, (count + 1) * sizeof *sorted);
    if (!sorted) return NULL;
    for (size_t i = 0; i < count; i++) sorted[i] = &tensors[i];
    qsort(sorted, count, sizeof *sorted, compare_tensors);
    return sorted;
}

static const tu__named_tensor *find_sorted(const tu__named_tensor *const *sorted, size_t count,
                                           const char *name) {
    const tu__named_tensor key = {.name = name}, *pointer = &key;
    const tu__named_tensor *const *found = bsearch(&pointer, sorted, count, sizeof *sorted, compare_tensors);
    return found ? *found : NULL;
}

/* ---- Digests ---- */

static int compare_digests(const void *left, const void *right) {
    return strcmp(((const tu__metadata *)left)->key, ((const tu__metadata *)right)->key);
}

/* Parses a JSON text of the metadata. `kind` is the expected kind of value. */
static tu_status parse_text(contents *c, const char *key, tu__json_kind kind, const tu__json_value **value) {
    const char *text = tu__safetensors_metadata(&c->tensors, key);
    if (!text) {
        tu_fail(TU_CORRUPT, "its metadata has no '%s'", key);
        return TU_CORRUPT;
    }
    TU_TRY(tu__json_parse(&c->arena, key, text, strlen(text), value));
    if ((*value)->kind == kind) return TU_OK;
    return tu_fail(TU_CORRUPT, "'%s' is not a JSON %s", key, kind == TU__JSON_OBJECT ? "object" : "array");
}

/* Reads the digests of the tensors. There must be one for each tensor except the last. */
static tu_status read_digests(contents *c) {
    const tu__json_value *object = NULL;
    TU_TRY(parse_text(c, TU__MODEL_DIGESTS, TU__JSON_OBJECT, &object));
    c->digest_count = object->count;
    c->digests = tu__arena_alloc(&c->arena, (object->count + 1) * sizeof *c->digests);
    if (!c->digests) return TU_NO_MEMORY;
    for (size_t i = 0; i < object->count; i++) {
        const tu__json_value *value = &object->values[i];
        if (value->kind != TU__JSON_STRING || strlen(value->string) != TU__SHA256_HEX - 1)
            return tu_fail(TU_CORRUPT, "the digest of tensor '%s' is not a SHA-256", object->keys[i]);
        c->digests[i] = (tu__metadata){object->keys[i], value->string};
    }
    qsort(c->digests, c->digest_count, sizeof *c->digests, compare_digests);
    size_t used = 0;
    for (size_t i = 0; i < c->tensors.tensor_count; i++) {
        const char *name = c->sorted[i]->name;
        if (strcmp(name, TU__MODEL_SEAL) == 0) continue;
        if (used == c->digest_count || strcmp(c->digests[used].key, name) != 0)
            return tu_fail(TU_CORRUPT, "tensor '%s' has no digest", name);
        used++;
    }
    if (used == c->digest_count) return TU_OK;
    return tu_fail(TU_CORRUPT, "there is a digest of tensor '%s', which does not exist",
                   c->digests[used].key);
}

/* Returns the name of a tensor whose data do not match the digest; NULL if there is none. */
static const char *find_damaged(const contents *c) {
    for (size_t i = 0, used = 0; i < c->tensors.tensor_count; i++) {
        const tu__named_tensor *tensor = c->sorted[i];
        if (strcmp(tensor->name, TU__MODEL_SEAL) == 0) continue;
        unsigned char digest[TU__SHA256_BYTES];
        char hex[TU__SHA256_HEX];
        tu__sha256_of(tensor->data, tu_type_bytes(tensor->type), digest);
        tu__sha256_hex(digest, hex);
        if (strcmp(hex, c->digests[used++].value) != 0) return tensor->name;
    }
    return NULL;
}

/* Compares the digest of the file with its last tensor. */
static tu_status check_digest(contents *c, const unsigned char *bytes) {
    const tu__safetensors *t = &c->tensors;
    const tu__named_tensor *seal = t->tensor_count ? &t->tensors[t->tensor_count - 1] : NULL;
    if (!seal || strcmp(seal->name, TU__MODEL_SEAL) != 0 || seal->type.dtype != TU_U8 ||
        !tu_shape_equal(seal->type.shape, TU_SHAPE(TU__SHA256_BYTES)))
        return fail_not_model(c, "its last tensor is not '" TU__MODEL_SEAL "', u8[32]");
    c->sorted = sort_tensors(c, t->tensor_count, t->tensors);
    if (!c->sorted) return TU_NO_MEMORY;
    unsigned char digest[TU__SHA256_BYTES];
    tu__sha256_of(bytes, (size_t)((const unsigned char *)seal->data - bytes), digest);
    tu__sha256_hex(digest, c->digest);
    tu_status status = read_digests(c);
    if (memcmp(digest, seal->data, sizeof digest) == 0) return name_file(c, status);
    if (status == TU_NO_MEMORY) return status;
    return fail_damaged(c, status == TU_OK ? find_damaged(c) : NULL);
}

/* ---- Format and texts ---- */

static tu_status check_format(const contents *c) {
    const char *format = tu__safetensors_metadata(&c->tensors, TU__MODEL_FORMAT);
    if (!format) return tu_fail(TU_CORRUPT, "its metadata has no '" TU__MODEL_FORMAT "'");
    if (strcmp(format, "1") == 0) return TU_OK;
    return tu_fail(TU_UNSUPPORTED,
                   "it has format version '%.20s', but Tutti %s reads version %d: use a newer Tutti", format,
                   tu_version(), TU__MODEL_VERSION);
}

static bool is_own_key(const char *key) {
    return strcmp(key, TU__MODEL_FORMAT) == 0 || strcmp(key, TU__MODEL_DIGESTS) == 0 ||
           strcmp(key, TU__MODEL_LABELS) == 0 || strcmp(key, TU__MODEL_BOUNDS) == 0;
}

/* Keeps the texts about the model; those of the file itself are not listed. */
static tu_status read_metadata(contents *c, tu__model_file *file) {
    const tu__safetensors *t = &c->tensors;
    tu__metadata *list = tu__arena_alloc(&c->arena, (t->metadata_count + 1) * sizeof *list);
    if (!list) return TU_NO_MEMORY;
    file->metadata = list;
    for (size_t i = 0; i < t->metadata_count; i++)
        if (!is_own_key(t->metadata[i].key)) list[file->metadata_count++] = t->metadata[i];
    return TU_OK;
}

static tu_status read_labels(contents *c, tu__model_file *file) {
    const tu__json_value *array = NULL;
    TU_TRY(parse_text(c, TU__MODEL_LABELS, TU__JSON_ARRAY, &array));
    const char **labels = tu__arena_alloc(&c->arena, (array->count + 1) * sizeof *labels);
    if (!labels) return TU_NO_MEMORY;
    for (size_t i = 0; i < array->count; i++) {
        if (array->values[i].kind != TU__JSON_STRING)
            return tu_fail(TU_CORRUPT, "label %zu is not a string", i);
        labels[i] = array->values[i].string;
    }
    file->labels = labels;
    file->label_count = array->count;
    return TU_OK;
}

static tu_status read_bound(const tu__json_value *entry, tu__model_bound *bound) {
    const tu__json_value *output = tu__json_member(entry, "output"),
                         *precision = tu__json_member(entry, "precision"),
                         *absolute = tu__json_member(entry, "absolute"),
                         *relative = tu__json_member(entry, "relative"),
                         *limit = relative ? relative : absolute;
    if (entry->count != 3 || !output || output->kind != TU__JSON_STRING || !precision ||
        precision->kind != TU__JSON_STRING || !limit || limit->kind != TU__JSON_NUMBER)
        return tu_fail(
            TU_CORRUPT,
            "'" TU__MODEL_BOUNDS
            "' has an entry that is not {\"output\", \"precision\", \"absolute\" or \"relative\"}");
    *bound = (tu__model_bound){output->string, precision->string, limit->number, relative != NULL};
    return TU_OK;
}

static tu_status read_bounds(contents *c, tu__model_file *file) {
    const tu__json_value *array = NULL;
    TU_TRY(parse_text(c, TU__MODEL_BOUNDS, TU__JSON_ARRAY, &array));
    tu__model_bound *bounds = tu__arena_alloc(&c->arena, (array->count + 1) * sizeof *bounds);
    if (!bounds) return TU_NO_MEMORY;
    for (size_t i = 0; i < array->count; i++) TU_TRY(read_bound(&array->values[i], &bounds[i]));
    file->bounds = bounds;
    file->bound_count = array->count;
    return TU_OK;
}

/* ---- Graph and tensors ---- */

static const tu__named_tensor *find_tensor(const contents *c, const char *name) {
    return find_sorted(c->sorted, c->tensors.tensor_count, name);
}

static tu_status read_graph(const contents *c, tu_graph **graph) {
    const tu__named_tensor *tensor = find_tensor(c, TU__MODEL_GRAPH);
    if (!tensor || tensor->type.dtype != TU_U8 || tensor->type.shape.rank != 1)
        return tu_fail(TU_CORRUPT, "it has no tensor '" TU__MODEL_GRAPH "' with bytes");
    return tu_graph_read(tensor->data, tu_type_bytes(tensor->type), graph);
}

/* Finds the tensor "prefix + name"; NULL if there is none or, with the message set, memory ran out. */
static tu_status find_prefixed(const contents *c, const char *prefix, const char *name,
                               const tu__named_tensor **tensor) {
    tu__text text = {0};
    tu__text_printf(&text, "%s%s", prefix, name);
    tu_status status = text.failed ? TU_NO_MEMORY : TU_OK;
    *tensor = text.failed ? NULL : find_tensor(c, tu__text_string(&text));
    tu__text_free(&text);
    return status;
}

static tu_status find_port(const contents *c, const char *kind, const char *prefix, int64_t golden_count,
                           const tu__graph_port *port, tu__named_tensor *result) {
    const tu__named_tensor *tensor = NULL;
    TU_TRY(find_prefixed(c, prefix, port->name, &tensor));
    if (!tensor) return tu_fail(TU_CORRUPT, "it has no %s '%s', which its graph needs", kind, port->name);
    if ((uintptr_t)tensor->data % tu_dtype_size(tensor->type.dtype) != 0)
        return tu_fail(TU_CORRUPT, "tensor '%s' is not aligned for its type", tensor->name);
    TU_TRY(tu__model_check_tensor(kind, port, golden_count, tensor));
    *result = (tu__named_tensor){port->name, tensor->type, tensor->data};
    return TU_OK;
}

/* Finds the tensors "prefix + name" of `count` ports, and adds them under their names without the prefix. */
static tu_status find_ports(contents *c, const char *kind, const char *prefix, int64_t golden_count,
                            size_t count, const tu__graph_port *ports, const tu__named_tensor **result) {
    tu__named_tensor *list = tu__arena_alloc(&c->arena, (count + 1) * sizeof *list);
    if (!list) return TU_NO_MEMORY;
    *result = list;
    for (size_t i = 0; i < count; i++) TU_TRY(find_port(c, kind, prefix, golden_count, &ports[i], &list[i]));
    return TU_OK;
}

/* Sets the number of golden samples: the first dimension of the first golden input, with which find_port compares those of
 * all others. */
static tu_status count_golden(const contents *c, const tu__graph_ports *ports, int64_t *count) {
    const tu__named_tensor *tensor = NULL;
    TU_TRY(find_prefixed(c, TU__MODEL_GOLDEN_INPUT, ports->inputs[0].name, &tensor));
    *count = tensor && tensor->type.shape.rank > 0 ? tensor->type.shape.dim[0] : 1;
    if (*count <= TU__MODEL_MAX_GOLDEN) return TU_OK;
    return tu_fail(TU_CORRUPT, "it has %" PRId64 " golden samples: expected at most %d", *count,
                   TU__MODEL_MAX_GOLDEN);
}

/* Fails if there are tensors that the graph does not need. Names are unique, so counting them is enough to know. */
static tu_status check_unused(const contents *c, const tu__graph_ports *p) {
    const tu__safetensors *t = &c->tensors;
    if (t->unsupported_count)
        return tu_fail(TU_CORRUPT, "tensor '%s' %s", t->unsupported[0].name, t->unsupported[0].reason);
    size_t expected = p->variable_count + p->input_count + p->output_count + 1, found = t->tensor_count - 1;
    if (found == expected) return TU_OK;
    return tu_fail(TU_CORRUPT,
                   "it has %zu tensors of variables, golden samples and graph: its graph needs %zu", found,
                   expected);
}

static tu_status read_tensors(contents *c, const tu__graph_ports *p, tu__model_file *file) {
    TU_TRY(count_golden(c, p, &file->golden_count));
    TU_TRY(find_ports(c, "variable", "", 0, p->variable_count, p->variables, &file->variables));
    TU_TRY(find_ports(c, "golden input", TU__MODEL_GOLDEN_INPUT, file->golden_count, p->input_count,
                      p->inputs, &file->golden_inputs));
    TU_TRY(find_ports(c, "golden output", TU__MODEL_GOLDEN_OUTPUT, file->golden_count, p->output_count,
                      p->outputs, &file->golden_outputs));
    file->variable_count = p->variable_count;
    file->input_count = p->input_count;
    file->output_count = p->output_count;
    c->variables = sort_tensors(c, p->variable_count, file->variables);
    if (!c->variables) return TU_NO_MEMORY;
    return check_unused(c, p);
}

/* Copies the names of ports to the arena, since the caller may free the graph before the file is closed. */
static tu_status keep_names(contents *c, size_t count, tu__graph_port *ports) {
    for (size_t i = 0; i < count; i++) {
        ports[i].name = tu__arena_string(&c->arena, ports[i].name);
        if (!ports[i].name) return TU_NO_MEMORY;
    }
    return TU_OK;
}

static tu_status read_parts(contents *c, tu__model_file *file) {
    tu__graph_ports ports;
    TU_TRY(check_format(c));
    TU_TRY(read_graph(c, &file->graph));
    TU_TRY(tu__graph_ports_of(file->graph, &c->arena, &ports));
    TU_TRY(keep_names(c, ports.variable_count, ports.variables));
    TU_TRY(keep_names(c, ports.input_count, ports.inputs));
    TU_TRY(keep_names(c, ports.output_count, ports.outputs));
    TU_TRY(read_tensors(c, &ports, file));
    TU_TRY(read_labels(c, file));
    TU_TRY(read_bounds(c, file));
    TU_TRY(read_metadata(c, file));
    return tu__model_check_texts(&ports, file);
}

/* ---- The file ---- */

static tu_status check_header(const contents *c, const unsigned char *bytes, size_t size) {
    uint64_t length = 0;
    for (size_t i = TU__SAFETENSORS_PREFIX_BYTES; size >= TU__SAFETENSORS_PREFIX_BYTES && i-- > 0;)
        length = length << 8 | bytes[i];
    if (length <= MAX_HEADER) return TU_OK;
    return tu_fail(TU_CORRUPT,
                   "'%s' is not a model file: its header has %" PRIu64
                   " bytes, expected at most %d; 'tutti export' writes model files",
                   c->name, length, MAX_HEADER);
}

static tu_status read_file(contents *c, const unsigned char *bytes, size_t size, tu__model_file *file) {
    TU_TRY(check_header(c, bytes, size));
    tu_status status = tu__safetensors_parse(c->name, bytes, size, &c->tensors);
    if (status == TU_CORRUPT) return tu_fail(status, "%s: copy or export it again", tu_message());
    TU_TRY(status);
    TU_TRY(check_digest(c, bytes));
    file->bytes = size;
    file->digest = c->digest;
    return name_file(c, read_parts(c, file));
}

static tu_status new_contents(const char *name, tu__model_file *file, contents **c) {
    *file = (tu__model_file){0};
    *c = tu__alloc(sizeof **c, "a model file");
    if (!*c) return TU_NO_MEMORY;
    file->contents = *c;
    (*c)->arena.purpose = "a model file";
    (*c)->name = tu__arena_string(&(*c)->arena, name);
    return (*c)->name ? TU_OK : TU_NO_MEMORY;
}

tu_status tu__model_file_parse(const char *name, const void *bytes, size_t size, tu__model_file *file) {
    contents *c;
    tu_status status = new_contents(name, file, &c);
    if (status == TU_OK) status = read_file(c, bytes, size, file);
    if (status != TU_OK) tu__model_file_close(file);
    return status;
}

tu_status tu__model_file_open(const char *path, tu__model_file *file) {
    contents *c;
    tu_status status = new_contents(path, file, &c);
    if (status == TU_OK) status = tu__map_file(path, &c->mapping);
    if (status == TU_OK)
        status = read_file(c, c->mapping.bytes ? c->mapping.bytes : (const void *)"", c->mapping.size, file);
    if (status != TU_OK) tu__model_file_close(file);
    return status;
}

void tu__model_file_close(tu__model_file *file) {
    contents *c = file->contents;
    tu_graph_free(file->graph);
    *file = (tu__model_file){0};
    if (!c) return;
    tu__safetensors_close(&c->tensors);
    tu__unmap_file(&c->mapping);
    tu__arena_free(&c->arena);
    tu__free(c);
}

const char *tu__model_file_text(const tu__model_file *file, const char *key) {
    for (size_t i = 0; i < file->metadata_count; i++)
        if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
    return NULL;
}

const tu__named_tensor *tu__model_file_variable(const tu__model_file *file, const char *name) {
    const contents *c = file->contents;
    return find_sorted(c->variables, file->variable_count, name);
}

const tu__model_bound *tu__model_file_bound(const tu__model_file *file, const char *output,
                                            const char *precision) {
    for (size_t i = 0; i < file->bound_count; i++)
        if (strcmp(file->bounds[i].output, output) == 0 && strcmp(file->bounds[i].precision, precision) == 0)
            return &file->bounds[i];
    return NULL;
}

tu_status tu__model_file_intact(const tu__model_file *file) {
    const contents *c = file->contents;
    return tu__check_mapping(&c->mapping, c->name);
}

tu_status tu__model_file_check_digests(const tu__model_file *file) {
    const contents *c = file->contents;
    const char *damaged = find_damaged(c);
    return damaged ? fail_damaged(c, damaged) : TU_OK;
}
