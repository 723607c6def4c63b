/* A locale that writes 1.5 with a comma, which no file of ours may. */
#ifndef TESTS_UNIT_DECIMAL_COMMA_H
#define TESTS_UNIT_DECIMAL_COMMA_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>

/* Until setlocale(LC_NUMERIC, "C"); false where no such locale is installed. */
static inline bool set_decimal_comma(void) {
    static const char *const with_comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    for (size_t i = 0; i < sizeof with_comma / sizeof *with_comma; i++)
        if (setlocale(LC_NUMERIC, with_comma[i])) return true;
    return false;
}

#endif
