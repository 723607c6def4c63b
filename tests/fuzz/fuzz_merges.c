/* Parses bytes as merges of a byte pair encoding, and encodes them with the result. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    tu_tokenizer *t = tu__alloc(sizeof *t, "a tokenizer");
    int32_t *tokens = malloc((size + 1) * sizeof *tokens);
    size_t count, length = 0;
    const char *bytes;
    if (!t || !tokens) abort();
    if (tu__merges_read("fuzz", (const char *)data, size, t) == TU_OK) {
        if (tu_tokenizer_encode(t, (const char *)data, size, tokens, &count) != TU_OK || count > size)
            abort();
        for (size_t i = 0, at = 0; i < count; i++, at += length)
            if (tu_tokenizer_piece(t, tokens[i], &bytes, &length) != TU_OK || at + length > size ||
                memcmp(bytes, data + at, length) != 0)
                abort();
    }
    tu_tokenizer_free(t);
    free(tokens);
    return 0;
}
