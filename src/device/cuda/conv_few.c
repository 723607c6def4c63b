/* First layers: y of a convolution over few channels, and its filter's gradient, by kernels of ours (kernels/conv_few.cu
 * says how).
 *
 * cuDNN fills 3 channels up to 8 in a pass of its own before it multiplies, and has few fused engines for them.
 * bench/cuda/bench_conv.c times both: with TUTTI_CONV=cudnn in the environment these are left out. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/conv.h"
#include "device/cuda/kernels/conv_few_args.h"

enum {
    MOST_CHANNELS = 4,
    OUT_TILE = 64, /* channels of y that a block makes or reads */
    THREADS = 128,
    SUM_THREADS = 256,
    SUMMED = 32,            /* results of a block of the second kernel */
    LEAST_CAPABILITY = 80,  /* its tensor cores take bf16 and tf32 */
    MOST_SHARED = 64 << 10, /* so that several blocks fit */
    FILTER_WORDS = 8 * 64,  /* of the filter in shared memory, for a step */
    FILTER_TILE = 16,       /* elements of the window that a product of the gradient sums, */
    FILTER_TILES = 5,       /* and how many of those a block does */
    Y_PITCH = 72,
    SUM_WORDS = FILTER_TILES * FILTER_TILE * 65
};

/* What differs between the two. */
static const struct side {
    int band_pixels; /* of y, at a time */
    int blocks;      /* that a multiprocessor holds */
    const char *kernel;
} sides[] = {
    [CUDA_CONV_Y] = {256, 4, "conv_few"},
    [CUDA_CONV_FILTER] = {128, 2, "conv_few_filter"},
};

struct cuda_conv_few {
    cuda_conv_side side;
    conv_few_args args; /* all but addresses */
    const cuda_function *function, *sum;
    cuda_grid grid;
    int64_t filter_elements;
};

/* Elements that a product takes along its depth: mma_word<T>::K in mma.cuh. */
static int64_t depth_of(tu_dtype dtype) {
    return dtype == TU_F32 ? 8 : 16;
}

static int64_t up(int64_t number, int64_t unit) {
    return (number + unit - 1) / unit;
}

/* The shape is one that the kernel is for; sizes are looked at when they are known. */
static bool is_first_layer(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    return c->side != CUDA_CONV_X && c->groups == 1 && c->x_channels <= MOST_CHANNELS &&
           c->y_channels % OUT_TILE == 0 && cuda_conv_has_tensor_cores(c) && w->dilation[0] == 1 &&
           w->dilation[1] == 1;
}

static bool fits(const cuda_convolution *c) {
    const int64_t limit = 1 << 20; /* of everything along an axis: products of a few stay ints */
    const tu__windows *w = &c->windows;
    for (int i = 0; i < 2; i++)
        if (c->x_size[i] > limit || c->y_size[i] > limit || w->size[i] > 64 || w->stride[i] > 64 ||
            w->pad[2 * i] > limit)
            return false;
    return c->y_channels <= limit && c->images <= INT32_MAX;
}

static conv_few_args args_of(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    const bool of_y = c->side == CUDA_CONV_Y;
    int64_t channels = c->x_channels, band_rows = sides[c->side].band_pixels / c->y_size[1];
    int64_t bands = up(c->y_size[0], band_rows ? band_rows : 1);
    band_rows = up(c->y_size[0], bands); /* alike, as far as they can be */
    bands = up(c->y_size[0], band_rows);
    int64_t patch_elements = ((c->y_size[1] - 1) * w->stride[1] + w->size[1]) * channels;
    return (conv_few_args){.relu = c->relu,
                           .x_height = (int)c->x_size[0],
                           .row_elements = (int)(c->x_size[1] * channels),
                           .y_height = (int)c->y_size[0],
                           .y_width = (int)c->y_size[1],
                           .out = (int)c->y_channels,
                           .width = cuda_divider((uint32_t)c->y_size[1]),
                           .window_rows = (int)w->size[0],
                           .window_elements = (int)(w->size[1] * channels),
                           .row_steps =
                               (int)up(w->size[1] * channels, of_y ? depth_of(c->dtype) : FILTER_TILE),
                           .row_stride = (int)w->stride[0],
                           .pixel_stride = (int)(w->stride[1] * channels),
                           .pad_rows = (int)w->pad[0],
                           .pad_elements = (int)(w->pad[2] * channels),
                           .band_rows = (int)band_rows,
                           .bands = (int)bands,
                           .band_count = c->images * bands,
                           .patch_rows = (int)((band_rows - 1) * w->stride[0] + w->size[0]),
                           .patch_elements = cuda_divider((uint32_t)patch_elements),
                           .pitch = (int)(up(patch_elements, 2) * 2)};
}

/* For y the filter, and x under a band: twice for types of two bytes, so that an element takes 4. For the filter's
 * gradient y under a band, and x; and in the end the sums. Over-reads stay inside. */
static int64_t shared_bytes(const cuda_convolution *c, const conv_few_args *a) {
    int64_t depth = depth_of(c->dtype), patch = (int64_t)a->patch_rows * a->pitch + FILTER_TILE;
    if (c->side == CUDA_CONV_Y) return (int64_t)a->window_rows * a->row_steps * FILTER_WORDS * 4 + patch * 4;
    int64_t y_rows = ((int64_t)a->band_rows * a->y_width + depth) / (depth / 8);
    int64_t bytes = y_rows * Y_PITCH * 4 + patch * (int64_t)tu_dtype_size(c->dtype);
    return bytes > SUM_WORDS * 4 ? bytes : SUM_WORDS * 4;
}

static bool is_left_out(void) {
    const char *wanted = getenv("TUTTI_CONV");
    return wanted && strcmp(wanted, "cudnn") == 0;
}

static cuda_grid grid_of(const cuda_convolution *c, const conv_few_args *a, int multiprocessors,
                         unsigned shared) {
    int64_t most = (int64_t)sides[c->side].blocks * multiprocessors;
    unsigned bands = (unsigned)(a->band_count < most ? a->band_count : most);
    unsigned channels = (unsigned)(c->y_channels / OUT_TILE);
    unsigned tiles = (unsigned)up((int64_t)a->window_rows * a->row_steps, FILTER_TILES);
    return c->side == CUDA_CONV_Y
               ? (cuda_grid){.blocks = {bands, channels}, .threads = THREADS, .shared = shared}
               : (cuda_grid){.blocks = {bands, tiles, channels}, .threads = THREADS, .shared = shared};
}

static tu_status request(tu__selection *s, const cuda_convolution *c, const conv_few_args *args,
                         unsigned shared, cuda_conv_few **few) {
    cuda_conv_few *f = *few = tu__arena_alloc(&s->arena, sizeof *f);
    if (!f) return TU_NO_MEMORY;
    *f = (cuda_conv_few){.side = c->side,
                         .args = *args,
                         .grid = grid_of(c, args, cuda_of(s)->multiprocessors, shared),
                         .filter_elements = c->y_channels * args->window_rows * args->window_elements};
    f->function = cuda_request(s, "conv_few", "%s<%s>", sides[c->side].kernel, cuda_type(c->dtype));
    if (!f->function) return TU_NO_MEMORY;
    if (c->side == CUDA_CONV_Y) return TU_OK;
    f->sum = cuda_request(s, "conv_few", "conv_few_sum<%s>", cuda_type(c->dtype));
    return f->sum ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_conv_few_new(tu__selection *s, const cuda_convolution *c, cuda_conv_few **few) {
    const cuda_device *device = cuda_of(s);
    *few = NULL;
    if (!is_first_layer(c) || !fits(c) || device->capability < LEAST_CAPABILITY || is_left_out())
        return TU_OK;
    conv_few_args args = args_of(c);
    int64_t shared = shared_bytes(c, &args);
    if (shared > MOST_SHARED || shared > device->shared_bytes) return TU_OK;
    return request(s, c, &args, (unsigned)shared, few);
}

size_t cuda_conv_few_workspace(const cuda_conv_few *f) {
    return f->sum ? f->grid.blocks[0] * (size_t)f->filter_elements * sizeof(float) : 0;
}

static tu_status run_filter(const tu__kernel *k, const cuda_conv_few *f) {
    conv_few_args a = f->args;
    a.x = k->in[0], a.y = k->in[1], a.partial = k->workspace;
    TU_TRY(cuda_launch(k, f->function, f->grid, &a));
    conv_few_sum_args sum = {.partial = k->workspace,
                             .out = k->out[0],
                             .parts = (int)f->grid.blocks[0],
                             .count = f->filter_elements};
    cuda_grid grid = {.blocks = {(unsigned)up(sum.count, SUMMED)}, .threads = SUM_THREADS};
    return cuda_launch(k, f->sum, grid, &sum);
}

tu_status cuda_conv_few_run(const tu__kernel *k, const cuda_conv_few *f) {
    if (f->side == CUDA_CONV_FILTER) return run_filter(k, f);
    conv_few_args a = f->args;
    a.x = k->in[0], a.filter = k->in[1], a.y = k->out[0];
    a.bias = k->read_count > 2 ? k->in[2] : NULL;
    return cuda_launch(k, f->function, f->grid, &a);
}
