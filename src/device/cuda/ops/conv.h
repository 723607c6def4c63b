/* Shared declarations of the CUDA device's convolutions. conv.c chooses between conv_dnn.c (cuDNN), conv_gemm.c
 * (cuBLASLt) and handwritten kernels in conv_few_channels.c, conv_f32.c, conv_small.c, conv_wide.c and conv_direct.c. One structure describes the forward pass, the gradient
 * of x and the gradient of the filter; src/graph/ops/conv.c defines them. */
#ifndef TU__DEVICE_CUDA_OPS_CONV_H
#define TU__DEVICE_CUDA_OPS_CONV_H

#include "device/cuda/ops/dnn.h"
#include "device/kit/epilogue.h"
#include "graph/ops/window.h"

/* What a convolution computes, by the names of cuDNN. */
typedef enum cuda_conv_result {
    CUDA_CONV_FORWARD, /* y */
    CUDA_CONV_DGRAD,   /* gradient of x; also the transposed convolution */
    CUDA_CONV_WGRAD    /* gradient of the filter */
} cuda_conv_result;

typedef struct cuda_convolution {
    cuda_conv_result result;
    tu_dtype dtype;            /* element type of x, filter and y */
    bool full_f32;             /* f32 must not be rounded to tf32 */
    bool bias, residual, relu; /* applied to y before it is stored, in this order */
    bool filter_is_constant;
    tu__edge filter_value, bias_value; /* of the forward pass; of the bias if there is one */
    bool restores_nan;   /* relu is relu(v) + (v - v): for engines of cuDNN whose relu turns NaN into 0 */
    tu__windows windows; /* kernel size, stride, dilation, padding */
    int64_t images, x_size[2], y_size[2];
    int64_t groups, x_channels, y_channels; /* channels per group */
} cuda_convolution;

/* Returns the number of pixels of y, in all images. */
static inline int64_t cuda_conv_pixels(const cuda_convolution *c) {
    return c->images * c->y_size[0] * c->y_size[1];
}

/* ---- conv.c ---- */

typedef enum cuda_conv_choice {
    CUDA_CONV_AUTO,
    CUDA_CONV_CUDNN,
    CUDA_CONV_OWN,
    CUDA_CONV_WIDE /* also conv_wide.c, which is not used otherwise */
} cuda_conv_choice;

/* Reads TUTTI_CONV from the environment: "cudnn", "own" or "wide", to compare implementations. */
cuda_conv_choice cuda_conv_preference(void);

/* ---- conv_dnn.c ---- */

/* Builds a cuDNN execution plan for the convolution. Its operands are the two inputs, the bias and the residual if there
 * are any, and the result. Leaves p->plan NULL if cuDNN has no engine. */
tu_status cuda_conv_dnn(cuda_device *device, const cuda_convolution *c, cuda_dnn_plan *p);

/* True if kernels with tensor cores are expected to be the fastest: for one group, and neither f64 nor full f32. */
bool cuda_conv_prefers_tensor_cores(const cuda_convolution *c);

/* ---- conv_few_channels.c ---- */

typedef struct cuda_conv_few_channels cuda_conv_few_channels;

/* Computes y or the gradient of the filter, if x has at most 4 channels (first layers of networks). Sets *few to NULL
 * for other convolutions. Allocated in s->arena. */
tu_status cuda_conv_few_channels_new(tu__selection *s, const cuda_convolution *c,
                                     cuda_conv_few_channels **few);
size_t cuda_conv_few_channels_workspace(const cuda_conv_few_channels *few);
tu_status cuda_conv_few_channels_run(const tu__kernel *k, const cuda_conv_few_channels *few);

/* ---- conv_f32.c ---- */

typedef struct cuda_conv_f32 cuda_conv_f32;

/* Computes f32 convolutions without tf32, with one group and channels divisible by 4. Sets *created to NULL for
 * others. Allocated in s->arena. */
tu_status cuda_conv_f32_new(tu__selection *s, const cuda_convolution *c, cuda_conv_f32 **created);
size_t cuda_conv_f32_workspace(const cuda_conv_f32 *f);
tu_status cuda_conv_f32_run(const tu__kernel *k, const cuda_conv_f32 *f);

/* ---- conv_small.c ---- */

typedef struct cuda_conv_small cuda_conv_small;

/* Computes y in bf16 and f16, with bias, residual and relu, if there are too few results for the tiles of a library. Sets
 * *small to NULL for others. Allocated in s->arena. */
tu_status cuda_conv_small_new(tu__selection *s, const cuda_convolution *c, cuda_conv_small **small);
/* Estimate the seconds of this kernel, and of a library's, with what follows it; the latter for many results. */
double cuda_conv_small_seconds(const cuda_convolution *c, int multiprocessors);
double cuda_conv_library_seconds(const cuda_convolution *c, int multiprocessors);
/* True if the numbers of pixels and channels of y and of the filter's elements, and padded coordinates, fit into an int. */
bool cuda_conv_fits_int(const cuda_convolution *c);
/* True if the results fill the GPU with the tiles of a library. */
bool cuda_conv_has_many_results(const cuda_convolution *c, int multiprocessors);
tu_status cuda_conv_small_run(const tu__kernel *k, const cuda_conv_small *small);

/* ---- conv_wide.c ---- */

typedef struct cuda_conv_wide cuda_conv_wide;

/* Computes y of models in bf16 and f16, with bias, residual and relu, on GPUs of compute capability 9.0, if TUTTI_CONV asks for it
 * and it is expected to be the fastest. Sets *wide to NULL for others. Allocated in s->arena. */
tu_status cuda_conv_wide_new(tu__selection *s, const cuda_convolution *c, cuda_conv_wide **wide);
/* Writes the size of its tiles and the number of blocks that share their depth: "wide 128x64/4". */
void cuda_conv_wide_describe(const cuda_conv_wide *wide, char text[32]);
tu_status cuda_conv_wide_run(const tu__kernel *k, const cuda_conv_wide *wide);

/* ---- conv_gemm.c ---- */

typedef struct cuda_conv_gemm cuda_conv_gemm;

/* True if y is the product of x and the filter: 1x1, without strides and padding. */
bool cuda_conv_is_product(const cuda_convolution *c);

/* Computes y of 1x1 convolutions of models in bf16 and f16, with bias, residual and relu, if there are many results. Sets
 * *created to NULL for others. Allocated in s->arena, but has a plan of a library. */
tu_status cuda_conv_gemm_new(tu__selection *s, const cuda_convolution *c, cuda_conv_gemm **created);
void cuda_conv_gemm_free(cuda_conv_gemm *gemm); /* frees the plan; NULL is ignored */
/* Adds reads and writes to the kernel, after those of the epilogue and of y. */
tu_status cuda_conv_gemm_add_notes(tu__kernel *k, cuda_conv_gemm *gemm, const tu__epilogue *epilogue);
size_t cuda_conv_gemm_workspace(const cuda_conv_gemm *gemm);
/* True if the library's relu turns NaN into 0, and a second kernel restores it. */
bool cuda_conv_gemm_restores_nan(const cuda_conv_gemm *gemm);
tu_status cuda_conv_gemm_run(const tu__kernel *k, const cuda_conv_gemm *gemm);

/* ---- conv_direct.c ---- */

typedef struct cuda_conv_direct cuda_conv_direct;

/* Computes any convolution without a residual whose indices fit into an int; else returns TU_UNSUPPORTED. Allocated in
 * s->arena. */
tu_status cuda_conv_direct_new(tu__selection *s, const cuda_convolution *c, cuda_conv_direct **direct);
size_t cuda_conv_direct_workspace(const cuda_conv_direct *direct);
tu_status cuda_conv_direct_run(const tu__kernel *k, const cuda_conv_direct *direct);

#endif
