/* The squared norm of all gradients, found in a graph and computed by two launches: squares.c. */
#ifndef TU__DEVICE_CUDA_OPS_SQUARES_H
#define TU__DEVICE_CUDA_OPS_SQUARES_H

#include "device/cuda/runtime/cuda.h"

/* Input `index` of a sum as its lowering rule reads it: the gradient itself, where the norm's kernel squares it. */
tu__edge cuda_squares_read(tu__selection *s, const tu__node *node, uint32_t index);

#endif
