/* Builds, loads and saves the graphs of a run. See run_graphs.h; step_graphs.c builds each graph.
 *
 * The files of a folder can be edited, or mixed from two runs. Loading therefore checks, with the tables below, that
 * a graph has exactly the inputs and outputs that config.json implies: callers feed and fetch them through buffers of
 * these sizes without further checks. */
#include "train/run_graphs.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "data/dataset.h"
#include "graph/file.h"
#include "graph/graph.h"
#include "train/step_graphs.h"
#include "train/stepper.h"
#include "train/task.h"

/* ---- Expected inputs and outputs ---- */

enum extent { ONE, SAMPLES, CLASSES, ANY }; /* shapes [], [n], [n,classes], [n,...] */
enum presence { ALWAYS, SOMETIMES, WITH_ACCUMULATION, WITHOUT_ACCUMULATION, CLASSIFICATION, OTHER_TASKS };

typedef struct graph_port {
    const char *name;
    tu_dtype dtype;
    enum extent extent;
    enum presence presence;
} graph_port;

/* Besides columns. */
static const graph_port batch_inputs[] = {
    {"sample_ordinal", TU_I64, SAMPLES, SOMETIMES}, {"share", TU_F32, ONE, WITH_ACCUMULATION}, {0}};
static const graph_port step_outputs[] = {{"loss", TU_F32, ONE, ALWAYS},
                                          {"correct", TU_I64, ONE, CLASSIFICATION},
                                          {"finite", TU_BOOL, ONE, ALWAYS},
                                          {"rate", TU_F32, ONE, WITHOUT_ACCUMULATION},
                                          {"gradient_norm", TU_F32, ONE, WITHOUT_ACCUMULATION},
                                          {0}};
static const graph_port apply_outputs[] = {{"finite", TU_BOOL, ONE, ALWAYS},
                                           {"rate", TU_F32, ONE, ALWAYS},
                                           {"gradient_norm", TU_F32, ONE, ALWAYS},
                                           {0}};
static const graph_port test_inputs[] = {{"counted", TU_F32, SAMPLES, OTHER_TASKS}, {0}};
static const graph_port test_outputs[] = {
    {"loss", TU_F32, ONE, ALWAYS},
    {"correct", TU_I64, ONE, CLASSIFICATION},
    {"top5", TU_I64, ONE, CLASSIFICATION},
    {"class", TU_I64, SAMPLES, CLASSIFICATION},
    {"probability", TU_F32, CLASSES, SOMETIMES}, /* not in runs of versions without ensembles */
    {0}};
static const graph_port prediction_output[] = {
    {"probability", TU_F32, CLASSES, CLASSIFICATION}, {"prediction", TU_F32, ANY, OTHER_TASKS}, {0}};
static const graph_port no_outputs[] = {{0}};
static const graph_port no_inputs[] = {{0}};

/* Batch size of each graph; 0: the run has no such graph. */
static int64_t step_samples(const tu__run_config *config) {
    return tu__micro_batch_size(config);
}
static int64_t short_step_samples(const tu__run_config *config) {
    return tu__training_images(config) % tu__micro_batch_size(config);
}
static int64_t accumulates(const tu__run_config *config) {
    return config->settings.accumulate > 1;
}
static int64_t evaluation_samples(const tu__run_config *config) {
    int64_t size = tu__micro_batch_size(config), images = config->dataset.count[TU_TEST];
    if (tu__validation_images(config) > images) images = tu__validation_images(config);
    return images > 0 && images < size ? images : size;
}
static int64_t has_metrics(const tu__run_config *config) {
    return !tu__is_classification(config);
}
static int64_t prediction_samples(const tu__run_config *config) {
    (void)config;
    return 1;
}

typedef struct graph_entry {
    const char *name;
    size_t offset;
    int64_t (*samples)(const tu__run_config *config);
    const graph_port *inputs, *outputs;
    bool has_columns, has_targets; /* the inputs are columns; also target columns */
} graph_entry;

static const graph_entry entries[] = {
    {"step", offsetof(tu__run_graphs, step), step_samples, batch_inputs, step_outputs, true, true},
    {"step-short", offsetof(tu__run_graphs, step_short), short_step_samples, batch_inputs, step_outputs, true,
     true},
    {"apply", offsetof(tu__run_graphs, apply), accumulates, no_inputs, apply_outputs, false, false},
    {"evaluate", offsetof(tu__run_graphs, evaluate), evaluation_samples, test_inputs, test_outputs, true,
     true},
    {"metrics", offsetof(tu__run_graphs, metrics), has_metrics, no_inputs, no_outputs, false, false},
    {"predict", offsetof(tu__run_graphs, predict), prediction_samples, no_inputs, prediction_output, true,
     false},
};
enum { ENTRY_COUNT = sizeof entries / sizeof *entries };

static tu_graph **graph_slot(const tu__run_graphs *graphs, const graph_entry *e) {
    return (tu_graph **)((char *)graphs + e->offset);
}

/* ---- Checking ---- */

static tu_type expected_type(const graph_port *p, const tu__run_config *config, int64_t samples) {
    switch (p->extent) {
    case ONE:
    case ANY: break;
    case SAMPLES: return (tu_type){p->dtype, TU_SHAPE(samples)};
    case CLASSES: return (tu_type){p->dtype, TU_SHAPE(samples, config->dataset.classes)};
    }
    return (tu_type){p->dtype, TU_SCALAR};
}

static bool is_expected(const graph_port *p, const tu__run_config *config) {
    bool accumulates = config->settings.accumulate > 1;
    if (p->presence == CLASSIFICATION || p->presence == OTHER_TASKS)
        return tu__is_classification(config) == (p->presence == CLASSIFICATION);
    return p->presence != (accumulates ? WITHOUT_ACCUMULATION : WITH_ACCUMULATION);
}

static tu_status check_type(const graph_entry *e, const graph_port *p, const tu__run_config *config,
                            tu_value value) {
    int64_t samples = e->samples(config);
    tu_type expected = expected_type(p, config, samples), type = tu_value_type(value);
    if (p->extent == ANY && type.dtype == p->dtype && type.shape.rank >= 1 && type.shape.dim[0] == samples)
        return TU_OK;
    if (type.dtype == expected.dtype && tu_shape_equal(type.shape, expected.shape)) return TU_OK;
    return tu_fail(TU_CORRUPT, "graph '%s': '%s' has type %s: expected %s", e->name, p->name,
                   tu__type_string(type), tu__type_string(expected));
}

static tu_status check_input(const graph_entry *e, const graph_port *p, const tu__run_config *config,
                             tu_graph *graph) {
    tu_value value = tu__find_input(graph, p->name);
    if (tu_ok(value) && is_expected(p, config)) return check_type(e, p, config, value);
    if (p->presence == SOMETIMES || tu_ok(value) == is_expected(p, config)) return TU_OK;
    return tu_fail(TU_CORRUPT, "graph '%s' has %s input '%s'", e->name,
                   tu_ok(value) ? "the unexpected" : "no", p->name);
}

/* Checks the type of an input that is a column. */
static tu_status check_column(const graph_entry *e, const tu__run_config *config, const tu__column *c,
                              tu_value value) {
    tu_type type = tu_value_type(value);
    tu_type expected = {c->type.dtype, {.rank = c->type.shape.rank + 1, .dim = {e->samples(config)}}};
    for (int64_t i = 0; i < c->type.shape.rank; i++) expected.shape.dim[i + 1] = c->type.shape.dim[i];
    if (c->kind == TU_COLUMN_TOKENS && !e->has_targets) expected.shape.dim[1]--; /* without the target */
    if (type.dtype == expected.dtype && tu_shape_equal(type.shape, expected.shape)) return TU_OK;
    return tu_fail(TU_CORRUPT, "graph '%s': '%s' has type %s: expected %s", e->name, c->name,
                   tu__type_string(type), tu__type_string(expected));
}

/* Pictures are always used, and the labels of steps and evaluations; other columns if the task asks for them. */
static tu_status check_columns(const graph_entry *e, const tu__run_config *config, tu_graph *graph) {
    size_t found = 0;
    for (size_t i = 0; e->has_columns && i < config->columns.count; i++) {
        const tu__column *c = &config->columns.column[i];
        tu_value value = tu__find_input(graph, c->name);
        bool expected = e->has_targets || !c->is_target;
        if (tu_ok(value) && !expected)
            return tu_fail(TU_CORRUPT, "graph '%s' has the unexpected input '%s'", e->name, c->name);
        if (!tu_ok(value) && expected && tu__has_pictures(&config->dataset))
            return tu_fail(TU_CORRUPT, "graph '%s' has no input '%s'", e->name, c->name);
        if (!tu_ok(value)) continue;
        TU_TRY(check_column(e, config, c, value));
        found++;
    }
    if (found || !e->has_columns) return TU_OK;
    return tu_fail(TU_CORRUPT, "graph '%s' has no input that is a column of the data set", e->name);
}

bool tu__has_output(const tu_graph *graph, const char *name) {
    for (uint32_t i = 0; i < graph->result_count; i++)
        if (strcmp(graph->results[i].name, name) == 0) return true;
    return false;
}

static tu_status check_output(const graph_entry *e, const graph_port *p, const tu__run_config *config,
                              tu_graph *graph) {
    if (!is_expected(p, config)) return TU_OK;
    if (p->presence == SOMETIMES && !tu__has_output(graph, p->name)) return TU_OK;
    tu_value value = tu_find_output(graph, p->name);
    if (!tu_ok(value)) return tu_fail(TU_CORRUPT, "graph '%s': %s", e->name, tu_message());
    return check_type(e, p, config, value);
}

static tu_status check_graph(const graph_entry *e, const tu__run_config *config, tu_graph *graph) {
    TU_TRY(check_columns(e, config, graph));
    for (const graph_port *p = e->inputs; p->name; p++) TU_TRY(check_input(e, p, config, graph));
    for (const graph_port *p = e->outputs; p->name; p++) TU_TRY(check_output(e, p, config, graph));
    return TU_OK;
}

/* Fails unless the step graph has the digest stored in config.json. */
static tu_status check_digest(const tu__run_config *config, const tu_graph *step) {
    char digest[TU_DIGEST_TEXT];
    TU_TRY(tu_graph_digest(step, digest));
    if (strcmp(digest, config->graph_digest) == 0) return TU_OK;
    return tu_fail(TU_CORRUPT,
                   "graph 'step' has changed since the run was started: its digest is %.12s, expected %.12s",
                   digest, config->graph_digest);
}

/* ---- Building, loading and saving ---- */

static tu_status build_graphs(tu__run_config *config, tu__run_graphs *graphs) {
    int64_t rest = short_step_samples(config);
    TU_TRY(tu__build_step(config, step_samples(config), &graphs->step));
    if (rest) TU_TRY(tu__build_step(config, rest, &graphs->step_short));
    if (accumulates(config)) TU_TRY(tu__build_apply(config, graphs->step, &graphs->apply));
    TU_TRY(tu__build_evaluation(config, evaluation_samples(config), &graphs->evaluate));
    if (has_metrics(config)) TU_TRY(tu__build_metrics(config, graphs->evaluate, &graphs->metrics));
    return tu__build_prediction(config, &graphs->predict);
}

tu_status tu__run_graphs_build(tu__run_config *config, tu__run_graphs *graphs) {
    *graphs = (tu__run_graphs){0};
    TU_TRY(build_graphs(config, graphs));
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        tu_graph *graph = *graph_slot(graphs, &entries[i]);
        if (graph && check_graph(&entries[i], config, graph) != TU_OK)
            return tu_fail(TU_INVALID, "model '%s': %s", config->model, tu_message());
    }
    return TU_OK;
}

/* Returns the graph's file in a run folder. */
static tu__path graph_file(const graph_entry *e) {
    tu__path name;
    snprintf(name.text, sizeof name.text, "graphs/%s.graph", e->name);
    return name;
}

static tu_status load_graph(const char *folder, const graph_entry *e, const tu__run_config *config,
                            tu_graph **graph) {
    *graph = NULL;
    TU_TRY(tu__graph_load_in(folder, graph_file(e).text, graph));
    if (check_graph(e, config, *graph) == TU_OK) return TU_OK;
    return tu_fail(TU_CORRUPT, "run '%s': its graphs do not match its config.json: %s", folder, tu_message());
}

tu_status tu__run_graph_load(const char *folder, const char *name, const tu__run_config *config,
                             tu_graph **graph) {
    *graph = NULL;
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        if (strcmp(entries[i].name, name) == 0) return load_graph(folder, &entries[i], config, graph);
    return tu_fail(TU_INTERNAL, "runs have no graph '%s'", name);
}

tu_status tu__run_graphs_load(const char *folder, const tu__run_config *config, tu__run_graphs *graphs) {
    *graphs = (tu__run_graphs){0};
    for (size_t i = 0; i < ENTRY_COUNT; i++)
        if (entries[i].samples(config) > 0)
            TU_TRY(load_graph(folder, &entries[i], config, graph_slot(graphs, &entries[i])));
    return check_digest(config, graphs->step);
}

void tu__run_graphs_free(tu__run_graphs *graphs) {
    for (size_t i = 0; i < ENTRY_COUNT; i++) tu_graph_free(*graph_slot(graphs, &entries[i]));
    *graphs = (tu__run_graphs){0};
}

tu_status tu__run_graphs_save(const char *folder, const tu__run_graphs *graphs) {
    for (size_t i = 0; i < ENTRY_COUNT; i++) {
        tu_graph *graph = *graph_slot(graphs, &entries[i]);
        if (graph) TU_TRY(tu__graph_save_in(graph, folder, graph_file(&entries[i]).text));
    }
    return TU_OK;
}
