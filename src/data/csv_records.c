/* Divides the rows of a CSV file into blocks for threads. See csv.h.
 *
 * A line break ends a record unless it is inside of quotes, and whether a block of the file begins inside of quotes
 * depends on all quotes before it. So each block is counted in parallel for both cases, with its number of quotes; a
 * second, short loop over the blocks then knows the case of each. Blocks without quotes, most of them, are searched
 * with memchr. */
#include <string.h>

#include "base/alloc.h"
#include "base/parallel.h"
#include "data/csv.h"

typedef struct counted { /* of a block, if it begins outside [0] or inside [1] of quotes */
    const char *first[2];
    int64_t rows[2];
    bool odd; /* number of quotes */
} counted;

struct counting {
    const tu__csv *csv;
    size_t block_bytes;
    counted *blocks;
};

bool tu__csv_is_blank(const char *at, const char *end, const char **next) {
    const char *p = at;
    if (p < end && *p == '\r') p++;
    *next = p < end ? p + 1 : p;
    return p == end || *p == '\n';
}

/* Counts the record that begins at `at`. */
static void count_record(counted *c, int inside, const char *at, const char *end) {
    const char *next;
    if (!c->first[inside]) c->first[inside] = at;
    c->rows[inside] += !tu__csv_is_blank(at, end, &next);
}

static void count_plain(counted *c, const char *begin, const char *stop, const char *end) {
    for (const char *p = begin; (p = memchr(p, '\n', (size_t)(stop - p))); p++)
        count_record(c, 0, p + 1, end);
}

static void count_quoted(counted *c, const char *begin, const char *stop, const char *end) {
    for (const char *p = begin; p < stop; p++) {
        if (*p == '"') c->odd = !c->odd;
        if (*p == '\n') count_record(c, c->odd, p + 1, end); /* outside for the case that began as c->odd */
    }
}

static const char *block_begin(const struct counting *c, int64_t index) {
    size_t offset = c->csv->rows_at + (size_t)index * c->block_bytes;
    return c->csv->bytes + (offset < c->csv->size ? offset : c->csv->size);
}

static void count_blocks(void *context, int64_t first, int64_t last, int worker) {
    const struct counting *c = context;
    const char *end = c->csv->bytes + c->csv->size;
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        const char *begin = block_begin(c, i), *stop = block_begin(c, i + 1);
        if (i == 0 && !c->csv->has_header)
            count_record(&c->blocks[i], 0, begin, end); /* follows no line break */
        bool has_quotes = memchr(begin, '"', (size_t)(stop - begin)) != NULL;
        (has_quotes ? count_quoted : count_plain)(&c->blocks[i], begin, stop, end);
    }
}

tu_status tu__csv_divide(const tu__csv *csv, size_t block_bytes, int threads, tu__csv_blocks *blocks) {
    struct counting c = {.csv = csv, .block_bytes = block_bytes};
    size_t count = (csv->size - csv->rows_at + block_bytes - 1) / block_bytes;
    *blocks = (tu__csv_blocks){.count = count};
    c.blocks = tu__alloc_array(count + 1, sizeof *c.blocks, "the blocks of a CSV file");
    blocks->block = tu__alloc_array(count + 1, sizeof *blocks->block, "the blocks of a CSV file");
    if (!c.blocks || !blocks->block) {
        tu__free(c.blocks);
        return TU_NO_MEMORY;
    }
    tu__parallel_setting before = tu__parallel_begin(threads);
    tu__parallel_for_stealing((int64_t)count, 1, count_blocks, &c);
    tu__parallel_end(before);
    bool inside = false;
    for (size_t i = 0; i < count; i++) {
        blocks->block[i] = (tu__csv_block){.first = c.blocks[i].first[inside],
                                           .end = block_begin(&c, (int64_t)i + 1),
                                           .rows = c.blocks[i].rows[inside],
                                           .inside = inside};
        blocks->rows += blocks->block[i].rows;
        inside ^= c.blocks[i].odd;
    }
    tu__free(c.blocks);
    return TU_OK;
}
