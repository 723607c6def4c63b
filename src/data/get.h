/* Sets by name: in the cache, or fetched into it. */
#ifndef TU__DATA_GET_H
#define TU__DATA_GET_H

#include "data/known_sets.h"

/* The set's data file, fetched first if it is not in the cache. */
tu_status tu__open_known(const tu__known_set *known, const tu_dataset_options *options, tu_dataset **set);

/* Converts official files in `folder` into the data file `path`, if they have the right digest. */
tu_status tu__convert_known(const tu__known_set *known, const char *folder, const char *path,
                            const tu_dataset_options *options);

#endif
