/* Divides elements among ranks and threads by cache lines. */
#include "comm/lines.h"

enum { LINE = 64 }; /* bytes */

static size_t lines_of(const tu_combination *c, uint32_t segment) {
    return (c->segments[segment].count * tu_dtype_size(c->dtype) + LINE - 1) / LINE;
}

size_t tu__line_count(const tu_combination *c) {
    size_t lines = 0;
    for (uint32_t i = 0; i < c->segment_count; i++) lines += lines_of(c, i);
    return lines;
}

size_t tu__lines_of_rank(const tu_combination *c, uint32_t rank, uint32_t ranks, size_t *first) {
    size_t lines = tu__line_count(c), rest = lines % ranks;
    *first = lines / ranks * rank + (rank < rest ? rank : rest);
    return lines / ranks + (rank < rest);
}

tu__line_iterator tu__lines_begin(const tu_combination *c, size_t first, size_t lines) {
    tu__line_iterator iterator = {.of = c, .line = first, .left = lines};
    for (size_t segment_lines; iterator.segment < c->segment_count &&
                               iterator.line >= (segment_lines = lines_of(c, iterator.segment));
         iterator.segment++)
        iterator.line -= segment_lines;
    return iterator;
}

bool tu__lines_next(tu__line_iterator *iterator, size_t max_elements, tu__segment_range *range) {
    const tu_combination *c = iterator->of;
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
    *range = (tu__segment_range){
        .segment = iterator->segment, .first = first, .count = (last < end ? last : end) - first};
    iterator->line += lines;
    iterator->left -= lines;
    return true;
}
