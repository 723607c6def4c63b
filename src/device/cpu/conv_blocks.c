/* Convolution in bf16 with AMX tiles: planning, and running y and dx.
 *
 * The image is copied with padding. In the copy, the kw * channels values under one row of the filter are
 * contiguous, and those for the next output pixel start one pixel later: the copy is the left matrix of a product,
 * with overlapping rows. If rows of the result are given the length of rows of the copy, pixel m + 1 always starts
 * one pixel after pixel m, also from the end of a row to the next. Tiles are taken either from this long row, which
 * also computes the unused pixels between rows, or from each row separately, whichever is cheaper.
 *
 *     y       k runs over the rows of the filter; each row of kw * channels is padded with zeros to chunks of 32
 *     dx      the same over dy, with the filter flipped
 *     filter  conv_blocks_filter.c
 *
 * If a row of the filter fills at most half a chunk, the image is rewritten as windows: for each pixel the values
 * under two rows of the filter. Chunks are then full and aligned to cache lines.
 *
 * The zeros that pad k are multiplied with whatever follows in memory, the next pixels or the next row. If one of
 * these is infinite or NaN, the product is NaN, and a result near it (within 32 values of a row, in the same image)
 * becomes NaN although it should not. A network with such a value is unusable anyway.
 *
 * The filter is packed once for all images. Sums are rounded to bf16 once; then bias and relu are applied, each
 * rounded, as if they were separate operations. */
#include <string.h>

#include "device/cpu/conv_blocks_plan.h"
#include "device/cpu/isa/loops_blocks.h"

enum {
    SLICE_BYTES = 192 << 10, /* of a slice's source: it stays in the L2 cache */
    MAX_WORKSPACE = 256 << 20,
    MAX_SIZE = 32 /* of a filter */
};

/* ---- Planning ---- */

static bool is_supported(const cpu_convolution *c) {
    const tu__windows *w = &c->windows;
    for (int i = 0; i < 2; i++)
        if (w->stride[i] != 1 || w->dilation[i] != 1 || w->size[i] > MAX_SIZE || w->pad[2 * i] > 1024 ||
            w->pad[2 * i + 1] > 1024 || c->x_size[i] > 1 << 16 || c->y_size[i] > 1 << 16)
            return false;
    return c->groups == 1 && c->x_channels <= 1 << 14 && c->y_channels <= 1 << 14;
}

/* Chooses bands of nearly equal size, each small enough for the cache. */
static void plan_bands(cpu_conv_blocks *d, int64_t channels) {
    if (d->windowed) channels = CPU_BLOCK_DEPTH;
    int64_t row_bytes = d->pitch * channels * (int64_t)sizeof(uint16_t);
    int64_t max_rows = max_i64(1, SLICE_BYTES / row_bytes - (d->size[0] - 1));
    d->bands = max_i64(1, (d->out_size[0] + max_rows - 1) / max_rows);
    d->band_rows = max_i64(1, (d->out_size[0] + d->bands - 1) / d->bands);
    d->bands = (d->out_size[0] + d->band_rows - 1) / d->band_rows;
}

void cpu_conv_blocks_plan_slices(cpu_conv_blocks *d, const int64_t source_size[2], int64_t channels,
                                 const int64_t before[2], const int64_t out_size[2], int64_t multiple) {
    memcpy(d->out_size, out_size, sizeof d->out_size);
    d->pitch = out_size[1] + d->size[1] - 1;
    plan_bands(d, channels);
    d->flat = round_up((d->band_rows - 1) * d->pitch + out_size[1], multiple);
    d->source = (padded){.channels = channels};
    for (int i = 0; i < 2; i++) {
        d->source.size[i] = source_size[i];
        d->source.before[i] = before[i];
    }
    d->source.padded_size[0] = out_size[0] + d->size[0] - 1;
    d->source.padded_size[1] = d->pitch;
    int64_t pixels = max_i64(d->flat, d->band_rows * d->pitch) + d->size[0] * d->pitch + d->size[1] + 1;
    d->source_elements = round_up(pixels * channels + CPU_BLOCK_DEPTH, 32);
    d->source_bytes = aligned_bytes(d->source_elements, sizeof(uint16_t));
}

/* Takes tiles from each row separately, or from all rows as one, whichever loads and multiplies less. A tile of r
 * rows costs about r, plus 16 for its columns. */
static void plan_tiles(cpu_conv_blocks *d) {
    int64_t columns = max_i64(1, d->out_size[1]), in_row = (columns + CPU_BLOCK_TILE - 1) / CPU_BLOCK_TILE;
    int64_t rows = (columns + in_row - 1) / in_row, in_all = d->flat / CPU_BLOCK_TILE;
    bool by_row = d->band_rows * in_row * (rows + CPU_BLOCK_TILE) <= in_all * 2 * CPU_BLOCK_TILE;
    d->row_tiles = by_row ? in_row : 0;
    d->tile_rows = by_row ? rows : CPU_BLOCK_TILE;
    d->tiles = by_row ? d->band_rows * in_row : in_all;
}

/* Groups of k are rows of the filter, or pairs of rows. */
static tu_status plan_groups(tu__arena *arena, cpu_conv_blocks *d, int64_t in_channels) {
    d->group_count = d->windowed ? (d->size[0] + 1) / 2 : d->size[0];
    d->chunks = (d->size[1] * in_channels + CPU_BLOCK_DEPTH - 1) / CPU_BLOCK_DEPTH;
    d->groups = tu__arena_alloc(arena, (size_t)d->group_count * sizeof *d->groups);
    if (!d->groups) return TU_NO_MEMORY;
    for (int64_t i = 0; i < d->group_count; i++)
        d->groups[i] = d->windowed ? 2 * i * d->pitch * CPU_BLOCK_DEPTH : i * d->pitch * in_channels;
    return TU_OK;
}

static int64_t window_pixels(const cpu_conv_blocks *d) {
    return d->flat + 2 * (d->group_count - 1) * d->pitch;
}

static tu_status plan_output(tu__arena *arena, cpu_conv_blocks *d) {
    const cpu_convolution *c = &d->shape;
    const int64_t *pad = c->windows.pad;
    bool forward = d->computes == CPU_CONV_Y;
    int64_t in_channels = forward ? c->x_channels : c->y_channels;
    int64_t before[2] = {pad[0], pad[2]};
    if (!forward)
        for (int i = 0; i < 2; i++) before[i] = d->size[i] - 1 - before[i];
    d->windowed = d->size[1] * in_channels <= CPU_BLOCK_DEPTH / 2;
    cpu_conv_blocks_plan_slices(d, forward ? c->x_size : c->y_size, in_channels, before,
                                forward ? c->y_size : c->x_size, CPU_BLOCK_TILE);
    plan_tiles(d);
    TU_TRY(plan_groups(arena, d, in_channels));
    d->width = round_up(forward ? c->y_channels : c->x_channels, CPU_BLOCK_TILE);
    d->shared_bytes =
        aligned_bytes(d->group_count * d->chunks * CPU_BLOCK_PAIRS * d->width, sizeof(uint32_t));
    d->planes_bytes =
        aligned_bytes(CPU_BLOCK_MAX_COLUMNS * d->width, sizeof(float)); /* c of a row of tiles */
    if (d->windowed) d->pairs_bytes = aligned_bytes(window_pixels(d) * CPU_BLOCK_DEPTH, sizeof(uint16_t));
    return TU_OK;
}

tu_status cpu_conv_blocks_new(tu__arena *arena, const cpu_blocks *blocks, const cpu_loops *loops,
                              const cpu_convolution *convolution, cpu_conv_result result, int threads,
                              cpu_conv_blocks **plan) {
    *plan = NULL;
    if (!is_supported(convolution)) return TU_OK;
    cpu_conv_blocks *d = tu__arena_alloc(arena, sizeof *d);
    if (!d) return TU_NO_MEMORY;
    *d = (cpu_conv_blocks){
        .blocks = blocks, .loops = loops, .computes = result, .shape = *convolution, .threads = threads};
    for (int i = 0; i < 2; i++) d->size[i] = convolution->windows.size[i];
    TU_TRY((result == CPU_CONV_DW ? cpu_conv_blocks_plan_filter : plan_output)(arena, d));
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

/* ---- Preparing operands ---- */

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

/* Packs two rows of b, for k and k + 1 within a row of the filter. `low` and `high` are their weights for column 0,
 * or NULL for zeros; columns are `step` apart. */
static void pack_pair(const cpu_conv_blocks *d, const uint16_t *low, const uint16_t *high, int64_t step,
                      int64_t columns, uint32_t *to) {
    for (int64_t j = 0; j < columns; j++)
        to[j] = (low ? low[j * step] : 0) | (high ? (uint32_t)high[j * step] << 16 : 0);
    for (int64_t j = columns; j < d->width; j++) to[j] = 0;
}

/* Returns the weights of k within a group; NULL past the rows of the filter. */
static const uint16_t *weights_of(const cpu_conv_blocks *d, const uint16_t *filter, int64_t group,
                                  int64_t k) {
    const cpu_convolution *c = &d->shape;
    int64_t row = group;
    if (d->windowed) {
        row = 2 * group + k / (CPU_BLOCK_DEPTH / 2);
        k %= CPU_BLOCK_DEPTH / 2;
        if (row >= d->size[0]) return NULL;
    }
    if (d->computes == CPU_CONV_Y)
        return k < d->size[1] * c->x_channels ? filter + row * d->size[1] * c->x_channels + k : NULL;
    int64_t tap = d->size[1] - 1 - k / c->y_channels, channel = k % c->y_channels;
    if (tap < 0) return NULL;
    row = d->size[0] - 1 - row;
    return filter + ((channel * d->size[0] + row) * d->size[1] + tap) * c->x_channels;
}

/* Work item: a pair of k; index = (group * chunks + chunk) * CPU_BLOCK_PAIRS + pair. */
static void pack_filter(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    const cpu_conv_blocks *d = t->d;
    bool forward = d->computes == CPU_CONV_Y;
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

/* Returns the first pixel of a tile in the slice's long row. */
static int64_t tile_start(const cpu_conv_blocks *d, int64_t tile) {
    if (!d->row_tiles) return tile * CPU_BLOCK_TILE;
    int64_t column =
        tile % d->row_tiles * d->tile_rows; /* the last tile of a row may overlap the one before */
    return tile / d->row_tiles * d->pitch + min_i64(column, d->out_size[1] - d->tile_rows);
}

/* Rounds the pixels of a tile that exist in the result, and stores them. */
static void store_tile(const task *t, int64_t slice, int64_t tile, const float *c) {
    const cpu_conv_blocks *d = t->d;
    int64_t columns = d->computes == CPU_CONV_Y ? d->shape.y_channels : d->shape.x_channels;
    int64_t band = cpu_conv_blocks_band(d, slice), image = slice / d->bands;
    int64_t band_end = min_i64(d->band_rows, d->out_size[0] - band);
    int64_t first = tile_start(d, tile), rows = d->tile_rows;
    int64_t row = first / d->pitch, column = first % d->pitch;
    while (rows > 0 && row < band_end) {
        int64_t count = min_i64(rows, d->pitch - column), useful = min_i64(count, d->out_size[1] - column);
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

/* Computes tile `tile` and, unless it is the last, the next. */
static void multiply_tiles(const task *t, int64_t slice, int64_t tile, int64_t tiles, const uint16_t *a,
                           float *c) {
    const cpu_conv_blocks *d = t->d;
    int64_t pixel = d->windowed ? CPU_BLOCK_DEPTH : d->source.channels;
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
    for (int64_t column = 0; column < d->width; column += CPU_BLOCK_MAX_COLUMNS) {
        b.b = (const uint32_t *)t->o->workspace + column;
        b.c = c + column;
        b.columns = (int)min_i64(CPU_BLOCK_MAX_COLUMNS, d->width - column);
        d->blocks->block(&b);
    }
    for (int i = 0; i < b.tiles; i++) store_tile(t, slice, tile + i, c + i * d->tile_rows * d->width);
}

static void compute_slices(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    const cpu_conv_blocks *d = t->d;
    char *scratch = cpu_conv_blocks_worker(d, t->o, worker);
    uint16_t *source = (uint16_t *)scratch;
    float *c = (float *)(scratch + d->source_bytes);
    uint16_t *windows = (uint16_t *)(scratch + d->source_bytes + d->planes_bytes);
    if (d->blocks->begin) d->blocks->begin((int)d->tile_rows);
    for (int64_t slice = first; slice < last; slice++) {
        cpu_conv_blocks_pad(d, t->o->first, slice, source);
        if (d->windowed)
            d->loops->blocks->make_windows(window_pixels(d), d->source.channels, source, d->pitch, windows);
        int64_t rows = min_i64(d->band_rows, d->out_size[0] - cpu_conv_blocks_band(d, slice));
        int64_t tiles = d->row_tiles ? rows * d->row_tiles : d->tiles;
        for (int64_t tile = 0; tile < tiles; tile += 2)
            multiply_tiles(t, slice, tile, tiles, d->windowed ? windows : source, c);
    }
    if (d->blocks->end) d->blocks->end();
}

void cpu_conv_blocks_run(const cpu_conv_blocks *d, const cpu_direct_operands *operands) {
    if (d->computes == CPU_CONV_DW) {
        cpu_conv_blocks_filter(d, operands);
        return;
    }
    task t = {d, operands};
    tu__parallel_for(d->group_count * d->chunks * CPU_BLOCK_PAIRS, 64, pack_filter, &t);
    tu__parallel_deal(d->shape.images * d->bands, 1, compute_slices, &t);
}
