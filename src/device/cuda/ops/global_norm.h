/* The squared global norm of all gradients in two launches: global_norm.c. */
#ifndef TU__DEVICE_CUDA_OPS_GLOBAL_NORM_H
#define TU__DEVICE_CUDA_OPS_GLOBAL_NORM_H

#include "device/cuda/runtime/cuda.h"

/* Returns what the lowering rule of a sum reads as input `index`: the gradient itself if the global norm's kernel
 * squares it. */
tu__edge cuda_global_norm_read(tu__selection *s, const tu__node *node, uint32_t index);

#endif
