/* Building the graphs of a run from its settings. See step_graphs.h. */
#include "train/step_graphs.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/layers.h>
#include <tutti/network.h>
#include <tutti/ops.h>

#include "base/text.h"
#include "data/dataset.h"
#include "train/task.h"

enum { MAX_GROUPS = 64, MAX_DECAY_TEXT = 4096, INITIAL_LOSS_SCALE = 65536 };

/* ---- Preprocessing and network ---- */

/* Returns the input size of the network along one axis: the requested size, else the smaller of the model's default
 * and the image size. */
static int64_t input_size(int64_t requested, int64_t model_default, int64_t image) {
    if (requested > 0) return requested;
    return model_default > 0 && model_default < image ? model_default : image;
}

static tu_value invalid(tu_graph *graph) {
    return (tu_value){.graph = graph, .node = TU_NO_NODE};
}

tu_value tu__preprocessed_pictures(const tu_task_batch *b) {
    const tu__run_config *config = b->config;
    const tu__settings *s = &config->settings;
    const tu_dataset_info *dataset = &config->dataset;
    tu_network_options defaults = TU_SIZED(tu_network_options);
    if (tu_network_defaults(config->network, &defaults) != TU_OK) return invalid(b->graph);
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
    return tu_preprocess_with(tu_task_column(b, "images"), &p);
}

/* Builds the task's input and the network. Returns its output, [n, outputs] or [n, context, outputs]. */
static tu_value build_network(const tu_task_batch *b, const tu_task *task) {
    tu_value output = invalid(b->graph), x = tu__task_input(task, b);
    if (!tu_ok(x)) return output;
    if (tu_network_logits(x, b->config->network, &output, .classes = tu__task_outputs(task, b),
                          .base = b->config->settings.base,
                          .parameters = b->config->settings.network) != TU_OK)
        output = invalid(b->graph);
    return output;
}

/* The columns of pictures are inputs in this order, before anything else. Other columns become inputs when the task asks
 * for them. */
static void make_inputs(const tu_task_batch *b) {
    if (!tu__has_pictures(&b->config->dataset)) return;
    (void)tu_task_column(b, "images");
    if (b->use != TU__TASK_PREDICTION) (void)tu_task_target(b);
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
    const tu_train_hooks *hooks = config->hooks;
    if (hooks && hooks->schedule) return hooks->schedule(hooks->context, graph, s->rate, config->steps);
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

/* Returns the status of a graph whose network or loss could not be built. */
static tu_status failure(const tu_graph *graph) {
    tu_status status = tu_graph_status(graph);
    return status == TU_OK ? TU_INVALID : status;
}

/* A task of the user may return anything. */
static tu_status check_loss(const tu_task *task, const tu_task_batch *b, tu_value loss) {
    TU_TRY(tu_graph_status(b->graph));
    tu_type type = tu_value_type(loss);
    bool valid = tu_ok(loss) && loss.graph == b->graph && type.dtype == TU_F32 && type.shape.rank == 1 &&
                 type.shape.dim[0] == b->samples;
    if (valid) return TU_OK;
    return tu_fail(TU_INVALID,
                   "task '%s': .loss returns '%s' %s: expected a number per sample, f32[%" PRId64 "]",
                   task->name, tu_value_name(loss), tu__type_string(type), b->samples);
}

static tu_status add_step(const tu__run_config *config, const tu_task *task, int64_t samples,
                          tu_graph *graph) {
    const tu__settings *s = &config->settings;
    const tu_task_batch b = {graph, config, samples, TU__TASK_STEP};
    tu_set_batch_norm_scope(graph, batch_norm_scope(s));
    make_inputs(&b);
    tu_value output = build_network(&b, task);
    TU_TRY(tu_ok(output) ? TU_OK : failure(graph));
    tu_value losses = task->loss(&b, output);
    TU_TRY(check_loss(task, &b, losses));
    tu_value loss = tu_mean(losses);
    tu_output(loss, "loss");
    if (tu__is_classification(config)) tu_output(count_correct(output, tu_task_target(&b)), "correct");
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
static tu_value trained_network(const tu_task_batch *b, const tu_task *task) {
    tu_value output = invalid(b->graph);
    if (b->config->settings.average > 0)
        tu_scope(b->graph, "average") output = build_network(b, task);
    else
        output = build_network(b, task);
    return output;
}

/* Returns the number of samples (i64) whose label is among the five largest logits. */
static tu_value count_top5(tu_value logits, tu_value labels, int64_t classes) {
    tu_value indices = tu_output_of(tu_top_k(logits, classes < 5 ? classes : 5, -1), 1);
    tu_value expected = tu_expand_axis(tu_cast(labels, TU_I64), 1);
    return count_true(tu_equal(indices, expected));
}

static void add_classification(const tu_task_batch *b, tu_value logits) {
    tu_value labels = tu_task_target(b);
    tu_output(tu_sum(tu_cross_entropy(logits, labels)), "loss");
    tu_output(count_correct(logits, labels), "correct");
    tu_output(count_top5(logits, labels, b->config->dataset.classes), "top5");
    tu_output(predicted_class(logits), "class");
    tu_output(tu_softmax(tu_cast(logits, TU_F32), -1), "probability");
}

static tu_status add_evaluation(const tu__run_config *config, const tu_task *task, int64_t samples,
                                tu_graph *graph) {
    const tu_task_batch b = {graph, config, samples, TU__TASK_EVALUATION};
    tu_set_training(graph, false);
    make_inputs(&b);
    tu_value output = trained_network(&b, task);
    TU_TRY(tu_ok(output) ? TU_OK : failure(graph));
    if (tu__is_classification(config)) {
        add_classification(&b, output);
        return tu_graph_status(graph);
    }
    tu_value losses = task->loss(&b, output);
    TU_TRY(check_loss(task, &b, losses));
    tu__task_sum_losses(&b, losses);
    if (task->measure) task->measure(&b, output);
    return tu_graph_status(graph);
}

static tu_status add_prediction(const tu__run_config *config, const tu_task *task, tu_graph *graph) {
    const tu_task_batch b = {graph, config, 1, TU__TASK_PREDICTION};
    tu_set_training(graph, false);
    make_inputs(&b);
    tu_value output = trained_network(&b, task);
    TU_TRY(tu_ok(output) ? TU_OK : failure(graph));
    tu_value prediction = tu__task_predict(task, &b, output);
    bool has_classes = tu__is_classification(config);
    if (!has_classes && tu_ok(prediction) && tu_value_dtype(prediction) != TU_F32)
        prediction = tu_cast(prediction, TU_F32);
    tu_output(prediction, has_classes ? "probability" : "prediction");
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
    const tu_task *task;
    TU_TRY(tu__task_find(config->task, &task));
    TU_TRY(tu_graph_new(graph));
    return free_on_error(add_step(config, task, samples, *graph), graph);
}

tu_status tu__build_apply(const tu__run_config *config, const tu_graph *step, tu_graph **graph) {
    TU_TRY(tu_graph_new(graph));
    return free_on_error(add_apply(config, step, *graph), graph);
}

tu_status tu__build_evaluation(const tu__run_config *config, int64_t samples, tu_graph **graph) {
    const tu_task *task;
    TU_TRY(tu__task_find(config->task, &task));
    TU_TRY(tu_graph_new(graph));
    return free_on_error(add_evaluation(config, task, samples, *graph), graph);
}

tu_status tu__build_metrics(tu__run_config *config, const tu_graph *evaluation, tu_graph **graph) {
    const tu_task *task;
    TU_TRY(tu__task_find(config->task, &task));
    return tu__task_build_metrics(task, evaluation, config, graph);
}

tu_status tu__build_prediction(const tu__run_config *config, tu_graph **graph) {
    const tu_task *task;
    TU_TRY(tu__task_find(config->task, &task));
    TU_TRY(tu_graph_new(graph));
    return free_on_error(add_prediction(config, task, *graph), graph);
}
