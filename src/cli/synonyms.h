/* Names of options in other programs. */
#ifndef TU__CLI_SYNONYMS_H
#define TU__CLI_SYNONYMS_H

/* Returns the one of `names` that corresponds to the name `word` in PyTorch, Keras and similar programs ("rate" for
 * "lr"), or NULL. Ignores case; an underscore equals a dash. */
const char *cli_synonym(const char *word, const char *const *names, int count);

#endif
