/* Random numbers as functions of seed, operation, sample and element, in f64. See draw.h. */
#include "base/draw.h"

#include <math.h>

#include "base/philox.h"

/* The SplitMix64 finalizer (Steele et al. 2014): a bijection in which every input bit affects every output bit. */
static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

tu__draw_key tu__draw_key_of(uint64_t seed, uint64_t operation) {
    uint64_t key = mix(operation + mix(seed + 0x9e3779b97f4a7c15u));
    return (tu__draw_key){{(uint32_t)key, (uint32_t)(key >> 32)}};
}

static void random_block(tu__draw_key key, uint64_t ordinal, uint32_t block, uint32_t attempt,
                         uint32_t out[4]) {
    uint32_t counter[4] = {block, attempt, (uint32_t)ordinal, (uint32_t)(ordinal >> 32)};
    tu__philox4x32(counter, key.word, out);
}

static double uniform_01(uint32_t word) {
    return (double)(word >> 8) * 0x1p-24;
}

/* Box-Muller: words 0 and 1 give two independent standard normals, words 2 and 3 two more. */
static double standard_normal(const uint32_t words[4], int word) {
    const uint32_t *pair = words + (word & 2);
    double radius = sqrt(-2 * log(((double)pair[0] + 1) * 0x1p-32));
    double angle = 6.28318530717958647692 * ((double)pair[1] * 0x1p-32);
    return radius * (word & 1 ? sin(angle) : cos(angle));
}

/* One number in twenty is rejected. 64 rejections in a row do not happen in practice; the limit bounds the loop. */
static double truncated_normal(tu__draw_key key, uint64_t ordinal, int64_t element) {
    double z = 0;
    for (uint32_t attempt = 0; attempt < 64; attempt++) {
        uint32_t words[4];
        random_block(key, ordinal, (uint32_t)(element / 4), attempt, words);
        z = standard_normal(words, (int)(element % 4));
        if (fabs(z) < 2) return z;
    }
    return 0;
}

void tu__draw_range(tu__draw_key key, uint64_t ordinal, tu__distribution distribution, double a, double b,
                    int64_t first, int64_t count, double *out) {
    uint32_t words[4] = {0};
    for (int64_t i = first; i < first + count; i++, out++) {
        int word = (int)(i % 4);
        if (word == 0 || i == first) random_block(key, ordinal, (uint32_t)(i / 4), 0, words);
        switch (distribution) {
        case TU__UNIFORM: *out = a + (b - a) * uniform_01(words[word]); break;
        case TU__NORMAL: *out = a + b * standard_normal(words, word); break;
        case TU__TRUNCATED_NORMAL: *out = a + b * truncated_normal(key, ordinal, i); break;
        case TU__BERNOULLI: *out = uniform_01(words[word]) < a; break;
        case TU__DISTRIBUTION_COUNT: break;
        }
    }
}

void tu__draw(tu__draw_key key, uint64_t ordinal, tu__distribution distribution, double a, double b,
              int64_t count, double *out) {
    tu__draw_range(key, ordinal, distribution, a, b, 0, count, out);
}
