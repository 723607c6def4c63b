/* "Did you mean …?": the known name that a misspelt word is nearest to. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

/* The name nearest to `word`; the first of several as near; NULL when none is near enough to be a slip of the hand. */
const char *cli_nearest(const char *word, const char *const *names, int count);

#endif
