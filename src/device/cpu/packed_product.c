/* Products with packed weights, built on the tile of isa/loops_gemm.h.
 *
 * c is divided into work items: blocks of rows, and of columns if there are few rows. The loops within an item, from
 * the outside in:
 *
 *     chunks of k       so that the part of a panel in use stays in the L2 cache, and the rows of a tile in L1
 *     panels of b       a tile reads them sequentially
 *     tiles of rows
 *
 * One row (a batch of one) is the product of a vector and a matrix, which is as fast as b can be read: a tile reads
 * each panel once, as a sequential stream.
 *
 * Convolutions. The rows of a chunk are gathered into the worker's memory, where they stay in the L2 cache: one copy
 * of a number for every `columns` multiply-adds with it. So pixels of several rows of an image, and of several images,
 * fill the tiles, however few pixels a row has.
 *
 * bf16. An element of a tile is a pair of numbers. The sums of a panel are f32, in the worker's memory, and are rounded
 * from there; k is not divided into chunks.
 *
 * Bits. Each element of c is a sum over one chunk after the other, in each from the first k to the last, whichever
 * tile, item or worker computes it. The chunks depend only on the depth. So results depend neither on the number of
 * rows nor on that of threads. */
#include "device/cpu/packed_product.h"

#include <string.h>

#include "base/parallel.h"
#include "device/cpu/chunks.h"
#include "device/cpu/isa/kernels.h"
#include "device/cpu/packed_panels.h"

enum {
    CHUNK = 512,          /* maximum of k */
    BLOCK_ROWS = 96,      /* of a work item: with CHUNK, 192 KB of a */
    LEAST_ROWS = 12,      /* of a work item, if there are as many: b is read once for all */
    ITEMS_PER_WORKER = 4, /* at most, for work stealing */
    L2_BYTES = 24,        /* that a core loads from its L2 cache per cycle */
    SHARED_BYTES = 8,     /* the same from a cache or memory that it shares with others */
    LATENCY = 4,          /* of a multiply-add, in cycles */
    MIN_WORK = 1 << 13,   /* minimum vector multiply-adds per worker */
};

/* ---- Planning ---- */

static const double CLOSE = 1.02;

static bool is_bf16(const cpu_product *p) {
    return p->loops->pair;
}

int64_t cpu_product_block_rows(const cpu_product *p) {
    int64_t bytes = divide_up(p->depth, cpu_product_chunks(p)) * p->loops->operand_bytes;
    return max_i64(min_i64(BLOCK_ROWS, BLOCK_ROWS * CHUNK * (int64_t)sizeof(float) / max_i64(bytes, 1)),
                   LEAST_ROWS);
}

/* Estimates the cycles of a work item for each k of a chunk, on a processor with two multiply-adds and two loads per
 * cycle: of a tile, the largest of those of its multiply-adds, its loads, their latency and the bytes of b from the L2 cache. */
static double tile_cycles(double rows, double vectors, int vector_bytes) {
    double cycles = rows * vectors / 2, loads = (rows + vectors) / 2,
           bytes = vectors * vector_bytes / L2_BYTES;
    cycles = cycles > loads ? cycles : loads;
    cycles = cycles > bytes ? cycles : bytes;
    return cycles > LATENCY ? cycles : LATENCY;
}

/* `is_part`: the item has a part of a panel. */
static double item_cycles(const cpu_product *p, int64_t rows, int64_t vectors, bool is_part) {
    const cpu_gemm_loops *loops = p->loops;
    int vector_bytes = loops->vector_elements * loops->element_bytes;
    double cycles = 0;
    for (int64_t rest = vectors; rest > 0; rest -= loops->max_vectors) {
        int64_t width = min_i64(rest, loops->max_vectors), tiles = divide_up(rows, loops->max_rows[width]);
        cycles += (double)tiles * tile_cycles((double)rows / (double)tiles, (double)width, vector_bytes);
    }
    /* Operands come from memory that threads share, parts of panels with the lines next to them; gathered rows are also
     * written and read again. */
    double bytes = (double)(vectors * vector_bytes * (is_part ? 2 : 1)) +
                   (double)(rows * loops->element_bytes * (p->gathers ? 3 : 1));
    return cycles + bytes / SHARED_BYTES;
}

/* Estimates the time of the worker with most items, if c is divided into so many blocks. */
static double division_cycles(const cpu_product *p, int64_t row_blocks, int64_t column_blocks) {
    int64_t vectors = cpu_panel_vectors(p->loops, p->columns);
    return item_cycles(p, divide_up(p->rows, row_blocks), divide_up(vectors, column_blocks),
                       column_blocks > cpu_panel_count(p->loops, p->columns)) *
           (double)divide_up(row_blocks * column_blocks, p->workers);
}

/* Divides a few rows. Each item reads its part of a and of b, so blocks should be neither narrow nor flat, and workers
 * should have equally many items. Takes the division that has most items, for work stealing, among those whose estimated
 * time is close to the least. Panels are divided evenly. */
static void divide_few_rows(cpu_product *p) {
    const int64_t vectors = cpu_panel_vectors(p->loops, p->columns),
                  panels = cpu_panel_count(p->loops, p->columns), most = ITEMS_PER_WORKER * p->workers,
                  least_rows = divide_up(p->rows, 2 * cpu_product_block_rows(p));
    double least = 0;
    p->row_blocks = p->column_blocks = 1;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t rows = least_rows; rows <= min_i64(p->rows, most); rows++)
            for (int64_t columns = 1; columns <= min_i64(vectors, most / rows); columns++) {
                if (panels % columns != 0 && columns % panels != 0) continue;
                double cycles = division_cycles(p, rows, columns);
                if (pass == 0) least = least == 0 || cycles < least ? cycles : least;
                if (pass == 0 || cycles > CLOSE * least || rows * columns < p->row_blocks * p->column_blocks)
                    continue;
                p->row_blocks = rows;
                p->column_blocks = columns;
            }
}

void cpu_product_plan(cpu_product *p) {
    int64_t vectors = cpu_panel_vectors(p->loops, p->columns);
    double work = (double)p->rows * (double)vectors * (double)p->depth / MIN_WORK;
    p->workers = work < p->threads ? 1 + (int64_t)work : p->threads;
    p->row_blocks = divide_up(p->rows, cpu_product_block_rows(p));
    p->column_blocks = 1;
    if (p->workers > 1 && p->row_blocks < ITEMS_PER_WORKER * p->workers)
        divide_few_rows(p);
    else
        p->row_blocks = min_i64(p->rows, round_up(p->row_blocks, p->workers));
}

int64_t cpu_product_chunks(const cpu_product *p) {
    return is_bf16(p) ? 1 : divide_up(p->depth, CHUNK);
}

/* Returns the elements of a row of `depth` numbers: numbers, or pairs. */
static int64_t elements_of(const cpu_product *p, int64_t depth) {
    return cpu_panel_depth(p->loops, depth);
}

/* The memory of a worker: gathered rows, and the sums of a panel. */
static size_t gathered_bytes(const cpu_product *p) {
    if (!p->gathers) return 0;
    int64_t rows = divide_up(p->rows, p->row_blocks), depth = divide_up(p->depth, cpu_product_chunks(p));
    return (size_t)round_up(rows * elements_of(p, depth) * p->loops->element_bytes, 64);
}

static size_t worker_bytes(const cpu_product *p) {
    int64_t sums = divide_up(p->rows, p->row_blocks) * p->loops->max_vectors * p->loops->vector_elements;
    return gathered_bytes(p) + (is_bf16(p) ? (size_t)round_up(sums * (int64_t)sizeof(float), 64) : 0);
}

size_t cpu_product_workspace(const cpu_product *p) {
    return worker_bytes(p) * (size_t)p->threads;
}

/* ---- Gathering ---- */

typedef struct gathering { /* a pixel of y */
    const cpu_convolution *c;
    const char *image;
    int64_t top, left; /* of the filter in the image */
    int64_t pixel_bytes;
} gathering;

/* Copies the pixels under the taps from … to - 1 of row `row` of the filter. Pixels under adjacent taps are adjacent,
 * unless the filter is dilated. */
static char *gather_taps(const gathering *g, int64_t row, int64_t from, int64_t to, char *out) {
    const tu__windows *w = &g->c->windows;
    int64_t y = g->top + row * w->dilation[0], width = g->c->x_size[1], step = w->dilation[1];
    const char *line = g->image + y * width * g->pixel_bytes;
    bool is_inside = y >= 0 && y < g->c->x_size[0];
    for (int64_t tap = from; tap < to;) {
        int64_t x = g->left + tap * step, run = 1;
        bool is_pixel = is_inside && x >= 0 && x < width;
        if (is_pixel && step == 1) run = min_i64(to - tap, width - x);
        if (is_pixel)
            memcpy(out, line + x * g->pixel_bytes, (size_t)(run * g->pixel_bytes));
        else
            memset(out, 0, (size_t)g->pixel_bytes);
        out += run * g->pixel_bytes;
        tap += run;
    }
    return out;
}

/* Copies the numbers `from` … `to` - 1 of the pixel under tap `tap`. */
static char *gather_part(const gathering *g, int64_t tap, int64_t from, int64_t to, int64_t bytes,
                         char *out) {
    const tu__windows *w = &g->c->windows;
    int64_t y = g->top + tap / w->size[1] * w->dilation[0], x = g->left + tap % w->size[1] * w->dilation[1];
    size_t size = (size_t)((to - from) * bytes);
    if (y < 0 || y >= g->c->x_size[0] || x < 0 || x >= g->c->x_size[1])
        memset(out, 0, size);
    else
        memcpy(out, g->image + (y * g->c->x_size[1] + x) * g->pixel_bytes + from * bytes, size);
    return out + size;
}

typedef struct
    gathered_part { /* k from … to - 1 of a row: whole taps, and parts of taps before and after them */
    int64_t first_tap, end_tap;
    int64_t tap_before, from, to; /* from == to: none */
    int64_t rest;                 /* of tap end_tap */
} gathered_part;

static gathered_part part_of(const cpu_product *p, int64_t from, int64_t depth) {
    int64_t channels = p->image.x_channels, to = from + depth;
    gathered_part part = {
        .first_tap = divide_up(from, channels), .end_tap = to / channels, .tap_before = from / channels};
    part.from = from % channels;
    part.to = part.from == 0 ? 0 : min_i64(channels, part.from + depth);
    part.rest = part.end_tap < part.first_tap ? 0 : to % channels;
    return part;
}

/* Copies the part of a row; numbers have `bytes`. */
static char *gather_row(const gathering *g, const gathered_part *part, int64_t bytes, char *out) {
    int64_t columns = g->c->windows.size[1];
    if (part->to > 0) out = gather_part(g, part->tap_before, part->from, part->to, bytes, out);
    for (int64_t tap = part->first_tap; tap < part->end_tap;) {
        int64_t row = tap / columns, end = min_i64(part->end_tap, (row + 1) * columns);
        out = gather_taps(g, row, tap - row * columns, end - row * columns, out);
        tap = end;
    }
    return part->rest > 0 ? gather_part(g, part->end_tap, 0, part->rest, bytes, out) : out;
}

static void gather(const cpu_product *p, const char *images, int64_t row, int64_t rows, int64_t from,
                   int64_t depth, char *to) {
    const cpu_convolution *c = &p->image;
    int64_t pixels = c->y_size[0] * c->y_size[1], bytes = p->loops->operand_bytes;
    int64_t row_bytes = elements_of(p, depth) * p->loops->element_bytes;
    gathering g = {.c = c, .pixel_bytes = c->x_channels * bytes};
    gathered_part part = part_of(p, from, depth);
    for (int64_t i = row; i < row + rows; i++, to += row_bytes) {
        int64_t pixel = i % pixels;
        g.image = images + i / pixels * c->x_size[0] * c->x_size[1] * g.pixel_bytes;
        g.top = pixel / c->y_size[1] * c->windows.stride[0] - c->windows.pad[0];
        g.left = pixel % c->y_size[1] * c->windows.stride[1] - c->windows.pad[2];
        gather_row(&g, &part, bytes, to);
        memset(to + depth * bytes, 0, (size_t)(row_bytes - depth * bytes)); /* the end of an odd pair */
    }
}

/* ---- Multiplying ---- */

typedef struct product_call {
    const cpu_product *p;
    const cpu_product_operands *o;
} product_call;

typedef struct product_item { /* a chunk of k of a work item */
    const cpu_product *p;
    const cpu_product_operands *o;
    int64_t row, rows;
    int64_t vector, end_vector; /* its vectors of columns */
    int64_t k, depth;
    const char *a; /* its rows, from k on */
    int64_t a_row;
    float *sums; /* bf16: of a panel */
} product_item;

/* Lets the tile write the sums of columns from `first` on. After the last chunk the epilogue is applied. */
static void set_result(const product_item *item, int64_t first, cpu_gemm_tile *tile) {
    const cpu_product *p = item->p;
    const cpu_product_operands *o = item->o;
    int64_t bytes = p->loops->element_bytes, c = (item->row * p->columns + first) * bytes;
    tile->c = (char *)o->c + c;
    tile->c_row = p->columns;
    tile->add = item->k > 0;
    if (item->k + item->depth < p->depth) return;
    tile->relu = o->relu;
    if (o->bias) tile->bias = (const char *)o->bias + first * bytes;
    if (o->residual) tile->residual = (const char *)o->residual + c;
}

/* Rounds the sums of columns of a panel, and applies the epilogue. */
static void round_sums(const product_item *item, int64_t first, int64_t columns) {
    const cpu_product *p = item->p;
    const cpu_product_operands *o = item->o;
    int64_t c = item->row * p->columns + first;
    p->round->sums_to_bf16(
        item->rows, columns, item->sums, columns, o->bias ? (const uint16_t *)o->bias + first : NULL,
        o->residual ? (const uint16_t *)o->residual + c : NULL, o->relu, (uint16_t *)o->c + c, p->columns);
}

typedef struct panel_part { /* the columns of an item that are in one panel */
    int64_t first, columns;
    const char *b; /* their row k */
    int64_t b_step;
} panel_part;

/* Returns the part in panel i; without columns if the item has none there. */
static panel_part part_in_panel(const product_item *item, int64_t k, int64_t i) {
    const cpu_product *p = item->p;
    const int64_t width = p->loops->vector_elements;
    if (i >= cpu_panel_count(p->loops, p->columns)) return (panel_part){0};
    cpu_panel panel = cpu_panel_at(p->loops, p->columns, i);
    int64_t first = max_i64(panel.first, item->vector * width);
    int64_t end = min_i64(min_i64(panel.first + panel.width, item->end_vector * width), p->columns);
    if (first >= end) return (panel_part){0};
    int64_t b = elements_of(p, p->depth) * panel.first + k * panel.width + first - panel.first;
    return (panel_part){first, end - first, (const char *)item->o->b + b * p->loops->element_bytes,
                        panel.width};
}

static void multiply_part(const product_item *item, const panel_part *part, const char *next) {
    static const int64_t no_offset[1] = {0};
    cpu_gemm_tile tile = {.a = item->a,
                          .a_row = item->a_row,
                          .a_step = 1,
                          .a_blocks = no_offset,
                          .b = part->b,
                          .b_step = part->b_step,
                          .blocks = 1,
                          .depth = elements_of(item->p, item->depth),
                          .c = item->sums,
                          .c_row = part->columns,
                          .columns = part->columns};
    bool is_whole = part->columns > part->b_step - item->p->loops->vector_elements;
    if (is_whole) tile.next = next; /* otherwise its lines do not follow each other */
    if (!is_bf16(item->p)) set_result(item, part->first, &tile);
    cpu_multiply_rows(item->p->loops, tile, item->rows);
    if (is_bf16(item->p)) round_sums(item, part->first, part->columns);
}

static void multiply_chunk(const product_item *item) {
    const cpu_product *p = item->p;
    int64_t i = 0;
    panel_part part = part_in_panel(item, item->k, i), first = {0};
    while (!part.columns) part = part_in_panel(item, item->k, ++i);
    first = part_in_panel(item, item->k + item->depth, i);
    while (part.columns) {
        panel_part next = part_in_panel(item, item->k, ++i);
        bool is_last = item->k + item->depth >= p->depth;
        multiply_part(item, &part, next.columns ? next.b : is_last ? NULL : first.b);
        part = next;
    }
}

static void multiply_item(product_item *item, char *memory) {
    const cpu_product *p = item->p;
    int64_t bytes = p->loops->operand_bytes, chunks = cpu_product_chunks(p);
    item->sums = (void *)(memory + gathered_bytes(p));
    for (int64_t i = 0; i < chunks; i++) {
        item->k = chunk_start(p->depth, chunks, i);
        item->depth = chunk_start(p->depth, chunks, i + 1) - item->k;
        item->a_row = elements_of(p, p->gathers ? item->depth : p->depth);
        item->a = p->gathers ? memory : (const char *)item->o->a + (item->row * p->depth + item->k) * bytes;
        if (p->gathers) gather(p, item->o->a, item->row, item->rows, item->k, item->depth, memory);
        multiply_chunk(item);
    }
}

/* Work item: index = row block * column_blocks + column block. */
static void multiply_items(void *context, int64_t first, int64_t last, int worker) {
    const product_call *call = context;
    const cpu_product *p = call->p;
    int64_t vectors = cpu_panel_vectors(p->loops, p->columns);
    char *memory = (char *)call->o->workspace + (size_t)worker * worker_bytes(p);
    for (int64_t i = first; i < last; i++) {
        int64_t row_block = i / p->column_blocks, column_block = i % p->column_blocks;
        product_item item = {.p = p, .o = call->o};
        item.row = chunk_start(p->rows, p->row_blocks, row_block);
        item.rows = chunk_start(p->rows, p->row_blocks, row_block + 1) - item.row;
        item.vector = chunk_start(vectors, p->column_blocks, column_block);
        item.end_vector = chunk_start(vectors, p->column_blocks, column_block + 1);
        multiply_item(&item, memory);
    }
}

void cpu_product_run(const cpu_product *p, const cpu_product_operands *operands) {
    product_call call = {p, operands};
    int64_t items = p->row_blocks * p->column_blocks;
    tu__parallel_for_stealing(items, divide_up(items, p->workers * ITEMS_PER_WORKER), multiply_items, &call);
}
