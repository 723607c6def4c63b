/* Divides elements among ranks by cache lines. */
#include "device/kit/rank_slice.h"

enum { LINE = 64 }; /* bytes */

static size_t lines_of(const tu_combination *c, uint32_t segment) {
    return (c->segments[segment].count * tu_dtype_size(c->dtype) + LINE - 1) / LINE;
}

/* Returns the number of cache lines of all lower ranks; the ranks' numbers of lines differ by at most one. */
static size_t lines_before(const tu_combination *c, uint32_t rank) {
    size_t lines = 0;
    for (uint32_t i = 0; i < c->segment_count; i++) lines += lines_of(c, i);
    size_t rest = lines % c->ranks;
    return lines / c->ranks * rank + (rank < rest ? rank : rest);
}

size_t tu__rank_slice_lines(const tu_combination *c) {
    return lines_before(c, c->rank + 1) - lines_before(c, c->rank);
}

tu__rank_slice_iterator tu__rank_slice_begin(const tu_combination *c, size_t first, size_t lines) {
    tu__rank_slice_iterator iterator = {.what = c, .line = lines_before(c, c->rank) + first, .left = lines};
    for (size_t segment_lines; iterator.segment < c->segment_count &&
                               iterator.line >= (segment_lines = lines_of(c, iterator.segment));
         iterator.segment++)
        iterator.line -= segment_lines;
    return iterator;
}

bool tu__rank_slice_next(tu__rank_slice_iterator *iterator, size_t max_elements,
                         tu__rank_slice_range *range) {
    const tu_combination *c = iterator->what;
    size_t per_line = LINE / tu_dtype_size(c->dtype),
           lines = max_elements > per_line ? max_elements / per_line : 1;
    if (!iterator->left) return false;
    while (iterator->line >= lines_of(c, iterator->segment))
        iterator->segment++, iterator->line = 0; /* skips empty segments */
    size_t remaining = lines_of(c, iterator->segment) - iterator->line;
    if (lines > remaining) lines = remaining;
    if (lines > iterator->left) lines = iterator->left;
    size_t first = iterator->line * per_line, last = first + lines * per_line,
           end = c->segments[iterator->segment].count;
    *range = (tu__rank_slice_range){
        .segment = iterator->segment, .first = first, .count = (last < end ? last : end) - first};
    iterator->line += lines;
    iterator->left -= lines;
    return true;
}
