/* Statements about words that must be one of a few. */
#include <string.h>

#include "base/choice.h"
#include "pass/choices.h"
#include "test.h"

static const char *const fruits[] = {"apple", "pear", "quince", NULL};

static void a_word_is_found_by_its_number(void **state) {
    (void)state;
    for (size_t i = 0, found = 9; fruits[i]; i++) {
        assert_int_equal(tu__choice_find("fruit", fruits[i], fruits, &found), TU_OK);
        assert_int_equal(found, i);
    }
}

static void a_word_that_is_none_is_refused_with_those_there_are(void **state) {
    (void)state;
    size_t found = 9;
    assert_int_equal(tu__choice_find("fruit", "stone", fruits, &found), TU_INVALID);
    assert_string_equal(tu_message(), "fruit 'stone': expected apple, pear or quince");
    assert_int_equal(tu__choice_find("fruit", "", fruits, &found), TU_INVALID);
    assert_string_equal(tu_message(), "fruit '': expected apple, pear or quince");
    assert_int_equal(found, 9);
}

static void the_nearest_is_suggested(void **state) {
    (void)state;
    assert_int_equal(tu__choice_refuse(TU_NOT_FOUND, "unknown fruit", "qince", 3, fruits), TU_NOT_FOUND);
    assert_string_equal(tu_message(),
                        "unknown fruit 'qince': expected apple, pear or quince; did you mean 'quince'?");
}

static void one_name_needs_no_or(void **state) {
    (void)state;
    tu__choice_refuse(TU_INVALID, "fruit", "stone", 1, fruits);
    assert_string_equal(tu_message(), "fruit 'stone': expected apple");
}

static void every_choice_of_a_program_has_a_name(void **state) {
    (void)state;
    for (int i = 0; i <= TU__PRECISION_F16; i++) assert_non_null(tu__precision_names[i]);
    assert_null(tu__precision_names[TU__PRECISION_F16 + 1]);
    for (int i = 0; i <= TU__MIRRORED; i++) assert_non_null(tu__strategy_names[i]);
    assert_null(tu__strategy_names[TU__MIRRORED + 1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_is_found_by_its_number),
        cmocka_unit_test(a_word_that_is_none_is_refused_with_those_there_are),
        cmocka_unit_test(the_nearest_is_suggested),
        cmocka_unit_test(one_name_needs_no_or),
        cmocka_unit_test(every_choice_of_a_program_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
