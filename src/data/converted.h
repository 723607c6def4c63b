/* Sets that are made from the user's own files: converted once into the cache, under a name that changes with them. */
#ifndef TU__DATA_CONVERTED_H
#define TU__DATA_CONVERTED_H

#include "base/text.h"
#include "data/cache.h"
#include "data/data_file.h"

/* Where the conversion of `source` belongs: CACHE/converted/NAME-DIGITS.tutti, the digits from a digest of `key`, which
 * must tell all that the result depends on. Makes the folder. */
tu_status tu__converted_path(const char *source, const tu__text *key, tu__path *path);

/* Begins a conversion into `path`, which tu__converted_path gave: waits for others that convert, and removes what those
 * that were killed left behind. `*lock` is -1 when the file is there already, by now perhaps; else the caller
 * writes it. tu__converted_end takes either. */
tu_status tu__converted_begin(const char *path, const tu_dataset_options *options, int *lock);
void tu__converted_end(int lock);

/* The lowering rules: FOLDER, and IMAGES.npy with LABELS.npy. */
tu_status tu__open_folder(const char *folder, const tu_dataset_options *options, tu_dataset **set);
tu_status tu__open_arrays(const char *images, const char *labels, const tu_dataset_options *options,
                          tu_dataset **set);

/* The last name in a path, without slashes behind it; what sets of the user's own are called. */
void tu__last_name(const char *path, char name[64]);

#endif
