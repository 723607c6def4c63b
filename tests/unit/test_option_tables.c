/* Compares the option tables of all commands: options with the same long name must have the same letter, argument,
 * bounds and help, and a letter must belong to one long name. Exceptions are listed here with their reasons. */
#include <string.h>

#include "cli/command.h"
#include "test.h"

static const struct exception {
    const char *name, *reason;
} name_exceptions[] = {
    {"data", "runs lists the runs on a data set; other commands open it"},
    {"task", "runs lists the runs with a task; train chooses one"},
    {"top", "runs prints the first runs, predict the likeliest classes"},
    {"name", "tune names a study, export a model"},
    {"batch", "bench --inference measures a list of sizes"},
    {"all", "lists all devices in one command, all operations in another"},
    {"out", "train and data write a folder, eval and graph write a file"},
    {"stack", "train and tune stack members of an ensemble, bench and explain measure stacks"},
    {"steps", "train counts the steps of the run, bench those of a block"},
    {"warmup", "train: steps of the learning-rate schedule; bench: steps that are not timed"},
};

/* Letters that belong to two names. */
static const struct exception letter_exceptions[] = {
    {"n", "a count: --top of predict, --count of data, --processes of launch"},
};

static bool is_listed(const struct exception *list, size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i].name, name) == 0) return true;
    return false;
}
#define IS_LISTED(list, name) is_listed(list, sizeof(list) / sizeof *(list), name)

/* Returns the help with the choices, without text in parentheses at its end, such as a default. */
static struct cli_option_text common_help(const struct cli_option *option) {
    struct cli_option_text text = cli_option_text(option);
    char *closing = strstr(text.text, " (");
    if (closing) *closing = '\0';
    return text;
}

static bool has_text_value(const struct cli_option *option) {
    return option->kind == CLI_KIND_STRING || option->kind == CLI_KIND_CHOICE;
}

static const char *difference(const struct cli_option *a, const struct cli_option *b) {
    if (a->kind != b->kind && !(has_text_value(a) && has_text_value(b))) return "kind of argument";
    if (a->letter != b->letter) return "letter";
    if (!a->argument != !b->argument || (a->argument && strcmp(a->argument, b->argument) != 0))
        return "name of the argument";
    if (a->min != b->min || a->max != b->max || a->min_double != b->min_double ||
        a->max_double != b->max_double)
        return "bounds";
    if (strcmp(common_help(a).text, common_help(b).text) != 0) return "help";
    return NULL;
}

typedef void visit_pair(const struct cli_command *c, const struct cli_option *a, const struct cli_command *d,
                        const struct cli_option *b);

/* Calls `visit` for every pair of options of two different commands. Returns the number of pairs. */
static size_t for_each_option_pair(visit_pair *visit) {
    size_t pairs = 0;
    for (const struct cli_command *const *c = cli_commands; *c; c++)
        for (const struct cli_option *a = (*c)->options; a && a->name; a++)
            for (const struct cli_command *const *d = c + 1; *d; d++)
                for (const struct cli_option *b = (*d)->options; b && b->name; b++) {
                    visit(*c, a, *d, b);
                    pairs++;
                }
    return pairs;
}

static size_t compared_count;

static void compare_names(const struct cli_command *c, const struct cli_option *a,
                          const struct cli_command *d, const struct cli_option *b) {
    if (strcmp(a->name, b->name) != 0) return;
    compared_count++;
    const char *what = difference(a, b);
    if (what && !IS_LISTED(name_exceptions, a->name))
        fail_msg("--%s of 'tutti %s' and 'tutti %s' differ in their %s: '%s', '%s'; make them the same "
                 "(src/cli/common_options.h, tutti/settings.def) or list an exception with its reason",
                 a->name, c->name, d->name, what, cli_option_text(a).text, cli_option_text(b).text);
}

static void options_with_one_name_are_declared_identically_in_all_commands(void **state) {
    (void)state;
    compared_count = 0;
    assert_true(for_each_option_pair(compare_names) > 1000);
    assert_true(compared_count > 30);
}

static void compare_letters(const struct cli_command *c, const struct cli_option *a,
                            const struct cli_command *d, const struct cli_option *b) {
    if (!a->letter || a->letter != b->letter || strcmp(a->name, b->name) == 0) return;
    const char letter[] = {a->letter, '\0'};
    if (!IS_LISTED(letter_exceptions, letter))
        fail_msg("-%s is --%s in 'tutti %s' and --%s in 'tutti %s': expected one name per letter", letter,
                 a->name, c->name, b->name, d->name);
}

static void a_letter_belongs_to_one_option(void **state) {
    (void)state;
    for_each_option_pair(compare_letters);
}

static bool exception_is_needed;
static const char *exception_name;

static void find_difference(const struct cli_command *c, const struct cli_option *a,
                            const struct cli_command *d, const struct cli_option *b) {
    (void)c;
    (void)d;
    if (strcmp(a->name, exception_name) == 0 && strcmp(b->name, exception_name) == 0 && difference(a, b))
        exception_is_needed = true;
}

static void every_exception_is_needed(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof name_exceptions / sizeof *name_exceptions; i++) {
        exception_is_needed = false;
        exception_name = name_exceptions[i].name;
        for_each_option_pair(find_difference);
        if (!exception_is_needed)
            fail_msg("--%s is the same everywhere: remove its exception", name_exceptions[i].name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_with_one_name_are_declared_identically_in_all_commands),
        cmocka_unit_test(a_letter_belongs_to_one_option),
        cmocka_unit_test(every_exception_is_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
