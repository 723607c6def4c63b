/* `tutti help [COMMAND]`, `tutti --help` and `tutti COMMAND --help`, and the list of commands. */
#include "cli/command.h"

#include <string.h>

#include <tutti/network.h>

#ifdef TUTTI_STATIC
#define CLI_SUMMARY "Runs trained networks on CPUs. Statically linked."
#else
#define CLI_SUMMARY "Trains and runs neural networks on CPUs and GPUs."
#endif

const struct cli_command *const cli_commands[] = {
#define CLI_COMMAND(name) &cli_command_##name,
#include "cli/commands.def"
#undef CLI_COMMAND
    NULL,
};

const struct cli_command *cli_find_command(const char *name) {
    const char *names[sizeof cli_commands / sizeof *cli_commands];
    int count = 0;
    for (; cli_commands[count]; count++) {
        if (strcmp(cli_commands[count]->name, name) == 0) return cli_commands[count];
        names[count] = cli_commands[count]->name;
    }
    cli_input_error("unknown command %s: expected one that '" CLI_PROGRAM " --help' lists%s",
                    cli_quote(name).text, cli_did_you_mean(name, names, count).text);
    return NULL;
}

void cli_print_overview(FILE *file) {
    int widest = 0;
    for (int i = 0; cli_commands[i]; i++)
        if ((int)strlen(cli_commands[i]->name) > widest) widest = (int)strlen(cli_commands[i]->name);
    fprintf(file, "Usage: " CLI_PROGRAM " COMMAND [OPTIONS]\n\n" CLI_SUMMARY "\n\n"
                  "Commands:\n");
    for (int i = 0; cli_commands[i]; i++)
        fprintf(file, "  %-*s  %s\n", widest, cli_commands[i]->name, cli_commands[i]->summary);
    fprintf(file, "\nOptions:\n"
                  "  -V, --version  print the version and exit\n"
                  "  -h, --help     print this help and exit\n"
                  "\n'" CLI_PROGRAM " COMMAND --help' explains a command; the manual is 'man tutti'.\n");
}

static void print_models(FILE *file) {
    const char *name, *summary;
    int widest = 0;
    for (size_t i = 0; i < tu_network_count() && tu_network(i, &name, &summary) == TU_OK; i++)
        if ((int)strlen(name) > widest) widest = (int)strlen(name);
    fprintf(file, "Built-in networks:\n");
    for (size_t i = 0; i < tu_network_count() && tu_network(i, &name, &summary) == TU_OK; i++)
        fprintf(file, "  %-*s  %s\n", widest, name, summary);
    fprintf(file, "\n");
}

void cli_print_command_help(FILE *file, const struct cli_command *command) {
    fprintf(file, "Usage: " CLI_PROGRAM " %s %s\n\n%s\n\n", command->name, command->usage,
            command->description);
    if (command->lists_models) print_models(file);
    cli_print_options(file, command->options, command->defaults);
}

static int run(const void *values, int operand_count, char **operands) {
    (void)values;
    if (operand_count == 0) {
        cli_print_overview(stdout);
        return CLI_DONE;
    }
    const struct cli_command *command = cli_find_command(operands[0]);
    if (!command) return CLI_BAD_INPUT;
    cli_print_command_help(stdout, command);
    return CLI_DONE;
}

const struct cli_command cli_command_help = {
    .name = "help",
    .summary = "explains a command, or lists all commands",
    .usage = "[COMMAND]",
    .description = "Explains COMMAND like '" CLI_PROGRAM " COMMAND --help'; without COMMAND, lists all.",
    .max_operands = 1,
    .run = run,
};
