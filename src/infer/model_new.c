/* Makes a model: freezes its graph, compiles a program for each batch size, and allocates everything that runs need. */
#include <string.h>

#include "base/alloc.h"
#include "infer/freeze.h"
#include "infer/model.h"
#include "infer/rebatch.h"
#include "pass/pass.h"

enum { DEFAULT_MAX_BATCH = 32, MAX_SESSIONS = 1024 };

static tu_status check_options(const tu_model_options *o) {
    int64_t limit = INT64_C(1) << (TU__MODEL_MAX_SIZES - 1);
    if (o->max_batch < 0 || o->max_batch > limit)
        return tu_fail(TU_INVALID, "max_batch is %lld: expected 1 to %lld, or 0 for the default",
                       (long long)o->max_batch, (long long)limit);
    if (o->sessions < 0 || o->sessions > MAX_SESSIONS)
        return tu_fail(TU_INVALID, "sessions is %d: expected 1 to %d, or 0 for the default", o->sessions,
                       MAX_SESSIONS);
    return TU_OK;
}

/* ---- The device ---- */

/* Returns the first accelerator that can be used, or the CPU. */
static void find_device(char *name, size_t size) {
    strncpy(name, "cpu:0", size);
    for (size_t i = 0; i < tu_device_count(); i++) {
        tu_device_info info = TU_SIZED(tu_device_info);
        if (tu_device(i, &info) != TU_OK || !info.accelerator || info.unusable || strlen(info.name) >= size)
            continue;
        strncpy(name, info.name, size);
        return;
    }
}

static tu_status set_device(tu_model *m, const tu_model_options *o) {
    if (!o->devices) {
        find_device(m->device, sizeof m->device);
        return TU_OK;
    }
    if (strchr(o->devices, ',') || strlen(o->devices) >= sizeof m->device)
        return tu_fail(TU_INVALID, "devices is '%.80s': a model runs on one device, for example cpu:0",
                       o->devices);
    strncpy(m->device, o->devices, sizeof m->device);
    return TU_OK;
}

/* ---- Inputs and outputs ---- */

static tu_status add_port(tu_model *m, tu__model_port *ports, size_t *count, const char *kind,
                          const char *name, tu_type type) {
    if (*count == TU__MODEL_MAX_PORTS)
        return tu_fail(TU_UNSUPPORTED, "the model has more than %d %s", TU__MODEL_MAX_PORTS, kind);
    tu__model_port *port = &ports[*count];
    port->name = tu__arena_string(&m->arena, name);
    if (!port->name) return TU_NO_MEMORY;
    port->row = (tu_type){type.dtype, tu_shape_of((size_t)(type.shape.rank - 1), type.shape.dim + 1)};
    port->row_bytes = tu_type_bytes(port->row);
    ++*count;
    return TU_OK;
}

/* `graph` has a batch size of 1. */
static tu_status find_ports(tu_model *m, const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        if (node->op->code != TU__OP_INPUT) continue;
        if (!tu__attrs(node, input)->batched)
            return tu_fail(TU_UNSUPPORTED,
                           "input '%s' of the model has no axis of samples: expected batch inputs",
                           node->name);
        TU_TRY(add_port(m, m->inputs, &m->input_count, "inputs", node->name, node->outputs[0]));
    }
    for (uint32_t i = 0; i < graph->result_count; i++)
        TU_TRY(add_port(m, m->outputs, &m->output_count, "outputs", graph->results[i].name,
                        tu_edge_type(graph, graph->results[i].value)));
    if (m->input_count && m->output_count) return TU_OK;
    return tu_fail(TU_UNSUPPORTED,
                   "the graph has %zu inputs and %zu named results: expected at least one of each",
                   m->input_count, m->output_count);
}

/* ---- Programs ---- */

static tu_status compile_size(tu_model *m, tu__model_size *size, const tu_model_options *o) {
    tu_value fetch[TU__MODEL_MAX_PORTS];
    for (size_t i = 0; i < m->input_count; i++) {
        const tu__node *node = tu__find_node(size->graph, m->inputs[i].name);
        size->inputs[i] = tu__value(size->graph, node->id, 0);
    }
    for (size_t i = 0; i < m->output_count; i++) fetch[i] = tu_find_output(size->graph, m->outputs[i].name);
    bool is_tf32 = o->precision && strcmp(o->precision, "tf32") == 0;
    return tu_compile(size->graph, &size->program, .devices = m->device, .threads = o->threads,
                      .memory_limit = o->memory_limit, .precision = is_tf32 ? "tf32" : NULL, .fetch = fetch,
                      .fetch_count = m->output_count);
}

/* Makes the programs, from the largest batch size to 1. `frozen` has any batch size. */
static tu_status make_sizes(tu_model *m, const tu_graph *frozen, const tu_model_options *o) {
    int64_t max_batch = o->max_batch ? o->max_batch : DEFAULT_MAX_BATCH, batch = 1;
    while (2 * batch <= max_batch) batch *= 2;
    for (; batch >= 1; batch /= 2) {
        tu__model_size *size = &m->sizes[m->size_count++];
        size->batch = batch;
        TU_TRY(tu__rebatch(frozen, batch, &size->graph));
    }
    TU_TRY(find_ports(m, m->sizes[m->size_count - 1].graph));
    for (size_t i = 0; i < m->size_count; i++) TU_TRY(compile_size(m, &m->sizes[i], o));
    return TU_OK;
}

/* Warms up all programs twice: a program that enlarges the scratch memory moves that of those before it. */
static tu_status make_sessions(tu_model *m, const tu_model_options *o) {
    size_t count = o->sessions ? (size_t)o->sessions : 1;
    m->sessions = tu__alloc_array(count, sizeof(tu_session *), "the sessions of a model");
    m->free_sessions = tu__alloc_array(count, sizeof(tu_session *), "the sessions of a model");
    if (!m->sessions || !m->free_sessions) return TU_NO_MEMORY;
    for (size_t s = 0; s < count; s++) {
        TU_TRY(tu_session_new(NULL, &m->sessions[s]));
        m->session_count++;
        for (int round = 0; round < 2; round++)
            for (size_t i = 0; i < m->size_count; i++)
                TU_TRY(tu_session_warm_up(m->sessions[s], m->sizes[i].program));
        m->free_sessions[m->free_count++] = m->sessions[s];
    }
    return TU_OK;
}

/* ---- The model ---- */

static tu_status freeze(const tu_graph *graph, size_t count, const tu__named_tensor *variables,
                        const char *precision, tu_graph **frozen) {
    tu__precision parsed;
    TU_TRY(tu__precision_parse(precision, &parsed));
    bool is_as_built = parsed == TU__PRECISION_TF32 || (precision && strcmp(precision, "f32") == 0);
    return tu__freeze(graph, count, variables, is_as_built ? TU__PRECISION_AS_BUILT : parsed, frozen);
}

static tu_status fill_model(tu_model *m, const tu_graph *graph, size_t count,
                            const tu__named_tensor *variables, const tu_model_options *o) {
    tu_graph *frozen;
    TU_TRY(set_device(m, o));
    TU_TRY(freeze(graph, count, variables, o->precision, &frozen));
    tu_status status = make_sizes(m, frozen, o);
    tu_graph_free(frozen);
    return status == TU_OK ? make_sessions(m, o) : status;
}

static tu_status make_model(const tu_graph *graph, size_t count, const tu__named_tensor *variables,
                            const tu_model_options *o, tu_model **model) {
    TU_TRY(check_options(o));
    tu_model *m = tu__alloc(sizeof *m, "a model");
    if (!m) return TU_NO_MEMORY;
    m->arena.purpose = "a model";
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->freed, NULL);
    tu_status status = fill_model(m, graph, count, variables, o);
    if (status == TU_OK)
        *model = m;
    else
        tu_model_free(m);
    return status;
}

void tu_model_free(tu_model *m) {
    if (!m) return;
    for (size_t i = 0; i < m->session_count; i++) tu_session_free(m->sessions[i]);
    for (size_t i = 0; i < m->size_count; i++) {
        tu_program_free(m->sizes[i].program);
        tu_graph_free(m->sizes[i].graph);
    }
    pthread_mutex_destroy(&m->lock);
    pthread_cond_destroy(&m->freed);
    tu__free(m->sessions);
    tu__free(m->free_sessions);
    tu__arena_free(&m->arena);
    tu__free(m);
}

/* ---- From a file ---- */

static tu_status copy_texts(tu_model *m, const tu__model_file *file) {
    m->labels = tu__arena_alloc(&m->arena, (file->label_count + 1) * sizeof(char *));
    m->texts = tu__arena_alloc(&m->arena, (file->metadata_count + 1) * sizeof *m->texts);
    if (!m->labels || !m->texts) return TU_NO_MEMORY;
    for (size_t i = 0; i < file->label_count; i++)
        if (!(m->labels[m->label_count++] = tu__arena_string(&m->arena, file->labels[i])))
            return TU_NO_MEMORY;
    for (size_t i = 0; i < file->metadata_count; i++) {
        tu__metadata *text = &m->texts[m->text_count++];
        text->key = tu__arena_string(&m->arena, file->metadata[i].key);
        text->value = tu__arena_string(&m->arena, file->metadata[i].value);
        if (!text->key || !text->value) return TU_NO_MEMORY;
    }
    return TU_OK;
}

tu_status tu__model_from_file(const tu__model_file *file, const tu_model_options *options, tu_model **model) {
    TU_TRY(make_model(file->graph, file->variable_count, file->variables, options, model));
    tu_status status = copy_texts(*model, file);
    if (status == TU_OK) status = tu__model_file_intact(file);
    if (status == TU_OK) return TU_OK;
    tu_model_free(*model);
    *model = NULL;
    return status;
}

tu_status tu_model_load_with(const char *path, tu_model **model, const tu_model_options *options) {
    TU__OPTIONS(tu_model_options, o, options);
    tu__model_file file;
    *model = NULL;
    TU_TRY(check_options(&o));
    TU_TRY(tu__model_file_open(path, &file));
    tu_status status = tu__model_from_file(&file, &o, model);
    tu__model_file_close(&file);
    return status == TU_OK ? TU_OK : tu_fail(status, "%s: %s", path, tu_message());
}

/* ---- From a state ---- */

static tu_status copy_variables(const tu_state *state, tu__arena *arena, tu__named_tensor *variables) {
    for (size_t i = 0; i < tu_state_variable_count(state); i++) {
        TU_TRY(tu_state_variable(state, i, &variables[i].name, &variables[i].type));
        size_t bytes = tu_type_bytes(variables[i].type);
        void *data = tu__arena_alloc(arena, bytes);
        if (!data) return TU_NO_MEMORY;
        TU_TRY(tu_state_get(state, variables[i].name, data, bytes));
        variables[i].data = data;
    }
    return TU_OK;
}

tu_status tu_model_new_with(const tu_graph *graph, const tu_state *state, tu_model **model,
                            const tu_model_options *options) {
    TU__OPTIONS(tu_model_options, o, options);
    *model = NULL;
    TU_TRY(tu_graph_status(graph));
    size_t count = state ? tu_state_variable_count(state) : 0;
    tu__arena arena = {.purpose = "the variables of a model"};
    tu__named_tensor *variables = tu__arena_alloc(&arena, (count + 1) * sizeof *variables);
    tu_status status = variables ? TU_OK : TU_NO_MEMORY;
    if (status == TU_OK && state) status = copy_variables(state, &arena, variables);
    if (status == TU_OK) status = make_model(graph, count, variables, &o, model);
    tu__arena_free(&arena);
    return status;
}
