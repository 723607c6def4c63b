/* Recipes: named sets of training settings.
 *
 * A recipe is a tu_train_options with some fields set. A name may have several rows: the first row whose pattern
 * matches the model is used. */
#include <stddef.h>
#include <string.h>

#include "base/choice.h"
#include "base/pattern.h"
#include "train/settings.h"

typedef struct recipe {
    const char *name, *summary; /* summary: only in the first row of each name, NULL in the others */
    const char *model_globs;    /* comma-separated patterns: "resnet*,wide-resnet*" */
    tu_train_options settings;
} recipe;

static const recipe recipes[] = {
    {.name = "quick",
     .summary = "trains in minutes (the default)",
     .model_globs = "mlp",
     .settings = {.batch = 128, .epochs = 5, .optimizer = "adam", .rate = 0.002, .schedule = "one-cycle"}},
    {.name = "quick",
     .model_globs = "tutorial-cnn",
     .settings = {.batch = 128,
                  .epochs = 5,
                  .optimizer = "nesterov",
                  .rate = 0.05,
                  .schedule = "one-cycle",
                  .rate_peak = 0.25,
                  .weight_decay = 5e-4,
                  .clip = 5,
                  .flip = 1}},
    {.name = "quick",
     .model_globs = "resnet*,wide-resnet*",
     .settings = {.batch = 128,
                  .epochs = 15,
                  .optimizer = "nesterov",
                  .rate = 0.1,
                  .schedule = "one-cycle",
                  .weight_decay = 5e-4,
                  .pad = 4,
                  .flip = 1}},
    /* Fallback for other networks: settings that work for most architectures. */
    {.name = "quick",
     .model_globs = "*",
     .settings = {.batch = 128,
                  .epochs = 10,
                  .optimizer = "adamw",
                  .rate = 0.001,
                  .schedule = "one-cycle",
                  .weight_decay = 0.01,
                  .clip = 5}},
    /* Settings of TensorFlow's CIFAR-10 tutorial of 2015. It trains for a million steps, but reaches its reported
     * accuracy of 86% soon after the first drop of the learning rate, at epoch 350. It selects no model, so no
     * validation split is held out (-1: none). */
    {.name = "tutorial",
     .summary = "settings of TensorFlow's CIFAR-10 tutorial: SGD, strong augmentation, averaged weights",
     .model_globs = "*",
     .settings = {.batch = 128,
                  .epochs = 370,
                  .validation = -1,
                  .optimizer = "sgd",
                  .rate = 0.1,
                  .schedule = "step",
                  .rate_every = 350,
                  .rate_factor = 0.1,
                  .decay = "local3/weights=0.004,local4/weights=0.004",
                  .average = 0.9999,
                  .flip = 1,
                  .brightness = 63.0 / 255,
                  .contrast = 0.8,
                  .standardize = 1}},
    {.name = "plain",
     .summary = "default settings: momentum, constant learning rate, no augmentation",
     .model_globs = "*"},
};
enum { RECIPE_COUNT = sizeof recipes / sizeof *recipes };

size_t tu_recipe_count(void) {
    size_t count = 0;
    for (size_t i = 0; i < RECIPE_COUNT; i++) count += recipes[i].summary != NULL;
    return count;
}

tu_status tu_recipe(size_t index, const char **name, const char **summary) {
    size_t count = 0;
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        if (recipes[i].summary && count++ == index) {
            *name = recipes[i].name;
            *summary = recipes[i].summary;
            return TU_OK;
        }
    return tu_fail(TU_NOT_FOUND, "recipe index out of range: expected 0 to %zu", count - 1);
}

static void fail_unknown_recipe(const char *name) {
    const char *names[RECIPE_COUNT];
    size_t count = 0;
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        if (recipes[i].summary) names[count++] = recipes[i].name;
    tu__fail_unknown_choice(TU_NOT_FOUND, "unknown recipe", name, count, names);
}

const tu_train_options *tu__recipe_find(const char *name, const char *model) {
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        if (strcmp(recipes[i].name, name) == 0 && tu__pattern_matches(recipes[i].model_globs, model))
            return &recipes[i].settings;
    fail_unknown_recipe(name);
    return NULL;
}
