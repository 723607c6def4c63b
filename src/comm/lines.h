/* Divides the elements of a combination by whole cache lines: among the ranks of a collective, and among threads. */
#ifndef TU__COMM_LINES_H
#define TU__COMM_LINES_H

#include <tutti/device.h>

/* An iteration over consecutive cache lines of all segments. Only the segments' numbers of elements are used. */
typedef struct tu__line_iterator {
    const tu_combination *of;
    uint32_t segment;
    size_t line, left; /* the next cache line of the segment; number of cache lines that remain */
} tu__line_iterator;

/* Consecutive elements of one segment. */
typedef struct tu__segment_range {
    uint32_t segment;
    size_t first, count;
} tu__segment_range;

/* Returns the number of cache lines of all segments; every segment begins a new one. */
size_t tu__line_count(const tu_combination *of);
/* Returns the number of cache lines of a rank if the lines are divided equally, and sets `*first` to the first one. */
size_t tu__lines_of_rank(const tu_combination *of, uint32_t rank, uint32_t ranks, size_t *first);

tu__line_iterator tu__lines_begin(const tu_combination *of, size_t first, size_t lines);
/* Returns the next range, of at most `max_elements` elements (but at least a cache line); false if there are no
 * more. */
bool tu__lines_next(tu__line_iterator *iterator, size_t max_elements, tu__segment_range *range);

#endif
