/* Glob matching with backtracking to the latest star only. Earlier stars never need to match more characters once a
 * later star has been reached, so the time is at most O(pattern length * name length). */
#include "base/pattern.h"

#include <string.h>

/* True if pattern[0 … length) matches the whole name. */
static bool match_one(const char *pattern, size_t length, const char *name) {
    const char *end = pattern + length, *star = NULL, *resume = NULL;
    while (*name) {
        if (pattern < end && *pattern == '*') {
            star = pattern++;
            resume = name;
        } else if (pattern < end && *pattern == *name) {
            pattern++;
            name++;
        } else if (star) { /* let the star match one more character */
            pattern = star + 1;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (pattern < end && *pattern == '*') pattern++;
    return pattern == end;
}

bool tu__pattern_matches(const char *pattern, const char *name) {
    while (pattern && *pattern) {
        size_t length = strcspn(pattern, ",");
        if (length && match_one(pattern, length, name)) return true;
        pattern += length;
        if (*pattern == ',') pattern++;
    }
    return false;
}
