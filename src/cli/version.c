/* `tutti version`: which command, library and compiler a result or a bug report comes from. */
#include "base/json.h"
#include "cli/command.h"
#include "cli/common_options.h"

#ifdef __clang__
#define COMPILER __VERSION__ /* names itself */
#else
#define COMPILER "gcc " __VERSION__
#endif

struct version_values {
    bool json;
};

static const struct cli_option options[] = {
    CLI_FLAG(struct version_values, json, "json", 0, CLI_HELP_JSON),
    {0},
};

static int run(const void *values, int operand_count, char **operands) {
    const struct version_values *version = values;
    (void)operand_count;
    (void)operands;
    if (!version->json) {
        printf("tutti %s (library %s, interface %d, %s)\n", TUTTI_VERSION, tu_version(), tu_abi(), COMPILER);
        return CLI_DONE;
    }
    tu__json json = tu__json_to_file(stdout);
    tu__json_begin_object(&json, NULL);
    tu__json_string(&json, "version", TUTTI_VERSION);
    tu__json_string(&json, "library", tu_version());
    tu__json_i64(&json, "abi", tu_abi());
    tu__json_string(&json, "compiler", COMPILER);
    tu__json_end_object(&json);
    putchar('\n');
    return CLI_DONE;
}

const struct cli_command cli_command_version = {
    .name = "version",
    .summary = "prints the versions of the command, the library and the compiler",
    .usage = "[OPTIONS]",
    .description = "Prints the versions of this command, of the library and of the compiler.",
    .options = options,
    .values_size = sizeof(struct version_values),
    .run = run,
};
