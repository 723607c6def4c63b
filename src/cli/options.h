/* The options of a command: one table is used both to parse them and to print --help.
 *
 * A command stores the values in a structure of its own, whose initial contents are the defaults. Each row of its
 * table names the field in which the value is stored; a field of the wrong type is a compile-time error.
 *
 *     struct graph_values { int64_t batch; int format; bool json; };
 *     static const char *const formats[] = {"text", "dot", NULL};
 *     static const struct cli_option options[] = {
 *         CLI_INT(struct graph_values, batch, "batch", 'b', "N", 1, 65536, "batch size"),
 *         CLI_CHOICE(struct graph_values, format, "format", 0, "FORMAT", formats, "output format"),
 *         CLI_FLAG(struct graph_values, json, "json", 0, "print JSON"),
 *         {0},
 *     };
 *
 * --help (-h) is accepted with every table. Values are given as "--batch 32", "--batch=32", "-b 32" or "-b32"; flags
 * may be joined ("-ab"); options and operands may be mixed; "--" ends the options. If an option is given twice, the
 * last value is used. */
#ifndef TU__CLI_OPTIONS_H
#define TU__CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_kind {
    CLI_KIND_FLAG,   /* bool */
    CLI_KIND_INT,    /* int64_t from min to max */
    CLI_KIND_DOUBLE, /* finite double from min_double to max_double */
    CLI_KIND_STRING, /* const char *, a pointer into argv */
    CLI_KIND_CHOICE, /* int, an index into choices */
};

struct cli_option {
    const char *name;     /* without the dashes; NULL ends a table */
    char letter;          /* 0: none */
    const char *argument; /* name of the value in --help, such as "N"; NULL for a flag */
    enum cli_kind kind;
    size_t offset; /* offset of the field in the structure of values */
    const char *help;
    int group; /* --help lists options by group, then in the order of the table */
    int64_t min, max;
    double min_double, max_double;
    const char *const *choices; /* ends with NULL */
};

/* The last argument of the macros is the help; `.group = NUMBER` may follow it.
 *
 * CLI_FIELD is offsetof; it does not compile if the field is not of `type`. */
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
        .offset = CLI_FIELD(structure, field, int64_t), .min = minimum, .max = maximum, .help = __VA_ARGS__  \
    }
#define CLI_DOUBLE(structure, field, long_name, short_name, value, minimum, maximum, ...)                    \
    {                                                                                                        \
        .name = long_name, .letter = short_name, .argument = value, .kind = CLI_KIND_DOUBLE,                 \
        .offset = CLI_FIELD(structure, field, double), .min_double = minimum, .max_double = maximum,         \
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

/* Results of cli_parse other than a number of operands. */
enum { CLI_PARSE_HELP = -1, CLI_PARSE_ERROR = -2 };

/* Parses argv[0 … argc-1], the arguments after the command's name, into `values`. Moves the operands to the front
 * of argv, in their order, and returns their number. On an error prints one line on stderr that begins with the
 * command's name. */
int cli_parse(const char *command, const struct cli_option *table, int argc, char **argv, void *values);
/* Does the same, but options end at the first operand: those that follow belong to another command. */
int cli_parse_leading(const char *command, const struct cli_option *table, int argc, char **argv,
                      void *values);

/* Returns the text of an option in --help, without its default: the help, with the choices inserted before text in
 * parentheses. */
struct cli_option_text {
    char text[1024];
    size_t length;
};
struct cli_option_text cli_option_text(const struct cli_option *option);

/* Prints the "Options:" section of --help. `defaults` are the command's initial values. */
void cli_print_options(FILE *file, const struct cli_option *table, const void *defaults);

#endif
