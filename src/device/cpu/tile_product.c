/* Convolutions and matrix products with AMX tiles: division of the work.
 *
 * A row of a tile of a is 64 bytes at a pixel of the result, and rows must be equally spaced. That is so
 *
 *     directly      for 1x1 filters with stride 1 and a multiple of 32 channels: x is the matrix a
 *     gathered      if the pixels under the filter are copied next to each other, for each pixel of the result: best for few
 *                   channels, and for 1x1 filters with strides. k is filled up once, not for every tap
 *     in planes     if x is copied with its padding into one plane per phase of the strides: the pixels whose row and column
 *                   have the same remainder. Then, for every tap, the next pixel of the result reads the next pixel of a
 *                   plane. Rows of the result are given the pitch of the planes, so that tiles continue from row to row; pixels
 *                   between the rows are computed and dropped. An image is copied once, not for every tap
 *
 * Channels (or gathered rows) are filled up with zeros to a multiple of 32, because the numbers that follow in memory might
 * be infinite. The choice depends on the shapes of one sample.
 *
 * A unit of work is some hundred pixels, whose copy stays in the L2 cache: a band of rows of an image, several small images,
 * or any pixels. Column chunks divide the panels of the weights, 32 columns each. The loops within a unit, from the outside in:
 *
 *     groups of panels    so many that their weights stay in the L2 cache
 *     blocks of pixels    a block stays in the L1 cache
 *     panels              so that a pixel's result is written from beginning to end, or at least long parts of it
 *
 * Sums of a block are rounded and stored with the epilogue while they are in the L1 cache.
 *
 * Bits. A sum is over the taps in their order, in each over chunks of channels, whatever unit or worker computes it. */
#include "device/cpu/tile_product.h"

#include "base/parallel.h"
#include "device/cpu/tile_product_plan.h"

typedef struct task {
    const cpu_tile_product *plan;
    const cpu_direct_operands *operands;
} task;

typedef struct worker_memory {
    int64_t *copied; /* the unit that was copied; -1: none */
    char *source;
} worker_memory;

static worker_memory memory_of(const task *t, int worker) {
    char *memory = (char *)t->operands->workspace + worker * t->plan->worker_bytes;
    return (worker_memory){(int64_t *)(void *)memory, memory + CPU_TILE_HEADER};
}

/* ---- Units ---- */

static cpu_tile_unit unit_at(const cpu_tile_product *p, int64_t index) {
    const cpu_convolution *c = &p->shape;
    if (p->source == CPU_TILE_PLANES) {
        const int64_t image = index / p->bands * p->unit_images, row = index % p->bands * p->band_rows;
        return (cpu_tile_unit){.first_image = image,
                               .images = min_i64(p->unit_images, c->images - image),
                               .first_row = row,
                               .rows = min_i64(p->band_rows, c->y_size[0] - row)};
    }
    const int64_t first = index * p->unit_pixels;
    const int64_t all = c->images * c->y_size[0] * c->y_size[1];
    return (cpu_tile_unit){.first_pixel = first, .pixels = min_i64(p->unit_pixels, all - first), .images = 1};
}

/* Copies what the unit reads, unless this worker has done so. */
static void copy_source(const task *t, int64_t index, const cpu_tile_unit *unit, worker_memory memory) {
    const cpu_tile_product *p = t->plan;
    if (p->source == CPU_TILE_DIRECT || *memory.copied == index) return;
    if (p->source == CPU_TILE_PLANES)
        cpu_tile_copy_planes(p, t->operands->first, unit, memory.source);
    else
        cpu_tile_gather(p, t->operands->first, unit, memory.source);
    *memory.copied = index;
}

/* A range of pixels of the result, `pitch` to a row of which `width` are used: those of an image of a unit, or all. */
typedef struct part {
    const char *a;
    int64_t pixels, pitch, width;
    int64_t first; /* the index in y of pixel 0 */
} part;

static part part_at(const task *t, const cpu_tile_unit *unit, int64_t image, const char *source) {
    const cpu_tile_product *p = t->plan;
    const int64_t *y = p->shape.y_size;
    if (p->source == CPU_TILE_PLANES)
        return (part){source + image * p->image_bytes, (unit->rows - 1) * p->pitch + y[1], p->pitch, y[1],
                      ((unit->first_image + image) * y[0] + unit->first_row) * y[1]};
    const char *direct = (const char *)t->operands->first + unit->first_pixel * p->pixel_bytes;
    return (part){p->source == CPU_TILE_DIRECT ? direct : source, unit->pixels, unit->pixels, unit->pixels,
                  unit->first_pixel};
}

/* ---- Blocks ---- */

/* Rounds and stores the sums of pixels from `pixel` to `end` - 1, except those between the rows of the result. */
static void store_rows(const task *t, const part *at, int64_t panel, int64_t pixel, int64_t end,
                       const float *sums) {
    const cpu_direct_operands *o = t->operands;
    const int64_t channels = t->plan->shape.y_channels, column = panel * CPU_TILE_PANEL;
    const int64_t columns = min_i64(CPU_TILE_PANEL, channels - column);
    const uint16_t *bias = o->bias ? (const uint16_t *)o->bias + column : NULL;
    while (pixel < end) {
        const int64_t row = pixel / at->pitch, x = pixel - row * at->pitch;
        const int64_t next = min_i64(end, (row + 1) * at->pitch);
        const int64_t count = min_i64(next - pixel, at->width - x);
        const int64_t to = (at->first + row * at->width + x) * channels + column;
        if (count > 0)
            t->plan->round->sums_to_bf16(count, columns, sums, CPU_TILE_PANEL, bias,
                                         o->residual ? (const uint16_t *)o->residual + to : NULL, o->relu,
                                         (uint16_t *)o->out + to, channels);
        sums += (next - pixel) * CPU_TILE_PANEL;
        pixel = next;
    }
}

/* Returns the rows of a tile: fewer than 16 only if x itself has fewer. */
static int64_t tile_rows(const cpu_tile_product *p) {
    const int64_t pixels = p->shape.images * p->shape.y_size[0] * p->shape.y_size[1];
    return p->source == CPU_TILE_DIRECT ? min_i64(CPU_TILE_ROWS, pixels) : CPU_TILE_ROWS;
}

/* Returns by how many rows a tile begins before its first pixel, in order not to read past the end of x. */
static int64_t rows_before(const cpu_tile_product *p, const part *at, int64_t pixel) {
    return p->source == CPU_TILE_DIRECT ? max_i64(pixel + tile_rows(p) - at->pixels, 0) : 0;
}

/* Prefetches the result and residual of a block's pixels in panel `panel`: memory answers while the panel before it is
 * computed. */
static void prefetch(const task *t, const part *at, int64_t panel, int64_t pixel) {
    const int64_t channels = t->plan->shape.y_channels;
    if (panel >= t->plan->panels || at->pitch != at->width) return;
    int64_t to = (at->first + pixel) * channels + panel * CPU_TILE_PANEL;
    for (int64_t i = pixel; i < min_i64(pixel + CPU_TILE_BLOCK, at->pixels); i++, to += channels) {
        __builtin_prefetch((uint16_t *)t->operands->out + to, 1);
        if (t->operands->residual) __builtin_prefetch((const uint16_t *)t->operands->residual + to, 0);
    }
}

/* Computes the pixels from `pixel` on, up to two tiles. */
static void compute_block(const task *t, const part *at, int64_t panel, int64_t pixel) {
    const cpu_tile_product *p = t->plan;
    _Alignas(64) float sums[CPU_TILE_BLOCK * CPU_TILE_PANEL];
    const int64_t columns = min_i64(CPU_TILE_PANEL, p->shape.y_channels - panel * CPU_TILE_PANEL);
    const int64_t second = pixel + CPU_TILE_ROWS, before = rows_before(p, at, pixel);
    const bool two_tiles = second < at->pixels;
    const int64_t second_before = two_tiles ? rows_before(p, at, second) : 0;
    const char *weights = t->operands->second;
    const cpu_tile_block b = {.a = at->a + (pixel - before) * p->pixel_bytes,
                              .a_row = p->pixel_bytes,
                              .a_second = (CPU_TILE_ROWS - second_before + before) * p->pixel_bytes,
                              .offsets = p->offsets,
                              .chunks = p->chunks,
                              .b = weights + panel * p->chunks * CPU_TILES * CPU_TILE_BYTES,
                              .row_tiles = two_tiles ? 2 : 1,
                              .column_tiles = columns > CPU_TILE_COLUMNS ? 2 : 1,
                              .c = sums};
    p->tiles->block(&b);
    store_rows(t, at, panel, pixel, min_i64(second, at->pixels), sums + before * CPU_TILE_PANEL);
    if (two_tiles)
        store_rows(t, at, panel, second, min_i64(second + CPU_TILE_ROWS, at->pixels),
                   sums + (CPU_TILE_ROWS + second_before) * CPU_TILE_PANEL);
}

/* Computes panels first_panel … end_panel - 1 of a unit. */
static void compute_unit(const task *t, const cpu_tile_unit *unit, int64_t first_panel, int64_t end_panel,
                         const char *source) {
    const int64_t group = t->plan->panel_group;
    for (int64_t first = first_panel; first < end_panel; first += group)
        for (int64_t image = 0; image < unit->images; image++) {
            const part at = part_at(t, unit, image, source);
            for (int64_t pixel = 0; pixel < at.pixels; pixel += CPU_TILE_BLOCK)
                for (int64_t panel = first; panel < min_i64(first + group, end_panel); panel++) {
                    prefetch(t, &at, panel + 1, pixel);
                    compute_block(t, &at, panel, pixel);
                }
        }
}

/* Work item: index = unit * column_chunks + column chunk. */
static void compute_items(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    const cpu_tile_product *p = t->plan;
    const worker_memory memory = memory_of(t, worker);
    p->tiles->configure((int)tile_rows(p));
    for (int64_t i = first; i < last; i++) {
        const int64_t index = i / p->column_chunks, chunk = i % p->column_chunks;
        const cpu_tile_unit unit = unit_at(p, index);
        copy_source(t, index, &unit, memory);
        compute_unit(t, &unit, chunk_start(p->panels, p->column_chunks, chunk),
                     chunk_start(p->panels, p->column_chunks, chunk + 1), memory.source);
    }
    p->tiles->release();
}

void cpu_tile_product_run(const cpu_tile_product *plan, const cpu_direct_operands *operands) {
    task t = {plan, operands};
    const int64_t items = plan->units * plan->column_chunks;
    for (int i = 0; i < plan->threads; i++) *memory_of(&t, i).copied = -1;
    const bool uses_all = plan->workers == plan->threads;
    tu__parallel_for_stealing(items, uses_all ? 1 : divide_up(items, plan->workers), compute_items, &t);
}
