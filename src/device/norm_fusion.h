/* What surrounds a batch normalisation and becomes part of its kernels, on every device that fuses: norm_fusion.c finds
 * it, the device's norm.c computes it. */
#ifndef TU__DEVICE_NORM_FUSION_H
#define TU__DEVICE_NORM_FUSION_H

#include "base/shared.h"
#include "device/epilogue.h"

enum { TU__NORM_DY = 4 /* batch_norm_grad's input dy */ };

/* What follows y: the sum with another value of its type, which is joined to it, a rectifier, or both. tu__kernel_end
 * takes it in. */
TU__SHARED tu__epilogue tu__norm_epilogue_of(tu__selection *s, const tu__node *node);
/* "batch_norm+add+relu" */
TU__SHARED const char *tu__norm_epilogue_name(const tu__epilogue *epilogue);
/* Whether anybody asks where the rectified result is above zero: a gradient will. */
TU__SHARED bool tu__norm_epilogue_is_compared(tu__selection *s, const tu__epilogue *epilogue);

/* A gradient that reaches a batch_norm_grad through a rectifier: inputs[TU__NORM_DY] is `dy` where the rectified y of
 * `forward` is above zero, and zero elsewhere. The kernel of `forward` left what tells (tu__kernel_leave):
 *
 *   its factors   nothing was joined to y, and the gradient is of `forward` itself: y is computed again
 *   a mask        something was joined: `joined`. The gradient goes to others too, so it is a result of the kernel; and
 *                 where it is the sum of two values that nobody else wants, the kernel adds them up: `add` */
typedef struct tu__rectified {
    const tu__node *select, *greater, *forward;
    bool joined;
    const tu__node *add; /* NULL: `dy` is one value */
    tu__edge dy, other;
} tu__rectified;

/* Whether `node` is a batch_norm_grad that can take that in. Asked again later, it answers the same until the kernel is
 * made. */
TU__SHARED bool tu__find_rectified(tu__selection *s, const tu__node *node, tu__rectified *found);
/* Input `index` as the lowering rule will read it: what it is computed from, where the kernel does that itself. */
TU__SHARED tu__edge tu__norm_reads(tu__selection *s, const tu__node *node, uint32_t index);
/* Has the kernel cover the choice, and read what the forward kernel left, as its next entry of k->in; then `other`, if
 * there is one. */
TU__SHARED tu_status tu__kernel_take_rectified(tu__kernel *k, const tu__rectified *found);

#endif
