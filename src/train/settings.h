/* The settings of a run once they are decided: a value for every row of tutti/settings.def.
 *
 * Layers give them, later ones win: the table's defaults, the recipe, what the caller gave. What comes out is written to
 * config.json and read from there when the run goes on, so that nothing is decided twice. */
#ifndef TU__TRAIN_SETTINGS_H
#define TU__TRAIN_SETTINGS_H

#include <tutti/train.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/json_read.h"

typedef struct tu__settings {
    const char *recipe;
#define TU_SETTING(kind, field, option, argument, standard, least, most, help) TU_SETTING_##kind field;
#include <tutti/settings.def>
#undef TU_SETTING
} tu__settings;

/* Defaults, then the recipe of `given` for `model`, then the settings in `given`. Texts are copied into the arena. */
tu_status tu__settings_decide(const char *model, const tu_train_options *given, tu__arena *arena,
                              tu__settings *settings);

/* The opposite: options from which the same settings are decided again. Texts are not copied. */
void tu__settings_as_options(const tu__settings *settings, tu_train_options *options);

/* A member an entry of the object that is open. */
void tu__settings_write(const tu__settings *settings, tu_json *json);
/* The opposite; `name` stands for the file in messages. A setting that is not there has its default; one that this
 * version does not know is refused, since the run could not go on as it began. */
tu_status tu__settings_read(const char *name, const tu__json_value *object, tu__arena *arena,
                            tu__settings *settings);

/* The label whose images are left out, from the text of a setting; `*given` is false where it says none: "" or NULL. */
tu_status tu__read_ignore_label(const char *text, bool *given, int64_t *label);

/* What `given` asks of a run that was begun with `settings`: the few that may change (where it runs, how often it saves)
 * are taken over; any other that differs is refused, because the run would not be the one that was begun. */
tu_status tu__settings_resume(tu__settings *settings, const tu_train_options *given, tu__arena *arena);
bool tu__settings_equal(const tu__settings *a, const tu__settings *b);

/* The settings of a recipe for a model, as options; NULL, with a message, for a name there is none of. */
const tu_train_options *tu__recipe_find(const char *name, const char *model);

#endif
