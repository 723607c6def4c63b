/* Parses integers.
 *
 * Header-only because the command-line tool uses it too and can link only the library's public functions. */
#ifndef TU__BASE_PARSE_INTEGER_H
#define TU__BASE_PARSE_INTEGER_H

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>

/* Parses `text` as a decimal integer. Returns false, with *number undefined, if the whole text is not a 64-bit
 * integer. */
static inline bool tu__parse_integer(const char *text, int64_t *number) {
    char *end;
    errno = 0;
    *number = strtoimax(text, &end, 10);
    return end != text && *end == '\0' && errno == 0;
}

#endif
