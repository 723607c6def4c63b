/* UTF-8 validation for code that reads or writes text formats (JSON, SVG).
 *
 * Header-only because base/json.c, which the command-line tool compiles in, must not depend on other sources. */
#ifndef TU__BASE_UTF8_H
#define TU__BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the length of the UTF-8 sequence at `text`, of which `left` > 0 bytes remain. If it is ill-formed, sets
 * *valid to false and returns the length of its maximal subpart, which Unicode (section 3.9) replaces by one
 * U+FFFD. */
static inline size_t tu__utf8_length(const char *text, size_t left, bool *valid) {
    const unsigned char *s = (const unsigned char *)text;
    unsigned char first = s[0], low = 0x80, high = 0xBF; /* bounds of the second byte */
    size_t length;
    *valid = true;
    if (first < 0x80) return 1;
    if (first >= 0xC2 && first <= 0xDF) {
        length = 2;
    } else if (first >= 0xE0 && first <= 0xEF) {
        length = 3;
        if (first == 0xE0) low = 0xA0;  /* smaller values are overlong encodings */
        if (first == 0xED) high = 0x9F; /* larger values are surrogates */
    } else if (first >= 0xF0 && first <= 0xF4) {
        length = 4;
        if (first == 0xF0) low = 0x90;
        if (first == 0xF4) high = 0x8F; /* larger values are above U+10FFFF */
    } else {
        *valid = false;
        return 1;
    }
    for (size_t i = 1; i < length; i++, low = 0x80, high = 0xBF)
        if (i >= left || s[i] < low || s[i] > high) {
            *valid = false;
            return i;
        }
    return length;
}

/* True if the whole string is UTF-8. */
static inline bool tu__is_utf8(const char *text, size_t length) {
    bool valid = true;
    for (size_t i = 0; valid && i < length;) i += tu__utf8_length(text + i, length - i, &valid);
    return valid;
}

#endif
