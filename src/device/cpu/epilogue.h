/* Epilogues on the CPU; see device/kit/epilogue.h. */
#ifndef TU__DEVICE_CPU_EPILOGUE_H
#define TU__DEVICE_CPU_EPILOGUE_H

#include "device/cpu/cpu.h"
#include "device/kit/epilogue.h"

/* Adds a bias (or NULL) and applies relu, in place, to a result in memory. For kernels of oneDNN: its own relu turns
 * NaN into zero, so that a non-finite step would look healthy; and it adds a bias before the last rounding, so that
 * the result would depend on fusion. */
void cpu_apply_epilogue(const cpu_device *device, tu_type type, void *data, const void *bias, bool relu);

/* Adds the reads and writes of a kernel with an epilogue: the node's inputs, the epilogue's operand, and the
 * epilogue's result; sets the kernel's counts of flops and bytes. */
tu_status cpu_kernel_add_epilogue_operands(tu__kernel *k, const tu__selection *s, const tu__node *node,
                                           const tu__epilogue *epilogue);

#endif
