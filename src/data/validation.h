/* The validation split of a data set: training images that a run does not train on but evaluates for model selection.
 *
 * A data set may define its own: the last images of its training split. Otherwise the images are the first of a
 * permutation of the training split that depends only on the number of its images. The split is therefore the same
 * for every seed, batch size and device, and a larger one contains a smaller one. */
#ifndef TU__DATA_VALIDATION_H
#define TU__DATA_VALIDATION_H

#include <tutti/data.h>

#include "data/permutation.h"

/* The images that a loader or an evaluation iterates over: a whole split, or the training images inside or outside a
 * validation split. */
typedef struct tu__image_split {
    tu_split split;
    int64_t count;         /* number of images */
    int64_t before;        /* position of the first image in the whole split, before `order` is applied */
    bool permuted;         /* positions are mapped through `order` */
    tu__permutation order; /* permutation of the whole split */
} tu__image_split;

/* Returns the images of `split` inside (`inside`) or outside the validation split of `validation` images; 0: all
 * images. */
tu__image_split tu__image_split_of(const tu_dataset_info *info, tu_split split, int64_t validation,
                                   bool inside);
/* Returns the index, in the split, of the image at `position`, in [0, count). */
int64_t tu__image_split_index(const tu__image_split *images, int64_t position);

#endif
