/* Balanced sampling: an order of the samples of an epoch in which every class is equally frequent.
 *
 * The sample at position p belongs to class p mod k of the k classes that have samples. The samples of a class follow each
 * other through all epochs, in a permuted order, another one for each pass over the class; so no sample is left out. So the order is a
 * function of seed, epoch and position, as that of other epochs (permutation.h); what is stored are the indices of
 * the samples by class. */
#ifndef TU__DATA_BALANCE_H
#define TU__DATA_BALANCE_H

#include "data/dataset.h"
#include "data/validation.h"

typedef struct tu__balance tu__balance;

/* Reads the classes of all samples that `samples` selects. Fails with TU_INVALID if the set has no classes. */
tu_status tu__balance_new(const tu_dataset *dataset, const tu__image_split *samples, tu__balance **balance);
void tu__balance_free(tu__balance *balance);
/* Returns the index, in the split, of the sample at a position of an epoch. */
int64_t tu__balance_index(const tu__balance *balance, uint64_t seed, int64_t epoch, int64_t position);

#endif
