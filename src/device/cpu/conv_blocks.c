/* Convolution in bf16 by blocks: planning, and y and x.
 *
 * The image is copied with its padding around it. In that copy the values under one row of a filter, kw * channels of
 * them, lie beside each other, and the same is true one pixel further on: the copy is the left matrix of a product, its
 * rows overlapping. When rows of the result are thought as long as rows of the copy, pixel m + 1 is always one pixel
 * after pixel m, also from the end of a row to the next. Tiles are cut from that long row, or from each row by itself,
 * whichever takes less: of 12 pixels by themselves, of 8 with the pixels between rows, computed for nothing.
 *
 *     y       k is a row of the filter after the other, each kw * channels in chunks of 32, filled up with zeros
 *     x       the same over y, with the filter turned around
 *     filter  conv_blocks_filter.c
 *
 * With so few channels that a row of the filter fills half a chunk, the image is written as windows instead: for each
 * pixel what lies under two rows of the filter. Chunks are then full, and lie in lines of the cache.
 *
 * k filled up with zeros meets whatever lies there, the pixels that follow or the next row: where one of those is
 * infinite or no number, 0 times it is no number either, and a result near it (within 32 values of a row, in its own
 * image) becomes NaN that the definition would leave alone. A network with such a value is lost anyway.
 *
 * The filter is packed once for all images. Sums are rounded to bf16 once; then come bias and rectifier, each rounded,
 * as if they were operations of their own. */
#include <string.h>

#include "device/cpu/conv_blocks_plan.h"
#include "device/cpu/isa/loops_blocks.h"

enum {
    SLICE_BYTES = 192 << 10, /* of a slice's source: it stays in the second-level cache */
    MAX_WORKSPACE = 256 << 20,
    MAX_SIZE = 32 /* of a filter */
};

/* ---- Planning ---- */

static bool fits(const cpu_convolution *c) {
    const tu__windows *w = &c->windows;
    for (int i = 0; i < 2; i++)
        if (w->stride[i] != 1 || w->dilation[i] != 1 || w->size[i] > MAX_SIZE || w->pad[2 * i] > 1024 ||
            w->pad[2 * i + 1] > 1024 || c->x_size[i] > 1 << 16 || c->y_size[i] > 1 << 16)
            return false;
    return c->groups == 1 && c->x_channels <= 1 << 14 && c->y_channels <= 1 << 14;
}

/* Bands as even as can be, each small enough for the cache. */
static void plan_bands(cpu_conv_blocks *d, int64_t channels) {
    if (d->widened) channels = CPU_BLOCK_DEPTH;
    int64_t row_bytes = d->pitch * channels * (int64_t)sizeof(uint16_t);
    int64_t most = larger(1, SLICE_BYTES / row_bytes - (d->size[0] - 1));
    d->bands = larger(1, (d->out_size[0] + most - 1) / most);
    d->band_rows = larger(1, (d->out_size[0] + d->bands - 1) / d->bands);
    d->bands = (d->out_size[0] + d->band_rows - 1) / d->band_rows;
}

void cpu_conv_blocks_plan_slices(cpu_conv_blocks *d, const int64_t source_size[2], int64_t channels,
                                 const int64_t before[2], const int64_t out_size[2], int64_t whole) {
    memcpy(d->out_size, out_size, sizeof d->out_size);
    d->pitch = out_size[1] + d->size[1] - 1;
    plan_bands(d, channels);
    d->flat = round_up((d->band_rows - 1) * d->pitch + out_size[1], whole);
    d->source = (padded){.channels = channels};
    for (int i = 0; i < 2; i++) {
        d->source.size[i] = source_size[i];
        d->source.before[i] = before[i];
    }
    d->source.full[0] = out_size[0] + d->size[0] - 1;
    d->source.full[1] = d->pitch;
    int64_t pixels = larger(d->flat, d->band_rows * d->pitch) + d->size[0] * d->pitch + d->size[1] + 1;
    d->source_elements = round_up(pixels * channels + CPU_BLOCK_DEPTH, 32);
    d->source_bytes = aligned(d->source_elements, sizeof(uint16_t));
}

/* Tiles of each row by itself, or of all rows as one: whichever loads and multiplies less. A tile of r rows costs about
 * r, and 16 for the columns it meets. */
static void plan_tiles(cpu_conv_blocks *d) {
    int64_t columns = larger(1, d->out_size[1]), in_row = (columns + CPU_BLOCK_TILE - 1) / CPU_BLOCK_TILE;
    int64_t rows = (columns + in_row - 1) / in_row, in_all = d->flat / CPU_BLOCK_TILE;
    bool by_row = d->band_rows * in_row * (rows + CPU_BLOCK_TILE) <= in_all * 2 * CPU_BLOCK_TILE;
    d->row_tiles = by_row ? in_row : 0;
    d->tile_rows = by_row ? rows : CPU_BLOCK_TILE;
    d->tiles = by_row ? d->band_rows * in_row : in_all;
}

/* k: groups are rows of the filter, or pairs of them. */
static tu_status plan_groups(tu__arena *arena, cpu_conv_blocks *d, int64_t in_channels) {
    d->group_count = d->widened ? (d->size[0] + 1) / 2 : d->size[0];
    d->chunks = (d->size[1] * in_channels + CPU_BLOCK_DEPTH - 1) / CPU_BLOCK_DEPTH;
    d->groups = tu__arena_alloc(arena, (size_t)d->group_count * sizeof *d->groups);
    if (!d->groups) return TU_NO_MEMORY;
    for (int64_t i = 0; i < d->group_count; i++)
        d->groups[i] = d->widened ? 2 * i * d->pitch * CPU_BLOCK_DEPTH : i * d->pitch * in_channels;
    return TU_OK;
}

static int64_t window_pixels(const cpu_conv_blocks *d) {
    return d->flat + 2 * (d->group_count - 1) * d->pitch;
}

static tu_status plan_gather(tu__arena *arena, cpu_conv_blocks *d) {
    const cpu_convolution *c = &d->shape;
    const int64_t *pad = c->windows.pad;
    bool forward = d->side == CPU_CONV_Y;
    int64_t in_channels = forward ? c->x_channels : c->y_channels;
    int64_t before[2] = {pad[0], pad[2]};
    if (!forward)
        for (int i = 0; i < 2; i++) before[i] = d->size[i] - 1 - before[i];
    d->widened = d->size[1] * in_channels <= CPU_BLOCK_DEPTH / 2;
    cpu_conv_blocks_plan_slices(d, forward ? c->x_size : c->y_size, in_channels, before,
                                forward ? c->y_size : c->x_size, CPU_BLOCK_TILE);
    plan_tiles(d);
    TU_TRY(plan_groups(arena, d, in_channels));
    d->width = round_up(forward ? c->y_channels : c->x_channels, CPU_BLOCK_TILE);
    d->shared_bytes = aligned(d->group_count * d->chunks * CPU_BLOCK_PAIRS * d->width, sizeof(uint32_t));
    d->planes_bytes = aligned(CPU_BLOCK_MOST * d->width, sizeof(float)); /* c of a row of blocks */
    if (d->widened) d->pairs_bytes = aligned(window_pixels(d) * CPU_BLOCK_DEPTH, sizeof(uint16_t));
    return TU_OK;
}

tu_status cpu_conv_blocks_new(tu__arena *arena, const cpu_blocks *blocks, const cpu_loops *loops,
                              const cpu_convolution *convolution, cpu_convolution_side side, int threads,
                              cpu_conv_blocks **plan) {
    *plan = NULL;
    if (!fits(convolution)) return TU_OK;
    cpu_conv_blocks *d = tu__arena_alloc(arena, sizeof *d);
    if (!d) return TU_NO_MEMORY;
    *d = (cpu_conv_blocks){
        .blocks = blocks, .loops = loops, .side = side, .shape = *convolution, .threads = threads};
    for (int i = 0; i < 2; i++) d->size[i] = convolution->windows.size[i];
    TU_TRY((side == CPU_CONV_FILTER ? cpu_conv_blocks_plan_filter : plan_gather)(arena, d));
    if (cpu_conv_blocks_workspace(d) <= MAX_WORKSPACE) *plan = d;
    return TU_OK;
}

size_t cpu_conv_blocks_worker_bytes(const cpu_conv_blocks *d) {
    return d->source_bytes + d->planes_bytes + d->y_bytes + d->pairs_bytes;
}

size_t cpu_conv_blocks_workspace(const cpu_conv_blocks *d) {
    return d->shared_bytes + (size_t)d->threads * cpu_conv_blocks_worker_bytes(d);
}

char *cpu_conv_blocks_worker(const cpu_conv_blocks *d, const cpu_direct_operands *o, int worker) {
    return (char *)o->workspace + d->shared_bytes + (size_t)worker * cpu_conv_blocks_worker_bytes(d);
}

/* ---- Preparing ---- */

void cpu_conv_blocks_pad(const cpu_conv_blocks *d, const void *images, int64_t slice, uint16_t *scratch) {
    const padded *p = &d->source;
    int64_t first = cpu_conv_blocks_band(d, slice), rows = d->band_rows + d->size[0] - 1;
    int64_t image = slice / d->bands * p->size[0] * p->size[1] * p->channels;
    cpu_direct_pad(p, sizeof *scratch, (const char *)images + image * (int64_t)sizeof *scratch, first,
                   first + rows, (char *)scratch);
    int64_t used = rows * d->pitch * p->channels;
    memset(scratch + used, 0, (size_t)(d->source_elements - used) * sizeof *scratch);
}

typedef struct task {
    const cpu_conv_blocks *d;
    const cpu_direct_operands *o;
} task;

/* Two rows of b, of k and k + 1 within a row of the filter: `low` and `high` are k's weights for column 0, or NULL for
 * zeros; columns are `step` apart. */
static void pack_pair(const cpu_conv_blocks *d, const uint16_t *low, const uint16_t *high, int64_t step,
                      int64_t columns, uint32_t *to) {
    for (int64_t j = 0; j < columns; j++)
        to[j] = (low ? low[j * step] : 0) | (high ? (uint32_t)high[j * step] << 16 : 0);
    for (int64_t j = columns; j < d->width; j++) to[j] = 0;
}

/* Where the weights of k within a group begin; NULL beyond the rows of the filter. */
static const uint16_t *weights_of(const cpu_conv_blocks *d, const uint16_t *filter, int64_t group,
                                  int64_t k) {
    const cpu_convolution *c = &d->shape;
    int64_t row = group;
    if (d->widened) {
        row = 2 * group + k / (CPU_BLOCK_DEPTH / 2);
        k %= CPU_BLOCK_DEPTH / 2;
        if (row >= d->size[0]) return NULL;
    }
    if (d->side == CPU_CONV_Y)
        return k < d->size[1] * c->x_channels ? filter + row * d->size[1] * c->x_channels + k : NULL;
    int64_t tap = d->size[1] - 1 - k / c->y_channels, channel = k % c->y_channels;
    if (tap < 0) return NULL;
    row = d->size[0] - 1 - row;
    return filter + ((channel * d->size[0] + row) * d->size[1] + tap) * c->x_channels;
}

/* Units are pairs of k: (group, chunk, pair). */
static void pack_filter(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    const cpu_conv_blocks *d = t->d;
    bool forward = d->side == CPU_CONV_Y;
    int64_t pairs = d->chunks * CPU_BLOCK_PAIRS;
    int64_t columns = forward ? d->shape.y_channels : d->shape.x_channels;
    int64_t step = forward ? d->size[0] * d->size[1] * d->shape.x_channels : 1;
    for (int64_t unit = first; unit < last; unit++) {
        int64_t group = unit / pairs, k = unit % pairs * 2;
        pack_pair(d, weights_of(d, t->o->second, group, k), weights_of(d, t->o->second, group, k + 1), step,
                  columns, (uint32_t *)t->o->workspace + unit * d->width);
    }
}

/* ---- Multiplying ---- */

/* Where a tile begins in the slice's long row. */
static int64_t tile_start(const cpu_conv_blocks *d, int64_t tile) {
    if (!d->row_tiles) return tile * CPU_BLOCK_TILE;
    int64_t column = tile % d->row_tiles * d->tile_rows; /* the last one of a row may overlap its neighbour */
    return tile / d->row_tiles * d->pitch + smaller(column, d->out_size[1] - d->tile_rows);
}

/* A tile's pixels that the result has are rounded into it. */
static void finish(const task *t, int64_t slice, int64_t tile, const float *c) {
    const cpu_conv_blocks *d = t->d;
    int64_t columns = d->side == CPU_CONV_Y ? d->shape.y_channels : d->shape.x_channels;
    int64_t band = cpu_conv_blocks_band(d, slice), image = slice / d->bands;
    int64_t band_end = smaller(d->band_rows, d->out_size[0] - band);
    int64_t first = tile_start(d, tile), rows = d->tile_rows;
    int64_t row = first / d->pitch, column = first % d->pitch;
    while (rows > 0 && row < band_end) {
        int64_t count = smaller(rows, d->pitch - column), useful = smaller(count, d->out_size[1] - column);
        int64_t pixel = (image * d->out_size[0] + band + row) * d->out_size[1] + column;
        if (useful > 0)
            d->loops->blocks->finish(useful, columns, c, d->width, t->o->bias, t->o->relu,
                                     (uint16_t *)t->o->out + pixel * columns);
        c += count * d->width;
        rows -= count;
        row++;
        column = 0;
    }
}

/* Tiles `tile` and, unless it is the last, the next. */
static void gather_block(const task *t, int64_t slice, int64_t tile, int64_t tiles, const uint16_t *a,
                         float *c) {
    const cpu_conv_blocks *d = t->d;
    int64_t pixel = d->widened ? CPU_BLOCK_DEPTH : d->source.channels;
    cpu_block b = {.a = a + tile_start(d, tile) * pixel,
                   .a_row = pixel,
                   .a_groups = d->groups,
                   .groups = d->group_count,
                   .chunks = d->chunks,
                   .b_pair = d->width,
                   .b_chunk = CPU_BLOCK_PAIRS * d->width,
                   .b_group = d->chunks * CPU_BLOCK_PAIRS * d->width,
                   .c_row = d->width,
                   .tiles = tile + 1 < tiles ? 2 : 1,
                   .tile_rows = (int)d->tile_rows};
    b.a_below = (tile_start(d, tile + 1) - tile_start(d, tile)) * pixel;
    for (int64_t column = 0; column < d->width; column += CPU_BLOCK_MOST) {
        b.b = (const uint32_t *)t->o->workspace + column;
        b.c = c + column;
        b.columns = (int)smaller(CPU_BLOCK_MOST, d->width - column);
        d->blocks->block(&b);
    }
    for (int i = 0; i < b.tiles; i++) finish(t, slice, tile + i, c + i * d->tile_rows * d->width);
}

static void gather_slices(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    const cpu_conv_blocks *d = t->d;
    char *scratch = cpu_conv_blocks_worker(d, t->o, worker);
    uint16_t *source = (uint16_t *)scratch;
    float *c = (float *)(scratch + d->source_bytes);
    uint16_t *windows = (uint16_t *)(scratch + d->source_bytes + d->planes_bytes);
    if (d->blocks->begin) d->blocks->begin((int)d->tile_rows);
    for (int64_t slice = first; slice < last; slice++) {
        cpu_conv_blocks_pad(d, t->o->first, slice, source);
        if (d->widened)
            d->loops->blocks->widen(window_pixels(d), d->source.channels, source, d->pitch, windows);
        int64_t rows = smaller(d->band_rows, d->out_size[0] - cpu_conv_blocks_band(d, slice));
        int64_t tiles = d->row_tiles ? rows * d->row_tiles : d->tiles;
        for (int64_t tile = 0; tile < tiles; tile += 2)
            gather_block(t, slice, tile, tiles, d->widened ? windows : source, c);
    }
    if (d->blocks->end) d->blocks->end();
}

void cpu_conv_blocks_run(const cpu_conv_blocks *d, const cpu_direct_operands *operands) {
    if (d->side == CPU_CONV_FILTER) {
        cpu_conv_blocks_filter(d, operands);
        return;
    }
    task t = {d, operands};
    tu__parallel_for(d->group_count * d->chunks * CPU_BLOCK_PAIRS, 64, pack_filter, &t);
    tu__parallel_deal(d->shape.images * d->bands, 1, gather_slices, &t);
}
