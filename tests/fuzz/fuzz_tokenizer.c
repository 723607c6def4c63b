/* Encodes arbitrary bytes with a byte pair encoding. The pieces of the tokens must be the bytes, also if the text is
 * divided at a space before a word. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool condition) {
    if (condition) return;
    fprintf(stderr, "%s\n", tu_message());
    abort();
}

/* In GPT-2's format, in which a space is the letter U+0120. */
static const char merges[] = "#version: 0.2\n"
                             "\xC4\xA0 t\nh e\ni n\nr e\n\xC4\xA0t he\ne r\na t\no n\n\xC4\xA0 a\ne n\n"
                             "a n\nl l\n\xC4\xA0 w\nl o\nw o\nwo r\nhe ll\nhell o\n' s\n' t\n1 2\n12 3\n";

static tu_tokenizer *tokenizer(void) {
    static tu_tokenizer *made;
    if (made) return made;
    made = tu__alloc(sizeof *made, "a tokenizer");
    require(made && tu__merges_read("merges", merges, sizeof merges - 1, made) == TU_OK);
    return made;
}

static void check_pieces(const uint8_t *text, size_t size, const int32_t *tokens, size_t count) {
    size_t at = 0, length;
    const char *bytes;
    for (size_t i = 0; i < count; i++, at += length) {
        require(tu_tokenizer_piece(tokenizer(), tokens[i], &bytes, &length) == TU_OK && length >= 1);
        require(length <= size - at && memcmp(bytes, text + at, length) == 0);
    }
    require(at == size);
}

static bool is_letter(uint8_t byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
}

/* Returns a position at which a space begins a word; 0: there is none. */
static size_t find_space(const uint8_t *text, size_t size) {
    for (size_t i = size / 2; i > 0 && i + 1 < size; i++)
        if (is_letter(text[i - 1]) && text[i] == ' ' && is_letter(text[i + 1])) return i;
    return 0;
}

static void check_words(const uint8_t *text, size_t size) {
    for (size_t at = 0, end; at < size; at = end) {
        end = tu__word_end(text, size, at);
        require(end > at && end <= size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int32_t *tokens = malloc((size + 1) * sizeof *tokens), *parts = malloc((size + 1) * sizeof *parts);
    size_t count, first, second;
    const char *text = (const char *)data;
    require(tokens && parts);
    check_words(data, size);
    require(tu_tokenizer_encode(tokenizer(), text, size, tokens, &count) == TU_OK && count <= size);
    check_pieces(data, size, tokens, count);
    size_t space = find_space(data, size);
    require(tu_tokenizer_encode(tokenizer(), text, space, parts, &first) == TU_OK);
    require(tu_tokenizer_encode(tokenizer(), text + space, size - space, parts + first, &second) == TU_OK);
    require(first + second == count && memcmp(tokens, parts, count * sizeof *tokens) == 0);
    tu_status status = tu_text_check("input", text, size);
    require(status == TU_OK || status == TU_INVALID);
    free(tokens);
    free(parts);
    return 0;
}
