/* What the plug-in's operations offer: the lowering rules, and the selection of kernels by them. */
#ifndef TU__DEVICE_CUDA_OPS_OPS_H
#define TU__DEVICE_CUDA_OPS_OPS_H

#include "device/cuda/runtime/cuda.h"

#define LOWERING_RULE(op, rule) tu_status rule(tu__selection *s, const tu__node *node);
#include "device/cuda/ops/lowering.def"
/* rearrange.c: copies a dense value into the buffer of an export. */
tu_status cuda_lower_copy(tu__selection *s, tu__edge from, tu__edge to);

/* pointwise.c: fused clusters. */
typedef struct cuda_subkernel cuda_subkernel;
struct tu__cluster;
tu_status cuda_run_pointwise(const tu__kernel *k);
tu_status cuda_make_subkernel(tu__kernel *k, struct tu__cluster *c, void *subkernel);
tu_status cuda_finish_subkernels(tu__kernel *k, uint32_t count, void *subkernels);
tu__sum_kind cuda_sum_kind_of(const struct tu__cluster *c, tu_dtype dtype, tu__sum_form form,
                              bool *splits_rows);

/* matmul.c: the kernel of a product computes a cluster that reads the product (product_update.c). */
tu_status cuda_fuse_into_product(tu__kernel *k, struct tu__cluster *c, tu__edge operand, bool *fused);

/* cross_entropy.c: the logits that the kernel of a loss reads. */
tu__edge cuda_loss_input_after_fusion(tu__selection *s, const tu__node *loss, uint32_t index);
/* norm.c: the same for normalisations and their gradients. */
tu__edge cuda_norm_input_after_fusion(tu__selection *s, const tu__node *node, uint32_t index);

/* select.c */
tu_status cuda_lower(cuda_device *device, const tu_partition *partition, tu_plan **plan);
/* Returns TU_OK if cuda_lower() has a kernel for the node, else TU_UNSUPPORTED with the reason. */
tu_status cuda_supports(const tu__node *node);

#endif
