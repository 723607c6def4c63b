/* Philox4x32-10, after J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011.
 *
 * The counter is two pairs of words. A round multiplies one word of each pair by an odd constant. The high half of
 * each result is XORed with the other word of the other pair and with a key word; it and the low half form the other
 * pair of the next round. A round is a permutation of the 2^128 counters, so different counters give different blocks
 * under the same key. Ten rounds pass all randomness tests of the paper. After each round the Weyl constants (golden
 * ratio and sqrt(3) - 1 as fractions of 2^32) are added to the key, so that the rounds differ.
 */
#include "base/philox.h"

enum { ROUNDS = 10 };

static const uint32_t multiplier_0 = 0xD2511F53, multiplier_1 = 0xCD9E8D57;
static const uint32_t weyl_0 = 0x9E3779B9, weyl_1 = 0xBB67AE85;

void tu__philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t product_0 = (uint64_t)multiplier_0 * c0;
        uint64_t product_1 = (uint64_t)multiplier_1 * c2;
        c0 = (uint32_t)(product_1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)product_1;
        c2 = (uint32_t)(product_0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)product_0;
        k0 += weyl_0;
        k1 += weyl_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
