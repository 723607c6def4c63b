/* Tests of cli_parse() and cli_print_options(): values, operands, error messages and --help. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/options.h"
#include <tutti/command.h>

struct values {
    bool json, verbose;
    int64_t batch, seed;
    double rate;
    const char *out;
    int format;
};

static const char *const formats[] = {"text", "dot", "json", NULL};

static const struct cli_option table[] = {
    CLI_FLAG(struct values, json, "json", 'j', "print JSON"),
    CLI_FLAG(struct values, verbose, "verbose", 'v', "print more"),
    CLI_INT(struct values, batch, "batch", 'b', "N", 1, 4096, "samples per batch"),
    CLI_INT(struct values, seed, "seed", 0, "N", INT64_MIN, INT64_MAX, "seed of all random numbers"),
    CLI_DOUBLE(struct values, rate, "rate", 'r', "X", 0, 1, "learning rate"),
    CLI_STRING(struct values, out, "out", 'o', "DIR", "run folder"),
    CLI_CHOICE(struct values, format, "format", 'f', "FORMAT", formats,
               "output format, with a description that is long enough to need a second line"),
    {0},
};

static const struct values defaults = {.batch = 32, .rate = -1, .format = 1};

static struct values values;
static char *words[16];
static char message[1024]; /* standard error of the latest parse() */

/* Splits a line at single spaces and calls cli_parse(). "_" stands for an empty argument. */
static int parse(const char *line) {
    static char copy[1024];
    int count = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        words[count++] = strcmp(word, "_") == 0 ? word + 1 : word;
    values = defaults;

    FILE *captured = tmpfile();
    assert_non_null(captured);
    fflush(stderr);
    int saved_stderr = dup(STDERR_FILENO);
    dup2(fileno(captured), STDERR_FILENO);
    int result = cli_parse("work", table, count, words, &values);
    fflush(stderr);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    rewind(captured);
    message[fread(message, 1, sizeof message - 1, captured)] = '\0';
    fclose(captured);
    return result;
}

static void assert_rejected(const char *line, const char *expected) {
    assert_int_equal(parse(line), CLI_PARSE_ERROR);
    assert_string_equal(message, expected);
}

static void all_ways_to_write_a_value_are_accepted(void **state) {
    (void)state;
    static const char *const lines[] = {"--batch 64", "--batch=64", "-b 64",
                                        "-b64",       "-jb64",      "-b 1 --batch 64"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(parse(lines[i]), 0);
        assert_int_equal(values.batch, 64);
        assert_string_equal(message, "");
    }
}

static void options_of_all_types_are_stored(void **state) {
    (void)state;
    assert_int_equal(parse("-jv --seed -9223372036854775808 --rate 1e-3 --out a=b --format json"), 0);
    assert_true(values.json && values.verbose);
    assert_true(values.seed == INT64_MIN);
    assert_true(values.rate == 1e-3);
    assert_string_equal(values.out, "a=b");
    assert_int_equal(values.format, 2);
}

static void options_not_given_keep_their_defaults(void **state) {
    (void)state;
    assert_int_equal(parse(""), 0);
    assert_memory_equal(&values, &defaults, sizeof values);
}

static void operands_may_be_mixed_with_options_and_keep_their_order(void **state) {
    (void)state;
    assert_int_equal(parse("one --json two -b 8 - -- --three"), 4);
    assert_string_equal(words[0], "one");
    assert_string_equal(words[1], "two");
    assert_string_equal(words[2], "-");
    assert_string_equal(words[3], "--three");
    assert_int_equal(values.batch, 8);
}

static void help_is_accepted_with_any_table(void **state) {
    (void)state;
    assert_int_equal(parse("--help"), CLI_PARSE_HELP);
    assert_int_equal(parse("one -h --nonsense"), CLI_PARSE_HELP);
    char *word = "--help";
    assert_int_equal(cli_parse("work", NULL, 1, &word, NULL), CLI_PARSE_HELP);
}

static void numbers_out_of_range_are_rejected(void **state) {
    (void)state;
    assert_rejected("--batch 0", "tutti: work: --batch '0': expected a whole number from 1 to 4096\n");
    assert_rejected("-b 5000", "tutti: work: -b '5000': expected a whole number from 1 to 4096\n");
    assert_rejected("--batch 1.5", "tutti: work: --batch '1.5': expected a whole number from 1 to 4096\n");
    assert_rejected("--batch 12x", "tutti: work: --batch '12x': expected a whole number from 1 to 4096\n");
    assert_rejected("--batch _", "tutti: work: --batch '': expected a whole number from 1 to 4096\n");
    assert_rejected("--batch 99999999999999999999",
                    "tutti: work: --batch '99999999999999999999': expected a whole number from 1 to 4096\n");
    assert_rejected("--rate 1.01", "tutti: work: --rate '1.01': expected a number from 0 to 1\n");
    assert_rejected("--rate nan", "tutti: work: --rate 'nan': expected a number from 0 to 1\n");
    assert_rejected("--rate _", "tutti: work: --rate '': expected a number from 0 to 1\n");
}

static void misspelt_options_and_choices_are_rejected_with_a_suggestion(void **state) {
    (void)state;
    assert_rejected("--bacth 3",
                    "tutti: work: unknown option '--bacth': expected one that 'tutti work --help' lists; "
                    "did you mean '--batch'?\n");
    assert_rejected("--hlep",
                    "tutti: work: unknown option '--hlep': expected one that 'tutti work --help' lists; "
                    "did you mean '--help'?\n");
    assert_rejected("--zzz",
                    "tutti: work: unknown option '--zzz': expected one that 'tutti work --help' lists\n");
    assert_rejected("-jz", "tutti: work: unknown option '-z': expected one that 'tutti work --help' lists\n");
    assert_rejected("--format dott",
                    "tutti: work: --format 'dott': expected text, dot or json; did you mean 'dot'?\n");
}

static void missing_and_unexpected_values_are_rejected(void **state) {
    (void)state;
    assert_rejected("--batch", "tutti: work: --batch: expected a value N after it\n");
    assert_rejected("-o", "tutti: work: -o: expected a value DIR after it\n");
    assert_rejected("--json=yes", "tutti: work: --json 'yes': expected no value\n");
}

static void control_characters_and_long_arguments_give_one_short_line(void **state) {
    (void)state;
    assert_rejected("--format a\nb\x1b[31m",
                    "tutti: work: --format 'a?b?[31m': expected text, dot or json\n");
    char line[900] = "--";
    memset(line + 2, 'x', 800);
    assert_int_equal(parse(line), CLI_PARSE_ERROR);
    assert_true(strlen(message) < 200);
    assert_ptr_equal(strchr(message, '\n'), message + strlen(message) - 1);
}

static void help_shows_names_choices_and_valid_defaults(void **state) {
    (void)state;
    char *help = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&help, &size);
    assert_non_null(file);
    cli_print_options(file, table, &defaults);
    fclose(file);
    assert_string_equal(help,
                        "Options:\n"
                        "  -j, --json           print JSON\n"
                        "  -v, --verbose        print more\n"
                        "  -b, --batch N        samples per batch (default 32)\n"
                        "      --seed N         seed of all random numbers (default 0)\n"
                        "  -r, --rate X         learning rate\n"
                        "  -o, --out DIR        run folder\n"
                        "  -f, --format FORMAT  output format, with a description that is long enough to\n"
                        "                       need a second line: text, dot, json (default dot)\n"
                        "  -h, --help           print this help and exit\n");
    free(help);
}

static void suggestions_are_similar_to_the_misspelt_word(void **state) {
    (void)state;
    static const char *const names[] = {"devices", "graph", "train", "tune", "tutorial-cnn"};
    static const struct {
        const char *word, *nearest;
    } cases[] = {
        {"grpah", "graph"},
        {"Graph", "graph"},
        {"device", "devices"},
        {"tran", "train"},
        {"tuen", "tune"},
        {"tutorial", "tutorial-cnn"},
        {"tutorialcnn", "tutorial-cnn"},
        {"dev", "devices"},
        {"banana", NULL},
        {"x", NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *nearest = tu_nearest_name(cases[i].word, names, sizeof names / sizeof *names);
        assert_string_equal(nearest ? nearest : "(none)", cases[i].nearest ? cases[i].nearest : "(none)");
    }
    char long_word[5000];
    memset(long_word, 'a', sizeof long_word - 1);
    long_word[sizeof long_word - 1] = '\0';
    assert_null(tu_nearest_name(long_word, names, 5));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ways_to_write_a_value_are_accepted),
        cmocka_unit_test(options_of_all_types_are_stored),
        cmocka_unit_test(options_not_given_keep_their_defaults),
        cmocka_unit_test(operands_may_be_mixed_with_options_and_keep_their_order),
        cmocka_unit_test(help_is_accepted_with_any_table),
        cmocka_unit_test(numbers_out_of_range_are_rejected),
        cmocka_unit_test(misspelt_options_and_choices_are_rejected_with_a_suggestion),
        cmocka_unit_test(missing_and_unexpected_values_are_rejected),
        cmocka_unit_test(control_characters_and_long_arguments_give_one_short_line),
        cmocka_unit_test(help_shows_names_choices_and_valid_defaults),
        cmocka_unit_test(suggestions_are_similar_to_the_misspelt_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
