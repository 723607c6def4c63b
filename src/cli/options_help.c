/* Prints a table of options as the "Options:" part of --help.
 *
 * The default shown for an option is the value its field starts with, when that is a value the user could have given
 * too: a number below its lower bound, or no string, stands for "decided by the command". */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include <tutti/status.h>

#include "cli/options.h"

enum { LINE_WIDTH = 80, WIDEST_NAME_COLUMN = 30 };

/* A piece of text of bounded length. What does not fit is cut, which no option's help comes near. */
struct piece {
    char text[1024];
    size_t length;
};

static void add(struct piece *piece, const char *format, ...) TU_PRINTF(2, 3);
static void add(struct piece *piece, const char *format, ...) {
    size_t room = sizeof piece->text - piece->length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(piece->text + piece->length, room, format, arguments);
    va_end(arguments);
    if (length > 0) piece->length += (size_t)length < room ? (size_t)length : room - 1;
}

/* "  -b, --batch N" */
static struct piece name_column(const struct cli_option *option) {
    struct piece piece = {.length = 0};
    if (option->letter)
        add(&piece, "  -%c, --%s", option->letter, option->name);
    else
        add(&piece, "      --%s", option->name);
    if (option->argument) add(&piece, " %s", option->argument);
    return piece;
}

static void add_default(struct piece *piece, const struct cli_option *option, const void *defaults) {
    if (!defaults) return;
    const void *field = (const char *)defaults + option->offset;
    if (option->kind == CLI_KIND_INT) {
        int64_t value = *(const int64_t *)field;
        if (value >= option->least && value <= option->most) add(piece, " (default %" PRId64 ")", value);
    } else if (option->kind == CLI_KIND_DOUBLE) {
        double value = *(const double *)field;
        if (value >= option->lower && value <= option->upper) add(piece, " (default %g)", value);
    } else if (option->kind == CLI_KIND_STRING) {
        const char *value = *(const char *const *)field;
        if (value) add(piece, " (default %s)", value);
    } else if (option->kind == CLI_KIND_CHOICE) {
        int value = *(const int *)field;
        if (value >= 0) add(piece, " (default %s)", option->choices[value]);
    }
}

static struct piece help_column(const struct cli_option *option, const void *defaults) {
    struct piece piece = {.length = 0};
    add(&piece, "%s", option->help);
    if (option->kind == CLI_KIND_CHOICE)
        for (int i = 0; option->choices[i]; i++) add(&piece, "%s%s", i ? ", " : ": ", option->choices[i]);
    add_default(&piece, option, defaults);
    return piece;
}

/* Prints `text` in lines of LINE_WIDTH, the first continuing one of `column` characters, the others indented. */
static void print_wrapped(FILE *file, const char *text, int column, int indent) {
    if (column >= indent) {
        fputc('\n', file);
        column = 0;
    }
    fprintf(file, "%*s", indent - column, "");
    column = indent;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column > indent && column + 1 + word > LINE_WIDTH) {
            fprintf(file, "\n%*s", indent, "");
            column = indent;
        }
        column += fprintf(file, "%s%.*s", column > indent ? " " : "", word, text);
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', file);
}

void cli_print_options(FILE *file, const struct cli_option *table, const void *defaults) {
    static const struct cli_option help = {.name = "help", .letter = 'h', .help = "print this help and exit"};
    int widest = (int)name_column(&help).length;
    for (const struct cli_option *option = table; option && option->name; option++) {
        int width = (int)name_column(option).length;
        if (width > widest && width <= WIDEST_NAME_COLUMN) widest = width;
    }
    fprintf(file, "Options:\n");
    for (const struct cli_option *option = table; option && option->name; option++) {
        struct piece name = name_column(option), text = help_column(option, defaults);
        fputs(name.text, file);
        print_wrapped(file, text.text, (int)name.length, widest + 2);
    }
    struct piece name = name_column(&help);
    fputs(name.text, file);
    print_wrapped(file, help.help, (int)name.length, widest + 2);
}
