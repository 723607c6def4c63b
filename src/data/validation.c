/* Choosing the validation part of a set. See validation.h. */
#include "data/validation.h"

/* Not the seed of any run: the part must not change with it. */
static const uint64_t validation_seed = 0x76616c6964617465u;

tu__image_part tu__image_part_of(const tu_dataset_info *info, tu_split split, int64_t validation,
                                 bool inside) {
    int64_t all = info->count[split];
    tu__image_part part = {.split = split, .count = all};
    if (validation == 0) return part;
    part.count = inside ? validation : all - validation;
    if (validation == info->validation) { /* the set's own: the last ones */
        part.before = inside ? all - validation : 0;
        return part;
    }
    part.before = inside ? 0 : validation;
    part.permuted = true;
    part.order = tu__permutation_of(validation_seed, 0, all);
    return part;
}

int64_t tu__image_part_index(const tu__image_part *part, int64_t position) {
    position += part->before;
    return part->permuted ? tu__permute(&part->order, position) : position;
}
