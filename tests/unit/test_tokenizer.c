/* Tokenizers give texts the tokens of the JavaScript encoder of the npm package gpt-3-encoder, and all bytes back. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tutti/text.h>

#include "base/alloc.h"
#include "data/tokenizer.h"
#include "data/unicode_classes.h"

enum { MAX_LINE = 1 << 14 };

static tu_tokenizer *open_tokenizer(const char *name) {
    tu_tokenizer *t;
    if (tu_tokenizer_open(name, &t, .offline = true) != TU_OK) fail_msg("%s", tu_message());
    return t;
}

/* Asserts that the pieces of the tokens are the text. */
static void assert_pieces(const tu_tokenizer *t, const char *text, size_t length, const int32_t *tokens,
                          size_t count) {
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const char *bytes;
        size_t size;
        assert_int_equal(tu_tokenizer_piece(t, tokens[i], &bytes, &size), TU_OK);
        assert_true(at + size <= length);
        assert_memory_equal(bytes, text + at, size);
        at += size;
    }
    assert_int_equal(at, length);
}

static size_t encode(const tu_tokenizer *t, const char *text, size_t length, int32_t *tokens) {
    size_t count;
    if (tu_tokenizer_encode(t, text, length, tokens, &count) != TU_OK) fail_msg("%s", tu_message());
    assert_true(count <= length);
    assert_pieces(t, text, length, tokens, count);
    return count;
}

static size_t from_hex(const char *hex, char *bytes) {
    size_t count = strlen(hex) / 2;
    for (size_t i = 0; i < count; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
        bytes[i] = (char)strtol(pair, NULL, 16);
    }
    return count;
}

/* One line of known_tokens.txt. `ids`: the tokens are those of the whole vocabulary. */
static void check_line(const tu_tokenizer *t, char *line, bool ids) {
    static char text[MAX_LINE], piece[MAX_LINE];
    static int32_t tokens[MAX_LINE];
    char *save, *hex = strtok_r(line, "\t\n", &save), *numbers = strtok_r(NULL, "\t\n", &save),
                *pieces = strtok_r(NULL, "\t\n", &save);
    size_t count = encode(t, text, from_hex(hex, text), tokens), found = 0;
    for (char *p = strtok_r(pieces, " ", &save); p; p = strtok_r(NULL, " ", &save), found++) {
        const char *bytes;
        size_t size, expected = from_hex(p, piece);
        assert_true(found < count);
        assert_int_equal(tu_tokenizer_piece(t, tokens[found], &bytes, &size), TU_OK);
        if (size != expected || memcmp(bytes, piece, size) != 0)
            fail_msg("'%.40s': token %zu is '%.*s'", text, found, (int)size, bytes);
    }
    assert_int_equal(found, count);
    found = 0;
    for (char *p = ids ? strtok_r(numbers, " ", &save) : NULL; p; p = strtok_r(NULL, " ", &save), found++)
        assert_int_equal(tokens[found], atoi(p));
}

static int check_known_tokens(const tu_tokenizer *t, bool ids) {
    static char line[4 * MAX_LINE];
    FILE *file = fopen(TEST_DATA "/known_tokens.txt", "r");
    assert_non_null(file);
    int lines = 0;
    while (fgets(line, sizeof line, file)) check_line(t, line, ids), lines++;
    fclose(file);
    return lines;
}

static void known_texts_have_the_tokens_of_gpt2(void **state) {
    (void)state;
    tu_tokenizer *t = open_tokenizer(TEST_DATA "/words.bpe");
    assert_true(check_known_tokens(t, false) > 30);
    tu_tokenizer_free(t);
}

/* Only if a developer has downloaded the merges: tests need no internet connection. */
static void the_whole_vocabulary_has_the_same_numbers(void **state) {
    (void)state;
    tu_tokenizer *t;
    if (tu_tokenizer_open("gpt2", &t, .offline = true) != TU_OK) skip();
    assert_int_equal(tu_tokenizer_vocabulary(t), 50257);
    assert_int_equal(tu_tokenizer_end(t), 50256);
    assert_true(check_known_tokens(t, true) > 30);
    tu_tokenizer_free(t);
}

static void any_bytes_come_back(void **state) {
    (void)state;
    static char text[4096];
    static int32_t tokens[4096];
    tu_tokenizer *const list[] = {open_tokenizer("bytes"), open_tokenizer(TEST_DATA "/words.bpe")};
    uint32_t random = 7;
    for (int round = 0; round < 200; round++) {
        size_t length = (size_t)(round < 100 ? round : 41 * (round - 100));
        for (size_t i = 0; i < length; i++) {
            random = random * 1664525u + 1013904223u;
            char mixed = " e'\n\xc3\xa9s1"[random >> 29], few = (char)('a' + (random >> 30));
            text[i] = round % 3 == 0 ? (char)(random >> 24) : round % 3 == 1 ? few : mixed;
        }
        for (int k = 0; k < 2; k++) encode(list[k], text, length, tokens);
    }
    for (int k = 0; k < 2; k++) tu_tokenizer_free(list[k]);
}

/* A word longer than those whose pairs are all looked at has the tokens of a naive encoder. */
static void long_words_are_merged_in_the_order_of_short_ones(void **state) {
    (void)state;
    tu_tokenizer *t = open_tokenizer(TEST_DATA "/words.bpe");
    char word[600];
    int32_t tokens[600], naive[600];
    uint32_t random = 3;
    for (int round = 0; round < 50; round++) {
        size_t length = 49 + (size_t)round * 11, count = 0, expected = length;
        for (size_t i = 0; i < length; i++) {
            random = random * 1664525u + 1013904223u;
            word[i] = "aeionrst"[random >> 29];
        }
        assert_int_equal(tu__merges_encode(t->merges, (const unsigned char *)word, length, tokens, &count),
                         TU_OK);
        for (size_t i = 0; i < length; i++) {
            size_t one;
            assert_int_equal(
                tu__merges_encode(t->merges, (const unsigned char *)word + i, 1, &naive[i], &one), TU_OK);
        }
        for (bool merged = true; merged;) { /* the pair with the lowest result, as text of two tokens */
            size_t best = 0;
            int32_t best_token = INT32_MAX;
            const char *a;
            size_t a_size, start = 0;
            for (size_t i = 0; i + 1 < expected; i++) {
                size_t b_size, joined;
                const char *b;
                tu_tokenizer_piece(t, naive[i], &a, &a_size);
                tu_tokenizer_piece(t, naive[i + 1], &b, &b_size);
                int32_t pair[64];
                if (a_size + b_size <= 40) {
                    tu__merges_encode(t->merges, (const unsigned char *)word + start, a_size + b_size, pair,
                                      &joined);
                    if (joined == 1 && pair[0] < best_token) best = i, best_token = pair[0];
                }
                start += a_size;
            }
            merged = best_token != INT32_MAX;
            if (!merged) break;
            naive[best] = best_token;
            memmove(naive + best + 1, naive + best + 2, (--expected - best - 1) * sizeof *naive);
        }
        assert_int_equal(count, expected);
        assert_memory_equal(tokens, naive, count * sizeof *tokens);
    }
    tu_tokenizer_free(t);
}

static void bytes_are_their_own_tokens(void **state) {
    (void)state;
    tu_tokenizer *t = open_tokenizer("bytes");
    int32_t tokens[3];
    assert_int_equal(tu_tokenizer_vocabulary(t), 256);
    assert_int_equal(tu_tokenizer_end(t), -1);
    assert_string_equal(tu_tokenizer_name(t), "bytes");
    assert_int_equal(encode(t,
                            "\xff"
                            "a\0",
                            3, tokens),
                     3);
    assert_int_equal(tokens[0], 255);
    assert_int_equal(tokens[2], 0);
    tu_tokenizer_free(t);
}

static void assert_message(const char *part) {
    if (!strstr(tu_message(), part)) fail_msg("'%s' is not in '%s'", part, tu_message());
}

static void text_that_is_not_utf8_is_located(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } wrong[] = {{"\x80", "t: line 1, column 1: byte 0x80 is not UTF-8"},
                 {"ab\n\xc3\xa9"
                  "c\xff",
                  "line 2, column 3: byte 0xff"},
                 {"\xc3", "line 1, column 1: byte 0xc3"},
                 {"a\xed\xa0\x80", "line 1, column 2: byte 0xed"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(tu_text_check("t", wrong[i].text, strlen(wrong[i].text)), TU_INVALID);
        assert_message(wrong[i].message);
    }
    assert_int_equal(tu_text_check("t", "a\nbc\0d", 6), TU_INVALID);
    assert_message("t: line 2, column 3: byte 0x00");
    assert_int_equal(tu_text_check("t", "\xf0\x9f\x99\x82 ok\n", 8), TU_OK);
    assert_int_equal(tu_text_check("t", "", 0), TU_OK);
}

static void damaged_merges_are_rejected_with_their_line(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } wrong[] = {{"#version: 0.2\na b\nab\n", "line 3: 'ab'"},
                 {"a bc\n", "line 1: 'a bc'"},
                 {"a b\na b\n", "line 2: 'a b'"},
                 {"a \n", "line 1: 'a '"},
                 {"a \xe6\x9d\xb1\n", "line 1"},
                 {"a \xff\n", "line 1"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tu_tokenizer *t = tu__alloc(sizeof *t, "a test");
        assert_int_equal(tu__merges_read("f.bpe", wrong[i].text, strlen(wrong[i].text), t), TU_CORRUPT);
        assert_message("'f.bpe', ");
        assert_message(wrong[i].message);
        tu_tokenizer_free(t);
    }
}

static void write_merges(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* A name alone does not say which tokens a file has. */
static void descriptions_name_the_merges(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-merges-XXXXXX", description[200];
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    write_merges(path, "#version: 0.2\nl i\n");
    tu_tokenizer *t = open_tokenizer(path);
    snprintf(description, sizeof description, "%s", tu_tokenizer_description(t));
    assert_memory_equal(description, path, strlen(path));
    assert_memory_equal(description + strlen(path), " sha256:", 8);
    assert_int_equal(strlen(description), strlen(path) + 8 + 64);
    tu_tokenizer_free(t);
    t = open_tokenizer(description);
    assert_string_equal(tu_tokenizer_name(t), path);
    assert_string_equal(tu_tokenizer_description(t), description);
    tu_tokenizer_free(t);
    write_merges(path, "#version: 0.2\ni n\n");
    assert_int_equal(tu_tokenizer_open(description, &t), TU_INVALID);
    assert_message("but the tokens were made with merges of ");
    t = open_tokenizer(path);
    assert_false(tu__same_tokenizer(description, tu_tokenizer_description(t)));
    assert_true(tu__same_tokenizer(path, tu_tokenizer_description(t))); /* of an older file: not known */
    assert_true(tu__same_tokenizer("", description));
    assert_false(tu__same_tokenizer("bytes", description));
    tu_tokenizer_free(t);
    t = open_tokenizer("bytes");
    assert_string_equal(tu_tokenizer_description(t), "bytes");
    tu_tokenizer_free(t);
    unlink(path);
}

static void unknown_tokenizers_and_tokens_are_errors(void **state) {
    (void)state;
    tu_tokenizer *t;
    const char *bytes;
    size_t length;
    assert_int_equal(tu_tokenizer_open("no-such-tokenizer", &t), TU_NOT_FOUND);
    assert_message(
        "tokenizer 'no-such-tokenizer': there is no such file: expected bytes, gpt2, or a file with merges");
    assert_null(t);
    assert_int_equal(tu_tokenizer_open("", &t), TU_INVALID);
    t = open_tokenizer("bytes");
    assert_int_equal(tu_tokenizer_piece(t, 256, &bytes, &length), TU_INVALID);
    assert_message("token 256: tokenizer 'bytes' has tokens 0 to 255");
    assert_int_equal(tu_tokenizer_piece(t, -1, &bytes, &length), TU_INVALID);
    tu_tokenizer_free(t);
    tu_tokenizer_free(NULL);
}

static void characters_have_the_classes_of_unicode(void **state) {
    (void)state;
    static const uint32_t letters[] = {'a', 'Z', 0xaa, 0xe9, 0x416, 0x6771, 0x1d400},
                          numbers[] = {'0', '9', 0xb2, 0xbd, 0x663, 0x2160, 0x1f100},
                          spaces[] = {' ', '\t', '\r', 0x85, 0xa0, 0x2003, 0x3000},
                          others[] = {'_', '\'', 0x300, 0x1f642, 0x2026};
    for (int i = 0; i < 7; i++) {
        assert_true(tu__is_letter(letters[i]) && !tu__is_number(letters[i]) && !tu__is_space(letters[i]));
        assert_true(!tu__is_letter(numbers[i]) && tu__is_number(numbers[i]) && !tu__is_space(numbers[i]));
        assert_true(!tu__is_letter(spaces[i]) && !tu__is_number(spaces[i]) && tu__is_space(spaces[i]));
    }
    for (int i = 0; i < 5; i++)
        assert_true(!tu__is_letter(others[i]) && !tu__is_number(others[i]) && !tu__is_space(others[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_texts_have_the_tokens_of_gpt2),
        cmocka_unit_test(the_whole_vocabulary_has_the_same_numbers),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(long_words_are_merged_in_the_order_of_short_ones),
        cmocka_unit_test(bytes_are_their_own_tokens),
        cmocka_unit_test(text_that_is_not_utf8_is_located),
        cmocka_unit_test(damaged_merges_are_rejected_with_their_line),
        cmocka_unit_test(descriptions_name_the_merges),
        cmocka_unit_test(unknown_tokenizers_and_tokens_are_errors),
        cmocka_unit_test(characters_have_the_classes_of_unicode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
