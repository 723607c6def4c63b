/* Philox4x32-10 for many counters at once: bit-identical to base/philox.c.
 *
 * A lane has 64 bits and contains one 32-bit word of one block's state, because a round needs both halves of a 32 x
 * 32 bit product; processors multiply the lower halves of 64-bit lanes in one instruction. The blocks of a sample
 * differ only in the first word of their counter. */
#include "device/cpu/isa/kernels.h"
#include "device/cpu/isa/lanes.h"

enum { WIDE = LANES / 2, ROUNDS = 10 };

typedef uint64_t wide __attribute__((vector_size(LANES * 4)));

/* Returns the product of the lower halves. */
LANES_INLINE wide product(wide x, uint32_t factor) {
#if defined LANES_AVX512
    return (wide)_mm512_mul_epu32((__m512i)x, _mm512_set1_epi64(factor));
#elif defined LANES_AVX2
    return (wide)_mm256_mul_epu32((__m256i)x, _mm256_set1_epi64x(factor));
#elif defined __x86_64__
    return (wide)_mm_mul_epu32((__m128i)x, _mm_set1_epi64x(factor));
#else
    return (x & UINT32_MAX) * (uint64_t)factor;
#endif
}

/* The upper halves of state words may contain garbage: products do not read them. */
LANES_INLINE void rounds(const uint32_t key[2], wide c[4]) {
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        wide product_0 = product(c[0], 0xD2511F53u), product_1 = product(c[2], 0xCD9E8D57u);
        c[0] = (product_1 >> 32) ^ c[1] ^ (uint64_t)k0;
        c[1] = product_1;
        c[2] = (product_0 >> 32) ^ c[3] ^ (uint64_t)k1;
        c[3] = product_0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

static void words(tu__draw_key key, uint64_t ordinal, uint32_t first, int64_t count, uint32_t *out) {
    for (int64_t block = 0; block < count; block += WIDE) {
        wide c[4] = {{0}, {0}, {0}, {0}};
        for (int i = 0; i < WIDE; i++) c[0][i] = first + (uint32_t)block + (uint32_t)i;
        c[2] += (uint64_t)(uint32_t)ordinal;
        c[3] += ordinal >> 32;
        rounds(key.word, c);
        int64_t valid = count - block < WIDE ? count - block : WIDE;
        for (int64_t i = 0; i < valid; i++)
            for (int word = 0; word < 4; word++) out[(block + i) * 4 + word] = (uint32_t)c[word][i];
    }
}

const struct cpu_random_loops LOOP(cpu_random_loops) = {.words = words};
