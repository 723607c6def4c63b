/* Chooses the task of a new run, and checks that data set, network and settings fit it. See trainer.h. */
#include <stdio.h>
#include <string.h>

#include <tutti/network.h>

#include "data/dataset.h"
#include "network/network.h"
#include "train/table_settings.h"
#include "train/task.h"
#include "train/trainer.h"

/* Finds the task that --task names, or that the network's file defines; else the target decides. */
static tu_status find_task(const tu__run_config *config, const tu_task **task) {
    const char *name = config->settings.task, *network;
    *task = *name ? NULL : tu__network_task(config->network);
    if (*task) return TU_OK;
    if (!*name) return tu__task_choose(config, task);
    if (tu_network_is_file(name)) {
        TU_TRY(tu__load_definitions(name, &network, &name));
        if (!name)
            return tu_fail(TU_INVALID, "'%.200s' defines no task: expected one TU_TASK",
                           config->settings.task);
    }
    return tu__task_find(name, task);
}

/* The built-in tasks need certain targets; a task of the user checks what it gets. */
static tu_status check_task(const tu__run_config *config, const tu_task *task) {
    const tu__column *target = tu__columns_target(&config->columns);
    const char *problem = NULL;
    if (task == &tu__task_classification && !config->dataset.classes)
        problem = "the target has no classes";
    else if ((task == &tu__task_regression || task == &tu__task_labels) &&
             (!target || target->type.dtype != TU_F32))
        problem = "the target has no numbers";
    else if (task == &tu__task_next_token &&
             (target || !tu__columns_of_kind(&config->columns, TU_COLUMN_TOKENS)))
        problem = "the data set has no tokens";
    for (size_t i = 0; task == &tu__task_labels && target && !problem && i < target->field_count; i++)
        if (target->fields[i].min != 0 || target->fields[i].max != 1)
            return tu_fail(TU_INVALID,
                           "--task labels: the target '%.60s' ranges from %.9g to %.9g: expected 0 and 1",
                           target->fields[i].name, target->fields[i].min, target->fields[i].max);
    if (!problem) return TU_OK;
    return tu_fail(TU_INVALID, "--task %s cannot be used with data set '%s': %s", task->name,
                   config->dataset.name, problem);
}

/* The settings for classes and pictures would have no effect. */
static tu_status check_task_settings(const tu__run_config *config) {
    const tu__settings *s = &config->settings;
    bool pictures = tu__has_pictures(&config->dataset), classes = tu__is_classification(config);
    const struct {
        const char *option;
        bool given, usable;
        const char *needs;
    } options[] = {{"--class-weights", *s->class_weights, classes, "classification"},
                   {"--balanced", s->balanced, config->dataset.classes > 0, "a target of classes"},
                   {"--image-size", s->image_size > 0, pictures, "pictures"},
                   {"--pad", s->pad > 0, pictures, "pictures"},
                   {"--flip", s->flip, pictures, "pictures"},
                   {"--brightness", s->brightness > 0, pictures, "pictures"},
                   {"--contrast", s->contrast > 0, pictures, "pictures"},
                   {"--cutout", s->cutout > 0, pictures, "pictures"},
                   {"--standardize", s->standardize, pictures, "pictures"}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given && !options[i].usable)
            return tu_fail(TU_INVALID, "%s needs %s, which data set '%s' and the task '%s' do not have",
                           options[i].option, options[i].needs, config->dataset.name, config->task);
    if (s->balanced && s->bootstrap)
        return tu_fail(TU_INVALID, "--balanced and --bootstrap cannot be combined: both choose the samples");
    return TU_OK;
}

/* A task with an input of its own may make anything of the columns. */
static tu_status check_network(const tu__run_config *config, const tu_task *task) {
    const char *samples = tu__samples_name(config);
    unsigned given = strcmp(samples, "images") == 0    ? TU_TAKES_IMAGES
                     : strcmp(samples, "windows") == 0 ? TU_TAKES_TOKENS
                                                       : TU_TAKES_ROWS;
    if (task->input || (tu_network_takes(config->network) & given)) return TU_OK;
    return tu_fail(TU_INVALID,
                   "network '%s' does not take the %s of data set '%s': expected another network, such as %s",
                   config->network, samples, config->dataset.name,
                   given == TU_TAKES_IMAGES   ? "tutorial-cnn"
                   : given == TU_TAKES_TOKENS ? "char-gpt"
                                              : "mlp");
}

tu_status tu__choose_task(tu__trainer *t) {
    tu__run_config *config = &t->config;
    const tu_task *task;
    TU_TRY(find_task(config, &task));
    if (!task) return tu_fail(TU_INTERNAL, "no task was found for network '%s'", config->network);
    TU_TRY(check_network(config, task));
    TU_TRY(check_task(config, task));
    config->task = task->name;
    config->metric_count = 0;
    if (tu__is_classification(config)) {
        config->metric_count = 2;
        snprintf(config->metrics[0].name, sizeof config->metrics[0].name, "accuracy");
        snprintf(config->metrics[1].name, sizeof config->metrics[1].name, "top5");
    }
    TU_TRY(check_task_settings(config));
    return tu__choose_class_weights(t);
}
