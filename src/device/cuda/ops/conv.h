/* Shared declarations of the CUDA device's convolutions. conv.c chooses between conv_dnn.c (cuDNN) and handwritten
 * kernels in conv_few_channels.c, conv_f32.c and conv_direct.c. src/graph/ops/conv.c has the definition: a trilinear
 * form of x, filter and y, from which y or the gradient of x or of the filter is computed. */
#ifndef TU__DEVICE_CUDA_OPS_CONV_H
#define TU__DEVICE_CUDA_OPS_CONV_H

#include "device/cuda/ops/dnn.h"
#include "graph/ops/window.h"

typedef enum cuda_conv_result { CUDA_CONV_Y, CUDA_CONV_X, CUDA_CONV_FILTER } cuda_conv_result;

typedef struct cuda_convolution {
    cuda_conv_result result; /* which of the three is computed */
    tu_dtype dtype;          /* element type of all three */
    bool full_f32;           /* f32 must not be rounded to tf32 */
    bool bias, relu;         /* applied to y before it is stored */
    tu__windows windows;
    int64_t images, x_size[2], y_size[2];
    int64_t groups, x_channels, y_channels; /* channels per group */
} cuda_convolution;

/* ---- conv.c ---- */

typedef enum cuda_conv_choice { CUDA_CONV_AUTO, CUDA_CONV_CUDNN, CUDA_CONV_OWN } cuda_conv_choice;

/* Reads TUTTI_CONV from the environment: "cudnn" or "own" forces one implementation, to compare them. */
cuda_conv_choice cuda_conv_preference(void);

/* ---- conv_dnn.c ---- */

/* The plan's operands are the two inputs, the bias if there is one, and the result. Leaves p->plan NULL if cuDNN has
 * no engine. */
tu_status cuda_conv_dnn(cuda_device *device, const cuda_convolution *c, cuda_dnn_plan *p);

/* True if engines with tensor cores are the fast ones for this convolution; false for groups, f64 and full f32. */
bool cuda_conv_has_tensor_cores(const cuda_convolution *c);

/* ---- conv_few_channels.c ---- */

typedef struct cuda_conv_few_channels cuda_conv_few_channels;

/* Computes y of images with few channels, or the filter's gradient. Sets *few to NULL for other convolutions.
 * Allocated in the selection's arena. */
tu_status cuda_conv_few_channels_new(tu__selection *s, const cuda_convolution *c,
                                     cuda_conv_few_channels **few);
size_t cuda_conv_few_channels_workspace(const cuda_conv_few_channels *few);
tu_status cuda_conv_few_channels_run(const tu__kernel *k, const cuda_conv_few_channels *few);

/* ---- conv_f32.c ---- */

typedef struct cuda_conv_f32 cuda_conv_f32;

/* Computes f32 convolutions without tf32, with one group and channels divisible by 4. Sets *created to NULL for
 * others. Allocated in the selection's arena. */
tu_status cuda_conv_f32_new(tu__selection *s, const cuda_convolution *c, cuda_conv_f32 **created);
size_t cuda_conv_f32_workspace(const cuda_conv_f32 *f);
tu_status cuda_conv_f32_run(const tu__kernel *k, const cuda_conv_f32 *f);

/* ---- conv_direct.c ---- */

typedef struct cuda_conv_direct cuda_conv_direct;

/* Computes any convolution whose indices fit into an int; else returns TU_UNSUPPORTED. Allocated in the selection's
 * arena. */
tu_status cuda_conv_direct_new(tu__selection *s, const cuda_convolution *c, cuda_conv_direct **direct);
size_t cuda_conv_direct_workspace(const cuda_conv_direct *direct);
tu_status cuda_conv_direct_run(const tu__kernel *k, const cuda_conv_direct *direct);

#endif
