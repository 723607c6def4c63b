/* tu_quantize_run: quantizes the network of a run and writes it as a model file.
 *
 * The file is written by tu_export, with the quantized graph in place of the run's. Before that, both networks are evaluated
 * on the same batches of test images, in turns, so that a busy machine slows down both; and every layer is quantized
 * alone, to find those that cost accuracy. Ranges come from training images only: test images that had chosen them would
 * look better than others. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/pattern.h"
#include "base/sized.h"
#include "infer/freeze.h"
#include "infer/quantize.h"
#include "infer/rebatch.h"
#include "run/snapshot.h"
#include "train/classifier_run.h"
#include "train/export.h"

enum {
    BATCH = 32,
    CALIBRATION_IMAGES = 512,
    LAYER_IMAGES = 1000,
    MIN_VARIABLE = 16, /* elements; smaller constants stay in the graph of the file */
};

/* One rounding may move a value to the next of 256 steps. */
#define MIN_BOUND 0x1p-8

struct tu_quantization {
    tu_quantize_result result;
    tu_quantized_layer *layers; /* names are in `arena` */
    tu__arena arena;
};

typedef struct quantizing {
    tu_quantize_options options;
    tu__calibration_method method;
    const tu_dataset *set;
    tu_graph *frozen;         /* the run's network for BATCH samples */
    tu__quantizer *quantizer; /* of `frozen` */
    bool *keep;               /* per layer */
    tu_graph *quantized;      /* for BATCH samples */
    tu_quantization *report;  /* being filled */
} quantizing;

/* ---- Options ---- */

static tu_status check_options(const tu_quantize_options *o, tu__calibration_method *method) {
    *method = o->method && strcmp(o->method, "minmax") == 0 ? TU__MIN_MAX : TU__PERCENTILE;
    if (o->method && strcmp(o->method, "minmax") != 0 && strcmp(o->method, "percentile") != 0)
        return tu_fail(TU_INVALID, "method is '%s': expected minmax or percentile", o->method);
    if (o->calibration < 0)
        return tu_fail(TU_INVALID, "calibration is %" PRId64 ": expected a number of images, or 0 for %d",
                       o->calibration, CALIBRATION_IMAGES);
    if (o->images < 0)
        return tu_fail(TU_INVALID, "images is %" PRId64 ": expected a number of images, or 0 for all",
                       o->images);
    if (o->layer_images < TU_NO_LAYERS)
        return tu_fail(TU_INVALID,
                       "layer_images is %" PRId64 ": expected a number of images, 0 for %d, or %d",
                       o->layer_images, LAYER_IMAGES, TU_NO_LAYERS);
    return TU_OK;
}

/* ---- Calibration ---- */

static tu_status freeze(quantizing *q, const tu_graph *graph, const tu_state *state) {
    tu__snapshot snapshot = {0};
    tu_graph *frozen = NULL;
    tu_status status = tu__snapshot_take(state, &snapshot);
    if (status == TU_OK)
        status = tu__freeze(graph, snapshot.count, snapshot.tensors, TU__PRECISION_AS_BUILT, &frozen);
    if (status == TU_OK) status = tu__rebatch(frozen, BATCH, &q->frozen);
    tu_graph_free(frozen);
    tu__snapshot_free(&snapshot);
    return status;
}

static tu_status calibrate_with(quantizing *q, tu__image_batches *batches) {
    const tu__node *images = tu__find_node(q->frozen, "images");
    if (!images) return tu_fail(TU_INVALID, "the network has no input 'images'");
    q->report->result.calibration = batches->count;
    for (int64_t first = 0; first < batches->count; first += BATCH) {
        int64_t count;
        TU_TRY(tu__image_batches_read(batches, first, &count));
        const tu_feed feed = {tu__value(q->frozen, images->id, 0), batches->images};
        TU_TRY(tu__quantizer_calibrate(q->quantizer, 1, &feed));
    }
    return TU_OK;
}

/* Calibrates with training images; with test images if the data set has no others. */
static tu_status calibrate(quantizing *q) {
    tu_dataset_info info = TU_SIZED(tu_dataset_info);
    TU_TRY(tu_dataset_describe(q->set, &info));
    const tu_split split = info.count[TU_TRAIN] ? TU_TRAIN : TU_TEST;
    const int64_t count = q->options.calibration ? q->options.calibration : CALIBRATION_IMAGES;
    tu__image_batches batches;
    tu_status status = tu__image_batches_open(q->set, split, count, BATCH, &batches);
    if (status == TU_OK) status = calibrate_with(q, &batches);
    tu__image_batches_close(&batches);
    return status;
}

/* ---- Which layers ---- */

static tu_status choose_layers(quantizing *q) {
    const size_t count = tu__quantizer_layer_count(q->quantizer);
    tu_quantization *r = q->report;
    q->keep = tu__alloc_array(count, sizeof *q->keep, "layers");
    r->layers = tu__alloc_array(count, sizeof *r->layers, "layers");
    if (!q->keep || !r->layers) return TU_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const char *name = tu__arena_string(&r->arena, tu__quantizer_layer_name(q->quantizer, i));
        if (!name) return TU_NO_MEMORY;
        q->keep[i] = tu__pattern_matches(q->options.keep, name);
        r->layers[i] =
            (tu_quantized_layer){.struct_size = sizeof *r->layers, .name = name, .kept = q->keep[i]};
        r->result.quantized += !q->keep[i];
    }
    r->result.layers = (int64_t)count;
    bool has_matched = !q->options.keep || !*q->options.keep || r->result.quantized < r->result.layers;
    if (!has_matched)
        return tu_fail(TU_INVALID, "keep '%s' matches no layer: the first is '%s'", q->options.keep,
                       r->layers[0].name);
    return TU_OK;
}

/* ---- Accuracy and speed of both networks ---- */

static void count_batch(tu_quantize_result *r, const tu__classifier *before, const tu__classifier *after,
                        const tu__image_batches *batches, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const int64_t was = tu__classifier_class(before, i), is = tu__classifier_class(after, i);
        r->accuracy_before += was == batches->labels[i];
        r->accuracy += is == batches->labels[i];
        r->agreement += was == is;
    }
    r->images += count;
}

static tu_status compare_networks(quantizing *q, tu__image_batches *batches) {
    tu_quantize_result *r = &q->report->result;
    tu__classifier before, after = {0};
    tu_status status = tu__classifier_open(q->frozen, BATCH, q->options.threads, &before);
    if (status == TU_OK) status = tu__classifier_open(q->quantized, BATCH, q->options.threads, &after);
    for (int64_t first = 0, count; first < batches->count && status == TU_OK; first += BATCH) {
        status = tu__image_batches_read(batches, first, &count);
        if (status == TU_OK) status = tu__classifier_run(&before, batches->images);
        if (status == TU_OK) status = tu__classifier_run(&after, batches->images);
        if (status == TU_OK) count_batch(r, &before, &after, batches, count);
    }
    r->speed_before = tu__classifier_speed(&before);
    r->speed = tu__classifier_speed(&after);
    r->accuracy_before /= (double)r->images;
    r->accuracy /= (double)r->images;
    r->agreement /= (double)r->images;
    tu__classifier_close(&before);
    tu__classifier_close(&after);
    return status;
}

static tu_status evaluate(quantizing *q) {
    tu__image_batches batches;
    tu_status status = tu__image_batches_open(q->set, TU_TEST, q->options.images, BATCH, &batches);
    if (status == TU_OK) status = compare_networks(q, &batches);
    tu__image_batches_close(&batches);
    return status;
}

/* ---- Layers one by one ---- */

/* Logits of the f32 network for the images with which layers are evaluated. */
typedef struct baseline {
    tu__image_batches batches;
    float *logits; /* [images, classes] */
    int64_t classes;
    double spread; /* sum of the squared distances of the logits from their mean per image */
} baseline;

static double spread_of(const float *logits, int64_t images, int64_t classes) {
    double spread = 0;
    for (int64_t i = 0; i < images; i++) {
        double mean = 0;
        for (int64_t c = 0; c < classes; c++) mean += (double)logits[i * classes + c] / (double)classes;
        for (int64_t c = 0; c < classes; c++) {
            const double distance = (double)logits[i * classes + c] - mean;
            spread += distance * distance;
        }
    }
    return spread;
}

static tu_status run_baseline(const quantizing *q, baseline *b) {
    tu__classifier classifier;
    tu_status status = tu__classifier_open(q->frozen, BATCH, q->options.threads, &classifier);
    b->classes = classifier.classes;
    if (status == TU_OK) {
        b->logits = tu__alloc_array((size_t)(b->batches.count * b->classes), sizeof *b->logits, "logits");
        if (!b->logits) status = TU_NO_MEMORY;
    }
    for (int64_t first = 0, count; first < b->batches.count && status == TU_OK; first += BATCH) {
        status = tu__image_batches_read(&b->batches, first, &count);
        if (status == TU_OK) status = tu__classifier_run(&classifier, b->batches.images);
        if (status == TU_OK)
            memcpy(b->logits + first * b->classes, classifier.logits,
                   (size_t)(count * b->classes) * sizeof *b->logits);
    }
    if (status == TU_OK) b->spread = spread_of(b->logits, b->batches.count, b->classes);
    tu__classifier_close(&classifier);
    return status;
}

static tu_status measure_graph(const quantizing *q, baseline *b, const tu_graph *graph,
                               tu_quantized_layer *layer) {
    tu__classifier classifier;
    tu_status status = tu__classifier_open(graph, BATCH, q->options.threads, &classifier);
    double squares = 0;
    int64_t correct = 0;
    for (int64_t first = 0, count; first < b->batches.count && status == TU_OK; first += BATCH) {
        status = tu__image_batches_read(&b->batches, first, &count);
        if (status == TU_OK) status = tu__classifier_run(&classifier, b->batches.images);
        if (status != TU_OK) break;
        for (int64_t i = 0; i < count; i++)
            correct += tu__classifier_class(&classifier, i) == b->batches.labels[i];
        for (int64_t i = 0; i < count * b->classes; i++) {
            const double distance = (double)classifier.logits[i] - (double)b->logits[first * b->classes + i];
            squares += distance * distance;
        }
    }
    layer->error = b->spread > 0 ? sqrt(squares / b->spread) : 0;
    layer->accuracy = (double)correct / (double)b->batches.count;
    tu__classifier_close(&classifier);
    return status;
}

static tu_status measure_layer(const quantizing *q, baseline *b, bool *keep, size_t index) {
    tu_graph *graph = NULL;
    const size_t count = tu__quantizer_layer_count(q->quantizer);
    for (size_t i = 0; i < count; i++) keep[i] = i != index;
    tu_status status = tu__quantizer_build(q->quantizer, q->method, keep, &graph);
    if (status == TU_OK) status = measure_graph(q, b, graph, &q->report->layers[index]);
    tu_graph_free(graph);
    return status;
}

static int by_error(const void *a, const void *b) {
    const double x = ((const tu_quantized_layer *)a)->error, y = ((const tu_quantized_layer *)b)->error;
    return x > y ? -1 : x < y ? 1 : 0;
}

static tu_status measure_layers(quantizing *q) {
    const size_t count = tu__quantizer_layer_count(q->quantizer);
    const int64_t images = q->options.layer_images ? q->options.layer_images : LAYER_IMAGES;
    if (images == TU_NO_LAYERS) return TU_OK;
    baseline b = {0};
    bool *keep = tu__alloc_array(count, sizeof *keep, "layers");
    tu_status status =
        keep ? tu__image_batches_open(q->set, TU_TEST, images, BATCH, &b.batches) : TU_NO_MEMORY;
    if (status == TU_OK) status = run_baseline(q, &b);
    for (size_t i = 0; i < count && status == TU_OK; i++) status = measure_layer(q, &b, keep, i);
    qsort(q->report->layers, count, sizeof *q->report->layers, by_error);
    tu__image_batches_close(&b.batches);
    tu__free(b.logits);
    tu__free(keep);
    return status;
}

/* ---- The graph of the file ---- */

static uint64_t constant_bytes(const tu_graph *graph) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i]->op->code == TU__OP_CONSTANT) bytes += tu_type_bytes(graph->nodes[i]->outputs[0]);
    return bytes;
}

static tu_status make_file_graph(const quantizing *q, tu_graph **graph, tu_state **state) {
    tu_graph *single = NULL;
    size_t count = 0;
    tu__named_tensor *variables = NULL;
    tu_status status = tu__rebatch(q->quantized, 1, &single);
    if (status == TU_OK) status = tu__thaw(single, MIN_VARIABLE, graph, &count, &variables);
    if (status == TU_OK) status = tu_state_new(*graph, state);
    for (size_t i = 0; i < count && status == TU_OK; i++)
        status = tu_state_set(*state, variables[i].name, variables[i].data, tu_type_bytes(variables[i].type));
    tu__free(variables);
    tu_graph_free(single);
    return status;
}

static void describe(const quantizing *q, const char *dataset, tu__text *text) {
    const tu_quantize_result *r = &q->report->result;
    tu__text_printf(text,
                    "%" PRId64 " of %" PRId64 " layers in int8, ranges by %s from %" PRId64
                    " images; accuracy %.4f, %.4f before, on %" PRId64 " test images of %s",
                    r->quantized, r->layers, q->method == TU__MIN_MAX ? "minmax" : "percentile",
                    r->calibration, r->accuracy, r->accuracy_before, r->images, dataset);
}

static tu_status quantize(quantizing *q, const tu_graph *graph, const tu_state *state) {
    TU_TRY(freeze(q, graph, state));
    TU_TRY(tu__quantizer_new(q->frozen, &q->quantizer));
    TU_TRY(choose_layers(q));
    TU_TRY(calibrate(q));
    TU_TRY(tu__quantizer_build(q->quantizer, q->method, q->keep, &q->quantized));
    q->report->result.weight_bytes_before = constant_bytes(q->frozen);
    q->report->result.weight_bytes = constant_bytes(q->quantized);
    TU_TRY(evaluate(q));
    return measure_layers(q);
}

static tu_status transform(void *context, const tu__run_config *config, const tu_dataset *set,
                           const tu_graph *graph, const tu_state *state, tu_graph **new_graph,
                           tu_state **new_state, tu__text *text) {
    quantizing *q = context;
    q->set = set;
    TU_TRY(quantize(q, graph, state));
    describe(q, config->dataset.name, text);
    return make_file_graph(q, new_graph, new_state);
}

/* ---- The interface ---- */

static tu_status quantize_run(quantizing *q, const char *folder, const char *path) {
    const tu_quantize_options *o = &q->options;
    const tu_export_options options = {.struct_size = sizeof options,
                                       .checkpoint = o->checkpoint,
                                       .name = o->name,
                                       .licence = o->licence,
                                       .data = o->data,
                                       .set = o->set,
                                       .offline = o->offline};
    const tu__export_transform how = {
        .run = transform, .context = q, .key = "quantization", .min_bound = MIN_BOUND};
    tu_export_result file = TU_SIZED(tu_export_result);
    tu_quantize_result *r = &q->report->result;
    TU_TRY(tu__export(folder, path, &file, &options, &how));
    r->step = file.step;
    r->bytes = file.bytes;
    memcpy(r->digest, file.digest, sizeof r->digest);
    return TU_OK;
}

tu_status tu_quantize_run_with(const char *folder, const char *path, tu_quantization **result,
                               const tu_quantize_options *options) {
    TU__OPTIONS(tu_quantize_options, o, options);
    quantizing q = {.options = o};
    if (result) *result = NULL;
    TU_TRY(check_options(&o, &q.method));
    q.report = tu__alloc(sizeof *q.report, "a quantized network");
    if (!q.report) return TU_NO_MEMORY;
    q.report->arena.purpose = "a quantized network";
    const tu_status status = quantize_run(&q, folder, path);
    if (status == TU_OK && result)
        *result = q.report;
    else
        tu_quantization_free(q.report);
    tu__quantizer_free(q.quantizer);
    tu_graph_free(q.quantized);
    tu_graph_free(q.frozen);
    tu__free(q.keep);
    return status;
}

tu_status tu_quantization_result(const tu_quantization *quantization, tu_quantize_result *result) {
    TU_TRY(TU__CHECK_SIZED(tu_quantize_result, result));
    TU__COPY_SIZED(result, quantization->result);
    return TU_OK;
}

size_t tu_quantization_layers(const tu_quantization *quantization) {
    return (size_t)quantization->result.layers;
}

tu_status tu_quantization_layer(const tu_quantization *quantization, size_t index,
                                tu_quantized_layer *layer) {
    TU_TRY(TU__CHECK_SIZED(tu_quantized_layer, layer));
    if (index >= tu_quantization_layers(quantization))
        return tu_fail(TU_NOT_FOUND, "layer %zu: the network has %zu layers", index,
                       tu_quantization_layers(quantization));
    TU__COPY_SIZED(layer, quantization->layers[index]);
    return TU_OK;
}

void tu_quantization_free(tu_quantization *quantization) {
    if (!quantization) return;
    tu__free(quantization->layers);
    tu__arena_free(&quantization->arena);
    tu__free(quantization);
}
