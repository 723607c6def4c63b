/* Tokenizers: a table of pieces, and a function that encodes. */
#ifndef TU__DATA_TOKENIZER_H
#define TU__DATA_TOKENIZER_H

#include <tutti/text.h>

#include "base/path.h"

struct tu_tokenizer {
    char *name, *description;
    int64_t vocabulary;
    int32_t end;      /* -1: none */
    uint32_t *starts; /* [vocabulary + 1]: piece i is bytes starts[i] … starts[i + 1] - 1 of `pieces` */
    char *pieces;
    struct tu__merges *merges; /* NULL: a token is a byte */
};

/* bpe.c: reads merges in GPT-2's format; fills pieces, merges and vocabulary. `path` is the file's name in messages. */
tu_status tu__merges_read(const char *path, const char *text, size_t length, tu_tokenizer *tokenizer);
void tu__merges_free(struct tu__merges *merges);
/* Encodes one word, of any length. `tokens` has room for `length` tokens; sets the number of tokens. */
tu_status tu__merges_encode(const struct tu__merges *merges, const unsigned char *word, size_t length,
                            int32_t *tokens, size_t *count);

/* Compares the descriptions that two token files have. False only if the tokens certainly have different meanings: by their
 * digests, or because one is bytes. Files of older versions have no digests, programs may describe tokenizers of their own. */
bool tu__same_tokenizer(const char *a, const char *b);

/* split_words.c: returns the end of the word that starts at `first`, as GPT-2's pattern defines words. */
size_t tu__word_end(const unsigned char *text, size_t length, size_t first);

/* tokenizer_files.c: finds GPT-2's merges in the cache, or downloads them. */
tu_status tu__find_gpt2_merges(const tu_dataset_options *options, tu__path *path);

#endif
