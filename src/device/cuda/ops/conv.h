/* A convolution as the CUDA device's files speak of it: conv.c decides, conv_dnn.c has cuDNN do it, conv_few.c, conv_f32.c
 * and conv_direct.c kernels of ours. src/graph/ops/conv.c has the definition: one trilinear form of x, filter and y, of which
 * each side can be asked for. */
#ifndef TU__DEVICE_CUDA_OPS_CONV_H
#define TU__DEVICE_CUDA_OPS_CONV_H

#include "device/cuda/ops/dnn.h"
#include "graph/ops/window.h"

typedef enum cuda_conv_side { CUDA_CONV_Y, CUDA_CONV_X, CUDA_CONV_FILTER } cuda_conv_side;

typedef struct cuda_convolution {
    cuda_conv_side side; /* which of the three is computed */
    tu_dtype dtype;      /* of all three */
    bool full_f32;       /* f32 may not be rounded to tf32 */
    bool bias, relu;     /* what follows y before it is stored */
    tu__windows windows;
    int64_t images, x_size[2], y_size[2];
    int64_t groups, x_channels, y_channels; /* channels of one group */
} cuda_convolution;

/* ---- conv.c ---- */

typedef enum cuda_conv_choice { CUDA_CONV_BY_BEST, CUDA_CONV_BY_DNN, CUDA_CONV_BY_US } cuda_conv_choice;

/* Whose kernels are wanted: TUTTI_CONV in the environment, "cudnn" or "own", to time one beside the other. */
cuda_conv_choice cuda_conv_wanted(void);

/* ---- conv_dnn.c ---- */

/* Operands of the plan are the two that are read, the bias if there is one, and the result. p->plan is NULL where cuDNN
 * has no engine. */
tu_status cuda_conv_dnn(cuda_device *device, const cuda_convolution *c, cuda_dnn_plan *p);

/* Whether engines with tensor cores are the fast ones; with groups of few channels others are. */
bool cuda_conv_has_tensor_cores(const cuda_convolution *c);

/* ---- conv_few.c ---- */

typedef struct cuda_conv_few cuda_conv_few;

/* y of images with few channels, and the filter's gradient; *few is NULL for other convolutions. Lives in the
 * selection's arena. */
tu_status cuda_conv_few_new(tu__selection *s, const cuda_convolution *c, cuda_conv_few **few);
size_t cuda_conv_few_workspace(const cuda_conv_few *few);
tu_status cuda_conv_few_run(const tu__kernel *k, const cuda_conv_few *few);

/* ---- conv_f32.c ---- */

typedef struct cuda_conv_f32 cuda_conv_f32;

/* f32 that is not rounded, of one group and channels in fours; *made is NULL for others. Lives in the selection's arena. */
tu_status cuda_conv_f32_new(tu__selection *s, const cuda_convolution *c, cuda_conv_f32 **made);
size_t cuda_conv_f32_workspace(const cuda_conv_f32 *f);
tu_status cuda_conv_f32_run(const tu__kernel *k, const cuda_conv_f32 *f);

/* ---- conv_direct.c ---- */

typedef struct cuda_conv_direct cuda_conv_direct;

/* Any convolution whose positions fit into an int; TU_UNSUPPORTED otherwise. Lives in the selection's arena. */
tu_status cuda_conv_direct_new(tu__selection *s, const cuda_convolution *c, cuda_conv_direct **direct);
size_t cuda_conv_direct_workspace(const cuda_conv_direct *direct);
tu_status cuda_conv_direct_run(const tu__kernel *k, const cuda_conv_direct *direct);

#endif
