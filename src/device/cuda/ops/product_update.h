/* Products that compute a fused cluster from their result instead of storing it: the gradient of weights and their update, in
 * one kernel. */
#ifndef TU__DEVICE_CUDA_OPS_PRODUCT_UPDATE_H
#define TU__DEVICE_CUDA_OPS_PRODUCT_UPDATE_H

#include "device/cuda/ops/gemm.h"
#include "device/kit/fusion.h"

/* True if a product has such a kernel with this cluster, and it is expected to be faster than two kernels. */
bool cuda_product_update_fits(const tu__selection *s, const cuda_gemm *gemm, const tu__cluster *c);
/* Turns the kernel of the product `product`, with reads of its two operands, into one that computes the cluster. */
tu_status cuda_product_update_plan(tu__kernel *k, tu__cluster *c, tu__edge product, const cuda_gemm *gemm);

#endif
