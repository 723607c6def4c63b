/* tu_export: writes the network of a run, or all networks of an ensemble as one, as a model file.
 *
 * The file's graph is the run's graph for prediction, with the output "logits" in addition; that of an ensemble averages
 * the probabilities of its members (infer/average_members.h). Golden outputs and bounds are computed on `ref`, from images of
 * the test split. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tutti/command.h>
#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "infer/average_members.h"
#include "infer/golden.h"
#include "train/ensemble.h"
#include "train/export.h"
#include "train/export_texts.h"
#include "train/table_settings.h"
#include "train/task.h"
#include "train/test_data.h"
#include "train/trained_model.h"

enum { MAX_OUTPUTS = 2, MAX_TEXTS = 10, PRECISIONS = 4, PASSES = 3 /* in f32, bf16, f16 */ };

typedef struct exporter {
    tu_export_options options;
    tu__arena arena;       /* strings of `config`, and texts */
    tu__run_config config; /* of the run or the ensemble */
    size_t count;          /* networks opened */
    tu__trained_model *networks;
    tu__progress *progress; /* of each network */
    tu_graph *average;      /* of an ensemble */
    tu_graph *graph;        /* of the file: `average`, or that of the only network */
    tu_state *state;        /* of this graph; `average_state`, or that of the only network */
    tu_state *average_state;
    const tu__export_transform *transform; /* NULL: none */
    tu_graph *transformed;                 /* result of the transformation */
    tu_state *transformed_state;
    tu__test_data data;
    tu__snapshot snapshot;
    int64_t golden_count;
    int64_t passes;                   /* over the golden samples, that are done */
    void *samples[TU_MAX_COLUMNS];    /* golden samples, per column */
    void *outputs[MAX_OUTPUTS];       /* golden outputs */
    void *other_outputs[MAX_OUTPUTS]; /* in another precision */
    size_t input_count;
    tu__named_tensor golden_inputs[TU_MAX_COLUMNS], golden_outputs[MAX_OUTPUTS];
    tu__metadata texts[MAX_TEXTS];
    tu__model_bound bounds[MAX_OUTPUTS * PRECISIONS];
    tu__model_file file; /* refers to all this */
} exporter;

/* ---- Networks ---- */

static tu_status open_network(exporter *e, const char *folder) {
    const tu_trained_options o = {.struct_size = sizeof o, .checkpoint = e->options.checkpoint};
    tu__trained_model *network = &e->networks[e->count++];
    TU_TRY(tu__trained_model_open(folder, "predict", &o, network));
    e->progress[e->count - 1] = network->progress;
    return TU_OK;
}

static tu_status open_networks(exporter *e, const char *folder) {
    TU_TRY(tu__run_config_load(folder, &e->arena, &e->config));
    size_t count = e->config.members ? (size_t)e->config.members : 1;
    e->networks = tu__alloc_array(count, sizeof *e->networks, "the networks to export");
    e->progress = tu__alloc_array(count, sizeof *e->progress, "the networks to export");
    if (!e->networks || !e->progress) return TU_NO_MEMORY;
    if (!e->config.members) return open_network(e, folder);
    for (size_t i = 0; i < count; i++) {
        tu_status status = open_network(e, tu__member_folder(folder, (int64_t)i).text);
        if (status != TU_OK) return tu_fail(status, "member %zu: %s", i, tu_message());
    }
    return TU_OK;
}

/* Names the input of the softmax, so that the file has it as an output. */
static tu_status add_logits(tu_graph *graph) {
    tu_value probability = tu_find_output(graph, "probability");
    TU_TRY(tu_graph_status(graph));
    const tu__node *softmax = tu__node_of(probability);
    if (softmax->op->code != TU__OP_SOFTMAX)
        return tu_fail(TU_UNSUPPORTED,
                       "the output 'probability' of the run is computed by %s: expected softmax",
                       softmax->op->name);
    tu_output(tu__input_of(graph, softmax, 0), "logits");
    return tu_graph_status(graph);
}

/* Copies the variables of a member to those in its scope. */
static tu_status copy_variables(const tu_state *member, size_t number, tu_state *average) {
    tu__snapshot snapshot = {0};
    tu__text name = {0};
    tu_status status = tu__snapshot_take(member, &snapshot);
    for (size_t i = 0; status == TU_OK && i < snapshot.count; i++) {
        const tu__named_tensor *tensor = &snapshot.tensors[i];
        name.length = 0;
        tu__text_printf(&name, "%s/%s", tu__member_scope_of(number).text, tensor->name);
        status = name.failed ? TU_NO_MEMORY
                             : tu_state_set(average, tu__text_string(&name), tensor->data,
                                            tu_type_bytes(tensor->type));
    }
    tu__text_free(&name);
    tu__snapshot_free(&snapshot);
    return status;
}

static tu_status average_networks(exporter *e) {
    tu_graph **graphs = tu__alloc_array(e->count, sizeof *graphs, "the networks to export");
    if (!graphs) return TU_NO_MEMORY;
    for (size_t i = 0; i < e->count; i++) graphs[i] = e->networks[i].graph;
    tu_status status = tu__average_members(e->count, graphs, &e->average);
    tu__free(graphs);
    TU_TRY(status);
    TU_TRY(tu_state_new(e->average, &e->average_state));
    for (size_t i = 0; i < e->count; i++) TU_TRY(copy_variables(e->networks[i].state, i, e->average_state));
    e->graph = e->average;
    e->state = e->average_state;
    return TU_OK;
}

/* The files of a run can be edited: fails unless all inputs of the graph are columns and there are no other outputs. */
static tu_status check_ports(exporter *e, const tu_graph *graph) {
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        if (node->op->code != TU__OP_INPUT) continue;
        const tu__column *c = tu__columns_find(&e->config.columns, node->name);
        if (!c || c->is_target || e->input_count == TU_MAX_COLUMNS)
            return tu_fail(TU_CORRUPT, "graph 'predict' has the unexpected input '%s'", node->name);
        e->golden_inputs[e->input_count++] = (tu__named_tensor){node->name, node->outputs[0], NULL};
    }
    if (graph->result_count <= MAX_OUTPUTS) return TU_OK;
    return tu_fail(TU_CORRUPT, "graph 'predict' has %u outputs: expected 'probability' or 'prediction'",
                   graph->result_count - 1);
}

static tu_status prepare_graph(exporter *e) {
    e->graph = e->networks[0].graph;
    e->state = e->networks[0].state;
    if (e->config.members)
        TU_TRY(average_networks(e));
    else if (tu__is_classification(&e->config))
        TU_TRY(add_logits(e->graph));
    return check_ports(e, e->graph);
}

static tu_status add_text(exporter *e, const char *key, const char *value) {
    const char *copy = tu__arena_string(&e->arena, value);
    if (!copy) return TU_NO_MEMORY;
    e->texts[e->file.metadata_count++] = (tu__metadata){key, copy};
    return TU_OK;
}

static tu_status transform(exporter *e) {
    const tu__export_transform *t = e->transform;
    tu__text text = {0};
    if (!t) return TU_OK;
    tu_status status = t->run(t->context, &e->config, e->data.set, e->graph, e->state, &e->transformed,
                              &e->transformed_state, &text);
    if (status == TU_OK && text.failed) status = TU_NO_MEMORY;
    if (status == TU_OK) status = add_text(e, t->key, tu__text_string(&text));
    tu__text_free(&text);
    e->graph = e->transformed;
    e->state = e->transformed_state;
    return status;
}

/* ---- Golden samples ---- */

static tu_status read_sample(exporter *e, int64_t index, int64_t place) {
    void *elements[TU_MAX_COLUMNS] = {0};
    for (size_t c = 0; c < e->config.columns.count; c++)
        if (e->samples[c])
            elements[c] = (char *)e->samples[c] + (size_t)place * e->config.columns.column[c].bytes;
    return tu_dataset_read_columns(e->data.set, TU_TEST, index, elements);
}

/* Windows have one token more than the input of a prediction: the target. */
static tu_status shorten_windows(const exporter *e, size_t column, tu_type input) {
    size_t bytes = tu_type_bytes(input), window = e->config.columns.column[column].bytes;
    char *samples = e->samples[column];
    for (int64_t i = 0; i < e->golden_count; i++)
        memmove(samples + (size_t)i * bytes, samples + (size_t)i * window, bytes);
    return TU_OK;
}

/* Reads samples that are spread evenly over the test split, since similar ones may follow each other. */
static tu_status read_samples(exporter *e) {
    int64_t all = e->data.set->info.count[TU_TEST],
            count = all < TU__GOLDEN_SAMPLES ? all : TU__GOLDEN_SAMPLES;
    e->golden_count = count;
    for (size_t i = 0; i < e->input_count; i++) {
        size_t c = (size_t)(tu__columns_find(&e->config.columns, e->golden_inputs[i].name) -
                            e->config.columns.column);
        e->samples[c] =
            tu__alloc_aligned((size_t)count * e->config.columns.column[c].bytes, "golden samples");
        if (!e->samples[c]) return TU_NO_MEMORY;
    }
    int64_t window = tu__window_of(&e->config.columns);
    for (int64_t i = 0; i < count; i++) TU_TRY(read_sample(e, i * all / count * (window ? window : 1), i));
    for (size_t i = 0; i < e->input_count; i++) {
        tu__named_tensor *input = &e->golden_inputs[i];
        size_t c = (size_t)(tu__columns_find(&e->config.columns, input->name) - e->config.columns.column);
        if (window) TU_TRY(shorten_windows(e, c, input->type));
        input->type.shape.dim[0] = count;
        input->data = e->samples[c];
    }
    return TU_OK;
}

static tu_type output_type(const exporter *e, size_t output) {
    tu__edge edge = e->graph->results[output].value;
    return e->graph->nodes[edge.node]->outputs[edge.output];
}

static void report_samples(void *context, int64_t samples) {
    const exporter *e = context;
    if (e->options.progress)
        e->options.progress(e->options.context, "computing golden samples on the reference device",
                            e->passes * e->golden_count + samples, PASSES * e->golden_count);
}

static tu_status compute(exporter *e, const char *precision, void *const *outputs) {
    const tu__golden_progress progress = {report_samples, e};
    TU_TRY(tu__golden_compute(e->graph, e->state, precision, e->golden_count, e->golden_inputs, outputs,
                              &progress));
    e->passes++;
    return TU_OK;
}

static tu_status compute_outputs(exporter *e) {
    for (size_t i = 0; i < e->graph->result_count; i++) {
        tu_type type = output_type(e, i);
        type.shape.dim[0] = e->golden_count;
        e->outputs[i] = tu__alloc_aligned(tu_type_bytes(type), "golden outputs");
        e->other_outputs[i] = tu__alloc_aligned(tu_type_bytes(type), "golden outputs");
        if (!e->outputs[i] || !e->other_outputs[i]) return TU_NO_MEMORY;
        e->golden_outputs[i] = (tu__named_tensor){e->graph->results[i].name, type, e->outputs[i]};
    }
    return compute(e, NULL, e->outputs);
}

/* Logits may be of any size, so their bound is relative. */
static bool is_relative(const char *output) {
    return strcmp(output, "probability") != 0;
}

/* Computes the outputs in another precision and how far they are from the golden ones. */
static tu_status measure(exporter *e, const char *precision, double differences[MAX_OUTPUTS]) {
    TU_TRY(compute(e, precision, e->other_outputs));
    for (size_t i = 0; i < e->graph->result_count; i++)
        differences[i] = tu__golden_difference(output_type(e, i), e->golden_count, e->outputs[i],
                                               e->other_outputs[i], is_relative(e->golden_outputs[i].name));
    return TU_OK;
}

/* A precision in which an output is not finite has no bound. */
static tu_status compute_bounds(exporter *e) {
    static const char *const precisions[PRECISIONS] = {TU_PRECISIONS};
    double bf16[MAX_OUTPUTS] = {0}, f16[MAX_OUTPUTS] = {0};
    TU_TRY(measure(e, "bf16", bf16));
    TU_TRY(measure(e, "f16", f16));
    for (size_t i = 0; i < e->graph->result_count; i++) {
        for (size_t p = 0; p < PRECISIONS; p++) {
            double limit = tu__golden_bound(precisions[p], bf16[i], f16[i]);
            if (e->transform) limit = fmax(limit, e->transform->min_bound);
            const char *output = e->golden_outputs[i].name;
            if (isfinite(limit))
                e->bounds[e->file.bound_count++] =
                    (tu__model_bound){output, precisions[p], limit, is_relative(output)};
        }
    }
    return TU_OK;
}

/* ---- Texts ---- */

static tu_status add_built_text(exporter *e, const char *key, tu__text *text) {
    tu_status status = text->failed ? TU_NO_MEMORY : add_text(e, key, tu__text_string(text));
    tu__text_free(text);
    return status;
}

/* The name of the model: the last part of what the user called it, "mynet" for "nets/mynet.c". */
static tu_status add_name(exporter *e) {
    const char *name = e->options.name ? e->options.name : e->config.model, *slash = strrchr(name, '/');
    tu__text text = {0};
    if (!e->options.name && slash && slash[1]) name = slash + 1;
    size_t length = strlen(name);
    if (!e->options.name && length > 2 && strcmp(name + length - 2, ".c") == 0) length -= 2;
    tu__text_append(&text, name, length);
    return add_built_text(e, "name", &text);
}

/* The fields, means and categories of a table, so that the model can read its rows. */
static tu_status add_columns(exporter *e) {
    tu__text text = {0};
    tu_json json = tu__json_to_text(&text);
    tu__columns_write(&json, NULL, &e->config.columns);
    text.failed = text.failed || !tu_json_finish(&json);
    return add_built_text(e, "columns", &text);
}

static tu_status add_texts(exporter *e) {
    tu__text producer = {0}, metrics = {0}, preprocessing = {0};
    tu__text_printf(&producer, "tutti %s", tu_version());
    tu__describe_metrics(e->count, e->progress, &e->config, &metrics);
    tu__describe_preprocessing(e->networks[0].graph, &e->networks[0].config, &preprocessing);
    tu_status status = add_name(e);
    if (status == TU_OK) status = add_text(e, "dataset", e->config.dataset.name);
    if (status == TU_OK) status = add_text(e, "task", e->config.task);
    if (status == TU_OK && e->config.columns.tokenizer)
        status = add_text(e, "tokenizer", e->config.columns.tokenizer);
    if (status == TU_OK && !tu__has_pictures(&e->config.dataset)) status = add_columns(e);
    if (status == TU_OK && e->options.licence) status = add_text(e, "licence", e->options.licence);
    tu_status added[] = {add_built_text(e, "producer", &producer), add_built_text(e, "metrics", &metrics),
                         add_built_text(e, "preprocessing", &preprocessing)};
    for (size_t i = 0; i < sizeof added / sizeof *added; i++) TU_TRY(added[i]);
    return status;
}

/* ---- The file ---- */

/* Puts the variables into the order of the graph; the snapshot has them in that of their names. */
static tu_status list_variables(exporter *e) {
    TU_TRY(tu__snapshot_take(e->state, &e->snapshot));
    tu__named_tensor *list = tu__arena_alloc(&e->arena, (e->snapshot.count + 1) * sizeof *list);
    if (!list) return TU_NO_MEMORY;
    for (size_t i = 0; i < e->snapshot.count; i++) {
        const char *name;
        tu_type type;
        TU_TRY(tu_state_variable(e->state, i, &name, &type));
        size_t low = 0, high = e->snapshot.count;
        while (high - low > 1) {
            size_t middle = low + (high - low) / 2;
            if (strcmp(e->snapshot.tensors[middle].name, name) <= 0)
                low = middle;
            else
                high = middle;
        }
        list[i] = e->snapshot.tensors[low];
    }
    e->file.variables = list;
    e->file.variable_count = e->snapshot.count;
    return TU_OK;
}

static tu_status save(exporter *e, const char *path) {
    TU_TRY(list_variables(e));
    tu__model_file *f = &e->file;
    f->graph = e->graph;
    f->input_count = e->input_count;
    f->output_count = e->graph->result_count;
    f->golden_inputs = e->golden_inputs;
    f->golden_outputs = e->golden_outputs;
    f->golden_count = e->golden_count;
    f->labels = e->config.dataset.class_names;
    f->label_count = (size_t)e->config.dataset.classes;
    f->metadata = e->texts;
    f->bounds = e->bounds;
    return tu__model_file_save(path, f);
}

/* Reads what was written, for the report: and to be sure that it can be read. */
static tu_status report(const exporter *e, const char *path, tu_export_result *result) {
    tu__model_file file;
    TU_TRY(tu__model_file_open(path, &file));
    result->step = e->progress[0].step;
    result->members = e->config.members;
    result->parameters = 0;
    for (size_t i = 0; i < file.variable_count; i++)
        result->parameters += tu_shape_elements(file.variables[i].type.shape);
    result->golden = file.golden_count;
    result->bytes = file.bytes;
    snprintf(result->digest, sizeof result->digest, "%s", file.digest);
    tu__model_file_close(&file);
    return TU_OK;
}

/* Quantization compares classes of pictures. */
static tu_status check_transform(const exporter *e) {
    if (!e->transform || tu__has_pictures(&e->config.dataset)) return TU_OK;
    return tu_fail(TU_UNSUPPORTED, "quantization needs a run on pictures: this one was trained on '%s' (%s)",
                   e->config.dataset.name, tu__samples_name(&e->config));
}

/* Before anything is computed: texts in the file are UTF-8. */
static tu_status check_texts(const tu_export_options *o) {
    if (o->licence && !tu__is_utf8(o->licence, strlen(o->licence)))
        return tu_fail(TU_INVALID,
                       "the licence is not UTF-8: convert it, for example with iconv -f latin1 -t utf-8");
    if (o->name && !tu__is_utf8(o->name, strlen(o->name)))
        return tu_fail(TU_INVALID, "the name of the model is not UTF-8");
    return TU_OK;
}

static tu_status export_run(exporter *e, const char *folder, const char *path, tu_export_result *result) {
    const tu_export_options *given = &e->options;
    const tu_trained_options o = {
        .struct_size = sizeof o, .data = given->data, .set = given->set, .offline = given->offline};
    TU_TRY(check_texts(given));
    TU_TRY(open_networks(e, folder));
    TU_TRY(check_transform(e));
    TU_TRY(prepare_graph(e));
    TU_TRY(tu__test_data_open(&e->config, &o, &e->data));
    TU_TRY(transform(e));
    TU_TRY(read_samples(e));
    TU_TRY(compute_outputs(e));
    TU_TRY(compute_bounds(e));
    TU_TRY(add_texts(e));
    TU_TRY(save(e, path));
    return report(e, path, result);
}

static void free_exporter(exporter *e) {
    for (size_t i = 0; i < MAX_OUTPUTS; i++) {
        tu__free_aligned(e->outputs[i]);
        tu__free_aligned(e->other_outputs[i]);
    }
    for (size_t i = 0; i < TU_MAX_COLUMNS; i++) tu__free_aligned(e->samples[i]);
    tu__snapshot_free(&e->snapshot);
    tu__test_data_close(&e->data);
    tu_state_free(e->transformed_state);
    tu_graph_free(e->transformed);
    tu_state_free(e->average_state);
    tu_graph_free(e->average);
    for (size_t i = 0; i < e->count; i++) tu__trained_model_close(&e->networks[i]);
    tu__free(e->networks);
    tu__free(e->progress);
    tu__arena_free(&e->arena);
    tu__free(e);
}

tu_status tu__export(const char *folder, const char *path, tu_export_result *result,
                     const tu_export_options *options, const tu__export_transform *transform) {
    exporter *e = tu__alloc(sizeof *e, "a model file");
    if (!e) return TU_NO_MEMORY;
    e->options = *options;
    e->transform = transform;
    e->arena.purpose = "a model file";
    tu_status status = export_run(e, folder, path, result);
    free_exporter(e);
    return status;
}

tu_status tu_export_with(const char *folder, const char *path, tu_export_result *result,
                         const tu_export_options *options) {
    TU__OPTIONS(tu_export_options, o, options);
    if (result) {
        TU_TRY(TU__CHECK_SIZED(tu_export_result, result));
        tu__clear_sized(result);
    }
    tu_export_result full = TU_SIZED(tu_export_result);
    TU_TRY(tu__export(folder, path, &full, &o, NULL));
    if (result) TU__COPY_SIZED(result, full);
    return TU_OK;
}
