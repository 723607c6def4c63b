/* Random numbers as pure functions of seed, operation, sample and element.
 *
 * A random number depends only on the state's seed, the operation's key (a hash of its scoped name), the index of the
 * sample (`ordinal`; the step, for numbers that belong to no sample) and the element's index within the sample. It
 * does not depend on the device, the batch or earlier random numbers. Every device computes the same functions.
 *
 * A Philox block (Salmon et al. 2011) has four words: element e uses word e mod 4 of block e / 4. The counter is
 * {block, attempt, ordinal low, ordinal high}; only truncated normals use attempts above 0. */
#ifndef TU__BASE_DRAW_H
#define TU__BASE_DRAW_H

#include <stdint.h>

#include "base/shared.h"

typedef enum tu__distribution {
    TU__UNIFORM,          /* a + (b - a) u, u one of 2^24 equidistant numbers in [0, 1) */
    TU__NORMAL,           /* mean a, standard deviation b, by Box and Muller */
    TU__TRUNCATED_NORMAL, /* like normal, generated again if farther than two standard deviations from the mean */
    TU__BERNOULLI,        /* 1 with probability a, else 0 */
    TU__DISTRIBUTION_COUNT
} tu__distribution;

/* Maximum number of elements per sample: the block index has 32 bits. */
#define TU__DRAW_LIMIT ((int64_t)4 << 32)

typedef struct tu__draw_key {
    uint32_t word[2];
} tu__draw_key;
TU__SHARED tu__draw_key tu__draw_key_of(uint64_t seed, uint64_t operation);

/* Generates elements [0, count) of one sample. */
TU__SHARED void tu__draw(tu__draw_key key, uint64_t ordinal, tu__distribution distribution, double a,
                         double b, int64_t count, double *out);
/* Generates elements [first, first + count), for devices that split one sample over threads. */
TU__SHARED void tu__draw_range(tu__draw_key key, uint64_t ordinal, tu__distribution distribution, double a,
                               double b, int64_t first, int64_t count, double *out);

#endif
