/* Building the graphs of a run from its settings. See step_graphs.h. */
#include "train/step_graphs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/layers.h>
#include <tutti/model.h>
#include <tutti/ops.h>

enum { MAX_GROUPS = 64, LONGEST_DECAY = 4096, FIRST_LOSS_SCALE = 65536 };

/* ---- The network and what stands before it ---- */

/* The size the network sees along one axis: as asked for, else its own, but never more than the images have. */
static int64_t input_size(int64_t asked, int64_t own, int64_t stored) {
    if (asked > 0) return asked;
    return own > 0 && own < stored ? own : stored;
}

/* images -> logits [n, classes] */
static tu_value network(tu_value images, const tu__run_config *config) {
    const tu__settings *s = &config->settings;
    const tu_dataset_info *set = &config->set;
    tu_value logits = {.graph = images.graph, .node = TU_NO_NODE};
    tu_model_options own = TU_SIZED(tu_model_options);
    if (tu_model_defaults(config->network, &own) != TU_OK) return logits;
    tu_preprocess_options p = {.struct_size = sizeof p,
                               .height = input_size(s->image_size, own.height, set->height),
                               .width = input_size(s->image_size, own.width, set->width),
                               .resize = s->image_size > 0,
                               .pad = s->pad,
                               .flip = s->flip,
                               .brightness = s->brightness,
                               .cutout = s->cutout,
                               .standardize = s->standardize};
    if (s->contrast > 0) p.contrast[0] = 1 - s->contrast, p.contrast[1] = 1 + s->contrast;
    memcpy(p.mean, set->mean, sizeof p.mean);
    memcpy(p.deviation, set->deviation, sizeof p.deviation);
    tu_value x = tu_preprocess_with(images, &p);
    if (tu_model_logits(x, config->network, &logits, .classes = set->classes, .base = s->base) != TU_OK)
        logits.node = TU_NO_NODE;
    return logits;
}

typedef struct inputs {
    tu_value images, labels;
} inputs;

static inputs make_inputs(tu_graph *graph, const tu__run_config *config, int64_t samples) {
    const tu_dataset_info *set = &config->set;
    tu_shape shape = TU_SHAPE(samples, set->height, set->width, set->channels);
    return (inputs){tu_batch_input(graph, "images", set->dtype, shape),
                    tu_batch_input(graph, "labels", TU_I32, TU_SHAPE(samples))};
}

static tu_value count_true(tu_value truths) {
    return tu_sum(tu_cast(truths, TU_I64));
}

/* The class with the largest logit, i64[n]. */
static tu_value class_of(tu_value logits) {
    return tu_argmax(logits, -1);
}

static tu_value count_correct(tu_value logits, tu_value labels) {
    return count_true(tu_equal(class_of(logits), tu_cast(labels, TU_I64)));
}

/* ---- The update ---- */

/* A decided setting as an option, where zero would stand for the default and a negative number stands for zero. */
static double as_option(double setting) {
    return setting == 0 ? -1 : setting;
}

static tu_value rate_of_step(tu_graph *graph, const tu__run_config *config) {
    const tu__settings *s = &config->settings;
    return tu_schedule(graph, .kind = s->schedule, .rate = s->rate, .warmup = s->warmup,
                       .steps = config->steps,
                       .every = (int64_t)llround(s->rate_every * (double)config->steps_per_epoch),
                       .factor = as_option(s->rate_factor), .end = s->rate_end, .peak_at = s->rate_peak);
}

/* One "PATTERN=DECAY" of a list; `entry` is written to. */
static tu_status parse_group(char *entry, tu_optimizer_group *group) {
    char *equals = strrchr(entry, '='), *end = NULL;
    if (equals) group->weight_decay = strtod(equals + 1, &end);
    if (!equals || equals == entry || end == equals + 1 || *end || !(group->weight_decay >= 0) ||
        !isfinite(group->weight_decay))
        return tu_fail(TU_INVALID, "--decay '%.60s': expected PATTERN=D, as in 'local*/weights=0.004'",
                       entry);
    *equals = '\0';
    group->pattern = entry;
    return TU_OK;
}

/* "PATTERN=D,PATTERN=D" as groups; `text` is written to and must outlive them. */
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

/* Adds the optimizer to the graph of `loss`, or, where there is none, to `graph` for the sums of `step`. */
static tu_status add_update(const tu__run_config *config, tu_graph *graph, const tu_value *loss,
                            const tu_graph *step, tu_optimizer_values *values) {
    const tu__settings *s = &config->settings;
    tu_optimizer_group groups[MAX_GROUPS] = {{0}};
    char decay[LONGEST_DECAY];
    if (strlen(s->decay) >= sizeof decay)
        return tu_fail(TU_INVALID, "--decay '%.40s…': expected at most %d characters", s->decay,
                       LONGEST_DECAY - 1);
    strcpy(decay, s->decay); // NOLINT(clang-analyzer-security.insecureAPI.strcpy): measured above
    tu_optimizer_options o = {.struct_size = sizeof o,
                              .name = s->optimizer,
                              .rate = rate_of_step(graph, config),
                              .momentum = as_option(s->momentum),
                              .weight_decay = s->weight_decay,
                              .groups = groups,
                              .clip_norm = s->clip,
                              .average = s->average,
                              .freeze = *s->freeze ? s->freeze : NULL,
                              .stop_at_bad = loss != NULL,
                              .loss_scale = loss && strcmp(s->precision, "f16") == 0 ? FIRST_LOSS_SCALE : 0};
    TU_TRY(tu_graph_status(graph));
    TU_TRY(parse_groups(decay, &o.group_count, groups));
    return loss ? tu_add_optimizer_with(*loss, values, &o) : tu_add_apply_with(graph, step, values, &o);
}

static void name_values(const tu_optimizer_values *values) {
    tu_output(values->rate, "rate");
    tu_output(values->gradient_norm, "gradient_norm");
    tu_output(values->finite, "finite");
}

/* ---- The graphs ---- */

int64_t tu__piece_size(const tu__run_config *config) {
    return config->settings.batch / config->settings.accumulate;
}

static tu_batch_scope batch_scope(const tu__settings *s) {
    if (strcmp(s->batch_norm, "replica") == 0) return TU_SCOPE_REPLICA;
    return strcmp(s->batch_norm, "shard") == 0 ? TU_SCOPE_SHARD : TU_SCOPE_GLOBAL;
}

static tu_status add_step(const tu__run_config *config, int64_t samples, tu_graph *graph) {
    const tu__settings *s = &config->settings;
    tu_set_batch_scope(graph, batch_scope(s));
    inputs in = make_inputs(graph, config, samples);
    tu_value logits = network(in.images, config);
    TU_TRY(tu_ok(logits) ? TU_OK : tu_graph_status(graph) != TU_OK ? tu_graph_status(graph) : TU_INVALID);
    tu_value loss = tu_mean(tu_cross_entropy(logits, in.labels, .smoothing = s->label_smoothing));
    tu_output(loss, "loss");
    tu_output(count_correct(logits, in.labels), "correct");
    if (s->accumulate == 1) {
        tu_optimizer_values values = TU_SIZED(tu_optimizer_values);
        TU_TRY(add_update(config, graph, &loss, NULL, &values));
        name_values(&values);
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
    name_values(&values);
    return tu_graph_status(graph);
}

/* The network for use: the averaged weights where the run keeps them. */
static tu_value trained_network(tu_value images, const tu__run_config *config) {
    tu_value logits = {.graph = images.graph, .node = TU_NO_NODE};
    if (config->settings.average > 0)
        tu_scope(images.graph, "average") logits = network(images, config);
    else
        logits = network(images, config);
    return logits;
}

/* Whether the label is among the five largest logits: i64 count of such samples. */
static tu_value count_among_five(tu_value logits, tu_value labels, int64_t classes) {
    tu_value indices = tu_output_of(tu_top_k(logits, classes < 5 ? classes : 5, -1), 1);
    tu_value wanted = tu_expand_axis(tu_cast(labels, TU_I64), 1);
    return count_true(tu_equal(indices, wanted));
}

static tu_status add_evaluation(const tu__run_config *config, int64_t samples, tu_graph *graph) {
    tu_set_training(graph, false);
    inputs in = make_inputs(graph, config, samples);
    tu_value logits = trained_network(in.images, config);
    tu_output(tu_sum(tu_cross_entropy(logits, in.labels)), "loss");
    tu_output(count_correct(logits, in.labels), "correct");
    tu_output(count_among_five(logits, in.labels, config->set.classes), "top5");
    tu_output(class_of(logits), "class");
    tu_output(tu_softmax(tu_cast(logits, TU_F32), -1), "probability");
    return tu_graph_status(graph);
}

static tu_status add_prediction(const tu__run_config *config, tu_graph *graph) {
    tu_set_training(graph, false);
    const tu_dataset_info *set = &config->set;
    tu_value image =
        tu_batch_input(graph, "images", set->dtype, TU_SHAPE(1, set->height, set->width, set->channels));
    tu_value logits = trained_network(image, config);
    tu_output(tu_softmax(tu_cast(logits, TU_F32), -1), "probability");
    return tu_graph_status(graph);
}

/* Frees a graph that could not be finished. */
static tu_status finish(tu_status status, tu_graph **graph) {
    if (status == TU_OK) return TU_OK;
    tu_graph_free(*graph);
    *graph = NULL;
    return status;
}

tu_status tu__build_step(const tu__run_config *config, int64_t samples, tu_graph **graph) {
    TU_TRY(tu_graph_new(graph));
    return finish(add_step(config, samples, *graph), graph);
}

tu_status tu__build_apply(const tu__run_config *config, const tu_graph *step, tu_graph **graph) {
    TU_TRY(tu_graph_new(graph));
    return finish(add_apply(config, step, *graph), graph);
}

tu_status tu__build_evaluation(const tu__run_config *config, int64_t samples, tu_graph **graph) {
    TU_TRY(tu_graph_new(graph));
    return finish(add_evaluation(config, samples, *graph), graph);
}

tu_status tu__build_prediction(const tu__run_config *config, tu_graph **graph) {
    TU_TRY(tu_graph_new(graph));
    return finish(add_prediction(config, *graph), graph);
}
