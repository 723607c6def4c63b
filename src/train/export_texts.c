/* Texts about an exported model. See export_texts.h.
 *
 * A run does not store the input size of its network, so the description is derived from the graph: from the nodes in the
 * scope "preprocess". */
#include "train/export_texts.h"

#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "data/dataset.h"
#include "graph/graph.h"
#include "train/task.h"

/* ---- Preprocessing ---- */

/* True for a node that tu_preprocess made. The scope is within "average" if the run averages its weights. */
static bool is_preprocessing(const tu__node *node) {
    static const char *const scopes[] = {"preprocess/", "average/preprocess/"};
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++)
        if (strncmp(node->name, scopes[i], strlen(scopes[i])) == 0) return true;
    return false;
}

typedef struct preprocessing {
    tu_shape result; /* of the network's input */
    bool resizes;
} preprocessing;

static preprocessing find_preprocessing(const tu_graph *graph, tu_shape input) {
    preprocessing p = {.result = input};
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const tu__node *node = graph->nodes[i];
        if (!is_preprocessing(node)) continue;
        if (node->output_count && node->outputs[0].shape.rank == 4) p.result = node->outputs[0].shape;
        p.resizes = p.resizes || node->op->code == TU__OP_RESIZE;
    }
    return p;
}

static void describe_normalisation(const tu__run_config *config, tu__text *text) {
    const tu_dataset_info *d = &config->dataset;
    if (config->settings.standardize) {
        tu__text_printf(text, "subtracts from each image its mean, and divides it by its standard deviation");
        return;
    }
    tu__text_printf(text, "subtracts from each channel");
    for (int64_t c = 0; c < d->channels && c < TU_MAX_CHANNELS; c++)
        tu__text_printf(text, " %.9g", d->mean[c]);
    tu__text_printf(text, ", and divides it by");
    for (int64_t c = 0; c < d->channels && c < TU_MAX_CHANNELS; c++)
        tu__text_printf(text, " %.9g", d->deviation[c] == 0 ? 1 : d->deviation[c]);
}

static void describe_columns(const tu__run_config *config, tu__text *text) {
    if (tu__columns_of_kind(&config->columns, TU_COLUMN_TOKENS)) {
        tu__text_printf(text, "Input: tokens i32.");
        return;
    }
    tu__text_printf(
        text, "Input: the columns that the text 'columns' describes, with one element per field: numbers "
              "f32, NaN if missing; categories i32, the index of their name, -1 if missing. The graph "
              "subtracts means, divides by standard deviations and encodes categories.");
}

void tu__describe_preprocessing(const tu_graph *graph, const tu__run_config *config, tu__text *text) {
    const tu_dataset_info *d = &config->dataset;
    if (!tu__has_pictures(d)) {
        describe_columns(config, text);
        return;
    }
    tu_shape input = TU_SHAPE(1, d->height, d->width, d->channels);
    preprocessing p = find_preprocessing(graph, input);
    const char *order = d->channels == 3 ? " (red, green, blue)" : d->channels == 1 ? " (grey)" : "";
    tu__text_printf(text,
                    "Input: %s images [n,%" PRId64 ",%" PRId64 ",%" PRId64 "]: rows, columns, channels%s%s. ",
                    tu_dtype_name(d->dtype), d->height, d->width, d->channels, order,
                    d->dtype == TU_U8 ? ", 0 to 255" : ", 0 to 1 if they come from image files");
    tu__text_printf(
        text, "For another image, cut out the largest centred window of this aspect ratio and resize it. "
              "The graph does the rest: it ");
    if (d->dtype == TU_U8) tu__text_printf(text, "scales pixels to 0 to 1, ");
    if (p.result.dim[1] != d->height || p.result.dim[2] != d->width)
        tu__text_printf(text, "%s %" PRId64 "x%" PRId64 ", ",
                        p.resizes ? "resizes images to" : "crops the centre", p.result.dim[1],
                        p.result.dim[2]);
    describe_normalisation(config, text);
    tu__text_printf(text, ".");
}

/* ---- Metrics ---- */

static void put_scores(tu_json *json, const char *key, double loss, double accuracy, double top5) {
    tu_json_begin_object(json, key);
    tu_json_f64(json, "loss", loss);
    tu_json_f64(json, "accuracy", accuracy);
    tu_json_f64(json, "top5", top5);
    tu_json_end_object(json);
}

static void put_task_metrics(tu_json *json, const char *key, const tu__run_config *config, double loss,
                             const double *values) {
    tu_json_begin_object(json, key);
    tu_json_f64(json, "loss", loss);
    for (size_t i = 0; i < config->metric_count; i++) tu_json_f64(json, config->metrics[i].name, values[i]);
    tu_json_end_object(json);
}

/* Adds the metrics of one checkpoint to the open object. Those of evaluations at other steps are not of these weights. */
static void put_metrics(tu_json *json, const tu__progress *p, const tu__run_config *config) {
    if (!tu__is_classification(config)) {
        tu_json_i64(json, "step", p->step);
        tu_json_f64(json, "training_loss", p->loss);
        if (p->validation_step == p->step)
            put_task_metrics(json, "validation", config, p->validation_loss, p->validation_metrics);
        if (p->test_step == p->step) put_task_metrics(json, "test", config, p->test_loss, p->test_metrics);
        return;
    }
    tu_json_i64(json, "step", p->step);
    tu_json_f64(json, "training_loss", p->loss);
    tu_json_f64(json, "training_accuracy", p->accuracy);
    if (p->validation_step == p->step)
        put_scores(json, "validation", p->validation_loss, p->validation_accuracy, p->validation_top5);
    if (p->test_step == p->step) put_scores(json, "test", p->test_loss, p->test_accuracy, p->test_top5);
}

void tu__describe_metrics(size_t members, const tu__progress *progress, const tu__run_config *config,
                          tu__text *text) {
    bool ensemble = config->members > 0;
    tu_json json = tu__json_to_text(text);
    tu_json_begin_object(&json, NULL);
    if (!ensemble) put_metrics(&json, progress, config);
    if (ensemble) tu_json_begin_array(&json, "members");
    for (size_t i = 0; ensemble && i < members; i++) {
        tu_json_begin_object(&json, NULL);
        put_metrics(&json, &progress[i], config);
        tu_json_end_object(&json);
    }
    if (ensemble) tu_json_end_array(&json);
    tu_json_end_object(&json);
    text->failed = text->failed || !tu_json_finish(&json);
}
