/* Well-formed UTF-8, for whoever writes text into a format (JSON, SVG) or reads one.
 *
 * A header alone: base/json.c, which the command compiles in, must depend on no other source. */
#ifndef TU__BASE_UTF8_H
#define TU__BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the UTF-8 sequence at `s`, of which `left` > 0 bytes remain. When it is ill-formed *valid is false and
 * the length is that of its maximal well-begun part: the unit that Unicode (chapter 3.9) replaces by one U+FFFD. */
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
        if (first == 0xE0) low = 0xA0;  /* below: an overlong form */
        if (first == 0xED) high = 0x9F; /* above: a surrogate */
    } else if (first >= 0xF0 && first <= 0xF4) {
        length = 4;
        if (first == 0xF0) low = 0x90;
        if (first == 0xF4) high = 0x8F; /* above: beyond U+10FFFF */
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

#endif
