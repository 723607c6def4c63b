/* Matrix products, built on the tile of isa/loops_gemm.h.
 *
 * c is divided into a grid of cells, one per worker. Each worker packs its own operands, so a matrix product is one
 * parallel region, and packed data is still in the worker's cache when it is used. The loops within a cell, from the
 * outside in:
 *
 *     blocks of rows    one block if a is not transposed: its elements are broadcast one by one, at any stride.
 *                       Columns of a transposed a share cache lines, and cause cache conflicts if they are a power of
 *                       two apart: such rows are packed, tile by tile, as many as fit half of an L2 cache
 *     chunks of k       so that a chunk of a panel stays in the L2 cache, and the rows of a tile in L1
 *     panels of b       a few vectors wide, packed so that a tile reads memory sequentially
 *     tiles of rows
 *
 * The grid is the one with the least work for the busiest worker (cost_of_cell): with more columns of cells more
 * workers read the same a, with more rows more workers pack the same b. A sum is always added in the same order, so
 * the bits do not depend on the number of threads. */
#include "device/cpu/gemm.h"

#include "base/parallel.h"
#include "device/cpu/chunks.h"

enum {
    CHUNK = 512,                   /* maximum of k */
    PACKED_ROWS_BYTES = 512 << 10, /* maximum bytes of packed rows of a */
    MIN_WORK = 1 << 14             /* minimum vector multiply-adds per worker */
};

static int64_t vectors_of(const cpu_gemm *g) {
    return divide_up(g->n, g->loops->vector_elements);
}

/* ---- Planning ---- */

/* Each worker must have some microseconds of work, to be worth waking. */
static int64_t workers_of(const cpu_gemm *g) {
    double work = (double)g->batch * (double)g->m * (double)vectors_of(g) * (double)g->k / MIN_WORK;
    return work < (double)g->threads ? 1 + (int64_t)work : g->threads;
}

/* Returns the cost of a cell per k, in vector multiply-adds. Reading and packing a vector of b costs as much as 16
 * of them; reading an element of a, which another core may have written, as much as one. */
static int64_t cost_of_cell(int64_t rows, int64_t vectors) {
    return rows * vectors + 16 * vectors + rows;
}

static void choose_grid(cpu_gemm *g) {
    int64_t min_cost = INT64_MAX, vectors = vectors_of(g), workers = workers_of(g);
    for (int64_t columns = 1; columns <= min_i64(workers, vectors); columns++)
        for (int64_t rows = 1; rows <= min_i64(workers / columns, g->m); rows++) {
            int64_t rounds = divide_up(g->batch * rows * columns, workers);
            int64_t cost = rounds * cost_of_cell(divide_up(g->m, rows), divide_up(vectors, columns));
            if (cost >= min_cost) continue;
            min_cost = cost;
            g->split.grid_rows = rows;
            g->split.grid_columns = columns;
        }
}

/* Return the longest chunk, the longest block of rows, and the widest cell in vectors. */
static int64_t depth_of(const cpu_gemm *g) {
    return divide_up(g->k, g->split.chunks);
}

static int64_t rows_of(const cpu_gemm *g) {
    return divide_up(divide_up(g->m, g->split.grid_rows), g->split.row_blocks);
}

static int64_t width_of(const cpu_gemm *g) {
    return divide_up(vectors_of(g), g->split.grid_columns);
}

void cpu_gemm_plan(cpu_gemm *g) {
    choose_grid(g);
    g->split.chunks = divide_up(g->k, CHUNK);
    g->split.panels = divide_up(width_of(g), g->loops->max_vectors);
    g->split.row_blocks = 1;
    if (g->transpose_a)
        g->split.row_blocks =
            divide_up(rows_of(g) * depth_of(g) * g->loops->element_bytes, PACKED_ROWS_BYTES);
}

static size_t round_to_cache_lines(int64_t bytes) {
    return ((size_t)bytes + 63) / 64 * 64;
}

/* Bytes per worker: a panel of b, then rows of a. */
static size_t panel_bytes(const cpu_gemm *g) {
    return round_to_cache_lines(depth_of(g) * divide_up(width_of(g), g->split.panels) *
                                g->loops->vector_elements * g->loops->element_bytes);
}

static size_t packed_bytes(const cpu_gemm *g) {
    return panel_bytes(g) +
           (g->transpose_a ? round_to_cache_lines(depth_of(g) * rows_of(g) * g->loops->element_bytes) : 0);
}

static int64_t cells_of(const cpu_gemm *g) {
    return g->batch * g->split.grid_rows * g->split.grid_columns;
}

size_t cpu_gemm_workspace(const cpu_gemm *g) {
    return packed_bytes(g) * (size_t)min_i64(cells_of(g), g->threads);
}

/* ---- A cell of the grid ---- */

typedef struct gemm_cell {
    const cpu_gemm *g;
    const cpu_gemm_operands *o;
    int64_t item;            /* index in the batch */
    int64_t row, rows;       /* the current block of rows of c */
    int64_t tiles;           /* in that block */
    int64_t k, depth;        /* the current chunk */
    int64_t column, columns; /* the current panel; columns past the last of c are zeros */
    char *packed_a, *packed_b;
} gemm_cell;

static void pack_panel(const gemm_cell *cell) {
    const cpu_gemm *g = cell->g;
    int64_t k_step = g->transpose_b ? 1 : g->n, column_step = g->transpose_b ? g->k : 1;
    int64_t source = g->b_offsets[cell->item] + cell->k * k_step + cell->column * column_step;
    g->loops->pack(cell->depth, min_i64(cell->columns, g->n - cell->column),
                   (const char *)cell->o->b + source * g->loops->element_bytes, k_step, column_step,
                   cell->packed_b, cell->columns);
}

/* Sets the rows of tile i of the block, and their addresses in a and c. */
static void set_tile_operands(const gemm_cell *cell, int64_t i, cpu_gemm_tile *tile) {
    const cpu_gemm *g = cell->g;
    int64_t first = chunk_start(cell->rows, cell->tiles, i);
    tile->rows = chunk_start(cell->rows, cell->tiles, i + 1) - first;
    if (g->transpose_a) {
        tile->a = cell->packed_a + first * cell->depth * g->loops->element_bytes;
        tile->a_row = 1;
        tile->a_step = tile->rows;
    } else {
        int64_t offset = g->a_offsets[cell->item] + (cell->row + first) * g->k + cell->k;
        tile->a = (const char *)cell->o->a + offset * g->loops->element_bytes;
        tile->a_row = g->k;
        tile->a_step = 1;
    }
    int64_t offset = (cell->item * g->m + cell->row + first) * g->n + cell->column;
    tile->c = (char *)cell->o->c + offset * g->loops->element_bytes;
}

static void pack_rows(const gemm_cell *cell) {
    const cpu_gemm *g = cell->g;
    for (int64_t i = 0; i < cell->tiles; i++) {
        int64_t first = chunk_start(cell->rows, cell->tiles, i),
                rows = chunk_start(cell->rows, cell->tiles, i + 1) - first;
        int64_t source = g->a_offsets[cell->item] + cell->k * g->m + cell->row + first;
        g->loops->pack(cell->depth, rows, (const char *)cell->o->a + source * g->loops->element_bytes, g->m,
                       1, cell->packed_a + first * cell->depth * g->loops->element_bytes, rows);
    }
}

static void multiply_panel(const gemm_cell *cell) {
    static const int64_t no_offset[1] = {0};
    const cpu_gemm *g = cell->g;
    bool is_last_chunk = cell->k + cell->depth == g->k;
    cpu_gemm_tile tile = {.a_blocks = no_offset, .blocks = 1, .depth = cell->depth};
    tile.b = cell->packed_b;
    tile.b_step = cell->columns;
    tile.c_row = g->n;
    tile.columns = min_i64(cell->columns, g->n - cell->column);
    tile.add = cell->k > 0;
    tile.relu = is_last_chunk && cell->o->relu;
    if (is_last_chunk && cell->o->bias)
        tile.bias = (const char *)cell->o->bias + cell->column * g->loops->element_bytes;
    for (int64_t i = 0; i < cell->tiles; i++) {
        set_tile_operands(cell, i, &tile);
        g->loops->tile(&tile);
    }
}

/* Multiplies all chunks of a block of rows with the vectors first … last - 1 of the cell. */
static void multiply_rows(gemm_cell *cell, int64_t first, int64_t last) {
    const cpu_gemm *g = cell->g;
    int64_t panels = min_i64(g->split.panels, last - first), widest = divide_up(last - first, panels);
    cell->tiles = divide_up(cell->rows, g->loops->max_rows[widest]);
    for (int64_t chunk = 0; chunk < g->split.chunks; chunk++) {
        cell->k = chunk_start(g->k, g->split.chunks, chunk);
        cell->depth = chunk_start(g->k, g->split.chunks, chunk + 1) - cell->k;
        if (g->transpose_a) pack_rows(cell);
        for (int64_t i = 0; i < panels; i++) {
            int64_t from = first + chunk_start(last - first, panels, i);
            cell->column = from * g->loops->vector_elements;
            cell->columns =
                (first + chunk_start(last - first, panels, i + 1) - from) * g->loops->vector_elements;
            pack_panel(cell);
            multiply_panel(cell);
        }
    }
}

/* Work item: index = (item of the batch * rows of the grid + row) * columns of the grid + column. */
typedef struct gemm_call {
    const cpu_gemm *g;
    const cpu_gemm_operands *o;
} gemm_call;

static void multiply_cell(gemm_cell *cell, int64_t grid_row, int64_t grid_column) {
    const cpu_gemm *g = cell->g;
    const cpu_gemm_split *split = &g->split;
    int64_t from = chunk_start(g->m, split->grid_rows, grid_row), vectors = vectors_of(g);
    int64_t rows = chunk_start(g->m, split->grid_rows, grid_row + 1) - from;
    int64_t blocks = min_i64(split->row_blocks, rows);
    for (int64_t i = 0; i < blocks; i++) {
        int64_t first = chunk_start(rows, blocks, i);
        cell->row = from + first;
        cell->rows = chunk_start(rows, blocks, i + 1) - first;
        multiply_rows(cell, chunk_start(vectors, split->grid_columns, grid_column),
                      chunk_start(vectors, split->grid_columns, grid_column + 1));
    }
}

static void multiply_cells(void *context, int64_t first, int64_t last, int worker) {
    const gemm_call *call = context;
    const cpu_gemm *g = call->g;
    int64_t rows = g->split.grid_rows, columns = g->split.grid_columns;
    gemm_cell cell = {.g = g, .o = call->o};
    cell.packed_b = (char *)call->o->workspace + (size_t)worker * packed_bytes(g);
    cell.packed_a = cell.packed_b + panel_bytes(g);
    for (int64_t work_item = first; work_item < last; work_item++) {
        cell.item = work_item / (rows * columns);
        multiply_cell(&cell, work_item / columns % rows, work_item % columns);
    }
}

void cpu_gemm_run(const cpu_gemm *g, const cpu_gemm_operands *operands) {
    gemm_call call = {g, operands};
    tu__parallel_for(cells_of(g), divide_up(cells_of(g), workers_of(g)), multiply_cells, &call);
}
