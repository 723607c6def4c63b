/* Prints a table of options as the "Options:" section of --help.
 *
 * The default of an option is the initial value of its field. It is not printed if the user could not give it: a
 * number below the minimum or a NULL string means that the command chooses the value. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include <tutti/status.h>

#include "cli/options.h"

enum { LINE_WIDTH = 80, MAX_NAME_COLUMN = 30 };

static void append(struct cli_option_text *text, const char *format, ...) TU_PRINTF(2, 3);
static void append(struct cli_option_text *text, const char *format, ...) {
    size_t room = sizeof text->text - text->length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text->text + text->length, room, format, arguments);
    va_end(arguments);
    if (length > 0) text->length += (size_t)length < room ? (size_t)length : room - 1;
}

/* Returns "  -b, --batch N". */
static struct cli_option_text name_column(const struct cli_option *option) {
    struct cli_option_text text = {.length = 0};
    if (option->letter)
        append(&text, "  -%c, --%s", option->letter, option->name);
    else
        append(&text, "      --%s", option->name);
    if (option->argument) append(&text, " %s", option->argument);
    return text;
}

static void append_default(struct cli_option_text *text, const struct cli_option *option,
                           const void *defaults) {
    if (!defaults) return;
    const void *field = (const char *)defaults + option->offset;
    if (option->kind == CLI_KIND_INT) {
        int64_t value = *(const int64_t *)field;
        if (value >= option->min && value <= option->max) append(text, " (default %" PRId64 ")", value);
    } else if (option->kind == CLI_KIND_DOUBLE) {
        double value = *(const double *)field;
        if (value >= option->min_double && value <= option->max_double) append(text, " (default %g)", value);
    } else if (option->kind == CLI_KIND_STRING) {
        const char *value = *(const char *const *)field;
        if (value) append(text, " (default %s)", value);
    } else if (option->kind == CLI_KIND_CHOICE) {
        int value = *(const int *)field;
        if (value >= 0) append(text, " (default %s)", option->choices[value]);
    }
}

struct cli_option_text cli_option_text(const struct cli_option *option) {
    struct cli_option_text text = {.length = 0};
    const char *closing = strstr(option->help, " (");
    size_t length = closing ? (size_t)(closing - option->help) : strlen(option->help);
    append(&text, "%.*s", (int)length, option->help);
    if (option->kind == CLI_KIND_CHOICE)
        for (int i = 0; option->choices[i]; i++) append(&text, "%s%s", i ? ", " : ": ", option->choices[i]);
    append(&text, "%s", option->help + length);
    return text;
}

static struct cli_option_text help_column(const struct cli_option *option, const void *defaults) {
    struct cli_option_text text = cli_option_text(option);
    append_default(&text, option, defaults);
    return text;
}

/* Prints `text` in lines of LINE_WIDTH characters, indented by `indent`. The first one continues a line of `column`
 * characters. */
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
    int widest = (int)name_column(&help).length, last_group = 0;
    for (const struct cli_option *option = table; option && option->name; option++) {
        int width = (int)name_column(option).length;
        if (width > widest && width <= MAX_NAME_COLUMN) widest = width;
        if (option->group > last_group) last_group = option->group;
    }
    fprintf(file, "Options:\n");
    for (int group = 0; group <= last_group; group++)
        for (const struct cli_option *option = table; option && option->name; option++) {
            struct cli_option_text name = name_column(option), text = help_column(option, defaults);
            if (option->group != group) continue;
            fputs(name.text, file);
            print_wrapped(file, text.text, (int)name.length, widest + 2);
        }
    struct cli_option_text name = name_column(&help);
    fputs(name.text, file);
    print_wrapped(file, help.help, (int)name.length, widest + 2);
}
