/* The options of a command: one table that both parses them and prints --help, so that the two cannot disagree.
 *
 * A command keeps its values in a structure of its own, with the defaults as an initialiser; each row of its table
 * names the field it fills. The macros refuse at compile time a field whose type does not fit the kind.
 *
 *     struct graph_values { int64_t batch; int format; bool json; };
 *     static const char *const formats[] = {"text", "dot", NULL};
 *     static const struct cli_option options[] = {
 *         CLI_INT(struct graph_values, batch, "batch", 'b', "N", 1, 65536, "samples in a batch"),
 *         CLI_CHOICE(struct graph_values, format, "format", 0, "FORMAT", formats, "what to print"),
 *         CLI_FLAG(struct graph_values, json, "json", 0, "print JSON"),
 *         {0},
 *     };
 *
 * --help (-h) belongs to every table without being in it. Values are given as "--batch 32", "--batch=32", "-b 32"
 * or "-b32"; flags without argument may be joined ("-ab"); options and operands mix; "--" ends the options. An option
 * given twice keeps its last value. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_kind {
    CLI_KIND_FLAG,   /* bool */
    CLI_KIND_INT,    /* int64_t, between two bounds */
    CLI_KIND_DOUBLE, /* double, finite, between two bounds */
    CLI_KIND_STRING, /* const char *, into argv */
    CLI_KIND_CHOICE, /* int, an index into the choices */
};

struct cli_option {
    const char *name;     /* without the dashes; NULL ends a table */
    char letter;          /* 0: none */
    const char *argument; /* what --help calls the value; NULL for a flag */
    enum cli_kind kind;
    size_t offset; /* of the field in the command's values */
    const char *help;
    int group; /* --help lists options by group, then in the order of the table */
    int64_t least, most;
    double lower, upper;
    const char *const *choices; /* ends with NULL */
};

/* The last argument of the macros is the help; `.group = NUMBER` may follow it.
 *
 * CLI_FIELD is offsetof, and an error at compile time when the field is not of `type`. */
#define CLI_FIELD(structure, field, type)                                                                    \
    (offsetof(structure, field) + 0 * sizeof(_Generic(((structure *)0)->field, type : 0)))

#define CLI_FLAG(structure, field, long_name, short_name, ...)                                               \
    {                                                                                                        \
        .name = long_name, .letter = short_name, .kind = CLI_KIND_FLAG,                                      \
        .offset = CLI_FIELD(structure, field, bool), .help = __VA_ARGS__                                     \
    }
#define CLI_INT(structure, field, long_name, short_name, value, minimum, maximum, ...)                       \
    {                                                                                                        \
        .name = long_name, .letter = short_name, .argument = value, .kind = CLI_KIND_INT,                    \
        .offset = CLI_FIELD(structure, field, int64_t), .least = minimum, .most = maximum,                   \
        .help = __VA_ARGS__                                                                                  \
    }
#define CLI_DOUBLE(structure, field, long_name, short_name, value, minimum, maximum, ...)                    \
    {                                                                                                        \
        .name = long_name, .letter = short_name, .argument = value, .kind = CLI_KIND_DOUBLE,                 \
        .offset = CLI_FIELD(structure, field, double), .lower = minimum, .upper = maximum,                   \
        .help = __VA_ARGS__                                                                                  \
    }
#define CLI_STRING(structure, field, long_name, short_name, value, ...)                                      \
    {                                                                                                        \
        .name = long_name, .letter = short_name, .argument = value, .kind = CLI_KIND_STRING,                 \
        .offset = CLI_FIELD(structure, field, const char *), .help = __VA_ARGS__                             \
    }
#define CLI_CHOICE(structure, field, long_name, short_name, value, list, ...)                                \
    {                                                                                                        \
        .name = long_name, .letter = short_name, .argument = value, .kind = CLI_KIND_CHOICE,                 \
        .offset = CLI_FIELD(structure, field, int), .choices = list, .help = __VA_ARGS__                     \
    }

/* What cli_parse returns instead of a number of operands. */
enum { CLI_PARSE_HELP = -1, CLI_PARSE_REFUSED = -2 };

/* Reads argv[0 … argc-1], the words after the command's name, into `values`. Operands are moved to the front of argv
 * in their order and counted. A bad word is refused with one line on stderr that begins with the command's name. */
int cli_parse(const char *command, const struct cli_option *table, int argc, char **argv, void *values);

/* What --help says of an option, without its default: the help, with the choices before a closing part in parentheses. */
struct cli_option_text {
    char text[1024];
    size_t length;
};
struct cli_option_text cli_option_text(const struct cli_option *option);

/* The table as the "Options:" part of --help; `defaults` are the command's initial values. */
void cli_print_options(FILE *file, const struct cli_option *table, const void *defaults);

#endif
