/* The options of training runs, from tutti/settings.def, for the commands that have them: train and tune.
 *
 * The structure with the values of such a command contains CLI_SETTING_FIELDS. In tu_train_options 0 means "not given" and a
 * negative number means 0. While options are parsed, -1 means "not given" instead: no row allows -1, so --help prints no default
 * for settings that depend on the recipe. CLI_CONVERT_SETTINGS converts one form to the other. */
#ifndef TU__CLI_SETTING_OPTIONS_H
#define TU__CLI_SETTING_OPTIONS_H

#include <tutti/train.h>

#include "cli/byte_size.h"
#include "cli/command.h"
#include "cli/common_options.h"

/* Sizes are text until they are converted; a flag has its own field, because it is a bool. */
#define CLI_SETTING_FIELDS                                                                                   \
    tu_train_options o;                                                                                      \
    const char *memory_limit, *gpu_memory_limit, *gpu_memory_reserve;                                        \
    bool skip_bad, snapshots;

#define NOT_GIVEN_COUNT -1
#define NOT_GIVEN_SIZE 0
#define NOT_GIVEN_NUMBER -1
#define NOT_GIVEN_SWITCH -1
#define NOT_GIVEN_FLAG 0
#define NOT_GIVEN_TEXT NULL

static const char *const cli_no_yes[] = {"no", "yes", NULL};

/* The groups of settings.def, in the order in which --help lists them. Options without a group come first. */
enum {
    GROUP_DEVICES = 1,
    GROUP_LENGTH,
    GROUP_DATA,
    GROUP_NETWORK,
    GROUP_AUGMENTATION,
    GROUP_UPDATE,
    GROUP_FOLDER
};

/* Rows of a table of options: #define TU_SETTING(…) CLI_OPTION_##kind(struct train_values, …). */
#define CLI_OPTION_COUNT(structure, field, name, letter, argument, minimum, maximum, place, help)            \
    CLI_INT(structure, o.field, name, letter, argument, minimum, maximum, help, .group = place)
#define CLI_OPTION_SIZE(structure, field, name, letter, argument, minimum, maximum, place, help)             \
    CLI_STRING(structure, field, name, letter, argument, help, .group = place)
#define CLI_OPTION_NUMBER(structure, field, name, letter, argument, minimum, maximum, place, help)           \
    CLI_DOUBLE(structure, o.field, name, letter, argument, minimum, maximum, help, .group = place)
#define CLI_OPTION_SWITCH(structure, field, name, letter, argument, minimum, maximum, place, help)           \
    CLI_CHOICE(structure, o.field, name, letter, argument, cli_no_yes, help, .group = place)
#define CLI_OPTION_FLAG(structure, field, name, letter, argument, minimum, maximum, place, help)             \
    CLI_FLAG(structure, field, name, letter, help, .group = place)
#define CLI_OPTION_TEXT(structure, field, name, letter, argument, minimum, maximum, place, help)             \
    CLI_STRING(structure, o.field, name, letter, argument, help, .group = place)

/* Converts the text of a size to a field of tu_train_options: 0 if it was not given (NULL), -1 for "0". */
static inline bool cli_convert_size(const char *command, const char *option, const char *text,
                                    int64_t *size) {
    uint64_t bytes = 0;
    if (text && strcmp(text, "0") != 0 && (!cli_parse_bytes(text, &bytes) || bytes > INT64_MAX)) {
        cli_input_error("%s: --%s %s: expected a size, as in 64M or 1.5G", command, option,
                        cli_quote(text).text);
        return false;
    }
    *size = text && !bytes ? -1 : (int64_t)bytes;
    return true;
}

#define CLI_CONVERT_COUNT(command, v, field, option)                                                         \
    v->o.field = v->o.field < 0 ? 0 : v->o.field == 0 ? -1 : v->o.field
#define CLI_CONVERT_NUMBER(command, v, field, option) CLI_CONVERT_COUNT(command, v, field, option)
#define CLI_CONVERT_SWITCH(command, v, field, option) CLI_CONVERT_COUNT(command, v, field, option)
#define CLI_CONVERT_FLAG(command, v, field, option) v->o.field = v->field
#define CLI_CONVERT_SIZE(command, v, field, option)                                                          \
    if (!cli_convert_size(command, option, v->field, &v->o.field)) return CLI_BAD_INPUT
#define CLI_CONVERT_TEXT(command, v, field, option) (void)0

#endif
