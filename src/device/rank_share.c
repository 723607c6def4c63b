/* Divides elements among ranks by cache lines. */
#include "device/rank_share.h"

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

size_t tu__rank_share_lines(const tu_combination *c) {
    return lines_before(c, c->rank + 1) - lines_before(c, c->rank);
}

tu__rank_share_walk tu__rank_share_walk_begin(const tu_combination *c, size_t first, size_t lines) {
    tu__rank_share_walk walk = {.what = c, .line = lines_before(c, c->rank) + first, .left = lines};
    for (size_t segment_lines;
         walk.segment < c->segment_count && walk.line >= (segment_lines = lines_of(c, walk.segment));
         walk.segment++)
        walk.line -= segment_lines;
    return walk;
}

bool tu__rank_share_walk_next(tu__rank_share_walk *walk, size_t max_elements, tu__rank_share_range *range) {
    const tu_combination *c = walk->what;
    size_t per_line = LINE / tu_dtype_size(c->dtype),
           lines = max_elements > per_line ? max_elements / per_line : 1;
    if (!walk->left) return false;
    while (walk->line >= lines_of(c, walk->segment))
        walk->segment++, walk->line = 0; /* skips empty segments */
    size_t remaining = lines_of(c, walk->segment) - walk->line;
    if (lines > remaining) lines = remaining;
    if (lines > walk->left) lines = walk->left;
    size_t first = walk->line * per_line, last = first + lines * per_line,
           end = c->segments[walk->segment].count;
    *range = (tu__rank_share_range){
        .segment = walk->segment, .first = first, .count = (last < end ? last : end) - first};
    walk->line += lines;
    walk->left -= lines;
    return true;
}
