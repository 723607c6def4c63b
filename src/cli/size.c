/* Amounts of memory to and from text. Units are powers of 1024 in both directions, and what is printed is rounded up, so
 * that a peak as one command prints it is a limit that another keeps. */
#include "cli/size.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_NUMBER = 40, UNITS = 5 };

bool cli_parse_size(const char *text, uint64_t *bytes) {
    static const char letters[] = "KMGT";
    /* Digits and a point only: strtod alone would take "inf", "0x10" and "-1" too. */
    size_t length = strspn(text, "0123456789.");
    char number[LONGEST_NUMBER + 1], *end;
    if (length == 0 || length > LONGEST_NUMBER) return false;
    memcpy(number, text, length);
    number[length] = '\0';
    double value = strtod(number, &end);
    if (*end) return false; /* "1.5.2", "." */
    const char *unit = text + length + (text[length] == ' '), *letter = *unit ? strchr(letters, *unit) : NULL;
    if (text[length] && !letter) return false;
    for (ptrdiff_t i = letter ? letter - letters + 1 : 0; i > 0; i--) value *= 1024;
    if (letter && unit[1] && strcmp(unit + 1, "iB") != 0) return false;
    if (!(value >= 1 && value < 0x1p63)) return false;
    *bytes = (uint64_t)value;
    return true;
}

struct cli_size cli_size(uint64_t bytes) {
    static const char *const units[UNITS] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct cli_size size;
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < UNITS; unit++) value /= 1024;
    snprintf(size.text, sizeof size.text, unit ? "%.1f %s" : "%.0f %s", unit ? ceil(10 * value) / 10 : value,
             units[unit]);
    return size;
}
