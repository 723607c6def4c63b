/* "Did you mean …?": the known name that a misspelt word is nearest to. */
#ifndef TU__BASE_NEAREST_H
#define TU__BASE_NEAREST_H

#include <stddef.h>

#include "base/shared.h"

/* The name nearest to `word`; the first of several as near; NULL when none is near enough to be a slip of the hand. */
TU__SHARED const char *tu_nearest_name(const char *word, const char *const *names, size_t count);

#endif
