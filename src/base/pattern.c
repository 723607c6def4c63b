/* Patterns with stars, matched by going back to the latest star only: the characters a star takes in are never worth
 * giving back once a later star has been reached, so the time is at most length times length, whatever the pattern. */
#include "base/pattern.h"

#include <string.h>

/* Whether pattern[0 … length) fits the whole name. */
static bool one_fits(const char *pattern, size_t length, const char *name) {
    const char *end = pattern + length, *star = NULL, *resume = NULL;
    while (*name) {
        if (pattern < end && *pattern == '*') {
            star = pattern++;
            resume = name;
        } else if (pattern < end && *pattern == *name) {
            pattern++;
            name++;
        } else if (star) { /* the star takes one character more */
            pattern = star + 1;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (pattern < end && *pattern == '*') pattern++;
    return pattern == end;
}

bool tu__pattern_fits(const char *pattern, const char *name) {
    while (pattern && *pattern) {
        size_t length = strcspn(pattern, ",");
        if (length && one_fits(pattern, length, name)) return true;
        pattern += length;
        if (*pattern == ',') pattern++;
    }
    return false;
}
