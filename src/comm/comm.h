/* The work of one rank of a collective, in host memory.
 *
 * A collective runs between two synchronization points: before the first, all ranks have written their inputs; after
 * the second, all ranks have written their outputs. The caller synchronizes (run/perform_collective.c). In between,
 * every rank computes its combinations (<tutti/device.h>), which communicator.h makes from the kind of collective and
 * the buffers of all ranks. Sums are pairwise in the order of inputs, ((0 + 1) + (2 + 3)) + …, so the result is
 * bit-identical whichever rank adds it, with any number of threads.
 *
 * Devices whose memory is not host memory implement `build_collective` of tu_device_api instead. */
#ifndef TU__COMM_COMM_H
#define TU__COMM_COMM_H

#include <tutti/device.h>

/* local.c: computes a combination with as many threads as the caller's parallel loops may use (base/parallel.h). */
void tu__local_combine(const tu_combination *combination);

/* local.c: adds `in_count` arrays of `count` elements, in the same order as above; `out` may be one of them. A single
 * array is copied, whatever its type. */
void tu__local_add(tu_dtype dtype, uint32_t in_count, const void *const *in, size_t count, void *out);

#endif
