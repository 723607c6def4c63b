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
    ITEMS_PER_WORKER = 4, /* for work stealing */
    MIN_WORK = 1 << 13,   /* minimum vector multiply-adds per worker */
};

/* ---- Planning ---- */

static bool is_bf16(const cpu_product *p) {
    return p->loops->pair;
}

int64_t cpu_product_block_rows(const cpu_product *p) {
    int64_t bytes = divide_up(p->depth, cpu_product_chunks(p)) * p->loops->operand_bytes;
    return max_i64(min_i64(BLOCK_ROWS, BLOCK_ROWS * CHUNK * (int64_t)sizeof(float) / max_i64(bytes, 1)),
                   LEAST_ROWS);
}

void cpu_product_plan(cpu_product *p) {
    int64_t vectors = cpu_panel_vectors(p->loops, p->columns);
    double work = (double)p->rows * (double)vectors * (double)p->depth / MIN_WORK;
    p->workers = work < p->threads ? 1 + (int64_t)work : p->threads;
    p->row_blocks = divide_up(p->rows, cpu_product_block_rows(p));
    p->column_blocks = 1;
    if (p->workers == 1) return;
    bool is_long = work > (double)(ITEMS_PER_WORKER * p->workers);
    int64_t items = is_long ? ITEMS_PER_WORKER * p->workers : p->workers;
    if (p->row_blocks >= items) return;
    p->column_blocks = min_i64(divide_up(items, p->row_blocks), cpu_panel_count(p->loops, p->columns));
    if (p->row_blocks * p->column_blocks >= items) return;
    int64_t least_rows = p->loops->max_rows[p->loops->max_vectors];
    p->row_blocks = max_i64(p->row_blocks, min_i64(divide_up(items, p->column_blocks), p->rows / least_rows));
    if (p->row_blocks * p->column_blocks < items)
        p->column_blocks = min_i64(divide_up(items, p->row_blocks), vectors);
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

/* Multiplies columns first … first + columns - 1, which are in one panel: `b` is their row k. */
static void multiply_columns(const product_item *item, int64_t first, int64_t columns, const char *b,
                             int64_t b_step) {
    static const int64_t no_offset[1] = {0};
    cpu_gemm_tile tile = {.a = item->a,
                          .a_row = item->a_row,
                          .a_step = 1,
                          .a_blocks = no_offset,
                          .b = b,
                          .b_step = b_step,
                          .blocks = 1,
                          .depth = elements_of(item->p, item->depth),
                          .c = item->sums,
                          .c_row = columns,
                          .columns = columns};
    if (!is_bf16(item->p)) set_result(item, first, &tile);
    cpu_multiply_rows(item->p->loops, tile, item->rows);
    if (is_bf16(item->p)) round_sums(item, first, columns);
}

static void multiply_chunk(const product_item *item) {
    const cpu_product *p = item->p;
    int64_t bytes = p->loops->element_bytes, width = p->loops->vector_elements;
    for (int64_t i = 0; i < cpu_panel_count(p->loops, p->columns); i++) {
        cpu_panel panel = cpu_panel_at(p->loops, p->columns, i);
        int64_t first = max_i64(panel.first, item->vector * width);
        int64_t end = min_i64(min_i64(panel.first + panel.width, item->end_vector * width), p->columns);
        if (first >= end) continue;
        int64_t b = elements_of(p, p->depth) * panel.first + item->k * panel.width + first - panel.first;
        multiply_columns(item, first, end - first, (const char *)item->o->b + b * bytes, panel.width);
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
