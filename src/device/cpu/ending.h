/* What follows a convolution or a product and can be done before its result is stored: adding a bias, a rectifier.
 *
 * A bias alone costs a pass over the result; done on the way from the registers it costs nothing. */
#ifndef TU__DEVICE_CPU_ENDING_H
#define TU__DEVICE_CPU_ENDING_H

#include "device/cpu/cpu.h"

typedef struct cpu_ending {
    const tu__node *add, *relu; /* NULL where there is none */
    tu__edge bias;              /* of add */
    tu__edge result;            /* what is stored in the end */
} cpu_ending;

/* The bias over the last axis that is the only reader of the node's result, and the rectifier that is the only reader
 * of that. */
cpu_ending cpu_ending_of(tu__selection *s, const tu__node *node);

/* Has the kernel cover the ending and read the bias, as its next entry of k->in, if there is one. */
tu_status cpu_kernel_end(tu__kernel *k, const cpu_ending *ending);

/* Adds a bias (or NULL) and rectifies, in place, a result that lies in memory. For kernels of oneDNN: its own rectifier
 * makes zeros of NaN, so that a step that is not finite would pass for a good one; and it adds a bias before the last
 * rounding, so that a value would depend on what it was fused with. */
void cpu_end_in_place(const cpu_device *device, tu_type type, void *data, const void *bias, bool relu);

/* Of "conv2d", "conv2d+bias", "conv2d+relu", "conv2d+bias+relu" the one that says what is done. */
const char *cpu_ending_name(const cpu_ending *ending, const char *const names[4]);
#define CPU_ENDING_NAMES(name)                                                                               \
    { name, name "+bias", name "+relu", name "+bias+relu" }

#endif
