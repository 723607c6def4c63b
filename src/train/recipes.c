/* Recipes: named lists of settings that are known to work together.
 *
 * A recipe is an ordinary tu_train_options with some fields given. A name may have several rows: the first whose pattern
 * fits the model counts. */
#include <stddef.h>
#include <string.h>

#include "base/choice.h"
#include "base/pattern.h"
#include "train/settings.h"

typedef struct recipe {
    const char *name, *summary; /* the summary stands in a name's first row */
    const char *models;         /* a pattern */
    tu_train_options settings;
} recipe;

static const recipe recipes[] = {
    {.name = "quick",
     .summary = "minutes to a good network (the default)",
     .models = "mlp",
     .settings = {.batch = 128, .epochs = 5, .optimizer = "adam", .rate = 0.002, .schedule = "one-cycle"}},
    {.name = "quick",
     .models = "tutorial-cnn",
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
     .models = "resnet*,wide-resnet*",
     .settings = {.batch = 128,
                  .epochs = 15,
                  .optimizer = "nesterov",
                  .rate = 0.1,
                  .schedule = "one-cycle",
                  .weight_decay = 5e-4,
                  .pad = 4,
                  .flip = 1}},
    /* A network of the user's own, of which nothing is known: what forgives most. */
    {.name = "quick",
     .models = "*",
     .settings = {.batch = 128,
                  .epochs = 10,
                  .optimizer = "adamw",
                  .rate = 0.001,
                  .schedule = "one-cycle",
                  .weight_decay = 0.01,
                  .clip = 5}},
    /* TensorFlow's CIFAR-10 tutorial of 2015, as its sources have it. They go on for a million steps; the 86% they speak of
     * are there soon after the rate's first drop, at epoch 350, and little comes later. They train on all images and choose
     * nothing on the way, so no validation part is kept out. */
    {.name = "tutorial",
     .summary = "as TensorFlow's CIFAR-10 tutorial: gradient descent, heavy augmentation, averaged weights",
     .models = "*",
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
     .summary = "nothing but the defaults: momentum, a constant rate, images as they are",
     .models = "*"},
};
enum { RECIPE_COUNT = sizeof recipes / sizeof *recipes };

size_t tu_train_recipe_count(void) {
    size_t count = 0;
    for (size_t i = 0; i < RECIPE_COUNT; i++) count += recipes[i].summary != NULL;
    return count;
}

tu_status tu_train_recipe(size_t index, const char **name, const char **summary) {
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        if (recipes[i].summary && index-- == 0) {
            *name = recipes[i].name;
            *summary = recipes[i].summary;
            return TU_OK;
        }
    return tu_fail(TU_NOT_FOUND, "there is no such recipe: tu_train_recipe counts from 0");
}

static void refuse(const char *name) {
    const char *names[RECIPE_COUNT];
    size_t count = 0;
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        if (recipes[i].summary) names[count++] = recipes[i].name;
    tu__choice_refuse(TU_NOT_FOUND, "unknown recipe", name, count, names);
}

const tu_train_options *tu__recipe_find(const char *name, const char *model) {
    for (size_t i = 0; i < RECIPE_COUNT; i++)
        if (strcmp(recipes[i].name, name) == 0 && tu__pattern_fits(recipes[i].models, model))
            return &recipes[i].settings;
    refuse(name);
    return NULL;
}
