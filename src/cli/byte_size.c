/* Parses and formats memory sizes. Units are powers of 1024. Sizes are rounded up when printed, so that a printed
 * peak is sufficient as a memory limit. */
#include "cli/byte_size.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIGITS = 40, UNITS = 5 };

bool cli_parse_bytes(const char *text, uint64_t *bytes) {
    static const char letters[] = "KMGT";
    /* Accept only digits and a point: strtod would also accept "inf", "0x10" and "-1". */
    size_t length = strspn(text, "0123456789.");
    char number[MAX_DIGITS + 1], *end;
    if (length == 0 || length > MAX_DIGITS) return false;
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

struct cli_bytes_text cli_format_bytes(uint64_t bytes) {
    static const char *const units[UNITS] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct cli_bytes_text size;
    double value = (double)bytes;
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < UNITS; unit++) value /= 1024;
    snprintf(size.text, sizeof size.text, unit ? "%.1f %s" : "%.0f %s", unit ? ceil(10 * value) / 10 : value,
             units[unit]);
    return size;
}
