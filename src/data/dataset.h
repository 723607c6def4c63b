/* The common part of all data sets.
 *
 * A data set is a description and a function that copies one image. The functions that open data sets (generated.c,
 * data_file_read.c, source.c) fill a tu_dataset_info; tu__dataset_new validates it once, so that loaders and readers
 * can rely on its numbers. */
#ifndef TU__DATA_DATASET_H
#define TU__DATA_DATASET_H

#include <tutti/data.h>

#include "base/arena.h"

typedef tu_status (*tu__read_image)(void *context, tu_split split, int64_t index, void *image,
                                    int32_t *label);

struct tu_dataset {
    tu_dataset_info info; /* strings live in `arena` */
    size_t image_bytes;
    void *context;
    tu__read_image read;
    void (*close)(void *context); /* NULL: nothing to free */
    /* For data sets in contiguous memory: address of each split while the data set is open; else NULL. */
    const void *images[2];
    const int32_t *labels[2];
    bool sampled; /* the digest covers only a sample of the images: see source.c */
    tu__arena arena;
};

enum { TU__MAX_CLASSES = 1 << 20, TU__MAX_SIDE = 1 << 20 };

/* Creates a data set with this description, which is copied. class_names NULL means "0", "1", …; a NULL digest means
 * "". On failure the context still belongs to the caller. */
tu_status tu__dataset_new(const tu_dataset_info *info, tu__read_image read, void (*close)(void *context),
                          void *context, tu_dataset **dataset);

/* Validates counts, sizes, channels, type and classes of a description. `image_bytes` may be NULL. */
tu_status tu__dataset_check(const tu_dataset_info *info, size_t *image_bytes);

/* Sets the notice of a data set (tu_dataset_info.notice) to a copy; "" does nothing. */
tu_status tu__dataset_notice(tu_dataset *dataset, const char *notice);

/* Advises the kernel that a whole split in memory will be read soon. */
void tu__dataset_prefetch(const tu_dataset *dataset, tu_split split);

/* The built-in data sets, ended by NULL: "cifar10", "mnist", "generated". */
extern const char *const tu__dataset_names[];

/* Opens the generated data set. */
tu_status tu__open_generated(tu_dataset **dataset);

#endif
