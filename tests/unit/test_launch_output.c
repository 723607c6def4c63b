/* Tests of launch_output_take(): which bytes are passed on to standard error, and which messages are recorded. Every text
 * is given at once and byte by byte. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/launch_output.h"

#define RULE "--------------------------------------------------------------------------\n"

static char passed_on[1 << 18]; /* by the latest take() */
static struct launch_messages messages;

static void take(const char *text, size_t length, size_t piece) {
    struct launch_output output = {0};
    FILE *captured = tmpfile();
    assert_non_null(captured);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(captured), STDERR_FILENO);
    for (size_t i = 0; i < length; i += piece)
        launch_output_take(&output, text + i, length - i < piece ? length - i : piece);
    launch_output_end(&output);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(captured);
    passed_on[fread(passed_on, 1, sizeof passed_on - 1, captured)] = '\0';
    fclose(captured);
    messages = output.messages;
}

static void expect(const char *text, const char *expected) {
    take(text, strlen(text), strlen(text));
    assert_string_equal(passed_on, expected);
    take(text, strlen(text), 1);
    assert_string_equal(passed_on, expected);
}

static void text_is_passed_on(void **state) {
    (void)state;
    expect("one\n[1] two\n\nthree", "one\n[1] two\n\nthree");
    assert_false(messages.joined || messages.trains || messages.lost);
    assert_int_equal(messages.status, 0);
}

static void messages_are_recorded_and_not_passed_on(void **state) {
    (void)state;
    expect("a\n\036joined\n\036run runs/mlp-1\nb\n\036trains\n\036status 2\n\036status 1\nc\n", "a\nb\nc\n");
    assert_true(messages.joined && messages.trains);
    assert_false(messages.lost);
    assert_string_equal(messages.folder, "runs/mlp-1");
    assert_int_equal(messages.status, 2);
}

static void a_message_may_follow_an_incomplete_line(void **state) {
    (void)state;
    expect("half a line\036lost\n, the other half\n", "half a line, the other half\n");
    assert_true(messages.lost);
}

static void a_status_after_a_lost_process_is_no_status_of_its_own(void **state) {
    (void)state;
    expect("\036status 4\n", "");
    assert_true(messages.lost);
    assert_int_equal(messages.status, 0);
}

static void an_incomplete_message_is_not_recorded(void **state) {
    (void)state;
    expect("\036joi", "");
    expect("\036lost", "");
    assert_false(messages.joined || messages.lost);
}

static void explanations_of_a_status_are_dropped(void **state) {
    (void)state;
    expect(
        "before\n" RULE
        "Primary job  terminated normally, but 1 process returned\na non-zero exit code.\n" RULE RULE
        "mpirun detected that one or more processes exited with non-zero status, thus causing\n\n  Exit code: 4\n" RULE
        "after\nmpirun: Forwarding signal 10 to job\n",
        "before\nafter\n");
}

static void other_texts_of_mpirun_are_passed_on(void **state) {
    (void)state;
    expect(RULE "There are not enough slots available\n" RULE,
           RULE "There are not enough slots available\n" RULE);
    expect(RULE "mpirun noticed that rank 1 exited on signal 9 (Killed).\n" RULE RULE
                "Primary job  terminated normally,\n" RULE,
           RULE "mpirun noticed that rank 1 exited on signal 9 (Killed).\n" RULE);
    expect(RULE RULE "text\n", RULE RULE "text\n");
}

static void long_lines_are_passed_on_unchanged(void **state) {
    enum { LENGTH = 200000 };
    (void)state;
    char *text = malloc(LENGTH + 1);
    assert_non_null(text);
    for (int i = 0; i < LENGTH; i++) text[i] = (char)('a' + i % 26);
    text[LENGTH] = '\0';
    take(text, LENGTH, 4096);
    assert_true(strcmp(passed_on, text) == 0);
    free(text);
}

static void a_folder_that_is_too_long_is_ignored(void **state) {
    (void)state;
    char *text = malloc(6000);
    assert_non_null(text);
    snprintf(text, 6000, "\036run %05990d\n", 0);
    expect(text, "");
    assert_string_equal(messages.folder, "");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_passed_on),
        cmocka_unit_test(messages_are_recorded_and_not_passed_on),
        cmocka_unit_test(a_message_may_follow_an_incomplete_line),
        cmocka_unit_test(a_status_after_a_lost_process_is_no_status_of_its_own),
        cmocka_unit_test(an_incomplete_message_is_not_recorded),
        cmocka_unit_test(explanations_of_a_status_are_dropped),
        cmocka_unit_test(other_texts_of_mpirun_are_passed_on),
        cmocka_unit_test(long_lines_are_passed_on_unchanged),
        cmocka_unit_test(a_folder_that_is_too_long_is_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
