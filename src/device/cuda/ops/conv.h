/* Shared declarations of the CUDA device's convolutions. conv.c chooses between conv_dnn.c (cuDNN) and handwritten
 * kernels in conv_few_channels.c, conv_f32.c and conv_direct.c. One structure describes the forward pass, the gradient
 * of x and the gradient of the filter; src/graph/ops/conv.c defines them. */
#ifndef TU__DEVICE_CUDA_OPS_CONV_H
#define TU__DEVICE_CUDA_OPS_CONV_H

#include "device/cuda/ops/dnn.h"
#include "graph/ops/window.h"

/* What a convolution computes, by the names of cuDNN. */
typedef enum cuda_conv_result {
    CUDA_CONV_FORWARD, /* y */
    CUDA_CONV_DGRAD,   /* gradient of x; also the transposed convolution */
    CUDA_CONV_WGRAD    /* gradient of the filter */
} cuda_conv_result;

typedef struct cuda_convolution {
    cuda_conv_result result;
    tu_dtype dtype;      /* element type of x, filter and y */
    bool full_f32;       /* f32 must not be rounded to tf32 */
    bool bias, relu;     /* applied to y before it is stored */
    tu__windows windows; /* kernel size, stride, dilation, padding */
    int64_t images, x_size[2], y_size[2];
    int64_t groups, x_channels, y_channels; /* channels per group */
} cuda_convolution;

/* ---- conv.c ---- */

typedef enum cuda_conv_choice { CUDA_CONV_AUTO, CUDA_CONV_CUDNN, CUDA_CONV_OWN } cuda_conv_choice;

/* Reads TUTTI_CONV from the environment: "cudnn" or "own" forces one implementation, to compare them. */
cuda_conv_choice cuda_conv_preference(void);

/* ---- conv_dnn.c ---- */

/* Builds a cuDNN execution plan for the convolution. Its operands are the two inputs, the bias if there is one, and
 * the result. Leaves p->plan NULL if cuDNN has no engine. */
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

/* ---- conv_direct.c ---- */

typedef struct cuda_conv_direct cuda_conv_direct;

/* Computes any convolution whose indices fit into an int; else returns TU_UNSUPPORTED. Allocated in s->arena. */
tu_status cuda_conv_direct_new(tu__selection *s, const cuda_convolution *c, cuda_conv_direct **direct);
size_t cuda_conv_direct_workspace(const cuda_conv_direct *direct);
tu_status cuda_conv_direct_run(const tu__kernel *k, const cuda_conv_direct *direct);

#endif
