/* How the command speaks of failure: one line on stderr, and one of three exit statuses. */
#ifndef CLI_REPORT_H
#define CLI_REPORT_H

#include <stdbool.h>

#include <tutti/status.h>

enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1,    /* the input was good; memory or the disk was not */
    CLI_BAD_INPUT = 2, /* nothing was written, unless it took a while to show: numbers that are not finite */
};

/* Each prints "tutti: <message>" and returns the exit status, so that a command can `return cli_refuse(…)`. The form
 * of a refusal is "<what> '<value>': expected <what would do>". */
int cli_refuse(const char *format, ...) TU_PRINTF(1, 2);
int cli_fail(const char *format, ...) TU_PRINTF(1, 2);
/* The same for a failed call of the library, from its status and tu_message(). */
int cli_report(tu_status status);

/* A word of the user's, quoted for a message: control characters and a length no line can bear are taken out.
 *
 *     cli_refuse("unknown model %s: expected …", cli_quote(word).text);
 */
struct cli_quoted {
    char text[128];
};
struct cli_quoted cli_quote(const char *word);

/* "text, dot or json": what is expected, in a refusal. Names that no line can bear are left out at the end. */
struct cli_list {
    char text[512];
};
struct cli_list cli_list(const char *const *names, int count);

/* What ends a refusal of a word that was expected to be one of `names`: "; did you mean 'graph'?", or nothing when no
 * name is near enough. */
struct cli_quoted cli_did_you_mean(const char *word, const char *const *names, int count);

/* Flushes standard output; false, with a message, when anything written to it was lost. */
bool cli_close_output(void);

#endif
