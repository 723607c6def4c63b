/* First layers: y of a convolution over few channels, by a kernel of ours (kernels/conv_few.cu says how).
 *
 * cuDNN fills 3 channels up to 8 in a pass of its own before it multiplies, and has few fused engines for them.
 * bench/cuda/bench_conv.c times both: with TUTTI_CONV=cudnn in the environment this one is left out. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/conv.h"
#include "device/cuda/kernels/conv_few_args.h"

enum {
    MOST_CHANNELS = 4,
    OUT_TILE = 64, /* channels of y that a block makes */
    BAND_PIXELS = 256,
    THREADS = 128,
    BLOCKS = 4,             /* that a multiprocessor holds */
    LEAST_CAPABILITY = 80,  /* its tensor cores take bf16 and tf32 */
    MOST_SHARED = 64 << 10, /* so that several blocks fit */
    WORDS_A_STEP = 8 * 64   /* of the filter in shared memory */
};

struct cuda_conv_few {
    conv_few_args args; /* all but addresses */
    const cuda_function *function;
    cuda_grid grid;
};

/* Elements that a product takes of a window's row: of mma_word<T>::K in mma.cuh. */
static int64_t depth_of(tu_dtype dtype) {
    return dtype == TU_F32 ? 8 : 16;
}

static int64_t up(int64_t number, int64_t unit) {
    return (number + unit - 1) / unit;
}

/* The shape is one that the kernel is for; sizes are looked at when they are known. */
static bool is_first_layer(const cuda_convolution *c) {
    const tu__windows *w = &c->windows;
    return c->side == CUDA_CONV_Y && c->groups == 1 && c->x_channels <= MOST_CHANNELS &&
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
    int64_t channels = c->x_channels, band_rows = BAND_PIXELS / c->y_size[1];
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
                           .row_steps = (int)up(w->size[1] * channels, depth_of(c->dtype)),
                           .row_stride = (int)w->stride[0],
                           .pixel_stride = (int)(w->stride[1] * channels),
                           .pad_rows = (int)w->pad[0],
                           .pad_elements = (int)(w->pad[2] * channels),
                           .band_rows = (int)band_rows,
                           .bands = (int)bands,
                           .band_count = c->images * bands,
                           .patch_rows = (int)((band_rows - 1) * w->stride[0] + w->size[0]),
                           .patch_elements = (int)patch_elements,
                           .pitch = (int)(up(patch_elements, 2) * 2)};
}

/* The filter, and x under a band: twice for types of two bytes. All three begin at words. */
static int64_t shared_bytes(const cuda_convolution *c, const conv_few_args *a) {
    int64_t filter = (int64_t)a->window_rows * a->row_steps * WORDS_A_STEP * 4;
    return filter + ((int64_t)a->patch_rows * a->pitch + depth_of(c->dtype)) * 4;
}

static bool is_left_out(void) {
    const char *wanted = getenv("TUTTI_CONV");
    return wanted && strcmp(wanted, "cudnn") == 0;
}

tu_status cuda_conv_few_new(tu__selection *s, const cuda_convolution *c, cuda_conv_few **few) {
    const cuda_device *device = cuda_of(s);
    *few = NULL;
    if (!is_first_layer(c) || !fits(c) || device->capability < LEAST_CAPABILITY || is_left_out())
        return TU_OK;
    conv_few_args args = args_of(c);
    int64_t shared = shared_bytes(c, &args);
    if (shared > MOST_SHARED || shared > device->shared_bytes) return TU_OK;
    cuda_conv_few *f = *few = tu__arena_alloc(&s->arena, sizeof *f);
    if (!f) return TU_NO_MEMORY;
    int64_t most = (int64_t)BLOCKS * device->multiprocessors;
    f->args = args;
    f->grid = (cuda_grid){.blocks = {(unsigned)(args.band_count < most ? args.band_count : most),
                                     (unsigned)(c->y_channels / OUT_TILE)},
                          .threads = THREADS,
                          .shared = (unsigned)shared};
    f->function = cuda_request(s, "conv_few", "conv_few<%s>", cuda_type(c->dtype));
    return f->function ? TU_OK : TU_NO_MEMORY;
}

tu_status cuda_conv_few_run(const tu__kernel *k, const cuda_conv_few *f) {
    conv_few_args a = f->args;
    a.x = k->in[0], a.filter = k->in[1], a.y = k->out[0];
    a.bias = k->read_count > 2 ? k->in[2] : NULL;
    return cuda_launch(k, f->function, f->grid, &a);
}
