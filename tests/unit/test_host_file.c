/* Tests of cli_parse_hosts(). tests/cli/launch.cases has the messages. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "cli/host_file.h"

static struct cli_hosts hosts;
static struct cli_host_error error;

static bool parse(const char *text) {
    free(hosts.list);
    return cli_parse_hosts(text, strlen(text), &hosts, &error);
}

static int release(void **state) {
    (void)state;
    free(hosts.list);
    hosts.list = NULL;
    return 0;
}

static void hosts_keep_their_order(void **state) {
    (void)state;
    assert_true(parse("b slots=2\na slots=30 max_slots=40\n\n  # c slots=1\n\tc#d\n"));
    assert_int_equal(hosts.count, 3);
    assert_string_equal(hosts.list[0].name, "b");
    assert_int_equal(hosts.list[0].slots, 2);
    assert_string_equal(hosts.list[1].name, "a");
    assert_int_equal(hosts.list[1].slots, 30);
    assert_string_equal(hosts.list[2].name, "c");
    assert_int_equal(hosts.list[2].slots, 1);
    assert_int_equal(cli_count_slots(&hosts), 33);
}

static void slots_of_a_repeated_host_are_added(void **state) {
    (void)state;
    assert_true(parse("a slots=2\nb\na\n"));
    assert_int_equal(hosts.count, 2);
    assert_int_equal(hosts.list[0].slots, 3);
}

static void max_slots_alone_are_the_slots(void **state) {
    (void)state;
    assert_true(parse("a max_slots=5\nb max-slots=6"));
    assert_int_equal(hosts.list[0].slots, 5);
    assert_int_equal(hosts.list[1].slots, 6);
}

static void no_lines_are_no_hosts(void **state) {
    (void)state;
    assert_true(parse(""));
    assert_int_equal(hosts.count, 0);
    assert_true(parse("\n#\n \n"));
    assert_int_equal(hosts.count, 0);
}

static void faults_have_a_line(void **state) {
    static const struct {
        const char *text;
        size_t line;
    } cases[] = {
        {"-a", 1},
        {".a", 1},
        {"a\nb:2\n", 2},
        {"a\n\nb;c\n", 3},
        {"a slots\n", 1},
        {"a slots=\n", 1},
        {"a slots=0", 1},
        {"a slots=-1\n", 1},
        {"a slots=1x\n", 1},
        {"a slots=65537\n", 1},
        {"a =1", 1},
        {"a SLOTS=1\n", 1},
        {"a b\n", 1},
        {"a,b slots=2", 1},
        {"user@a slots=2", 1},
        {"a max_slots=x", 1},
        {"[::1]", 1},
        {"a slots=2 max_slots=1", 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (parse(cases[i].text)) fail_msg("'%s' was accepted", cases[i].text);
        if (error.line != cases[i].line) fail_msg("'%s': line %zu", cases[i].text, error.line);
        assert_true(*error.message);
    }
}

static void a_name_of_the_longest_length_fits(void **state) {
    char text[300];
    (void)state;
    memset(text, 'a', sizeof text);
    text[255] = '\0';
    assert_true(parse(text));
    assert_int_equal(strlen(hosts.list[0].name), 255);
    text[255] = 'a';
    text[256] = '\0';
    assert_false(parse(text));
}

static void more_slots_than_processes_can_be_counted_are_rejected(void **state) {
    (void)state;
    assert_true(parse("a slots=65535\na"));
    assert_false(parse("a slots=65536\na"));
    assert_int_equal(error.line, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(hosts_keep_their_order, release),
        cmocka_unit_test_teardown(slots_of_a_repeated_host_are_added, release),
        cmocka_unit_test_teardown(max_slots_alone_are_the_slots, release),
        cmocka_unit_test_teardown(no_lines_are_no_hosts, release),
        cmocka_unit_test_teardown(faults_have_a_line, release),
        cmocka_unit_test_teardown(a_name_of_the_longest_length_fits, release),
        cmocka_unit_test_teardown(more_slots_than_processes_can_be_counted_are_rejected, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
