/* Data sets from the user's files: converted once and stored in the cache, under a name that depends on the files. */
#ifndef TU__DATA_CONVERTED_H
#define TU__DATA_CONVERTED_H

#include "base/text.h"
#include "data/cache.h"
#include "data/data_file.h"

/* Returns the cache path of a conversion: CACHE/converted/NAME-DIGITS.tutti. The digits come from a digest of `key`,
 * which must contain everything that the result depends on. Creates the folder. */
tu_status tu__converted_path(const char *source, const tu__text *key, tu__path *path);

/* Starts a conversion to `path` (from tu__converted_path): waits for other processes that convert, and removes
 * temporary files of killed ones. Sets `*lock` to -1 if the file exists by then; otherwise the caller writes it. Pass
 * `lock` to tu__converted_end in both cases. */
tu_status tu__converted_begin(const char *path, const tu_dataset_options *options, int *lock);
void tu__converted_end(int lock);

/* Open FOLDER, and IMAGES.npy with LABELS.npy. */
tu_status tu__open_folder(const char *folder, const tu_dataset_options *options, tu_dataset **dataset);
tu_status tu__open_arrays(const char *images, const char *labels, const tu_dataset_options *options,
                          tu_dataset **dataset);

/* Returns the last component of a path without trailing slashes: the name of a data set from the user's files. */
void tu__last_component(const char *path, char name[64]);

#endif
