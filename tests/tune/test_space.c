/* Spaces: text to parameters and back, scales, conditions, and what is wrong with a text. */
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tune/space.h"
#include "unit/decimal_comma.h"

static void a_space_and_its_text_are_the_same(void **state) {
    (void)state;
    static const char lines[] = "optimizer=sgd|adam|momentum\n"
                                "rate=log:0.0001:1\n"
                                "batch=log:int:16:1024/7\n"
                                "momentum=0.5:0.99 if optimizer=sgd|momentum\n"
                                "place=a:b|c=d if optimizer=adam and optimizer=sgd|adam\n"
                                "shift=-1.5:2e-05/3\n";
    tu__space space = {0};
    tu__text text = {0};
    if (tu__space_add_lines(&space, "space", lines) != TU_OK) fail_msg("%s", tu_message());
    tu__space_print(&space, &text);
    assert_string_equal(tu__text_string(&text), lines);
    assert_int_equal(tu__space_check(&space), TU_OK);
    tu__text_free(&text);
    tu__space_free(&space);
}

static void texts_that_are_wrong_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"rate", "expected NAME=VALUES"},
        {"=1:2", "expected a name"},
        {"a b=1:2", "expected a name"},
        {"a;DROP TABLE trial=1:2", "expected a name"},
        {"x=", "expected LOW:HIGH"},
        {"x=1:", "expected LOW:HIGH"},
        {"x=1:2:3", "expected LOW:HIGH"},
        {"x=one:two", "expected LOW:HIGH"},
        {"x=nan:2", "expected LOW:HIGH"},
        {"x=0:inf", "expected LOW:HIGH"},
        {"x=0x1:2", "expected LOW:HIGH"},
        {"x=2:1", "the range '2:1' is reversed: expected 1:2"},
        {"x=1:1", "the range '1:1' is empty"},
        {"x=log:0:1", "the lower bound of a logarithmic range is 0: expected a number above 0"},
        {"x=int:0.5:3", "expected integers as bounds"},
        {"x=int:1:3/4", "fewer than 4 integers"},
        {"x=1:3/1", "expected a number of values from 2"},
        {"x=a||b", "an empty value"},
        {"x=a|b|a", "the value 'a' is listed twice"},
        {"x=a|b\nc", "a control character"},
        {"known=1:2", "'known' is given twice"},
        {"x=1:2 if y=a", "unknown parameter before it"},
        {"x=1:2 if x=a", "its condition is on itself"},
        {"x=1:2 if number=1", "'number', which is a number: expected a choice"},
        {"x=1:2 if known=c", "parameter 'x': its condition: known 'c': expected a or b"},
        {"x=1:2 if known", "expected a condition NAME=A|B"},
        {"x=1:2 if known=a and", "parameter 'x': its condition: known 'a and': expected a or b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tu__space space = {0};
        assert_int_equal(tu__space_add_lines(&space, "space", "known=a|b\nnumber=0:1"), TU_OK);
        if (tu__space_add(&space, cases[i].text) != TU_INVALID || !strstr(tu_message(), cases[i].message))
            fail_msg("'%s': '%s', expected '%s'", cases[i].text, tu_message(), cases[i].message);
        assert_int_equal(space.count, 2);
        tu__space_free(&space);
    }
}

static void contradicting_conditions_are_found(void **state) {
    (void)state;
    static const char *const spaces[] = {
        "a=x|y\nb=1:2 if a=x and a=y",
        "a=x|y\nb=p|q if a=x\nc=1:2 if b=p and a=y",
        "a=x|y\nb=p|q if a=x\nc=r|s if b=p\nd=1:2 if c=r and b=q",
    };
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        tu__space space = {0};
        assert_int_equal(tu__space_add_lines(&space, "space", spaces[i]), TU_OK);
        assert_int_equal(tu__space_check(&space), TU_INVALID);
        assert_non_null(strstr(tu_message(), "is never used: its conditions allow no value of"));
        tu__space_free(&space);
    }
    tu__space empty = {0};
    assert_int_equal(tu__space_check(&empty), TU_INVALID);
}

/* Each parameter depends on the eight before it: there are more paths than could ever be walked. */
static void conditions_are_checked_in_time_that_does_not_grow_with_their_paths(void **state) {
    (void)state;
    tu__space space = {0};
    for (int i = 0; i < TU__MAX_PARAMETERS; i++) {
        char text[400];
        int length = snprintf(text, sizeof text, "p%d=a|b", i);
        for (int k = i - 1; k >= 0 && k >= i - TU__MAX_CONDITIONS; k--)
            length += snprintf(text + length, sizeof text - (size_t)length, " %s p%d=a",
                               k == i - 1 ? "if" : "and", k);
        assert_int_equal(tu__space_add(&space, text), TU_OK);
    }
    assert_int_equal(tu__space_check(&space), TU_OK);
    tu__space_free(&space);
}

static void values_are_spread_over_their_scale(void **state) {
    (void)state;
    tu__space space = {0};
    assert_int_equal(tu__space_add_lines(&space, "space",
                                         "l=0:10\ng=log:0.01:100\nw=int:1:4\nv=log:int:1:1000\n"
                                         "p=0:1/5\nc=a|b|c"),
                     TU_OK);
    const tu__parameter *p = space.parameters;
    assert_true(tu__parameter_value(&p[0], 0.25) == 2.5);
    assert_true(fabs(tu__parameter_value(&p[1], 0.5) - 1) < 1e-12);
    assert_true(tu__parameter_value(&p[2], 0) == 1 && tu__parameter_value(&p[2], 0.24) == 1);
    assert_true(tu__parameter_value(&p[2], 0.26) == 2 && tu__parameter_value(&p[2], 0.999) == 4);
    assert_true(tu__parameter_value(&p[4], 0.3) == 0.25 && tu__parameter_value(&p[4], 0.99) == 1);
    assert_true(tu__parameter_value(&p[5], 0.99) == 2);
    for (size_t i = 0; i < space.count; i++)
        for (int step = 0; step < 100; step++) {
            double value = tu__parameter_value(&p[i], 0.01 * step);
            if (tu__parameter_value(&p[i], tu__parameter_unit(&p[i], value)) != value &&
                fabs(tu__parameter_value(&p[i], tu__parameter_unit(&p[i], value)) / value - 1) > 1e-12)
                fail_msg("%s: %g becomes %g", p[i].name, value,
                         tu__parameter_value(&p[i], tu__parameter_unit(&p[i], value)));
        }
    tu__space_free(&space);
}

static void values_and_their_text_are_the_same(void **state) {
    (void)state;
    set_decimal_comma();
    tu__space space = {0};
    assert_int_equal(tu__space_add_lines(&space, "space", "g=log:1e-9:1\nc=a|b'c\"<d>"), TU_OK);
    for (size_t i = 0; i < 2; i++)
        for (int step = 0; step < 20; step++) {
            tu__text text = {0};
            double value = tu__parameter_value(&space.parameters[i], 0.0501 * step), again;
            tu__parameter_format(&space.parameters[i], value, &text);
            assert_int_equal(tu__parameter_parse(&space.parameters[i], tu__text_string(&text), &again),
                             TU_OK);
            assert_true(value == again);
            tu__text_free(&text);
        }
    double value;
    assert_int_equal(tu__parameter_parse(&space.parameters[0], "2", &value), TU_INVALID);
    assert_int_equal(tu__parameter_parse(&space.parameters[1], "b", &value), TU_INVALID);
    setlocale(LC_NUMERIC, "C");
    tu__space_free(&space);
}

static void counts_become_whole(void **state) {
    (void)state;
    tu__space space = {0};
    assert_int_equal(tu__space_add_lines(&space, "space", "a=1:9\nb=1|2\nc=0.5:2\nd=1|x"), TU_OK);
    assert_int_equal(tu__space_make_whole(&space.parameters[0]), TU_OK);
    assert_true(tu__parameter_value(&space.parameters[0], 0.4) == 4);
    assert_int_equal(tu__space_make_whole(&space.parameters[1]), TU_OK);
    assert_int_equal(tu__space_make_whole(&space.parameters[2]), TU_INVALID);
    assert_int_equal(tu__space_make_whole(&space.parameters[3]), TU_INVALID);
    tu__space_free(&space);
}

static void messages_of_a_file_have_its_line(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-space-XXXXXX";
    static const char lines[] = "# a comment\n\nrate = log:1e-4:1\r\nbatch = 64 | 128\nmomentum = 1:0\n";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, lines, sizeof lines - 1), sizeof lines - 1);
    close(fd);
    tu__space space = {0};
    assert_int_equal(tu__space_add_file(&space, path), TU_INVALID);
    assert_non_null(strstr(tu_message(), ": line 5: parameter 'momentum': the range '1:0' is reversed"));
    assert_int_equal(space.count, 2);
    assert_string_equal(space.parameters[1].choices[1], "128");
    unlink(path);
    assert_int_equal(tu__space_add_file(&space, path), TU_NOT_FOUND);
    tu__space_free(&space);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_space_and_its_text_are_the_same),
        cmocka_unit_test(texts_that_are_wrong_are_refused),
        cmocka_unit_test(contradicting_conditions_are_found),
        cmocka_unit_test(conditions_are_checked_in_time_that_does_not_grow_with_their_paths),
        cmocka_unit_test(values_are_spread_over_their_scale),
        cmocka_unit_test(values_and_their_text_are_the_same),
        cmocka_unit_test(counts_become_whole),
        cmocka_unit_test(messages_of_a_file_have_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
