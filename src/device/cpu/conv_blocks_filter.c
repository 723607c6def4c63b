/* Convolution in bf16 by blocks: the gradient of the filter.
 *
 * k runs over the pixels of y, in the long rows of conv_blocks.c; where those have no pixel, y is zero. Rows of a are
 * channels of y: each slice of y is transposed, so that a channel's pixels lie beside each other. Columns of b are
 * channels of x under a tap: the padded source is written once as pairs of every pixel and the next, [pixels, channels],
 * and tap (i, j) is that matrix from pixel i * pitch + j on, every other row. With few channels a row of the filter is
 * taken at once, since in that matrix the channels of its taps lie beside each other too.
 *
 * Slices are added up, a few at a time in registers, in matrices [runs, y channels, run], one for each part of them; at
 * the end the matrices are added in order. There are more parts than workers, so that one who is held up has to do but
 * one; and their number depends on the width alone, and so do the bits. */
#include "device/cpu/conv_blocks_plan.h"

#include <string.h>

#include "device/cpu/isa/loops_blocks.h"

enum {
    PARTS_A_WORKER = 2,
    TOGETHER_BYTES =
        512 << 10, /* of slices added up together: they stay in the second-level cache for all taps */
    MAX_TOGETHER = 8
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
    return aligned(partial_elements(d), sizeof(float));
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
    d->plane = d->flat + 32; /* seldom a power of two, whose multiples share places in the cache */
    d->y = (padded){
        .size = {c->y_size[0], c->y_size[1]}, .channels = c->y_channels, .full = {c->y_size[0], d->pitch}};
    d->y_bytes = aligned((larger(d->flat, d->band_rows * d->pitch) + 1) * c->y_channels, sizeof(uint16_t));
    int64_t planes = d->y_rows * d->plane;
    /* Rows of b are read a whole tile wide, past the last pixel's channels. */
    int64_t pairs = round_up(pixels_of_source(d) * d->pair_width + d->width, 16);
    int64_t bytes = planes * (int64_t)sizeof(uint16_t) + pairs * (int64_t)sizeof(uint32_t);
    d->together = larger(1, smaller(MAX_TOGETHER, TOGETHER_BYTES / bytes));
    d->groups = tu__arena_alloc(arena, (size_t)d->together * sizeof *d->groups);
    if (!d->groups) return TU_NO_MEMORY;
    for (int64_t i = 0; i < d->together; i++) d->groups[i] = i * planes;
    d->pairs = pairs;
    d->planes_bytes = aligned(d->together * planes, sizeof(uint16_t));
    d->pairs_bytes = aligned(d->together * pairs, sizeof(uint32_t));
    int64_t slices = c->images * d->bands;
    d->parts = smaller(slices, d->threads > 1 ? (int64_t)PARTS_A_WORKER * d->threads : 1);
    d->shared_bytes = partial_bytes(d) * (size_t)d->parts;
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

/* ---- Adding up ---- */

/* Products of `count` prepared slices, for all runs. */
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
        for (int64_t column = 0; column < d->width; column += CPU_BLOCK_MOST)
            for (int64_t row = 0; row < d->y_rows; row += CPU_BLOCK_MOST) {
                b.a = planes + row * d->plane;
                b.b = source + column;
                b.c = partial + (run * d->y_rows + row) * d->width + column;
                b.tiles = d->y_rows - row > CPU_BLOCK_TILE ? 2 : 1;
                b.columns = (int)smaller(CPU_BLOCK_MOST, d->width - column);
                d->blocks->block(&b);
            }
    }
}

static void add_part(const task *t, int64_t part, int worker) {
    const cpu_conv_blocks *d = t->d;
    int64_t slices = d->shape.images * d->bands, first = part_start(slices, d->parts, part);
    int64_t last = part_start(slices, d->parts, part + 1);
    char *source = cpu_conv_blocks_worker(d, t->o, worker), *planes = source + d->source_bytes;
    char *y = planes + d->planes_bytes;
    uint32_t *pairs = (uint32_t *)(y + d->y_bytes);
    float *partial = (float *)((char *)t->o->workspace + (size_t)part * partial_bytes(d));
    for (int64_t slice = first; slice < last; slice += d->together) {
        int64_t count = smaller(d->together, last - slice);
        for (int64_t i = 0; i < count; i++) {
            prepare_x(t, slice + i, (uint16_t *)source, pairs + i * d->pairs);
            prepare_y(t, slice + i, (uint16_t *)y, (uint16_t *)planes + d->groups[i]);
        }
        add_slices(d, (const uint16_t *)planes, pairs, count, slice > first, partial);
    }
}

static void add_parts(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    if (t->d->blocks->begin) t->d->blocks->begin(CPU_BLOCK_TILE);
    for (int64_t part = first; part < last; part++) add_part(t, part, worker);
    if (t->d->blocks->end) t->d->blocks->end();
}

/* Units are (y channel, run): a row of the parts' matrices, whose sum is a run of the filter. */
static void join_partials(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    const cpu_conv_blocks *d = t->d;
    int64_t stride = (int64_t)(partial_bytes(d) / sizeof(float));
    for (int64_t unit = first; unit < last; unit++) {
        int64_t channel = unit / d->runs, run = unit % d->runs;
        d->loops->blocks->sum(d->run_columns, d->parts,
                              (const float *)t->o->workspace + (run * d->y_rows + channel) * d->width, stride,
                              (uint16_t *)t->o->out + unit * d->run_columns);
    }
}

void cpu_conv_blocks_filter(const cpu_conv_blocks *d, const cpu_direct_operands *o) {
    task t = {d, o};
    tu__parallel_deal(d->parts, 1, add_parts, &t);
    tu__parallel_for(d->shape.y_channels * d->runs, 16, join_partials, &t);
}
