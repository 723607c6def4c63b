/* Ending in memory what oneDNN left there: device/ending.h says what an ending is and finds it. */
#ifndef TU__DEVICE_CPU_ENDING_H
#define TU__DEVICE_CPU_ENDING_H

#include "device/cpu/cpu.h"
#include "device/ending.h"

/* Adds a bias (or NULL) and rectifies, in place, a result that lies in memory. For kernels of oneDNN: its own rectifier
 * makes zeros of NaN, so that a step that is not finite would pass for a good one; and it adds a bias before the last
 * rounding, so that a value would depend on what it was fused with. */
void cpu_end_in_place(const cpu_device *device, tu_type type, void *data, const void *bias, bool relu);

#endif
