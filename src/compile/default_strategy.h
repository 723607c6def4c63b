/* The default strategy of a program. Training, benchmarks, `explain` and `graph` share this rule, so that all of them
 * describe the same program. */
#ifndef TU__COMPILE_DEFAULT_STRATEGY_H
#define TU__COMPILE_DEFAULT_STRATEGY_H

#include <stdbool.h>

#include "base/shared.h"

/* Returns "mirrored" if `invariant` is set, or if the device list (NULL: "all") names several devices of one kind and
 * the caller places no operations itself (`placed`). Otherwise returns "single". Does not check the device specs:
 * compiling does. */
TU__SHARED const char *tu_default_strategy(const char *devices, bool placed, bool invariant);

#endif
