/* Parses a command line with a table of options. See options.h for the rules and options_help.c for --help. */
#include "cli/options.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/command.h>

#include "cli/report.h"
#include "cli/synonyms.h"

enum {
    MAX_OPTIONS = 128, /* more than any table has */
    MAX_NAME = 255,    /* longer than the name of any option; longer names are truncated */
};

struct parser {
    const char *command;
    const struct cli_option *table;
    void *values;
    int argc;
    char **argv;
    int next; /* index of the next argument to read */
};

static void *field_of(const struct parser *parser, const struct cli_option *option) {
    return (char *)parser->values + option->offset;
}

/* ---- Values ---- */

static bool store_int(const struct parser *parser, const struct cli_option *option, const char *shown,
                      const char *value) {
    char *end;
    errno = 0;
    intmax_t number = strtoimax(value, &end, 10);
    if (end != value && *end == '\0' && errno == 0 && number >= option->min && number <= option->max) {
        *(int64_t *)field_of(parser, option) = number;
        return true;
    }
    cli_input_error("%s: %s %s: expected a whole number from %" PRId64 " to %" PRId64, parser->command, shown,
                    cli_quote(value).text, option->min, option->max);
    return false;
}

static bool store_double(const struct parser *parser, const struct cli_option *option, const char *shown,
                         const char *value) {
    char *end;
    double number = strtod(value, &end);
    if (end != value && *end == '\0' && isfinite(number) && number >= option->min_double &&
        number <= option->max_double) {
        *(double *)field_of(parser, option) = number;
        return true;
    }
    cli_input_error("%s: %s %s: expected a number from %g to %g", parser->command, shown,
                    cli_quote(value).text, option->min_double, option->max_double);
    return false;
}

static bool store_choice(const struct parser *parser, const struct cli_option *option, const char *shown,
                         const char *value) {
    int count = 0;
    for (; option->choices[count]; count++)
        if (strcmp(option->choices[count], value) == 0) {
            *(int *)field_of(parser, option) = count;
            return true;
        }
    cli_input_error("%s: %s %s: expected %s%s", parser->command, shown, cli_quote(value).text,
                    cli_list(option->choices, count).text,
                    cli_did_you_mean(value, option->choices, count).text);
    return false;
}

/* Stores a value, or prints an error and returns false. `shown` is the option as given: "--batch" or "-b". */
static bool store_value(const struct parser *parser, const struct cli_option *option, const char *shown,
                        const char *value) {
    switch (option->kind) {
    case CLI_KIND_FLAG: *(bool *)field_of(parser, option) = true; return true;
    case CLI_KIND_INT: return store_int(parser, option, shown, value);
    case CLI_KIND_DOUBLE: return store_double(parser, option, shown, value);
    case CLI_KIND_STRING: *(const char **)field_of(parser, option) = value; return true;
    case CLI_KIND_CHOICE: return store_choice(parser, option, shown, value);
    }
    return false;
}

/* Returns the next argument as a value. If there is none, prints an error and returns NULL. */
static const char *next_value(struct parser *parser, const struct cli_option *option, const char *shown) {
    if (parser->next < parser->argc) return parser->argv[parser->next++];
    cli_input_error("%s: %s: expected a value %s after it", parser->command, shown, option->argument);
    return NULL;
}

/* ---- Options ---- */

/* `shown` is the option with its dashes; names in the table have none. */
static void report_unknown_option(const struct parser *parser, const char *shown) {
    const char *names[MAX_OPTIONS];
    int count = 0;
    names[count++] = "help";
    for (const struct cli_option *option = parser->table; option && option->name && count < MAX_OPTIONS;
         option++)
        names[count++] = option->name;
    const char *nearest = NULL;
    if (shown[1] == '-') {
        nearest = cli_synonym(shown + 2, names, count);
        if (!nearest) nearest = tu_nearest_name(shown + 2, names, (size_t)count);
    }
    cli_input_error("%s: unknown option %s: expected one that '" CLI_PROGRAM " %s --help' lists%s%s%s",
                    parser->command, cli_quote(shown).text, parser->command,
                    nearest ? "; did you mean '--" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

/* Parses "--name", "--name value" or "--name=value". Returns 0, CLI_PARSE_HELP or CLI_PARSE_ERROR. */
static int parse_long(struct parser *parser, const char *word) {
    char shown[MAX_NAME + 1]; /* "--name" */
    size_t length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    snprintf(shown, sizeof shown, "%.*s", length < MAX_NAME ? (int)length : MAX_NAME, word);
    const char *name = shown + 2;

    bool help = strcmp(name, "help") == 0;
    const struct cli_option *option = parser->table;
    while (option && option->name && strcmp(option->name, name) != 0) option++;
    if (!help && (!option || !option->name)) {
        report_unknown_option(parser, shown);
        return CLI_PARSE_ERROR;
    }
    if (value && (help || option->kind == CLI_KIND_FLAG)) {
        cli_input_error("%s: %s %s: expected no value", parser->command, shown, cli_quote(value).text);
        return CLI_PARSE_ERROR;
    }
    if (help) return CLI_PARSE_HELP;
    if (!value && option->kind != CLI_KIND_FLAG && !(value = next_value(parser, option, shown)))
        return CLI_PARSE_ERROR;
    return store_value(parser, option, shown, value) ? 0 : CLI_PARSE_ERROR;
}

/* Parses "-b 32", "-b32" or joined flags. Returns the same values as parse_long. */
static int parse_short(struct parser *parser, const char *word) {
    for (const char *letter = word + 1; *letter; letter++) {
        const char shown[] = {'-', *letter, '\0'};
        if (*letter == 'h') return CLI_PARSE_HELP;
        const struct cli_option *option = parser->table;
        while (option && option->name && option->letter != *letter) option++;
        if (!option || !option->name) {
            report_unknown_option(parser, shown);
            return CLI_PARSE_ERROR;
        }
        const char *value = NULL;
        if (option->kind != CLI_KIND_FLAG) {
            value = letter[1] ? letter + 1 : next_value(parser, option, shown);
            if (!value) return CLI_PARSE_ERROR;
        }
        if (!store_value(parser, option, shown, value)) return CLI_PARSE_ERROR;
        if (value) break;
    }
    return 0;
}

/* Parses all arguments, or those before the first operand. */
static int parse(struct parser *parser, bool ends_at_operand) {
    int operands = 0;
    bool options_ended = false;
    while (parser->next < parser->argc) {
        char *word = parser->argv[parser->next++];
        int outcome = 0;
        if (options_ended || word[0] != '-' || word[1] == '\0') {
            parser->argv[operands++] = word; /* this slot has been read already */
            options_ended = options_ended || ends_at_operand;
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else if (word[1] == '-') {
            outcome = parse_long(parser, word);
        } else {
            outcome = parse_short(parser, word);
        }
        if (outcome < 0) return outcome;
    }
    return operands;
}

int cli_parse(const char *command, const struct cli_option *table, int argc, char **argv, void *values) {
    struct parser parser = {.command = command, .table = table, .values = values, .argc = argc, .argv = argv};
    return parse(&parser, false);
}

int cli_parse_leading(const char *command, const struct cli_option *table, int argc, char **argv,
                      void *values) {
    struct parser parser = {.command = command, .table = table, .values = values, .argc = argc, .argv = argv};
    return parse(&parser, true);
}
