/* A command of the tutti program: what it is called, what it takes, and the function that does it.
 *
 * A new command is one file in this folder that defines `const struct cli_command cli_command_NAME`, one line in
 * commands.def, and a section in docs/man/tutti.1. The frame does the rest: parsing, --help, refusals, and the check
 * that standard output reached its destination. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/options.h"
#include "cli/report.h"

struct cli_command {
    const char *name;
    const char *summary;     /* one line of `tutti --help` */
    const char *usage;       /* what follows the name: "MODEL [OPTIONS]" */
    const char *description; /* what --help says below the usage line; lines of at most 80 characters */
    bool takes_model;        /* --help also lists the built-in networks */
    const struct cli_option *options; /* NULL: --help alone */
    size_t values_size;               /* of the structure that the options fill, and its initial contents */
    const void *defaults;             /* NULL: zeros */
    int least_operands, most_operands;
    /* `values` is that structure. Returns an enum cli_exit. */
    int (*run)(const void *values, int operand_count, char **operands);
};

/* All commands, in the order `tutti --help` lists them; ends with NULL. */
extern const struct cli_command *const cli_commands[];

#define CLI_COMMAND(name) extern const struct cli_command cli_command_##name;
#include "cli/commands.def"
#undef CLI_COMMAND

/* The command of that name, or NULL with a refusal that suggests the nearest. */
const struct cli_command *cli_find_command(const char *name);

void cli_print_overview(FILE *file);
void cli_print_command_help(FILE *file, const struct cli_command *command);

#endif
