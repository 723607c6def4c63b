/* How devices share a batch where nobody says it: one rule for training, measuring, explaining and printing, so that each
 * speaks of the program that the others run. */
#ifndef TU__COMPILE_DEFAULT_STRATEGY_H
#define TU__COMPILE_DEFAULT_STRATEGY_H

#include <stdbool.h>

#include "base/shared.h"

/* "mirrored" where the batch is cut into parts in any case (`invariant`), or the list (NULL: "all") names several devices
 * of one kind and nothing else places operations (`placed`); else "single". A word that no device has is the compiler's to
 * refuse. */
TU__SHARED const char *tu__default_strategy(const char *devices, bool placed, bool invariant);

#endif
