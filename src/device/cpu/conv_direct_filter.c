/* Convolution by our own tiles: the gradient of the filter. Rows of a tile are neighbouring taps and channels of x, k
 * runs over the pixels of y. Each worker adds up its images in a matrix of its own, [k, o]; at the end the matrices are
 * added in the workers' order and transposed. Where all those matrices would be larger than the work is worth, workers
 * share out the taps of one instead, and each goes through all images.
 *
 * In bf16 elements are pairs (loops_gemm.h) of pixels beside each other in y: (y[2j], y[2j + 1]) meets (x[q], x[q +
 * stride]), where q is anywhere, according to the tap. So y is rewritten as half as many pairs, x as a padded image
 * with a pair for every q; 4 bytes each, written once and read for all taps. The pixels that a tap meets are rounded to
 * whole pairs, whose other half meets a zero (where it is infinite, that gives NaN, as under any padding). */
#include "device/cpu/conv_direct_plan.h"

enum {
    MAX_PARTIALS = 16 << 20, /* elements of all workers' matrices together */
    BAND_BYTES = 256 << 10   /* of y worked on together: it stays in the second-level cache for all taps */
};

typedef struct task {
    const cpu_direct *d;
    const cpu_direct_operands *o;
    int64_t partials; /* matrices that workers added up images in */
} task;

/* ---- Planning ---- */

/* Runs are taps and channels that are neighbours in the image: a tap's channels, or with few channels all of a row of
 * the filter; the former meet the pixels that lie inside the image alone, the latter a padded image. */
static tu_status plan_runs(tu__arena *arena, cpu_direct *d) {
    const cpu_convolution *c = &d->shape;
    const tu__windows *w = &c->windows;
    d->exact =
        c->groups > 1 || w->dilation[1] > 1 || c->x_channels >= CPU_DIRECT_EXACT_CHANNELS || w->size[1] == 1;
    d->run_length = d->exact ? c->x_channels : w->size[1] * c->x_channels;
    d->runs = d->exact ? d->taps : w->size[0];
    d->a_blocks = tu__arena_alloc(arena, (size_t)c->y_size[0] * sizeof *d->a_blocks);
    if (!d->a_blocks) return TU_NO_MEMORY;
    if (d->exact && !d->loops->pair) { /* as if there were no padding */
        d->source = (padded){.channels = d->source.channels, .as_is = true};
        for (int i = 0; i < 2; i++) d->source.size[i] = d->source.full[i] = c->x_size[i];
    }
    int64_t row = d->source.full[1] * d->source.channels;
    for (int64_t i = 0; i < c->y_size[0]; i++) d->a_blocks[i] = i * w->stride[0] * row;
    return TU_OK;
}

/* Of a row of y. */
static int64_t row_elements(const cpu_direct *d) {
    return (d->shape.y_size[1] + d->pixels - 1) / d->pixels;
}

tu_status cpu_direct_plan_filter(tu__arena *arena, cpu_direct *d) {
    const cpu_convolution *c = &d->shape;
    int bytes = d->loops->bytes;
    d->columns = c->y_channels;
    d->k = d->taps * c->x_channels;
    d->source.channels = c->groups * c->x_channels;
    for (int i = 0; i < 2; i++) {
        d->source.size[i] = c->x_size[i];
        d->source.before[i] = c->windows.pad[2 * i];
        d->source.full[i] =
            (c->y_size[i] - 1) * c->windows.stride[i] + (c->windows.size[i] - 1) * c->windows.dilation[i] + 1;
    }
    cpu_direct_plan_padding(&d->source);
    if (d->loops->pair) d->source.as_is = false;
    cpu_direct_plan_panels(d);
    TU_TRY(plan_runs(arena, d));
    int64_t partial = c->groups * d->k * d->panel_vectors * d->loops->vector;
    d->shares_taps = partial > MAX_PARTIALS / d->threads;
    d->pixels = d->loops->pair ? 2 : 1;
    d->copies_y =
        d->loops->pair || d->columns % d->loops->vector != 0; /* vectors would reach past the last pixel */
    d->packed_bytes = aligned(partial, bytes) * (size_t)(d->shares_taps ? 1 : d->threads);
    d->scratch_bytes =
        d->source.as_is ? 0 : aligned(cpu_direct_padded_elements(&d->source, d->source.full[0]), bytes);
    int64_t y_elements = c->y_size[0] * row_elements(d) * c->groups * d->panel_vectors * d->loops->vector;
    d->y_bytes = d->copies_y ? aligned(y_elements, bytes) : 0;
    return TU_OK;
}

/* ---- Running ---- */

/* Pixels of y as pairs, widened to whole vectors for each group. A last pixel by itself is paired with zeros. */
static void pair_y(const cpu_direct *d, const char *y, char *to) {
    const cpu_gemm_loops *loops = d->loops;
    const int64_t *size = d->shape.y_size;
    int64_t width = d->panel_vectors * loops->vector, group = d->columns * loops->operand_bytes;
    int64_t pixel = d->shape.groups * group;
    for (int64_t i = 0; i < size[0] * row_elements(d); i++) {
        int64_t row = i / row_elements(d), column = i % row_elements(d) * 2;
        const char *low = y + (row * size[1] + column) * pixel;
        for (int64_t g = 0; g < d->shape.groups; g++, low += group, to += width * loops->bytes) {
            loops->pair(d->columns, low, column + 1 < size[1] ? low + pixel : NULL, to);
            loops->pair(width - d->columns, NULL, NULL, to + d->columns * loops->bytes);
        }
    }
}

/* An image of y whose pixels are widened to whole vectors for each group. */
static const char *prepare_y(const cpu_direct *d, const char *y, char *scratch) {
    if (!d->copies_y) return y;
    int64_t width = d->panel_vectors * d->loops->vector, pixels = d->shape.y_size[0] * d->shape.y_size[1];
    if (d->loops->pair)
        pair_y(d, y, scratch);
    else
        d->loops->pack(pixels * d->shape.groups, d->columns, y, d->columns, 1, scratch, width);
    return scratch;
}

/* A row of the padded image as pairs (q, q + stride), in stretches in which each half is inside the image or not. */
static void pair_row(const cpu_direct *d, const char *row, char *to) {
    const padded *p = &d->source;
    const int64_t ends[2] = {p->before[1] + p->size[1],
                             p->before[1] + p->size[1] - d->shape.windows.stride[1]};
    const int64_t starts[2] = {p->before[1], p->before[1] - d->shape.windows.stride[1]};
    for (int64_t q = 0, next; q < p->full[1]; q = next) {
        const char *half[2];
        next = p->full[1];
        for (int i = 0; i < 2; i++) {
            if (q < starts[i]) next = smaller(next, starts[i]);
            if (q < ends[i]) next = smaller(next, ends[i]);
            bool inside = row && q >= starts[i] && q < ends[i];
            half[i] = inside ? row + (q - starts[i]) * p->channels * d->loops->operand_bytes : NULL;
        }
        d->loops->pair((next - q) * p->channels, half[0], half[1], to + q * p->channels * d->loops->bytes);
    }
}

/* An image of x with its padding. */
static const char *prepare_x(const cpu_direct *d, const char *x, char *scratch) {
    const padded *p = &d->source;
    if (!d->loops->pair) return cpu_direct_pad(p, d->loops->bytes, x, 0, p->full[0], scratch);
    for (int64_t r = 0; r < p->full[0]; r++) {
        int64_t row = r - p->before[0];
        bool inside = row >= 0 && row < p->size[0];
        pair_row(d, inside ? x + row * p->size[1] * p->channels * d->loops->operand_bytes : NULL,
                 scratch + r * p->full[1] * p->channels * d->loops->bytes);
    }
    return scratch;
}

/* Pixels of y, first … last - 1 along an axis, for which a tap lies inside x. */
static void pixels_inside(const cpu_convolution *c, int axis, int64_t tap, int64_t *first, int64_t *last) {
    int64_t stride = c->windows.stride[axis], at = tap * c->windows.dilation[axis] - c->windows.pad[2 * axis];
    *first = at < 0 ? (-at + stride - 1) / stride : 0;
    *last = at >= c->x_size[axis] ? 0 : smaller(c->y_size[axis], (c->x_size[axis] - 1 - at) / stride + 1);
    if (*first > *last) *first = *last;
}

/* Where a run meets x and rows `from` … to - 1 of y. */
static void place_run(const cpu_direct *d, int64_t run, int64_t from, int64_t to, int64_t y_pixel,
                      cpu_gemm_tile *t) {
    const cpu_convolution *c = &d->shape;
    const tu__windows *w = &c->windows;
    int bytes = d->loops->bytes;
    int64_t pixel = d->source.channels;
    if (!d->exact) {
        t->a = (const char *)t->a +
               (from * w->stride[0] + run * w->dilation[0]) * d->source.full[1] * pixel * bytes;
        t->b = (const char *)t->b + from * t->b_block * bytes;
        t->blocks = to - from;
        return;
    }
    int64_t tap[2] = {run / w->size[1], run % w->size[1]}, first[2], last[2];
    for (int i = 0; i < 2; i++) {
        pixels_inside(c, i, tap[i], &first[i], &last[i]);
        if (i == 0) {
            first[i] = larger(first[i], from);
            last[i] = larger(first[i], smaller(last[i], to));
        }
    }
    first[1] /= d->pixels; /* elements from here on */
    last[1] = (last[1] + d->pixels - 1) / d->pixels;
    t->blocks = last[0] - first[0];
    t->depth = last[1] - first[1];
    if (t->blocks == 0 || t->depth == 0) {
        t->blocks = 0;
        return;
    }
    int64_t row = first[0] * w->stride[0] + tap[0] * w->dilation[0] - w->pad[0] + d->source.before[0];
    int64_t column =
        first[1] * d->pixels * w->stride[1] + tap[1] * w->dilation[1] - w->pad[2] + d->source.before[1];
    t->a = (const char *)t->a + (row * d->source.full[1] + column) * pixel * bytes;
    t->b = (const char *)t->b + (first[0] * row_elements(d) + first[1]) * y_pixel * bytes;
}

/* Adds rows `from` … to - 1 of an image of y to the runs first … last - 1, counted through (group, panel, run). */
static void add_rows(const cpu_direct *d, const char *x, const char *y, int64_t from, int64_t to, bool add,
                     int64_t first, int64_t last, char *partial) {
    const cpu_convolution *c = &d->shape;
    int bytes = d->loops->bytes;
    int64_t width = d->panel_vectors * d->loops->vector, y_group = d->copies_y ? width : d->columns;
    int64_t y_pixel = c->groups * y_group;
    for (int64_t unit = first; unit < last; unit++) {
        int64_t run = unit % d->runs, group = unit / d->runs / d->panels;
        panel p = cpu_direct_panel(d, unit / d->runs % d->panels);
        cpu_gemm_tile t = {.a_row = 1,
                           .a_step = d->pixels * c->windows.stride[1] * d->source.channels,
                           .a_blocks = d->a_blocks,
                           .b_step = y_pixel,
                           .b_block = row_elements(d) * y_pixel,
                           .blocks = c->y_size[0],
                           .depth = row_elements(d),
                           .c_row = width,
                           .add = add,
                           .columns = p.width}; /* sums of the widening are never read */
        t.a = x + group * c->x_channels * bytes;
        t.b = y + (group * y_group + p.first) * bytes;
        t.c = partial + ((group * d->k + run * d->run_length) * width + p.first) * bytes;
        place_run(d, run, from, to, y_pixel, &t);
        cpu_direct_rows(d->loops, t, d->run_length);
    }
}

/* Adds one image, band by band. */
static void add_image(const cpu_direct *d, const char *x, const char *y, bool add, int64_t first,
                      int64_t last, char *partial) {
    const cpu_convolution *c = &d->shape;
    int64_t row_bytes = c->y_size[1] * c->groups * c->y_channels * d->loops->bytes;
    int64_t band = larger(1, BAND_BYTES / row_bytes);
    for (int64_t row = 0; row < c->y_size[0]; row += band)
        add_rows(d, x, y, row, smaller(row + band, c->y_size[0]), add || row > 0, first, last, partial);
}

static void add_images(const task *t, int64_t image_first, int64_t image_last, int64_t unit_first,
                       int64_t unit_last, int worker, char *partial) {
    const cpu_direct *d = t->d;
    const cpu_convolution *c = &d->shape;
    int bytes = d->loops->operand_bytes;
    char *scratch =
        (char *)t->o->workspace + d->packed_bytes + (size_t)worker * (d->scratch_bytes + d->y_bytes);
    int64_t x_image = c->x_size[0] * c->x_size[1] * d->source.channels * bytes;
    int64_t y_image = c->y_size[0] * c->y_size[1] * c->groups * c->y_channels * bytes;
    for (int64_t n = image_first; n < image_last; n++) {
        const char *x = prepare_x(d, (const char *)t->o->first + n * x_image, scratch);
        const char *y = prepare_y(d, (const char *)t->o->second + n * y_image, scratch + d->scratch_bytes);
        add_image(d, x, y, n > image_first, unit_first, unit_last, partial);
    }
}

static int64_t units_of_filter(const cpu_direct *d) {
    return d->shape.groups * d->panels * d->runs;
}

static void add_own_images(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    size_t partial_bytes = t->d->packed_bytes / (size_t)t->d->threads;
    add_images(t, first, last, 0, units_of_filter(t->d), worker,
               (char *)t->o->workspace + (size_t)worker * partial_bytes);
}

static void add_own_taps(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    add_images(t, 0, t->d->shape.images, first, last, worker, t->o->workspace);
}

/* Rows of the matrices that the workers left, added up and laid out as [o, k]. */
static void join_partials(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    const cpu_direct *d = t->d;
    int bytes = d->loops->bytes;
    int64_t width = d->panel_vectors * d->loops->vector;
    size_t parts = d->shares_taps ? 1 : (size_t)d->threads;
    int64_t stride = (int64_t)(d->packed_bytes / parts) / bytes;
    while (first < last) {
        int64_t group = first / d->k, row = first % d->k, end = smaller(d->k, row + last - first);
        d->loops->sum_transposed(
            t->partials, (const char *)t->o->workspace + group * d->k * width * bytes, stride, width, row,
            end, d->columns, (char *)t->o->out + group * d->columns * d->k * d->loops->operand_bytes, d->k);
        first += end - row;
    }
}

void cpu_direct_filter(const cpu_direct *d, const cpu_direct_operands *operands) {
    task t = {d, operands, d->shares_taps ? 1 : tu__parallel_ranges(d->shape.images, 1)};
    if (d->shares_taps)
        tu__parallel_for(units_of_filter(d), 1, add_own_taps, &t);
    else
        tu__parallel_for(d->shape.images, 1, add_own_images, &t);
    tu__parallel_for(d->shape.groups * d->k, 64, join_partials, &t);
}
