/* Divides a text into words, which byte pair encoding never merges, as GPT-2 does. The pattern, of which the first
 * alternative that matches is taken:
 *
 *     's|'t|'re|'ve|'m|'ll|'d | ?\p{L}+ | ?\p{N}+ | ?[^\s\p{L}\p{N}]+ | \s+(?!\S) | \s+
 *
 * So a space belongs to the word after it; of several spaces only the last does. Bytes that are not UTF-8 are characters
 * of the fourth kind. */
#include "base/utf8.h"
#include "data/tokenizer.h"
#include "data/unicode_classes.h"

typedef enum kind { LETTER, NUMBER, SPACE, OTHER } kind;

static kind kind_of(uint32_t c) {
    if (tu__is_letter(c)) return LETTER;
    if (tu__is_space(c)) return SPACE;
    return tu__is_number(c) ? NUMBER : OTHER;
}

/* Returns the kind of the character at `i` and sets `*next` to the index after it. */
static kind read_kind(const unsigned char *text, size_t length, size_t i, size_t *next) {
    bool valid;
    size_t bytes = tu__utf8_length((const char *)text + i, length - i, &valid);
    *next = i + bytes;
    if (!valid) return OTHER;
    if (bytes == 1) return kind_of(text[i]);
    uint32_t c = text[i] & (0x7fu >> bytes);
    for (size_t k = 1; k < bytes; k++) c = c << 6 | (text[i + k] & 0x3fu);
    return kind_of(c);
}

/* Returns the length of a contraction at the start of the text; 0: none. */
static size_t contraction(const unsigned char *text, size_t length) {
    if (length < 2 || text[0] != '\'') return 0;
    unsigned char a = text[1], b = length > 2 ? text[2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* Returns the end of the characters of one kind. */
static size_t run_end(const unsigned char *text, size_t length, size_t i, kind wanted) {
    size_t next;
    while (i < length && read_kind(text, length, i, &next) == wanted) i = next;
    return i;
}

/* Spaces up to the end of the text, or all but the last one; a single space before a word is a word itself. */
static size_t space_end(const unsigned char *text, size_t length, size_t first) {
    size_t last = first, i = first, next;
    while (i < length && read_kind(text, length, i, &next) == SPACE) last = i, i = next;
    return i == length || last == first ? i : last;
}

size_t tu__word_end(const unsigned char *text, size_t length, size_t first) {
    size_t next, start = first, bytes = contraction(text + first, length - first);
    if (bytes) return first + bytes;
    kind of_first = read_kind(text, length, first, &next);
    if (text[first] == ' ' && first + 1 < length) {
        kind after = read_kind(text, length, first + 1, &next);
        if (after != SPACE) start = first + 1, of_first = after;
    }
    return of_first == SPACE ? space_end(text, length, first) : run_end(text, length, start, of_first);
}
