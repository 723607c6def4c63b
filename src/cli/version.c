/* `tutti version`: prints the versions of the command, the library and the compiler, for bug reports. */
#include "cli/command.h"
#include "cli/common_options.h"

#include <tutti/command.h>

#ifdef __clang__
#define COMPILER __VERSION__ /* begins with "Clang" */
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
        printf(CLI_PROGRAM " %s (library %s, interface %d, %s)\n", TUTTI_VERSION, tu_version(), tu_abi(),
               COMPILER);
        return CLI_DONE;
    }
    tu_json json = tu_json_to_file(stdout);
    tu_json_begin_object(&json, NULL);
    tu_json_string(&json, "version", TUTTI_VERSION);
    tu_json_string(&json, "library", tu_version());
    tu_json_i64(&json, "abi", tu_abi());
    tu_json_string(&json, "compiler", COMPILER);
    tu_json_end_object(&json);
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
