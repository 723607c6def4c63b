/* SHA-256: digests of graphs, data sets and model files.
 *
 *     tu__sha256 hash;
 *     tu__sha256_init(&hash);
 *     tu__sha256_update(&hash, bytes, count);             // any number of times, in chunks of any size
 *     unsigned char digest[TU__SHA256_BYTES];
 *     tu__sha256_final(&hash, digest);
 */
#ifndef TU__BASE_SHA256_H
#define TU__BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/shared.h"

enum { TU__SHA256_BYTES = 32, TU__SHA256_HEX = 2 * TU__SHA256_BYTES + 1 };

typedef struct tu__sha256 {
    uint32_t state[8];
    uint64_t length;         /* bytes hashed so far */
    unsigned char block[64]; /* the length % 64 bytes that do not fill a block yet */
} tu__sha256;

TU__SHARED void tu__sha256_init(tu__sha256 *hash);
TU__SHARED void tu__sha256_update(tu__sha256 *hash, const void *bytes, size_t count);
/* The hash must be initialised again before it is used for another message. */
TU__SHARED void tu__sha256_final(tu__sha256 *hash, unsigned char digest[TU__SHA256_BYTES]);

/* Hashes one block in plain C, without SHA instructions. Exported so that tests can compare it with the SHA
 * instructions. */
TU__SHARED void tu__sha256_plain(uint32_t state[8], const unsigned char *block);

/* Init, update and final in one call. */
TU__SHARED void tu__sha256_of(const void *bytes, size_t count, unsigned char digest[TU__SHA256_BYTES]);

/* Writes the digest as lower-case hexadecimal text with a terminating NUL. */
TU__SHARED void tu__sha256_hex(const unsigned char digest[TU__SHA256_BYTES], char hex[TU__SHA256_HEX]);

#endif
