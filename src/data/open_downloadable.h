/* Opens built-in data sets from the cache; downloads them first if needed. */
#ifndef TU__DATA_OPEN_DOWNLOADABLE_H
#define TU__DATA_OPEN_DOWNLOADABLE_H

#include "data/downloadable.h"

/* Opens the data file of a data set; downloads it first if it is not in the cache. */
tu_status tu__open_downloadable(const tu__downloadable_dataset *downloadable,
                                const tu_dataset_options *options, tu_dataset **dataset);

/* Converts the official files in `folder` to the data file `path`. Fails if their digest is wrong. */
tu_status tu__convert_downloadable(const tu__downloadable_dataset *downloadable, const char *folder,
                                   const char *path, const tu_dataset_options *options);

#endif
