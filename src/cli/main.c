/* The program tutti: finds the command, parses its options, runs it, and reports write errors on standard output. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"
#include "cli/launched.h"
#include "cli/terminal.h"

static int run_command(const struct cli_command *command, int argc, char **argv) {
    void *values;
    int status = CLI_DONE, operands = cli_parse_command(command, argc, argv, &values);
    if (operands == CLI_PARSE_ERROR)
        status = CLI_BAD_INPUT;
    else if (operands == CLI_PARSE_HELP)
        cli_print_command_help(stdout, command);
    else
        status = command->run(values, operands, argv);
    free(values);
    return status;
}

/* Runs an option given instead of a command: --help or --version. */
static int run_option(const char *word) {
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        cli_print_overview(stdout);
        return CLI_DONE;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf(CLI_PROGRAM " %s\n", tu_version());
        return CLI_DONE;
    }
    static const char *const names[] = {"--help", "--version"};
    return cli_input_error("unknown option %s: expected a command, --help or --version%s",
                           cli_quote(word).text, cli_did_you_mean(word, names, 2).text);
}

static int dispatch(int argc, char **argv) {
    if (argc < 2)
        return cli_input_error("no command given: expected one that '" CLI_PROGRAM " --help' lists");
    if (argv[1][0] == '-') return run_option(argv[1]);
    const struct cli_command *command = cli_find_command(argv[1]);
    return command ? run_command(command, argc - 2, argv + 2) : CLI_BAD_INPUT;
}

int main(int argc, char **argv) {
    cli_open_terminal();
    signal(SIGXFSZ, SIG_IGN); /* exceeding the file size limit then fails with a message */
    cli_label_output();
    int status = dispatch(argc, argv);
    if (!cli_close_output() && status == CLI_DONE) status = CLI_FAILED;
    if (status != CLI_DONE) cli_tell_launch("status %d", status);
    return status;
}
