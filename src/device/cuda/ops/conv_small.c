/* Host side of convolutions with few results: kernels/conv_small.cu.
 *
 * Used in models, if 128 by 128 tiles, which libraries prefer, would leave multiprocessors idle; and if the memory limits
 * the convolution, so that a library's faster product is worth less than a pass over its result costs. 1x1 convolutions with many
 * results are conv_gemm.c's first.
 * bench/inference/bench_inference.c compares both, with TUTTI_CONV=cudnn.
 */
#include <math.h>

#include "device/cuda/ops/conv.h"

#include "device/cuda/kernels/conv_small_args.h"

enum {
    ROWS = 64, /* of a tile, as in conv_small.cu */
    DEPTH = 64,
    STAGES = 4,
    THREADS = 256,
    PAD = 4,
    LIBRARY_TILE = 128,
    H200_MULTIPROCESSORS = 132,
    MIN_CAPABILITY = 90, /* clusters */
    MAX_SPLITS = 8       /* blocks of a cluster that every GPU with clusters supports */
};

struct cuda_conv_small {
    conv_small_args args; /* without addresses */
    const cuda_function *function;
    cuda_grid grid;
    bool bias, residual;
};

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

/* ---- Supported convolutions ---- */

bool cuda_conv_fits_int(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    const int64_t limit = INT32_MAX / 4, axis = 1 << 20;
    for (int i = 0; i < 2; i++)
        if (c->x_size[i] > axis || c->y_size[i] > axis || w->stride[i] > axis || w->pad[2 * i] > axis ||
            w->size[i] * w->dilation[i] > axis)
            return false;
    return cuda_conv_pixels(c) <= limit && c->y_channels <= axis &&
           w->size[0] * w->size[1] * c->x_channels <= limit;
}

/* Pixels of x are numbered in an int. */
static bool fits_int(const cuda_convolution *c) {
    return cuda_conv_fits_int(c) && c->images <= INT32_MAX / 4 / (c->x_size[0] * c->x_size[1]);
}

static bool is_supported(const cuda_convolution *c, int capability) {
    return capability >= MIN_CAPABILITY && c->result == CUDA_CONV_FORWARD && c->groups == 1 &&
           (c->dtype == TU_BF16 || c->dtype == TU_F16) && c->x_channels % DEPTH == 0 &&
           c->y_channels % 32 == 0 && fits_int(c);
}

bool cuda_conv_has_many_results(const cuda_convolution *c, int multiprocessors) {
    return divide_up(cuda_conv_pixels(c), LIBRARY_TILE) * divide_up(c->y_channels, LIBRARY_TILE) >=
           multiprocessors;
}

/* What a convolution computes and moves. */
typedef struct traffic {
    double flops, x, y, residual; /* bytes */
    double pass;                  /* bytes of a pass over y for bias, residual and relu */
} traffic;

static traffic traffic_of(const cuda_convolution *c) {
    const double taps = (double)(c->windows.size[0] * c->windows.size[1]);
    traffic t = {.x = 2.0 * (double)(c->images * c->x_size[0] * c->x_size[1] * c->x_channels),
                 .y = 2.0 * (double)(cuda_conv_pixels(c) * c->y_channels)};
    t.residual = c->residual ? t.y : 0;
    t.flops = taps * (double)c->x_channels * t.y;
    t.pass = c->bias || c->residual || c->relu ? 2 * t.y + t.residual : 0;
    return t;
}

/* True if the memory limits our kernel, and it is estimated to take less time than a library's and a pass: on an H200, without
 * the start of a kernel. */
static bool is_limited_by_memory(const cuda_convolution *c) {
    const double our_flops = 2e14, our_bandwidth = 2.7e12, flops = 4.5e14, bandwidth = 3.5e12;
    const traffic t = traffic_of(c);
    const double ours = fmax(t.flops / our_flops, (t.x + t.y + t.residual) / our_bandwidth);
    return ours < fmax(t.flops / flops, (t.x + t.y) / bandwidth) + t.pass / bandwidth;
}

/* ---- Grid ---- */

typedef struct division {
    int columns, splits;
} division;

/* Estimates the time in units of what a 64 by 64 by 64 step takes, by the steps of the busiest multiprocessor. */
static double estimate(const cuda_convolution *c, const conv_small_args *a, division d, int multiprocessors) {
    const double cluster = 3;
    int64_t tiles = divide_up(cuda_conv_pixels(c), ROWS) * (c->y_channels / d.columns);
    int64_t blocks = divide_up(tiles * d.splits, multiprocessors), steps = divide_up(a->steps, d.splits);
    return (double)(blocks * steps * (ROWS + d.columns)) / (ROWS + 64) + (d.splits > 1 ? cluster : 0);
}

static division choose_division(const cuda_convolution *c, const conv_small_args *a, int multiprocessors) {
    division best = {32, 1};
    double least = estimate(c, a, best, multiprocessors);
    for (int columns = 32; columns <= 64; columns += 32)
        for (int splits = MAX_SPLITS; splits >= 1; splits /= 2) {
            const division d = {columns, splits};
            if (c->y_channels % columns != 0 || splits > a->steps) continue;
            double time = estimate(c, a, d, multiprocessors);
            if (time > least) continue;
            best = d, least = time;
        }
    return best;
}

/* Returns the bytes of shared memory of a block: stages that are copied to, of which a block with few steps uses fewer, and
 * then the sums. */
static unsigned shared_bytes(int64_t steps, division d) {
    const int64_t block_steps = divide_up(steps, d.splits);
    const int64_t stages = (block_steps < STAGES ? block_steps : STAGES) * (ROWS + d.columns) * DEPTH * 2;
    const int64_t sums = (int64_t)ROWS * (d.columns + PAD) * 4;
    return (unsigned)(stages > sums ? stages : sums);
}

/* ---- Estimates for conv_wide.c: seconds, fitted to resnet50 on an H200 ---- */

/* With 1 and 8 images. */
double cuda_conv_small_seconds(const cuda_convolution *c, int multiprocessors) {
    const double start = 3.5e-6, step = 5.5e-7, bandwidth = 1.6e12;
    const conv_small_args a = {.steps =
                                   (int)(c->windows.size[0] * c->windows.size[1] * c->x_channels / DEPTH)};
    const division d = choose_division(c, &a, multiprocessors);
    const traffic t = traffic_of(c);
    return start + fmax(step * estimate(c, &a, d, multiprocessors), (t.x + t.y + t.residual) / bandwidth);
}

/* A product of cuBLASLt has bias, residual and relu in its epilogue; other convolutions need a pass over their result. */
double cuda_conv_library_seconds(const cuda_convolution *c, int multiprocessors) {
    const double size = (double)multiprocessors / H200_MULTIPROCESSORS;
    const double product_start = 6e-6, product_flops = 1.7e15 * size, product_bandwidth = 4e12;
    const double start = 1.25e-5, flops = 9.8e14 * size,
                 bandwidth = 2.6e12; /* of two kernels, one after the other */
    const traffic t = traffic_of(c);
    if (cuda_conv_is_product(c))
        return product_start + (t.x + t.y + t.residual) / product_bandwidth + t.flops / product_flops;
    return start + fmax(t.flops / flops, (t.x + t.y) / bandwidth) + t.pass / bandwidth;
}

/* ---- Creating and running ---- */

static conv_small_args args_of(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    conv_small_args a = {.relu = c->relu,
                         .rows = (int)cuda_conv_pixels(c),
                         .columns = (int)c->y_channels,
                         .filter_is_constant = c->filter_is_constant,
                         .steps = (int)(w->size[0] * w->size[1] * c->x_channels / DEPTH),
                         .height = cuda_fast_divmod((uint32_t)c->y_size[0]),
                         .width = cuda_fast_divmod((uint32_t)c->y_size[1]),
                         .tap_steps = cuda_fast_divmod((uint32_t)(c->x_channels / DEPTH)),
                         .filter_columns = cuda_fast_divmod((uint32_t)w->size[1]),
                         .x_channels = (int)c->x_channels};
    for (int i = 0; i < 2; i++) {
        a.x_size[i] = (int)c->x_size[i];
        a.stride[i] = (int)w->stride[i];
        a.dilation[i] = (int)w->dilation[i];
        a.pad[i] = (int)w->pad[2 * i];
    }
    return a;
}

tu_status cuda_conv_small_new(tu__selection *s, const cuda_convolution *c, cuda_conv_small **small) {
    const cuda_device *device = cuda_of(s);
    const cuda_conv_choice preference = cuda_conv_preference();
    *small = NULL;
    if (!is_supported(c, device->capability) || preference == CUDA_CONV_CUDNN ||
        !(preference == CUDA_CONV_OWN || !cuda_conv_has_many_results(c, device->multiprocessors) ||
          is_limited_by_memory(c)))
        return TU_OK;
    cuda_conv_small *created = tu__arena_alloc(&s->arena, sizeof *created);
    if (!created) return TU_NO_MEMORY;
    created->args = args_of(c);
    created->bias = c->bias, created->residual = c->residual;
    const division d = choose_division(c, &created->args, device->multiprocessors);
    int64_t tiles = divide_up(cuda_conv_pixels(c), ROWS) * (c->y_channels / d.columns);
    created->grid = (cuda_grid){.blocks = {(unsigned)tiles, (unsigned)d.splits},
                                .threads = THREADS,
                                .shared = shared_bytes(created->args.steps, d)};
    created->function =
        cuda_request(s, "conv_small", "conv_small<%s, %d, %d>", cuda_type(c->dtype), d.columns, d.splits);
    if (!created->function) return TU_NO_MEMORY;
    *small = created;
    return TU_OK;
}

/* Inputs: x, filter, then bias and residual if there are any. */
tu_status cuda_conv_small_run(const tu__kernel *k, const cuda_conv_small *small) {
    conv_small_args a = small->args;
    a.x = k->in[0], a.filter = k->in[1], a.y = k->out[0];
    a.bias = small->bias ? k->in[2] : NULL;
    a.residual = small->residual ? k->in[2 + small->bias] : NULL;
    return cuda_launch_early(k, small->function, small->grid, &a);
}
