/* Words that must be one of a few: finding one, and refusing what is none with those there are and the nearest of them. */
#ifndef TU__BASE_CHOICE_H
#define TU__BASE_CHOICE_H

#include <stddef.h>

#include <tutti/status.h>

#include "base/shared.h"

/* Fails with `status` and "WHAT 'word': expected f32, bf16 or f16; did you mean 'f16'?". */
TU__SHARED tu_status tu__choice_refuse(tu_status status, const char *what, const char *word, size_t count,
                                       const char *const *names);

/* The number of `word` among `names`, which end with NULL; a word that is none is refused as TU_INVALID. */
TU__SHARED tu_status tu__choice_find(const char *what, const char *word, const char *const *names,
                                     size_t *index);

#endif
