/* Our own matrix product, around the tile of isa/loops_gemm.h.
 *
 * c is cut into a grid of parts, a part a worker; a worker packs what it multiplies, so a product is one parallel
 * region, and what was packed is still in the worker's own cache when it is used. Within a part, from the outside in:
 *
 *     blocks of rows    all of them where a is read as it lies: its elements are broadcast one by one, at any stride.
 *                       Columns of a transposed a share their cache lines, and a power of two apart they push each
 *                       other out: such rows are packed, tile by tile, as many as half of a second-level cache holds
 *     chunks of k       so that a chunk of a panel stays in the second-level cache and a tile's rows in the first
 *     panels of b       a few vectors wide, packed so that a tile walks through memory straight
 *     tiles of rows
 *
 * The grid is the one with the least work for the busiest worker (cost_of_part): more parts side by side mean that more
 * workers read the same a, more below each other that more pack the same b. A sum is always added up in the same order,
 * whoever computes it: bits do not depend on the width.
 */
#include "device/cpu/gemm.h"

#include "base/parallel.h"

enum {
    CHUNK = 512,                   /* of k, at most */
    PACKED_ROWS_BYTES = 512 << 10, /* of a, at most */
    LEAST_WORK = 1 << 14           /* of a worker: multiply-adds of a vector */
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Where part i of `parts` begins: the first count % parts of them are longer by one. */
static int64_t part_start(int64_t count, int64_t parts, int64_t i) {
    return i * (count / parts) + smaller(i, count % parts);
}

static int64_t vectors_of(const cpu_gemm *g) {
    return divide_up(g->n, g->loops->vector);
}

/* ---- Planning ---- */

/* A worker must be worth waking: some microseconds of multiply-adds each. */
static int64_t workers_of(const cpu_gemm *g) {
    double work = (double)g->batch * (double)g->m * (double)vectors_of(g) * (double)g->k / LEAST_WORK;
    return work < (double)g->threads ? 1 + (int64_t)work : g->threads;
}

/* For one k, counted in multiply-adds of a vector. A vector of b takes as long to read and pack as 16 of them; an
 * element of a, which another core may have written, as long to read as one. */
static int64_t cost_of_part(int64_t rows, int64_t vectors) {
    return rows * vectors + 16 * vectors + rows;
}

static void choose_grid(cpu_gemm *g) {
    int64_t least = INT64_MAX, vectors = vectors_of(g), workers = workers_of(g);
    for (int64_t columns = 1; columns <= smaller(workers, vectors); columns++)
        for (int64_t rows = 1; rows <= smaller(workers / columns, g->m); rows++) {
            int64_t turns = divide_up(g->batch * rows * columns, workers);
            int64_t cost = turns * cost_of_part(divide_up(g->m, rows), divide_up(vectors, columns));
            if (cost >= least) continue;
            least = cost;
            g->split.row_parts = rows;
            g->split.column_parts = columns;
        }
}

/* The longest chunk and block of rows, the widest part in vectors. */
static int64_t depth_of(const cpu_gemm *g) {
    return divide_up(g->k, g->split.chunks);
}

static int64_t rows_of(const cpu_gemm *g) {
    return divide_up(divide_up(g->m, g->split.row_parts), g->split.row_blocks);
}

static int64_t width_of(const cpu_gemm *g) {
    return divide_up(vectors_of(g), g->split.column_parts);
}

void cpu_gemm_plan(cpu_gemm *g) {
    choose_grid(g);
    g->split.chunks = divide_up(g->k, CHUNK);
    g->split.panels = divide_up(width_of(g), g->loops->most_vectors);
    g->split.row_blocks = 1;
    if (g->transpose_a)
        g->split.row_blocks = divide_up(rows_of(g) * depth_of(g) * g->loops->bytes, PACKED_ROWS_BYTES);
}

static size_t whole_lines(int64_t bytes) {
    return ((size_t)bytes + 63) / 64 * 64;
}

/* Of one worker: a panel of b, then rows of a. */
static size_t panel_bytes(const cpu_gemm *g) {
    return whole_lines(depth_of(g) * divide_up(width_of(g), g->split.panels) * g->loops->vector *
                       g->loops->bytes);
}

static size_t packed_bytes(const cpu_gemm *g) {
    return panel_bytes(g) + (g->transpose_a ? whole_lines(depth_of(g) * rows_of(g) * g->loops->bytes) : 0);
}

static int64_t units_of(const cpu_gemm *g) {
    return g->batch * g->split.row_parts * g->split.column_parts;
}

size_t cpu_gemm_workspace(const cpu_gemm *g) {
    return packed_bytes(g) * (size_t)smaller(units_of(g), g->threads);
}

/* ---- A part ---- */

typedef struct part {
    const cpu_gemm *g;
    const cpu_gemm_operands *o;
    int64_t item;            /* of the batch */
    int64_t row, rows;       /* the block of c's rows */
    int64_t tiles;           /* that it is cut into */
    int64_t k, depth;        /* the chunk */
    int64_t column, columns; /* the panel; columns past c's last are zeros */
    char *packed_a, *packed_b;
} part;

static void pack_panel(const part *p) {
    const cpu_gemm *g = p->g;
    int64_t k_step = g->transpose_b ? 1 : g->n, column_step = g->transpose_b ? g->k : 1;
    int64_t source = g->b_at[p->item] + p->k * k_step + p->column * column_step;
    g->loops->pack(p->depth, smaller(p->columns, g->n - p->column),
                   (const char *)p->o->b + source * g->loops->bytes, k_step, column_step, p->packed_b,
                   p->columns);
}

/* Tile i of the block: its rows, and where they are in a. */
static void place_tile(const part *p, int64_t i, cpu_gemm_tile *tile) {
    const cpu_gemm *g = p->g;
    int64_t first = part_start(p->rows, p->tiles, i);
    tile->rows = part_start(p->rows, p->tiles, i + 1) - first;
    if (g->transpose_a) {
        tile->a = p->packed_a + first * p->depth * g->loops->bytes;
        tile->a_row = 1;
        tile->a_step = tile->rows;
    } else {
        int64_t at = g->a_at[p->item] + (p->row + first) * g->k + p->k;
        tile->a = (const char *)p->o->a + at * g->loops->bytes;
        tile->a_row = g->k;
        tile->a_step = 1;
    }
    int64_t at = (p->item * g->m + p->row + first) * g->n + p->column;
    tile->c = (char *)p->o->c + at * g->loops->bytes;
}

static void pack_rows(const part *p) {
    const cpu_gemm *g = p->g;
    for (int64_t i = 0; i < p->tiles; i++) {
        int64_t first = part_start(p->rows, p->tiles, i), rows = part_start(p->rows, p->tiles, i + 1) - first;
        int64_t source = g->a_at[p->item] + p->k * g->m + p->row + first;
        g->loops->pack(p->depth, rows, (const char *)p->o->a + source * g->loops->bytes, g->m, 1,
                       p->packed_a + first * p->depth * g->loops->bytes, rows);
    }
}

static void multiply_panel(const part *p) {
    static const int64_t no_offset[1] = {0};
    const cpu_gemm *g = p->g;
    bool finishes = p->k + p->depth == g->k;
    cpu_gemm_tile tile = {.a_blocks = no_offset, .blocks = 1, .depth = p->depth};
    tile.b = p->packed_b;
    tile.b_step = p->columns;
    tile.c_row = g->n;
    tile.columns = smaller(p->columns, g->n - p->column);
    tile.add = p->k > 0;
    tile.relu = finishes && p->o->relu;
    if (finishes && p->o->bias) tile.bias = (const char *)p->o->bias + p->column * g->loops->bytes;
    for (int64_t i = 0; i < p->tiles; i++) {
        place_tile(p, i, &tile);
        g->loops->tile(&tile);
    }
}

/* All chunks of a block of rows, by the part's vectors first … last - 1. */
static void multiply_rows(part *p, int64_t first, int64_t last) {
    const cpu_gemm *g = p->g;
    int64_t panels = smaller(g->split.panels, last - first), widest = divide_up(last - first, panels);
    p->tiles = divide_up(p->rows, g->loops->most_rows[widest]);
    for (int64_t chunk = 0; chunk < g->split.chunks; chunk++) {
        p->k = part_start(g->k, g->split.chunks, chunk);
        p->depth = part_start(g->k, g->split.chunks, chunk + 1) - p->k;
        if (g->transpose_a) pack_rows(p);
        for (int64_t i = 0; i < panels; i++) {
            int64_t from = first + part_start(last - first, panels, i);
            p->column = from * g->loops->vector;
            p->columns = (first + part_start(last - first, panels, i + 1) - from) * g->loops->vector;
            pack_panel(p);
            multiply_panel(p);
        }
    }
}

/* Units are parts of products: (item of the batch, row of the grid, column of the grid). */
typedef struct product {
    const cpu_gemm *g;
    const cpu_gemm_operands *o;
} product;

static void multiply_unit(part *p, int64_t row_part, int64_t column_part) {
    const cpu_gemm *g = p->g;
    const cpu_gemm_split *split = &g->split;
    int64_t from = part_start(g->m, split->row_parts, row_part), vectors = vectors_of(g);
    int64_t rows = part_start(g->m, split->row_parts, row_part + 1) - from;
    int64_t blocks = smaller(split->row_blocks, rows);
    for (int64_t i = 0; i < blocks; i++) {
        int64_t first = part_start(rows, blocks, i);
        p->row = from + first;
        p->rows = part_start(rows, blocks, i + 1) - first;
        multiply_rows(p, part_start(vectors, split->column_parts, column_part),
                      part_start(vectors, split->column_parts, column_part + 1));
    }
}

static void multiply_units(void *context, int64_t first, int64_t last, int worker) {
    const product *whole = context;
    const cpu_gemm *g = whole->g;
    int64_t rows = g->split.row_parts, columns = g->split.column_parts;
    part p = {.g = g, .o = whole->o};
    p.packed_b = (char *)whole->o->workspace + (size_t)worker * packed_bytes(g);
    p.packed_a = p.packed_b + panel_bytes(g);
    for (int64_t unit = first; unit < last; unit++) {
        p.item = unit / (rows * columns);
        multiply_unit(&p, unit / columns % rows, unit % columns);
    }
}

void cpu_gemm_run(const cpu_gemm *g, const cpu_gemm_operands *operands) {
    product whole = {g, operands};
    tu__parallel_for(units_of(g), divide_up(units_of(g), workers_of(g)), multiply_units, &whole);
}
