/* Parses a command line by its table of options. See options.h for the rules and options_help.c for --help. */
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
    MAX_OPTIONS = 128,  /* more than any table has: bounds what a misspelt option is compared with */
    LONGEST_WORD = 255, /* longer than any option: what is beyond is no part of a name */
};

struct parser {
    const char *command;
    const struct cli_option *table;
    void *values;
    int argc;
    char **argv;
    int next; /* index of the word to read next */
};

static void *field(const struct parser *parser, const struct cli_option *option) {
    return (char *)parser->values + option->offset;
}

/* ---- Values ---- */

static bool store_int(const struct parser *parser, const struct cli_option *option, const char *shown,
                      const char *value) {
    char *end;
    errno = 0;
    intmax_t number = strtoimax(value, &end, 10);
    if (end != value && *end == '\0' && errno == 0 && number >= option->least && number <= option->most) {
        *(int64_t *)field(parser, option) = number;
        return true;
    }
    cli_refuse("%s: %s %s: expected a whole number from %" PRId64 " to %" PRId64, parser->command, shown,
               cli_quote(value).text, option->least, option->most);
    return false;
}

static bool store_double(const struct parser *parser, const struct cli_option *option, const char *shown,
                         const char *value) {
    char *end;
    double number = strtod(value, &end);
    if (end != value && *end == '\0' && isfinite(number) && number >= option->lower &&
        number <= option->upper) {
        *(double *)field(parser, option) = number;
        return true;
    }
    cli_refuse("%s: %s %s: expected a number from %g to %g", parser->command, shown, cli_quote(value).text,
               option->lower, option->upper);
    return false;
}

static bool store_choice(const struct parser *parser, const struct cli_option *option, const char *shown,
                         const char *value) {
    int count = 0;
    for (; option->choices[count]; count++)
        if (strcmp(option->choices[count], value) == 0) {
            *(int *)field(parser, option) = count;
            return true;
        }
    cli_refuse("%s: %s %s: expected %s%s", parser->command, shown, cli_quote(value).text,
               cli_list(option->choices, count).text, cli_did_you_mean(value, option->choices, count).text);
    return false;
}

/* `shown` is the option as the user wrote it: "--batch" or "-b". */
static bool store(const struct parser *parser, const struct cli_option *option, const char *shown,
                  const char *value) {
    switch (option->kind) {
    case CLI_KIND_FLAG: *(bool *)field(parser, option) = true; return true;
    case CLI_KIND_INT: return store_int(parser, option, shown, value);
    case CLI_KIND_DOUBLE: return store_double(parser, option, shown, value);
    case CLI_KIND_STRING: *(const char **)field(parser, option) = value; return true;
    case CLI_KIND_CHOICE: return store_choice(parser, option, shown, value);
    }
    return false;
}

/* The next word of the command line as a value, or NULL with a message. */
static const char *take_value(struct parser *parser, const struct cli_option *option, const char *shown) {
    if (parser->next < parser->argc) return parser->argv[parser->next++];
    cli_refuse("%s: %s: expected a value %s after it", parser->command, shown, option->argument);
    return NULL;
}

/* ---- Options ---- */

/* `shown` is the option with its dashes; names are compared without. */
static void refuse_unknown(const struct parser *parser, const char *shown) {
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
    cli_refuse("%s: unknown option %s: expected one that 'tutti %s --help' lists%s%s%s", parser->command,
               cli_quote(shown).text, parser->command, nearest ? "; did you mean '--" : "",
               nearest ? nearest : "", nearest ? "'?" : "");
}

/* "--name", "--name value" or "--name=value". Returns 0, CLI_PARSE_HELP or CLI_PARSE_REFUSED. */
static int parse_long(struct parser *parser, const char *word) {
    char shown[LONGEST_WORD + 1]; /* "--name" */
    size_t length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    snprintf(shown, sizeof shown, "%.*s", length < LONGEST_WORD ? (int)length : LONGEST_WORD, word);
    const char *name = shown + 2;

    bool help = strcmp(name, "help") == 0;
    const struct cli_option *option = parser->table;
    while (option && option->name && strcmp(option->name, name) != 0) option++;
    if (!help && (!option || !option->name)) {
        refuse_unknown(parser, shown);
        return CLI_PARSE_REFUSED;
    }
    if (value && (help || option->kind == CLI_KIND_FLAG)) {
        cli_refuse("%s: %s %s: expected no value", parser->command, shown, cli_quote(value).text);
        return CLI_PARSE_REFUSED;
    }
    if (help) return CLI_PARSE_HELP;
    if (!value && option->kind != CLI_KIND_FLAG && !(value = take_value(parser, option, shown)))
        return CLI_PARSE_REFUSED;
    return store(parser, option, shown, value) ? 0 : CLI_PARSE_REFUSED;
}

/* "-b 32", "-b32", or joined flags. */
static int parse_short(struct parser *parser, const char *word) {
    for (const char *letter = word + 1; *letter; letter++) {
        const char shown[] = {'-', *letter, '\0'};
        if (*letter == 'h') return CLI_PARSE_HELP;
        const struct cli_option *option = parser->table;
        while (option && option->name && option->letter != *letter) option++;
        if (!option || !option->name) {
            refuse_unknown(parser, shown);
            return CLI_PARSE_REFUSED;
        }
        const char *value = NULL;
        if (option->kind != CLI_KIND_FLAG) {
            value = letter[1] ? letter + 1 : take_value(parser, option, shown);
            if (!value) return CLI_PARSE_REFUSED;
        }
        if (!store(parser, option, shown, value)) return CLI_PARSE_REFUSED;
        if (value) break;
    }
    return 0;
}

int cli_parse(const char *command, const struct cli_option *table, int argc, char **argv, void *values) {
    struct parser parser = {.command = command, .table = table, .values = values, .argc = argc, .argv = argv};
    int operands = 0;
    bool options_ended = false;
    while (parser.next < argc) {
        char *word = argv[parser.next++];
        int outcome = 0;
        if (options_ended || word[0] != '-' || word[1] == '\0')
            argv[operands++] = word; /* never ahead of the word being read */
        else if (strcmp(word, "--") == 0)
            options_ended = true;
        else if (word[1] == '-')
            outcome = parse_long(&parser, word);
        else
            outcome = parse_short(&parser, word);
        if (outcome < 0) return outcome;
    }
    return operands;
}
