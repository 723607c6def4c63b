/* Collectives between host devices of one process.
 *
 * A collective runs between two synchronization points: before the first, all ranks have written their inputs; after
 * the second, all ranks have written their outputs. The caller synchronizes (run/perform_collective.c); the functions
 * here do the work of one rank. The elements of all segments are divided into equal slices of whole cache lines, one
 * per rank (device/kit/rank_slice.h). A rank reads its slice from all ranks and writes the result to all of them, so
 * every element is read and written once, without staging buffers. Sums are pairwise in the order of ranks, ((0 + 1)
 * + (2 + 3)) + …, so the result is bit-identical whichever rank adds it, with any number of threads.
 *
 *     all_reduce        out[every rank] = sum of all in
 *     reduce_scatter    out[r] = sum of all in, only in the slice of rank r
 *     all_gather        out[every rank] = in[r] in the slice of rank r
 *     broadcast         out[every rank] = in[root]
 *
 * Devices whose memory is not host memory implement `combine` of tu_device_api instead. */
#ifndef TU__COMM_COMM_H
#define TU__COMM_COMM_H

#include <tutti/device.h>

typedef enum tu__collective_kind {
    TU__ALL_REDUCE,
    TU__REDUCE_SCATTER,
    TU__ALL_GATHER,
    TU__BROADCAST,
} tu__collective_kind;

/* local.c: does the work of `combination->rank`, with as many threads as the caller's parallel loops may use
 * (base/parallel.h). `root`: for broadcast. */
void tu__local_collective(tu__collective_kind kind, uint32_t root, const tu_combination *combination);

/* local.c: adds `ranks` arrays of `count` elements, in the same order as above; `out` may be one of them. */
void tu__local_add(tu_dtype dtype, uint32_t ranks, const void *const *in, size_t count, void *out);

#endif
