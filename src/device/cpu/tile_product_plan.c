/* Plans convolutions and matrix products with AMX tiles; see tile_product.c. */
#include "device/cpu/tile_product_plan.h"

enum {
    MAX_UNIT_PIXELS = 512,
    MAX_BAND_PIXELS = 1024,  /* a band copies the rows around it, too */
    MIN_UNIT_PIXELS = 64,    /* weights are read once per unit */
    UNIT_BYTES = 384 << 10,  /* of the pixels of a unit, if possible */
    GROUP_BYTES = 512 << 10, /* of the weights of a group of panels */
    ITEMS_PER_WORKER = 4,    /* so that stealing can balance them */
    MIN_CYCLES = 1 << 13,    /* of a worker: a few microseconds */
    LOAD_CYCLES = 32,        /* of a tile of weights from memory */
    MAX_GATHERED = 2 << 10,  /* bytes of a row; longer ones are gathered only if there are no planes */
    MAX_STRIDE = 4,          /* of planes */
    MAX_REACH = 1 << 10,     /* pixels of padding and of a dilated filter, of planes */
    MAX_PLANES = 64 << 20,   /* bytes */
    MAX_ROW = 1 << 20,       /* bytes of a row of k */
};

/* ---- Planning: the source ---- */

static int64_t filter_taps(const cpu_convolution *c) {
    return c->windows.size[0] * c->windows.size[1];
}

static int64_t channel_bytes(const cpu_convolution *c) {
    return c->x_channels * TILE_NUMBER_BYTES;
}

/* True if x is the matrix. */
static bool is_direct(const cpu_convolution *c) {
    return filter_taps(c) == 1 && c->x_size[0] == c->y_size[0] && c->x_size[1] == c->y_size[1] &&
           c->windows.stride[0] == 1 && c->windows.stride[1] == 1 && c->windows.pad[0] == 0 &&
           c->windows.pad[2] == 0 && channel_bytes(c) % CPU_TILE_ROW_BYTES == 0;
}

static int64_t gathered_bytes(const cpu_convolution *c) {
    return round_up(filter_taps(c) * channel_bytes(c), CPU_TILE_ROW_BYTES);
}

/* Returns the distance from the first to the last plane row (column) that a pixel of the result reads. */
static int64_t plane_reach(const cpu_convolution *c, int axis) {
    return (c->windows.size[axis] - 1) * c->windows.dilation[axis] / c->windows.stride[axis];
}

static bool can_use_planes(const cpu_convolution *c) {
    const tu__windows *w = &c->windows;
    for (int i = 0; i < 2; i++)
        if (w->stride[i] > MAX_STRIDE || (w->size[i] - 1) * w->dilation[i] > MAX_REACH ||
            w->pad[2 * i] > MAX_REACH || w->pad[2 * i + 1] > MAX_REACH)
            return false;
    const int64_t pitch = c->y_size[1] + plane_reach(c, 1);
    const int64_t row_bytes = pitch * round_up(channel_bytes(c), CPU_TILE_ROW_BYTES);
    const int64_t rows = divide_up(MIN_UNIT_PIXELS, pitch) + plane_reach(c, 0);
    return rows * row_bytes * w->stride[0] * w->stride[1] <= MAX_PLANES;
}

/* Estimates the cycles per pixel: a chunk of 64 bytes takes one per tile of columns, and a copy of it about as long as six. */
static bool gathering_is_faster(const cpu_convolution *c) {
    enum { COPY = 6, COPY_ROW = 15 };
    const int64_t pixels = c->y_size[0] * c->y_size[1];
    const int64_t flat = (c->y_size[0] - 1) * (c->y_size[1] + plane_reach(c, 1)) + c->y_size[1];
    const int64_t columns = divide_up(c->y_channels, CPU_TILE_COLUMNS);
    const int64_t gathered = gathered_bytes(c) / CPU_TILE_ROW_BYTES;
    const int64_t pixel = divide_up(channel_bytes(c), CPU_TILE_ROW_BYTES);
    const double by_gathering = (double)(gathered * (columns + COPY) + c->windows.size[0] * COPY_ROW);
    const double by_planes =
        (double)(filter_taps(c) * pixel * columns) * (double)round_up(flat, CPU_TILE_ROWS) / (double)pixels +
        (double)(pixel * COPY * c->windows.stride[0] * c->windows.stride[1]);
    return gathered_bytes(c) <= MAX_GATHERED && by_gathering < by_planes;
}

static cpu_tile_source source_of(const cpu_convolution *c) {
    if (is_direct(c)) return CPU_TILE_DIRECT;
    if (filter_taps(c) == 1 || !can_use_planes(c) || gathering_is_faster(c)) return CPU_TILE_GATHERED;
    return CPU_TILE_PLANES;
}

/* ---- Planning: k ---- */

/* Returns the bytes from a pixel of the result in its plane to tap `tap`. */
static int64_t tap_offset(const cpu_tile_product *p, int64_t tap) {
    const tu__windows *w = &p->shape.windows;
    const int64_t row = tap / w->size[1] * w->dilation[0], column = tap % w->size[1] * w->dilation[1];
    const int64_t plane = row % w->stride[0] * w->stride[1] + column % w->stride[1];
    return plane * p->plane_bytes + (row / w->stride[0] * p->pitch + column / w->stride[1]) * p->pixel_bytes;
}

static tu_status plan_chunks(tu__arena *arena, cpu_tile_product *p) {
    p->offsets = tu__arena_alloc(arena, (size_t)p->chunks * sizeof *p->offsets);
    if (!p->offsets) return TU_NO_MEMORY;
    for (int64_t i = 0; i < p->chunks; i++) {
        const int64_t tap = i / p->group_chunks;
        p->offsets[i] = (i - tap * p->group_chunks) * CPU_TILE_ROW_BYTES;
        if (p->source == CPU_TILE_PLANES) p->offsets[i] += tap_offset(p, tap);
    }
    return TU_OK;
}

/* ---- Planning: the weights ---- */

/* Returns pair `pair` of k of a group, for column `column`; zeros fill the tile. */
static uint32_t weight_pair(const cpu_packed_layout *l, const uint16_t *group, int64_t pair, int64_t column) {
    const uint16_t *from = group + 2 * pair * l->depth_step + column * l->column_step;
    if (column >= l->columns || 2 * pair >= l->depth) return 0;
    return from[0] | (2 * pair + 1 < l->depth ? (uint32_t)from[l->depth_step] << 16 : 0);
}

/* Packs the tiles in the order in which they are read: panels of columns; groups and their chunks; tiles of the panel. */
static void pack_tiles(const cpu_packed_layout *l, const void *source, void *packed) {
    enum { PAIRS = CPU_TILE_DEPTH / 2 };
    uint32_t *to = packed;
    const int64_t chunks = divide_up(l->depth, CPU_TILE_DEPTH);
    for (int64_t panel = 0; panel < l->columns; panel += CPU_TILE_PANEL)
        for (int64_t i = 0; i < l->groups * chunks; i++) {
            const uint16_t *group = (const uint16_t *)source + i / chunks * l->group_step;
            for (int64_t tile = panel; tile < min_i64(panel + CPU_TILE_PANEL, l->columns);
                 tile += CPU_TILE_COLUMNS)
                for (int64_t j = 0; j < PAIRS * CPU_TILE_COLUMNS; j++)
                    *to++ = weight_pair(l, group, i % chunks * PAIRS + j / CPU_TILE_COLUMNS,
                                        tile + j % CPU_TILE_COLUMNS);
        }
}

static void plan_weights(cpu_tile_product *p) {
    const cpu_convolution *c = &p->shape;
    const bool by_tap = p->source == CPU_TILE_PLANES;
    const int64_t depth = filter_taps(c) * c->x_channels;
    p->layout = (cpu_packed_layout){.pack = pack_tiles,
                                    .groups = by_tap ? filter_taps(c) : 1,
                                    .depth = by_tap ? c->x_channels : depth,
                                    .columns = c->y_channels,
                                    .group_step = c->x_channels,
                                    .depth_step = 1,
                                    .column_step = depth};
    p->group_chunks = divide_up(p->layout.depth, CPU_TILE_DEPTH);
    p->chunks = p->layout.groups * p->group_chunks;
    p->layout.bytes = (size_t)(p->chunks * divide_up(c->y_channels, CPU_TILE_COLUMNS) * CPU_TILE_BYTES);
}

/* ---- Planning: units ---- */

static int64_t all_pixels(const cpu_convolution *c) {
    return c->images * c->y_size[0] * c->y_size[1];
}

/* Returns the number of workers that are worth it. */
static int64_t useful_workers(const cpu_tile_product *p) {
    const double tiles = (double)p->chunks * (double)divide_up(p->shape.y_channels, CPU_TILE_COLUMNS);
    const double work = tiles * (double)max_i64(all_pixels(&p->shape), LOAD_CYCLES) / MIN_CYCLES;
    return work < p->threads ? 1 + (int64_t)work : p->threads;
}

/* Units of as many pixels as fit the cache, unless there would be fewer units than workers. */
static void plan_pixels(cpu_tile_product *p) {
    const int64_t pixels = all_pixels(&p->shape);
    int64_t unit = min_i64(max_i64(UNIT_BYTES / p->pixel_bytes, MIN_UNIT_PIXELS), MAX_UNIT_PIXELS);
    if (divide_up(pixels, unit) < p->workers) unit = max_i64(divide_up(pixels, p->workers), MIN_UNIT_PIXELS);
    p->unit_pixels = round_up(min_i64(unit, pixels), CPU_TILE_BLOCK);
    p->units = divide_up(pixels, p->unit_pixels);
    if (p->source == CPU_TILE_GATHERED) p->source_bytes = p->unit_pixels * p->pixel_bytes;
}

static int64_t flat_pixels(const cpu_tile_product *p, int64_t rows) {
    return (rows - 1) * p->pitch + p->shape.y_size[1];
}

/* Divides images into bands that fit the cache, and into more if there would be fewer bands than workers. */
static void plan_bands(cpu_tile_product *p) {
    const tu__windows *w = &p->shape.windows;
    const int64_t rows = p->shape.y_size[0], planes = w->stride[0] * w->stride[1];
    const int64_t row_bytes = p->pitch * p->pixel_bytes * planes;
    const int64_t least_rows = divide_up(MIN_UNIT_PIXELS, p->pitch);
    int64_t band = min_i64(UNIT_BYTES / row_bytes - plane_reach(&p->shape, 0), MAX_BAND_PIXELS / p->pitch);
    band = min_i64(max_i64(band, least_rows), rows);
    if (divide_up(rows, band) * p->shape.images < p->workers)
        band = min_i64(max_i64(divide_up(rows, divide_up(p->workers, p->shape.images)), least_rows), rows);
    p->bands = divide_up(rows, band);
    p->band_rows = divide_up(rows, p->bands);
    p->bands = divide_up(rows, p->band_rows);
    p->plane_rows = p->band_rows + plane_reach(&p->shape, 0);
    p->plane_bytes = p->plane_rows * p->pitch * p->pixel_bytes;
    p->image_bytes = planes * p->plane_bytes;
}

static void plan_planes(cpu_tile_product *p) {
    const int64_t images = p->shape.images;
    plan_bands(p);
    p->unit_images = 1;
    if (p->bands == 1) {
        const int64_t fit =
            min_i64(MAX_UNIT_PIXELS / flat_pixels(p, p->band_rows), UNIT_BYTES / p->image_bytes);
        p->unit_images = max_i64(min_i64(fit, images / p->workers), 1);
    }
    p->units = divide_up(images, p->unit_images) * p->bands;
    p->source_bytes = p->unit_images * p->image_bytes;
}

static void plan_units(cpu_tile_product *p) {
    p->workers = useful_workers(p);
    if (p->source == CPU_TILE_PLANES)
        plan_planes(p);
    else
        plan_pixels(p);
    const int64_t items = p->workers > 1 ? ITEMS_PER_WORKER * p->workers : 1;
    p->panels = divide_up(p->shape.y_channels, CPU_TILE_PANEL);
    p->column_chunks = min_i64(divide_up(items, p->units), p->panels);
    p->panel_group = max_i64(GROUP_BYTES / (p->chunks * CPU_TILES * CPU_TILE_BYTES), 1);
    /* Tiles read past the last pixel, by less than a block. */
    if (p->source != CPU_TILE_DIRECT) p->source_bytes += CPU_TILE_BLOCK * p->pixel_bytes;
    p->worker_bytes = CPU_TILE_HEADER + round_up(p->source_bytes, 64);
}

/* ---- The plan ---- */

static int64_t pixel_bytes_of(const cpu_tile_product *p) {
    const cpu_convolution *c = &p->shape;
    if (p->source == CPU_TILE_GATHERED) return gathered_bytes(c);
    return round_up(channel_bytes(c), CPU_TILE_ROW_BYTES);
}

tu_status cpu_tile_product_new(tu__arena *arena, const cpu_tiles *tiles, const struct cpu_round_loops *round,
                               const cpu_convolution *shape, int threads, cpu_tile_product **plan) {
    *plan = NULL;
    if (shape->groups != 1 || gathered_bytes(shape) > MAX_ROW) return TU_OK;
    cpu_tile_product *p = tu__arena_alloc(arena, sizeof *p);
    if (!p) return TU_NO_MEMORY;
    *p = (cpu_tile_product){.tiles = tiles,
                            .round = round,
                            .shape = *shape,
                            .threads = threads,
                            .source = source_of(shape),
                            .pitch = shape->y_size[1] + plane_reach(shape, 1)};
    p->pixel_bytes = pixel_bytes_of(p);
    plan_weights(p);
    plan_units(p);
    TU_TRY(plan_chunks(arena, p));
    *plan = p;
    return TU_OK;
}

void cpu_tile_product_set_order(cpu_tile_product *plan, int64_t k_step, int64_t column_step) {
    plan->layout.depth_step = k_step;
    plan->layout.column_step = column_step;
}

const cpu_packed_layout *cpu_tile_product_layout(const cpu_tile_product *plan) {
    return &plan->layout;
}

size_t cpu_tile_product_workspace(const cpu_tile_product *plan) {
    return (size_t)plan->threads * (size_t)plan->worker_bytes;
}
