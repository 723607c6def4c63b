/* The order of an epoch: a permutation of [0, count) without a table.
 *
 * A shuffled list of indices would have to be created for every epoch before its first batch, and again by a run that
 * resumes in the middle. This permutation is a function instead: a Feistel network over the smallest power of two
 * that is at least `count`, keyed by seed and epoch. Results outside [0, count) are permuted again until one is
 * inside ("cycle walking", Black and Rogaway 2002), fewer than two rounds on average. Any thread can compute any
 * position of any epoch independently. */
#ifndef TU__DATA_PERMUTATION_H
#define TU__DATA_PERMUTATION_H

#include <stdint.h>

enum { TU__PERMUTATION_ROUNDS = 8 };

typedef struct tu__permutation {
    uint64_t count;
    int low_bits, high_bits; /* sizes of the two halves: the high half may be one bit shorter */
    uint64_t key[TU__PERMUTATION_ROUNDS];
} tu__permutation;

/* Returns the permutation for a seed and an epoch. `count` must be positive. */
tu__permutation tu__permutation_of(uint64_t seed, uint64_t epoch, int64_t count);
/* Returns the image of `position`, in [0, count). */
int64_t tu__permute(const tu__permutation *permutation, int64_t position);

/* Returns element `position` of a bootstrap sample: `count` draws with replacement from [0, count), each a function
 * of seed and position. */
int64_t tu__bootstrap(uint64_t seed, int64_t position, int64_t count);

#endif
