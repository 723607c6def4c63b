/* Patterns match whole names; a star matches any characters, commas separate alternatives. */
#include "test.h"

#include <string.h>

#include "base/pattern.h"

static void stars_and_commas_match(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"conv1/weights", "conv1/weights", true},
        {"conv1", "conv1/weights", false},
        {"conv*", "conv1/weights", true},
        {"*bias", "conv1/bias", true},
        {"*bias", "conv1/bias_2", false},
        {"conv*/bias", "conv1/block/bias", true},
        {"*", "anything", true},
        {"*", "", true},
        {"**a**", "bab", true},
        {"a*b*c", "aXbYbZc", true},
        {"a*b*c", "aXbYbZ", false},
        {"ab*ab", "abab", true},
        {"ab*ab", "aba", false},
        {"norm*,*bias", "logits/bias", true},
        {"norm*,*bias", "logits/weights", false},
        {",,x,", "x", true},
        {",", "", false},
        {"", "", false},
        {NULL, "x", false},
        {"Conv*", "conv1", false},
        {"conv?", "conv1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (tu__pattern_matches(cases[i].pattern, cases[i].name) != cases[i].matches)
            fail_msg("pattern '%s', name '%s': expected match = %d",
                     cases[i].pattern ? cases[i].pattern : "(none)", cases[i].name, cases[i].matches);
}

/* Backtracking into every star would take exponential time. */
static void matching_many_stars_takes_little_time(void **state) {
    (void)state;
    char pattern[201], name[2001];
    for (int i = 0; i < 200; i += 2) memcpy(pattern + i, "*a", 2);
    pattern[200] = '\0';
    memset(name, 'a', 2000);
    name[2000] = '\0';
    assert_true(tu__pattern_matches(pattern, name));
    name[1999] = 'b';
    assert_false(tu__pattern_matches(pattern, name));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(stars_and_commas_match),
                                       cmocka_unit_test(matching_many_stars_takes_little_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
