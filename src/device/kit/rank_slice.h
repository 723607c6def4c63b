/* Divides the elements of a collective among the ranks that add them: whole cache lines, equally many per rank. */
#ifndef TU__DEVICE_KIT_RANK_SLICE_H
#define TU__DEVICE_KIT_RANK_SLICE_H

#include <tutti/device.h>

/* An iteration over the slice of rank `what->rank`, or over `lines` of its cache lines from line `first` on. */
typedef struct tu__rank_slice_iterator {
    const tu_combination *what;
    uint32_t segment;
    size_t line, left; /* the next cache line of the segment; number of cache lines that remain */
} tu__rank_slice_iterator;

/* Consecutive elements of one segment. */
typedef struct tu__rank_slice_range {
    uint32_t segment;
    size_t first, count;
} tu__rank_slice_range;

/* Returns the number of cache lines of rank `what->rank`. */
size_t tu__rank_slice_lines(const tu_combination *what);
tu__rank_slice_iterator tu__rank_slice_begin(const tu_combination *what, size_t first, size_t lines);
/* Returns the next range, of at most `max_elements` elements (but at least a cache line); false if there are no
 * more. */
bool tu__rank_slice_next(tu__rank_slice_iterator *iterator, size_t max_elements, tu__rank_slice_range *range);

#endif
