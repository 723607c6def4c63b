/* Telling whoever opened a set how far it is. */
#ifndef TU__DATA_PROGRESS_H
#define TU__DATA_PROGRESS_H

#include <tutti/data.h>

/* `total` 0: not known. `options` may be NULL. */
static inline void tu__tell(const tu_dataset_options *options, const char *what, int64_t done,
                            int64_t total) {
    if (options && options->progress) options->progress(options->context, what, done, total);
}

#endif
