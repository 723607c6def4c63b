/* SHA-256 gives the digests that FIPS 180-4 and NIST's example values publish, for any split into chunks. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"

static void assert_digest(const void *bytes, size_t count, const char *expected) {
    unsigned char digest[TU__SHA256_BYTES];
    char hex[TU__SHA256_HEX];
    tu__sha256_of(bytes, count, digest);
    tu__sha256_hex(digest, hex);
    assert_string_equal(hex, expected);
}

static void digest_of_an_empty_message_is_known(void **state) {
    (void)state;
    assert_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_digest(NULL, 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

static void published_digests_are_reproduced(void **state) {
    (void)state;
    static const struct {
        const char *message, *digest;
    } vectors[] = {
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmno"
         "pqrst"
         "nopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++)
        assert_digest(vectors[i].message, strlen(vectors[i].message), vectors[i].digest);
}

static void digest_of_a_million_letters_is_known(void **state) {
    (void)state;
    enum { MILLION = 1000000 };
    char *letters = malloc(MILLION);
    assert_non_null(letters);
    memset(letters, 'a', MILLION);
    assert_digest(letters, MILLION, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(letters);
}

/* NIST's additional vectors: lengths at which the padding needs another block. */
static void padding_is_right_at_every_block_boundary(void **state) {
    (void)state;
    static const unsigned char zeros[1000];
    assert_digest(zeros, 55, "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7");
    assert_digest(zeros, 56, "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
    assert_digest(zeros, 57, "65a16cb7861335d5ace3c60718b5052e44660726da4cd13bb745381b235a1785");
    assert_digest(zeros, 64, "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
    assert_digest(zeros, 1000, "541b3e9daa09b20bf85fa273e5cbd3e80185aa4ec298e765db87742b70138a53");
}

static void chunks_of_any_size_give_the_same_digest(void **state) {
    (void)state;
    unsigned char message[300], expected_digest[TU__SHA256_BYTES], chunked_digest[TU__SHA256_BYTES];
    for (size_t i = 0; i < sizeof message; i++) message[i] = (unsigned char)(i * 7 + 3);
    tu__sha256_of(message, sizeof message, expected_digest);
    for (size_t piece = 1; piece <= 130; piece++) {
        tu__sha256 hash;
        tu__sha256_init(&hash);
        for (size_t done = 0; done < sizeof message; done += piece) {
            size_t left = sizeof message - done;
            tu__sha256_update(&hash, message + done, left < piece ? left : piece);
        }
        tu__sha256_final(&hash, chunked_digest);
        assert_memory_equal(chunked_digest, expected_digest, sizeof expected_digest);
    }
}

/* Compares the SHA instructions with plain C on processors that have them. */
static void instructions_agree_with_plain_c(void **state) {
    (void)state;
    unsigned char bytes[64 * 64];
    uint32_t random_state = 1;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)((random_state = random_state * 1664525u + 1013904223u) >> 24);
    tu__sha256 hash;
    tu__sha256_init(&hash);
    uint32_t plain[8];
    memcpy(plain, hash.state, sizeof plain);
    for (size_t i = 0; i < sizeof bytes; i += 64) {
        tu__sha256_update(&hash, bytes + i, 64);
        tu__sha256_plain(plain, bytes + i);
        assert_memory_equal(plain, hash.state, sizeof plain);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digest_of_an_empty_message_is_known),
        cmocka_unit_test(published_digests_are_reproduced),
        cmocka_unit_test(digest_of_a_million_letters_is_known),
        cmocka_unit_test(padding_is_right_at_every_block_boundary),
        cmocka_unit_test(chunks_of_any_size_give_the_same_digest),
        cmocka_unit_test(instructions_agree_with_plain_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
