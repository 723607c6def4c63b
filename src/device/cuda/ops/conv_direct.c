/* Host side of the direct convolution kernels in kernels/conv.cu. */
#include "device/cuda/ops/conv.h"

#include "device/cuda/kernels/conv_args.h"

enum {
    TILE = 64, /* rows and columns of the result per block, as in conv.cu */
    DEPTH = 16,
    THREADS = 256,
    MAX_GROUP_BLOCKS = 65535,
    MAX_SPLITS = 256
};

struct cuda_conv_direct {
    conv_args args; /* without addresses */
    const cuda_function *multiply, *sum;
    cuda_conv_result result;
    cuda_grid grid;
    int64_t filter_elements;
    int splits;
    bool bias;
    size_t workspace_bytes;
};

/* Rows, columns and depth of the matrix product for one group. */
static void product_shape(const cuda_convolution *c, int64_t *rows, int64_t *columns, int64_t *depth) {
    int64_t taps = c->windows.size[0] * c->windows.size[1];
    int64_t x_pixels = c->images * c->x_size[0] * c->x_size[1];
    int64_t y_pixels = c->images * c->y_size[0] * c->y_size[1];
    const int64_t products[][3] = {[CUDA_CONV_FORWARD] = {y_pixels, c->y_channels, taps * c->x_channels},
                                   [CUDA_CONV_DGRAD] = {x_pixels, c->x_channels, taps * c->y_channels},
                                   [CUDA_CONV_WGRAD] = {c->y_channels, taps * c->x_channels, y_pixels}};
    *rows = products[c->result][0], *columns = products[c->result][1], *depth = products[c->result][2];
}

/* True if all coordinates, padding included, and all counts fit into an int. */
static bool fits_int(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    const int64_t limit = INT32_MAX / 2;
    int64_t rows, columns, depth;
    for (int axis = 0; axis < 2; axis++) {
        int64_t pads = w->pad[2 * axis] + w->pad[2 * axis + 1];
        if (pads > limit || c->x_size[axis] > limit || c->x_size[axis] + pads > limit) return false;
        if (w->stride[axis] > limit || w->dilation[axis] > limit) return false;
    }
    product_shape(c, &rows, &columns, &depth);
    return rows <= limit && columns <= limit && depth <= limit && c->groups * c->x_channels <= limit &&
           c->groups * c->y_channels <= limit;
}

static conv_args args_of(const cuda_convolution *c, int64_t rows, int64_t columns, int64_t depth) {
    const tu__windows *w = &c->windows;
    const bool computes_x = c->result == CUDA_CONV_DGRAD;
    const int64_t *size = computes_x ? c->x_size : c->y_size;
    return (conv_args){
        .relu = c->relu,
        .groups = (int)c->groups,
        .rows = (int)rows,
        .columns = (int)columns,
        .depth = (int)depth,
        .split_depth = (int)depth,
        .height = cuda_fast_divmod((uint32_t)size[0]),
        .width = cuda_fast_divmod((uint32_t)size[1]),
        .channels = cuda_fast_divmod((uint32_t)(computes_x ? c->y_channels : c->x_channels)),
        .stride = {cuda_fast_divmod((uint32_t)w->stride[0]), cuda_fast_divmod((uint32_t)w->stride[1])},
        .x_size = {(int)c->x_size[0], (int)c->x_size[1]},
        .y_size = {(int)c->y_size[0], (int)c->y_size[1]},
        .filter_columns = cuda_fast_divmod((uint32_t)w->size[1]),
        .dilation = {(int)w->dilation[0], (int)w->dilation[1]},
        .pad = {(int)w->pad[0], (int)w->pad[2]},
        .x_channels = (int)c->x_channels,
        .y_channels = (int)c->y_channels};
}

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

/* Chooses splits of the depth so that there are two blocks per multiprocessor, each with some depth left to sum. */
static int choose_splits(int64_t blocks, int64_t depth, int multiprocessors) {
    int64_t needed = divide_up(2 * multiprocessors, blocks), limit = divide_up(depth, 8 * DEPTH);
    int64_t splits = needed < limit ? needed : limit;
    return (int)(splits < 1 ? 1 : splits > MAX_SPLITS ? MAX_SPLITS : splits);
}

static void plan_splits(cuda_conv_direct *d, int64_t blocks, int multiprocessors, size_t element) {
    int splits = choose_splits(blocks, d->args.depth, multiprocessors);
    d->args.split_depth = (int)(divide_up(divide_up(d->args.depth, splits), DEPTH) * DEPTH);
    d->splits = (int)divide_up(d->args.depth, d->args.split_depth); /* no split is empty */
    if (d->splits > 1) d->workspace_bytes = (size_t)d->splits * (size_t)d->filter_elements * element;
}

tu_status cuda_conv_direct_new(tu__selection *s, const cuda_convolution *c, cuda_conv_direct **direct) {
    static const char *const result_names[] = {"FORWARD", "DGRAD", "WGRAD"};
    int64_t rows, columns, depth;
    if (!fits_int(c)) return TU_UNSUPPORTED;
    product_shape(c, &rows, &columns, &depth);
    cuda_conv_direct *d = *direct = tu__arena_alloc(&s->arena, sizeof *d);
    if (!d) return TU_NO_MEMORY;
    *d = (cuda_conv_direct){.args = args_of(c, rows, columns, depth),
                            .result = c->result,
                            .splits = 1,
                            .bias = c->bias,
                            .filter_elements = c->groups * rows * columns};
    int64_t tiles = divide_up(rows, TILE) * divide_up(columns, TILE);
    if (tiles > INT32_MAX) return TU_UNSUPPORTED;
    if (c->result == CUDA_CONV_WGRAD)
        plan_splits(d, tiles * c->groups, cuda_of(s)->multiprocessors, c->dtype == TU_F64 ? 8 : 4);
    int64_t groups = c->groups < MAX_GROUP_BLOCKS ? c->groups : MAX_GROUP_BLOCKS;
    d->grid =
        (cuda_grid){.blocks = {(unsigned)tiles, (unsigned)groups, (unsigned)d->splits}, .threads = THREADS};
    d->multiply =
        cuda_request(s, "conv", "conv_direct<%s, %s>", cuda_type(c->dtype), result_names[c->result]);
    if (d->splits > 1) d->sum = cuda_request(s, "conv", "conv_sum<%s>", cuda_type(c->dtype));
    return d->multiply && (d->sum || d->splits == 1) ? TU_OK : TU_NO_MEMORY;
}

size_t cuda_conv_direct_workspace(const cuda_conv_direct *d) {
    return d->workspace_bytes;
}

tu_status cuda_conv_direct_run(const tu__kernel *k, const cuda_conv_direct *d) {
    conv_args a = d->args;
    void *const first = k->in[0], *const second = k->in[1], *const out = k->out[0];
    switch (d->result) {
    case CUDA_CONV_FORWARD: a.x = first, a.filter = second, a.y = out; break;
    case CUDA_CONV_DGRAD: a.y = first, a.filter = second, a.x = out; break;
    default: a.x = first, a.y = second, a.filter = out; break;
    }
    a.bias = d->bias ? k->in[2] : NULL;
    a.partial = d->splits > 1 ? k->workspace : NULL;
    TU_TRY(cuda_launch(k, d->multiply, d->grid, &a));
    if (d->splits == 1) return TU_OK;
    conv_sum_args sum = {
        .partial = k->workspace, .out = out, .count = d->filter_elements, .splits = d->splits};
    return cuda_launch(k, d->sum, cuda_grid_for(k, sum.count), &sum);
}
