/* Opens built-in data sets from the cache; downloads them first if needed. */
#ifndef TU__DATA_OPEN_KNOWN_H
#define TU__DATA_OPEN_KNOWN_H

#include "data/known_datasets.h"

/* Opens the data file of a data set; downloads it first if it is not in the cache. */
tu_status tu__open_known(const tu__known_dataset *known, const tu_dataset_options *options,
                         tu_dataset **dataset);

/* Converts the official files in `folder` to the data file `path`. Fails if their digest is wrong. */
tu_status tu__convert_known(const tu__known_dataset *known, const char *folder, const char *path,
                            const tu_dataset_options *options);

#endif
