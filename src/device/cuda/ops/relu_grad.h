/* The gradient of a relu, and the column sums, that follow a gradient dx and can be fused into its kernel. */
#ifndef TU__DEVICE_CUDA_OPS_RELU_GRAD_H
#define TU__DEVICE_CUDA_OPS_RELU_GRAD_H

#include "device/cuda/runtime/cuda.h"

typedef struct cuda_relu_grad {
    const tu__node *relu_grad; /* relu_grad(x, dx); NULL: no relu */
    const tu__node *sum;       /* the sum over all axes but the last; NULL: none */
    tu__edge result;           /* the value that the kernel stores */
    int64_t sums; /* equal parts of the positions that are summed: the networks of a stack, or 1; 0: no sum */
} cuda_relu_grad;

/* Finds what can be fused into `node`, which computes the gradient of `x`. */
cuda_relu_grad cuda_find_relu_grad(tu__selection *s, const tu__node *node, tu__edge x);
/* Returns the template argument: the kernels' bits RELU_GRAD (1), SUM_OVER_ROWS or SUM_OVER_POSITIONS (2), and SEVERAL_SUMS
 * (4). */
int cuda_relu_grad_bits(const cuda_relu_grad *r);
/* The names by these bits: "lrn_grad", "lrn_grad+relu_grad", "lrn_grad+sum", "lrn_grad+relu_grad+sum". */
#define CUDA_RELU_GRAD_NAMES(name)                                                                           \
    {                                                                                                        \
        name, name "+relu_grad", name "+sum", name "+relu_grad+sum", NULL, NULL, name "+sum",                \
            name "+relu_grad+sum"                                                                            \
    }

/* Adds the fused nodes to the kernel, and writes of the result and then of the sums. */
tu_status cuda_kernel_write_relu_grad(tu__kernel *k, const cuda_relu_grad *r, int in_place);

#endif
