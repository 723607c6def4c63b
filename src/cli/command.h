/* A command of the program tutti: its name, options, operands and the function that runs it.
 *
 * A new command is one file in this folder that defines `const struct cli_command cli_command_NAME`, one line in
 * commands.def, and a section in docs/man/tutti.1. main.c parses the options, prints --help and error messages, and
 * reports write errors on standard output. */
#ifndef TU__CLI_COMMAND_H
#define TU__CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/options.h"
#include "cli/report.h"

struct cli_command {
    const char *name;
    const char *summary;     /* its line in `tutti --help` */
    const char *usage;       /* operands and options after the name: "MODEL [OPTIONS]" */
    const char *description; /* text of --help below the usage line; lines of at most 80 characters */
    bool lists_models;       /* --help also lists the built-in networks */
    const struct cli_option *options; /* NULL: no options except --help */
    size_t values_size;               /* size of the structure in which option values are stored */
    const void *defaults;             /* its initial contents; NULL: zeros */
    int min_operands, max_operands;
    bool ends_at_operand; /* options end at the first operand, which is another command */
    bool joins_processes; /* can run as one of the processes that mpirun or srun starts */
    /* Runs the command with the parsed options. Returns an enum cli_exit. */
    int (*run)(const void *values, int operand_count, char **operands);
};

/* All commands, in the order in which `tutti --help` lists them; ends with NULL. */
extern const struct cli_command *const cli_commands[];

#define CLI_COMMAND(name) extern const struct cli_command cli_command_##name;
#include "cli/commands.def"
#undef CLI_COMMAND

/* Returns the command with this name. If there is none, prints an error with the nearest name and returns NULL. */
const struct cli_command *cli_find_command(const char *name);

/* Parses the arguments after the command's name into `*values`, which the caller frees, also after a failure. Returns
 * the number of operands, CLI_PARSE_HELP or CLI_PARSE_ERROR: an error has been printed. */
int cli_parse_command(const struct cli_command *command, int argc, char **argv, void **values);

void cli_print_overview(FILE *file);
void cli_print_command_help(FILE *file, const struct cli_command *command);

#endif
