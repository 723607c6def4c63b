/* Which elements of a collective each rank adds up: whole cache lines, as many for every rank as possible. */
#ifndef TU__DEVICE_RANK_SHARE_H
#define TU__DEVICE_RANK_SHARE_H

#include <tutti/device.h>

#include "base/shared.h"

/* Going through the share of `what->rank`, or through `lines` of its cache lines from `first` on. */
typedef struct tu__rank_share_walk {
    const tu_combination *what;
    uint32_t segment;
    size_t line, left; /* lines: of the segment, and still to go */
} tu__rank_share_walk;

/* A run of elements of one segment. */
typedef struct tu__rank_share_range {
    uint32_t segment;
    size_t first, count;
} tu__rank_share_range;

TU__SHARED size_t tu__rank_share_lines(const tu_combination *what); /* in the share of `what->rank` */
TU__SHARED tu__rank_share_walk tu__rank_share_walk_begin(const tu_combination *what, size_t first,
                                                         size_t lines);
/* The next run, of at most `most` elements (at least a line's); false when there are no more. */
TU__SHARED bool tu__rank_share_walk_next(tu__rank_share_walk *walk, size_t most, tu__rank_share_range *range);

#endif
