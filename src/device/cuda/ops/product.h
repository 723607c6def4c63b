/* Products of the layers of a stack in tf32, by our own kernel. */
#ifndef TU__DEVICE_CUDA_OPS_PRODUCT_H
#define TU__DEVICE_CUDA_OPS_PRODUCT_H

#include "device/cuda/ops/gemm.h"

typedef struct cuda_product cuda_product;

/* Plans the product, with a bias and a relu if its epilogue says so. Sets *created to NULL if the library's kernels are
 * expected to be as fast, or ours does not support it. Allocated in s->arena. */
tu_status cuda_product_new(tu__selection *s, const cuda_gemm *gemm, cuda_product **created);
tu_status cuda_product_run(const tu__kernel *k, const cuda_product *product, const cuda_gemm_operands *o);

#endif
