/* `tutti data tokens`: text files become one token file. */
#ifndef TU__CLI_DATA_TOKENS_H
#define TU__CLI_DATA_TOKENS_H

#include <tutti/data.h>

struct data_tokens_settings {
    const char *tokenizer, *out; /* out: path of the token file */
    double test_share;           /* of the tokens, for the test; as many before them are for validation */
    bool json;
    const tu_dataset_options *options; /* of the tokenizer */
};

/* Returns an enum cli_exit. */
int data_tokens(const struct data_tokens_settings *settings, int file_count, char **files);

#endif
