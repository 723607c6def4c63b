/* Host side of convolutions with many results on GPUs of compute capability 9.0: kernels/conv_wide.cu.
 *
 * Not used unless TUTTI_CONV asks for it: the speed of an earlier version was measured on an H200 (docs/performance.md), but its
 * results were compared with the reference on the emulated GPU alone. TUTTI_CONV=wide uses it in models wherever its estimated
 * time is below those of conv_small.c and of libraries, which need a pass over the result for bias, residual and relu, or a second
 * kernel for NaN. The size of a tile, and the number of blocks that share its depth, are those with the least estimate.
 * TUTTI_CONV="wide 128x64/4" uses these tiles and blocks wherever that is possible.
 *
 * bench/inference/bench_inference.c prints the time of each convolution, to compare; tests/cuda/test_model_convolutions.c compares
 * the results on a real GPU too.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/ops/conv.h"

#include "device/cuda/kernels/conv_wide_args.h"

enum {
    DEPTH = 64,      /* of a step, as in conv_wide.cu */
    PAD = 8,         /* the same */
    GROUP_ROWS = 64, /* of a warpgroup: 128 threads */
    CAPABILITY = 90, /* of wgmma; later GPUs lack it */
    MAX_SPLITS = 8   /* blocks of a cluster that every GPU with clusters supports */
};

/* The tiles of conv_wide.cu: `shape` has the same numbers. */
typedef struct tile {
    int rows, columns;
    int slots;  /* steps on their way */
    int blocks; /* that share a multiprocessor */
} tile;

static const tile tiles[] = {{64, 64, 4, 3},   {64, 128, 3, 3}, {128, 64, 4, 2},
                             {128, 128, 3, 2}, {256, 64, 4, 1}, {256, 128, 4, 1}};
enum { TILES = sizeof tiles / sizeof *tiles };

typedef struct division {
    const tile *tile;
    int splits; /* blocks that share the depth */
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

static int64_t count_tiles(const cuda_convolution *c, const tile *t) {
    return divide_up(cuda_conv_pixels(c), t->rows) * (c->y_channels / t->columns);
}

static int64_t count_taps(const cuda_convolution *c) {
    return c->windows.size[0] * c->windows.size[1];
}

static int64_t count_steps(const cuda_convolution *c) {
    return count_taps(c) * c->x_channels / DEPTH;
}

/* ---- Supported convolutions ---- */

/* 16-byte words of x, filter and y are numbered in 32 bits. */
static bool fits_int(const cuda_convolution *c) {
    return cuda_conv_fits_int(c) && c->x_channels <= 1 << 20 &&
           cuda_conv_pixels(c) <= UINT32_MAX / (c->y_channels / 8) &&
           c->y_channels <= INT32_MAX / 4 / (count_taps(c) * c->x_channels / 8) &&
           c->images <= UINT32_MAX / (c->x_size[0] * c->x_size[1]) / (c->x_channels / 8);
}

static bool is_supported(const cuda_convolution *c, int capability) {
    return capability == CAPABILITY && c->result == CUDA_CONV_FORWARD && c->groups == 1 &&
           (c->dtype == TU_BF16 || c->dtype == TU_F16) && c->x_channels % DEPTH == 0 &&
           c->y_channels % 64 == 0 && count_taps(c) <= CONV_WIDE_TAPS && fits_int(c);
}

/* ---- Estimates ---- */

/* Rates and times of an H200, fitted to about 600 times of resnet50's convolutions with 8 and 256 images and every size of tiles: the
 * tiles with the least estimate take 0.5% longer than the fastest ones, on average. Rates are those of a multiprocessor, unless
 * they are of all. */
static const struct {
    double flops;        /* FLOP/s */
    double shared;       /* bytes/s of the shared memory */
    double load;         /* bytes/s from the L2 cache, while the others are idle */
    double all_load;     /* bytes/s from the L2 cache, of all */
    double all_memory;   /* bytes/s, of all */
    double start;        /* s, of a kernel */
    double first_step;   /* s until the first step of a block has arrived */
    double exchange;     /* s in which the blocks of a cluster wait for each other */
    double loaded_again; /* part of the rows of x that are not in the L1 cache if a tap follows another */
} rates = {.flops = 3.3e12,
           .shared = 1.67e11,
           .load = 7.1e10,
           .all_load = 7.5e12,
           .all_memory = 2.6e12,
           .start = 5.4e-6,
           .first_step = 1.8e-6,
           .exchange = 3.9e-6,
           .loaded_again = 0.96};

/* What one step does. */
typedef struct step {
    double loaded;  /* bytes from the L2 cache */
    double seconds; /* of the tensor cores, without loads */
} step;

static step step_of(const cuda_convolution *c, const tile *t) {
    const double row = 2 * DEPTH, rows = t->rows, columns = t->columns;
    const double again = count_taps(c) > 1 ? rates.loaded_again : 1;
    /* A warpgroup reads its rows of x and all of the filter; x is also written to the L1 cache if it is reused. */
    const double read = row * (rows + columns * rows / GROUP_ROWS), written = row * (rows + columns);
    const double cached = count_taps(c) > 1 ? row * rows : 0;
    return (step){
        .loaded = row * (columns + again * rows),
        .seconds = fmax(2 * DEPTH * rows * columns / rates.flops, (read + written + cached) / rates.shared)};
}

/* Returns the bytes that the memory reads and writes. */
static double memory_bytes(const cuda_convolution *c) {
    const double pixels = (double)cuda_conv_pixels(c), taps = (double)count_taps(c);
    const double x_pixels = fmin((double)(c->images * c->x_size[0] * c->x_size[1]), taps * pixels);
    const double x_channels = (double)c->x_channels, y_channels = (double)c->y_channels;
    return 2 *
           (x_pixels * x_channels + y_channels * taps * x_channels + y_channels * pixels * (1 + c->residual));
}

/* Returns the estimated seconds: those of what limits the kernel. */
static double estimate(const cuda_convolution *c, division d, int multiprocessors) {
    const tile *t = d.tile;
    const step one = step_of(c, t);
    const double blocks = (double)(count_tiles(c, t) * d.splits),
                 steps = (double)divide_up(count_steps(c), d.splits);
    const double tile_elements = (double)t->rows * t->columns;
    const double result =
        2 * tile_elements * (1 + c->residual) / d.splits + (d.splits > 1 ? 4 * tile_elements : 0);
    const double block =
        rates.first_step + steps * fmax(one.seconds, one.loaded / rates.load) + result / rates.load;
    const double one_after_another = ceil(blocks / (multiprocessors * t->blocks)) * block;
    const double products = ceil(blocks / multiprocessors) * steps * one.seconds;
    const double loads = blocks * (steps * one.loaded + result) / rates.all_load;
    const double slowest =
        fmax(fmax(one_after_another, products), fmax(loads, memory_bytes(c) / rates.all_memory));
    return rates.start + slowest + (d.splits > 1 ? rates.exchange : 0);
}

/* ---- Choosing the tile ---- */

static bool is_possible(const cuda_convolution *c, division d) {
    return c->y_channels % d.tile->columns == 0 && d.splits <= count_steps(c);
}

/* Sets what TUTTI_CONV names, such as "wide 128x64/4". Returns false if that is nothing, or not possible. */
static bool parse_division(const cuda_convolution *c, division *d) {
    const char *preference = getenv("TUTTI_CONV");
    int rows, columns, splits;
    if (!preference || sscanf(preference, "wide %dx%d/%d", &rows, &columns, &splits) != 3) return false;
    for (int i = 0; i < TILES; i++) {
        *d = (division){&tiles[i], splits};
        if (tiles[i].rows == rows && tiles[i].columns == columns)
            return (splits == 1 || splits == 2 || splits == 4 || splits == MAX_SPLITS) && is_possible(c, *d);
    }
    return false;
}

/* Returns the division with the least estimate. */
static division choose_division(const cuda_convolution *c, int multiprocessors, double *seconds) {
    division best = {&tiles[0], 1};
    *seconds = INFINITY;
    for (int i = 0; i < TILES; i++)
        for (int splits = 1; splits <= MAX_SPLITS; splits *= 2) {
            const division d = {&tiles[i], splits};
            const double time = is_possible(c, d) ? estimate(c, d, multiprocessors) : INFINITY;
            if (time < *seconds) best = d, *seconds = time;
        }
    return best;
}

/* ---- Arguments ---- */

/* True if pixel i of y is computed from pixel i of x only. */
static bool is_product(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    return count_taps(c) == 1 && w->pad[0] == 0 && w->pad[2] == 0 && c->x_size[0] == c->y_size[0] &&
           c->x_size[1] == c->y_size[1];
}

static conv_wide_args args_of(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    const uint32_t pixel_words = (uint32_t)(c->x_channels / 8);
    const uint32_t column_words = (uint32_t)w->dilation[1] * pixel_words;
    const uint32_t tap_row_words = (uint32_t)w->dilation[0] * (uint32_t)c->x_size[1] * pixel_words;
    conv_wide_args a = {.relu = c->relu,
                        .rows = (int)cuda_conv_pixels(c),
                        .columns = (int)c->y_channels,
                        .filter_is_constant = c->filter_is_constant,
                        .steps = (int)count_steps(c),
                        .height = cuda_fast_divmod((uint32_t)c->y_size[0]),
                        .width = cuda_fast_divmod((uint32_t)c->y_size[1]),
                        .taps = cuda_fast_divmod((uint32_t)count_taps(c)),
                        .filter_columns = cuda_fast_divmod((uint32_t)w->size[1]),
                        .pixel_words = (int)pixel_words,
                        .filter_words = (int)(count_taps(c) * pixel_words),
                        .column_words = column_words,
                        .row_words = tap_row_words - (uint32_t)w->size[1] * column_words,
                        .channel_words = DEPTH / 8 - (uint32_t)w->size[0] * tap_row_words,
                        .is_product = is_product(c)};
    for (int i = 0; i < 2; i++) {
        a.x_size[i] = (int)c->x_size[i];
        a.stride[i] = (int)w->stride[i];
        a.dilation[i] = (int)w->dilation[i];
        a.pad[i] = (int)w->pad[2 * i];
    }
    return a;
}

/* Returns the bytes of shared memory of a block: slots for steps and for the result, of which a block with few steps uses fewer;
 * then the bias. Or instead the sums of blocks that share the depth. */
static unsigned shared_bytes(int64_t steps, division d) {
    const tile *t = d.tile;
    const int64_t slot = (int64_t)(t->rows + t->columns) * DEPTH * 2,
                  result = (int64_t)t->rows * t->columns * 2;
    const int64_t needed = divide_up(steps, d.splits) + (d.splits == 1 ? divide_up(result, slot) : 0);
    const int64_t bytes = (needed < t->slots ? needed : t->slots) * slot + 2 * (int64_t)t->columns;
    const int64_t sums = d.splits > 1 ? (int64_t)t->rows * (t->columns + PAD) * 4 : 0;
    return (unsigned)(bytes > sums ? bytes : sums);
}

/* ---- Creating and running ---- */

static tu_status create(tu__selection *s, const cuda_convolution *c, division d, cuda_conv_wide **wide) {
    cuda_conv_wide *created = tu__arena_alloc(&s->arena, sizeof *created);
    if (!created) return TU_NO_MEMORY;
    *created = (cuda_conv_wide){.args = args_of(c), .bias = c->bias, .residual = c->residual, .division = d};
    created->args.is_backwards = s->plan->kernel_count % 2;
    created->grid = (cuda_grid){.blocks = {(unsigned)count_tiles(c, d.tile), (unsigned)d.splits},
                                .threads = 128 * (unsigned)(d.tile->rows / GROUP_ROWS),
                                .shared = shared_bytes(count_steps(c), d)};
    created->function = cuda_request(s, "conv_wide", "conv_wide<%s, %d, %d, %d>", cuda_type(c->dtype),
                                     d.tile->rows, d.tile->columns, d.splits);
    if (!created->function) return TU_NO_MEMORY;
    *wide = created;
    return TU_OK;
}

/* True if other kernels are estimated to take longer. */
static bool is_fastest(const cuda_convolution *c, int multiprocessors, double seconds) {
    return seconds < cuda_conv_small_seconds(c, multiprocessors) &&
           (!cuda_conv_has_many_results(c, multiprocessors) ||
            seconds < cuda_conv_library_seconds(c, multiprocessors));
}

tu_status cuda_conv_wide_new(tu__selection *s, const cuda_convolution *c, cuda_conv_wide **wide) {
    const cuda_device *device = cuda_of(s);
    double seconds;
    division d;
    *wide = NULL;
    if (cuda_conv_preference() != CUDA_CONV_WIDE || !is_supported(c, device->capability)) return TU_OK;
    if (parse_division(c, &d)) return create(s, c, d, wide);
    d = choose_division(c, device->multiprocessors, &seconds);
    return is_fastest(c, device->multiprocessors, seconds) ? create(s, c, d, wide) : TU_OK;
}

void cuda_conv_wide_describe(const cuda_conv_wide *wide, char text[32]) {
    snprintf(text, 32, "wide %dx%d/%d", wide->division.tile->rows, wide->division.tile->columns,
             wide->division.splits);
}

/* Inputs: x, filter, then bias and residual if there are any. */
tu_status cuda_conv_wide_run(const tu__kernel *k, const cuda_conv_wide *wide) {
    conv_wide_args a = wide->args;
    a.x = k->in[0], a.filter = k->in[1], a.y = k->out[0];
    a.bias = wide->bias ? k->in[2] : NULL;
    a.residual = wide->residual ? k->in[2 + wide->bias] : NULL;
    return cuda_launch_early(k, wide->function, wide->grid, &a);
}
