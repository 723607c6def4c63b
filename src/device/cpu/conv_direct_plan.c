/* Direct convolution: planning of y and dx; see conv_direct.c. */
#include "device/cpu/conv_direct_plan.h"

/* ---- One axis ---- */

typedef struct axis_plan {
    int64_t phases;
    axis_phase *phase;
    int64_t before, padded_size;
} axis_plan;

static tu_status axis_new(tu__arena *arena, int64_t phases, int64_t taps, axis_plan *axis) {
    axis->phases = phases;
    axis->phase = tu__arena_alloc(arena, (size_t)phases * sizeof *axis->phase);
    int64_t *numbers = tu__arena_alloc(arena, (size_t)(phases * taps) * 2 * sizeof *numbers);
    if (!axis->phase || !numbers) return TU_NO_MEMORY;
    for (int64_t i = 0; i < phases; i++) {
        axis->phase[i].tap = numbers + 2 * i * taps;
        axis->phase[i].offset = axis->phase[i].tap + taps;
    }
    return TU_OK;
}

static tu_status plan_axis_of_y(tu__arena *arena, const cpu_convolution *c, int axis, axis_plan *plan) {
    int64_t taps = c->windows.size[axis], dilation = c->windows.dilation[axis];
    TU_TRY(axis_new(arena, 1, taps, plan));
    axis_phase *p = plan->phase;
    p->count = c->y_size[axis];
    for (p->taps = 0; p->taps < taps; p->taps++) {
        p->tap[p->taps] = p->taps;
        p->offset[p->taps] = p->taps * dilation - c->windows.pad[2 * axis];
    }
    plan->before = c->windows.pad[2 * axis];
    plan->padded_size = (c->y_size[axis] - 1) * c->windows.stride[axis] + (taps - 1) * dilation + 1;
    return TU_OK;
}

/* Pixel h of x is multiplied by tap i at pixel (h + pad - i * dilation) / stride of y, if that is an integer. Taps
 * are listed from the last to the first, so that the pixels of y ascend. */
static tu_status plan_axis_of_x(tu__arena *arena, const cpu_convolution *c, int axis, axis_plan *plan) {
    int64_t stride = c->windows.stride[axis], taps = c->windows.size[axis], low = 0, high = 1;
    TU_TRY(axis_new(arena, min_i64(stride, c->x_size[axis]), taps, plan));
    bool any = false;
    for (int64_t f = 0; f < plan->phases; f++) {
        axis_phase *p = &plan->phase[f];
        p->first = f;
        p->count = (c->x_size[axis] - f + stride - 1) / stride;
        for (int64_t i = taps - 1; i >= 0; i--) {
            int64_t place = f + c->windows.pad[2 * axis] - i * c->windows.dilation[axis];
            if (place % stride != 0) continue;
            int64_t offset = place / stride;
            p->tap[p->taps] = i;
            p->offset[p->taps++] = offset;
            low = any ? min_i64(low, offset) : offset;
            high = any ? max_i64(high, offset + p->count) : offset + p->count;
            any = true;
        }
    }
    plan->before = -low;
    plan->padded_size = high - low;
    return TU_OK;
}

/* Merges blocks that are contiguous in the image, if all can be merged into equal ones. */
static void join_blocks(phase *p, int64_t channels) {
    int64_t run = 1;
    while (run < p->blocks && p->a_blocks[run] == p->a_blocks[0] + run * channels) run++;
    if (p->blocks % run != 0) return;
    for (int64_t i = 0; i < p->blocks; i++)
        if (p->a_blocks[i] != p->a_blocks[i / run * run] + i % run * channels) return;
    for (int64_t i = 0; i < p->blocks / run; i++) p->a_blocks[i] = p->a_blocks[i * run];
    p->blocks /= run;
    p->depth *= run;
}

static tu_status plan_phase(tu__arena *arena, cpu_direct *d, const axis_phase *rows,
                            const axis_phase *columns, int64_t *tap, phase *p) {
    *p = (phase){.axis = {*rows, *columns}, .depth = d->in_channels, .k_first = *tap * d->in_channels};
    p->a_blocks =
        tu__arena_alloc(arena, (size_t)(rows->taps * (columns->taps + 1) + 1) * sizeof *p->a_blocks);
    if (!p->a_blocks) return TU_NO_MEMORY;
    for (int64_t i = 0; i < rows->taps; i++)
        for (int64_t j = 0; j < columns->taps; j++) {
            int64_t row = rows->offset[i] + d->source.before[0],
                    column = columns->offset[j] + d->source.before[1];
            p->a_blocks[p->blocks++] = (row * d->source.padded_size[1] + column) * d->source.channels;
            d->tap_order[(*tap)++] = rows->tap[i] * d->shape.windows.size[1] + columns->tap[j];
        }
    if (d->shape.groups == 1 && p->blocks > 0) join_blocks(p, d->in_channels);
    return TU_OK;
}

/* ---- Tiles that skip out-of-bounds taps ---- */

/* True if the taps of a filter row always read adjacent pixels, with enough channels. */
static bool can_skip_padding(const cpu_direct *d, const axis_plan *columns) {
    if (d->shape.groups != 1 || d->in_channels < CPU_DIRECT_UNPADDED_CHANNELS) return false;
    for (int64_t f = 0; f < columns->phases; f++)
        for (int64_t j = 1; j < columns->phase[f].taps; j++)
            if (columns->phase[f].offset[j] != columns->phase[f].offset[j - 1] + 1) return false;
    return true;
}

/* Returns the rows of the tile for which tap j is inside the source. */
static segment rows_inside(const cpu_direct *d, const axis_phase *columns, const border_tile *tile,
                           int64_t j) {
    int64_t step = d->in_stride[1], offset = columns->offset[j], row = tile->row,
            end = tile->row + tile->rows;
    while (row < end && row * step + offset < 0) row++;
    while (end > row && (end - 1) * step + offset >= d->source.size[1]) end--;
    return (segment){row - tile->row, end - row, j, 1};
}

static tu_status plan_segments(tu__arena *arena, const cpu_direct *d, const axis_phase *columns,
                               border_tile *tile) {
    tile->segments = tu__arena_alloc(arena, (size_t)(columns->taps + 1) * sizeof *tile->segments);
    if (!tile->segments) return TU_NO_MEMORY;
    segment all = {0, tile->rows, 0, 0}, *last = NULL;
    for (int64_t j = 0; j < columns->taps; j++) {
        segment p = rows_inside(d, columns, tile, j);
        if (p.rows == 0) continue;
        if (p.rows == tile->rows) {
            if (all.taps == 0) all.tap = j;
            all.taps++; /* such taps are consecutive: the rows are an interval, the offsets ascend */
        } else if (last && last->row == p.row && last->rows == p.rows && last->tap + last->taps == j) {
            last->taps++;
        } else {
            last = &tile->segments[tile->segment_count++];
            *last = p;
        }
    }
    tile->segments[tile->segment_count++] = all;
    return TU_OK;
}

static tu_status plan_tiles(tu__arena *arena, const cpu_direct *d, phase *p, int64_t index) {
    int64_t vectors = cpu_direct_panel(d, index).width / d->loops->vector_elements,
            max_rows = d->loops->max_rows[vectors];
    int64_t pixels = p->axis[1].count, count = (pixels + max_rows - 1) / max_rows;
    border_tile *tiles = tu__arena_alloc(arena, (size_t)(count + 1) * sizeof *tiles);
    if (!tiles) return TU_NO_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        tiles[i].row = chunk_start(pixels, count, i);
        tiles[i].rows = chunk_start(pixels, count, i + 1) - tiles[i].row;
        TU_TRY(plan_segments(arena, d, &p->axis[1], &tiles[i]));
    }
    p->tiles[index] = tiles;
    return TU_OK;
}

static tu_status plan_border_tiles(tu__arena *arena, cpu_direct *d) {
    for (int64_t i = 0; i < d->phase_count; i++) {
        phase *p = &d->phases[i];
        int64_t row = d->source.size[1] * d->source.channels;
        for (int64_t j = 0; j < p->axis[0].taps; j++)
            p->a_blocks[j] = (p->axis[0].offset[j] - p->axis[0].offset[0]) * row;
        p->tiles = tu__arena_alloc(arena, (size_t)d->panels * sizeof *p->tiles);
        if (!p->tiles) return TU_NO_MEMORY;
        for (int64_t j = 0; j < d->panels; j++) TU_TRY(plan_tiles(arena, d, p, j));
    }
    return TU_OK;
}

/* Chooses the rows of a work item: an image, or a part of it if there are too few images for the threads. */
static void plan_bands(cpu_direct *d) {
    int64_t rows = d->phases[0].axis[0].count, wanted = d->threads == 1 ? 1 : 4 * (int64_t)d->threads;
    d->bands = min_i64(rows, (wanted + d->shape.images - 1) / d->shape.images);
    d->band_rows = (rows + d->bands - 1) / d->bands;
    d->bands = (rows + d->band_rows - 1) / d->band_rows;
}

void cpu_direct_band_rows(const cpu_direct *d, int64_t band, int64_t *first, int64_t *last) {
    int64_t low = INT64_MAX, high = 0;
    for (int64_t i = 0; i < d->phase_count; i++) {
        const axis_phase *rows = &d->phases[i].axis[0];
        int64_t from = band * d->band_rows, to = min_i64(from + d->band_rows, rows->count);
        if (from >= to || d->phases[i].blocks == 0) continue;
        low = min_i64(low, from * d->in_stride[0] + rows->offset[0] + d->source.before[0]);
        high = max_i64(high,
                       (to - 1) * d->in_stride[0] + rows->offset[rows->taps - 1] + d->source.before[0] + 1);
    }
    *first = low < high ? low : 0;
    *last = low < high ? high : 0;
}

static tu_status plan_phases(tu__arena *arena, cpu_direct *d, const axis_plan axes[2]) {
    int64_t tap = 0;
    d->phase_count = axes[0].phases * axes[1].phases;
    d->phases = tu__arena_alloc(arena, (size_t)d->phase_count * sizeof *d->phases);
    d->tap_order = tu__arena_alloc(arena, (size_t)d->taps * sizeof *d->tap_order);
    if (!d->phases || !d->tap_order) return TU_NO_MEMORY;
    for (int64_t i = 0; i < axes[0].phases; i++)
        for (int64_t j = 0; j < axes[1].phases; j++)
            TU_TRY(plan_phase(arena, d, &axes[0].phase[i], &axes[1].phase[j], &tap,
                              &d->phases[i * axes[1].phases + j]));
    return TU_OK;
}

tu_status cpu_direct_plan_output(tu__arena *arena, cpu_direct *d) {
    const cpu_convolution *c = &d->shape;
    bool forward = d->computes == CPU_CONV_Y;
    d->in_channels = forward ? c->x_channels : c->y_channels;
    d->columns = forward ? c->y_channels : c->x_channels;
    d->k = d->taps * d->in_channels;
    d->source.channels = c->groups * d->in_channels;
    axis_plan axes[2];
    for (int i = 0; i < 2; i++) {
        TU_TRY((forward ? plan_axis_of_y : plan_axis_of_x)(arena, c, i, &axes[i]));
        d->source.size[i] = forward ? c->x_size[i] : c->y_size[i];
        d->out_size[i] = forward ? c->y_size[i] : c->x_size[i];
        d->in_stride[i] = forward ? c->windows.stride[i] : 1;
        d->out_stride[i] = forward ? 1 : c->windows.stride[i];
        d->source.before[i] = axes[i].before;
        d->source.padded_size[i] = axes[i].padded_size;
    }
    cpu_direct_plan_padding(&d->source);
    cpu_direct_plan_panels(d);
    TU_TRY(plan_phases(arena, d, axes));
    plan_bands(d);
    d->packed_bytes = aligned_bytes(c->groups * d->k * d->panel_vectors * d->loops->vector_elements,
                                    d->loops->element_bytes);
    d->skips_padding = !d->source.is_unpadded && can_skip_padding(d, &axes[1]);
    if (d->skips_padding) return plan_border_tiles(arena, d);
    int64_t max_rows = 0;
    for (int64_t b = 0; b < d->bands; b++) {
        int64_t first, last;
        cpu_direct_band_rows(d, b, &first, &last);
        max_rows = max_i64(max_rows, last - first);
    }
    d->scratch_bytes = d->source.is_unpadded ? 0
                                             : aligned_bytes(cpu_direct_padded_elements(&d->source, max_rows),
                                                             d->loops->element_bytes);
    return TU_OK;
}
