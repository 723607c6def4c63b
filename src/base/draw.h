/* Random draws as functions: which number an operation draws for which sample and element.
 *
 * A draw depends on the state's seed, the operation's key (a hash of its scoped name), the sample's ordinal (or
 * the step, for draws that belong to no sample) and the element's index within the sample, and on nothing else:
 * not on the device, the batch it came in or what was drawn before. Every device computes these same functions.
 *
 * One Philox block (Salmon et al. 2011) has four words: element e takes word e mod 4 of block e / 4. The counter
 * is {block, attempt, ordinal low, ordinal high}; attempts beyond 0 are drawn for truncated normals alone. */
#ifndef TU__BASE_DRAW_H
#define TU__BASE_DRAW_H

#include <stdint.h>

#include "base/shared.h"

typedef enum tu__distribution {
    TU__UNIFORM,          /* a + (b - a) u, u one of 2^24 equidistant numbers in [0, 1) */
    TU__NORMAL,           /* mean a, deviation b, by Box and Muller */
    TU__TRUNCATED_NORMAL, /* as normal; beyond two deviations the next attempt counts */
    TU__BERNOULLI,        /* 1 with probability a, else 0 */
    TU__DISTRIBUTION_COUNT
} tu__distribution;

/* Elements a sample can have: the block number is 32 bits wide. */
#define TU__DRAW_LIMIT ((int64_t)4 << 32)

typedef struct tu__draw_key {
    uint32_t word[2];
} tu__draw_key;
TU__SHARED tu__draw_key tu__draw_key_of(uint64_t seed, uint64_t operation);

/* The draws of elements [0, count) of one sample. */
TU__SHARED void tu__draw(tu__draw_key key, uint64_t ordinal, tu__distribution distribution, double a,
                         double b, int64_t count, double *out);
/* Elements [first, first + count): what devices that share out one sample's draws call. */
TU__SHARED void tu__draw_range(tu__draw_key key, uint64_t ordinal, tu__distribution distribution, double a,
                               double b, int64_t first, int64_t count, double *out);

#endif
