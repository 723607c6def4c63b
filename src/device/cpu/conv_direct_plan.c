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
    bool has_taps = false;
    for (int64_t f = 0; f < plan->phases; f++) {
        axis_phase *p = &plan->phase[f];
        p->first = f;
        p->count = (c->x_size[axis] - f + stride - 1) / stride;
        for (int64_t i = taps - 1; i >= 0; i--) {
            int64_t position = f + c->windows.pad[2 * axis] - i * c->windows.dilation[axis];
            if (position % stride != 0) continue;
            int64_t offset = position / stride;
            p->tap[p->taps] = i;
            p->offset[p->taps++] = offset;
            low = has_taps ? min_i64(low, offset) : offset;
            high = has_taps ? max_i64(high, offset + p->count) : offset + p->count;
            has_taps = true;
        }
    }
    plan->before = -low;
    plan->padded_size = high - low;
    return TU_OK;
}

/* Merges blocks that are contiguous in the image, if all can be merged into equal ones. */
static void merge_blocks(phase *p, int64_t channels) {
    int64_t run = 1;
    while (run < p->blocks && p->a_blocks[run] == p->a_blocks[0] + run * channels) run++;
    if (p->blocks % run != 0) return;
    for (int64_t i = 0; i < p->blocks; i++)
        if (p->a_blocks[i] != p->a_blocks[i / run * run] + i % run * channels) return;
    for (int64_t i = 0; i < p->blocks / run; i++) p->a_blocks[i] = p->a_blocks[i * run];
    p->blocks /= run;
    p->depth *= run;
}

static tu_status plan_phase(tu__arena *arena, cpu_direct *plan, const axis_phase *rows,
                            const axis_phase *columns, int64_t *tap, phase *p) {
    *p = (phase){.axis = {*rows, *columns}, .depth = plan->in_channels, .k_first = *tap * plan->in_channels};
    p->a_blocks =
        tu__arena_alloc(arena, (size_t)(rows->taps * (columns->taps + 1) + 1) * sizeof *p->a_blocks);
    if (!p->a_blocks) return TU_NO_MEMORY;
    for (int64_t i = 0; i < rows->taps; i++)
        for (int64_t j = 0; j < columns->taps; j++) {
            int64_t row = rows->offset[i] + plan->source.before[0],
                    column = columns->offset[j] + plan->source.before[1];
            p->a_blocks[p->blocks++] = (row * plan->source.padded_size[1] + column) * plan->source.channels;
            plan->tap_order[(*tap)++] = rows->tap[i] * plan->shape.windows.size[1] + columns->tap[j];
        }
    if (plan->shape.groups == 1 && p->blocks > 0) merge_blocks(p, plan->in_channels);
    return TU_OK;
}

/* ---- Tiles that skip out-of-bounds taps ---- */

/* True if the taps of a filter row always read adjacent pixels, with enough channels. */
static bool can_skip_padding(const cpu_direct *plan, const axis_plan *columns) {
    if (plan->shape.groups != 1 || plan->in_channels < CPU_DIRECT_UNPADDED_CHANNELS) return false;
    for (int64_t f = 0; f < columns->phases; f++)
        for (int64_t j = 1; j < columns->phase[f].taps; j++)
            if (columns->phase[f].offset[j] != columns->phase[f].offset[j - 1] + 1) return false;
    return true;
}

/* Returns the rows of the tile for which tap j is inside the source. */
static segment rows_inside(const cpu_direct *plan, const axis_phase *columns, const border_tile *tile,
                           int64_t j) {
    int64_t step = plan->in_stride[1], offset = columns->offset[j], row = tile->row,
            end = tile->row + tile->rows;
    while (row < end && row * step + offset < 0) row++;
    while (end > row && (end - 1) * step + offset >= plan->source.size[1]) end--;
    return (segment){row - tile->row, end - row, j, 1};
}

static tu_status plan_segments(tu__arena *arena, const cpu_direct *plan, const axis_phase *columns,
                               border_tile *tile) {
    tile->segments = tu__arena_alloc(arena, (size_t)(columns->taps + 1) * sizeof *tile->segments);
    if (!tile->segments) return TU_NO_MEMORY;
    segment all = {0, tile->rows, 0, 0}, *last = NULL;
    for (int64_t j = 0; j < columns->taps; j++) {
        segment p = rows_inside(plan, columns, tile, j);
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

static tu_status plan_tiles(tu__arena *arena, const cpu_direct *plan, phase *p, int64_t index) {
    int64_t vectors = cpu_direct_panel(plan, index).width / plan->loops->vector_elements,
            max_rows = plan->loops->max_rows[vectors];
    int64_t pixels = p->axis[1].count, count = (pixels + max_rows - 1) / max_rows;
    border_tile *tiles = tu__arena_alloc(arena, (size_t)(count + 1) * sizeof *tiles);
    if (!tiles) return TU_NO_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        tiles[i].row = chunk_start(pixels, count, i);
        tiles[i].rows = chunk_start(pixels, count, i + 1) - tiles[i].row;
        TU_TRY(plan_segments(arena, plan, &p->axis[1], &tiles[i]));
    }
    p->tiles[index] = tiles;
    return TU_OK;
}

static tu_status plan_border_tiles(tu__arena *arena, cpu_direct *plan) {
    for (int64_t i = 0; i < plan->phase_count; i++) {
        phase *p = &plan->phases[i];
        int64_t row = plan->source.size[1] * plan->source.channels;
        for (int64_t j = 0; j < p->axis[0].taps; j++)
            p->a_blocks[j] = (p->axis[0].offset[j] - p->axis[0].offset[0]) * row;
        p->tiles = tu__arena_alloc(arena, (size_t)plan->panels * sizeof *p->tiles);
        if (!p->tiles) return TU_NO_MEMORY;
        for (int64_t j = 0; j < plan->panels; j++) TU_TRY(plan_tiles(arena, plan, p, j));
    }
    return TU_OK;
}

/* Chooses the rows of a work item: an image, or a part of it if there are too few images for the threads. */
static void plan_bands(cpu_direct *plan) {
    int64_t rows = plan->phases[0].axis[0].count,
            target_items = plan->threads == 1 ? 1 : 4 * (int64_t)plan->threads;
    plan->bands = min_i64(rows, (target_items + plan->shape.images - 1) / plan->shape.images);
    plan->band_rows = (rows + plan->bands - 1) / plan->bands;
    plan->bands = (rows + plan->band_rows - 1) / plan->band_rows;
}

void cpu_direct_band_rows(const cpu_direct *plan, int64_t band, int64_t *first, int64_t *last) {
    int64_t low = INT64_MAX, high = 0;
    for (int64_t i = 0; i < plan->phase_count; i++) {
        const axis_phase *rows = &plan->phases[i].axis[0];
        int64_t from = band * plan->band_rows, to = min_i64(from + plan->band_rows, rows->count);
        if (from >= to || plan->phases[i].blocks == 0) continue;
        low = min_i64(low, from * plan->in_stride[0] + rows->offset[0] + plan->source.before[0]);
        high = max_i64(high, (to - 1) * plan->in_stride[0] + rows->offset[rows->taps - 1] +
                                 plan->source.before[0] + 1);
    }
    *first = low < high ? low : 0;
    *last = low < high ? high : 0;
}

static tu_status plan_phases(tu__arena *arena, cpu_direct *plan, const axis_plan axes[2]) {
    int64_t tap = 0;
    plan->phase_count = axes[0].phases * axes[1].phases;
    plan->phases = tu__arena_alloc(arena, (size_t)plan->phase_count * sizeof *plan->phases);
    plan->tap_order = tu__arena_alloc(arena, (size_t)plan->taps * sizeof *plan->tap_order);
    if (!plan->phases || !plan->tap_order) return TU_NO_MEMORY;
    for (int64_t i = 0; i < axes[0].phases; i++)
        for (int64_t j = 0; j < axes[1].phases; j++)
            TU_TRY(plan_phase(arena, plan, &axes[0].phase[i], &axes[1].phase[j], &tap,
                              &plan->phases[i * axes[1].phases + j]));
    return TU_OK;
}

tu_status cpu_direct_plan_output(tu__arena *arena, cpu_direct *plan) {
    const cpu_convolution *c = &plan->shape;
    bool forward = plan->computes == CPU_CONV_Y;
    plan->in_channels = forward ? c->x_channels : c->y_channels;
    plan->columns = forward ? c->y_channels : c->x_channels;
    plan->k = plan->taps * plan->in_channels;
    plan->source.channels = c->groups * plan->in_channels;
    axis_plan axes[2];
    for (int i = 0; i < 2; i++) {
        TU_TRY((forward ? plan_axis_of_y : plan_axis_of_x)(arena, c, i, &axes[i]));
        plan->source.size[i] = forward ? c->x_size[i] : c->y_size[i];
        plan->out_size[i] = forward ? c->y_size[i] : c->x_size[i];
        plan->in_stride[i] = forward ? c->windows.stride[i] : 1;
        plan->out_stride[i] = forward ? 1 : c->windows.stride[i];
        plan->source.before[i] = axes[i].before;
        plan->source.padded_size[i] = axes[i].padded_size;
    }
    cpu_direct_plan_padding(&plan->source);
    cpu_direct_plan_panels(plan);
    TU_TRY(plan_phases(arena, plan, axes));
    plan_bands(plan);
    plan->packed_bytes = aligned_bytes(
        c->groups * plan->k * plan->panel_vectors * plan->loops->vector_elements, plan->loops->element_bytes);
    plan->skips_padding = !plan->source.is_unpadded && can_skip_padding(plan, &axes[1]);
    if (plan->skips_padding) return plan_border_tiles(arena, plan);
    int64_t max_rows = 0;
    for (int64_t b = 0; b < plan->bands; b++) {
        int64_t first, last;
        cpu_direct_band_rows(plan, b, &first, &last);
        max_rows = max_i64(max_rows, last - first);
    }
    plan->scratch_bytes =
        plan->source.is_unpadded
            ? 0
            : aligned_bytes(cpu_direct_padded_elements(&plan->source, max_rows), plan->loops->element_bytes);
    return TU_OK;
}
