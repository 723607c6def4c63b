/* Fusion around batch normalisation, for every device that fuses: norm_fusion.c finds the nodes, the device's norm.c
 * computes them. */
#ifndef TU__DEVICE_NORM_FUSION_H
#define TU__DEVICE_NORM_FUSION_H

#include "base/shared.h"
#include "device/epilogue.h"

enum { TU__NORM_DY = 4 /* batch_norm_grad's input dy */ };

/* Finds the nodes after y to fuse: an addition of another value of y's type, a relu, or both. tu__kernel_add_epilogue
 * adds them to the kernel. */
TU__SHARED tu__epilogue tu__norm_epilogue_of(tu__selection *s, const tu__node *node);
/* "batch_norm+add+relu" */
TU__SHARED const char *tu__norm_epilogue_name(const tu__epilogue *epilogue);
/* True if the result of the relu is compared by `greater`, as its gradient does. */
TU__SHARED bool tu__norm_epilogue_is_compared(tu__selection *s, const tu__epilogue *epilogue);

/* A gradient of batch_norm_grad that comes through a relu: inputs[TU__NORM_DY] is `dy` where the relu of the y of
 * `forward` is above zero, else zero. The kernel of `forward` saved what is needed to decide that
 * (tu__kernel_save):
 *
 *   its factors   if nothing was added to y, and the gradient is that of `forward` itself: y is computed again
 *   a mask        if something was added (`joined`). Other nodes read the gradient too, so it is a result of the
 *                 kernel. If it is the sum of two values that only it reads, the kernel also adds them: `add` */
typedef struct tu__relu_gradient {
    const tu__node *select, *greater, *forward;
    bool joined;
    const tu__node *add; /* NULL: `dy` is one value */
    tu__edge dy, other;
} tu__relu_gradient;

/* True if `node` is a batch_norm_grad that can fuse this. The result stays the same until the node's kernel is
 * made. */
TU__SHARED bool tu__find_relu_gradient(tu__selection *s, const tu__node *node, tu__relu_gradient *found);
/* Returns the value that the lowering rule reads in place of input `index`: `dy` if the kernel fuses the relu. */
TU__SHARED tu__edge tu__norm_reads(tu__selection *s, const tu__node *node, uint32_t index);
/* Adds the select to the kernel, and a read of what the forward kernel saved, as the next entry of k->in; then a
 * read of `other`, if there is one. */
TU__SHARED tu_status tu__kernel_add_relu_gradient(tu__kernel *k, const tu__relu_gradient *found);

#endif
