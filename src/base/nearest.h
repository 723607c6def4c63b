/* "Did you mean …?": finds the known name nearest to a misspelt word. */
#ifndef TU__BASE_NEAREST_H
#define TU__BASE_NEAREST_H

#include <stddef.h>

#include "base/shared.h"

/* Returns the name nearest to `word`, the first of equally near ones; NULL if none is near enough for a typing
 * error. */
TU__SHARED const char *tu_nearest_name(const char *word, const char *const *names, size_t count);

#endif
