/* Writes model files. See model_file.h, and docs/model-file.md for the format.
 *
 * The digests of all tensors are computed before the file is written; the digest of the whole file is computed while it
 * is written (tu__safetensors_save_sealed). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/sha256.h"
#include "infer/model_parts.h"

typedef struct writer {
    const tu__model_file *file;
    tu__arena arena; /* names, texts */
    void *graph;     /* bytes of the graph file */
    tu__named_tensor *tensors;
    tu__metadata *metadata;
    size_t tensor_count, metadata_count;
} writer;

/* ---- Checks ---- */

static tu_status check_list(const char *kind, size_t port_count, const tu__graph_port *ports,
                            int64_t golden_count, size_t count, const tu__named_tensor *tensors) {
    if (count != port_count)
        return tu_fail(TU_INVALID, "it has %zu tensors of kind '%s': its graph expects %zu", count, kind,
                       port_count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, ports[i].name) != 0)
            return tu_fail(TU_INVALID, "%s %zu is called '%s': its graph expects '%s'", kind, i,
                           tensors[i].name, ports[i].name);
        TU_TRY(tu__model_check_tensor(kind, &ports[i], golden_count, &tensors[i]));
    }
    return TU_OK;
}

static tu_status check_parts(writer *w) {
    const tu__model_file *f = w->file;
    tu__graph_ports ports;
    TU_TRY(tu__graph_ports_of(f->graph, &w->arena, &ports));
    if (f->golden_count < 1 || f->golden_count > TU__MODEL_MAX_GOLDEN)
        return tu_fail(TU_INVALID, "it has %" PRId64 " golden samples: expected 1 to %d", f->golden_count,
                       TU__MODEL_MAX_GOLDEN);
    TU_TRY(check_list("variable", ports.variable_count, ports.variables, 0, f->variable_count, f->variables));
    TU_TRY(check_list("golden input", ports.input_count, ports.inputs, f->golden_count, f->input_count,
                      f->golden_inputs));
    TU_TRY(check_list("golden output", ports.output_count, ports.outputs, f->golden_count, f->output_count,
                      f->golden_outputs));
    return tu__model_check_texts(&ports, f);
}

/* ---- Tensors ---- */

static tu_status add_tensors(writer *w, const char *prefix, size_t count, const tu__named_tensor *tensors) {
    for (size_t i = 0; i < count; i++) {
        char *name = tu__arena_alloc(&w->arena, strlen(prefix) + strlen(tensors[i].name) + 1);
        if (!name) return TU_NO_MEMORY;
        strcpy(name, prefix);          // NOLINT(clang-analyzer-security.insecureAPI.strcpy): measured above
        strcat(name, tensors[i].name); // NOLINT(clang-analyzer-security.insecureAPI.strcpy): measured above
        w->tensors[w->tensor_count] = tensors[i];
        w->tensors[w->tensor_count++].name = name;
    }
    return TU_OK;
}

static tu_status collect_tensors(writer *w) {
    const tu__model_file *f = w->file;
    size_t size;
    TU_TRY(tu_graph_write(f->graph, &w->graph, &size));
    w->tensors = tu__arena_alloc(&w->arena, (f->variable_count + f->input_count + f->output_count + 1) *
                                                sizeof *w->tensors);
    if (!w->tensors) return TU_NO_MEMORY;
    TU_TRY(add_tensors(w, "", f->variable_count, f->variables));
    TU_TRY(add_tensors(w, TU__MODEL_GOLDEN_INPUT, f->input_count, f->golden_inputs));
    TU_TRY(add_tensors(w, TU__MODEL_GOLDEN_OUTPUT, f->output_count, f->golden_outputs));
    const tu__named_tensor graph = {TU__MODEL_GRAPH, {TU_U8, TU_SHAPE((int64_t)size)}, w->graph};
    return add_tensors(w, "", 1, &graph);
}

/* ---- Metadata ---- */

/* Finishes a JSON text and adds it. */
static tu_status add_json(writer *w, const char *key, const tu_json *json, tu__text *text) {
    bool complete = tu_json_finish(json) && !text->failed;
    const char *value = complete ? tu__arena_string(&w->arena, tu__text_string(text)) : NULL;
    tu__text_free(text);
    if (!value) return TU_NO_MEMORY;
    w->metadata[w->metadata_count++] = (tu__metadata){key, value};
    return TU_OK;
}

static tu_status add_digests(writer *w) {
    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    tu_json_begin_object(&json, NULL);
    for (size_t i = 0; i < w->tensor_count; i++) {
        unsigned char digest[TU__SHA256_BYTES];
        char hex[TU__SHA256_HEX];
        tu__sha256_of(w->tensors[i].data, tu_type_bytes(w->tensors[i].type), digest);
        tu__sha256_hex(digest, hex);
        tu_json_string(&json, w->tensors[i].name, hex);
    }
    tu_json_end_object(&json);
    return add_json(w, TU__MODEL_DIGESTS, &json, &text);
}

static tu_status add_labels(writer *w) {
    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    tu_json_begin_array(&json, NULL);
    for (size_t i = 0; i < w->file->label_count; i++) tu_json_string(&json, NULL, w->file->labels[i]);
    tu_json_end_array(&json);
    return add_json(w, TU__MODEL_LABELS, &json, &text);
}

static tu_status add_bounds(writer *w) {
    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    tu_json_begin_array(&json, NULL);
    for (size_t i = 0; i < w->file->bound_count; i++) {
        const tu__model_bound *bound = &w->file->bounds[i];
        tu_json_begin_object(&json, NULL);
        tu_json_string(&json, "output", bound->output);
        tu_json_string(&json, "precision", bound->precision);
        tu_json_f64(&json, bound->relative ? "relative" : "absolute", bound->limit);
        tu_json_end_object(&json);
    }
    tu_json_end_array(&json);
    return add_json(w, TU__MODEL_BOUNDS, &json, &text);
}

static tu_status collect_metadata(writer *w) {
    enum { OWN = 4 };
    const tu__model_file *f = w->file;
    w->metadata = tu__arena_alloc(&w->arena, (f->metadata_count + OWN) * sizeof *w->metadata);
    if (!w->metadata) return TU_NO_MEMORY;
    char version[16];
    snprintf(version, sizeof version, "%d", TU__MODEL_VERSION);
    const char *text = tu__arena_string(&w->arena, version);
    if (!text) return TU_NO_MEMORY;
    w->metadata[w->metadata_count++] = (tu__metadata){TU__MODEL_FORMAT, text};
    for (size_t i = 0; i < f->metadata_count; i++) w->metadata[w->metadata_count++] = f->metadata[i];
    TU_TRY(add_labels(w));
    TU_TRY(add_bounds(w));
    return add_digests(w);
}

tu_status tu__model_file_save(const char *path, const tu__model_file *file) {
    writer w = {.file = file, .arena = {.purpose = "a model file"}};
    tu_status status = check_parts(&w);
    if (status == TU_INVALID) tu_fail(status, "cannot save '%s' as a model file: %s", path, tu_message());
    if (status == TU_OK) status = collect_tensors(&w);
    if (status == TU_OK) status = collect_metadata(&w);
    if (status == TU_OK)
        status = tu__safetensors_save_sealed(path, w.tensor_count, w.tensors, w.metadata_count, w.metadata,
                                             TU__MODEL_SEAL);
    tu_bytes_free(w.graph);
    tu__arena_free(&w.arena);
    return status;
}
