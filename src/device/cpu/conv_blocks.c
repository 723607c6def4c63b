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
static void plan_bands(cpu_conv_blocks *plan, int64_t channels) {
    if (plan->uses_windows) channels = CPU_BLOCK_DEPTH;
    int64_t row_bytes = plan->pitch * channels * (int64_t)sizeof(uint16_t);
    int64_t max_rows = max_i64(1, SLICE_BYTES / row_bytes - (plan->size[0] - 1));
    plan->bands = max_i64(1, (plan->out_size[0] + max_rows - 1) / max_rows);
    plan->band_rows = max_i64(1, (plan->out_size[0] + plan->bands - 1) / plan->bands);
    plan->bands = (plan->out_size[0] + plan->band_rows - 1) / plan->band_rows;
}

void cpu_conv_blocks_plan_slices(cpu_conv_blocks *plan, const int64_t source_size[2], int64_t channels,
                                 const int64_t before[2], const int64_t out_size[2], int64_t multiple) {
    memcpy(plan->out_size, out_size, sizeof plan->out_size);
    plan->pitch = out_size[1] + plan->size[1] - 1;
    plan_bands(plan, channels);
    plan->flat = round_up((plan->band_rows - 1) * plan->pitch + out_size[1], multiple);
    plan->source = (padded){.channels = channels};
    for (int i = 0; i < 2; i++) {
        plan->source.size[i] = source_size[i];
        plan->source.before[i] = before[i];
    }
    plan->source.padded_size[0] = out_size[0] + plan->size[0] - 1;
    plan->source.padded_size[1] = plan->pitch;
    int64_t pixels =
        max_i64(plan->flat, plan->band_rows * plan->pitch) + plan->size[0] * plan->pitch + plan->size[1] + 1;
    plan->source_elements = round_up(pixels * channels + CPU_BLOCK_DEPTH, 32);
    plan->source_bytes = aligned_bytes(plan->source_elements, sizeof(uint16_t));
}

/* Takes tiles from each row separately, or from all rows as one, whichever loads and multiplies less. A tile of r
 * rows costs about r, plus 16 for its columns. */
static void plan_tiles(cpu_conv_blocks *plan) {
    int64_t columns = max_i64(1, plan->out_size[1]),
            tiles_per_row = (columns + CPU_BLOCK_TILE - 1) / CPU_BLOCK_TILE;
    int64_t rows = (columns + tiles_per_row - 1) / tiles_per_row,
            tiles_of_long_row = plan->flat / CPU_BLOCK_TILE;
    bool by_row =
        plan->band_rows * tiles_per_row * (rows + CPU_BLOCK_TILE) <= tiles_of_long_row * 2 * CPU_BLOCK_TILE;
    plan->row_tiles = by_row ? tiles_per_row : 0;
    plan->tile_rows = by_row ? rows : CPU_BLOCK_TILE;
    plan->tiles = by_row ? plan->band_rows * tiles_per_row : tiles_of_long_row;
}

/* Groups of k are rows of the filter, or pairs of rows. */
static tu_status plan_groups(tu__arena *arena, cpu_conv_blocks *plan, int64_t in_channels) {
    plan->group_count = plan->uses_windows ? (plan->size[0] + 1) / 2 : plan->size[0];
    plan->chunks = (plan->size[1] * in_channels + CPU_BLOCK_DEPTH - 1) / CPU_BLOCK_DEPTH;
    plan->groups = tu__arena_alloc(arena, (size_t)plan->group_count * sizeof *plan->groups);
    if (!plan->groups) return TU_NO_MEMORY;
    for (int64_t i = 0; i < plan->group_count; i++)
        plan->groups[i] =
            plan->uses_windows ? 2 * i * plan->pitch * CPU_BLOCK_DEPTH : i * plan->pitch * in_channels;
    return TU_OK;
}

static int64_t window_pixels(const cpu_conv_blocks *plan) {
    return plan->flat + 2 * (plan->group_count - 1) * plan->pitch;
}

static tu_status plan_output(tu__arena *arena, cpu_conv_blocks *plan) {
    const cpu_convolution *c = &plan->shape;
    const int64_t *pad = c->windows.pad;
    bool forward = plan->computes == CPU_CONV_Y;
    int64_t in_channels = forward ? c->x_channels : c->y_channels;
    int64_t before[2] = {pad[0], pad[2]};
    if (!forward)
        for (int i = 0; i < 2; i++) before[i] = plan->size[i] - 1 - before[i];
    plan->uses_windows = plan->size[1] * in_channels <= CPU_BLOCK_DEPTH / 2;
    cpu_conv_blocks_plan_slices(plan, forward ? c->x_size : c->y_size, in_channels, before,
                                forward ? c->y_size : c->x_size, CPU_BLOCK_TILE);
    plan_tiles(plan);
    TU_TRY(plan_groups(arena, plan, in_channels));
    plan->width = round_up(forward ? c->y_channels : c->x_channels, CPU_BLOCK_TILE);
    plan->shared_bytes =
        aligned_bytes(plan->group_count * plan->chunks * CPU_BLOCK_PAIRS * plan->width, sizeof(uint32_t));
    /* Holds c of a row of tiles. */
    plan->planes_bytes = aligned_bytes(CPU_BLOCK_MAX_COLUMNS * plan->width, sizeof(float));
    if (plan->uses_windows)
        plan->pairs_bytes = aligned_bytes(window_pixels(plan) * CPU_BLOCK_DEPTH, sizeof(uint16_t));
    return TU_OK;
}

tu_status cpu_conv_blocks_new(tu__arena *arena, const cpu_blocks *blocks, const cpu_loops *loops,
                              const cpu_convolution *convolution, cpu_conv_result result, int threads,
                              cpu_conv_blocks **new_plan) {
    *new_plan = NULL;
    if (!is_supported(convolution)) return TU_OK;
    cpu_conv_blocks *plan = tu__arena_alloc(arena, sizeof *plan);
    if (!plan) return TU_NO_MEMORY;
    *plan = (cpu_conv_blocks){
        .blocks = blocks, .loops = loops, .computes = result, .shape = *convolution, .threads = threads};
    for (int i = 0; i < 2; i++) plan->size[i] = convolution->windows.size[i];
    TU_TRY((result == CPU_CONV_DW ? cpu_conv_blocks_plan_filter : plan_output)(arena, plan));
    if (cpu_conv_blocks_workspace(plan) <= MAX_WORKSPACE) *new_plan = plan;
    return TU_OK;
}

size_t cpu_conv_blocks_worker_bytes(const cpu_conv_blocks *plan) {
    return plan->source_bytes + plan->planes_bytes + plan->y_bytes + plan->pairs_bytes;
}

size_t cpu_conv_blocks_workspace(const cpu_conv_blocks *plan) {
    return plan->shared_bytes + (size_t)plan->threads * cpu_conv_blocks_worker_bytes(plan);
}

char *cpu_conv_blocks_worker(const cpu_conv_blocks *plan, const cpu_direct_operands *operands, int worker) {
    return (char *)operands->workspace + plan->shared_bytes +
           (size_t)worker * cpu_conv_blocks_worker_bytes(plan);
}

/* ---- Preparing operands ---- */

void cpu_conv_blocks_pad(const cpu_conv_blocks *plan, const void *images, int64_t slice, uint16_t *scratch) {
    const padded *p = &plan->source;
    int64_t first = cpu_conv_blocks_band(plan, slice), rows = plan->band_rows + plan->size[0] - 1;
    int64_t image = slice / plan->bands * p->size[0] * p->size[1] * p->channels;
    cpu_direct_pad(p, sizeof *scratch, (const char *)images + image * (int64_t)sizeof *scratch, first,
                   first + rows, (char *)scratch);
    int64_t used = rows * plan->pitch * p->channels;
    memset(scratch + used, 0, (size_t)(plan->source_elements - used) * sizeof *scratch);
}

typedef struct task {
    const cpu_conv_blocks *plan;
    const cpu_direct_operands *operands;
} task;

/* Packs two rows of b, for k and k + 1 within a row of the filter. `low` and `high` are their weights for column 0,
 * or NULL for zeros; columns are `step` apart. */
static void pack_pair(const cpu_conv_blocks *plan, const uint16_t *low, const uint16_t *high, int64_t step,
                      int64_t columns, uint32_t *to) {
    for (int64_t j = 0; j < columns; j++)
        to[j] = (low ? low[j * step] : 0) | (high ? (uint32_t)high[j * step] << 16 : 0);
    for (int64_t j = columns; j < plan->width; j++) to[j] = 0;
}

/* Returns the weights of k within a group; NULL past the rows of the filter. */
static const uint16_t *weights_of(const cpu_conv_blocks *plan, const uint16_t *filter, int64_t group,
                                  int64_t k) {
    const cpu_convolution *c = &plan->shape;
    int64_t row = group;
    if (plan->uses_windows) {
        row = 2 * group + k / (CPU_BLOCK_DEPTH / 2);
        k %= CPU_BLOCK_DEPTH / 2;
        if (row >= plan->size[0]) return NULL;
    }
    if (plan->computes == CPU_CONV_Y)
        return k < plan->size[1] * c->x_channels ? filter + row * plan->size[1] * c->x_channels + k : NULL;
    int64_t tap = plan->size[1] - 1 - k / c->y_channels, channel = k % c->y_channels;
    if (tap < 0) return NULL;
    row = plan->size[0] - 1 - row;
    return filter + ((channel * plan->size[0] + row) * plan->size[1] + tap) * c->x_channels;
}

/* Work item: a pair of k; index = (group * chunks + chunk) * CPU_BLOCK_PAIRS + pair. */
static void pack_filter(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    const cpu_conv_blocks *plan = t->plan;
    bool forward = plan->computes == CPU_CONV_Y;
    int64_t pairs = plan->chunks * CPU_BLOCK_PAIRS;
    int64_t columns = forward ? plan->shape.y_channels : plan->shape.x_channels;
    int64_t step = forward ? plan->size[0] * plan->size[1] * plan->shape.x_channels : 1;
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t group = work_item / pairs, k = work_item % pairs * 2;
        pack_pair(plan, weights_of(plan, t->operands->second, group, k),
                  weights_of(plan, t->operands->second, group, k + 1), step, columns,
                  (uint32_t *)t->operands->workspace + work_item * plan->width);
    }
}

/* ---- Multiplying ---- */

/* Returns the first pixel of a tile in the slice's long row. */
static int64_t tile_start(const cpu_conv_blocks *plan, int64_t tile) {
    if (!plan->row_tiles) return tile * CPU_BLOCK_TILE;
    /* The last tile of a row may overlap the one before. */
    int64_t column = tile % plan->row_tiles * plan->tile_rows;
    return tile / plan->row_tiles * plan->pitch + min_i64(column, plan->out_size[1] - plan->tile_rows);
}

/* Rounds the pixels of a tile that exist in the result, and stores them. */
static void store_tile(const task *t, int64_t slice, int64_t tile, const float *c) {
    const cpu_conv_blocks *plan = t->plan;
    int64_t columns = plan->computes == CPU_CONV_Y ? plan->shape.y_channels : plan->shape.x_channels;
    int64_t band = cpu_conv_blocks_band(plan, slice), image = slice / plan->bands;
    int64_t band_end = min_i64(plan->band_rows, plan->out_size[0] - band);
    int64_t first = tile_start(plan, tile), rows = plan->tile_rows;
    int64_t row = first / plan->pitch, column = first % plan->pitch;
    while (rows > 0 && row < band_end) {
        int64_t count = min_i64(rows, plan->pitch - column),
                useful = min_i64(count, plan->out_size[1] - column);
        int64_t pixel = (image * plan->out_size[0] + band + row) * plan->out_size[1] + column;
        if (useful > 0)
            plan->loops->blocks->finish(useful, columns, c, plan->width, t->operands->bias, t->operands->relu,
                                        (uint16_t *)t->operands->out + pixel * columns);
        c += count * plan->width;
        rows -= count;
        row++;
        column = 0;
    }
}

/* Computes tile `tile` and, unless it is the last, the next. */
static void multiply_tiles(const task *t, int64_t slice, int64_t tile, int64_t tiles, const uint16_t *a,
                           float *c) {
    const cpu_conv_blocks *plan = t->plan;
    int64_t pixel = plan->uses_windows ? CPU_BLOCK_DEPTH : plan->source.channels;
    cpu_block b = {.a = a + tile_start(plan, tile) * pixel,
                   .a_row = pixel,
                   .a_groups = plan->groups,
                   .groups = plan->group_count,
                   .chunks = plan->chunks,
                   .b_pair = plan->width,
                   .b_chunk = CPU_BLOCK_PAIRS * plan->width,
                   .b_group = plan->chunks * CPU_BLOCK_PAIRS * plan->width,
                   .c_row = plan->width,
                   .tiles = tile + 1 < tiles ? 2 : 1,
                   .tile_rows = (int)plan->tile_rows};
    b.a_second_tile = (tile_start(plan, tile + 1) - tile_start(plan, tile)) * pixel;
    for (int64_t column = 0; column < plan->width; column += CPU_BLOCK_MAX_COLUMNS) {
        b.b = (const uint32_t *)t->operands->workspace + column;
        b.c = c + column;
        b.columns = (int)min_i64(CPU_BLOCK_MAX_COLUMNS, plan->width - column);
        plan->blocks->block(&b);
    }
    for (int i = 0; i < b.tiles; i++) store_tile(t, slice, tile + i, c + i * plan->tile_rows * plan->width);
}

static void compute_slices(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    const cpu_conv_blocks *plan = t->plan;
    char *scratch = cpu_conv_blocks_worker(plan, t->operands, worker);
    uint16_t *source = (uint16_t *)scratch;
    float *c = (float *)(scratch + plan->source_bytes);
    uint16_t *windows = (uint16_t *)(scratch + plan->source_bytes + plan->planes_bytes);
    if (plan->blocks->configure) plan->blocks->configure((int)plan->tile_rows);
    for (int64_t slice = first; slice < last; slice++) {
        cpu_conv_blocks_pad(plan, t->operands->first, slice, source);
        if (plan->uses_windows)
            plan->loops->blocks->make_windows(window_pixels(plan), plan->source.channels, source, plan->pitch,
                                              windows);
        int64_t rows = min_i64(plan->band_rows, plan->out_size[0] - cpu_conv_blocks_band(plan, slice));
        int64_t tiles = plan->row_tiles ? rows * plan->row_tiles : plan->tiles;
        for (int64_t tile = 0; tile < tiles; tile += 2)
            multiply_tiles(t, slice, tile, tiles, plan->uses_windows ? windows : source, c);
    }
    if (plan->blocks->release) plan->blocks->release();
}

void cpu_conv_blocks_run(const cpu_conv_blocks *plan, const cpu_direct_operands *operands) {
    if (plan->computes == CPU_CONV_DW) {
        cpu_conv_blocks_filter(plan, operands);
        return;
    }
    task t = {plan, operands};
    tu__parallel_for(plan->group_count * plan->chunks * CPU_BLOCK_PAIRS, 64, pack_filter, &t);
    tu__parallel_for_stealing(plan->shape.images * plan->bands, 1, compute_slices, &t);
}
