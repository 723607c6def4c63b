/* The validation part of a set: training images that a run does not train on, but looks at to choose.
 *
 * A set may have one of its own: the last images of its training split. Else some are chosen: the first of a permutation
 * of the split that depends on nothing but the number of its images. So the part is the same for every seed, batch and
 * device, whenever it is computed, and a larger part contains a smaller one. */
#ifndef TU__DATA_VALIDATION_H
#define TU__DATA_VALIDATION_H

#include <tutti/data.h>

#include "data/permutation.h"

/* What a loader or an evaluation walks: a split, or of the training images those inside or outside a validation part. */
typedef struct tu__image_part {
    tu_split split;
    int64_t count;         /* images of this part */
    int64_t before;        /* positions of other parts that come first in the order */
    bool permuted;         /* a position is no index yet */
    tu__permutation order; /* of the whole split */
} tu__image_part;

/* The part of `split` with (`inside`) or without the `validation` images that are kept out; 0: all of the split. */
tu__image_part tu__image_part_of(const tu_dataset_info *info, tu_split split, int64_t validation,
                                 bool inside);
/* The index in the split of the image at `position`, in [0, count). */
int64_t tu__image_part_index(const tu__image_part *part, int64_t position);

#endif
