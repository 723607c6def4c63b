/* Messages of the CLI: the exit status of library errors, and how arguments are quoted. */
#include "test.h"

#include <string.h>

#include "cli/report.h"

static void invalid_input_and_failures_have_different_exit_statuses(void **state) {
    (void)state;
    assert_int_equal(cli_report(TU_OK), CLI_DONE);
    static const tu_status input_errors[] = {TU_INVALID, TU_NOT_FOUND, TU_CORRUPT, TU_UNSUPPORTED,
                                             TU_NUMERIC};
    static const tu_status failures[] = {TU_NO_MEMORY, TU_IO, TU_INTERNAL};
    for (size_t i = 0; i < sizeof input_errors / sizeof *input_errors; i++)
        assert_int_equal(cli_report(tu_fail(input_errors[i], "an error in the input")), CLI_BAD_INPUT);
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++)
        assert_int_equal(cli_report(tu_fail(failures[i], "a failure")), CLI_FAILED);
    assert_int_equal(cli_input_error("refused"), CLI_BAD_INPUT);
    assert_int_equal(cli_fail("failed"), CLI_FAILED);
}

static void quoted_arguments_contain_no_control_characters(void **state) {
    (void)state;
    assert_string_equal(cli_quote("graph").text, "'graph'");
    assert_string_equal(cli_quote("").text, "''");
    assert_string_equal(cli_quote("a\tb\x1b[2J\x7f").text, "'a?b?[2J?'");
    assert_string_equal(cli_quote("Gef\xC3\xA4\xC3\x9F").text, "'Gef\xC3\xA4\xC3\x9F'");
}

static void long_arguments_are_truncated_between_characters(void **state) {
    (void)state;
    char word[1000];
    memset(word, 'a', sizeof word - 1);
    word[sizeof word - 1] = '\0';
    assert_int_equal(strlen(cli_quote(word).text), 60 + strlen("'...'"));
    memcpy(word + 59, "\xC3\xA4", 2); /* bytes 59 and 60: cutting at 60 would split the character */
    assert_int_equal(strlen(cli_quote(word).text), 59 + strlen("'...'"));
}

static void the_nearest_name_is_suggested(void **state) {
    (void)state;
    static const char *const names[] = {"lenet", "tutorial-cnn"};
    assert_string_equal(cli_did_you_mean("lennet", names, 2).text, "; did you mean 'lenet'?");
    assert_string_equal(cli_did_you_mean("zebra", names, 2).text, "");
    assert_string_equal(cli_did_you_mean("lenet", names, 0).text, "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_input_and_failures_have_different_exit_statuses),
        cmocka_unit_test(quoted_arguments_contain_no_control_characters),
        cmocka_unit_test(long_arguments_are_truncated_between_characters),
        cmocka_unit_test(the_nearest_name_is_suggested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
