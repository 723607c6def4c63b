/* Looks up a word in a list of allowed names. The error for an unknown word lists the names and suggests the
 * nearest. */
#ifndef TU__BASE_CHOICE_H
#define TU__BASE_CHOICE_H

#include <stddef.h>

#include <tutti/status.h>

#include "base/shared.h"

/* Fails with `status` and "WHAT 'word': expected f32, bf16 or f16; did you mean 'f16'?". */
TU__SHARED tu_status tu__fail_unknown_choice(tu_status status, const char *what, const char *word,
                                             size_t count, const char *const *names);

/* Sets `*index` to the position of `word` in the NULL-terminated `names`. Fails with TU_INVALID if it is not
 * there. */
TU__SHARED tu_status tu__choice_find(const char *what, const char *word, const char *const *names,
                                     size_t *index);

#endif
