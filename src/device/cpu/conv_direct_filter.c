/* Direct convolution: the filter gradient. Rows of a tile are adjacent taps and channels of x, k runs over the
 * pixels of y. Each worker sums its images into a matrix of its own, [k, o]; finally the matrices are added in the
 * order of the workers and transposed. If these matrices would be too large, the workers divide the taps of one
 * matrix instead, and each processes all images.
 *
 * bf16 elements are pairs (loops_gemm.h) of adjacent pixels of y: (y[2j], y[2j + 1]) is multiplied with (x[q], x[q +
 * stride]), where q depends on the tap. So y is rewritten as half as many pairs, x as a padded image with a pair for
 * every q; 4 bytes each, written once and read for all taps. The pixels of a tap are rounded up to pairs, whose
 * other half is multiplied by zero (if it is infinite, the result is NaN, as with any padding). */
#include "device/cpu/conv_direct_plan.h"

enum {
    MAX_PARTIALS = 16 << 20, /* elements of all workers' matrices together */
    BAND_BYTES = 256 << 10   /* of y processed together: it stays in the L2 cache for all taps */
};

typedef struct task {
    const cpu_direct *plan;
    const cpu_direct_operands *operands;
    int64_t partials; /* number of matrices that images were summed into */
} task;

/* ---- Planning ---- */

/* Plans the runs, which are taps and channels that are adjacent in the image: the channels of one tap, or with few
 * channels all of a filter row. The former skip pixels outside the image, the latter read a padded image. */
static tu_status plan_runs(tu__arena *arena, cpu_direct *plan) {
    const cpu_convolution *c = &plan->shape;
    const tu__windows *w = &c->windows;
    plan->skips_padding = c->groups > 1 || w->dilation[1] > 1 ||
                          c->x_channels >= CPU_DIRECT_UNPADDED_CHANNELS || w->size[1] == 1;
    plan->run_length = plan->skips_padding ? c->x_channels : w->size[1] * c->x_channels;
    plan->runs = plan->skips_padding ? plan->taps : w->size[0];
    plan->a_blocks = tu__arena_alloc(arena, (size_t)c->y_size[0] * sizeof *plan->a_blocks);
    if (!plan->a_blocks) return TU_NO_MEMORY;
    if (plan->skips_padding && !plan->loops->pair) { /* no padding is needed */
        plan->source = (padded){.channels = plan->source.channels, .is_unpadded = true};
        for (int i = 0; i < 2; i++) plan->source.size[i] = plan->source.padded_size[i] = c->x_size[i];
    }
    int64_t row = plan->source.padded_size[1] * plan->source.channels;
    for (int64_t i = 0; i < c->y_size[0]; i++) plan->a_blocks[i] = i * w->stride[0] * row;
    return TU_OK;
}

/* Returns the elements of a row of y. */
static int64_t row_elements(const cpu_direct *plan) {
    return (plan->shape.y_size[1] + plan->pixels - 1) / plan->pixels;
}

tu_status cpu_direct_plan_filter(tu__arena *arena, cpu_direct *plan) {
    const cpu_convolution *c = &plan->shape;
    int bytes = plan->loops->element_bytes;
    plan->columns = c->y_channels;
    plan->k = plan->taps * c->x_channels;
    plan->source.channels = c->groups * c->x_channels;
    for (int i = 0; i < 2; i++) {
        plan->source.size[i] = c->x_size[i];
        plan->source.before[i] = c->windows.pad[2 * i];
        plan->source.padded_size[i] =
            (c->y_size[i] - 1) * c->windows.stride[i] + (c->windows.size[i] - 1) * c->windows.dilation[i] + 1;
    }
    cpu_direct_plan_padding(&plan->source);
    if (plan->loops->pair) plan->source.is_unpadded = false;
    cpu_direct_plan_panels(plan);
    TU_TRY(plan_runs(arena, plan));
    int64_t partial = c->groups * plan->k * plan->panel_vectors * plan->loops->vector_elements;
    plan->divides_taps = partial > MAX_PARTIALS / plan->threads;
    plan->pixels = plan->loops->pair ? 2 : 1;
    /* Vectors would read past the last pixel. */
    plan->copies_y = plan->loops->pair || plan->columns % plan->loops->vector_elements != 0;
    plan->packed_bytes = aligned_bytes(partial, bytes) * (size_t)(plan->divides_taps ? 1 : plan->threads);
    plan->scratch_bytes =
        plan->source.is_unpadded
            ? 0
            : aligned_bytes(cpu_direct_padded_elements(&plan->source, plan->source.padded_size[0]), bytes);
    int64_t y_elements =
        c->y_size[0] * row_elements(plan) * c->groups * plan->panel_vectors * plan->loops->vector_elements;
    plan->y_bytes = plan->copies_y ? aligned_bytes(y_elements, bytes) : 0;
    return TU_OK;
}

/* ---- Running ---- */

/* Rewrites y as pairs of pixels, padded to vectors per group. An odd last pixel is paired with zeros. */
static void pair_y(const cpu_direct *plan, const char *y, char *to) {
    const cpu_gemm_loops *loops = plan->loops;
    const int64_t *size = plan->shape.y_size;
    int64_t width = plan->panel_vectors * loops->vector_elements,
            group = plan->columns * loops->operand_bytes;
    int64_t pixel = plan->shape.groups * group;
    for (int64_t i = 0; i < size[0] * row_elements(plan); i++) {
        int64_t row = i / row_elements(plan), column = i % row_elements(plan) * 2;
        const char *low = y + (row * size[1] + column) * pixel;
        for (int64_t g = 0; g < plan->shape.groups; g++, low += group, to += width * loops->element_bytes) {
            loops->pair(plan->columns, low, column + 1 < size[1] ? low + pixel : NULL, to);
            loops->pair(width - plan->columns, NULL, NULL, to + plan->columns * loops->element_bytes);
        }
    }
}

/* Returns an image of y whose pixels are padded to vectors per group. */
static const char *prepare_y(const cpu_direct *plan, const char *y, char *scratch) {
    if (!plan->copies_y) return y;
    int64_t width = plan->panel_vectors * plan->loops->vector_elements,
            pixels = plan->shape.y_size[0] * plan->shape.y_size[1];
    if (plan->loops->pair)
        pair_y(plan, y, scratch);
    else
        plan->loops->pack(pixels * plan->shape.groups, plan->columns, y, plan->columns, 1, scratch, width);
    return scratch;
}

/* Rewrites a row of the padded image as pairs (q, q + stride), in ranges where each half is either inside the image
 * or not. */
static void pair_row(const cpu_direct *plan, const char *row, char *to) {
    const padded *p = &plan->source;
    const int64_t ends[2] = {p->before[1] + p->size[1],
                             p->before[1] + p->size[1] - plan->shape.windows.stride[1]};
    const int64_t starts[2] = {p->before[1], p->before[1] - plan->shape.windows.stride[1]};
    for (int64_t q = 0, next; q < p->padded_size[1]; q = next) {
        const char *half[2];
        next = p->padded_size[1];
        for (int i = 0; i < 2; i++) {
            if (q < starts[i]) next = min_i64(next, starts[i]);
            if (q < ends[i]) next = min_i64(next, ends[i]);
            bool inside = row && q >= starts[i] && q < ends[i];
            half[i] = inside ? row + (q - starts[i]) * p->channels * plan->loops->operand_bytes : NULL;
        }
        plan->loops->pair((next - q) * p->channels, half[0], half[1],
                          to + q * p->channels * plan->loops->element_bytes);
    }
}

/* Returns an image of x with its padding. */
static const char *prepare_x(const cpu_direct *plan, const char *x, char *scratch) {
    const padded *p = &plan->source;
    if (!plan->loops->pair)
        return cpu_direct_pad(p, plan->loops->element_bytes, x, 0, p->padded_size[0], scratch);
    for (int64_t r = 0; r < p->padded_size[0]; r++) {
        int64_t row = r - p->before[0];
        bool inside = row >= 0 && row < p->size[0];
        pair_row(plan, inside ? x + row * p->size[1] * p->channels * plan->loops->operand_bytes : NULL,
                 scratch + r * p->padded_size[1] * p->channels * plan->loops->element_bytes);
    }
    return scratch;
}

/* Finds the pixels of y, first … last - 1 along an axis, for which a tap is inside x. */
static void pixels_inside(const cpu_convolution *c, int axis, int64_t tap, int64_t *first, int64_t *last) {
    int64_t stride = c->windows.stride[axis],
            offset = tap * c->windows.dilation[axis] - c->windows.pad[2 * axis];
    *first = offset < 0 ? (-offset + stride - 1) / stride : 0;
    *last =
        offset >= c->x_size[axis] ? 0 : min_i64(c->y_size[axis], (c->x_size[axis] - 1 - offset) / stride + 1);
    if (*first > *last) *first = *last;
}

/* Sets the operands of a run for rows `from` … to - 1 of y. */
static void set_run_operands(const cpu_direct *plan, int64_t run, int64_t from, int64_t to, int64_t y_pixel,
                             cpu_gemm_tile *t) {
    const cpu_convolution *c = &plan->shape;
    const tu__windows *w = &c->windows;
    int bytes = plan->loops->element_bytes;
    int64_t pixel = plan->source.channels;
    if (!plan->skips_padding) {
        t->a = (const char *)t->a +
               (from * w->stride[0] + run * w->dilation[0]) * plan->source.padded_size[1] * pixel * bytes;
        t->b = (const char *)t->b + from * t->b_block * bytes;
        t->blocks = to - from;
        return;
    }
    int64_t tap[2] = {run / w->size[1], run % w->size[1]}, first[2], last[2];
    for (int i = 0; i < 2; i++) {
        pixels_inside(c, i, tap[i], &first[i], &last[i]);
        if (i == 0) {
            first[i] = max_i64(first[i], from);
            last[i] = max_i64(first[i], min_i64(last[i], to));
        }
    }
    first[1] /= plan->pixels; /* from pixels to elements */
    last[1] = (last[1] + plan->pixels - 1) / plan->pixels;
    t->blocks = last[0] - first[0];
    t->depth = last[1] - first[1];
    if (t->blocks == 0 || t->depth == 0) {
        t->blocks = 0;
        return;
    }
    int64_t row = first[0] * w->stride[0] + tap[0] * w->dilation[0] - w->pad[0] + plan->source.before[0];
    int64_t column =
        first[1] * plan->pixels * w->stride[1] + tap[1] * w->dilation[1] - w->pad[2] + plan->source.before[1];
    t->a = (const char *)t->a + (row * plan->source.padded_size[1] + column) * pixel * bytes;
    t->b = (const char *)t->b + (first[0] * row_elements(plan) + first[1]) * y_pixel * bytes;
}

/* Adds rows `from` … to - 1 of an image of y to runs first … last - 1; index = (group * panels + panel) * runs +
 * run. */
static void add_rows(const cpu_direct *plan, const char *x, const char *y, int64_t from, int64_t to, bool add,
                     int64_t first, int64_t last, char *partial) {
    const cpu_convolution *c = &plan->shape;
    int bytes = plan->loops->element_bytes;
    int64_t width = plan->panel_vectors * plan->loops->vector_elements,
            y_group = plan->copies_y ? width : plan->columns;
    int64_t y_pixel = c->groups * y_group;
    for (int64_t work_item = first; work_item < last; work_item++) {
        int64_t run = work_item % plan->runs, group = work_item / plan->runs / plan->panels;
        cpu_panel p = cpu_direct_panel(plan, work_item / plan->runs % plan->panels);
        cpu_gemm_tile t = {.a_row = 1,
                           .a_step = plan->pixels * c->windows.stride[1] * plan->source.channels,
                           .a_blocks = plan->a_blocks,
                           .b_step = y_pixel,
                           .b_block = row_elements(plan) * y_pixel,
                           .blocks = c->y_size[0],
                           .depth = row_elements(plan),
                           .c_row = width,
                           .add = add,
                           .columns = p.width}; /* sums of the padding columns are never read */
        t.a = x + group * c->x_channels * bytes;
        t.b = y + (group * y_group + p.first) * bytes;
        t.c = partial + ((group * plan->k + run * plan->run_length) * width + p.first) * bytes;
        set_run_operands(plan, run, from, to, y_pixel, &t);
        cpu_multiply_rows(plan->loops, t, plan->run_length);
    }
}

/* Adds one image, band by band. */
static void add_image(const cpu_direct *plan, const char *x, const char *y, bool add, int64_t first,
                      int64_t last, char *partial) {
    const cpu_convolution *c = &plan->shape;
    int64_t row_bytes = c->y_size[1] * c->groups * c->y_channels * plan->loops->element_bytes;
    int64_t band = max_i64(1, BAND_BYTES / row_bytes);
    for (int64_t row = 0; row < c->y_size[0]; row += band)
        add_rows(plan, x, y, row, min_i64(row + band, c->y_size[0]), add || row > 0, first, last, partial);
}

static void add_images(const task *t, int64_t image_first, int64_t image_last, int64_t first_item,
                       int64_t last_item, int worker, char *partial) {
    const cpu_direct *plan = t->plan;
    const cpu_convolution *c = &plan->shape;
    int bytes = plan->loops->operand_bytes;
    char *scratch = (char *)t->operands->workspace + plan->packed_bytes +
                    (size_t)worker * (plan->scratch_bytes + plan->y_bytes);
    int64_t x_image = c->x_size[0] * c->x_size[1] * plan->source.channels * bytes;
    int64_t y_image = c->y_size[0] * c->y_size[1] * c->groups * c->y_channels * bytes;
    for (int64_t n = image_first; n < image_last; n++) {
        const char *x = prepare_x(plan, (const char *)t->operands->first + n * x_image, scratch);
        const char *y =
            prepare_y(plan, (const char *)t->operands->second + n * y_image, scratch + plan->scratch_bytes);
        add_image(plan, x, y, n > image_first, first_item, last_item, partial);
    }
}

static int64_t work_items(const cpu_direct *plan) {
    return plan->shape.groups * plan->panels * plan->runs;
}

static void sum_images(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    size_t partial_bytes = t->plan->packed_bytes / (size_t)t->plan->threads;
    add_images(t, first, last, 0, work_items(t->plan), worker,
               (char *)t->operands->workspace + (size_t)worker * partial_bytes);
}

static void sum_taps(void *context, int64_t first, int64_t last, int worker) {
    const task *t = context;
    add_images(t, 0, t->plan->shape.images, first, last, worker, t->operands->workspace);
}

/* Adds the rows of the workers' matrices and stores them transposed, as [o, k]. */
static void add_partials(void *context, int64_t first, int64_t last, int worker) {
    (void)worker;
    const task *t = context;
    const cpu_direct *plan = t->plan;
    int bytes = plan->loops->element_bytes;
    int64_t width = plan->panel_vectors * plan->loops->vector_elements;
    size_t partial_count = plan->divides_taps ? 1 : (size_t)plan->threads;
    int64_t stride = (int64_t)(plan->packed_bytes / partial_count) / bytes;
    while (first < last) {
        int64_t group = first / plan->k, row = first % plan->k, end = min_i64(plan->k, row + last - first);
        plan->loops->sum_transposed(
            t->partials, (const char *)t->operands->workspace + group * plan->k * width * bytes, stride,
            width, row, end, plan->columns,
            (char *)t->operands->out + group * plan->columns * plan->k * plan->loops->operand_bytes, plan->k);
        first += end - row;
    }
}

void cpu_direct_filter(const cpu_direct *plan, const cpu_direct_operands *operands) {
    task t = {plan, operands, plan->divides_taps ? 1 : tu__parallel_ranges(plan->shape.images, 1)};
    if (plan->divides_taps)
        tu__parallel_for(work_items(plan), 1, sum_taps, &t);
    else
        tu__parallel_for(plan->shape.images, 1, sum_images, &t);
    tu__parallel_for(plan->shape.groups * plan->k, 64, add_partials, &t);
}
