/* The validation split. See validation.h. */
#include "data/validation.h"

/* Independent of the run's seed: the validation split must not change with it. */
static const uint64_t validation_seed = 0x76616c6964617465u;

tu__image_split tu__image_split_of(const tu_dataset_info *info, tu_split split, int64_t validation,
                                   bool inside) {
    int64_t all = info->count[split];
    tu__image_split images = {.split = split, .count = all};
    if (validation == 0) return images;
    images.count = inside ? validation : all - validation;
    if (validation == info->validation) { /* the data set's own: its last images */
        images.before = inside ? all - validation : 0;
        return images;
    }
    images.before = inside ? 0 : validation;
    images.permuted = true;
    images.order = tu__permutation_of(validation_seed, 0, all);
    return images;
}

int64_t tu__image_split_index(const tu__image_split *images, int64_t position) {
    position += images->before;
    return images->permuted ? tu__permute(&images->order, position) : position;
}
