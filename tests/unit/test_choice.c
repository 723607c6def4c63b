/* Looking up a word in a list of allowed names (base/choice.h). */
#include <string.h>

#include "base/choice.h"
#include "pass/choices.h"
#include "test.h"

static const char *const fruits[] = {"apple", "pear", "quince", NULL};

static void the_index_of_a_name_is_returned(void **state) {
    (void)state;
    for (size_t i = 0, found = 9; fruits[i]; i++) {
        assert_int_equal(tu__choice_find("fruit", fruits[i], fruits, &found), TU_OK);
        assert_int_equal(found, i);
    }
}

static void the_error_lists_the_allowed_names(void **state) {
    (void)state;
    size_t found = 9;
    assert_int_equal(tu__choice_find("fruit", "stone", fruits, &found), TU_INVALID);
    assert_string_equal(tu_message(), "fruit 'stone': expected apple, pear or quince");
    assert_int_equal(tu__choice_find("fruit", "", fruits, &found), TU_INVALID);
    assert_string_equal(tu_message(), "fruit '': expected apple, pear or quince");
    assert_int_equal(found, 9);
}

static void the_error_suggests_the_nearest_name(void **state) {
    (void)state;
    assert_int_equal(tu__fail_unknown_choice(TU_NOT_FOUND, "unknown fruit", "qince", 3, fruits),
                     TU_NOT_FOUND);
    assert_string_equal(tu_message(),
                        "unknown fruit 'qince': expected apple, pear or quince; did you mean 'quince'?");
}

static void a_single_name_is_listed_without_or(void **state) {
    (void)state;
    tu__fail_unknown_choice(TU_INVALID, "fruit", "stone", 1, fruits);
    assert_string_equal(tu_message(), "fruit 'stone': expected apple");
}

static void every_precision_and_strategy_has_a_name(void **state) {
    (void)state;
    for (int i = 0; i <= TU__PRECISION_F16; i++) assert_non_null(tu__precision_names[i]);
    assert_null(tu__precision_names[TU__PRECISION_F16 + 1]);
    for (int i = 0; i <= TU__MIRRORED; i++) assert_non_null(tu__strategy_names[i]);
    assert_null(tu__strategy_names[TU__MIRRORED + 1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_index_of_a_name_is_returned),
        cmocka_unit_test(the_error_lists_the_allowed_names),
        cmocka_unit_test(the_error_suggests_the_nearest_name),
        cmocka_unit_test(a_single_name_is_listed_without_or),
        cmocka_unit_test(every_precision_and_strategy_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
