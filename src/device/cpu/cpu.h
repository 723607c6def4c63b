/* The CPU device from inside. Its part of a graph becomes kernels by device/select.h; what no maker takes runs by its
 * reference meaning (reference.c), so every operation and type works, and the common ones are fast. What oneDNN wants
 * in another layout (filters) it reorders in its own workspace. */
#ifndef TU__DEVICE_CPU_H
#define TU__DEVICE_CPU_H

#include "base/parallel.h"
#include "device/select.h"

typedef struct cpu_device {
    int index, part, parts;
    int threads;
    int first_core; /* of the part, in the process's affinity mask */
    uint64_t memory_limit;
    const struct cpu_loops *loops; /* inner loops for this machine's instruction set: isa/loops.h */
} cpu_device;

/* The device of a kernel or a selection. */
#define cpu_of(holder) ((const cpu_device *)(holder)->device)

/* Makers, from makers.def. */
#define MAKER(op, maker) tu_status maker(tu__selection *s, const tu__node *node);
#include "device/cpu/makers.def"
tu_status cpu_make_reference(tu__selection *s, const tu__node *node);

/* move.c: copies a dense value into the buffer of an export. */
tu_status cpu_make_copy(tu__selection *s, tu__edge from, tu__edge to);

#endif
