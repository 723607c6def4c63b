/* The settings of a run: a value for every row of tutti/settings.def.
 *
 * The values come from three layers, later ones override earlier ones: the defaults of the table, the recipe, and the
 * caller's options. The result is stored in config.json, and a resumed run reads it from there. */
#ifndef TU__TRAIN_SETTINGS_H
#define TU__TRAIN_SETTINGS_H

#include <tutti/train.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/json_read.h"

typedef struct tu__settings {
    const char *recipe;
#define TU_SETTING(kind, field, option, letter, argument, default_value, minimum, maximum, group, help)      \
    TU_SETTING_##kind field;
#include <tutti/settings.def>
#undef TU_SETTING
} tu__settings;

/* Resolves the settings: defaults, then the recipe of `given` for `model`, then the options in `given`. Copies
 * strings into the arena. */
tu_status tu__settings_resolve(const char *model, const tu_train_options *given, tu__arena *arena,
                               tu__settings *settings);

/* The inverse: fills options that resolve to the same settings. Does not copy strings. */
void tu__settings_as_options(const tu__settings *settings, tu_train_options *options);

/* Returns the number of settings, the option of one ("--rate"), and its value as text. */
size_t tu__settings_count(void);
const char *tu__setting_option(size_t index);
void tu__setting_text(const tu__settings *settings, size_t index, char *text, size_t bytes);

/* Writes each setting as a member of the open JSON object. */
void tu__settings_write(const tu__settings *settings, tu_json *json);
/* Reads settings from a JSON object; `name` is the file's name for messages. A missing setting gets its default.
 * Fails for an unknown setting, because the run could not continue as it started. */
tu_status tu__settings_read(const char *name, const tu__json_value *object, tu__arena *arena,
                            tu__settings *settings);

/* Parses --ignore-label. `*given` is false if the text is "" or NULL. */
tu_status tu__read_ignore_label(const char *text, bool *given, int64_t *label);

/* Applies the options of a resume to the stored settings. A few may change (devices, how often to save); any other
 * difference fails, because it would be another run. */
tu_status tu__settings_resume(tu__settings *settings, const tu_train_options *given, tu__arena *arena);
bool tu__settings_equal(const tu__settings *a, const tu__settings *b);
/* Describes the first setting that differs, "--rate 0.1 instead of 0.2", or "" if none does. */
void tu__settings_difference(const tu__settings *a, const tu__settings *b, char *text, size_t bytes);

/* Returns the settings of a recipe for a model, as options. Returns NULL and sets the error message for an unknown
 * name. */
const tu_train_options *tu__recipe_find(const char *name, const char *model);

#endif
