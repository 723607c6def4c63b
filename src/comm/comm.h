/* Collectives between the devices of one process.
 *
 * A collective happens between two moments: before the first, all ranks have what they bring; after the second, all
 * have done their part. Who calls keeps the moments (run/hold.c); here is the part of one rank. The elements of all
 * segments, one after another, are dealt out in whole cache lines, an equal share for every rank: it reads its share
 * of what the others have and writes it where they want it, so every number is read once and written once, and
 * nothing is staged. Sums are added pairwise in the order of ranks, ((0 + 1) + (2 + 3)) + …: the same bits whoever
 * adds them, and however many threads do.
 *
 *     all_reduce        out[every rank] = sum of all in
 *     reduce_scatter    out[r], in the share of rank r alone, = the same
 *     all_gather        out[every rank], in the share of rank r, = in[r] there
 *     broadcast         out[every rank] = in[root]
 *
 * Devices whose memory is not the host's have their own way (`combine` of tu_device_api). */
#ifndef TU__COMM_COMM_H
#define TU__COMM_COMM_H

#include <tutti/device.h>

#include "base/shared.h"

typedef enum tu__collective {
    TU__ALL_REDUCE,
    TU__REDUCE_SCATTER,
    TU__ALL_GATHER,
    TU__BROADCAST,
} tu__collective;

/* share.c: going through the share of `what->rank`, or through `lines` of its cache lines from `first` on. */
typedef struct tu__comm_walk {
    const tu_combination *what;
    uint32_t segment;
    size_t line, left; /* lines: of the segment, and still to go */
} tu__comm_walk;

/* A run of elements of one segment. */
typedef struct tu__comm_range {
    uint32_t segment;
    size_t first, count;
} tu__comm_range;

TU__SHARED size_t tu__comm_lines(const tu_combination *what); /* in the share of `what->rank` */
TU__SHARED tu__comm_walk tu__comm_walk_begin(const tu_combination *what, size_t first, size_t lines);
/* The next run, of at most `most` elements (at least a line's); false when there are no more. */
TU__SHARED bool tu__comm_walk_next(tu__comm_walk *walk, size_t most, tu__comm_range *range);

/* local.c: the part of `what->rank` between devices whose memory is the host's, on as many threads as the caller's
 * loops may have (base/parallel.h). `root`: of broadcast. */
void tu__local_collective(tu__collective which, uint32_t root, const tu_combination *what);

/* local.c: the sum of `ranks` lists of `count` numbers, in the same order; `out` may be one of them. */
void tu__local_add(tu_dtype dtype, uint32_t ranks, const void *const *in, size_t count, void *out);

#endif
