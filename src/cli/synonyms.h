/* What other programs call an option of ours. */
#ifndef CLI_SYNONYMS_H
#define CLI_SYNONYMS_H

/* The one of `names` that users of PyTorch, Keras and their like mean by `word` ("lr": "rate"); NULL: there is none.
 * Capitals and underscores make no difference. */
const char *cli_synonym(const char *word, const char *const *names, int count);

#endif
