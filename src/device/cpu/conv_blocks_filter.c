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
    const cpu_conv_blocks *plan;
    const cpu_direct_operands *operands;
} task;

/* ---- Planning ---- */

static int64_t partial_elements(const cpu_conv_blocks *plan) {
    return plan->runs * plan->y_rows * plan->width;
}

static size_t partial_bytes(const cpu_conv_blocks *plan) {
    return aligned_bytes(partial_elements(plan), sizeof(float));
}

static int64_t pixels_of_source(const cpu_conv_blocks *plan) {
    return plan->flat + (plan->size[0] - 1) * plan->pitch + plan->size[1];
}

tu_status cpu_conv_blocks_plan_filter(tu__arena *arena, cpu_conv_blocks *plan) {
    const cpu_convolution *c = &plan->shape;
    const int64_t before[2] = {c->windows.pad[0], c->windows.pad[2]};
    cpu_conv_blocks_plan_slices(plan, c->x_size, c->x_channels, before, c->y_size, CPU_BLOCK_DEPTH);
    bool has_few_channels = c->x_channels < CPU_BLOCK_TILE;
    plan->runs = plan->size[0] * (has_few_channels ? 1 : plan->size[1]);
    plan->run_columns = c->x_channels * (has_few_channels ? plan->size[1] : 1);
    plan->width = round_up(plan->run_columns, CPU_BLOCK_TILE);
    plan->pair_width = has_few_channels ? c->x_channels : plan->width;
    plan->y_rows = round_up(c->y_channels, CPU_BLOCK_TILE);
    plan->chunks = plan->flat / CPU_BLOCK_DEPTH;
    plan->plane = plan->flat + 32; /* rarely a power of two, which would cause cache conflicts */
    plan->y = (padded){.size = {c->y_size[0], c->y_size[1]},
                       .channels = c->y_channels,
                       .padded_size = {c->y_size[0], plan->pitch}};
    plan->y_bytes = aligned_bytes((max_i64(plan->flat, plan->band_rows * plan->pitch) + 1) * c->y_channels,
                                  sizeof(uint16_t));
    int64_t planes = plan->y_rows * plan->plane;
    /* Rows of b are read up to a multiple of a tile, past the last pixel's channels. */
    int64_t pairs = round_up(pixels_of_source(plan) * plan->pair_width + plan->width, 16);
    int64_t bytes = planes * (int64_t)sizeof(uint16_t) + pairs * (int64_t)sizeof(uint32_t);
    plan->slices_at_once = max_i64(1, min_i64(MAX_SLICES_AT_ONCE, SLICES_AT_ONCE_BYTES / bytes));
    plan->groups = tu__arena_alloc(arena, (size_t)plan->slices_at_once * sizeof *plan->groups);
    if (!plan->groups) return TU_NO_MEMORY;
    for (int64_t i = 0; i < plan->slices_at_once; i++) plan->groups[i] = i * planes;
    plan->pairs = pairs;
    plan->planes_bytes = aligned_bytes(plan->slices_at_once * planes, sizeof(uint16_t));
    plan->pairs_bytes = aligned_bytes(plan->slices_at_once * pairs, sizeof(uint32_t));
    int64_t slices = c->images * plan->bands;
    plan->partial_count = min_i64(slices, plan->threads > 1 ? (int64_t)CHUNKS_PER_WORKER * plan->threads : 1);
    plan->shared_bytes = partial_bytes(plan) * (size_t)plan->partial_count;
    return TU_OK;
}

/* ---- Preparing a slice ---- */

static void prepare_x(const task *t, int64_t slice, uint16_t *scratch, uint32_t *pairs) {
    const cpu_conv_blocks *plan = t->plan;
    int64_t pixels = pixels_of_source(plan), used = pixels * plan->pair_width;
    cpu_conv_blocks_pad(plan, t->operands->first, slice, scratch);
    plan->loops->blocks->pair(pixels, plan->source.channels, scratch, pairs, plan->pair_width);
    memset(pairs + used, 0, (size_t)(plan->pairs - used) * sizeof *pairs);
}

static void prepare_y(const task *t, int64_t slice, uint16_t *scratch, uint16_t *planes) {
    const cpu_conv_blocks *plan = t->plan;
    const padded *y = &plan->y;
    int64_t first = cpu_conv_blocks_band(plan, slice), used = plan->band_rows * plan->pitch * y->channels;
    int64_t image = slice / plan->bands * y->size[0] * y->size[1] * y->channels;
    cpu_direct_pad(y, sizeof *scratch, (const char *)t->operands->second + image * (int64_t)sizeof *scratch,
                   first, first + plan->band_rows, (char *)scratch);
    if (plan->flat * y->channels > used)
        memset(scratch + used, 0, (size_t)(plan->flat * y->channels - used) * sizeof *scratch);
    plan->loops->blocks->transpose(plan->flat, y->channels, scratch, planes, plan->plane);
}

/* ---- Summing ---- */

/* Adds the products of `count` prepared slices, for all runs. */
static void add_slices(const cpu_conv_blocks *plan, const uint16_t *planes, const uint32_t *pairs,
                       int64_t count, bool add, float *partial) {
    cpu_block b = {.a_row = plan->plane,
                   .a_second_tile = CPU_BLOCK_TILE * plan->plane,
                   .a_groups = plan->groups,
                   .groups = count,
                   .chunks = plan->chunks,
                   .b_pair = 2 * plan->pair_width,
                   .b_chunk = CPU_BLOCK_DEPTH * plan->pair_width,
                   .b_group = plan->pairs,
                   .c_row = plan->width,
                   .tile_rows = CPU_BLOCK_TILE,
                   .add = add};
    int64_t taps = plan->runs / plan->size[0];
    for (int64_t run = 0; run < plan->runs; run++) {
        const uint32_t *source = pairs + (run / taps * plan->pitch + run % taps) * plan->pair_width;
        for (int64_t column = 0; column < plan->width; column += CPU_BLOCK_MAX_COLUMNS)
            for (int64_t row = 0; row < plan->y_rows; row += CPU_BLOCK_MAX_COLUMNS) {
                b.a = planes + row * plan->plane;
                b.b = source + column;
                b.c = partial + (run * plan->y_rows + row) * plan->width + column;
                b.tiles = plan->y_rows - row > CPU_BLOCK_TILE ? 2 : 1;
                b.columns = (int)min_i64(CPU_BLOCK_MAX_COLUMNS, plan->width - column);
                plan->blocks->block(&b);
            }
    }
}

static void sum_chunk(const task *t, int64_t chunk, int worker) {
    const cpu_conv_blocks *plan = t->plan;
    int64_t slices = plan->shape.images * plan->bands,
            first = chunk_start(slices, plan->partial_count, chunk);
    int64_t last = chunk_start(slices, plan->partial_count, chunk + 1);
    char *source = cpu_conv_blocks_worker(plan, t->operands, worker), *planes = source + plan->source_bytes;
    char *y = planes + plan->planes_bytes;
    uint32_t *pairs = (uint32_t *)(y + plan->y_bytes);
    float *partial = (float *)((char *)t->operands->workspace + (size_t)chunk * partial_bytes(plan));
    for (int64_t slice = first; slice < last; slice += plan->slices_at_once) {
        int64_t count = min_i64(plan->slices_at_once, last - slice);
        for (int64_t i = 0; i < count; i++) {
            prepare_x(t, slice + i, (uint16_t *)source, pairs + i * plan->pairs);
            prepare_y(t, slice + i, (uint16_t *)y, (uint16_t *)planes + plan->groups[i]);
        }
        add_slices(plan, (const uint16_t *)planes, pairs, count, slice > first, partial);
    }
}

static void sum_chunks(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    if (t->plan->blocks->configure) t->plan->blocks->configure(CPU_BLOCK_TILE);
    for (int64_t chunk = first; chunk < last; chunk++) sum_chunk(t, chunk, worker);
    if (t->plan->blocks->release) t->plan->blocks->release();
}

/* Work item: index = y channel * runs + run. Adds a row of the partial matrices, which is a run of the filter. */
static void add_partials(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    const cpu_conv_blocks *plan = t->plan;
    int64_t stride = (int64_t)(partial_bytes(plan) / sizeof(float));
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t channel = work_item / plan->runs, run = work_item % plan->runs;
        plan->loops->blocks->sum(plan->run_columns, plan->partial_count,
                                 (const float *)t->operands->workspace +
                                     (run * plan->y_rows + channel) * plan->width,
                                 stride, (uint16_t *)t->operands->out + work_item * plan->run_columns);
    }
}

void cpu_conv_blocks_filter(const cpu_conv_blocks *plan, const cpu_direct_operands *operands) {
    task t = {plan, operands};
    tu__parallel_for_stealing(plan->partial_count, 1, sum_chunks, &t);
    tu__parallel_for(plan->shape.y_channels * plan->runs, 16, add_partials, &t);
}
