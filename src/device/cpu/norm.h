/* What surrounds a batch normalisation and becomes part of its kernels: norm_fusion.c finds it, norm.c computes it. */
#ifndef TU__DEVICE_CPU_NORM_H
#define TU__DEVICE_CPU_NORM_H

#include "device/cpu/cpu.h"

enum { CPU_NORM_DY = 4 /* batch_norm_grad's input dy */ };

/* What follows y: the sum with another value of its type, a rectifier, or both. */
typedef struct cpu_norm_ending {
    const tu__node *add, *relu; /* NULL where there is none */
    tu__edge join;              /* the other value of add */
    tu__edge result;            /* what is stored in the end */
} cpu_norm_ending;

cpu_norm_ending cpu_norm_ending_of(tu__selection *s, const tu__node *node);
/* "batch_norm+add+relu" */
const char *cpu_norm_ending_name(const cpu_norm_ending *ending);
/* Has the kernel cover the ending, and read `join` as its next entry of k->in, if there is one. */
tu_status cpu_kernel_end_norm(tu__kernel *k, const cpu_norm_ending *ending);

/* A gradient that reaches a batch_norm_grad through a rectifier: inputs[CPU_NORM_DY] is `dy` where the rectified y of
 * `forward` is above zero, and zero elsewhere. */
typedef struct cpu_rectified {
    const tu__node *select, *greater, *forward;
    tu__edge dy;
} cpu_rectified;

/* Whether `node` is a batch_norm_grad that can take that in. Asked again later, it answers the same until the kernel is
 * made. */
bool cpu_find_rectified(tu__selection *s, const tu__node *node, cpu_rectified *found);
/* Input `index` as the maker will read it: what it is computed from, where the kernel does that itself. */
tu__edge cpu_read_by_maker(tu__selection *s, const tu__node *node, uint32_t index);
/* Has the kernel cover the choice, and read what the forward kernel left, as its next entry of k->in. */
tu_status cpu_kernel_take_rectified(tu__kernel *k, const cpu_rectified *found);

#endif
