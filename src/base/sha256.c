/* SHA-256 as FIPS 180-4 defines it, section by section.
 *
 * Plain C: a data set is hashed about as fast as a disk delivers it, so the processors' own SHA instructions are not
 * worth a second code path. */
#include "base/sha256.h"

#include <string.h>

/* Section 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t constants[64] = {
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

/* Section 6.2.2: one block of 64 bytes into the state. */
static void compress(uint32_t state[8], const unsigned char *block) {
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

void tu__sha256_init(tu__sha256 *hash) {
    /* Section 5.3.3: the same digits of the square roots of the first eight primes. */
    *hash = (tu__sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                                   0x1f83d9ab, 0x5be0cd19}};
}

void tu__sha256_update(tu__sha256 *hash, const void *bytes, size_t count) {
    if (count == 0) return; /* `bytes` may be NULL then */
    const unsigned char *p = bytes;
    size_t held = hash->length % sizeof hash->block;
    hash->length += count;
    if (held) {
        size_t room = sizeof hash->block - held, taken = count < room ? count : room;
        memcpy(hash->block + held, p, taken);
        p += taken;
        count -= taken;
        if (taken < room) return;
        compress(hash->state, hash->block);
    }
    for (; count >= sizeof hash->block; p += sizeof hash->block, count -= sizeof hash->block)
        compress(hash->state, p);
    if (count) memcpy(hash->block, p, count);
}

void tu__sha256_final(tu__sha256 *hash, unsigned char digest[TU__SHA256_BYTES]) {
    /* Section 5.1.1: a one bit, zeros up to the last 8 bytes of a block, and the length in bits. */
    static const unsigned char padding[64] = {0x80};
    uint64_t bits = hash->length * 8;
    unsigned char length[8];
    store_big_endian(length, (uint32_t)(bits >> 32));
    store_big_endian(length + 4, (uint32_t)bits);
    size_t held = hash->length % 64;
    tu__sha256_update(hash, padding, (held < 56 ? 56 : 120) - held);
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
