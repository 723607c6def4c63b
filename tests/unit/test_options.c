/* A table of options parses what it promises, refuses the rest in one line, and prints itself as help. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "cli/options.h"

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
    CLI_FLAG(struct values, verbose, "verbose", 'v', "say more"),
    CLI_INT(struct values, batch, "batch", 'b', "N", 1, 4096, "samples in a batch"),
    CLI_INT(struct values, seed, "seed", 0, "N", INT64_MIN, INT64_MAX, "seed of all random numbers"),
    CLI_DOUBLE(struct values, rate, "rate", 'r', "X", 0, 1, "learning rate"),
    CLI_STRING(struct values, out, "out", 'o', "DIR", "folder of the run"),
    CLI_CHOICE(struct values, format, "format", 'f', "FORMAT", formats,
               "what to print, in words that are many enough to need a second line of help"),
    {0},
};

static const struct values defaults = {.batch = 32, .rate = -1, .format = 1};

static struct values values;
static char *words[16];
static char message[1024]; /* what the latest parse wrote to stderr */

/* Parses a line of words apart by single spaces; "_" stands for an empty word. */
static int parse(const char *line) {
    static char copy[1024];
    int count = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        words[count++] = strcmp(word, "_") == 0 ? word + 1 : word;
    values = defaults;

    FILE *caught = tmpfile();
    assert_non_null(caught);
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    dup2(fileno(caught), STDERR_FILENO);
    int result = cli_parse("work", table, count, words, &values);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    rewind(caught);
    message[fread(message, 1, sizeof message - 1, caught)] = '\0';
    fclose(caught);
    return result;
}

static void assert_refused(const char *line, const char *expected) {
    assert_int_equal(parse(line), CLI_PARSE_REFUSED);
    assert_string_equal(message, expected);
}

static void every_spelling_of_a_value_is_read(void **state) {
    (void)state;
    static const char *const lines[] = {"--batch 64", "--batch=64", "-b 64",
                                        "-b64",       "-jb64",      "-b 1 --batch 64"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(parse(lines[i]), 0);
        assert_int_equal(values.batch, 64);
        assert_string_equal(message, "");
    }
}

static void every_kind_is_stored(void **state) {
    (void)state;
    assert_int_equal(parse("-jv --seed -9223372036854775808 --rate 1e-3 --out a=b --format json"), 0);
    assert_true(values.json && values.verbose);
    assert_true(values.seed == INT64_MIN);
    assert_true(values.rate == 1e-3);
    assert_string_equal(values.out, "a=b");
    assert_int_equal(values.format, 2);
}

static void what_is_not_given_keeps_its_default(void **state) {
    (void)state;
    assert_int_equal(parse(""), 0);
    assert_memory_equal(&values, &defaults, sizeof values);
}

static void operands_mix_with_options_and_keep_their_order(void **state) {
    (void)state;
    assert_int_equal(parse("one --json two -b 8 - -- --three"), 4);
    assert_string_equal(words[0], "one");
    assert_string_equal(words[1], "two");
    assert_string_equal(words[2], "-");
    assert_string_equal(words[3], "--three");
    assert_int_equal(values.batch, 8);
}

static void help_is_in_every_table(void **state) {
    (void)state;
    assert_int_equal(parse("--help"), CLI_PARSE_HELP);
    assert_int_equal(parse("one -h --nonsense"), CLI_PARSE_HELP);
    char *word = "--help";
    assert_int_equal(cli_parse("work", NULL, 1, &word, NULL), CLI_PARSE_HELP);
}

static void numbers_outside_their_bounds_are_refused(void **state) {
    (void)state;
    assert_refused("--batch 0", "tutti: work: --batch '0': expected a whole number from 1 to 4096\n");
    assert_refused("-b 5000", "tutti: work: -b '5000': expected a whole number from 1 to 4096\n");
    assert_refused("--batch 1.5", "tutti: work: --batch '1.5': expected a whole number from 1 to 4096\n");
    assert_refused("--batch 12x", "tutti: work: --batch '12x': expected a whole number from 1 to 4096\n");
    assert_refused("--batch _", "tutti: work: --batch '': expected a whole number from 1 to 4096\n");
    assert_refused("--batch 99999999999999999999",
                   "tutti: work: --batch '99999999999999999999': expected a whole number from 1 to 4096\n");
    assert_refused("--rate 1.01", "tutti: work: --rate '1.01': expected a number from 0 to 1\n");
    assert_refused("--rate nan", "tutti: work: --rate 'nan': expected a number from 0 to 1\n");
    assert_refused("--rate _", "tutti: work: --rate '': expected a number from 0 to 1\n");
}

static void misspelt_words_are_refused_with_a_suggestion(void **state) {
    (void)state;
    assert_refused("--bacth 3",
                   "tutti: work: unknown option '--bacth': expected one that 'tutti work --help' lists; "
                   "did you mean '--batch'?\n");
    assert_refused("--hlep",
                   "tutti: work: unknown option '--hlep': expected one that 'tutti work --help' lists; "
                   "did you mean '--help'?\n");
    assert_refused("--zzz",
                   "tutti: work: unknown option '--zzz': expected one that 'tutti work --help' lists\n");
    assert_refused("-jz", "tutti: work: unknown option '-z': expected one that 'tutti work --help' lists\n");
    assert_refused("--format dott",
                   "tutti: work: --format 'dott': expected text, dot or json; did you mean 'dot'?\n");
}

static void a_value_too_few_or_too_many_is_refused(void **state) {
    (void)state;
    assert_refused("--batch", "tutti: work: --batch: expected a value N after it\n");
    assert_refused("-o", "tutti: work: -o: expected a value DIR after it\n");
    assert_refused("--json=yes", "tutti: work: --json 'yes': expected no value\n");
}

static void a_hostile_word_still_makes_one_short_line(void **state) {
    (void)state;
    assert_refused("--format a\nb\x1b[31m", "tutti: work: --format 'a?b?[31m': expected text, dot or json\n");
    char line[900] = "--";
    memset(line + 2, 'x', 800);
    assert_int_equal(parse(line), CLI_PARSE_REFUSED);
    assert_true(strlen(message) < 200);
    assert_ptr_equal(strchr(message, '\n'), message + strlen(message) - 1);
}

static void help_shows_names_choices_and_defaults_that_could_be_given(void **state) {
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
                        "  -v, --verbose        say more\n"
                        "  -b, --batch N        samples in a batch (default 32)\n"
                        "      --seed N         seed of all random numbers (default 0)\n"
                        "  -r, --rate X         learning rate\n"
                        "  -o, --out DIR        folder of the run\n"
                        "  -f, --format FORMAT  what to print, in words that are many enough to need a\n"
                        "                       second line of help: text, dot, json (default dot)\n"
                        "  -h, --help           print this help and exit\n");
    free(help);
}

static void the_nearest_name_is_near_indeed(void **state) {
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
    char endless[5000];
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_null(tu_nearest_name(endless, names, 5));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_of_a_value_is_read),
        cmocka_unit_test(every_kind_is_stored),
        cmocka_unit_test(what_is_not_given_keeps_its_default),
        cmocka_unit_test(operands_mix_with_options_and_keep_their_order),
        cmocka_unit_test(help_is_in_every_table),
        cmocka_unit_test(numbers_outside_their_bounds_are_refused),
        cmocka_unit_test(misspelt_words_are_refused_with_a_suggestion),
        cmocka_unit_test(a_value_too_few_or_too_many_is_refused),
        cmocka_unit_test(a_hostile_word_still_makes_one_short_line),
        cmocka_unit_test(help_shows_names_choices_and_defaults_that_could_be_given),
        cmocka_unit_test(the_nearest_name_is_near_indeed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
