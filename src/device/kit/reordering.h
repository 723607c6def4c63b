/* Operations that reorder the elements of their input: broadcast, transpose, slice, flip. This file describes each
 * of them by strides; each device has its own kernels for them. */
#ifndef TU__DEVICE_KIT_REORDERING_H
#define TU__DEVICE_KIT_REORDERING_H

#include "device/kit/select.h"

/* Element `index` of the result is element `start + index . strides` of the dense input. */
typedef struct tu__reordering {
    int64_t start, strides[TU_MAX_RANK];
} tu__reordering;

tu__reordering tu__reordering_of(const tu__selection *s, const tu__node *node);

#endif
