/* The CPU device. device/kit/select.h turns its partition of a graph into kernels. Operations that no lowering rule
 * supports run by their reference kernels (reference.c), so every operation and type works, and the common ones are
 * fast. Filters that oneDNN needs in another layout are reordered in the kernel's workspace. */
#ifndef TU__DEVICE_CPU_CPU_H
#define TU__DEVICE_CPU_CPU_H

#include "base/parallel.h"
#include "device/kit/select.h"

typedef struct cpu_device {
    int index, logical_index, logical_count;
    int threads;
    int first_core; /* the logical device's first core, as an index into the process's affinity mask */
    uint64_t memory_limit;
    const struct cpu_loops *loops; /* inner loops for this machine's instruction set: isa/loops.h */
} cpu_device;

/* Returns the device of a kernel or a selection. */
#define cpu_of(holder) ((const cpu_device *)(holder)->device)

/* Returns the number of threads among which the kernels of a graph may divide the additions of one sum. */
int cpu_sum_threads(const tu__selection *s);

/* Lowering rules, from lowering.def. */
#define LOWERING_RULE(op, rule) tu_status rule(tu__selection *s, const tu__node *node);
#include "device/cpu/lowering.def"
tu_status cpu_lower_reference(tu__selection *s, const tu__node *node);

/* int8_values.c: the rule of max_pool for u8. */
tu_status cpu_lower_max_pool_u8(tu__selection *s, const tu__node *node);

/* rearrange.c: adds a kernel that copies a dense value into the buffer of an export. */
tu_status cpu_lower_copy(tu__selection *s, tu__edge from, tu__edge to);

#endif
