/* Error messages and exit statuses: every error is one line on stderr. */
#ifndef TU__CLI_REPORT_H
#define TU__CLI_REPORT_H

#include <stdbool.h>

#include <tutti/status.h>

/* The name of the program in messages and --help. The static command, tutti-run, has another. */
#ifndef CLI_PROGRAM
#define CLI_PROGRAM "tutti"
#endif

enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1,    /* the input is valid, but memory ran out, a file could not be written, … */
    CLI_BAD_INPUT = 2, /* invalid input, before anything is written; also non-finite numbers in training */
    CLI_LOST = 4,      /* another process of the group ended, is late or has failed */
};

/* Print "tutti: <message>" on stderr. cli_input_error returns CLI_BAD_INPUT; its messages have the form
 * "--option 'value': expected …". cli_fail returns CLI_FAILED. */
int cli_input_error(const char *format, ...) TU_PRINTF(1, 2);
int cli_fail(const char *format, ...) TU_PRINTF(1, 2);
/* Reports the result of a library call: prints tu_message() if it failed, and returns the exit status. */
int cli_report(tu_status status);
/* Returns the exit status of a failure. */
int cli_exit_status(tu_status status);

/* Quotes a word of the command line for a message. Replaces control characters and truncates long words.
 *
 *     cli_input_error("unknown network %s: expected …", cli_quote(word).text);
 */
struct cli_quoted {
    char text[128];
};
struct cli_quoted cli_quote(const char *word);

/* Joins names for a message: "text, dot or json". Names that do not fit are left out. */
struct cli_list {
    char text[512];
};
struct cli_list cli_list(const char *const *names, int count);

/* Returns "; did you mean 'graph'?" with the name that is nearest to `word`, or "" if none is similar. */
struct cli_quoted cli_did_you_mean(const char *word, const char *const *names, int count);

/* Flushes and closes standard output. Prints an error and returns false if a write failed. */
bool cli_close_output(void);

#endif
