/* Integer convolutions: division of the work.
 *
 * A unit of work is a band of rows of an image, or several small images: so many pixels of y that a panel of the
 * filter is used often enough while it is in the cache. A worker first copies the rows of x that a unit reads,
 * with their padding, unless there is nothing to pad or widen. In NHWC the kw * channels bytes under a row of the
 * filter are then contiguous, so they are one block of the tile. Then it computes panel by panel, tile by tile.
 *
 * Padded pixels contain the zero point, and zero * (sum of the weights) is subtracted from every sum: so tiles need
 * neither know the zero point nor the border. If a block does not fill its last word, the tile multiplies the bytes
 * after it by weights of zero. */
#include "device/cpu/int8_conv.h"

#include <string.h>

#include "base/parallel.h"
#include "device/cpu/ranges.h"

enum {
    SMALL_IMAGE = 128,       /* pixels of y: several such images are a unit */
    UNIT_PIXELS = 256,       /* of a unit of small images */
    MAX_BAND_PIXELS = 1024,  /* of a unit of a large image, approximately */
    MIN_BAND_PIXELS = 24,    /* if there are fewer units than threads */
    UNITS_PER_THREAD = 2,    /* at least, if possible: so that stealing can balance them */
    MAX_SCRATCH = 256 << 20, /* bytes per worker */
};

struct cpu_int8_conv {
    const struct cpu_loops_int8 *loops;
    const cpu_int8_dot *dot;
    cpu_convolution shape;
    cpu_packed_layout layout; /* of the filter */
    int32_t zero;
    int threads;

    /* x, or the copy of it: bytes of a pixel and a row, rows per image */
    bool copies;
    int64_t pixel_bytes, row_bytes, image_rows;

    /* units */
    int64_t unit_images, unit_rows, groups, bands; /* a group has up to unit_images images */
    int32_t *pixels;                               /* the byte offset of every pixel of y of a unit */

    /* k */
    int64_t blocks, block_elements, block_words;
    int64_t *block_offsets;

    /* panels: all have panel_columns columns except the last */
    int64_t panel_columns, panels, chunks; /* a chunk is a range of panels that one worker computes */

    size_t bias_bytes, scratch_bytes;
};

static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* ---- Planning ---- */

static void plan_units(cpu_int8_conv *p) {
    const int64_t *y = p->shape.y_size;
    const int64_t pixels = y[0] * y[1], units = (int64_t)p->threads * UNITS_PER_THREAD;
    p->unit_images = p->bands = 1;
    if (pixels <= SMALL_IMAGE)
        p->unit_images = max_i64(min_i64(UNIT_PIXELS / pixels, divide_up(p->shape.images, p->threads)), 1);
    else {
        p->bands = divide_up(pixels, MAX_BAND_PIXELS);
        if (p->bands * p->shape.images < units)
            p->bands = min_i64(divide_up(units, p->shape.images), max_i64(pixels / MIN_BAND_PIXELS, 1));
        p->bands = min_i64(p->bands, y[0]);
    }
    p->unit_rows = divide_up(y[0], p->bands);
    p->bands = divide_up(y[0], p->unit_rows);
    p->groups = divide_up(p->shape.images, p->unit_images);
    p->chunks =
        p->groups * p->bands >= units ? 1 : min_i64(p->panels, divide_up(units, p->groups * p->bands));
}

/* Returns the rows of x, with padding, that `rows` rows of y read. */
static int64_t rows_read(const cpu_int8_conv *p, int64_t rows) {
    const tu__windows *w = &p->shape.windows;
    return (rows - 1) * w->stride[0] + (w->size[0] - 1) * w->dilation[0] + 1;
}

static bool merges_columns(const cpu_convolution *shape) {
    return shape->windows.dilation[1] == 1;
}

int64_t cpu_int8_conv_block_bytes(const cpu_convolution *shape) {
    return (merges_columns(shape) ? shape->windows.size[1] : 1) * shape->x_channels;
}

static void plan_blocks(cpu_int8_conv *p) {
    const tu__windows *w = &p->shape.windows;
    p->blocks = merges_columns(&p->shape) ? w->size[0] : w->size[0] * w->size[1];
    p->block_elements = cpu_int8_conv_block_bytes(&p->shape);
    p->block_words = cpu_int8_block_words(p->dot, p->block_elements);
    p->layout = cpu_int8_layout(p->dot, p->blocks, p->block_elements, p->shape.y_channels, p->block_elements,
                                1, w->size[0] * w->size[1] * p->shape.x_channels);
}

static bool has_padding(const tu__windows *w) {
    return w->pad[0] || w->pad[1] || w->pad[2] || w->pad[3];
}

/* Returns false if offsets within a unit would not fit in 32 bits, or the copy would be too large. */
static bool plan_source(cpu_int8_conv *p) {
    const tu__windows *w = &p->shape.windows;
    const bool fills_words = p->block_elements % CPU_INT8_WORD == 0;
    p->copies = p->dot->element_bytes > 1 || has_padding(w) || !fills_words;
    p->pixel_bytes = p->shape.x_channels * p->dot->element_bytes;
    int64_t row_pixels = p->shape.x_size[1], unit_bytes;
    p->image_rows = p->shape.x_size[0];
    if (p->copies) {
        row_pixels += w->pad[2] + w->pad[3];
        p->image_rows = rows_read(p, p->unit_rows);
    }
    if (__builtin_mul_overflow(row_pixels, p->pixel_bytes, &p->row_bytes) ||
        __builtin_mul_overflow(p->row_bytes, p->image_rows, &unit_bytes) ||
        __builtin_mul_overflow(unit_bytes, p->unit_images, &unit_bytes))
        return false;
    if (unit_bytes > (p->copies ? MAX_SCRATCH : INT32_MAX)) return false;
    p->scratch_bytes = p->copies ? cpu_round_up_to_line((size_t)unit_bytes + CPU_INT8_WORD) : 0;
    return true;
}

static void fill_offsets(cpu_int8_conv *p) {
    const tu__windows *w = &p->shape.windows;
    int64_t next = 0;
    for (int64_t n = 0; n < p->unit_images; n++)
        for (int64_t row = 0; row < p->unit_rows; row++)
            for (int64_t column = 0; column < p->shape.y_size[1]; column++)
                p->pixels[next++] = (int32_t)((n * p->image_rows + row * w->stride[0]) * p->row_bytes +
                                              column * w->stride[1] * p->pixel_bytes);
    const int64_t columns = w->dilation[1] == 1 ? 1 : w->size[1];
    for (int64_t b = 0; b < p->blocks; b++)
        p->block_offsets[b] =
            b / columns * w->dilation[0] * p->row_bytes + b % columns * w->dilation[1] * p->pixel_bytes;
}

static void plan_panels(cpu_int8_conv *p) {
    p->panel_columns = cpu_int8_panel_columns(p->dot);
    p->panels = divide_up(p->shape.y_channels, p->panel_columns);
    p->bias_bytes = cpu_round_up_to_line((size_t)p->shape.y_channels * sizeof(int32_t));
}

tu_status cpu_int8_conv_new(tu__arena *arena, const struct cpu_loops_int8 *loops, const cpu_int8_dot *dot,
                            const cpu_convolution *shape, int32_t zero, int threads, cpu_int8_conv **plan) {
    *plan = NULL;
    if (shape->groups != 1) return TU_OK;
    cpu_int8_conv *p = tu__arena_alloc(arena, sizeof *p);
    if (!p) return TU_NO_MEMORY;
    *p = (cpu_int8_conv){.loops = loops, .dot = dot, .shape = *shape, .zero = zero, .threads = threads};
    plan_blocks(p);
    plan_panels(p);
    plan_units(p);
    if (!plan_source(p)) return TU_OK;
    const size_t pixels = (size_t)(p->unit_images * p->unit_rows * shape->y_size[1]);
    p->pixels = tu__arena_alloc(arena, pixels * sizeof *p->pixels);
    p->block_offsets = tu__arena_alloc(arena, (size_t)p->blocks * sizeof *p->block_offsets);
    if (!p->pixels || !p->block_offsets) return TU_NO_MEMORY;
    fill_offsets(p);
    *plan = p;
    return TU_OK;
}

void cpu_int8_conv_set_order(cpu_int8_conv *plan, int64_t k_step, int64_t column_step) {
    plan->layout.depth_step = k_step;
    plan->layout.column_step = column_step;
}

const cpu_packed_layout *cpu_int8_conv_layout(const cpu_int8_conv *plan) {
    return &plan->layout;
}

/* ---- Panels ---- */

typedef struct panel {
    int64_t first, columns, vectors; /* columns: without those that fill the last vector */
} panel;

static panel panel_at(const cpu_int8_conv *p, int64_t index) {
    const int64_t first = index * p->panel_columns;
    const int64_t columns = min_i64(p->panel_columns, p->shape.y_channels - first);
    return (panel){first, columns, divide_up(columns, p->dot->vector_words)};
}

static const uint32_t *panel_words(const cpu_int8_conv *p, cpu_int8_filter filter, panel at) {
    return filter.words + p->blocks * p->block_words * at.first;
}

/* ---- Running ---- */

typedef struct unit {
    int64_t first_image, images, first_row, rows;
} unit;

typedef struct task {
    const cpu_int8_conv *plan;
    const cpu_int8_operands *operands;
    cpu_requantization to; /* with the correction for the zero point in its bias */
} task;

static unit unit_at(const cpu_int8_conv *p, int64_t index) {
    const int64_t image = index / p->bands * p->unit_images, row = index % p->bands * p->unit_rows;
    return (unit){image, min_i64(p->unit_images, p->shape.images - image), row,
                  min_i64(p->unit_rows, p->shape.y_size[0] - row)};
}

/* Copies pixels to the scratch memory, widened if the tiles need it; from NULL: `count` pixels of padding. */
static char *copy_pixels(const cpu_int8_conv *p, int64_t count, const uint8_t *from, char *to) {
    const int64_t n = count * p->shape.x_channels;
    if (p->dot->element_bytes == 1) {
        if (from)
            memcpy(to, from, (size_t)n);
        else
            memset(to, p->zero, (size_t)n);
    } else if (from)
        p->loops->widen(n, from, (int16_t *)(void *)to);
    else
        for (int64_t i = 0; i < n; i++) ((int16_t *)(void *)to)[i] = (int16_t)p->zero;
    return to + count * p->pixel_bytes;
}

/* The word after the last pixel, which a tile may multiply by weights of zero, is cleared: memory checkers would report it. */
static void copy_image(const cpu_int8_conv *p, const uint8_t *image, unit u, char *to) {
    const tu__windows *w = &p->shape.windows;
    const int64_t *size = p->shape.x_size;
    const int64_t first = u.first_row * w->stride[0] - w->pad[0], count = rows_read(p, u.rows);
    for (int64_t row = first; row < first + count; row++) {
        if (row < 0 || row >= size[0]) {
            to = copy_pixels(p, w->pad[2] + size[1] + w->pad[3], NULL, to);
            continue;
        }
        to = copy_pixels(p, w->pad[2], NULL, to);
        to = copy_pixels(p, size[1], image + row * size[1] * p->shape.x_channels, to);
        to = copy_pixels(p, w->pad[3], NULL, to);
    }
    memset(to, 0, CPU_INT8_WORD);
}

/* Returns the address of the unit's first pixel, in x or in the scratch memory. */
static const char *source_of(const task *t, unit u, char *scratch) {
    const cpu_int8_conv *p = t->plan;
    const int64_t image = p->shape.x_size[0] * p->shape.x_size[1] * p->shape.x_channels;
    const uint8_t *x = t->operands->x + u.first_image * image;
    if (!p->copies) return (const char *)x + u.first_row * p->shape.windows.stride[0] * p->row_bytes;
    for (int64_t n = 0; n < u.images; n++)
        copy_image(p, x + n * image, u, scratch + n * p->image_rows * p->row_bytes);
    return scratch;
}

/* Writes the result of a tile, for pixels from `pixel` on. */
static void store_tile(const task *t, panel at, int64_t pixel, const cpu_int8_tile *tile) {
    const cpu_int8_conv *p = t->plan;
    const int64_t index = pixel * p->shape.y_channels + at.first;
    const bool is_sum = !t->operands->requantization;
    cpu_int8_rows m = {.rows = tile->rows,
                       .columns = at.columns,
                       .sums = tile->sums,
                       .sums_row = at.vectors * p->dot->vector_words,
                       .residual = t->operands->residual ? t->operands->residual + index : NULL,
                       .out = (char *)t->operands->out + index * (is_sum ? (int64_t)sizeof(int32_t) : 1),
                       .out_row = p->shape.y_channels};
    cpu_requantization to = t->to;
    to.bias += at.first;
    if (is_sum) {
        p->loops->add_bias(to.bias, &m);
        return;
    }
    to.factors += at.first;
    (m.residual ? p->loops->requantize_add : p->loops->requantize)(&to, &m);
}

/* Returns the rows of tile `i` of `tiles`, before which `done` rows have been computed: rows are divided evenly, unless
 * full tiles are better. */
static int64_t rows_of_tile(const cpu_int8_dot *dot, int64_t max_rows, int64_t rows, int64_t i, int64_t tiles,
                            int64_t done) {
    return dot->prefers_full ? min_i64(max_rows, rows - done) : rows * (i + 1) / tiles - done;
}

/* Computes all pixels of a unit for one panel. */
static void compute_panel(const task *t, unit u, panel at, const char *source) {
    const cpu_int8_conv *p = t->plan;
    _Alignas(64) int32_t sums[CPU_INT8_MAX_SUMS];
    const int64_t pixels = u.images * u.rows * p->shape.y_size[1];
    const int64_t max_rows = p->dot->max_rows[at.vectors], tiles = divide_up(pixels, max_rows);
    const int64_t first_pixel = (u.first_image * p->shape.y_size[0] + u.first_row) * p->shape.y_size[1];
    cpu_int8_tile tile = {.a = source,
                          .a_blocks = p->block_offsets,
                          .blocks = p->blocks,
                          .depth = p->block_words,
                          .b = panel_words(p, t->operands->filter, at),
                          .vectors = at.vectors,
                          .sums = sums};
    for (int64_t i = 0, pixel = 0; i < tiles; i++, pixel += tile.rows) {
        tile.rows = rows_of_tile(p->dot, max_rows, pixels, i, tiles, pixel);
        tile.a_rows = p->pixels + pixel;
        p->dot->tile(&tile);
        store_tile(t, at, first_pixel + pixel, &tile);
    }
}

/* Work item: index = unit * chunks + chunk. */
static void compute_units(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    const cpu_int8_conv *p = t->plan;
    char *scratch = (char *)t->operands->workspace + p->bias_bytes + (size_t)worker * p->scratch_bytes;
    const char *source = NULL;
    if (p->dot->begin) p->dot->begin();
    for (int64_t i = first, copied = -1; i < last; i++) {
        const int64_t index = i / p->chunks, chunk = i % p->chunks;
        const unit u = unit_at(p, index);
        if (index != copied) source = source_of(t, u, scratch);
        copied = index;
        const int64_t end = p->panels * (chunk + 1) / p->chunks;
        for (int64_t j = p->panels * chunk / p->chunks; j < end; j++)
            compute_panel(t, u, panel_at(p, j), source);
    }
    if (p->dot->end) p->dot->end();
}

size_t cpu_int8_conv_workspace(const cpu_int8_conv *plan) {
    return plan->bias_bytes + plan->scratch_bytes * (size_t)plan->threads;
}

void cpu_int8_conv_run(const cpu_int8_conv *plan, const cpu_int8_operands *operands) {
    task t = {.plan = plan, .operands = operands};
    int32_t *bias = operands->workspace;
    if (operands->requantization) t.to = *operands->requantization;
    for (int64_t j = 0; j < plan->shape.y_channels; j++)
        bias[j] = (int32_t)((uint32_t)(t.to.bias ? t.to.bias[j] : 0) -
                            (uint32_t)plan->zero * (uint32_t)operands->filter.sums[j]);
    t.to.bias = bias;
    tu__parallel_for_stealing(plan->groups * plan->bands * plan->chunks, 1, compute_units, &t);
}
