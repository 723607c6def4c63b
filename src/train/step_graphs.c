/* Building the graphs of a run from its settings. See step_graphs.h. */
#include "train/step_graphs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/layers.h>
#include <tutti/model.h>
#include <tutti/ops.h>

enum { MAX_GROUPS = 64, MAX_DECAY_TEXT = 4096, INITIAL_LOSS_SCALE = 65536 };

/* ---- Preprocessing and network ---- */

/* Returns the input size of the network along one axis: the requested size, else the smaller of the model's default
 * and the image size. */
static int64_t input_size(int64_t requested, int64_t model_default, int64_t image) {
    if (requested > 0) return requested;
    return model_default > 0 && model_default < image ? model_default : image;
}

/* Preprocesses the images and builds the network. Returns logits [n, classes]. */
static tu_value build_network(tu_value images, const tu__run_config *config) {
    const tu__settings *s = &config->settings;
    const tu_dataset_info *dataset = &config->dataset;
    tu_value logits = {.graph = images.graph, .node = TU_NO_NODE};
    tu_model_options defaults = TU_SIZED(tu_model_options);
    if (tu_model_defaults(config->network, &defaults) != TU_OK) return logits;
    tu_preprocess_options p = {.struct_size = sizeof p,
                               .height = input_size(s->image_size, defaults.height, dataset->height),
                               .width = input_size(s->image_size, defaults.width, dataset->width),
                               .resize = s->image_size > 0,
                               .pad = s->pad,
                               .flip = s->flip,
                               .brightness = s->brightness,
                               .cutout = s->cutout,
                               .standardize = s->standardize};
    if (s->contrast > 0) p.contrast[0] = 1 - s->contrast, p.contrast[1] = 1 + s->contrast;
    memcpy(p.mean, dataset->mean, sizeof p.mean);
    memcpy(p.deviation, dataset->deviation, sizeof p.deviation);
    tu_value x = tu_preprocess_with(images, &p);
    if (tu_model_logits(x, config->network, &logits, .classes = dataset->classes, .base = s->base) != TU_OK)
        logits.node = TU_NO_NODE;
    return logits;
}

typedef struct inputs {
    tu_value images, labels;
} inputs;

static inputs make_inputs(tu_graph *graph, const tu__run_config *config, int64_t samples) {
    const tu_dataset_info *dataset = &config->dataset;
    tu_shape shape = TU_SHAPE(samples, dataset->height, dataset->width, dataset->channels);
    return (inputs){tu_batch_input(graph, "images", dataset->dtype, shape),
                    tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(samples))};
}

static tu_value count_true(tu_value mask) {
    return tu_sum(tu_cast(mask, TU_I64));
}

/* Returns the class with the largest logit, i64[n]. */
static tu_value predicted_class(tu_value logits) {
    return tu_argmax(logits, -1);
}

static tu_value count_correct(tu_value logits, tu_value labels) {
    return count_true(tu_equal(predicted_class(logits), tu_cast(labels, TU_I64)));
}

/* ---- The update ---- */

/* In options 0 means the default and a negative number means 0: encodes 0 as -1. */
static double encode_zero(double setting) {
    return setting == 0 ? -1 : setting;
}

static tu_value build_learning_rate(tu_graph *graph, const tu__run_config *config) {
    const tu__settings *s = &config->settings;
    return tu_schedule(graph, .kind = s->schedule, .rate = s->rate, .warmup = s->warmup,
                       .steps = config->steps,
                       .every = (int64_t)llround(s->rate_every * (double)config->steps_per_epoch),
                       .factor = encode_zero(s->rate_factor), .end = s->rate_end, .peak_at = s->rate_peak);
}

/* Parses one PATTERN=DECAY entry; modifies `entry`. */
static tu_status parse_group(char *entry, tu_optimizer_group *group) {
    char *equals = strrchr(entry, '='), *end = NULL;
    if (equals) group->weight_decay = strtod(equals + 1, &end);
    if (!equals || equals == entry || end == equals + 1 || *end || !(group->weight_decay >= 0) ||
        !isfinite(group->weight_decay))
        return tu_fail(TU_INVALID, "--decay '%.60s': expected PATTERN=D, for example 'local*/weights=0.004'",
                       entry);
    *equals = '\0';
    group->pattern = entry;
    return TU_OK;
}

/* Parses a list PATTERN=D,PATTERN=D. Modifies `text`; the groups point into it. */
static tu_status parse_groups(char *text, size_t *count, tu_optimizer_group groups[MAX_GROUPS]) {
    *count = 0;
    char *rest = NULL;
    for (char *entry = strtok_r(text, ",", &rest); entry; entry = strtok_r(NULL, ",", &rest)) {
        if (*count == MAX_GROUPS)
            return tu_fail(TU_INVALID, "--decay lists more than %d patterns", MAX_GROUPS);
        TU_TRY(parse_group(entry, &groups[(*count)++]));
    }
    return TU_OK;
}

/* With `loss`: adds the backward pass and the optimizer to its graph. Without: adds to `graph` an optimizer that
 * applies the gradients accumulated by `step`. */
static tu_status add_update(const tu__run_config *config, tu_graph *graph, const tu_value *loss,
                            const tu_graph *step, tu_optimizer_values *values) {
    const tu__settings *s = &config->settings;
    tu_optimizer_group groups[MAX_GROUPS] = {{0}};
    char decay[MAX_DECAY_TEXT];
    if (strlen(s->decay) >= sizeof decay)
        return tu_fail(TU_INVALID, "--decay '%.40s…': expected at most %d characters", s->decay,
                       MAX_DECAY_TEXT - 1);
    strcpy(decay, s->decay); // NOLINT(clang-analyzer-security.insecureAPI.strcpy): measured above
    tu_optimizer_options o = {.struct_size = sizeof o,
                              .name = s->optimizer,
                              .rate = build_learning_rate(graph, config),
                              .momentum = encode_zero(s->momentum),
                              .weight_decay = s->weight_decay,
                              .groups = groups,
                              .clip_norm = s->clip,
                              .average = s->average,
                              .freeze = *s->freeze ? s->freeze : NULL,
                              .stop_at_nonfinite = loss != NULL,
                              .loss_scale =
                                  loss && strcmp(s->precision, "f16") == 0 ? INITIAL_LOSS_SCALE : 0};
    TU_TRY(tu_graph_status(graph));
    TU_TRY(parse_groups(decay, &o.group_count, groups));
    return loss ? tu_add_optimizer_with(*loss, values, &o) : tu_add_apply_with(graph, step, values, &o);
}

static void declare_outputs(const tu_optimizer_values *values) {
    tu_output(values->rate, "rate");
    tu_output(values->gradient_norm, "gradient_norm");
    tu_output(values->finite, "finite");
}

/* ---- The graphs ---- */

int64_t tu__micro_batch_size(const tu__run_config *config) {
    return config->settings.batch / config->settings.accumulate;
}

static tu_batch_scope batch_norm_scope(const tu__settings *s) {
    if (strcmp(s->batch_norm, "replica") == 0) return TU_SCOPE_REPLICA;
    return strcmp(s->batch_norm, "shard") == 0 ? TU_SCOPE_SHARD : TU_SCOPE_GLOBAL;
}

static tu_status add_step(const tu__run_config *config, int64_t samples, tu_graph *graph) {
    const tu__settings *s = &config->settings;
    tu_set_batch_norm_scope(graph, batch_norm_scope(s));
    inputs in = make_inputs(graph, config, samples);
    tu_value logits = build_network(in.images, config);
    TU_TRY(tu_ok(logits) ? TU_OK : tu_graph_status(graph) != TU_OK ? tu_graph_status(graph) : TU_INVALID);
    tu_value loss = tu_mean(tu_cross_entropy(logits, in.labels, .smoothing = s->label_smoothing));
    tu_output(loss, "loss");
    tu_output(count_correct(logits, in.labels), "correct");
    if (s->accumulate == 1) {
        tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
        TU_TRY(add_update(config, graph, &loss, NULL, &values));
        declare_outputs(&values);
        return tu_graph_status(graph);
    }
    tu_value share = tu_input(graph, "share", TU_F32, TU_SCALAR), finite;
    TU_TRY(tu_add_accumulation(tu_mul(loss, share), 1, *s->freeze ? s->freeze : NULL, &finite));
    tu_output(finite, "finite");
    return tu_graph_status(graph);
}

static tu_status add_apply(const tu__run_config *config, const tu_graph *step, tu_graph *graph) {
    tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
    TU_TRY(add_update(config, graph, NULL, step, &values));
    declare_outputs(&values);
    return tu_graph_status(graph);
}

/* Builds the network for inference. Uses the moving averages of the weights, which are the variables in the scope
 * "average", if the run has them. */
static tu_value trained_network(tu_value images, const tu__run_config *config) {
    tu_value logits = {.graph = images.graph, .node = TU_NO_NODE};
    if (config->settings.average > 0)
        tu_scope(images.graph, "average") logits = build_network(images, config);
    else
        logits = build_network(images, config);
    return logits;
}

/* Returns the number of samples (i64) whose label is among the five largest logits. */
static tu_value count_top5(tu_value logits, tu_value labels, int64_t classes) {
    tu_value indices = tu_output_of(tu_top_k(logits, classes < 5 ? classes : 5, -1), 1);
    tu_value expected = tu_expand_axis(tu_cast(labels, TU_I64), 1);
    return count_true(tu_equal(indices, expected));
}

static tu_status add_evaluation(const tu__run_config *config, int64_t samples, tu_graph *graph) {
    tu_set_training(graph, false);
    inputs in = make_inputs(graph, config, samples);
    tu_value logits = trained_network(in.images, config);
    tu_output(tu_sum(tu_cross_entropy(logits, in.labels)), "loss");
    tu_output(count_correct(logits, in.labels), "correct");
    tu_output(count_top5(logits, in.labels, config->dataset.classes), "top5");
    tu_output(predicted_class(logits), "class");
    tu_output(tu_softmax(tu_cast(logits, TU_F32), -1), "probability");
    return tu_graph_status(graph);
}

static tu_status add_prediction(const tu__run_config *config, tu_graph *graph) {
    tu_set_training(graph, false);
    const tu_dataset_info *dataset = &config->dataset;
    tu_value image = tu_batch_input(graph, "images", dataset->dtype,
                                    TU_SHAPE(1, dataset->height, dataset->width, dataset->channels));
    tu_value logits = trained_network(image, config);
    tu_output(tu_softmax(tu_cast(logits, TU_F32), -1), "probability");
    return tu_graph_status(graph);
}

/* Frees the graph if building it failed. */
static tu_status free_on_error(tu_status status, tu_graph **graph) {
    if (status == TU_OK) return TU_OK;
    tu_graph_free(*graph);
    *graph = NULL;
    return status;
}

tu_status tu__build_step(const tu__run_config *config, int64_t samples, tu_graph **graph) {
    TU_TRY(tu_graph_new(graph));
    return free_on_error(add_step(config, samples, *graph), graph);
}

tu_status tu__build_apply(const tu__run_config *config, const tu_graph *step, tu_graph **graph) {
    TU_TRY(tu_graph_new(graph));
    return free_on_error(add_apply(config, step, *graph), graph);
}

tu_status tu__build_evaluation(const tu__run_config *config, int64_t samples, tu_graph **graph) {
    TU_TRY(tu_graph_new(graph));
    return free_on_error(add_evaluation(config, samples, *graph), graph);
}

tu_status tu__build_prediction(const tu__run_config *config, tu_graph **graph) {
    TU_TRY(tu_graph_new(graph));
    return free_on_error(add_prediction(config, *graph), graph);
}
