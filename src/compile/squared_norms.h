/* Lists the sums of squares over many tensors in a partition: squared_norms.c. */
#ifndef TU__COMPILE_SQUARED_NORMS_H
#define TU__COMPILE_SQUARED_NORMS_H

#include "base/arena.h"
#include "graph/graph.h"

#include <tutti/device.h>

/* Sets `norms` and `norm_count` of a partition whose nodes and exports are set. The lists live in the arena. */
tu_status tu__find_squared_norms(tu_partition *partition, tu__arena *arena);

#endif
