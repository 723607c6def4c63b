/* `tutti quantize RUN FILE`: writes a trained network as a model file that computes in int8. */
#include <inttypes.h>
#include <stdlib.h>

#include <tutti/command.h>
#include <tutti/train.h>

#include "cli/command.h"
#include "cli/common_options.h"

struct quantize_values {
    const char *checkpoint, *data, *name, *keep;
    int method;
    int64_t calibration, images, layer_images, threads;
    bool offline, json;
};

static const char *const methods[] = {"minmax", "percentile", NULL};

static const struct quantize_values defaults = {
    .checkpoint = "last", .method = 1, .calibration = 512, .layer_images = 1000};

static const struct cli_option options[] = {
    CLI_STRING(struct quantize_values, data, "data", 'd', "SET",
               CLI_HELP_DATA " (default: the data set of the run)"),
    CLI_CHOICE(
        struct quantize_values, method, "method", 0, "NAME", methods,
        "how the range of an activation is chosen: minmax, or percentile, which leaves out its largest and "
        "smallest 0.005%"),
    CLI_STRING(struct quantize_values, keep, "keep-f32", 0, "LAYERS",
               "layers to leave in f32, by name, as in 'conv1/*,logits*'"),
    CLI_INT(struct quantize_values, calibration, "calibration", 0, "N", 1, 1 << 24,
            "number of training images from which the ranges are taken"),
    CLI_INT(struct quantize_values, images, "images", 0, "N", 0, 1 << 24,
            "number of test images on which both networks are evaluated; 0: all"),
    CLI_INT(struct quantize_values, layer_images, "layer-images", 0, "N", 0, 1 << 24,
            "number of test images on which each layer is evaluated; 0: none"),
    CLI_STRING(struct quantize_values, checkpoint, "checkpoint", 'c', "NAME", CLI_HELP_CHECKPOINT),
    CLI_STRING(struct quantize_values, name, "name", 0, "NAME",
               "name of the model (default: that of the network)"),
    CLI_INT(struct quantize_values, threads, "threads", 't', "N", 0, 1024, CLI_HELP_THREADS),
    CLI_FLAG(struct quantize_values, offline, "offline", 0, CLI_HELP_OFFLINE),
    CLI_FLAG(struct quantize_values, json, "json", 0, CLI_HELP_JSON),
    {0},
};

enum { SHOWN_LAYERS = 8 };

static void print_layers(const tu_quantization *q) {
    const size_t count = tu_quantization_layers(q);
    printf("\nlayers that change the logits most, each quantized alone\n");
    printf("    error  accuracy  layer\n");
    for (size_t i = 0; i < count && i < SHOWN_LAYERS; i++) {
        tu_quantized_layer layer = TU_SIZED(tu_quantized_layer);
        if (tu_quantization_layer(q, i, &layer) != TU_OK) return;
        printf("%8.2f%%  %7.2f%%  %s%s\n", 100 * layer.error, 100 * layer.accuracy, layer.name,
               layer.kept ? " (kept in f32)" : "");
    }
}

static void print_text(const char *path, const struct quantize_values *v, const tu_quantization *q,
                       const tu_quantize_result *r) {
    printf("%-10s  %s, %" PRIu64 " bytes\n", "model file", path, r->bytes);
    printf("%-10s  after step %" PRId64 "\n", "checkpoint", r->step);
    printf("%-10s  %" PRId64 " of %" PRId64 " in int8, ranges by %s from %" PRId64 " images\n", "layers",
           r->quantized, r->layers, methods[v->method], r->calibration);
    printf("%-10s  %" PRIu64 " bytes, %" PRIu64 " in f32\n", "weights", r->weight_bytes,
           r->weight_bytes_before);
    printf("%-10s  %.2f%%, %.2f%% in f32, on %" PRId64 " test images; %.2f%% in the same class\n", "accuracy",
           100 * r->accuracy, 100 * r->accuracy_before, r->images, 100 * r->agreement);
    printf("%-10s  %.1f images/s, %.1f in f32, in batches of 32: %.2f times as fast\n", "speed", r->speed,
           r->speed_before, r->speed_before > 0 ? r->speed / r->speed_before : 0);
    printf("%-10s  %s\n", "SHA-256", r->digest);
    if (v->layer_images) print_layers(q);
}

static void print_json_layers(tu_json *json, const tu_quantization *q) {
    tu_json_begin_array(json, "sensitive_layers");
    for (size_t i = 0; i < tu_quantization_layers(q); i++) {
        tu_quantized_layer layer = TU_SIZED(tu_quantized_layer);
        if (tu_quantization_layer(q, i, &layer) != TU_OK) break;
        tu_json_begin_object(json, NULL);
        tu_json_string(json, "name", layer.name);
        tu_json_bool(json, "kept", layer.kept);
        tu_json_f64(json, "error", layer.error);
        tu_json_f64(json, "accuracy", layer.accuracy);
        tu_json_end_object(json);
    }
    tu_json_end_array(json);
}

static void print_json(const char *path, const struct quantize_values *v, const tu_quantization *q,
                       const tu_quantize_result *r) {
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "file", path);
    tu_json_u64(&json, "bytes", r->bytes);
    tu_json_i64(&json, "step", r->step);
    tu_json_i64(&json, "quantized", r->quantized);
    tu_json_i64(&json, "layers", r->layers);
    tu_json_string(&json, "method", methods[v->method]);
    tu_json_i64(&json, "calibration", r->calibration);
    tu_json_i64(&json, "images", r->images);
    tu_json_f64(&json, "accuracy_before", r->accuracy_before);
    tu_json_f64(&json, "accuracy", r->accuracy);
    tu_json_f64(&json, "agreement", r->agreement);
    tu_json_f64(&json, "images_per_second_before", r->speed_before);
    tu_json_f64(&json, "images_per_second", r->speed);
    tu_json_u64(&json, "weight_bytes_before", r->weight_bytes_before);
    tu_json_u64(&json, "weight_bytes", r->weight_bytes);
    tu_json_string(&json, "sha256", r->digest);
    if (v->layer_images) print_json_layers(&json, q);
    tu_json_end_object(&json);
    putchar('\n');
}

static int run(const void *given, int operand_count, char **operands) {
    (void)operand_count;
    const struct quantize_values *v = given;
    tu_quantization *q;
    tu_quantize_result result = TU_SIZED(tu_quantize_result);
    tu_status status = tu_quantize_run(
        operands[0], operands[1], &q, .checkpoint = v->checkpoint, .name = v->name, .data = v->data,
        .offline = v->offline, .method = methods[v->method], .keep = v->keep, .calibration = v->calibration,
        .images = v->images, .layer_images = v->layer_images ? v->layer_images : TU_NO_LAYERS,
        .threads = (int)v->threads);
    if (status == TU_OK) status = tu_quantization_result(q, &result);
    if (status == TU_OK) (v->json ? print_json : print_text)(operands[1], v, q, &result);
    if (status == TU_OK) tu_quantization_free(q);
    return cli_report(status);
}

const struct cli_command cli_command_quantize = {
    .name = "quantize",
    .summary = "writes a trained network as a model file that computes in int8",
    .usage = "RUN FILE [OPTIONS]",
    .description = "Writes the network of the run folder RUN as the model file FILE, in which\n"
                   "convolutions and dense layers compute in int8: about four times as fast as f32\n"
                   "on CPUs with VNNI, with weights of a quarter of the size. The ranges of\n"
                   "activations come from training images. Prints size, speed and accuracy before\n"
                   "and after, and the layers that cost most accuracy: leave these in f32 with\n"
                   "--keep-f32.",
    .options = options,
    .values_size = sizeof(struct quantize_values),
    .defaults = &defaults,
    .min_operands = 2,
    .max_operands = 2,
    .run = run,
};
