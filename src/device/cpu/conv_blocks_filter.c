/* Convolution in bf16 with AMX tiles: the filter gradient.
 *
 * k runs over the pixels of y, in the long rows of conv_blocks.c; between rows y is zero. Rows of a are channels of
 * y: each slice of y is transposed, so that the pixels of a channel are contiguous. Columns of b are channels of x
 * under a tap: the padded source is rewritten once as pairs of every pixel and the next, [pixels, channels], and tap
 * (i, j) is every second row of that matrix from pixel i * pitch + j on. With few channels all taps of a filter row
 * are computed together, since their channels are adjacent in that matrix.
 *
 * Slices are added, a few at a time in registers, into matrices [runs, y channels, run], one per chunk of slices;
 * finally the matrices are added in order. There are more chunks than workers, so that a delayed worker delays only
 * one of them. The number of chunks depends only on the number of threads, and so do the bits of the result. */
#include "device/cpu/conv_blocks_plan.h"

#include <string.h>

#include "device/cpu/isa/loops_blocks.h"

enum {
    CHUNKS_PER_WORKER = 2,
    SLICES_AT_ONCE_BYTES =
        512 << 10, /* of slices added in registers: they stay in the L2 cache for all taps */
    MAX_SLICES_AT_ONCE = 8
};

typedef struct task {
    const cpu_conv_blocks *d;
    const cpu_direct_operands *o;
} task;

/* ---- Planning ---- */

static int64_t partial_elements(const cpu_conv_blocks *d) {
    return d->runs * d->y_rows * d->width;
}

static size_t partial_bytes(const cpu_conv_blocks *d) {
    return aligned_bytes(partial_elements(d), sizeof(float));
}

static int64_t pixels_of_source(const cpu_conv_blocks *d) {
    return d->flat + (d->size[0] - 1) * d->pitch + d->size[1];
}

tu_status cpu_conv_blocks_plan_filter(tu__arena *arena, cpu_conv_blocks *d) {
    const cpu_convolution *c = &d->shape;
    const int64_t before[2] = {c->windows.pad[0], c->windows.pad[2]};
    cpu_conv_blocks_plan_slices(d, c->x_size, c->x_channels, before, c->y_size, CPU_BLOCK_DEPTH);
    bool few = c->x_channels < CPU_BLOCK_TILE;
    d->runs = d->size[0] * (few ? 1 : d->size[1]);
    d->run_columns = c->x_channels * (few ? d->size[1] : 1);
    d->width = round_up(d->run_columns, CPU_BLOCK_TILE);
    d->pair_width = few ? c->x_channels : d->width;
    d->y_rows = round_up(c->y_channels, CPU_BLOCK_TILE);
    d->chunks = d->flat / CPU_BLOCK_DEPTH;
    d->plane = d->flat + 32; /* rarely a power of two, which would cause cache conflicts */
    d->y = (padded){.size = {c->y_size[0], c->y_size[1]},
                    .channels = c->y_channels,
                    .padded_size = {c->y_size[0], d->pitch}};
    d->y_bytes =
        aligned_bytes((max_i64(d->flat, d->band_rows * d->pitch) + 1) * c->y_channels, sizeof(uint16_t));
    int64_t planes = d->y_rows * d->plane;
    /* Rows of b are read up to a multiple of a tile, past the last pixel's channels. */
    int64_t pairs = round_up(pixels_of_source(d) * d->pair_width + d->width, 16);
    int64_t bytes = planes * (int64_t)sizeof(uint16_t) + pairs * (int64_t)sizeof(uint32_t);
    d->slices_at_once = max_i64(1, min_i64(MAX_SLICES_AT_ONCE, SLICES_AT_ONCE_BYTES / bytes));
    d->groups = tu__arena_alloc(arena, (size_t)d->slices_at_once * sizeof *d->groups);
    if (!d->groups) return TU_NO_MEMORY;
    for (int64_t i = 0; i < d->slices_at_once; i++) d->groups[i] = i * planes;
    d->pairs = pairs;
    d->planes_bytes = aligned_bytes(d->slices_at_once * planes, sizeof(uint16_t));
    d->pairs_bytes = aligned_bytes(d->slices_at_once * pairs, sizeof(uint32_t));
    int64_t slices = c->images * d->bands;
    d->partial_count = min_i64(slices, d->threads > 1 ? (int64_t)CHUNKS_PER_WORKER * d->threads : 1);
    d->shared_bytes = partial_bytes(d) * (size_t)d->partial_count;
    return TU_OK;
}

/* ---- Preparing a slice ---- */

static void prepare_x(const task *t, int64_t slice, uint16_t *scratch, uint32_t *pairs) {
    const cpu_conv_blocks *d = t->d;
    int64_t pixels = pixels_of_source(d), used = pixels * d->pair_width;
    cpu_conv_blocks_pad(d, t->o->first, slice, scratch);
    d->loops->blocks->pair(pixels, d->source.channels, scratch, pairs, d->pair_width);
    memset(pairs + used, 0, (size_t)(d->pairs - used) * sizeof *pairs);
}

static void prepare_y(const task *t, int64_t slice, uint16_t *scratch, uint16_t *planes) {
    const cpu_conv_blocks *d = t->d;
    const padded *y = &d->y;
    int64_t first = cpu_conv_blocks_band(d, slice), used = d->band_rows * d->pitch * y->channels;
    int64_t image = slice / d->bands * y->size[0] * y->size[1] * y->channels;
    cpu_direct_pad(y, sizeof *scratch, (const char *)t->o->second + image * (int64_t)sizeof *scratch, first,
                   first + d->band_rows, (char *)scratch);
    if (d->flat * y->channels > used)
        memset(scratch + used, 0, (size_t)(d->flat * y->channels - used) * sizeof *scratch);
    d->loops->blocks->transpose(d->flat, y->channels, scratch, planes, d->plane);
}

/* ---- Summing ---- */

/* Adds the products of `count` prepared slices, for all runs. */
static void add_slices(const cpu_conv_blocks *d, const uint16_t *planes, const uint32_t *pairs, int64_t count,
                       bool add, float *partial) {
    cpu_block b = {.a_row = d->plane,
                   .a_below = CPU_BLOCK_TILE * d->plane,
                   .a_groups = d->groups,
                   .groups = count,
                   .chunks = d->chunks,
                   .b_pair = 2 * d->pair_width,
                   .b_chunk = CPU_BLOCK_DEPTH * d->pair_width,
                   .b_group = d->pairs,
                   .c_row = d->width,
                   .tile_rows = CPU_BLOCK_TILE,
                   .add = add};
    int64_t taps = d->runs / d->size[0];
    for (int64_t run = 0; run < d->runs; run++) {
        const uint32_t *source = pairs + (run / taps * d->pitch + run % taps) * d->pair_width;
        for (int64_t column = 0; column < d->width; column += CPU_BLOCK_MAX_COLUMNS)
            for (int64_t row = 0; row < d->y_rows; row += CPU_BLOCK_MAX_COLUMNS) {
                b.a = planes + row * d->plane;
                b.b = source + column;
                b.c = partial + (run * d->y_rows + row) * d->width + column;
                b.tiles = d->y_rows - row > CPU_BLOCK_TILE ? 2 : 1;
                b.columns = (int)min_i64(CPU_BLOCK_MAX_COLUMNS, d->width - column);
                d->blocks->block(&b);
            }
    }
}

static void sum_chunk(const task *t, int64_t chunk, int worker) {
    const cpu_conv_blocks *d = t->d;
    int64_t slices = d->shape.images * d->bands, first = chunk_start(slices, d->partial_count, chunk);
    int64_t last = chunk_start(slices, d->partial_count, chunk + 1);
    char *source = cpu_conv_blocks_worker(d, t->o, worker), *planes = source + d->source_bytes;
    char *y = planes + d->planes_bytes;
    uint32_t *pairs = (uint32_t *)(y + d->y_bytes);
    float *partial = (float *)((char *)t->o->workspace + (size_t)chunk * partial_bytes(d));
    for (int64_t slice = first; slice < last; slice += d->slices_at_once) {
        int64_t count = min_i64(d->slices_at_once, last - slice);
        for (int64_t i = 0; i < count; i++) {
            prepare_x(t, slice + i, (uint16_t *)source, pairs + i * d->pairs);
            prepare_y(t, slice + i, (uint16_t *)y, (uint16_t *)planes + d->groups[i]);
        }
        add_slices(d, (const uint16_t *)planes, pairs, count, slice > first, partial);
    }
}

static void sum_chunks(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    if (t->d->blocks->begin) t->d->blocks->begin(CPU_BLOCK_TILE);
    for (int64_t chunk = first; chunk < last; chunk++) sum_chunk(t, chunk, worker);
    if (t->d->blocks->end) t->d->blocks->end();
}

/* Work item: index = y channel * runs + run. Adds a row of the partial matrices, which is a run of the filter. */
static void add_partials(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    const cpu_conv_blocks *d = t->d;
    int64_t stride = (int64_t)(partial_bytes(d) / sizeof(float));
    for (int64_t unit = first; unit < last; unit++) {
        int64_t channel = unit / d->runs, run = unit % d->runs;
        d->loops->blocks->sum(d->run_columns, d->partial_count,
                              (const float *)t->o->workspace + (run * d->y_rows + channel) * d->width, stride,
                              (uint16_t *)t->o->out + unit * d->run_columns);
    }
}

void cpu_conv_blocks_filter(const cpu_conv_blocks *d, const cpu_direct_operands *o) {
    task t = {d, o};
    tu__parallel_deal(d->partial_count, 1, sum_chunks, &t);
    tu__parallel_for(d->shape.y_channels * d->runs, 16, add_partials, &t);
}
