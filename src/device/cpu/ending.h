/* What follows a convolution or a product and can be done before its result is stored: adding a bias, an activation.
 *
 * A bias alone costs a pass over the result; done on the way from the registers it costs nothing. */
#ifndef TU__DEVICE_CPU_ENDING_H
#define TU__DEVICE_CPU_ENDING_H

#include "device/cpu/cpu.h"

typedef struct cpu_ending {
    const tu__node *add, *activation; /* NULL where there is none */
    tu__edge bias;                    /* of add */
    tu__edge result;                  /* what is stored in the end */
} cpu_ending;

/* The bias over the last axis that is the only reader of the node's result, and the activation that is the only
 * reader of that. `applies` says which activations can be done; NULL: none. */
cpu_ending cpu_ending_of(cpu_selection *s, const tu__node *node, bool (*applies)(const tu__node *activation));

/* Has the kernel cover the ending and read the bias, as its next entry of k->in, if there is one. */
tu_status cpu_kernel_end(cpu_kernel *k, const cpu_ending *ending);

/* x < 0 ? 0 : x over a dense f32 or bf16 tensor, in place. oneDNN's own rectifier makes zeros of NaN, and a step that
 * is not finite would pass for a good one. */
void cpu_relu_in_place(tu_dtype dtype, void *data, int64_t count);

/* Of "conv2d", "conv2d+bias", "conv2d+relu", "conv2d+bias+relu", "conv2d+act" … the one that says what is done. */
const char *cpu_ending_name(const cpu_ending *ending, const char *const names[6]);
#define CPU_ENDING_NAMES(name)                                                                               \
    { name, name "+bias", name "+relu", name "+bias+relu", name "+activation", name "+bias+activation" }

#endif
