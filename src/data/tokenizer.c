/* Tokenizers: opening, encoding word by word, pieces of tokens, and the check that a text is UTF-8. */
#include "data/tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/sha256.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "data/inflate.h"
#include "graph/graph.h"

enum { BYTES = 256, MAX_FILE = 16 << 20 };

/* ---- Descriptions: NAME sha256:HEX ---- */

static const char digest_mark[] = " sha256:";

/* Returns the hexadecimal digest at the end of a description; NULL if it has none. */
static const char *digest_of(const char *description) {
    size_t length = strlen(description), hex = TU__SHA256_HEX - 1, mark = sizeof digest_mark - 1;
    if (length <= hex + mark || strncmp(description + length - hex - mark, digest_mark, mark) != 0)
        return NULL;
    const char *digest = description + length - hex;
    return strspn(digest, "0123456789abcdef") == hex ? digest : NULL;
}

bool tu__same_tokenizer(const char *a, const char *b) {
    if (!a || !b || !*a || !*b) return true;
    const char *one = digest_of(a), *other = digest_of(b);
    if (one && other) return strcmp(one, other) == 0;
    return (strcmp(a, "bytes") == 0) == (strcmp(b, "bytes") == 0);
}

/* Sets the description, and fails if `expected`, a digest or NULL, differs. */
static tu_status describe(const unsigned char *text, size_t length, const char *expected, tu_tokenizer *t) {
    unsigned char sum[TU__SHA256_BYTES];
    char hex[TU__SHA256_HEX];
    tu__sha256_of(text, length, sum);
    tu__sha256_hex(sum, hex);
    if (expected && strcmp(hex, expected) != 0)
        return tu_fail(
            TU_INVALID,
            "tokenizer '%.200s' has merges with SHA-256 %.12s, but the tokens were made with merges of %.12s: "
            "expected the same file",
            t->name, hex, expected);
    size_t size = strlen(t->name) + sizeof digest_mark + sizeof hex;
    t->description = tu__alloc(size, "a tokenizer");
    if (!t->description) return TU_NO_MEMORY;
    snprintf(t->description, size, "%s%s%s", t->name, digest_mark, hex);
    return TU_OK;
}

/* ---- Opening ---- */

static tu_status open_bytes(tu_tokenizer *t) {
    t->vocabulary = BYTES;
    t->starts = tu__alloc_array(BYTES + 1, sizeof *t->starts, "a tokenizer");
    t->pieces = tu__alloc(BYTES, "a tokenizer");
    if (!t->starts || !t->pieces) return TU_NO_MEMORY;
    for (uint32_t i = 0; i <= BYTES; i++) t->starts[i] = i;
    for (int i = 0; i < BYTES; i++) t->pieces[i] = (char)i;
    return TU_OK;
}

static tu_status open_merges(const char *path, const char *digest, tu_tokenizer *t) {
    unsigned char *text;
    size_t length;
    tu_status status = tu__inflate_file(path, MAX_FILE, &text, &length);
    if (status == TU_NOT_FOUND)
        return tu_fail(
            TU_NOT_FOUND,
            "tokenizer '%.200s': there is no such file: expected bytes, gpt2, or a file with merges", path);
    TU_TRY(status);
    status = describe(text, length, digest, t);
    if (status == TU_OK) status = tu__merges_read(path, (const char *)text, length, t);
    tu__free(text);
    return status;
}

static tu_status open_named(const char *digest, const tu_dataset_options *options, tu_tokenizer *t) {
    tu__path path;
    if (strcmp(t->name, "bytes") == 0) return open_bytes(t);
    if (strcmp(t->name, "gpt2") != 0) return open_merges(t->name, digest, t);
    TU_TRY(tu__find_gpt2_merges(options, &path));
    return open_merges(path.text, digest, t);
}

tu_status tu_tokenizer_open_with(const char *name, tu_tokenizer **tokenizer,
                                 const tu_dataset_options *options) {
    TU__OPTIONS(tu_dataset_options, o, options);
    *tokenizer = NULL;
    if (!name || !*name)
        return tu_fail(TU_INVALID, "the tokenizer has no name: expected bytes, gpt2, or a file");
    tu_tokenizer *t = tu__alloc(sizeof *t, "a tokenizer");
    if (!t) return TU_NO_MEMORY;
    *t = (tu_tokenizer){.end = -1};
    const char *digest = digest_of(name);
    size_t length = digest ? (size_t)(digest - name) - (sizeof digest_mark - 1) : strlen(name);
    t->name = tu__alloc(length + 1, "a tokenizer");
    if (t->name) memcpy(t->name, name, length), t->name[length] = '\0';
    tu_status status = t->name ? open_named(digest, &o, t) : TU_NO_MEMORY;
    if (status == TU_OK)
        *tokenizer = t;
    else
        tu_tokenizer_free(t);
    return status;
}

void tu_tokenizer_free(tu_tokenizer *t) {
    if (!t) return;
    tu__merges_free(t->merges);
    tu__free(t->starts);
    tu__free(t->pieces);
    tu__free(t->name);
    tu__free(t->description);
    tu__free(t);
}

const char *tu_tokenizer_name(const tu_tokenizer *t) {
    return t->name;
}

const char *tu_tokenizer_description(const tu_tokenizer *t) {
    return t->description ? t->description : t->name;
}

int64_t tu_tokenizer_vocabulary(const tu_tokenizer *t) {
    return t->vocabulary;
}

int32_t tu_tokenizer_end(const tu_tokenizer *t) {
    return t->end;
}

/* ---- Encoding and decoding ---- */

tu_status tu_tokenizer_encode(const tu_tokenizer *t, const char *text, size_t length, int32_t *tokens,
                              size_t *count) {
    const unsigned char *bytes = (const unsigned char *)text;
    *count = 0;
    for (size_t first = 0, end; first < length; first = end) {
        size_t added = 1;
        end = t->merges ? tu__word_end(bytes, length, first) : first + 1;
        if (t->merges)
            TU_TRY(tu__merges_encode(t->merges, bytes + first, end - first, tokens + *count, &added));
        else
            tokens[*count] = bytes[first];
        *count += added;
    }
    return TU_OK;
}

tu_status tu_tokenizer_piece(const tu_tokenizer *t, int32_t token, const char **bytes, size_t *length) {
    if (token < 0 || token >= t->vocabulary)
        return tu_fail(TU_INVALID, "token %" PRId32 ": tokenizer '%s' has tokens 0 to %" PRId64, token,
                       t->name, t->vocabulary - 1);
    *bytes = t->pieces + t->starts[token];
    *length = t->starts[token + 1] - t->starts[token];
    return TU_OK;
}

/* ---- UTF-8 ---- */

tu_status tu_text_check(const char *name, const char *text, size_t length) {
    int64_t line = 1, column = 1;
    for (size_t i = 0; i < length;) {
        bool valid;
        size_t bytes = tu__utf8_length(text + i, length - i, &valid);
        if (!valid)
            return tu_fail(TU_INVALID,
                           "%s: line %" PRId64 ", column %" PRId64
                           ": byte 0x%02x is not UTF-8: expected text in UTF-8",
                           name, line, column, (unsigned)(unsigned char)text[i]);
        if (!text[i]) /* a binary file, or a hole in a sparse one */
            return tu_fail(TU_INVALID,
                           "%s: line %" PRId64 ", column %" PRId64
                           ": byte 0x00: expected text without zero bytes",
                           name, line, column);
        column++;
        if (text[i] == '\n') line++, column = 1;
        i += bytes;
    }
    return TU_OK;
}
