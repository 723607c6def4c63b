/* What all sets have in common, whatever their bytes come from.
 *
 * A set is a description and a function that copies one image. Makers (generated.c, data_file.c, source.c) fill a
 * tu__dataset_plan; tu__dataset_new checks it once, so that loaders and readers can rely on every number in it. */
#ifndef TU__DATA_DATASET_H
#define TU__DATA_DATASET_H

#include <tutti/data.h>

#include "base/arena.h"

typedef tu_status (*tu__read_image)(void *context, tu_split split, int64_t index, void *image,
                                    int32_t *label);

struct tu_dataset {
    tu_dataset_info info; /* strings in the arena */
    size_t image_bytes;
    void *context;
    tu__read_image read;
    void (*close)(void *context); /* NULL: nothing to close */
    /* Of sets that lie in memory, one image behind the other, as long as they are open: where each split is; else NULL. */
    const void *images[2];
    const int32_t *labels[2];
    bool sampled; /* the digest is not over all images: see source.c */
    tu__arena arena;
};

enum { TU__MAX_CLASSES = 1 << 20, TU__MAX_SIDE = 1 << 20 };

/* A set of this description, which is copied; class_names NULL means "0", "1", …, and a NULL digest "". When this fails
 * the context still belongs to the caller. */
tu_status tu__dataset_new(const tu_dataset_info *info, tu__read_image read, void (*close)(void *context),
                          void *context, tu_dataset **set);

/* Whether the numbers of a description can be: counts, sides, channels, type, classes. `image_bytes` may be NULL. */
tu_status tu__dataset_check(const tu_dataset_info *info, size_t *image_bytes);

/* What the user is told about a set that was opened (tu_dataset_info.notice), copied; "": nothing. */
tu_status tu__dataset_notice(tu_dataset *set, const char *notice);

/* Tells the system that a split that lies in memory is about to be read, from one end to the other, in any order. */
void tu__dataset_expect(const tu_dataset *set, tu_split split);

/* "cifar10", "mnist", "generated": the sets known by name, ended by NULL. */
extern const char *const tu__dataset_names[];

/* The lowering rules; each is a file of this folder. */
tu_status tu__open_generated(tu_dataset **set);

#endif
