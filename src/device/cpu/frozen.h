/* Convolutions and matrix products of frozen graphs: their weights are constants with shared data. */
#ifndef TU__DEVICE_CPU_FROZEN_H
#define TU__DEVICE_CPU_FROZEN_H

#include "device/cpu/conv_direct.h"
#include "device/cpu/cpu.h"

/* Return TU_UNSUPPORTED if the second input is not such a constant, or there is no kernel for the types. */
tu_status cpu_lower_frozen_conv2d(tu__selection *s, const tu__node *node, const cpu_convolution *c);
tu_status cpu_lower_frozen_matmul(tu__selection *s, const tu__node *node);

#endif
