/* SHA-256 (FIPS 180-4) in plain C and with the SHA instructions of x86.
 *
 * Training waits while a checkpoint is hashed: plain C needs 30 ms for 8 MB, the instructions 5 ms. */
#include "base/sha256.h"

#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

/* Section 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static _Alignas(16) const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static inline uint32_t rotate(uint32_t x, int bits) {
    return x >> bits | x << (32 - bits);
}

static uint32_t load_big_endian(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store_big_endian(unsigned char *p, uint32_t x) {
    p[0] = (unsigned char)(x >> 24);
    p[1] = (unsigned char)(x >> 16);
    p[2] = (unsigned char)(x >> 8);
    p[3] = (unsigned char)x;
}

/* Section 6.2.2: hashes one 64-byte block into the state. */
void tu__sha256_plain(uint32_t state[8], const unsigned char *block) {
    uint32_t w[64]; /* the message schedule */
    for (int t = 0; t < 16; t++) w[t] = load_big_endian(block + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }

    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int t = 0; t < 64; t++) {
        uint32_t sum1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        uint32_t choice = (e & f) ^ (~e & g);
        uint32_t t1 = h + sum1 + choice + constants[t] + w[t];
        uint32_t sum0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + sum0 + majority;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

#if defined(__x86_64__)

static bool has_sha_instructions(void) {
    enum { LEAF = 7, SHA = 1 << 29 };
    unsigned a, b, c, d;
    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (b & SHA);
}

/* Computes four words of the message schedule from the sixteen before them, oldest first. */
__attribute__((target("sha,sse4.1"))) static __m128i extend(const __m128i w[4], int oldest) {
    __m128i last = w[(oldest + 3) % 4];
    __m128i sum = _mm_sha256msg1_epu32(w[oldest], w[(oldest + 1) % 4]);
    sum = _mm_add_epi32(sum, _mm_alignr_epi8(last, w[(oldest + 2) % 4], 4));
    return _mm_sha256msg2_epu32(sum, last);
}

/* The instructions expect the state as (a, b, e, f) and (c, d, g, h), first word highest, and compute two rounds
 * each. */
__attribute__((target("sha,sse4.1"))) static void compress(uint32_t state[8], const unsigned char *block) {
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i low = _mm_loadu_si128((const __m128i *)(const void *)state);
    __m128i high = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
    low = _mm_shuffle_epi32(low, 0xb1), high = _mm_shuffle_epi32(high, 0x1b);
    __m128i abef = _mm_alignr_epi8(low, high, 8), cdgh = _mm_blend_epi16(high, low, 0xf0);
    __m128i first = abef, second = cdgh, w[4];
    for (int i = 0; i < 16; i++) {
        const __m128i *words = (const __m128i *)(const void *)block + i;
        w[i % 4] = i < 4 ? _mm_shuffle_epi8(_mm_loadu_si128(words), swap) : extend(w, i % 4);
        __m128i k = _mm_load_si128((const __m128i *)(const void *)(constants + 4 * i));
        k = _mm_add_epi32(w[i % 4], k);
        cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
        abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
    }
    abef = _mm_shuffle_epi32(_mm_add_epi32(abef, first), 0x1b);
    cdgh = _mm_shuffle_epi32(_mm_add_epi32(cdgh, second), 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(abef, cdgh, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(cdgh, abef, 8));
}

#endif

static void hash_blocks(uint32_t state[8], const unsigned char *p, size_t count) {
    void (*hash_block)(uint32_t state[8], const unsigned char *block) = tu__sha256_plain;
#if defined(__x86_64__)
    if (has_sha_instructions()) hash_block = compress;
#endif
    for (; count; p += 64, count--) hash_block(state, p);
}

void tu__sha256_init(tu__sha256 *hash) {
    /* Section 5.3.3: the first 32 bits of the fractional parts of the square roots of the first eight primes. */
    *hash = (tu__sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                   0x1f83d9ab, 0x5be0cd19}};
}

void tu__sha256_update(tu__sha256 *hash, const void *bytes, size_t count) {
    if (count == 0) return; /* `bytes` may be NULL then */
    const unsigned char *p = bytes;
    size_t buffered = hash->length % sizeof hash->block;
    hash->length += count;
    if (buffered) {
        size_t room = sizeof hash->block - buffered, copied = count < room ? count : room;
        memcpy(hash->block + buffered, p, copied);
        p += copied;
        count -= copied;
        if (copied < room) return;
        hash_blocks(hash->state, hash->block, 1);
    }
    size_t blocks = count / sizeof hash->block, remainder = count % sizeof hash->block;
    if (blocks) hash_blocks(hash->state, p, blocks);
    if (remainder) memcpy(hash->block, p + (count - remainder), remainder);
}

void tu__sha256_final(tu__sha256 *hash, unsigned char digest[TU__SHA256_BYTES]) {
    /* Section 5.1.1: a one bit, zeros up to the last 8 bytes of a block, and the length in bits. */
    static const unsigned char padding[64] = {0x80};
    uint64_t bits = hash->length * 8;
    unsigned char length[8];
    store_big_endian(length, (uint32_t)(bits >> 32));
    store_big_endian(length + 4, (uint32_t)bits);
    size_t buffered = hash->length % 64;
    tu__sha256_update(hash, padding, (buffered < 56 ? 56 : 120) - buffered);
    tu__sha256_update(hash, length, sizeof length);
    for (int i = 0; i < 8; i++) store_big_endian(digest + 4 * i, hash->state[i]);
}

void tu__sha256_of(const void *bytes, size_t count, unsigned char digest[TU__SHA256_BYTES]) {
    tu__sha256 hash;
    tu__sha256_init(&hash);
    tu__sha256_update(&hash, bytes, count);
    tu__sha256_final(&hash, digest);
}

void tu__sha256_hex(const unsigned char digest[TU__SHA256_BYTES], char hex[TU__SHA256_HEX]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < TU__SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[2 * TU__SHA256_BYTES] = '\0';
}
