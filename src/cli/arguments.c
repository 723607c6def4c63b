/* Parses the arguments of a command. See command.h. */
#include "cli/command.h"

#include <stdlib.h>
#include <string.h>

static int check_operands(const struct cli_command *command, int operands, char **argv) {
    if (operands < command->min_operands) {
        cli_input_error("%s: an operand is missing: expected '" CLI_PROGRAM " %s %s'", command->name,
                        command->name, command->usage);
        return CLI_PARSE_ERROR;
    }
    if (operands > command->max_operands) {
        cli_input_error("%s: unexpected operand %s: expected '" CLI_PROGRAM " %s %s'", command->name,
                        cli_quote(argv[command->max_operands]).text, command->name, command->usage);
        return CLI_PARSE_ERROR;
    }
    return operands;
}

int cli_parse_command(const struct cli_command *command, int argc, char **argv, void **values) {
    *values = calloc(1, command->values_size ? command->values_size : 1);
    if (!*values) {
        cli_fail("%s: out of memory", command->name);
        return CLI_PARSE_ERROR;
    }
    if (command->defaults) memcpy(*values, command->defaults, command->values_size);
    int operands = (command->ends_at_operand ? cli_parse_leading : cli_parse)(command->name, command->options,
                                                                              argc, argv, *values);
    return operands < 0 ? operands : check_operands(command, operands, argv);
}
