/* The list of tasks, and the functions of include/tutti/task.h. See task.h. */
#include "train/task.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <tutti/network.h>
#include <tutti/ops.h>

#include "base/alloc.h"
#include "base/choice.h"
#include "base/sized.h"
#include "graph/graph.h"
#include "network/network.h"
#include "train/feeder.h"
#include "train/metrics_graph.h"

/* ---- The list ---- */

static const tu_task *const built_in[] = {&tu__task_classification, &tu__task_labels, &tu__task_regression,
                                          &tu__task_next_token};
enum { BUILT_IN = sizeof built_in / sizeof *built_in, MAX_ADDED = 64, LONGEST_NAME = 31 };

static const tu_task *added[MAX_ADDED];
static size_t added_count;
static pthread_mutex_t added_lock = PTHREAD_MUTEX_INITIALIZER;

static const tu_task *task_at(size_t index) {
    if (index < BUILT_IN) return built_in[index];
    index -= BUILT_IN;
    pthread_mutex_lock(&added_lock);
    const tu_task *found = index < added_count ? added[index] : NULL;
    size_t count = added_count;
    pthread_mutex_unlock(&added_lock);
    return found || index < count ? found : tu__loaded_task(index - count);
}

static tu_status check_task(const tu_task *task) {
    if (!task || task->abi != TU_ABI || task->struct_size < TU__FIRST_SIZE(tu_task, predict))
        return tu_fail(
            TU_UNSUPPORTED,
            "a task was compiled for another Tutti version: recompile it with this version's headers, and "
            "define it with TU_TASK");
    if (!task->name || !*task->name || strlen(task->name) > LONGEST_NAME || !task->summary || !task->loss)
        return tu_fail(TU_INVALID, "task '%.60s': expected a name of 1 to %d characters, .summary and .loss",
                       task->name ? task->name : "", LONGEST_NAME);
    for (size_t i = 0; i < BUILT_IN; i++)
        if (strcmp(built_in[i]->name, task->name) == 0 && task != built_in[i])
            return tu_fail(TU_INVALID, "task '%s': a built-in task has this name, choose another one",
                           task->name);
    return TU_OK;
}

tu_status tu_task_add(const tu_task *task) {
    TU_TRY(check_task(task));
    pthread_mutex_lock(&added_lock);
    size_t index = 0;
    while (index < added_count && strcmp(added[index]->name, task->name) != 0) index++;
    if (index < MAX_ADDED) added[index] = task;
    if (index == added_count && index < MAX_ADDED) added_count++;
    pthread_mutex_unlock(&added_lock);
    return index < MAX_ADDED ? TU_OK : tu_fail(TU_UNSUPPORTED, "more than %d tasks", MAX_ADDED);
}

size_t tu_task_count(void) {
    size_t count = 0;
    while (task_at(count)) count++;
    return count;
}

tu_status tu_task_at(size_t index, const char **name, const char **summary) {
    const tu_task *task = task_at(index);
    if (!task) return tu_fail(TU_NOT_FOUND, "task index %zu: expected 0 to %zu", index, tu_task_count() - 1);
    *name = task->name;
    *summary = task->summary;
    return TU_OK;
}

tu_status tu__task_find(const char *name, const tu_task **task) {
    const char *names[BUILT_IN + 2 * MAX_ADDED];
    size_t count = 0;
    for (size_t i = 0; (*task = task_at(i)) && count < BUILT_IN + 2 * MAX_ADDED; i++) {
        if (strcmp((*task)->name, name) == 0) return check_task(*task);
        names[count++] = (*task)->name;
    }
    return tu__fail_unknown_choice(TU_NOT_FOUND, "unknown task", name, count, names);
}

tu_status tu__task_choose(const tu__run_config *config, const tu_task **task) {
    const tu__columns *columns = &config->columns;
    const tu__column *target = tu__columns_target(columns);
    *task = NULL;
    if (target && target->kind == TU_COLUMN_CLASS)
        *task = &tu__task_classification;
    else if (target && target->type.dtype == TU_F32)
        *task = &tu__task_regression;
    else if (!target && tu__columns_of_kind(columns, TU_COLUMN_TOKENS))
        *task = &tu__task_next_token;
    if (*task) return TU_OK;
    return tu_fail(TU_INVALID, "data set '%s' does not say what is to be learned: %s", config->dataset.name,
                   target ? "name a task with --task" : "name the column to predict with --target");
}

bool tu__is_classification(const tu__run_config *config) {
    return strcmp(config->task, tu__task_classification.name) == 0;
}

/* ---- What functions of tasks call ---- */

tu_graph *tu_task_graph(const tu_task_batch *b) {
    return b->graph;
}

static int64_t target_count(const tu__column *target) {
    return target ? tu_shape_elements(target->type.shape) : 1;
}

tu_status tu_task_describe(const tu_task_batch *b, tu_task_setting *setting) {
    TU_TRY(TU__CHECK_SIZED(tu_task_setting, setting));
    const tu__column *target = tu__columns_target(&b->config->columns),
                     *tokens = tu__columns_of_kind(&b->config->columns, TU_COLUMN_TOKENS);
    tu_task_setting full = {.samples = b->samples,
                            .classes = target   ? target->classes
                                       : tokens ? tokens->classes
                                                : 0,
                            .targets = target_count(target),
                            .label_smoothing =
                                b->use == TU__TASK_STEP ? b->config->settings.label_smoothing : 0};
    TU__COPY_SIZED(setting, full);
    return TU_OK;
}

/* Windows of a prediction have no target, the last token. */
static tu_type batch_type(const tu_task_batch *b, const tu__column *c) {
    tu_type type = {c->type.dtype, {.rank = c->type.shape.rank + 1, .dim = {b->samples}}};
    for (int64_t i = 0; i < c->type.shape.rank; i++) type.shape.dim[i + 1] = c->type.shape.dim[i];
    if (c->kind == TU_COLUMN_TOKENS && b->use == TU__TASK_PREDICTION) type.shape.dim[1]--;
    return type;
}

/* Inputs are outside of all scopes, wherever the task asks for them. */
static tu_value make_input(tu_graph *graph, const char *name, tu_type type) {
    char *scope;
    tu_value found = tu__find_input(graph, name);
    if (tu_ok(found)) return found;
    if (tu__scope_replace(graph, "", &scope) != TU_OK)
        return tu__graph_fail(graph, TU_NO_MEMORY, "%s", tu_message());
    tu_value input = tu_batch_input(graph, name, type.dtype, type.shape);
    tu_status status = tu__scope_replace(graph, scope, NULL);
    tu__free(scope);
    return status == TU_OK ? input : tu__graph_fail(graph, status, "%s", tu_message());
}

tu_value tu_task_column(const tu_task_batch *b, const char *name) {
    const tu__column *c = tu__columns_find(&b->config->columns, name);
    if (!c)
        return tu__graph_fail(b->graph, TU_INVALID, "data set '%s' has no column '%.60s'",
                              b->config->dataset.name, name);
    if (c->is_target && b->use == TU__TASK_PREDICTION)
        return tu__graph_fail(b->graph, TU_INVALID, "a prediction has no target: column '%s'", name);
    return make_input(b->graph, c->name, batch_type(b, c));
}

tu_value tu_task_target(const tu_task_batch *b) {
    const tu__column *target = tu__columns_target(&b->config->columns);
    if (target) return tu_task_column(b, target->name);
    const tu__column *tokens = tu__columns_of_kind(&b->config->columns, TU_COLUMN_TOKENS);
    if (tokens && b->use != TU__TASK_PREDICTION)
        return tu_slice(tu_task_column(b, tokens->name), 1, 1, tokens->type.shape.dim[0], 1);
    return tu__graph_fail(b->graph, TU_INVALID,
                          "data set '%s' has no target: name the column to predict with --target",
                          b->config->dataset.name);
}

/* Pads 1 or 0 per sample to the rank of `x`. */
static tu_value counted(const tu_task_batch *b, tu_value x) {
    tu_value weight = make_input(b->graph, "counted", (tu_type){TU_F32, TU_SHAPE(b->samples)});
    for (int64_t i = 1; i < tu_value_shape(x).rank; i++) weight = tu_expand_axis(weight, -1);
    return weight;
}

static tu_value sum_over_samples(const tu_task_batch *b, tu_value x) {
    if (tu_value_dtype(x) != TU_F32) x = tu_cast(x, TU_F32);
    return tu_sum(tu_mul(x, counted(b, x)), .axes = TU_AXES(0));
}

void tu_task_sum(const tu_task_batch *b, const char *name, tu_value numbers) {
    char output[64];
    if (b->use != TU__TASK_EVALUATION || !tu_ok(numbers)) return;
    tu_shape shape = tu_value_shape(numbers);
    if (strlen(name) > LONGEST_NAME || shape.rank < 1 || shape.dim[0] != b->samples) {
        tu__graph_fail(
            b->graph, TU_INVALID,
            "tu_task_sum '%.60s': expected a name of at most %d characters and a number per sample, [%lld, …]",
            name, LONGEST_NAME, (long long)b->samples);
        return;
    }
    snprintf(output, sizeof output, TU__TOTAL_PREFIX "%s", name);
    tu_output(sum_over_samples(b, numbers), output);
}

void tu__task_sum_losses(const tu_task_batch *b, tu_value losses) {
    tu_output(sum_over_samples(b, losses), "loss");
}

/* ---- Metrics ---- */

static tu_value metrics_input(const tu_task_totals *t, const char *name, tu_shape shape) {
    tu_value found = tu__find_input(t->graph, name);
    return tu_ok(found) ? found : tu_input(t->graph, name, TU_F64, shape);
}

tu_value tu_task_total(const tu_task_totals *t, const char *name) {
    char output[64];
    snprintf(output, sizeof output, TU__TOTAL_PREFIX "%.31s", name);
    for (uint32_t i = 0; i < t->evaluation->result_count; i++) {
        if (strcmp(t->evaluation->results[i].name, output) != 0) continue;
        tu__edge edge = t->evaluation->results[i].value;
        return metrics_input(t, name, t->evaluation->nodes[edge.node]->outputs[edge.output].shape);
    }
    return tu__graph_fail(t->graph, TU_INVALID,
                          "tu_task_total '%.60s': the task adds no such number with tu_task_sum", name);
}

tu_value tu_task_loss(const tu_task_totals *t) {
    return metrics_input(t, TU__TOTAL_LOSS, TU_SCALAR);
}

tu_value tu_task_samples(const tu_task_totals *t) {
    return metrics_input(t, TU__TOTAL_SAMPLES, TU_SCALAR);
}

void tu_task_metric(const tu_task_totals *t, const char *name, tu_value metric, tu_task_order order) {
    tu__run_config *c = t->config;
    if (!tu_ok(metric)) return;
    tu_type type = tu_value_type(metric);
    if (c->metric_count == TU_MAX_METRICS || !*name || strcmp(name, "loss") == 0 ||
        strlen(name) > LONGEST_NAME || type.dtype != TU_F64 || tu_shape_elements(type.shape) != 1) {
        tu__graph_fail(
            t->graph, TU_INVALID,
            "metric '%.60s': expected an f64 scalar, a name of 1 to %d characters other than 'loss', and at most %d "
            "metrics",
            name, LONGEST_NAME, TU_MAX_METRICS);
        return;
    }
    tu__run_metric *m = &c->metrics[c->metric_count++];
    snprintf(m->name, sizeof m->name, "%s", name);
    m->lower_is_better = order == TU_LOWER_IS_BETTER;
    /* An input cannot be an output too: the loss as a metric. */
    if (type.shape.rank > 0) metric = tu_reshape(metric, TU_SCALAR);
    tu_output(tu_scale(metric, 1), name);
}

tu_status tu__task_build_metrics(const tu_task *task, const tu_graph *evaluation, tu__run_config *config,
                                 tu_graph **graph) {
    TU_TRY(tu_graph_new(graph));
    const tu_task_totals totals = {.graph = *graph, .evaluation = evaluation, .config = config};
    config->metric_count = 0;
    if (task->report)
        task->report(&totals);
    else
        tu_task_metric(&totals, "mean_loss", tu_task_loss(&totals), TU_LOWER_IS_BETTER);
    tu_status status = tu_graph_status(*graph);
    if (status == TU_OK && config->metric_count == 0)
        status = tu_fail(TU_INVALID,
                         "task '%s': .report declares no metric: expected at least one call of "
                         "tu_task_metric",
                         task->name);
    if (status == TU_OK) return TU_OK;
    tu_graph_free(*graph);
    *graph = NULL;
    return status;
}

/* ---- Functions of a task ---- */

int64_t tu__task_outputs(const tu_task *task, const tu_task_batch *b) {
    tu_task_setting setting = TU_SIZED(tu_task_setting);
    if (task->outputs) return task->outputs(b);
    return tu_task_describe(b, &setting) != TU_OK ? 1 : setting.classes ? setting.classes : setting.targets;
}

/* Pictures are preprocessed where the network is built (step_graphs.c), which knows its input size. */
tu_value tu_task_features(const tu_task_batch *b) {
    const tu__columns *columns = &b->config->columns;
    const tu__column *tokens = tu__columns_of_kind(columns, TU_COLUMN_TOKENS);
    if (tu__has_pictures(&b->config->dataset)) return tu__preprocessed_pictures(b);
    if (tokens) {
        tu_value x = tu_task_column(b, tokens->name);
        return b->use == TU__TASK_PREDICTION ? x : tu_slice(x, 1, 0, tokens->type.shape.dim[0] - 1, 1);
    }
    return tu__table_features(b);
}

tu_value tu__task_input(const tu_task *task, const tu_task_batch *b) {
    return task->input ? task->input(b) : tu_task_features(b);
}

tu_value tu__task_predict(const tu_task *task, const tu_task_batch *b, tu_value output) {
    return task->predict ? task->predict(b, output) : output;
}
