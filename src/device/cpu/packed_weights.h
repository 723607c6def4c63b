/* Packed weights: constants with shared data, in the layout of the kernels that multiply by them.
 *
 * Such a constant never changes (graph/shared_data.h), so its weights are packed once, when a node that uses them is
 * lowered, and not in every run. The packed copies of the process are in a cache, by constant and layout: programs of
 * all batch sizes and all devices share one. A layout depends neither on the batch nor on the number of threads. A copy
 * is freed with the last kernel that refers to it. All functions are thread-safe. */
#ifndef TU__DEVICE_CPU_PACKED_WEIGHTS_H
#define TU__DEVICE_CPU_PACKED_WEIGHTS_H

#include <tutti/status.h>

#include "device/cpu/isa/loops_gemm.h"
#include "graph/shared_data.h"

typedef struct cpu_packed_layout cpu_packed_layout;
struct cpu_packed_layout {
    const cpu_gemm_loops *loops;
    const struct cpu_int8_dot *dot; /* of int8 weights: int8_filter.c; then `loops` is NULL */
    /* Writes the packed weights. Layouts of different functions are different. */
    void (*pack)(const cpu_packed_layout *layout, const void *source, void *packed);
    /* `groups` matrices [depth, columns], and the distances in the source, in elements. */
    int64_t groups, depth, columns;
    int64_t group_step, depth_step, column_step;
    size_t bytes; /* of the packed weights */
};

typedef struct cpu_packed_weights cpu_packed_weights;

/* Returns the packed copy of `source`, which is made if there is none yet. */
tu_status cpu_packed_weights_open(const tu__shared_data *source, const cpu_packed_layout *layout,
                                  cpu_packed_weights **weights);
void cpu_packed_weights_close(cpu_packed_weights *weights);             /* does nothing for NULL */
const void *cpu_packed_weights_data(const cpu_packed_weights *weights); /* 64-byte aligned */
size_t cpu_packed_weights_bytes(const cpu_packed_weights *weights);
/* Returns the number of copies in the cache, for tests. */
size_t cpu_packed_weights_count(void);

#endif
