/* The order of an epoch: a permutation of [0, count) that needs no table.
 *
 * A shuffled list of a million indices would have to be made anew for every epoch before its first batch can be read,
 * and a run that resumes in the middle would make it only to skip half. This permutation is a function instead: a
 * Feistel network over the smallest power of two that holds `count`, keyed by seed and epoch; numbers that fall outside
 * [0, count) are sent through again until one falls inside ("cycle walking", Black and Rogaway 2002), fewer than two
 * trips on average. Any position of any epoch is computed by itself, by any thread. */
#ifndef TU__DATA_PERMUTATION_H
#define TU__DATA_PERMUTATION_H

#include <stdint.h>

enum { TU__PERMUTATION_ROUNDS = 8 };

typedef struct tu__permutation {
    uint64_t count;
    int low_bits, high_bits; /* of a number: the high half may be one shorter */
    uint64_t key[TU__PERMUTATION_ROUNDS];
} tu__permutation;

/* The permutation of `count` numbers that seed and epoch choose. `count` must be positive. */
tu__permutation tu__permutation_of(uint64_t seed, uint64_t epoch, int64_t count);
/* Where `position`, in [0, count), is sent. */
int64_t tu__permute(const tu__permutation *permutation, int64_t position);

/* The image at `position` of the bootstrap sample that `seed` chooses: `count` draws with replacement out of [0, count),
 * each a function of its position. */
int64_t tu__bootstrap(uint64_t seed, int64_t position, int64_t count);

#endif
