/* First layers: forward output y of a convolution over few channels, and its filter's gradient, by handwritten kernels
 * (kernels/conv_few_channels.cu).
 *
 * cuDNN pads 3 channels to 8 in a separate pass before it multiplies, and has few fused engines for them.
 * bench/cuda/bench_conv.c compares both.
 */
#include "device/cuda/ops/conv.h"

#include "device/cuda/kernels/conv_few_channels_args.h"

enum {
    MAX_CHANNELS = 4,
    OUT_TILE = 64, /* channels of y per block */
    THREADS = 256,
    WARPS = THREADS / 32,
    BLOCKS = 2,             /* resident per multiprocessor */
    SUMMED = 32,            /* results per block of the second kernel, each summed by several threads */
    MIN_CAPABILITY = 80,    /* first with tensor cores for bf16 and tf32 */
    MAX_SHARED = 113 << 10, /* two blocks share 228 KiB */
    SLACK_WORDS = 16,       /* that the last product of a patch reads past its end */
    FILTER_WORDS = 8 * 64,  /* filter words in shared memory per depth step */
    PASS_PIXELS = 32 * WARPS,
    WINDOW_TILE = 16,   /* elements of the window that one product of the gradient sums */
    WARP_TILES = 5,     /* of those per warp */
    CHANNEL_HALVES = 2, /* warps that share the channels of y */
    Y_PITCH = 72,
    SUM_PITCH = 72
};

struct cuda_conv_few_channels {
    cuda_conv_result result;
    conv_few_channels_args args; /* without addresses */
    const cuda_function *function, *sum;
    cuda_grid grid;
};

/* Elements along the depth of one tensor-core product, and per 32-bit word: mma_word<T> in mma.cuh. */
static int64_t depth_of(tu_dtype dtype) {
    return dtype == TU_F32 ? 8 : 16;
}
static int64_t word_of(tu_dtype dtype) {
    return depth_of(dtype) / 8;
}

static int64_t divide_up(int64_t n, int64_t d) {
    return (n + d - 1) / d;
}

/* True if the kernel supports the kind of convolution; fits() checks its sizes. */
static bool is_first_layer(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    return c->result != CUDA_CONV_DGRAD && c->groups == 1 && c->x_channels <= MAX_CHANNELS &&
           c->y_channels % OUT_TILE == 0 && cuda_conv_prefers_tensor_cores(c) && w->dilation[0] == 1 &&
           w->dilation[1] == 1;
}

static bool fits_limits(const cuda_convolution *c) {
    const int64_t limit = 1 << 20; /* per axis, so that products of a few stay ints */
    const tu__windows *w = &c->windows;
    for (int i = 0; i < 2; i++)
        if (c->x_size[i] > limit || c->y_size[i] > limit || w->size[i] > 64 || w->stride[i] > 64 ||
            w->pad[2 * i] > limit)
            return false;
    return c->y_channels <= limit && c->images <= INT32_MAX / c->y_size[0];
}

/* Sets the arguments that do not depend on the band's height. */
static conv_few_channels_args args_of(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    const bool computes_y = c->result == CUDA_CONV_FORWARD;
    int64_t channels = c->x_channels, word = word_of(c->dtype);
    int64_t pad = w->pad[2] * channels, lead = divide_up(pad, word) * word, shift = lead - pad;
    int64_t patch_elements = ((c->y_size[1] - 1) * w->stride[1] + w->size[1]) * channels + shift;
    int64_t pixel_stride = w->stride[1] * channels, patch_words = divide_up(patch_elements, word);
    return (conv_few_channels_args){
        .relu = c->relu,
        .x_height = (int)c->x_size[0],
        .row_elements = (int)(c->x_size[1] * channels),
        .y_height = (int)c->y_size[0],
        .y_width = (int)c->y_size[1],
        .out = (int)c->y_channels,
        .row_pixels = cuda_fast_divmod((uint32_t)(computes_y ? c->y_size[1] : divide_up(c->y_size[1], word))),
        .window_rows = (int)w->size[0],
        .window_elements = (int)(w->size[1] * channels),
        .row_steps = (int)divide_up(w->size[1] * channels, depth_of(c->dtype)),
        .row_stride = (int)w->stride[0],
        .pixel_stride = (int)pixel_stride,
        .pad_rows = (int)w->pad[0],
        .lead = (int)lead,
        .shift = (int)shift,
        .pitch = (int)(patch_words * word),
        .patch_words = cuda_fast_divmod((uint32_t)patch_words),
        .pair = computes_y ? 1 : (int)pixel_stride};
}

/* Distributes the window's tiles among the warps of a block, and among several blocks if one has too few warps.
 * Returns the number of blocks. */
static unsigned split_window(conv_few_channels_args *a) {
    int64_t tiles = divide_up((int64_t)a->window_rows * a->window_elements, WINDOW_TILE);
    int64_t splits = divide_up(tiles, WARP_TILES), blocks = divide_up(splits, WARPS / CHANNEL_HALVES);
    a->splits = (int)divide_up(splits, blocks);
    a->split_tiles = (int)divide_up(tiles, blocks * a->splits);
    return (unsigned)blocks;
}

/* Sets the arguments for bands of `rows` rows of y. */
static void set_band(const cuda_convolution *c, int64_t rows, conv_few_channels_args *a) {
    int64_t depth = depth_of(c->dtype), word = word_of(c->dtype), bands = divide_up(a->y_height, rows);
    a->band_rows = (int)rows;
    a->bands = cuda_fast_divmod((uint32_t)bands);
    a->band_count = (int)(c->images * bands);
    a->patch_rows = (int)((rows - 1) * a->row_stride + a->window_rows);
    a->raw_words = (int)(divide_up((int64_t)a->patch_rows * a->patch_words.value, 4) * 4);
    if (c->result == CUDA_CONV_WGRAD)
        a->y_words = (int)(divide_up(rows * a->row_pixels.value * word, depth) * depth * Y_PITCH / word);
}

/* Returns the shared memory of a block. For y: bias, filter, two raw patches and, for 2-byte types, one patch
 * unpacked to words. For the filter's gradient: two pairs of y and a raw patch, one unpacked patch, and at the end
 * the sums. */
static int64_t shared_bytes(const cuda_convolution *c, const conv_few_channels_args *a) {
    int64_t unpacked = c->dtype == TU_F32 ? 0 : (int64_t)a->patch_rows * a->pitch;
    int64_t words = 2 * ((int64_t)a->y_words + a->raw_words) + unpacked + SLACK_WORDS;
    if (c->result == CUDA_CONV_FORWARD)
        return 4 * (words + OUT_TILE + (int64_t)a->window_rows * a->row_steps * FILTER_WORDS);
    int64_t sums = (int64_t)a->splits * a->split_tiles * WINDOW_TILE * SUM_PITCH;
    return 4 * (words > sums ? words : sums);
}

/* Estimates the instructions per warp for a band: its products and a fixed overhead. */
static int64_t band_cost(const cuda_convolution *c, const conv_few_channels_args *a) {
    int64_t overhead = 400 + (int64_t)a->patch_rows * a->pitch * 7 / THREADS;
    if (c->result == CUDA_CONV_FORWARD) {
        int64_t passes = divide_up((int64_t)a->band_rows * a->y_width, PASS_PIXELS);
        return overhead + passes * (150 + (int64_t)a->window_rows * a->row_steps * 40);
    }
    int64_t steps = divide_up((int64_t)a->band_rows * a->row_pixels.value, 8),
            groups = WARPS / CHANNEL_HALVES / a->splits;
    return overhead + divide_up(steps, groups) * (40 + a->split_tiles * 16);
}

/* Chooses the band height with the lowest estimated time. Returns the shared memory it needs, or 0 if not even one
 * row fits. */
static int64_t choose_band(const cuda_convolution *c, int64_t blocks, int64_t max_shared,
                           conv_few_channels_args *a) {
    int64_t min_cost = INT64_MAX, best_rows = 0, best_shared = 0;
    for (int64_t rows = 1; rows <= a->y_height; rows++) {
        set_band(c, rows, a);
        int64_t shared = shared_bytes(c, a);
        if (shared > max_shared) break;
        int64_t cost = divide_up(a->band_count, blocks) * band_cost(c, a);
        if (cost > min_cost) continue;
        min_cost = cost, best_rows = rows, best_shared = shared;
    }
    if (best_rows) set_band(c, best_rows, a);
    return best_shared;
}

/* Blocks along the window and the channels; as many along the bands as fill the GPU. */
static cuda_grid grid_of(const cuda_convolution *c, int multiprocessors, unsigned windows) {
    unsigned channels = (unsigned)(c->y_channels / OUT_TILE), resident = (unsigned)(BLOCKS * multiprocessors);
    unsigned bands = resident / (windows * channels);
    cuda_grid grid = {.blocks = {bands ? bands : 1, windows, channels}, .threads = THREADS};
    if (c->result == CUDA_CONV_FORWARD) grid.blocks[1] = channels, grid.blocks[2] = 1;
    return grid;
}

static tu_status request(tu__selection *s, const cuda_convolution *c, cuda_conv_few_channels *f) {
    const char *type = cuda_type(c->dtype);
    f->function = cuda_request(
        s, "conv_few_channels",
        c->result == CUDA_CONV_FORWARD ? "conv_few_channels<%s>" : "conv_few_channels_filter<%s>", type);
    if (!f->function) return TU_NO_MEMORY;
    if (c->result == CUDA_CONV_FORWARD) return TU_OK;
    f->sum = cuda_request(s, "conv_few_channels", "conv_few_channels_sum<%s>", type);
    return f->sum ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_conv_few_channels_new(tu__selection *s, const cuda_convolution *c,
                                     cuda_conv_few_channels **few) {
    const cuda_device *device = cuda_of(s);
    *few = NULL;
    if (!is_first_layer(c) || !fits_limits(c) || device->capability < MIN_CAPABILITY ||
        cuda_conv_preference() == CUDA_CONV_CUDNN)
        return TU_OK;
    cuda_conv_few_channels f = {.result = c->result, .args = args_of(c)};
    f.grid = grid_of(c, device->multiprocessors, c->result == CUDA_CONV_FORWARD ? 1 : split_window(&f.args));
    int64_t max_shared = device->shared_bytes < MAX_SHARED ? device->shared_bytes : MAX_SHARED;
    f.grid.shared = (unsigned)choose_band(c, f.grid.blocks[0], max_shared, &f.args);
    if (!f.grid.shared) return TU_OK;
    if ((unsigned)f.args.band_count < f.grid.blocks[0]) f.grid.blocks[0] = (unsigned)f.args.band_count;
    TU_TRY(request(s, c, &f));
    *few = tu__arena_alloc(&s->arena, sizeof f);
    if (!*few) return TU_NO_MEMORY;
    **few = f;
    return TU_OK;
}

/* Elements of the window: the size of the filter per channel of y. */
static int64_t window_of(const cuda_conv_few_channels *f) {
    return (int64_t)f->args.window_rows * f->args.window_elements;
}

size_t cuda_conv_few_channels_workspace(const cuda_conv_few_channels *f) {
    return f->sum ? f->grid.blocks[0] * (size_t)(window_of(f) * f->args.out) * sizeof(float) : 0;
}

static tu_status run_filter(const tu__kernel *k, const cuda_conv_few_channels *f) {
    conv_few_channels_args a = f->args;
    a.x = k->in[0], a.y = k->in[1], a.partial = k->workspace;
    TU_TRY(cuda_launch(k, f->function, f->grid, &a));
    conv_few_channels_sum_args sum = {.partial = k->workspace,
                                      .filter = k->out[0],
                                      .blocks = (int)f->grid.blocks[0],
                                      .window = (int)window_of(f),
                                      .out = f->args.out};
    cuda_grid grid = {.blocks = {(unsigned)divide_up(window_of(f) * sum.out, SUMMED)}, .threads = THREADS};
    return cuda_launch(k, f->sum, grid, &sum);
}

tu_status cuda_conv_few_channels_run(const tu__kernel *k, const cuda_conv_few_channels *f) {
    if (f->result == CUDA_CONV_WGRAD) return run_filter(k, f);
    conv_few_channels_args a = f->args;
    a.x = k->in[0], a.filter = k->in[1], a.y = k->out[0];
    a.bias = k->read_count > 2 ? k->in[2] : NULL;
    return cuda_launch(k, f->function, f->grid, &a);
}
