/* Patterns of names, as "conv*" or "*bias,norm*". A star stands for any characters, also none and
 * also '/'; commas separate patterns, of which one must fit the whole name. Nothing else is special. */
#ifndef TU__BASE_PATTERN_H
#define TU__BASE_PATTERN_H

#include <stdbool.h>

#include "base/shared.h"

/* Whether one of the patterns fits; NULL and "" fit nothing. */
TU__SHARED bool tu__pattern_fits(const char *pattern, const char *name);

#endif
