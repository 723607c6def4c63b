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
    MAX_THREAD_ROWS = 8,
    DEPTH = 16,
    THREADS = 128,
    MAX_SPLITS = 64,
    BLOCK_OVERHEAD = 8,      /* fixed time of a block, in units of a stage's time */
    SUMMED_ELEMENTS = 100000 /* elements per split that the second kernel adds in the time of a stage */
};

struct cuda_conv_f32 {
    conv_f32_args args; /* without addresses */
    cuda_conv_result result;
    const cuda_function *multiply, *sum;
    cuda_grid grid;
    int splits;
};

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

/* ---- Supported convolutions ---- */

static bool has_channels_in_fours(const cuda_convolution *c) {
    return c->x_channels % 4 == 0 && c->y_channels % 4 == 0;
}

/* The gradient of x with a stride is excluded: most taps would contribute nothing. */
static bool is_supported(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    bool is_strided = w->stride[0] > 1 || w->stride[1] > 1;
    return c->dtype == TU_F32 && c->full_f32 && c->groups == 1 &&
           (has_channels_in_fours(c) || c->result == CUDA_CONV_WGRAD) &&
           !(c->result == CUDA_CONV_DGRAD && is_strided);
}

/* True if all element counts and padded coordinates fit into an int. */
static bool fits_int(const cuda_convolution *c) {
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
    const bool computes_x = c->result == CUDA_CONV_DGRAD;
    const int64_t *numbered = computes_x ? c->x_size : c->y_size, *image = computes_x ? c->y_size : c->x_size;
    int64_t taps = w->size[0] * w->size[1], pixels = c->images * numbered[0] * numbered[1];
    const int64_t products[][3] = {[CUDA_CONV_FORWARD] = {pixels, c->y_channels, taps * c->x_channels},
                                   [CUDA_CONV_DGRAD] = {pixels, c->x_channels, taps * c->y_channels},
                                   [CUDA_CONV_WGRAD] = {taps * c->x_channels, c->y_channels, pixels}};
    conv_f32_args a = {.relu = c->relu,
                       .rows = (int)products[c->result][0],
                       .columns = (int)products[c->result][1],
                       .depth = (int)products[c->result][2],
                       .split_depth = (int)products[c->result][2],
                       .height = cuda_fast_divmod((uint32_t)numbered[0]),
                       .width = cuda_fast_divmod((uint32_t)numbered[1]),
                       .channels = cuda_fast_divmod((uint32_t)(computes_x ? c->y_channels : c->x_channels)),
                       .filter_columns = cuda_fast_divmod((uint32_t)w->size[1]),
                       .taps = (int)taps};
    for (int i = 0; i < 2;
         i++) { /* x = y * stride + tap * dilation - pad; for the gradient of x solved for y, with stride 1 */
        a.image_size[i] = (int)image[i];
        a.scale[i] = computes_x ? 1 : (int)w->stride[i];
        a.shift[i] = (int)(computes_x ? w->pad[2 * i] : -w->pad[2 * i]);
        a.tap_step[i] = (int)(computes_x ? -w->dilation[i] : w->dilation[i]);
    }
    return a;
}

/* ---- Grid ---- */

static int64_t tiles_of(const conv_f32_args *a, int thread_rows) {
    return divide_up(a->rows, thread_rows * ROWS) * divide_up(a->columns, COLUMNS);
}

/* Chooses the rows per thread. 8 is most efficient, but fewer may leave less of the GPU idle in the last wave. */
static int choose_thread_rows(const conv_f32_args *a, int multiprocessors) {
    int best = MAX_THREAD_ROWS;
    int64_t min_cost = INT64_MAX;
    for (int thread_rows = MAX_THREAD_ROWS; thread_rows >= 4; thread_rows -= 2) {
        int64_t cost = divide_up(tiles_of(a, thread_rows), multiprocessors) * (thread_rows + 1);
        if (cost < min_cost) min_cost = cost, best = thread_rows;
    }
    return best;
}

/* Chooses the number of splits of the depth with the lowest estimated time, including the final sum. */
static int choose_splits(const conv_f32_args *a, int multiprocessors) {
    int64_t tiles = tiles_of(a, MAX_THREAD_ROWS), stages = divide_up(a->depth, DEPTH), min_cost = INT64_MAX,
            best = 1;
    int64_t elements = (int64_t)a->rows * a->columns;
    for (int64_t splits = 1; splits <= MAX_SPLITS && splits <= stages; splits++) {
        int64_t cost =
            divide_up(tiles * splits, multiprocessors) * (divide_up(stages, splits) + BLOCK_OVERHEAD);
        if (splits > 1) cost += BLOCK_OVERHEAD + splits * elements / SUMMED_ELEMENTS;
        if (cost < min_cost) min_cost = cost, best = splits;
    }
    return (int)best;
}

static void split_depth(cuda_conv_f32 *f, int multiprocessors) {
    int splits = choose_splits(&f->args, multiprocessors);
    f->args.split_depth = (int)(divide_up(divide_up(f->args.depth, splits), DEPTH) * DEPTH);
    f->splits = (int)divide_up(f->args.depth, f->args.split_depth); /* no split is empty */
}

static tu_status request(tu__selection *s, const cuda_convolution *c, cuda_conv_f32 *f, int thread_rows) {
    static const char *const result_names[] = {"FORWARD", "DGRAD", "WGRAD"};
    const char *result = has_channels_in_fours(c) ? result_names[f->result] : "ANY_WGRAD";
    f->multiply = cuda_request(s, "conv_f32", "conv_f32<%s, %d>", result, thread_rows);
    if (f->splits > 1) f->sum = cuda_request(s, "conv", "conv_sum<f32>");
    return f->multiply && (f->sum || f->splits == 1) ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_conv_f32_new(tu__selection *s, const cuda_convolution *c, cuda_conv_f32 **created) {
    const int multiprocessors = cuda_of(s)->multiprocessors;
    *created = NULL;
    if (!is_supported(c) || !fits_int(c) || cuda_conv_preference() == CUDA_CONV_CUDNN) return TU_OK;
    cuda_conv_f32 f = {.args = args_of(c), .result = c->result, .splits = 1};
    int thread_rows =
        c->result == CUDA_CONV_WGRAD ? MAX_THREAD_ROWS : choose_thread_rows(&f.args, multiprocessors);
    if (c->result == CUDA_CONV_WGRAD) split_depth(&f, multiprocessors);
    f.grid = (cuda_grid){.blocks = {(unsigned)tiles_of(&f.args, thread_rows), 1, (unsigned)f.splits},
                         .threads = THREADS};
    TU_TRY(request(s, c, &f, thread_rows));
    *created = tu__arena_alloc(&s->arena, sizeof f);
    if (!*created) return TU_NO_MEMORY;
    **created = f;
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
    TU_TRY(cuda_launch(k, f->multiply, f->grid, &a));
    if (f->splits == 1) return TU_OK;
    conv_sum_args sum = {
        .partial = k->workspace, .out = k->out[0], .count = result_elements(f), .splits = f->splits};
    return cuda_launch(k, f->sum, cuda_grid_for(k, sum.count), &sum);
}
