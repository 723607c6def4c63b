/* Fusion around batch normalisation, for every device that fuses: norm_fusion.c finds the nodes, the device's norm.c
 * computes them. */
#ifndef TU__DEVICE_KIT_NORM_FUSION_H
#define TU__DEVICE_KIT_NORM_FUSION_H

#include "device/kit/epilogue.h"

enum { TU__NORM_DY = 4 /* batch_norm_grad's input dy */ };

/* Finds the nodes after the output y of a batch_norm that can be fused into its kernel: an addition of another value of
 * y's type, a relu, or both. tu__kernel_add_epilogue adds them to the kernel. */
tu__epilogue tu__norm_epilogue_of(tu__selection *s, const tu__node *node);
/* Returns the name of the fused kernel, such as "batch_norm+add+relu". */
const char *tu__norm_epilogue_name(const tu__epilogue *epilogue);
/* True if the gradient of the relu is in this partition. */
bool tu__norm_relu_has_gradient(tu__selection *s, const tu__epilogue *epilogue);

/* The gradient of a relu before a batch_norm_grad, where the relu follows the batch_norm `forward`:
 *
 *     inputs[TU__NORM_DY] = relu_grad(relu(y), dy)                 y: output of `forward`
 *     inputs[TU__NORM_DY] = relu_grad(relu(y + residual), dy)      if has_residual
 *
 * The kernel of `forward` saved data for the condition (tu__kernel_save):
 *
 *     without a residual   scale and shift of each channel: y is computed again from x. The batch_norm_grad must be
 *                          that of `forward`.
 *     with a residual      a mask with one bit per element. The kernel also writes the result of `relu_grad`,
 *                          because other nodes read it. If dy is a sum and only `relu_grad` reads it, the kernel also
 *                          computes the sum (`add`). */
typedef struct tu__relu_gradient {
    const tu__node *relu_grad, *forward;
    bool has_residual;
    const tu__node *add; /* the sum dy + addend, computed by the kernel; NULL: none */
    tu__edge dy, addend; /* addend: only if `add` */
} tu__relu_gradient;

/* True if `node` is a batch_norm_grad whose kernel can also compute the gradient of a relu: `*found`. May be called
 * repeatedly until the kernel is made, with the same result. */
bool tu__find_relu_gradient(tu__selection *s, const tu__node *node, tu__relu_gradient *found);
/* Returns the value that the kernel of `node` reads as input `index`: the `dy` of tu__relu_gradient in place of
 * inputs[TU__NORM_DY] if the gradient of a relu is fused; otherwise inputs[index]. */
tu__edge tu__norm_input_after_fusion(tu__selection *s, const tu__node *node, uint32_t index);
/* Adds to the kernel the nodes `relu_grad` and `add`; then, as the next entries of k->in, the data that the kernel of
 * `forward` saved, and `addend` if there is one. */
tu_status tu__kernel_add_relu_gradient(tu__kernel *k, const tu__relu_gradient *found);

#endif
