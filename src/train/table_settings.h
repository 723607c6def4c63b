/* What the settings of a run mean for data sets with other columns than pictures: categories, windows, the weights of
 * classes, and whether another data set has the same columns. */
#ifndef TU__TRAIN_TABLE_SETTINGS_H
#define TU__TRAIN_TABLE_SETTINGS_H

#include "train/trainer.h"

/* Returns tu_dataset_options.categories: for classification the target is one, even if it contains numbers. The text
 * lives in a buffer of the thread until the next call. */
const char *tu__categories_of(const tu__settings *settings);
/* Returns the input tokens of a window; 0: the data set has none. */
int64_t tu__window_of(const tu__columns *columns);

/* True if two data sets have columns of the same names, kinds and types. */
bool tu__same_columns(const tu__columns *a, const tu__columns *b);
/* Fails unless a network can be evaluated on the set: it has the same columns, fields and categories. */
tu_status tu__check_columns(const tu__run_config *config, const tu_dataset *set);

/* Sets the weights of the classes in the configuration, if the settings ask for any. */
tu_status tu__choose_class_weights(tu__trainer *trainer);

#endif
