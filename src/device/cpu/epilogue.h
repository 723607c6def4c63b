/* Endings on this device: device/epilogue.h says what an epilogue is and finds it. */
#ifndef TU__DEVICE_CPU_EPILOGUE_H
#define TU__DEVICE_CPU_EPILOGUE_H

#include "device/cpu/cpu.h"
#include "device/epilogue.h"

/* Adds a bias (or NULL) and rectifies, in place, a result that lies in memory. For kernels of oneDNN: its own rectifier
 * makes zeros of NaN, so that a step that is not finite would pass for a good one; and it adds a bias before the last
 * rounding, so that a value would depend on what it was fused with. */
void cpu_end_in_place(const cpu_device *device, tu_type type, void *data, const void *bias, bool relu);

/* Counts and binds a kernel of the node that ends so: it reads the node's inputs and what the epilogue reads, and writes what
 * the epilogue gives. */
tu_status cpu_kernel_bind_to_end(tu__kernel *k, const tu__selection *s, const tu__node *node,
                                 const tu__epilogue *epilogue);

#endif
