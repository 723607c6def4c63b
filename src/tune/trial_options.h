/* The settings of trials: those that are fixed for all, and those that the space varies. */
#ifndef TU__TUNE_TRIAL_OPTIONS_H
#define TU__TUNE_TRIAL_OPTIONS_H

#include <tutti/train.h>

#include "base/arena.h"
#include "base/text.h"
#include "tune/space.h"

/* Makes the parameters whole that are counts. Fails for parameters that are neither a setting of a trial nor a parameter of
 * the network, and for values outside of a setting's bounds. `network` is the name of a network. */
tu_status tu__trial_options_check(tu__space *space, const char *network, const tu_train_options *fixed);

/* Sets the options of a point's values. Texts live in the arena. */
tu_status tu__trial_options_set(const tu__space *space, const tu__point *point, tu__arena *arena,
                                tu_train_options *options);

/* Write the fixed settings that were given as JSON, and read them. Where a trial runs (devices, threads, memory) is each
 * worker's own business, and left out. */
void tu__fixed_settings_write(const tu_train_options *fixed, tu__text *json);
tu_status tu__fixed_settings_read(const char *json, tu__arena *arena, tu_train_options *fixed);

/* Returns the option of a setting that is given and must be the same for all trials, as in "--rate"; NULL: none. */
const char *tu__fixed_setting_given(const tu_train_options *given);

/* Lists the values of a point: "rate=0.01 batch=64". */
void tu__point_print(const tu__space *space, const tu__point *point, tu__text *text);

#endif
