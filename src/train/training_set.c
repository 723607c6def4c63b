/* See training_set.h; prepare.c does the same for one run. */
#include "train/training_set.h"

#include <string.h>

#include "data/dataset.h"
#include "network/network.h"
#include "train/settings.h"
#include "train/table_settings.h"
#include "train/task.h"

static tu_status open_set(const char *network, const char *data, const tu_train_options *o,
                          tu_progress progress, void *context, tu__arena *arena, tu_dataset **set) {
    tu_network_options defaults = TU_SIZED(tu_network_options);
    tu__settings s;
    int64_t label;
    bool ignores;
    TU_TRY(tu_network_defaults(network, &defaults));
    TU_TRY(tu__settings_resolve(network, o, arena, &s));
    TU_TRY(tu__read_ignore_label(s.ignore_label, &ignores, &label));
    const tu_train_options *recipe = tu__recipe_find(s.recipe, network);
    bool chosen = o->validation != 0 || (recipe && recipe->validation != 0);
    return tu_dataset_open(data, set, .height = s.image_size ? s.image_size : defaults.height,
                           .width = s.image_size ? s.image_size : defaults.width, .offline = o->offline,
                           .progress = progress, .context = context, .validation = !chosen,
                           .skip_bad = s.skip_bad, .ignore_label = ignores ? &label : NULL,
                           .target = s.target, .categories = tu__categories_of(&s), .drop = s.drop,
                           .header = s.header, .window = s.window ? s.window : defaults.context);
}

tu_status tu__training_set_open(const char *network, const char *data, const tu_train_options *options,
                                tu_progress progress, void *context, tu_dataset **set) {
    tu__arena arena = {.purpose = "the settings of a data set"};
    if (!data || !*data)
        return tu_fail(
            TU_INVALID,
            "no training data: expected --data with cifar10, mnist, generated, a folder of images, a CSV file or a pair of .npy files");
    tu_status status = open_set(network, data, options, progress, context, &arena, set);
    tu__arena_free(&arena);
    return status;
}

tu_status tu__training_set_has_accuracy(const char *network, const tu_dataset *set,
                                        const tu_train_options *options, bool *has_accuracy) {
    const tu_task *task = tu__network_task(network);
    const char *name = options->task ? options->task : "";
    tu__run_config config = {.columns = set->columns};
    config.dataset = TU_SIZED(tu_dataset_info);
    TU_TRY(tu_dataset_describe(set, &config.dataset));
    if (!*name && !task) TU_TRY(tu__task_choose(&config, &task));
    *has_accuracy =
        *name ? strcmp(name, tu__task_classification.name) == 0 : task == &tu__task_classification;
    return TU_OK;
}
