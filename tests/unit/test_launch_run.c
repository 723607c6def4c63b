/* Tests of launch_run() with shell scripts in place of mpirun: exit statuses, and that no process is left. */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/launch_run.h"
#include "cli/report.h"

static const struct launch_limits no_limits = {.lost = 1000, .rest = 0.2};
static struct launch_outcome outcome;
static char file[] = "/tmp/tutti-launch-XXXXXX"; /* process ids that a script has written */

static int setup(void **state) {
    (void)state;
    launch_catch_signals();
    int fd = mkstemp(file);
    if (fd < 0) return 1;
    close(fd);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    return unlink(file);
}

static void run(const char *script, const struct launch_limits *limits) {
    char *const words[] = {"sh", "-c", (char *)script, file, NULL};
    assert_true(launch_run(words, limits, &outcome));
}

/* Fails if a process whose id is in the file still exists. */
static void expect_all_ended(int count) {
    FILE *ids = fopen(file, "r");
    int read = 0;
    assert_non_null(ids);
    for (long id; fscanf(ids, "%ld", &id) == 1; read++)
        if (kill((pid_t)id, 0) == 0 || errno != ESRCH) fail_msg("process %ld is left", id);
    fclose(ids);
    assert_int_equal(read, count);
    assert_int_equal(truncate(file, 0), 0);
}

static void exit_statuses_are_returned(void **state) {
    (void)state;
    run("exit 0", &no_limits);
    assert_int_equal(outcome.status, 0);
    run("exit 7", &no_limits);
    assert_int_equal(outcome.status, 7);
    run("kill -KILL $$", &no_limits);
    assert_int_equal(outcome.status, 128 + SIGKILL);
}

static void messages_on_standard_error_are_recorded(void **state) {
    (void)state;
    run("printf '\\036joined\\n\\036run a b\\n\\036status 2\\n' >&2; exit 2", &no_limits);
    assert_true(outcome.messages.joined);
    assert_string_equal(outcome.messages.folder, "a b");
    assert_int_equal(outcome.messages.status, 2);
    run("exit 0", &no_limits);
    assert_false(outcome.messages.joined);
}

static void standard_input_is_empty(void **state) {
    (void)state;
    run("read line; exit $?", &no_limits);
    assert_int_equal(outcome.status, 1);
}

static void a_program_that_does_not_exist_fails(void **state) {
    char *const words[] = {"/nonexistent/mpirun", NULL};
    (void)state;
    assert_true(launch_run(words, &no_limits, &outcome));
    assert_int_equal(outcome.status, 127);
}

/* One has left the session and closed its standard error, one ignores SIGTERM. */
static void processes_that_outlive_the_launcher_are_killed(void **state) {
    (void)state;
    run("setsid sh -c 'echo $$ >>$0; exec sleep 1000' $0 2>/dev/null &\n"
        "sh -c 'trap \"\" TERM; echo $$ >>$0; while :; do sleep 0.1; done' $0 &\n"
        "while [ $(wc -l <$0) -lt 2 ]; do sleep 0.01; done; exit 3",
        &no_limits);
    assert_int_equal(outcome.status, 3);
    expect_all_ended(2);
}

static void a_launcher_that_does_not_end_after_a_loss_is_killed(void **state) {
    const struct launch_limits limits = {.lost = 0.1, .rest = 0.2};
    (void)state;
    run("echo $$ >>$0; printf '\\036joined\\n\\036lost\\n' >&2; sleep 1000 & echo $! >>$0; wait", &limits);
    assert_int_equal(outcome.status, CLI_LOST);
    expect_all_ended(2);
}

static void a_launcher_whose_processes_do_not_join_is_killed(void **state) {
    const struct launch_limits limits = {.join = 0.3, .lost = 1000, .rest = 0.2};
    (void)state;
    run("echo $$ >>$0; exec sleep 1000", &limits);
    assert_int_equal(outcome.status, CLI_LOST);
    assert_false(outcome.messages.joined);
    expect_all_ended(1);
}

/* The script signals this process as a user would. After "trains" the first signal is passed on as SIGUSR1, the second
 * one as SIGTERM. What the script prints afterwards comes back in the file, which is this process's standard error. */
static void signals_are_passed_on(void **state) {
    (void)state;
    assert_false(launch_is_stopped());
    int saved = dup(STDERR_FILENO);
    assert_non_null(freopen(file, "a", stderr));
    setvbuf(stderr, NULL, _IONBF, 0); /* as the command's */
    run("trap 'echo USR1 >&2; kill -INT $PPID' USR1; trap 'echo TERM >&2; exit 5' TERM\n"
        "printf '\\036trains\\n' >&2; sleep 0.1; echo ready >&2; until grep -q ready $0; do sleep 0.01; done\n"
        "sleep 0.1; kill -TERM $PPID; while :; do sleep 0.01; done",
        &no_limits);
    dup2(saved, STDERR_FILENO);
    close(saved);
    assert_int_equal(outcome.status, 5);
    assert_true(launch_is_stopped());
    char text[64] = "";
    FILE *printed = fopen(file, "r");
    assert_non_null(printed);
    assert_true(fread(text, 1, sizeof text - 1, printed) > 0);
    fclose(printed);
    assert_string_equal(text, "ready\nUSR1\nTERM\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_statuses_are_returned),
        cmocka_unit_test(messages_on_standard_error_are_recorded),
        cmocka_unit_test(standard_input_is_empty),
        cmocka_unit_test(a_program_that_does_not_exist_fails),
        cmocka_unit_test(processes_that_outlive_the_launcher_are_killed),
        cmocka_unit_test(a_launcher_that_does_not_end_after_a_loss_is_killed),
        cmocka_unit_test(a_launcher_whose_processes_do_not_join_is_killed),
        cmocka_unit_test(signals_are_passed_on), /* the last: the signals are counted */
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
