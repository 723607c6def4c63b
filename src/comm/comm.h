/* Collectives between the devices of one process.
 *
 * A collective happens between two moments: before the first, all ranks have what they bring; after the second, all
 * have done their part. Who calls keeps the moments (run/perform_collective.c); here is the part of one rank. The elements of all
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

typedef enum tu__collective_kind {
    TU__ALL_REDUCE,
    TU__REDUCE_SCATTER,
    TU__ALL_GATHER,
    TU__BROADCAST,
} tu__collective_kind;

/* local.c: the part of `what->rank` between devices whose memory is the host's, on as many threads as the caller's
 * loops may have (base/parallel.h). `root`: of broadcast. */
void tu__local_collective(tu__collective_kind which, uint32_t root, const tu_combination *what);

/* local.c: the sum of `ranks` lists of `count` numbers, in the same order; `out` may be one of them. */
void tu__local_add(tu_dtype dtype, uint32_t ranks, const void *const *in, size_t count, void *out);

#endif
