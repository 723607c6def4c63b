/* A keyed Feistel network with cycle walking. See permutation.h.
 *
 * The halves may differ in length: each round XORs one half with a hash of the other, which is invertible for any
 * lengths. Eight rounds are used because the halves of small data sets have few bits to mix. */
#include "data/permutation.h"

#include "base/philox.h"

/* Stafford's thirteenth mixer: every input bit reaches every output bit. */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

tu__permutation tu__permutation_of(uint64_t seed, uint64_t epoch, int64_t count) {
    tu__permutation p = {.count = (uint64_t)count};
    int bits = 0;
    while (bits < 63 && (uint64_t)1 << bits < p.count) bits++;
    p.high_bits = bits / 2;
    p.low_bits = bits - p.high_bits;
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (uint32_t i = 0; i < TU__PERMUTATION_ROUNDS; i += 2) {
        /* The third counter word separates these random numbers from those of operations, which count blocks there. */
        uint32_t counter[4] = {(uint32_t)epoch, (uint32_t)(epoch >> 32), 0x65706f63, i}, words[4];
        tu__philox4x32(counter, key, words);
        p.key[i] = (uint64_t)words[0] << 32 | words[1];
        p.key[i + 1] = (uint64_t)words[2] << 32 | words[3];
    }
    return p;
}

static uint64_t permute_once(const tu__permutation *p, uint64_t x) {
    uint64_t low_mask = ((uint64_t)1 << p->low_bits) - 1, high_mask = ((uint64_t)1 << p->high_bits) - 1;
    uint64_t low = x & low_mask, high = x >> p->low_bits;
    for (int i = 0; i < TU__PERMUTATION_ROUNDS; i += 2) {
        high ^= mix(low ^ p->key[i]) & high_mask;
        low ^= mix(high ^ p->key[i + 1]) & low_mask;
    }
    return high << p->low_bits | low;
}

int64_t tu__permute(const tu__permutation *permutation, int64_t position) {
    uint64_t x = (uint64_t)position;
    do x = permute_once(permutation, x);
    while (x >= permutation->count);
    return (int64_t)x;
}

/* The bias of a 64-bit remainder is negligible for any data set that fits on a disk. */
int64_t tu__bootstrap(uint64_t seed, int64_t position, int64_t count) {
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint64_t index = (uint64_t)position;
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), 0x626f6f74, 0}, words[4];
    tu__philox4x32(counter, key, words);
    return (int64_t)(((uint64_t)words[0] << 32 | words[1]) % (uint64_t)count);
}
