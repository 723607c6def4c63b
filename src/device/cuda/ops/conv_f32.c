/* Host side of f32 convolutions without tf32: kernels/conv_f32.cu.
 *
 * cuDNN's engines without tensor cores are old, and most of them first reorder images to channels-first.
 */
#include "device/cuda/ops/conv.h"

#include "device/cuda/kernels/conv_args.h"
#include "device/cuda/kernels/conv_f32_args.h"

enum {
    COLUMNS = 64, /* of a tile, as in conv_f32.cu */
    ROWS = 8,     /* of a tile, for each row that a thread sums */
    MAX_OWN = 8,
    DEPTH = 16,
    THREADS = 128,
    MAX_SPLITS = 64,
    BEGIN = 8,               /* fixed time of a block, in units of a stage's time */
    SUMMED_ELEMENTS = 100000 /* elements per split that the second kernel adds in the time of a stage */
};

struct cuda_conv_f32 {
    conv_f32_args args; /* without addresses */
    cuda_conv_side side;
    const cuda_function *product, *sum;
    cuda_grid grid;
    int splits;
};

static int64_t up(int64_t number, int64_t unit) {
    return (number + unit - 1) / unit;
}

/* ---- Supported convolutions ---- */

static bool in_fours(const cuda_convolution *c) {
    return c->x_channels % 4 == 0 && c->y_channels % 4 == 0;
}

/* The gradient of x with a stride is excluded: most taps would contribute nothing. */
static bool is_suited(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    bool steps = w->stride[0] > 1 || w->stride[1] > 1;
    return c->dtype == TU_F32 && c->full_f32 && c->groups == 1 &&
           (in_fours(c) || c->side == CUDA_CONV_FILTER) && !(c->side == CUDA_CONV_X && steps);
}

/* True if all element counts and padded coordinates fit into an int. */
static bool fits(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    const int64_t limit = INT32_MAX / 4, axis = 1 << 24;
    int64_t x = c->images * c->x_channels, y = c->images * c->y_channels;
    int64_t filter = c->x_channels * c->y_channels * w->size[0] * w->size[1];
    for (int i = 0; i < 2; i++) {
        if (c->x_size[i] > axis || c->y_size[i] > axis || w->stride[i] > axis) return false;
        if (w->pad[2 * i] > axis || w->pad[2 * i + 1] > axis || w->size[i] * w->dilation[i] > axis)
            return false;
        x *= c->x_size[i], y *= c->y_size[i];
        if (x > limit || y > limit) return false;
    }
    return filter <= limit;
}

/* ---- Describing ---- */

static conv_f32_args args_of(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    const bool of_x = c->side == CUDA_CONV_X;
    const int64_t *counted = of_x ? c->x_size : c->y_size, *image = of_x ? c->y_size : c->x_size;
    int64_t taps = w->size[0] * w->size[1], pixels = c->images * counted[0] * counted[1];
    const int64_t products[][3] = {[CUDA_CONV_Y] = {pixels, c->y_channels, taps * c->x_channels},
                                   [CUDA_CONV_X] = {pixels, c->x_channels, taps * c->y_channels},
                                   [CUDA_CONV_FILTER] = {taps * c->x_channels, c->y_channels, pixels}};
    conv_f32_args a = {.relu = c->relu,
                       .rows = (int)products[c->side][0],
                       .columns = (int)products[c->side][1],
                       .depth = (int)products[c->side][2],
                       .split_depth = (int)products[c->side][2],
                       .height = cuda_divider((uint32_t)counted[0]),
                       .width = cuda_divider((uint32_t)counted[1]),
                       .channels = cuda_divider((uint32_t)(of_x ? c->y_channels : c->x_channels)),
                       .filter_columns = cuda_divider((uint32_t)w->size[1]),
                       .taps = (int)taps};
    for (int i = 0; i < 2;
         i++) { /* x = y * stride + tap * dilation - pad; for the gradient of x solved for y, with stride 1 */
        a.image_size[i] = (int)image[i];
        a.scale[i] = of_x ? 1 : (int)w->stride[i];
        a.shift[i] = (int)(of_x ? w->pad[2 * i] : -w->pad[2 * i]);
        a.tap_step[i] = (int)(of_x ? -w->dilation[i] : w->dilation[i]);
    }
    return a;
}

/* ---- Grid ---- */

static int64_t tiles_of(const conv_f32_args *a, int own) {
    return up(a->rows, own * ROWS) * up(a->columns, COLUMNS);
}

/* Chooses the rows per thread. 8 is most efficient, but fewer may leave less of the GPU idle in the last wave. */
static int choose_own(const conv_f32_args *a, int multiprocessors) {
    int best = MAX_OWN;
    int64_t least = INT64_MAX;
    for (int own = MAX_OWN; own >= 4; own -= 2) {
        int64_t cost = up(tiles_of(a, own), multiprocessors) * (own + 1);
        if (cost < least) least = cost, best = own;
    }
    return best;
}

/* Chooses the number of splits of the depth with the lowest estimated time, including the final sum. */
static int choose_splits(const conv_f32_args *a, int multiprocessors) {
    int64_t tiles = tiles_of(a, MAX_OWN), stages = up(a->depth, DEPTH), least = INT64_MAX, best = 1;
    int64_t elements = (int64_t)a->rows * a->columns;
    for (int64_t splits = 1; splits <= MAX_SPLITS && splits <= stages; splits++) {
        int64_t cost = up(tiles * splits, multiprocessors) * (up(stages, splits) + BEGIN);
        if (splits > 1) cost += BEGIN + splits * elements / SUMMED_ELEMENTS;
        if (cost < least) least = cost, best = splits;
    }
    return (int)best;
}

static void split_depth(cuda_conv_f32 *f, int multiprocessors) {
    int splits = choose_splits(&f->args, multiprocessors);
    f->args.split_depth = (int)(up(up(f->args.depth, splits), DEPTH) * DEPTH);
    f->splits = (int)up(f->args.depth, f->args.split_depth); /* no split is empty */
}

static tu_status request(tu__selection *s, const cuda_convolution *c, cuda_conv_f32 *f, int own) {
    static const char *const sides[] = {"SIDE_Y", "SIDE_X", "SIDE_FILTER"};
    const char *side = in_fours(c) ? sides[f->side] : "SIDE_ANY_FILTER";
    f->product = cuda_request(s, "conv_f32", "conv_f32<%s, %d>", side, own);
    if (f->splits > 1) f->sum = cuda_request(s, "conv", "conv_sum<f32>");
    return f->product && (f->sum || f->splits == 1) ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_conv_f32_new(tu__selection *s, const cuda_convolution *c, cuda_conv_f32 **made) {
    const int multiprocessors = cuda_of(s)->multiprocessors;
    *made = NULL;
    if (!is_suited(c) || !fits(c) || cuda_conv_wanted() == CUDA_CONV_BY_DNN) return TU_OK;
    cuda_conv_f32 f = {.args = args_of(c), .side = c->side, .splits = 1};
    int own = c->side == CUDA_CONV_FILTER ? MAX_OWN : choose_own(&f.args, multiprocessors);
    if (c->side == CUDA_CONV_FILTER) split_depth(&f, multiprocessors);
    f.grid =
        (cuda_grid){.blocks = {(unsigned)tiles_of(&f.args, own), 1, (unsigned)f.splits}, .threads = THREADS};
    TU_TRY(request(s, c, &f, own));
    *made = tu__arena_alloc(&s->arena, sizeof f);
    if (!*made) return TU_NO_MEMORY;
    **made = f;
    return TU_OK;
}

/* ---- Running ---- */

static int64_t result_elements(const cuda_conv_f32 *f) {
    return (int64_t)f->args.rows * f->args.columns;
}

size_t cuda_conv_f32_workspace(const cuda_conv_f32 *f) {
    return f->splits > 1 ? (size_t)f->splits * (size_t)result_elements(f) * sizeof(float) : 0;
}

/* The first input is always the image: x and filter, y and filter, or x and y. */
tu_status cuda_conv_f32_run(const tu__kernel *k, const cuda_conv_f32 *f) {
    conv_f32_args a = f->args;
    a.image = k->in[0], a.other = k->in[1];
    a.bias = k->read_count > 2 ? k->in[2] : NULL;
    a.out = f->splits > 1 ? k->workspace : k->out[0];
    TU_TRY(cuda_launch(k, f->product, f->grid, &a));
    if (f->splits == 1) return TU_OK;
    conv_sum_args sum = {
        .partial = k->workspace, .out = k->out[0], .count = result_elements(f), .splits = f->splits};
    return cuda_launch(k, f->sum, cuda_grid_for(k, sum.count), &sum);
}
