/* Reading a whole number that is all of a text.
 *
 * A header alone: library and command both read them, and the command links nothing of the library but its public
 * functions. */
#ifndef TU__BASE_WHOLE_NUMBER_H
#define TU__BASE_WHOLE_NUMBER_H

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>

/* False, with *number undefined, for a text that is no decimal number of 64 bits. */
static inline bool tu__read_whole_number(const char *text, int64_t *number) {
    char *end;
    errno = 0;
    *number = strtoimax(text, &end, 10);
    return end != text && *end == '\0' && errno == 0;
}

#endif
