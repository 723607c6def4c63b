/* Selects a locale with a decimal comma, to test that files are written with a decimal point. */
#ifndef TESTS_UNIT_DECIMAL_COMMA_H
#define TESTS_UNIT_DECIMAL_COMMA_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns false if no such locale is installed. The caller restores it with setlocale(LC_NUMERIC, "C"). */
static inline bool set_decimal_comma(void) {
    static const char *const with_comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    for (size_t i = 0; i < sizeof with_comma / sizeof *with_comma; i++)
        if (setlocale(LC_NUMERIC, with_comma[i])) return true;
    return false;
}

#endif
