/* Changes the contents of files. See mutate.h. */
#include "attack/mutate.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "graph/file.h"

uint64_t random_number(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t random_below(uint64_t *state, uint64_t below) {
    return random_number(state) % (below ? below : 1);
}

/* Replaces `length` bytes at `at` by others. */
static void splice(file_bytes *file, size_t at, size_t length, const void *bytes, size_t size) {
    unsigned char *data = malloc(file->size - length + size + 1);
    if (!data) abort();
    memcpy(data, file->data, at);
    if (size) memcpy(data + at, bytes, size);
    memcpy(data + at + size, file->data + at + length, file->size - at - length);
    free(file->data);
    file->data = data;
    file->size = file->size - length + size;
}

/* ---- Changes: each returns its name ---- */

static const char *flip_bits(file_bytes *file, uint64_t *state) {
    for (uint64_t i = 0; file->size && i <= random_below(state, 4); i++)
        file->data[random_below(state, file->size)] ^= (unsigned char)(1u << random_below(state, 8));
    return "bits";
}

static const char *cut(file_bytes *file, uint64_t *state) {
    file->size = random_below(state, file->size + 1);
    return "cut";
}

static const char *repeat_slice(file_bytes *file, uint64_t *state) {
    size_t at = random_below(state, file->size),
           length = random_below(state, file->size - at < 4096 ? file->size - at : 4096);
    unsigned char *slice = malloc(length + 1);
    if (!slice) abort();
    memcpy(slice, file->data + at, length);
    splice(file, random_below(state, file->size + 1), 0, slice, length);
    free(slice);
    return "repeated slice";
}

static const char *remove_slice(file_bytes *file, uint64_t *state) {
    size_t at = random_below(state, file->size);
    splice(file, at, random_below(state, file->size - at + 1), NULL, 0);
    return "removed slice";
}

/* Writes a length, count or offset at the borders of types, mostly near the beginning or the end. */
static const char *write_binary_number(file_bytes *file, uint64_t *state) {
    static const uint64_t numbers[] = {0,          1,          0x7F,       0xFF,       0x7FFF,
                                       0xFFFF,     0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1ull << 32,
                                       1ull << 40, INT64_MAX,  1ull << 63, UINT64_MAX, UINT64_MAX - 7};
    uint64_t number = numbers[random_below(state, sizeof numbers / sizeof *numbers)];
    size_t width = 1u << random_below(state, 4), place = random_below(state, 3);
    if (file->size < width) return "number";
    size_t range = file->size - width + 1, near = range < 256 ? range : 256;
    size_t at = place == 0   ? random_below(state, near)
                : place == 1 ? range - 1 - random_below(state, near)
                             : random_below(state, range);
    unsigned char bytes[8];
    bool is_big_endian = random_below(state, 4) == 0;
    for (size_t i = 0; i < width; i++)
        bytes[i] = (unsigned char)(number >> (8 * (is_big_endian ? width - 1 - i : i)));
    memcpy(file->data + at, bytes, width);
    return "binary number";
}

/* Returns where a number begins after a random place; the size of the file if there is none. */
static size_t find_digits(const file_bytes *file, uint64_t *state) {
    for (size_t at = random_below(state, file->size); at < file->size; at++)
        if (isdigit(file->data[at])) return at;
    return file->size;
}

static const char *write_text_number(file_bytes *file, uint64_t *state) {
    static const char *const numbers[] = {"0",
                                          "-1",
                                          "1",
                                          "2147483648",
                                          "4294967296",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "-9223372036854775808",
                                          "1e308",
                                          "1e-320",
                                          "1e999",
                                          "0.5",
                                          "null",
                                          "true",
                                          "[]",
                                          "{}",
                                          "\"text\"",
                                          "281474976710656",
                                          "99999999999999999999999999",
                                          "1048576"};
    size_t at = find_digits(file, state), length = 0;
    const char *number = numbers[random_below(state, sizeof numbers / sizeof *numbers)];
    while (at + length < file->size && (isdigit(file->data[at + length]) || file->data[at + length] == '.'))
        length++;
    splice(file, at, length, number, strlen(number));
    return "text number";
}

static const char *write_text(file_bytes *file, uint64_t *state) {
    /* What follows is shown from right to left. */
    static const char turned[] = {'\xE2', '\x80', '\xAE', '\0'};
    static const char *const texts[] = {"\x1b]0;owned\a",
                                        "\x1b[2J",
                                        "\302\23331m", /* octal: \x would take the digits, too */
                                        "\x7f",
                                        "\r",
                                        "\xff\xfe",
                                        "\xC0\x80",
                                        "%s%n%s%n",
                                        "../../outside/victim",
                                        "/etc/passwd",
                                        turned,
                                        "\",\"x\":\"",
                                        "$(touch outside/owned)",
                                        "'; DROP TABLE trials; --",
                                        "<script>alert(1)</script>",
                                        "=cmd|'/c calc'!A1",
                                        "\\u0000",
                                        "\\ud800"};
    const char *text = texts[random_below(state, sizeof texts / sizeof *texts)];
    splice(file, random_below(state, file->size + 1), 0, text, strlen(text));
    return "text";
}

static const char *nest(file_bytes *file, uint64_t *state) {
    static const char openings[] = "[{\"(";
    size_t depth = 1u << random_below(state, 18);
    unsigned char *bytes = malloc(depth);
    if (!bytes) abort();
    memset(bytes, openings[random_below(state, sizeof openings - 1)], depth);
    splice(file, random_below(state, file->size + 1), 0, bytes, depth);
    free(bytes);
    return "nesting";
}

/* ---- Digests ---- */

static void correct_graph(file_bytes *file) {
    if (file->size < TU__FILE_SMALLEST) return;
    uint64_t total = file->size;
    memcpy(file->data + TU__FILE_AT_SIZE, &total, sizeof total);
    tu__sha256_of(file->data, file->size - TU__FILE_TRAILER, file->data + file->size - TU__FILE_TRAILER);
}

/* The header ends at the last brace before the data. */
static void correct_header_length(file_bytes *file) {
    uint64_t before = 0;
    if (file->size < 16) return;
    memcpy(&before, file->data, sizeof before);
    size_t near = before < file->size ? (size_t)before + 4096 : file->size;
    if (near > file->size) near = file->size;
    for (size_t at = near; at > 8; at--)
        if (file->data[at - 1] == '}') {
            uint64_t length = at - 8;
            memcpy(file->data, &length, sizeof length);
            return;
        }
}

static void correct_description(file_bytes *file) {
    enum { TAIL = 64 };
    if (file->size < 2 * TAIL) return;
    unsigned char *tail = file->data + file->size - TAIL;
    uint64_t offset, size;
    memcpy(&offset, tail, sizeof offset);
    memcpy(&size, tail + 8, sizeof size);
    if (offset < file->size && size <= file->size - offset)
        tu__sha256_of(file->data + offset, size, tail + 16);
}

static uint32_t crc_of(const unsigned char *bytes, size_t size) {
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320 : 0);
    }
    return ~crc;
}

static void correct_chunks(file_bytes *file) {
    for (size_t at = 8; at + 12 <= file->size;) {
        const unsigned char *p = file->data + at;
        size_t length = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
        if (length > file->size - at - 12) return;
        uint32_t crc = crc_of(p + 4, length + 4);
        for (size_t i = 0; i < 4; i++) file->data[at + 8 + length + i] = (unsigned char)(crc >> (24 - 8 * i));
        at += 12 + length;
    }
}

/* ---- The interface ---- */

const char *mutate(file_bytes *file, format kind, uint64_t *state) {
    static const char *(*const changes[])(file_bytes *,
                                          uint64_t *) = {flip_bits,           cut,
                                                         repeat_slice,        remove_slice,
                                                         write_binary_number, write_binary_number,
                                                         write_text_number,   write_text_number,
                                                         write_text,          nest};
    static void (*const corrections[])(file_bytes *) = {[GRAPH_FILE] = correct_graph,
                                                        [SAFETENSORS] = correct_header_length,
                                                        [DATA_FILE] = correct_description,
                                                        [PNG_FILE] = correct_chunks};
    static char done[160];
    done[0] = '\0';
    for (uint64_t times = 1 + random_below(state, 3); times > 0 && file->size > 0; times--) {
        const char *name = changes[random_below(state, sizeof changes / sizeof *changes)](file, state);
        size_t used = strlen(done);
        snprintf(done + used, sizeof done - used, "%s%s", used ? ", " : "", name);
    }
    bool corrects = kind != PLAIN && random_below(state, 4) > 0;
    if (corrects) corrections[kind](file);
    return done;
}
