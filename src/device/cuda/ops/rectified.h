/* What follows a gradient dx whose x is a rectifier's result, and becomes part of its kernel. */
#ifndef TU__DEVICE_CUDA_OPS_RECTIFIED_H
#define TU__DEVICE_CUDA_OPS_RECTIFIED_H

#include "device/cuda/runtime/cuda.h"

typedef struct cuda_rectified {
    const tu__node *select, *greater; /* dx where x > 0, else 0; NULL: it is not chosen from */
    const tu__node *sum;              /* over all axes but the last; NULL: not wanted */
    tu__edge result;                  /* what is stored */
} cuda_rectified;

/* `node` computes the gradient of `x`. */
cuda_rectified cuda_rectified_of(tu__selection *s, const tu__node *node, tu__edge x);
/* The template's argument for it: bits RECTIFIED and SUMMED of the kernels. */
int cuda_rectified_bits(const cuda_rectified *r);
/* Of four names: "lrn_grad", "lrn_grad+select", "lrn_grad+sum", "lrn_grad+select+sum". */
#define CUDA_RECTIFIED_NAMES(name)                                                                           \
    { name, name "+select", name "+sum", name "+select+sum" }

/* Has the kernel cover all that, and write the result and, next, the sums. */
tu_status cuda_kernel_rectify(tu__kernel *k, const cuda_rectified *r, int in_place);

#endif
