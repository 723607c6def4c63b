/* Host side of convolutions with many results on GPUs of compute capability 9.0: kernels/conv_wide.cu.
 *
 * Used in models wherever its estimated time is below those of conv_small.c and of libraries, which need a pass over the result
 * for bias, residual and relu, or a second kernel for NaN. The number of channels of a tile, and of the blocks that share its
 * depth, are those with the least estimate.
 *
 * bench/inference/bench_inference.c prints the time of each convolution. To compare: TUTTI_CONV=wide uses this kernel wherever
 * it is supported, TUTTI_CONV="wide 128x64/4" with these tiles and blocks where that is possible, TUTTI_CONV=narrow nowhere.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/ops/conv.h"

#include "device/cuda/kernels/conv_wide_args.h"

enum {
    ROWS = 128, /* of a tile, as in conv_wide.cu */
    DEPTH = 64,
    THREADS = 256,
    PAD = 8,
    CAPABILITY = 90, /* of wgmma; later GPUs lack it */
    MAX_SPLITS = 8   /* blocks of a cluster that every GPU with clusters supports */
};

typedef struct division {
    int columns, splits;
} division;

struct cuda_conv_wide {
    conv_wide_args args; /* without addresses */
    const cuda_function *function;
    cuda_grid grid;
    bool bias, residual;
    division division;
};

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

/* ---- Supported convolutions ---- */

/* True if counts and padded coordinates fit into an int, and 16-byte words of x are numbered in 32 bits. */
static bool fits_int(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    const int64_t limit = INT32_MAX / 4, axis = 1 << 20;
    for (int i = 0; i < 2; i++)
        if (c->x_size[i] > axis || c->y_size[i] > axis || w->stride[i] > axis || w->pad[2 * i] > axis ||
            w->size[i] * w->dilation[i] > axis)
            return false;
    return c->x_channels <= axis && c->y_channels <= axis && cuda_conv_pixels(c) <= limit &&
           c->images <= UINT32_MAX / (c->x_size[0] * c->x_size[1]) / (c->x_channels / 8);
}

static bool is_supported(const cuda_convolution *c, int capability) {
    return capability == CAPABILITY && c->result == CUDA_CONV_FORWARD && c->groups == 1 &&
           (c->dtype == TU_BF16 || c->dtype == TU_F16) && c->x_channels % DEPTH == 0 &&
           c->y_channels % 64 == 0 && c->windows.size[0] * c->windows.size[1] <= CONV_WIDE_TAPS &&
           fits_int(c);
}

/* ---- Estimates ---- */

/* Rates and times on an H200. `tile_flops` and `load` are those of a multiprocessor, `l2` and `memory` of all. */
static const struct {
    double start;                         /* s, of a kernel: first loads, last stores */
    double tile_flops_64, tile_flops_128; /* FLOP/s */
    double load;       /* bytes/s from the L2 cache, of one multiprocessor while others are idle */
    double l2, memory; /* bytes/s */
    double exchange;   /* s, in which the blocks of a cluster meet */
    double reuse;      /* part of the rows of x that the L1 cache lacks when a tap follows another */
} rates = {.start = 4.5e-6,
           .tile_flops_64 = 3.6e12,
           .tile_flops_128 = 5e12,
           .load = 1e11,
           .l2 = 5.5e12,
           .memory = 3.7e12,
           .exchange = 1.2e-6,
           .reuse = 0.35};

static int64_t steps_of(const cuda_convolution *c) {
    return c->windows.size[0] * c->windows.size[1] * c->x_channels / DEPTH;
}

static double memory_bytes(const cuda_convolution *c) {
    const double taps = (double)(c->windows.size[0] * c->windows.size[1]),
                 pixels = (double)cuda_conv_pixels(c);
    const double x = (double)(c->images * c->x_size[0] * c->x_size[1]);
    const double channels = (double)c->y_channels, depth = taps * (double)c->x_channels;
    return 2 *
           (fmin(x, taps * pixels) * (double)c->x_channels + channels * (depth + pixels * (1 + c->residual)));
}

/* Returns the estimated seconds. */
static double estimate(const cuda_convolution *c, division d, int multiprocessors) {
    const bool has_taps = c->windows.size[0] * c->windows.size[1] > 1;
    const double tiles = (double)(divide_up(cuda_conv_pixels(c), ROWS) * (c->y_channels / d.columns));
    const double steps = (double)divide_up(steps_of(c), d.splits), blocks = tiles * d.splits;
    const double busiest = ceil(blocks / multiprocessors);
    const double step_bytes = 2 * DEPTH * (d.columns + ROWS * (has_taps ? rates.reuse : 1));
    const double step_flops = 2.0 * ROWS * d.columns * DEPTH;
    const double products =
        busiest * steps * step_flops / (d.columns == 64 ? rates.tile_flops_64 : rates.tile_flops_128);
    const double results = tiles * 2 * ROWS * d.columns * (1 + c->residual);
    const double sums = d.splits > 1 ? 4.0 * ROWS * d.columns * blocks : 0;
    const double l2 = (blocks * steps * step_bytes + results + sums) / rates.l2;
    const double load = busiest * steps * step_bytes / rates.load;
    const double busy = fmax(fmax(products, load), fmax(l2, memory_bytes(c) / rates.memory));
    return rates.start + busy + (d.splits > 1 ? rates.exchange : 0);
}

static bool is_possible(const cuda_convolution *c, division d) {
    return (d.columns == 64 || d.columns == 128) && c->y_channels % d.columns == 0 &&
           (d.splits == 1 || d.splits == 2 || d.splits == 4 || d.splits == MAX_SPLITS) &&
           d.splits <= steps_of(c);
}

/* Returns what TUTTI_CONV forces, or else the division with the least estimate. */
static division choose_division(const cuda_convolution *c, int multiprocessors, double *seconds) {
    const char *preference = getenv("TUTTI_CONV");
    division best = {64, 1}, forced;
    int rows;
    *seconds = estimate(c, best, multiprocessors);
    if (preference && sscanf(preference, "wide %dx%d/%d", &rows, &forced.columns, &forced.splits) == 3 &&
        is_possible(c, forced))
        return forced;
    for (int columns = 64; columns <= 128; columns *= 2)
        for (int splits = 1; splits <= MAX_SPLITS; splits *= 2) {
            const division d = {columns, splits};
            if (!is_possible(c, d) || estimate(c, d, multiprocessors) >= *seconds) continue;
            best = d, *seconds = estimate(c, d, multiprocessors);
        }
    return best;
}

/* ---- Arguments ---- */

static conv_wide_args args_of(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    conv_wide_args a = {.relu = c->relu,
                        .rows = (int)cuda_conv_pixels(c),
                        .columns = (int)c->y_channels,
                        .filter_is_constant = c->filter_is_constant,
                        .steps = (int)steps_of(c),
                        .height = cuda_fast_divmod((uint32_t)c->y_size[0]),
                        .width = cuda_fast_divmod((uint32_t)c->y_size[1]),
                        .taps = cuda_fast_divmod((uint32_t)(w->size[0] * w->size[1])),
                        .filter_columns = cuda_fast_divmod((uint32_t)w->size[1]),
                        .pixel_words = (int)(c->x_channels / 8)};
    for (int i = 0; i < 2; i++) {
        a.filter_size[i] = (int)w->size[i];
        a.x_size[i] = (int)c->x_size[i];
        a.stride[i] = (int)w->stride[i];
        a.dilation[i] = (int)w->dilation[i];
        a.pad[i] = (int)w->pad[2 * i];
    }
    return a;
}

/* Returns the bytes of shared memory of a block: slots, of which a block with few steps uses fewer; then the bias, or instead
 * of both the sums of blocks that share the depth. */
static unsigned shared_bytes(int64_t steps, division d) {
    const int64_t slots = d.columns == 64 ? 4 : 3, needed = divide_up(steps, d.splits) + (d.splits == 1);
    const int64_t bytes =
        (needed < slots ? needed : slots) * (ROWS + d.columns) * DEPTH * 2 + 2 * (int64_t)d.columns;
    const int64_t sums = d.splits > 1 ? (int64_t)ROWS * (d.columns + PAD) * 4 : 0;
    return (unsigned)(bytes > sums ? bytes : sums);
}

/* ---- Creating and running ---- */

static tu_status create(tu__selection *s, const cuda_convolution *c, division d, cuda_conv_wide **wide) {
    cuda_conv_wide *created = tu__arena_alloc(&s->arena, sizeof *created);
    if (!created) return TU_NO_MEMORY;
    const int64_t tiles = divide_up(cuda_conv_pixels(c), ROWS) * (c->y_channels / d.columns);
    *created = (cuda_conv_wide){.args = args_of(c), .bias = c->bias, .residual = c->residual, .division = d};
    created->grid = (cuda_grid){.blocks = {(unsigned)tiles, (unsigned)d.splits},
                                .threads = THREADS,
                                .shared = shared_bytes(steps_of(c), d)};
    created->function =
        cuda_request(s, "conv_wide", "conv_wide<%s, %d, %d>", cuda_type(c->dtype), d.columns, d.splits);
    if (!created->function) return TU_NO_MEMORY;
    *wide = created;
    return TU_OK;
}

tu_status cuda_conv_wide_new(tu__selection *s, const cuda_convolution *c, cuda_conv_wide **wide) {
    const cuda_device *device = cuda_of(s);
    const cuda_conv_choice preference = cuda_conv_preference();
    double seconds;
    *wide = NULL;
    if (!is_supported(c, device->capability) || preference == CUDA_CONV_CUDNN ||
        preference == CUDA_CONV_NARROW)
        return TU_OK;
    const division d = choose_division(c, device->multiprocessors, &seconds);
    const bool is_fastest = seconds < cuda_conv_small_seconds(c, device->multiprocessors) &&
                            seconds < cuda_conv_library_seconds(c);
    return is_fastest || preference == CUDA_CONV_WIDE ? create(s, c, d, wide) : TU_OK;
}

void cuda_conv_wide_describe(const cuda_conv_wide *wide, char text[32]) {
    snprintf(text, 32, "wide %dx%d/%d", ROWS, wide->division.columns, wide->division.splits);
}

/* Inputs: x, filter, then bias and residual if there are any. */
tu_status cuda_conv_wide_run(const tu__kernel *k, const cuda_conv_wide *wide) {
    conv_wide_args a = wide->args;
    a.x = k->in[0], a.filter = k->in[1], a.y = k->out[0];
    a.bias = wide->bias ? k->in[2] : NULL;
    a.residual = wide->residual ? k->in[2 + wide->bias] : NULL;
    return cuda_launch_early(k, wide->function, wide->grid, &a);
}
