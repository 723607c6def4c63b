/* Glob patterns for names, e.g. "conv*" or "*bias,norm*". A star matches any characters, including none and '/'.
 * Commas separate patterns, one of which must match the whole name. No other character is special. */
#ifndef TU__BASE_PATTERN_H
#define TU__BASE_PATTERN_H

#include <stdbool.h>

#include "base/shared.h"

/* True if one of the comma-separated patterns matches `name`. NULL and "" match nothing. */
TU__SHARED bool tu__pattern_matches(const char *pattern, const char *name);

#endif
