/* Reports the progress of opening a data set. */
#ifndef TU__DATA_PROGRESS_H
#define TU__DATA_PROGRESS_H

#include <tutti/data.h>

/* Calls the progress callback, if any. `total` 0: unknown. `options` may be NULL. */
static inline void tu__report_progress(const tu_dataset_options *options, const char *what, int64_t done,
                                       int64_t total) {
    if (options && options->progress) options->progress(options->context, what, done, total);
}

#endif
